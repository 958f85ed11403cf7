"""This user's other processes that serve sessions: what is live in them, and which are silent."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from math import inf
from time import monotonic

import msgspec
from msgspec import Struct

from acp_wire.processes import process_tree
from acp_wire.schema import CLOSE_SESSION
from acp_wire.schema.splice import json_value
from acphold import errors
from acphold.journal.journal import Journal, Owners, other_owner
from acphold.journal.owners import Owner
from acphold.live.reading import bounds
from acphold.live.reading.hung_daemon import STATUS, STOP_NOW, ask_hung
from acphold.live.reading.one_question import PRESENCE, answer_of, ask_owner, owner_addresses
from acphold.machine.addresses import paths_here, unix_address
from acphold.machine.locked_file import holder, is_held
from acphold.machine.runtime_folder import is_of_daemon, sockets
from acphold.machine.unix import is_in_our_place, is_listening, pid_at


class LiveSession(Struct, frozen=True, rename="camel"):
    """A session in the memory of a process.

    `clients` have it open, of which `watching` only watch. `running` is set while a turn runs,
    `waiting` while the agent waits for a person's answer. `questions` are the ids of open questions
    (earlier releases do not tell them). Sessions of one process with the same `agent`, a number,
    end together. `turn` is the last entry before the turn that the agent works on, None if it works
    on none.
    """

    session_id: str
    clients: int = 0
    running: bool = False
    waiting: bool = False
    watching: int = 0
    questions: tuple[str, ...] = ()
    agent: int = 0
    turn: int | None = None

    @property
    def state(self) -> str:
        """The state in one word."""
        return "waiting" if self.waiting else "running" if self.running else "idle"


class AgentProgram(Struct, frozen=True, rename="camel"):
    """An agent that runs: its number, as in LiveSession, its key, and its process."""

    number: int
    key: str
    pid: int


class EditorFront(Struct, frozen=True, rename="camel"):
    """A front: its process, None if that has no number there, its folder, its kind as in
    `transports.first_frame`, where the process that serves it may use less than it may, and the
    variables of its person's folders that differ; `agent` is the number of its own, or 0."""

    pid: int | None
    folder: str
    kind: str = ""
    shortfalls: tuple[str, ...] = ()
    own_homes: tuple[str, ...] = ()
    agent: int = 0


class Process(Struct, frozen=True, rename="camel"):
    """A process that serves sessions; `path` is its socket, `agent` the keys of its agents, and
    `fronts` are those of the editors that it serves. `places` are other ones from which processes
    came, by name, with a description. `onlooker` is the name of ours, if we are in such a one, and
    so only look.

    `keeps_code` is True if it can be upgraded while it runs, and `is_replaced` once it was. `hangs`
    says what a daemon waits for whose loop makes no step.
    """

    pid: int
    agent: str
    sessions: list[LiveSession]
    path: str = ""
    release: str = ""
    keeps_code: bool = False
    is_replaced: bool = False
    fronts: tuple[EditorFront, ...] = ()
    programs: tuple[AgentProgram, ...] = ()
    places: dict[str, str] = {}
    onlooker: str = ""
    hangs: str = ""

    @property
    def agents(self) -> list[str]:
        """The keys of its agents, each alone."""
        return self.agent.split(", ") if self.agent else []

    @property
    def is_daemon(self) -> bool:
        """True if it outlives its clients."""
        return is_of_daemon(self.path)

    @property
    def limited(self) -> str:
        """A sentence on the limits that it was started with, if a front has higher ones, and what
        to do; otherwise ""."""
        found = dict.fromkeys(it for front in self.fronts for it in front.shortfalls)
        if not found:
            return ""
        return (
            f"process {self.pid} was started with lower limits than an editor has: "
            f"{', '.join(found)}; `acphold agent stop` ends it, and that editor starts it anew"
        )


async def processes(*, daemon: str = "") -> list[Process]:
    """Return all processes of this user that answer in time: those in the runtime folder, and the
    one at the socket `daemon`, wherever that is."""
    return await _answering([[unix_address(path)] for path in _sockets(daemon)])


def _sockets(daemon: str) -> Sequence[str]:
    """Return the sockets in the runtime folder, if that can be used, and this one, if any."""
    found: Sequence[str] = ()
    with suppress(errors.RuntimeFolderError, OSError):
        found = sockets()
    return [*dict.fromkeys([*found, *filter(None, [daemon])])]


Live = Mapping[str, tuple[LiveSession, Process]]
"""The sessions in the memory of processes, by id."""


async def live_anywhere(journal: Owners, silent: list[SilentProcess] | None = None) -> Live:
    """Return the sessions of all processes that have this journal open, here and at other nodes;
    those that do not answer are left out. Raises JournalError.

    Of these, the daemons that listen here are put into `silent`.
    """
    owners = await journal.owners()
    return await (live_at(owners) if silent is None else live_at(owners, silent))


async def daemon_of(journal: Owners) -> str:
    """Return the socket of the daemon that has this journal open in this place, "" if there is
    none: it may have lost the file by which others find it. Raises JournalError."""
    for owner in await journal.owners():
        for path in paths_here(owner.addresses):
            if is_of_daemon(path) and is_in_our_place(path):
                return path
    return ""


