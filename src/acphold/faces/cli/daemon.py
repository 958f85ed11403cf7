"""The daemon: the process behind `wrap`, which keeps the sessions of a journal.

`cli.front` starts it, as `acphold daemon FILE`; `acphold agent daemon` is one in the foreground.
It holds that file while it lives, so if two are started at once, only one of them runs. Once it
listens it notes its socket there, and fronts find it by that alone.
"""

# See docs/decisions.md, 18.

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager, suppress
from functools import partial

from msgspec.structs import replace

from acp_wire.processes.limits import free_self
from acp_wire.tasks import beside, first, tick
from acp_wire.transports.child import StderrRelay
from acphold.errors import (
    AcpError,
    AgentStartError,
    JournalError,
    JournalUnavailableError,
    SettingsError,
)
from acphold.faces.cli import bounds, options
from acphold.faces.cli.alert_settings import AlertFile
from acphold.faces.cli.command_line import Exit, UsageError, command
from acphold.faces.cli.front import (
    FAILED,
    JOURNAL_FAILED,
    LISTENS,
    REPORT,
    TAKEN,
    daemon_lock,
    journal_of,
)
from acphold.faces.cli.heartbeat import beat, forget
from acphold.faces.cli.log import front_log, start_daemon_log
from acphold.faces.cli.scopes import keep_scopes
from acphold.faces.cli.settings import (
    NamedAgent,
    agent_command,
    agent_name,
    in_home,
    settings_path,
)
from acphold.faces.cli.starts import remember, start_in
from acphold.faces.cli.terminal_text import tell
from acphold.faces.cli.watchdog import keep_own_code, watch_loop, write_tasks
from acphold.faces.cli.wrap import make_service, settings_of, split_name
from acphold.journal import stores
from acphold.journal_location import (
    VARIABLE,
    belongings,
    default_location,
    scheme_of,
    short_mark,
)
from acphold.live.agents.interface import HubAgent
from acphold.live.server.daemon import DaemonRunsError, serve_journal
from acphold.live.server.pool import PreparedAgent
from acphold.live.server.service import Service, stop_at_signals
from acphold.machine import begun
from acphold.machine.first_frame import BRIEF, EDITOR, SERVER, FirstFrame
from acphold.machine.folder_watch import LOSSES, FolderWatch
from acphold.machine.installation import is_replaced
from acphold.machine.locked_file import LockedFile, hold
from acphold.machine.place import place_of
from acphold.machine.runtime_folder import daemon_socket
from acphold.machine.unix import REBIND_SECONDS, identity_at
from acphold.serve_options import ServeOptions

log = logging.getLogger(__name__)


def start_daemon(path: str, held: LockedFile | None) -> int:
    """Become the daemon that holds the file at `path`, for the journal that the environment names;
    it is `held` already, or None."""
    try:
        if held is None and (held := _hold(path)) is None:
            report(TAKEN)
            return Exit.OK
        try:
            log_to_file(default_location())
            _normalise()
            # The terminal and the login may end before us.
            signal.signal(signal.SIGHUP, signal.SIG_IGN)
            # Else asyncio's comes in between, and replacing that one imports `inspect`.
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            start_daemon_log()
            gc.freeze()
            gc.enable()
            asyncio.run(_serve(held, default_location(), is_in_background=True))
        finally:
            held.release()
    except DaemonRunsError as exc:
        report(f"{TAKEN} {exc.path}")
    except AcpError as exc:
        report(f"{JOURNAL_FAILED if isinstance(exc, JournalError) else FAILED} {exc}")
        return Exit.ERROR
    except OSError as exc:
        why = f"no daemon starts beside {default_location()}: {exc}; see `acphold doctor`"
        report(f"{FAILED} {why}")
        return Exit.ERROR
    finally:
        begun.abandon()
    return Exit.OK


def _hold(path: str) -> LockedFile | None:
    """Hold a file, as in `hold`; raises JournalUnavailableError."""
    try:
        return hold(path)
    except OSError as exc:
        raise JournalUnavailableError(
            f"cannot lock {path}: {exc.strerror}; its holder keeps the journal's sessions. Put the "
            "journal where you can write, on a file system that supports locks, and name it by "
            "--journal"
        ) from None


