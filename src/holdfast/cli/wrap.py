"""`holdfast wrap -- CMD`: ACP on stdio for an editor, in front of CMD."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import sys
from pathlib import Path
from typing import cast

from msgspec import Struct

from holdfast.agents import ProcessAgent
from holdfast.cli.options import WRAP_OPTIONS, UsageError, read_options
from holdfast.errors import HoldfastError
from holdfast.hub import Hub
from holdfast.journal import Journal, SqliteJournal, default_location
from holdfast.rpc import NotificationReceived, Peer, RequestReceived, Transport, connected
from holdfast.server import Connection
from holdfast.transports.launch import Launched
from holdfast.transports.pipes import PipeTransport
from holdfast.transports.stderr import Relay

log = logging.getLogger("holdfast")


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
        print(f"holdfast wrap: {exc}", file=sys.stderr)
        if launched is not None:
            launched.abandon()
        return 2
    _start_logging(settings)
    asyncio.run(_serve(settings, launched, streams))
    return 0


def _settings(arguments: list[str], command: list[str]) -> WrapSettings:
    if not command:
        raise UsageError("no agent command behind `--`, as in `holdfast wrap -- CMD`")
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
            print(f"holdfast wrap: no log in {settings.log_file}: {exc.strerror}", file=sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(name)s %(levelname)s %(message)s"))
    logging.basicConfig(level=settings.log_level, handlers=[handler])


async def _serve(
    settings: WrapSettings, launched: Launched | None, streams: tuple[int, int]
) -> None:
    transport = PipeTransport(*streams)
    stop = _signalled()
    try:
        journal = SqliteJournal.open(settings.journal)
    except HoldfastError as exc:
        await _refuse(transport, exc, stop, launched)
        return
    try:
        await _serve_with(journal, transport, settings, launched, stop)
    finally:
        await journal.aclose()


async def _serve_with(
    journal: Journal,
    transport: Transport,
    settings: WrapSettings,
    launched: Launched | None,
    stop: asyncio.Event,
) -> None:
    hub = Hub(
        journal,
        lambda listener: ProcessAgent(
            settings.command,
            listener,
            launched=launched,
            start_timeout=settings.start_timeout,
            limit=settings.max_message,
            stderr_log=settings.log_file,
        ),
        owner=f"{socket.gethostname()}:{os.getpid()}",
        cancel_grace=settings.cancel_grace,
    )
    async with hub.open():
        connection = Connection(hub, transport, limit=settings.max_message)
        async with connected(connection.peer) as pump:
            await _first(pump, stop)


async def _refuse(
    transport: Transport, error: HoldfastError, stop: asyncio.Event, launched: Launched | None
) -> None:
    """Without a journal nothing of what holdfast promises holds: say so to whatever is asked."""
    log.error("%s", error)
    # In a thread: an agent may take its time to end, and the client is not to wait for that.
    ending = asyncio.to_thread(launched.abandon) if launched is not None else asyncio.sleep(0)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(ending, name="end agent")
        async with connected(Peer(transport, _Refusal(error), name="client")) as pump:
            await _first(pump, stop)


class _Refusal:
    def __init__(self, error: HoldfastError) -> None:
        self._error = error

    async def on_request(self, request: RequestReceived) -> bytes:
        raise self._error

    async def on_notifications(self, batch: list[NotificationReceived]) -> None:
        return None


def _signalled() -> asyncio.Event:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    return stop


async def _first(pump: asyncio.Task[None], stop: asyncio.Event) -> None:
    """Wait for the end of the client, or of us."""
    stopped = asyncio.create_task(stop.wait(), name="signal")
    await asyncio.wait({pump, stopped}, return_when=asyncio.FIRST_COMPLETED)
    stopped.cancel()
