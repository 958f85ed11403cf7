"""This user's other processes that serve sessions: requests and notices to them, their queues.

Each of them answers two methods of our own on its socket, also before `initialize`, which would
start an agent. `_acphold/presence`: the sessions that are live there, and their activity.
`_acphold/changed`: the row of a session has changed, or is gone. The owner would notice that within
seconds; told so, it tells its clients at once.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress

import msgspec
from msgspec import Raw, Struct

from acp_wire.locked_file import holder, is_held
from acp_wire.processes.installation import is_kept, is_replaced
from acp_wire.processes.process_tree import condition
from acp_wire.rpc import NotificationReceived, Peer, Transport, connected
from acp_wire.rpc.requests import Request
from acp_wire.schema import CLOSE_SESSION, INITIALIZE, PROTOCOL_VERSION, encode
from acp_wire.schema.splice import json_value
from acp_wire.transports.addresses import connect, paths_here, unix_address
from acp_wire.transports.runtime_folder import is_of_daemon, sockets
from acp_wire.transports.unix import is_listening, pid_at
from acphold import errors
from acphold.conversation.history.prompt_queue import NO_QUEUE, PromptQueue, QueueChange, after_turn
from acphold.journal.intentions import change_queue
from acphold.journal.journal import Journal, Owners, other_owner
from acphold.journal.owners import Owner
from acphold.live.agents.capabilities import QUEUE_METHOD, WATCHES
from acphold.live.reading import bounds
from acphold.live.reading.hung_daemon import STATUS, STOP_NOW, ask_hung
from acphold.version import __version__

PRESENCE = "_acphold/presence"
CHANGED = "_acphold/changed"
STOP = "_acphold/stop"
SIGNED_IN = "_acphold/signedIn"
"""A person has signed in with the agent's own program, on a terminal. Spec v1, authentication,
"Terminal authentication": the agent is then restarted."""


NAME = "acphold"
"""The name of the client that we are, noted with a change."""


class LiveSession(Struct, frozen=True, rename="camel"):
    """A session in the memory of a process.

    `clients` have it open, of which `watching` only watch. `running` is set while a turn runs,
    `waiting` while the agent waits for a person's answer. `questions` are the ids of open questions
    (earlier releases do not tell them). Sessions of one process with the same `agent`, a number,
    end together.
    """

    session_id: str
    clients: int = 0
    running: bool = False
    waiting: bool = False
    watching: int = 0
    questions: tuple[str, ...] = ()
    agent: int = 0

    @property
    def state(self) -> str:
        """The state in one word."""
        return "waiting" if self.waiting else "running" if self.running else "idle"


class EditorFront(Struct, frozen=True, rename="camel"):
    """A front: its process, None if that has no number there, its folder, its kind as in
    `transports.first_frame`, where the process that serves it may use less than it may, and the
    variables of its person's folders that differ."""

    pid: int | None
    folder: str
    kind: str = ""
    shortfalls: tuple[str, ...] = ()
    own_homes: tuple[str, ...] = ()


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


def answer(
    agent: str,
    sessions: list[LiveSession],
    fronts: Sequence[EditorFront],
    places: Mapping[str, str],
    onlooker: str,
    hangs: str,
) -> bytes:
    """Return the answer of this process."""
    return encode(
        Process(
            os.getpid(),
            agent,
            sessions,
            release=__version__,
            keeps_code=is_kept(),
            is_replaced=is_replaced(),
            fronts=tuple(fronts),
            places=dict(places),
            onlooker=onlooker,
            hangs=hangs,
        )
    )


async def processes(seconds: float = bounds.ANSWER_SECONDS, *, daemon: str = "") -> list[Process]:
    """Return all processes of this user that answer within `seconds`: those in the runtime folder,
    and the one at the socket `daemon`, wherever that is."""
    return await _answering([[unix_address(path)] for path in _sockets(daemon)], seconds)


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


async def require_answer(journal: Owners, session_id: str) -> Owner | None:
    """Return the other process that owns the session, if any. Raises SilentDaemonError if it
    listens here and does not answer."""
    if (owner := await other_owner(journal, session_id)) is not None:
        silent: list[SilentProcess] = []
        await live_at([owner], silent)
        for each in silent:
            raise errors.SilentDaemonError(each.words)
    return owner


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


async def _answering(
    whole: Sequence[Sequence[str]], seconds: float = bounds.ANSWER_SECONDS
) -> list[Process]:
    """Return those processes at these addresses that answer within `seconds`."""
    asking = (_presence_at(addresses, seconds) for addresses in whole)
    return [process for process in await asyncio.gather(*asking) if process is not None]


async def _presence_at(
    addresses: Sequence[str], seconds: float = bounds.ANSWER_SECONDS
) -> Process | None:
    """Return the process at these addresses; None if it does not answer."""
    raw = await _answer_of(addresses, PRESENCE, b"{}", seconds)
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
        how = self.hangs or f"is {condition(self.pid)}"
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
    """Return the daemon that holds this file, if it runs without a socket: it ends, or begins."""
    runs = not (daemon and os.path.exists(daemon)) and is_held(held)
    return [SilentProcess.that_holds(held, daemon)] if runs else []


async def tell_owner(
    journal: Owners,
    session_id: str,
    otherwise: Sequence[str] = (),
    *,
    archived: bool | None = None,
) -> bool:
    """Tell the other process that owns a session, or one at the addresses `otherwise`, if any;
    return True if it was told. `archived` is None if that has not changed."""
    owner = await other_owner(journal, session_id)
    return await _tell(session_id, otherwise if owner is None else owner.addresses, archived)