@command("agent daemon", "[OPTIONS]", options.JOURNAL)
def run_daemon() -> None:
    """Run the daemon in the foreground, until a signal ends it.

    `acphold wrap` starts this process by itself when it needs it, and it ends when nothing needs
    it. Run it yourself in a container, as a service, or to see what it logs: it then stays, and
    logs to stderr. `wrap` finds it if it runs as the same user, with the same journal. SIGTERM and
    Ctrl-C end it, with its agents.
    """
    location = journal_of(())
    if (held := _hold(daemon_lock(location))) is None:
        raise DaemonRunsError(_journal_name(location))
    os.environ[VARIABLE] = location
    _normalise()
    start_daemon_log()
    try:
        asyncio.run(_serve(held, location, is_in_background=False))
    finally:
        held.release()


def _normalise() -> None:
    """Be the same process whoever starts us: nothing of the first editor is left."""
    os.chdir("/")
    os.umask(0o077)
    free_self()


def report(message: str) -> None:
    """Send one line to the pipe of our parent, and close it."""
    try:
        os.write(REPORT, f"{' '.join(message.split())}\n".encode(errors="replace"))
        os.close(REPORT)
    except OSError:
        pass  # the parent has gone, or this was started by hand


async def _serve(held: LockedFile, journal: str, *, is_in_background: bool) -> None:
    """Serve until a signal stops us; in the background, until nobody needs us. Raises JournalError,
    OSError, RuntimeFolderError."""

    def shorten_log() -> None:
        """Start the log anew if it is too long."""
        with suppress(OSError):  # a new one cannot be written: keep the old one
            if is_in_background and os.fstat(2).st_size > bounds.LOG_BYTES:
                log_to_file(journal)

    async def look_at_log() -> None:
        while True:
            await tick(bounds.LOG_LOOK_SECONDS)
            shorten_log()

    path = daemon_socket(held.mark)

    def note_socket(moved: str) -> None:
        nonlocal path
        path = moved
        held.note(path)

    def say_ready() -> None:
        if not held.keep():  # somebody removed it, and another daemon has it
            raise DaemonRunsError(_journal_name(journal))
        if is_in_background:
            report(LISTENS)
        else:
            tell(f"acphold: keeping the sessions of {_journal_name(journal)}")

    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, write_tasks)
    StderrRelay.on_much = shorten_log  # what an agent floods it with
    joined = Service(make_agent=lambda *_: HubAgent(), options=ServeOptions(journal=journal))
    stop = stop_at_signals((signal.SIGTERM, signal.SIGINT))
    async with (
        beside(look_at_log(), "look at log"),
        beside(_keep_lock(held, journal, stop), "keep lock"),
        beside(keep_own_code(), "keep code"),
        beside(_watch_agents(), "watch agents"),
        beside(keep_scopes(is_in_background=is_in_background), "keep scopes"),
        watch_loop(lambda: beat(path)),
    ):
        await serve_journal(
            path,
            joined,
            partial(prepare_front, journal),
            called=agent_name,
            note=note_socket,
            stop=stop,
            stays=not is_in_background,
            ready=say_ready,
        )
        forget(path)


async def _keep_lock(held: LockedFile, journal: str, stop: asyncio.Event) -> None:
    """Take our lock back as soon as it is removed, and stop once another daemon has it for good, or
    the file of the journal has gone for good, too: it was moved with its folder, say. Nothing is
    made in its place meanwhile, since it may be moved back.

    A daemon that begins meanwhile holds it only until it has found us in the journal.
    """
    is_in_file = scheme_of(journal) is None
    known, lost = None, 0.0
    with suppress(OSError):
        known = identity_at(journal) if is_in_file else None
    await asyncio.sleep(REBIND_SECONDS)  # the first editor waits for its agent
    watch = FolderWatch(LOSSES)
    try:
        while lost < bounds.LOCK_LOST_SECONDS:
            watch.changed.clear()
            is_told = watch.add([os.path.dirname(held.path)])  # first: no loss is missed
            try:
                its_file = identity_at(journal) if is_in_file else None
                if held.is_there:
                    known = its_file
                is_lost = known not in (None, its_file) or not held.keep()
            except OSError:  # its folder cannot be read or written now
                is_told, is_lost = False, False
            lost = lost + bounds.LOCK_LOOK_SECONDS if is_lost else 0.0
            if not is_lost:
                told = [watch.changed.wait()] if is_told else []
                await first(tick(bounds.LOG_LOOK_SECONDS), *told)
            if is_lost or watch.changed.is_set():  # after a tick an idle process sleeps on
                await asyncio.sleep(bounds.LOCK_LOOK_SECONDS)
    finally:
        watch.close()
    log.warning("%s is not ours any more: this daemon ends", held.path)
    stop.set()