class KnownOwners:
    """The processes that have a journal open: in a database, they are looked up again only when a
    session has changed, and now and then."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._owners: Sequence[Owner] = ()
        self._looked_up_at = -inf

    async def live(self, *, has_news: bool) -> Live:
        """Return the sessions of all that answer; `has_news` if a session has changed. Raises
        JournalError."""
        is_due = monotonic() >= self._looked_up_at + bounds.OWNERS_SECONDS
        if has_news or is_due or self._journal.file is not None:
            self._owners, self._looked_up_at = await self._journal.owners(), monotonic()
        return await live_at(self._owners)


async def require_answer(journal: Owners, session_id: str) -> None:
    """Raise SilentDaemonError if the other process that owns the session listens here and does not
    answer, or a daemon that may have it: one that is silent for long owns nothing by the journal,
    and has its sessions in memory all the same."""
    owner, silent = await other_owner(journal, session_id), list[SilentProcess]()
    await live_at(await journal.owners() if owner is None else [owner], silent)
    for each in silent:
        raise errors.SilentDaemonError(each.words)


async def live_at(owners: Sequence[Owner], silent: list[SilentProcess] | None = None) -> Live:
    """Return the sessions of these processes, asked in parallel; `silent` as above."""
    answered = await _answering([owner.addresses for owner in owners])
    if silent is not None:
        paths = {path for owner in owners for path in paths_here(owner.addresses)}
        silent[:] = _silent_at(sorted(paths), answered)
    return {
        session.session_id: (session, process)
        for process in answered
        for session in process.sessions
    }


async def _answering(whole: Sequence[Sequence[str]]) -> list[Process]:
    """Return those processes at these addresses that answer in time."""
    asking = (_presence_at(addresses) for addresses in whole)
    return [process for process in await asyncio.gather(*asking) if process is not None]


async def _presence_at(addresses: Sequence[str]) -> Process | None:
    """Return the process at these addresses; None if it does not answer."""
    raw = await answer_of(addresses, PRESENCE, b"{}", bounds.ANSWER_SECONDS)
    if raw is None and (daemons := [it for it in paths_here(addresses) if is_of_daemon(it)]):
        raw = await asyncio.to_thread(ask_hung, daemons[0], STATUS)
    if (process := json_value(raw, Process)) is None:
        return None
    return msgspec.structs.replace(process, path=next(iter(paths_here(addresses)), ""))


async def has_other_clients(session_id: str) -> bool:
    """Return True if another client has a session open that we have open, here or elsewhere.

    A client that only watches does not count.
    """
    live = [it for process in await processes() for it in process.sessions]
    return any(it.session_id == session_id and it.clients - it.watching > 1 for it in live)


class SilentProcess(Struct, frozen=True):
    """A running daemon that does not answer; `pid` is None if unknown, and `hangs` as in
    `Process`."""

    path: str
    pid: int | None
    hangs: str = ""

    @property
    def words(self) -> str:
        """A description, and what to do about it."""
        if self.pid is None:
            return (
                f"the daemon at {self.path} does not answer, and its process ID is "
                "unknown; look again in a moment: it may be starting or ending"
            )
        how = self.hangs or f"is {process_tree.condition(self.pid)}"
        goes_on = f"`kill -CONT {self.pid}` lets it go on, " if how == "is stopped" else ""
        return (
            f"daemon {self.pid} does not answer: it {how}; {goes_on}"
            "`acphold agent stop --force` kills it"
        )

    @classmethod
    def that_holds(cls, held: str, daemon: str) -> SilentProcess:
        """Return the process that holds this file, and has the socket `daemon`, if it has any."""
        pid = holder(held) or (pid_at(daemon) if daemon else None)
        process = json_value(ask_hung(daemon, STATUS), Process) if daemon else None
        return cls(daemon or held, pid, process.hangs if process else "")


async def end_hung(process: Process) -> None:
    """Have a daemon that hangs end its agents and itself; a thread of it does, in some seconds."""
    await asyncio.to_thread(ask_hung, process.path, STOP_NOW)


def silent_processes(
    answered: Sequence[Process], held: str = "", daemon: str = ""
) -> list[SilentProcess]:
    """Return the daemons that are not among those that `answered`: the one that holds this file,
    whose socket is `daemon`, and those in the runtime folder."""
    return [
        SilentProcess.that_holds(held, daemon) if it.path == daemon else it
        for it in _silent_at(_sockets(daemon), answered)
    ]


def _silent_at(paths: Sequence[str], answered: Sequence[Process]) -> list[SilentProcess]:
    """Return the daemons at these sockets that are not among those that `answered`, or hang."""
    hanging = {process.path: process.hangs for process in answered}
    return [
        SilentProcess(it, pid_at(it), hanging.get(it, ""))
        for it in paths
        if is_of_daemon(it) and hanging.get(it, "silent") and is_listening(it)
    ]


def ending_processes(held: str, daemon: str) -> list[SilentProcess]:
    """Return the daemon that holds this file, if it runs without a socket: it ends, or begins.

    Raises JournalUnavailableError if the file does not tell.
    """
    try:
        runs = not (daemon and os.path.exists(daemon)) and is_held(held)
    except OSError as error:
        raise errors.JournalUnavailableError(
            f"{held} cannot be asked if a daemon runs ({error.strerror}); remove it if none does"
        ) from error
    return [SilentProcess.that_holds(held, daemon)] if runs else []


async def let_go(journal: Owners, session_id: str) -> None:
    """Ask the process that holds a session to close it. It keeps the session while a client has it
    open, a turn runs or a question is open, or if it does not answer."""
    process = await _presence_at(await owner_addresses(journal, session_id) or ())
    for live in [] if process is None else process.sessions:
        is_used = live.clients or live.running or live.waiting
        if live.session_id == session_id and not is_used:
            with suppress(errors.AcpError):
                await ask_owner(journal, session_id, CLOSE_SESSION.name)
