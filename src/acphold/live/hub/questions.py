"""Requests of the agent to people and clients: open until answered, once.

A request is sent to every client that can answer, after the updates before it. The first
answer counts, and the others are told that it is over. A client that does not know
`$/cancel_request` still answers later; that answer is ignored. A request of a sub-agent carries its
id for a client that shows sub-agents, and the session's id for any other.

A decision for a person (permission, elicitation) is journalled, then put to every attached client
that can show it. Its outcome is journalled too (`history.decisions` lists the outcomes).
While no attached client can show it, it waits as long as the options say, and is put to every
client that attaches, after the answer that opens the session. With the end of its turn it is
withdrawn: some agents give up and do not say so. Nothing is ever allowed on a person's behalf, but
by rules of their own (`hub.standing_answers`), before anybody is asked.

Every other request is put to clients too, but is not journalled.
"""

# See docs/decisions.md, 5.

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from uuid import uuid4

import msgspec
from msgspec import Struct, field

from acp_wire import schema
from acp_wire.rpc.eager_tasks import EagerTasks
from acp_wire.schema import members, splice
from acp_wire.tasks import end, timeout
from acphold import errors
from acphold.conversation.history.decisions import (
    AskedQuestion,
    Outcome,
    answer_entry,
    asked_question,
    closed_question,
    rejecting_option,
)
from acphold.conversation.history.entries import ANSWER, QUESTION, id_of_sent
from acphold.conversation.history.raw_update import CHILD, in_meta, string, with_meta, without_meta
from acphold.live.agents.interface import AgentRequest
from acphold.live.hub import bounds
from acphold.live.hub.agent_session import AgentSession
from acphold.live.hub.alerts import SessionAlerts
from acphold.live.hub.annotations import first_line_of, notice
from acphold.live.hub.attachment import Attachment, Client
from acphold.live.hub.session import HubSession
from acphold.live.hub.shared_parts import SharedParts
from acphold.live.hub.standing_answers import Considered, StandingAnswers
from acphold.live.hub.tool_calls import close_refused, read_additions

log = logging.getLogger(__name__)

QUESTION_KEY = "acphold/question"
"""The `_meta` key by which a client recognises a question that is asked again."""

SENT = "acphold/sent"
"""The `_meta` key of the id that a client gives to what it sends, so that it can send it again."""

FORM, URL = b'"form"', b'"url"'
"""The modes of an elicitation, as on the wire."""

TERMINAL_METHODS = "terminal/"


class Reply(Struct, frozen=True):
    """The outcome of a request: a `result`, or an `error`; `client` gave it, if one did, under its
    own id `sent_id`. If rules gave it, `who` names them, and `rule` are the facts about them."""

    outcome: Outcome = "answered"
    result: bytes = b""
    error: errors.AcpError | None = None
    client: Client | None = None
    sent_id: str = ""
    who: str = ""
    rule: bytes = b""


class ClientRequest(Struct, eq=False):
    """A request that clients are asked. `seq` is the last entry before it, `only` the one client
    that can answer.

    With `only` it ends when that client is gone. `known_as` is its id for clients that resume over
    another connection, "" if it is not asked again there.
    """

    asked: AgentRequest
    _eager: EagerTasks
    seq: int = 0
    only: Client | None = None
    known_as: str = ""
    reply: asyncio.Future[Reply] = field(default_factory=asyncio.Future)
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    _due: dict[Client, tuple[Attachment, Callable[[], None]]] = {}
    _tasks: dict[Client, asyncio.Task[None] | None] = {}  # None for what is over

    def suits(self, attachment: Attachment) -> bool:
        """Return True if this client may answer, and can."""
        client = attachment.client
        return self.only in (None, client) and can_answer(client, self.asked, attachment.session_id)

    def put_to(self, attachment: Attachment) -> None:
        """Ask this client too, if it suits and has not been asked."""
        self.changed.set()
        client = attachment.client
        if client in self._due or client in self._tasks or not self.suits(attachment):
            return

        def ask() -> None:  # in the step in which it is due, so that nothing later overtakes it
            del self._due[client]
            self._tasks[client] = None
            self._tasks[client] = self._eager.begin(
                self._ask(attachment), f"ask {self.asked.method}"
            )

        self._due[client] = (attachment, ask)
        attachment.when_reached(self.seq, ask)

    async def _ask(self, attachment: Attachment) -> None:
        client = attachment.client
        try:
            if client.buffered > bounds.LAG_BYTES:
                await client.drain()  # a client that reads nothing gets no more questions
            params = self.asked.params
            if self.asked.child and CHILD in client.offer.withheld:  # it knows only the session
                params = splice(params, {"sessionId": schema.encode(attachment.session_id)})
            if self.known_as and client.offer.positions:
                params = with_meta(params, QUESTION_KEY, schema.encode(self.known_as))
            result = await client.ask(self.asked.method, params)
        except errors.ConnectionLostError:
            return  # it left without an answer; another may give one
        except errors.RemoteError as exc:
            # An error of one client is the answer only if no other is being asked.
            self._tasks.pop(client, None)
            if not self._due and all(it is None or it.done() for it in self._tasks.values()):
                self.end(Reply("refused", error=exc, client=client))
        else:
            own_id = ""
            if result.startswith(b"{") and (raw_id := in_meta(result, SENT)) is not None:
                # The client's own id of its answer: agents do not know it.
                with suppress(msgspec.MsgspecError, UnicodeDecodeError):  # else it is no id
                    own_id = id_of_sent(raw_id)[:100]
                result = without_meta(result, SENT)
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
        if client is self.only:
            gone = errors.ConnectionLostError("the client that was asked has disconnected")
            self.end(Reply(error=gone))

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