async def _watch_agents() -> None:
    """Watch the folders of agents, once the first editor has its answer."""
    await asyncio.sleep(bounds.WATCH_QUIET_SECONDS)
    from acphold.faces.cli.agents_watch import watch_agents

    await watch_agents()


def _journal_name(journal: str) -> str:
    """Return the journal's name for people, without a password."""
    return stores.journal_name(journal).partition("?")[0]


LINGERS = {
    EDITOR: bounds.LINGER_SECONDS,
    BRIEF: 0.0,
    SERVER: bounds.SERVED_LINGER_SECONDS,
}
"""Seconds that an idle agent stays, for each kind of front, if the settings say nothing else."""


@asynccontextmanager
async def prepare_front(
    journal: str, frame: FirstFrame, stderr: int
) -> AsyncIterator[PreparedAgent]:
    """Read a front's words, in its surroundings, for as long as its desk is there.

    Raises SettingsError, and AgentStartError for words that cannot be used. An agent that was begun
    with the daemon, and is not the one that the words mean, is ended.
    """
    words, within = list(frame.words), frame.surroundings
    try:
        name, options = ("", words[: words.index("--")]) if "--" in words else split_name(words)
        path = settings_path(within)
        agent = NamedAgent(tuple(frame.command), file=path)
        if name:
            agent = agent_command(name, frame.command, path)
        settings = settings_of(options, agent)
    except (SettingsError, UsageError, ValueError) as exc:
        _let_go(frame)
        if isinstance(exc, SettingsError):
            raise
        raise AgentStartError(str(exc)) from None
    if (log_file := settings.log_file) is not None:
        log_file = within.absolute(in_home(log_file, within.home))
    settings = replace(
        settings,
        journal=journal,
        log_file=log_file,
        no_import=settings.no_import or frame.is_brief or is_replaced(),
        given=() if frame.kind == SERVER else settings.given,  # a server's are about itself
    )
    start = start_in(within, settings.called, settings.program, settings.given)
    async with aclosing(AlertFile(journal, within)) as alerts:
        with front_log(settings.log_level, log_file, stderr) as heard, remember(start, journal):
            at_once, relay_to = frame.kind != SERVER, (2, stderr)
            service = make_service(
                settings, within, start, alerts, log_file, relay_to=relay_to, at_once=at_once
            )
            linger = LINGERS[frame.kind] if settings.linger is None else settings.linger
            # In the next step: the desk is made in this one, and takes the agent if it is the same.
            asyncio.get_running_loop().call_soon(_let_go, frame)
            yield PreparedAgent(service, 0.0 if frame.is_brief else linger, heard, start.mark)


def _let_go(frame: FirstFrame) -> None:
    """End an agent that was begun for this front, which means another one, or for one that has not
    come; that may take seconds."""
    if begun.is_left(frame.command, frame.surroundings, frame.surroundings.folder):
        asyncio.get_running_loop().run_in_executor(None, begun.abandon)


def log_to_file(journal: str) -> None:
    """Send everything that any code in this process prints to the log of the daemon of a journal in
    this place; raises OSError."""
    folder = belongings(journal)
    try:
        os.makedirs(folder, 0o700, exist_ok=True)
    except OSError as exc:
        raise OSError(
            f"cannot create the log folder, {folder}: {exc.strerror}; put the journal where you "
            "can write, and name it by --journal"
        ) from None
    file = os.path.join(folder, f"daemon-{short_mark(place_of())}.log")
    try:
        if os.path.getsize(file) > bounds.LOG_BYTES:
            os.replace(file, f"{file}.old")
    except FileNotFoundError:
        pass  # the first time
    log = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(log, 2)
    os.close(log)
