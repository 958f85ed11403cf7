"""One question to one other process of this user that serves sessions, or one notice.

Each of them answers two methods of our own on its socket, also before `initialize`, which would
start an agent. `_acphold/presence`: the sessions that are live there, and their activity.
`_acphold/changed`: the row of a session has changed, or is gone. The owner would notice that within
seconds; told so, it tells its clients at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager, suppress

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from acp_wire.rpc import MAX_MESSAGE, NotificationReceived, Peer, Transport, connected
from acp_wire.rpc.requests import Request
from acp_wire.schema import INITIALIZE, PROTOCOL_VERSION, encode
from acphold import errors
from acphold.conversation.history.prompt_queue import NO_QUEUE, PromptQueue, QueueChange, after_turn
from acphold.journal.intentions import change_queue
from acphold.journal.journal import Journal, Owners, other_owner
from acphold.journal.owners import At, clock
from acphold.live.agents.capabilities import QUEUE_METHOD, WATCHES
from acphold.live.agents.client_methods import Place
from acphold.live.reading import bounds
from acphold.machine.addresses import are_here, can_be_tried, connect
from acphold.machine.unix import ProcessTransport
from acphold.version import __version__

PRESENCE = "_acphold/presence"
CHANGED = "_acphold/changed"
STOP = "_acphold/stop"
SIGNED_IN = "_acphold/signedIn"
"""A person has signed in with the agent's own program, on a terminal. Spec v1, authentication,
"Terminal authentication": the agent is then restarted."""


NAME = "acphold"
"""The name of the client that we are, noted with a change."""


class _Changed(Struct, rename="camel"):
    """The params of CHANGED."""

    session_id: str
    archived: bool | UnsetType = UNSET


@asynccontextmanager
async def telling_owners(
    journal: Owners,
    session_ids: Collection[str],
    *,
    archived: bool | UnsetType = UNSET,
    otherwise: Sequence[str] = (),
) -> AsyncIterator[None]:
    """Tell the other processes that own sessions, once the block has changed their rows or deleted
    them, or some of them: CHANGED; about one that no other owns, the process at the addresses
    `otherwise`.

    Raises JournalError; a process that does not answer is no error.
    """
    owners = [(it, await owner_addresses(journal, it)) for it in session_ids]

    async def tell() -> None:
        await asyncio.gather(
            *(
                answer_of(to, CHANGED, encode(_Changed(it, archived)), bounds.ANSWER_SECONDS)
                for it, addresses in owners
                if (to := otherwise if addresses is None else addresses)
            )
        )

    try:
        yield
    except errors.AcpError:  # a cancelled one does not wait for the owners
        await tell()
        raise
    await tell()


async def ask_owner(
    journal: Owners, session_id: str, method: str, said: Mapping[str, object] = {}
) -> bytes | None:
    """Ask the other process that owns a session about it, as a client. None if there is no such
    process.

    Raises JournalError, ConnectionLostError and RemoteError.
    """
    if (addresses := await owner_addresses(journal, session_id)) is None:
        return None
    transport = await connect(addresses, bounds.ANSWER_SECONDS)
    params = encode({"sessionId": session_id, **said})
    return await ask_over(transport, method, params, bounds.CLIENT_ANSWER_SECONDS)


async def owner_addresses(journal: Owners, session_id: str) -> Sequence[str] | None:
    """Return the addresses of the other process that owns a session; None if no other does."""
    with suppress(errors.UnknownSessionError):  # it was deleted, or only the agent has it
        if (owner := await other_owner(journal, session_id)) is not None:
            return owner.addresses
    return None


class OwnerAwayError(errors.ConnectionLostError):
    """The owner of a session cannot be reached now, and has it, as `held` says. Behind `until`, by
    `owners.clock`, the session is free, or the owner has reported since."""

    def __init__(self, held: errors.HeldElsewhereError, until: float) -> None:
        super().__init__(str(held))
        self.held = held
        self.until = until


async def dial_owner(
    journal: Owners, session_id: str, limit: int = MAX_MESSAGE
) -> tuple[At, Transport, Place] | None:
    """Connect to the other process that owns a session; None if no other does. It is at the place
    that the transport leads to, whatever the journal says.

    Raises OwnerAwayError if it cannot be reached now, HeldElsewhereError if it never can,
    UnknownSessionError, and JournalError.
    """
    if not isinstance(whose := await journal.owner(session_id), At):
        return None
    addresses, seconds = whose.owner.addresses, bounds.OWNER_ANSWER_SECONDS
    try:
        # A connection to a process that was stopped can be made, too.
        if are_here(addresses) and not await is_answering(addresses, seconds):
            raise errors.SilentPeerError("it does not answer")
        transport = await connect(addresses, seconds, limit)
        is_here = isinstance(transport, ProcessTransport) and transport.is_here
        return whose, transport, "process" if is_here else "network"
    except errors.ConnectionLostError as problem:
        why = f"{problem}" if addresses else "it shares no session"
        why = f"cannot be reached from here: {why}. Close it there, or try again"
        held = errors.HeldElsewhereError(session_id, f"{whose.owner}, which {why}", whose.epoch)
        if not addresses:
            raise held from None
        is_seen = can_be_tried(addresses)
        until = whose.until if is_seen else clock() + bounds.UNSEEN_OWNER_SECONDS
        raise OwnerAwayError(held, until) from problem


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


async def answer_of(
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
    if the process that has the session cannot be reached, and JournalError.
    """
    said = {"change": change} if change else {}
    if (raw := await ask_owner(journal, session_id, QUEUE_METHOD, said)) is not None:
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