def can_answer(client: Client, asked: AgentRequest, session_id: str = "") -> bool:
    """Return True if this client advertised what answering takes (spec v1, initialization).

    A client that only watches is asked nothing, and nobody counts on it.
    """
    return not client.only_watches(session_id) and covers(client.offer.capabilities, asked)


def covers(can: schema.ClientCapabilities, asked: AgentRequest) -> bool:
    """Return True if these capabilities allow an agent to ask this."""
    method = asked.method
    if method == schema.READ_TEXT_FILE.name:
        return can.fs.read_text_file
    if method == schema.WRITE_TEXT_FILE.name:
        return can.fs.write_text_file
    if method.startswith(TERMINAL_METHODS):
        return can.terminal
    if method == schema.CREATE_ELICITATION.name:
        mode = members(asked.params).get("mode", FORM)  # MCP leaves it out for a form
        if (shown := can.elicitation) is None:
            return False
        return {FORM: shown.form, URL: shown.url}.get(mode) is not None
    return True


def unanswerable(
    asked: AgentRequest, clients: Iterable[schema.ClientCapabilities]
) -> errors.AcpError:
    """Return the error for the agent if no client with these capabilities can be asked.

    Source: spec v1, elicitation, "URL completion": a mode that was not advertised is -32602.
    """
    method = asked.method
    if method == schema.CREATE_ELICITATION.name and any(
        can.elicitation is not None for can in clients
    ):
        return errors.InvalidParamsError(
            "mode: no connected client has advertised this one", field="mode"
        )
    return errors.MethodNotFoundError(method)


CANNOT_SHOW = "The agent is waiting for an answer"
CANNOT_SHOW_HOW = (
    "This client cannot show the question; open the session in one that can. The question: {}"
)
WATCHES_HOW = "This client only watches; answer in another one. The question: {}"

NOT_ALLOWED = "it was not allowed"
REFUSED = {
    "reject_once": "it was rejected",
    "reject_always": "it was rejected",
    "rejected": "nobody was there to allow it",
    "expired": "nobody allowed it in time",
}
"""The reason for the failure of a call, by the outcome of its permission request."""

UNANSWERED = "The agent's question was not answered"
UNANSWERED_HOW = (
    "It closed before anybody answered. Send a prompt to continue. The question was: {}"
)


class Question(ClientRequest, kw_only=True):
    """A question to a person; `informed` are the clients that were told they cannot show it, and
    `before` is the last entry before its turn, or before the last one if it is of none."""

    entry: AskedQuestion
    before: int = 0
    informed: set[Client] = set()
    watched: bytes = b""
    unruled: str = ""

    def put_to(self, attachment: Attachment) -> None:
        if self.seq:  # it is in the journal
            super().put_to(attachment)

    def withdraw(self, client: Client) -> None:
        self.informed.discard(client)
        super().withdraw(client)