@asynccontextmanager
async def deleting(journal: Owners, session_id: str) -> AsyncIterator[None]:
    """Delete a session in the block; then its owner is told, and tells every client that has it
    open."""
    owner = None
    with suppress(errors.UnknownSessionError):  # one that only the agent has
        owner = await other_owner(journal, session_id)
    yield
    if owner is not None:
        await _tell(session_id, owner.addresses)


async def _tell(session_id: str, addresses: Sequence[str], archived: bool | None = None) -> bool:
    state = {} if archived is None else {"archived": archived}
    params = encode({"sessionId": session_id, **state})
    told = addresses and await _answer_of(addresses, CHANGED, params, bounds.ANSWER_SECONDS)
    return bool(told)


async def is_answering(addresses: Sequence[str], seconds: float) -> bool:
    """Return True if the owner at these addresses is neither gone nor stopped.

    Asks over a connection of its own, as a line may have much to deliver first. Raises
    ConnectionLostError if nothing listens there.
    """
    try:
        await ask_process(addresses, PRESENCE, b"{}", seconds)
    except errors.SilentPeerError:
        return False
    except errors.RemoteError:
        return True  # of another release
    return True


async def _answer_of(
    addresses: Sequence[str], method: str, params: bytes, seconds: float
) -> bytes | None:
    """Return its answer; None if it is gone, stopped, or of another release."""
    try:
        return await ask_process(addresses, method, params, seconds)
    except errors.AcpError:
        return None


async def ask_process(
    addresses: Sequence[str], method: str, params: bytes, seconds: float
) -> bytes:
    """Return the answer of the process at these addresses; it has `seconds` to be reached, and as
    many to answer. Raises ConnectionLostError and RemoteError."""
    peer = Peer(await connect(addresses, seconds), _SilentPeer(), name="process")
    async with connected(peer):
        return await peer.call_raw(method, params, seconds=seconds)


async def _ask_as_client(addresses: Sequence[str], method: str, params: bytes) -> bytes:
    transport = await connect(addresses, bounds.ANSWER_SECONDS)
    return await ask_over(transport, method, params, bounds.CLIENT_ANSWER_SECONDS)


async def let_go(journal: Owners, session_id: str) -> None:
    """Ask the process that holds a session to close it. It keeps the session while a client has it
    open, a turn runs or a question is open, or if it does not answer."""
    if (owner := await other_owner(journal, session_id)) is None:
        return
    process = await _presence_at(owner.addresses)
    for live in [] if process is None else process.sessions:
        is_used = live.clients or live.running or live.waiting
        if live.session_id == session_id and not is_used:
            params = encode({"sessionId": session_id})
            with suppress(errors.AcpError):
                await _ask_as_client(owner.addresses, CLOSE_SESSION.name, params)


async def ask_over(
    transport: Transport,
    method: str,
    params: bytes,
    seconds: float,
    *,
    watches: bool = False,
) -> bytes:
    """Ask as a client over a transport that is open, which is closed then.

    `seconds` are for each answer; one that `watches` is asked nothing. Raises ConnectionLostError,
    RemoteError and JournalError.
    """
    introduction = {
        "protocolVersion": PROTOCOL_VERSION,
        "clientCapabilities": {"_meta": {WATCHES: True}} if watches else {},
        "clientInfo": {"name": NAME, "version": __version__},
    }
    peer = Peer(transport, _SilentPeer(), name="process")
    async with connected(peer):
        try:
            await peer.call_raw(INITIALIZE.name, encode(introduction), seconds=seconds)
            return await peer.call_raw(method, params, seconds=seconds)
        except errors.RemoteError as refusal:
            raise errors.as_raised(refusal) from None


class _SilentPeer:
    """A peer that answers nothing: we only ask and tell."""

    async def on_request(self, request: Request) -> bytes:
        raise errors.MethodNotFoundError(request.method)

    async def on_notifications(self, batch: list[NotificationReceived]) -> None:
        return None


class QueueAnswer(Struct, frozen=True):
    """The queue after a change. `is_live` says that some process has the session, and begins the
    prompts."""

    queue: PromptQueue = NO_QUEUE
    is_live: bool = True


async def ask_queue(
    journal: Journal, session_id: str, change: QueueChange | None = None
) -> QueueAnswer:
    """Read the queue of a session, after this change of it, if any.

    Raises UnknownSessionError, InvalidParamsError if the change does not fit, ConnectionLostError
    and SilentDaemonError if the process that has the session cannot be reached, and JournalError.
    """
    if (owner := await require_answer(journal, session_id)) is not None:
        asked = {"sessionId": session_id, "change": change}
        params = encode({name: value for name, value in asked.items() if value})
        raw = await _ask_as_client(owner.addresses, QUEUE_METHOD, params)
        return msgspec.json.decode(raw, type=QueueAnswer)
    if change is not None:
        named = msgspec.structs.replace(change, client=Raw(encode({"name": NAME})))
        queue = await change_queue(journal, session_id, named)
    else:
        queue = (await journal.summary(session_id)).queue
    if queue.begun is not None:  # its process has ended under it
        row = await journal.session(session_id)
        queue = after_turn(queue, b'{"interrupted":true}', row.updated_at)
    return QueueAnswer(queue, is_live=False)
