"""`acphold wrap -- CMD`: ACP on stdio for an editor, in front of CMD."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from pathlib import Path
from typing import cast

from msgspec import Struct

from acphold.agents.wrapped import ProcessAgent
from acphold.cli.options import WRAP_OPTIONS, UsageError, read_options
from acphold.journal import default_location
from acphold.processes.launch import Launched
from acphold.server.serving import serve, stop_at_signals
from acphold.transports.pipes import PipeTransport
from acphold.transports.stderr import Relay

log = logging.getLogger("acphold")


class WrapSettings(Struct, frozen=True):
    """The options of one `wrap`; times in seconds, sizes in bytes."""

    command: tuple[str, ...]
    journal: str
    start_timeout: float
    cancel_grace: float
    max_message: int
    log_level: str
    log_file: Path | None


def wrap(
    arguments: list[str], command: list[str], launched: Launched | None, streams: tuple[int, int]
) -> int:
    """Serve until the editor leaves; the exit code: 0, or 2 for arguments that cannot be used.

    `launched` is the agent if it could be started; `streams` are the descriptors to read from the
    editor and to write to it.
    """
    try:
        settings = _settings(arguments, command)
    except UsageError as exc:
        print(f"acphold wrap: {exc}", file=sys.stderr)
        if launched is not None:
            launched.abandon()
        return 2
    _start_logging(settings)
    asyncio.run(_serve(settings, launched, streams))
    return 0


def _settings(arguments: list[str], command: list[str]) -> WrapSettings:
    if not command:
        raise UsageError("no agent command behind `--`, as in `acphold wrap -- CMD`")
    values = read_options(arguments, WRAP_OPTIONS)
    log_file = cast("str | None", values["log-file"])
    return WrapSettings(
        command=tuple(command),
        journal=cast("str | None", values["journal"]) or default_location(),
        start_timeout=cast(float, values["start-timeout"]),
        cancel_grace=cast(float, values["cancel-grace"]),
        max_message=cast(int, values["max-message"]),
        log_level=cast(str, values["log-level"]),
        log_file=None if log_file is None else Path(log_file).expanduser(),
    )


class _Stderr(logging.Handler):
    """Logs to stderr, which editors keep with the agent's own; one that does not loses lines."""

    def __init__(self) -> None:
        super().__init__()
        self._relay = Relay(2)

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._relay.pass_on(f"{self.format(record)}\n".encode(errors="replace"))
        except Exception:  # as every handler has it: what is logged must not fail
            self.handleError(record)


def _start_logging(settings: WrapSettings) -> None:
    logging.raiseExceptions = False  # a full disk under the log is no reason to print
    handler: logging.Handler = _Stderr()
    if settings.log_file is not None:
        try:
            os.close(os.open(settings.log_file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600))
            handler = logging.FileHandler(settings.log_file, encoding="utf-8", errors="replace")
        except OSError as exc:
            print(f"acphold wrap: no log in {settings.log_file}: {exc.strerror}", file=sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(name)s %(levelname)s %(message)s"))
    logging.basicConfig(level=settings.log_level, handlers=[handler])


async def _serve(
    settings: WrapSettings, launched: Launched | None, streams: tuple[int, int]
) -> None:
    async def give_up() -> None:
        if launched is not None:
            # In a thread: an agent may take its time to end, and the client does not wait for it.
            await asyncio.to_thread(launched.abandon)

    await serve(
        PipeTransport(*streams),
        settings.journal,
        lambda listener, _: ProcessAgent(
            settings.command,
            listener,
            launched=launched,
            start_timeout=settings.start_timeout,
            limit=settings.max_message,
            stderr_log=settings.log_file,
        ),
        stop=stop_at_signals(),
        cancel_grace=settings.cancel_grace,
        limit=settings.max_message,
        give_up=give_up,
    )
