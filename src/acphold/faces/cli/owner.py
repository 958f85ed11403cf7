"""`acphold owner`: the process behind `wrap --background`, which keeps an agent and its sessions.

It is started by `cli.thin_wrap`, never by hand. It holds a lock beside its socket while it
lives, so if two are started at once, only one of them runs.
"""

# See docs/decisions.md, 18.

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import aclosing, suppress

from acp_wire.processes.program import Program
from acp_wire.tasks import beside, tick
from acp_wire.transports.child import StderrRelay
from acp_wire.transports.runtime_folder import state_folder
from acphold.errors import AcpError
from acphold.faces.cli import bounds
from acphold.faces.cli.alert_settings import AlertFile
from acphold.faces.cli.command_line import Exit
from acphold.faces.cli.log import start_log
from acphold.faces.cli.starts import remembered
from acphold.faces.cli.thin_wrap import READY
from acphold.faces.cli.wrap import WrapSettings, served
from acphold.live.server.service import serve_background, stop_at_signals


def report(message: str) -> None:
    """Send one line to the pipe of our parent, and close it."""
    try:
        os.write(READY, f"{' '.join(message.split())}\n".encode(errors="replace"))
        os.close(READY)
    except OSError:
        pass  # the parent has gone, or this was started by hand


def serve_sessions(path: str, held: int, settings: WrapSettings, launched: Program | None) -> int:
    """Serve until it is idle for long enough, or a signal stops it; returns the exit code.

    `held` is the lock of the socket's name, `path`.
    """
    log_file = start_log(settings.log_level, settings.log_file)

    def shorten_log() -> None:
        """Start the log anew if it is too long."""
        with suppress(OSError):  # a new one cannot be written: keep the old one
            if os.fstat(2).st_size > bounds.LOG_BYTES:
                log_to_file(path)

    async def look_at_log() -> None:
        while True:
            await tick(bounds.LOG_LOOK_SECONDS)
            shorten_log()

    async def serve() -> None:
        StderrRelay.on_much = shorten_log  # what an agent floods it with
        async with (
            aclosing(AlertFile(settings.journal)) as alerts,
            beside(look_at_log(), "shorten log"),
        ):
            await serve_background(
                path,
                served(settings, launched, log_file, alerts),
                held=held,
                stop=stop_at_signals((signal.SIGTERM, signal.SIGINT)),
                linger=settings.linger,
                ready=lambda: report("ready"),
            )

    try:
        with remembered(settings.start):
            asyncio.run(serve())
    except (AcpError, OSError) as exc:
        report(str(exc))
        if launched is not None:
            launched.abandon()
        return Exit.ERROR
    return Exit.OK


def log_to_file(path: str) -> None:
    """Send everything that any code in this process prints to its log; raises OSError."""
    folder = state_folder()
    try:
        os.makedirs(folder, 0o700, exist_ok=True)
    except OSError as exc:
        raise OSError(
            f"cannot create the log folder, {folder}: {exc.strerror}; set XDG_STATE_HOME to "
            "another folder, or leave out --background"
        ) from None
    name = os.path.basename(path).rpartition(".")[0]
    file = os.path.join(folder, f"{name}.log")
    try:
        if os.path.getsize(file) > bounds.LOG_BYTES:
            os.replace(file, f"{file}.old")
    except FileNotFoundError:
        pass  # the first time
    log = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(log, 2)
    os.close(log)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # the terminal and the login may end before us