class Questions(Struct, eq=False):
    """The open questions of one session. `go_on` begins a queued prompt, if one waits."""

    _session: HubSession
    _side: AgentSession
    _shared: SharedParts
    _alerts: SessionAlerts
    _standing: StandingAnswers
    _hear: Callable[[Client], None]
    _go_on: Callable[[], None]
    _open: list[ClientRequest] = []
    _missed: list[str] = []
    _refused: dict[tuple[str, str], str] = {}

    @property
    def waiting(self) -> Sequence[Question]:
        """The open questions to people that are in the journal, oldest first."""
        return [question for question in self._questions if question.seq]

    @property
    def _questions(self) -> Sequence[Question]:
        return [asked for asked in self._open if isinstance(asked, Question)]

    # -- asking ---------------------------------------------------------------------------

    async def relay(self, asked: AgentRequest, only: Client | None = None) -> bytes:
        """Return the answer of `only`, else the first that a client gives; it is not journalled.

        Waits while nobody is attached. Raises RemoteError if all who could answer refused,
        ConnectionLostError if `only` has gone.
        """
        request = ClientRequest(asked, self._shared.tasks, self._session.last_seq, only)
        self._open.append(request)
        try:
            for attachment in self._session.attachments:
                request.put_to(attachment)
            return _result(await request.reply)
        finally:
            self._open.remove(request)
            await request.aclose()

    async def decide(self, asked: AgentRequest) -> bytes:
        """Return the decision of a person, or of the rules.

        Raises RemoteError if all who could answer refused, AgentError if the agent ended meanwhile,
        and JournalError.
        """
        entry = AskedQuestion(uuid4().hex[:16], asked.method, asked.params)
        before = self._alerts.before_turn
        question = Question(
            asked, self._shared.tasks, known_as=entry.id, entry=entry, before=before
        )
        self._open.append(question)  # a cancellation finds it from here on
        considered: Considered | None = None

        async def adds() -> bytes:  # here: what the agent sends next waits for its turn
            nonlocal considered
            considered = await self._standing.consider(asked, entry, before)
            return await read_additions(self._session, entry.tool_call, before)

        try:
            segment = await self._session.ask(entry, asked.child, adds)
        except BaseException:
            self._open.remove(question)
            question.changed.set()
            raise
        timer = None
        try:
            if considered is not None:
                question.watched, question.unruled = considered.watched, considered.unruled
                given = await self._standing.answer(considered, question.entry, before)
                # If a rule answers, no client is ever asked. The reply is there already if the
                # question was cancelled meanwhile.
                if given is not None and not question.reply.done():
                    question.end(Reply(result=given.result, who=given.who, rule=given.rule))
                    if given.update:
                        self._session.hold("update", [given.update])
            if not question.reply.done():
                question.seq = segment.last_seq
                self._alerts.on_question(question.entry, question.seq)
                for attachment in self._session.attachments:
                    question.put_to(attachment)
                if (seconds := self._shared.options.answer_timeout) is not None:
                    expired = Reply("expired", refusal(asked, "expired"))
                    timer = asyncio.get_running_loop().call_later(seconds, question.end, expired)
            while not question.reply.done():
                question.changed.clear()
                await self._attend(question)
                await question.changed.wait()
            reply = question.reply.result()
        except asyncio.CancelledError:
            gone = not self._side.agent.alive
            await self._close(question, Reply("interrupted" if gone else "withdrawn"))
            raise
        except errors.JournalError as exc:  # clients that cannot show it could not be told
            reply = Reply("interrupted", error=exc)
        finally:
            if timer is not None:
                timer.cancel()
        await self._close(question, reply)
        return _result(reply)

    async def _attend(self, question: Question) -> None:
        """Handle a question that no attached client can show, and tell clients that only watch."""
        here = tuple(self._session.attachments)
        is_shown = any(question.suits(attachment) for attachment in here)
        if not is_shown and self._shared.options.when_detached == "reject":
            question.end(Reply("rejected", refusal(question.asked, "rejected")))
            return
        for attachment in here:
            client = attachment.client
            watches = client.only_watches(self._session.id)
            if client not in question.informed and (watches or not is_shown):
                question.informed.add(client)
                how = WATCHES_HOW if watches else CANNOT_SHOW_HOW
                how = how.format(await self._words_of(question.entry))
                update = notice(CANNOT_SHOW, how, "warning")
                await self._session.publish("update", [update], audience=attachment)

    async def _close(self, question: Question, reply: Reply) -> None:
        """Journal the outcome; then tell the other clients that were asked."""
        client_info = b"" if reply.client is None else reply.client.info
        if reply.client is not None:
            self._hear(reply.client)
        try:
            entry = answer_entry(
                question.entry.id,
                reply.outcome,
                result=reply.result,
                client=schema.encode({"name": reply.who}) if reply.who else client_info,
                sent_id=reply.sent_id,
                message=None if reply.error is None else str(reply.error),
                rule=reply.rule,
                watched=question.watched,
                unruled=question.unruled,
                is_automatic=reply.client is not None and reply.client.offer.is_automatic,
            )
            change = self._session.row.question_change(by_rule=bool(reply.rule))
            # Held first: if the journal fails now, the next commit has it, before another turn.
            self._session.hold(ANSWER, [entry], change=change)
            await self._session.release()
            # A refused call is ended with the turn: some agents never mention it again.
            if (call := string(question.entry.tool_call.get("toolCallId"))) is not None:
                how = closed_question(entry).came(question.entry).how
                if how.startswith("allow") or how == "answered":
                    self._refused.pop((question.asked.child, call), None)
                else:
                    self._refused[question.asked.child, call] = REFUSED.get(how, NOT_ALLOWED)
            if reply.outcome == "interrupted" and not self._session.attachments:
                self._missed.append(await self._words_of(question.entry))
        finally:
            self._open.remove(question)
            self._alerts.on_closed(question.entry.id)
            self._go_on()
            question.changed.set()
            await question.aclose()

    @property
    def are_left(self) -> bool:
        """True if `turn_over` has something to do."""
        return bool(self._open or self._refused)

    async def turn_over(self, before: int) -> None:
        """End the questions of the turn behind this entry, whose agent waits for them no more, and
        the calls that were not allowed. Raises JournalError."""
        if self._open:
            left = [question for question in self._questions if question.before == before]
            for question in left:
                question.end(Reply("withdrawn", refusal(question.asked, "cancelled")))
            with suppress(TimeoutError):
                await self._until_closed(left)
        if refused := self._refused:
            self._refused = {}
            await close_refused(self._session, refused)

    # -- clients --------------------------------------------------------------------------

    def put_to(self, attachment: Attachment) -> None:
        """Put the open questions to a client that attached."""
        for request in self._open:
            request.put_to(attachment)

    def withdraw(self, client: Client) -> None:
        """Take back what a client was asked: it detached."""
        for request in self._open:
            request.withdraw(client)

    async def report_missed(self) -> None:
        """Tell clients that attach now of questions that ended while nobody was attached."""
        missed, self._missed = self._missed, []
        while missed:
            update = notice(UNANSWERED, UNANSWERED_HOW.format(missed[0]), "warning")
            try:
                await self._session.publish("update", [update])
            except errors.JournalError as exc:  # a full disk, say: it can be read all the same
                log.warning("session %s: %s", self._session.id, exc)
                self._missed = missed
                return
            del missed[0]

    # -- the end --------------------------------------------------------------------------

    def cancel(self) -> None:
        """End the questions to people as cancelled, at once: the turn is cancelled."""
        for question in self._questions:
            question.end(Reply("cancelled", refusal(question.asked, "cancelled")))

    def abandon(self, error: errors.AcpError) -> None:
        """End all requests: the agent has ended and waits for no answers."""
        for request in self._open:
            request.end(Reply("interrupted", error=error))

    def close(self) -> None:
        """End all requests: the session is closed."""
        self.cancel()
        self.abandon(errors.ConnectionLostError("the session was closed"))

    async def aclose(self) -> None:
        """Close, and wait until the outcomes of all questions are journalled."""
        self.close()
        with suppress(TimeoutError):
            while waiting := self._questions:
                await self._until_closed(waiting)

    async def _until_closed(self, questions: Sequence[Question]) -> None:
        """Wait until the outcomes of these are journalled; raises TimeoutError."""
        async with timeout(bounds.QUESTIONS_CLOSE_SECONDS):
            for question in questions:
                while question in self._open:
                    question.changed.clear()
                    await question.changed.wait()

    async def close_left(self, ids: Iterable[str]) -> None:
        """Close the questions that a crash left open: the agent that asked them is gone."""
        asked: dict[str, AskedQuestion] = {}
        if wanted := {*ids}:  # this reads the whole session
            async for segment in self._session.segments(0):
                if segment.kind == QUESTION:
                    for question in map(asked_question, [it.raw for it in segment.entries()]):
                        if question.id in wanted:
                            asked[question.id] = question
        why = "acphold was ended while it waited"
        for id_ in ids:
            await self._session.publish(ANSWER, [answer_entry(id_, "interrupted", message=why)])
            if id_ in asked:
                self._missed.append(await self._words_of(asked[id_]))

    async def _words_of(self, question: AskedQuestion) -> str:
        """Return its text, on one line."""
        return first_line_of(await self._alerts.words_of(question)) or question.method


def _result(reply: Reply) -> bytes:
    if reply.error is not None:
        raise reply.error
    return reply.result


def refusal(asked: AgentRequest, outcome: Outcome) -> bytes:
    """Return the answer to the agent if no person answers; never a yes, and nothing permanent.

    Sources: spec v1, tool calls, "Requesting Permission"; schema, `CreateElicitationResponse`.
    """
    if asked.method != schema.REQUEST_PERMISSION.name:
        return b'{"action":"decline"}' if outcome == "rejected" else b'{"action":"cancel"}'
    option = None if outcome == "cancelled" else rejecting_option(asked.params)
    if option is None:
        return b'{"outcome":{"outcome":"cancelled"}}'
    return b'{"outcome":{"outcome":"selected","optionId":%b}}' % option
