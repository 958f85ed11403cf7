"""One request of the agent, on its way to the clients that may answer it.

It is sent to every client that can answer, behind the updates that came before it. The first answer
counts, and the others are told that it is over. A client that does not know `$/cancel_request`
still answers later; that answer is ignored. A request of a sub-agent carries its id for a client
that shows sub-agents, and the session's id for any other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress

import msgspec
from msgspec import Struct

from acphold.agents import AgentRequest
from acphold.errors import (
    AcpholdError,
    ConnectionLostError,
    InvalidParamsError,
    MethodNotFoundError,
    PeerError,
    RemoteError,
)
from acphold.history.decisions import Outcome
from acphold.history.entries import sent_id
from acphold.hub.attachment import LAG, Attachment, Client
from acphold.rpc.eager_tasks import EagerTasks
from acphold.schema import (
    CREATE_ELICITATION,
    READ_TEXT_FILE,
    REQUEST_PERMISSION,
    WRITE_TEXT_FILE,
    ClientCapabilities,
    encode,
)
from acphold.schema.initialize import ElicitationCapabilities
from acphold.schema.splice import in_meta, members, splice, with_meta, without_meta
from acphold.schema.update_kinds import CHILD
from acphold.tasks import end

DECISIONS = frozenset({REQUEST_PERMISSION.name, CREATE_ELICITATION.name})
"""Requests that a person decides: every attached client may answer."""

QUESTION = "acphold/question"
"""The `_meta` key by which a client recognises a question that is asked again."""

SENT = "acphold/sent"
"""The `_meta` key of the id that a client gives to what it sends, so that it can send it again."""

FORM, URL = b'"form"', b'"url"'
"""The modes of an elicitation, as on the wire."""

TERMINAL_METHODS = "terminal/"

SERVICES = ("fs/", TERMINAL_METHODS)
"""Work that a client does for the agent: one client, once, not all that are attached."""


class Reply(Struct, frozen=True):
    """The outcome of a request: a `result`, or an `error`; `client` gave it, if one did, under its
    own id `sent_id`. If rules gave it, `who` names them, and `rule` are the facts about them."""

    outcome: Outcome = "answered"
    result: bytes = b""
    error: AcpholdError | None = None
    client: Client | None = None
    sent_id: str = ""
    who: str = ""
    rule: bytes = b""


class ClientRequest:
    """See the module. `seq` is the last entry before it, `only` the one client that can answer.

    With `only` it ends when that client is gone. `known_as` is its id for clients that resume over
    another connection, "" if it is not asked again there.
    """

    def __init__(
        self, asked: AgentRequest, tasks: EagerTasks, seq: int = 0, only: Client | None = None
    ) -> None:
        self.asked = asked
        self.seq = seq
        self.known_as = ""
        self.reply: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self.changed = asyncio.Event()
        self._only = only
        self._begin = tasks.begin
        self._due: dict[Client, tuple[Attachment, Callable[[], None]]] = {}
        self._tasks: dict[Client, asyncio.Task[None] | None] = {}  # None for what is over

    def suits(self, attachment: Attachment) -> bool:
        """Return True if this client may answer, and can."""
        client = attachment.client
        return self._only in (None, client) and can_answer(
            client, self.asked, attachment.session_id
        )

    def put_to(self, attachment: Attachment) -> None:
        """Ask this client too, if it suits and has not been asked."""
        self.changed.set()
        client = attachment.client
        if client in self._due or client in self._tasks or not self.suits(attachment):
            return

        def ask() -> None:  # in the step in which it is due, so that nothing later overtakes it
            del self._due[client]
            self._tasks[client] = None
            self._tasks[client] = self._begin(self._ask(attachment), f"ask {self.asked.method}")

        self._due[client] = (attachment, ask)
        attachment.when_reached(self.seq, ask)

    async def _ask(self, attachment: Attachment) -> None:
        client = attachment.client
        try:
            if client.buffered > LAG:
                await client.drain()  # a client that reads nothing gets no more questions
            params = self.asked.params
            if self.asked.child and CHILD in client.offer.withheld:  # it knows only the session
                params = splice(params, {"sessionId": encode(attachment.session_id)})
            if self.known_as and client.offer.positions:
                params = with_meta(params, QUESTION, encode(self.known_as))
            result = await client.ask(self.asked.method, params)
        except ConnectionLostError:
            return  # it left without an answer; another may give one
        except RemoteError as exc:
            # An error of one client is the answer only if no other is being asked.
            self._tasks.pop(client, None)
            if not self._due and all(it is None or it.done() for it in self._tasks.values()):
                self.end(Reply("refused", error=exc, client=client))
        else:
            own_id, result = _sent(result)
            self.end(Reply(result=result, client=client, sent_id=own_id))

    def withdraw(self, client: Client) -> None:
        """Stop asking this client: it is gone or no longer asked."""
        self.changed.set()
        if (due := self._due.pop(client, None)) is not None:
            attachment, ask = due
            attachment.forget(ask)
        task = self._tasks.pop(client, None)
        if task is not None:
            task.cancel()
        if client is self._only:
            self.end(Reply(error=ConnectionLostError("the client that was asked has gone")))

    def end(self, reply: Reply) -> None:
        """End it with this reply, unless it has one already."""
        if not self.reply.done():
            self.reply.set_result(reply)
            self.changed.set()

    async def aclose(self) -> None:
        """Tell clients that are still asked that it is over."""
        for attachment, ask in self._due.values():
            attachment.forget(ask)
        self._due.clear()
        await end(*(task for task in self._tasks.values() if task is not None and not task.done()))


def _sent(result: bytes) -> tuple[str, bytes]:
    """Return the client's own id for an answer, and the answer without it: agents do not know
    it."""
    raw = in_meta(result, SENT) if result.startswith(b"{") else None
    if raw is None:
        return "", result
    own_id = ""
    with suppress(msgspec.MsgspecError, UnicodeDecodeError):  # else it is no id: the answer counts
        own_id = sent_id(raw)[:100]
    return own_id, without_meta(result, SENT)


def can_answer(client: Client, asked: AgentRequest, session_id: str = "") -> bool:
    """Return True if this client advertised what answering takes (spec v1, initialization).

    A client that only watches is asked nothing, and nobody counts on it.
    """
    return not client.only_watches(session_id) and covers(client.offer.capabilities, asked)


def covers(can: ClientCapabilities, asked: AgentRequest) -> bool:
    """Return True if these capabilities allow an agent to ask this."""
    method = asked.method
    if method == READ_TEXT_FILE.name:
        return can.fs.read_text_file
    if method == WRITE_TEXT_FILE.name:
        return can.fs.write_text_file
    if method.startswith(TERMINAL_METHODS):
        return can.terminal
    if method == CREATE_ELICITATION.name:
        mode = members(asked.params).get("mode", FORM)  # MCP leaves it out for a form
        shown = can.elicitation or ElicitationCapabilities()
        shows_form, shows_page = shown.form is not None, shown.url is not None
        return (mode == FORM and shows_form) or (mode == URL and shows_page)
    return True


def unanswerable(asked: AgentRequest, clients: Iterable[ClientCapabilities]) -> PeerError:
    """Return the error for the agent if no client with these capabilities can be asked.

    Source: spec v1, elicitation, "URL completion": a mode that was not advertised is -32602.
    """
    method = asked.method
    if method == CREATE_ELICITATION.name and any(can.elicitation is not None for can in clients):
        return InvalidParamsError("mode: no client here has advertised this one", field="mode")
    return MethodNotFoundError(method)
