"""A live session with all that belongs to it: its turns, its open questions, its agent's side.

It decides what to do with the agent's updates and requests in a session, and with requests of
clients other than prompts.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from operator import methodcaller

from acp_wire.schema import SET_SESSION_CONFIG_OPTION, SET_SESSION_MODE, encode, members, splice
from acp_wire.schema.splice import json_value
from acphold import errors
from acphold.conversation.history.attributes import fold_update
from acphold.conversation.history.clearings import PLAN, is_plan_that_clears
from acphold.conversation.history.entries import CHILD
from acphold.conversation.history.fold import Doubt
from acphold.conversation.history.handovers import own_words, without_its_title
from acphold.conversation.history.raw_update import (
    CHUNK_STARTS,
    OPENCODE_CHILD,
    array,
    kinds_about,
    members as members_of,
    string,
    update_kind,
)
from acphold.conversation.history.titles import title_of_words
from acphold.live.agents import air
from acphold.live.agents.client_methods import client_row
from acphold.live.agents.interface import AgentRequest, Notified, Updates, update_of, with_update
from acphold.live.hub import choices
from acphold.live.hub.agent_session import AgentSession, Children, Setup, Voice
from acphold.live.hub.alerts import SessionAlerts
from acphold.live.hub.annotations import first_words, repeats, title_update, user_message
from acphold.live.hub.attachment import Attachment, Client
from acphold.live.hub.frames import EMPTY_UPDATE
from acphold.live.hub.publication import Publication
from acphold.live.hub.questions import (
    Questions,
    can_answer,
    covers,
    refusal,
    unanswerable,
)
from acphold.live.hub.restoration import Restoration
from acphold.live.hub.services import Services, TerminalTexts
from acphold.live.hub.session import HubSession
from acphold.live.hub.session_list import GivenTitle
from acphold.live.hub.shared_parts import SharedParts
from acphold.live.hub.standing_answers import StandingAnswers
from acphold.live.hub.tool_calls import close_open
from acphold.live.hub.turn_files import TurnFiles
from acphold.live.hub.turns import Turns
from acphold.live.hub.waiting_prompts import Interjections, WaitingQueue, prompt_in

log = logging.getLogger(__name__)

INTERRUPTED = "interrupted: acphold was ended meanwhile"
"""The reason for an end that nobody lived to report."""

REPEATED = kinds_about("choices", "commands", "cost")
"""Updates that state the whole of something: a repetition is not journalled again."""


class Conversation:
    """See the module. `doubt` is that of `Summary`."""

    def __init__(
        self, session: HubSession, shared: SharedParts, setup: Setup, *, doubt: Doubt = ""
    ) -> None:
        self.session = session
        self._is_end_told = False
        """True once its clients are led to the process that has taken it."""
        self._come_to(shared, setup, doubt=doubt)

    def _come_to(self, shared: SharedParts, setup: Setup, *, doubt: Doubt) -> None:
        session = self.session
        self.when_at_rest: Callable[[], None] | None = None
        """What another desk has to be told once less runs here: the session may come to it."""
        agent, journal, routes = shared.agent, shared.journal, shared.routes
        self.side = side = AgentSession(agent, routes, session.id, setup)
        self.children = Children(session, side, routes, journal)
        self.shared = shared
        session.max_outage = shared.options.max_outage
        held = session.queue.held
        self._alerts = alerts = SessionAlerts(shared.alerts, session, agent, shared.activity, held)
        self.standing = StandingAnswers(session, agent, journal, lambda: self.turns)

        def go_on() -> None:  # a turn or a question has ended
            self.waiting.look()
            if self.when_at_rest is not None:
                self.when_at_rest()

        self.questions = questions = Questions(
            *(session, side, shared, alerts, self.standing),
            lambda client: self.turns.hear(client),
            go_on,
        )
        self.interjections = Interjections()
        self.title = GivenTitle(session, side, journal)
        self.restoration = Restoration(
            *(session, side, journal, self.title, shared.other_ids), doubt=doubt
        )
        self.terminals = TerminalTexts(session)
        self.services = Services(session, questions, self.terminals, shared)
        self.turns = Turns(
            *(session, side, self.restoration, questions, self.terminals, alerts, shared),
            TurnFiles(shared.files, session),
            go_on,
        )
        self.waiting = WaitingQueue(session, side, self.turns, questions)

    def move(self, shared: SharedParts, setup: Setup) -> None:
        """Come to the desk with these parts, asleep; its clients stay."""
        self._end()
        self._come_to(shared, setup, doubt=self.restoration.doubt)

    @property
    def is_asleep(self) -> bool:
        """True while it is live only for clients that may not prompt: no agent has it open."""
        return not (self.waiting.is_awake or self.side.is_open or self.is_busy)

    @property
    def is_busy(self) -> bool:
        """True while a turn runs, the agent waits for an answer, or a prompt waits for its time."""
        return (
            self.turns.running is not None
            or bool(self.questions.waiting)
            or (self.waiting.is_awake and self.session.queue.wakes_at is not None)
        )

    def tell_end(self, update: bytes) -> None:
        """Tell the clients once, with this update, that what runs the session ends."""
        if not self._is_end_told:
            self._is_end_told = True
            self.session.attachments.tell_aside(update)

    @property
    def id(self) -> str:
        """The id that clients know."""
        return self.session.id

    # -- what the agent says --------------------------------------------------------------

    async def hear(self, updates: Updates) -> None:
        """Publish the updates that count; if the journal fails, the turn ends with that reason."""
        speaks = is_speech(updates.kind, updates.raws)
        self.turns.files.hear(updates, is_speech=speaks)
        is_own = updates.session_id == self.side.id
        child = None if is_own else self.shared.routes.child(updates.session_id)
        try:
            if child is not None:
                if entries := await self.children.entries(child, updates):
                    await self._publish_of_children(entries)
            else:
                raws = self.side.counting(updates)
                if self.side.voice is not Voice.COUNTS:
                    await self.children.look(updates)
                if speaks:
                    if raws and updates.are_last:
                        self.session.hold("update", raws)  # with the end of the turn
                    elif raws:
                        await self.session.publish("update", raws, is_speech=True)  # nearly always
                elif raws:
                    await self._hear_others(updates.kind, raws)
        except errors.JournalError as exc:
            await self.fail(exc)
        for early in self.children.early():
            await self.hear(early)

    def plain(self, updates: Updates) -> Publication | None:
        """Return these updates as a publication if they need nothing else and nothing has to be
        waited for; otherwise None."""
        if (
            updates.session_id != self.side.id
            or self.side.voice is not Voice.COUNTS
            or updates.are_last
            or self.session.writing.locked()
            or not is_speech(updates.kind, updates.raws)
        ):
            return None
        self.turns.files.hear(updates, is_speech=True)
        return Publication("update", updates.raws, is_speech=True)

    async def fail(self, error: errors.JournalError) -> None:
        """End the turn: its updates could not be journalled."""
        log.error("session %s: %s", self.id, error)
        await self.turns.fail(error)

    async def _publish_of_children(self, entries: Sequence[bytes]) -> None:
        if self.side.voice is Voice.COUNTS:
            await self.session.publish(CHILD, entries)
        else:
            log.info("session %s: dropped %d old updates", self.id, len(entries))

    async def on_notification(self, event: Notified) -> None:
        """Pass a notification that is no update to the attached clients."""
        if event.method == OPENCODE_CHILD:
            try:
                if entry := await self.children.opencode(event.params):
                    await self._publish_of_children([entry])
            except errors.JournalError as exc:
                await self.fail(exc)
            return
        known = self.children.translate_request(AgentRequest(event.method, event.params))
        try:
            await self.session.flush()
        except errors.JournalError as exc:  # the updates before it will never be shown
            await self.fail(exc)
        self.session.attachments.tell(event.method, known.params, about_child=bool(known.child))

    async def _hear_others(self, kind: str, raws: Sequence[bytes]) -> None:
        before = self.session.attributes
        raws = [shown for raw in raws if (shown := await self._as_clients_get(kind, raw))]
        if any(b'"user_message_chunk"' in raw for raw in raws):
            await self._publish_user_messages(kind, raws)
        elif raws:
            await self.session.publish(kind, raws)
        for raw in raws:
            if self.standing.allowed:
                await self.standing.look(update_of(kind, raw))
            self.terminals.see(kind, raw)
        if self.session.attributes is not before:
            await self._publish_if_any(choices.in_step(before, self.session.attributes))
            if self.session.attributes.title != before.title:
                await self.title.look()  # a title may also come within whole params

    async def _as_clients_get(self, kind: str, raw: bytes) -> bytes:
        """Return an update, or params with more than one, with our own ids and lines; b"" if
        clients get nothing of it."""
        if kind == "update" and (raw := await self._news_in(raw)) == EMPTY_UPDATE:
            return b""
        heard = update_of(kind, raw)
        if log.isEnabledFor(logging.DEBUG):
            self._log_tool(heard)
        shown = await self.children.translate(heard)
        if heard and not shown:
            return b""
        if self.standing.allowed:
            shown = self.standing.with_line(shown)
        return raw if shown is heard else with_update(kind, raw, shown)

    def _log_tool(self, update: bytes) -> None:
        """Log a step of a tool, without its input and output."""
        if (update_name := update_kind(update)) in ("tool_call", "tool_call_update"):
            parts = members_of(update)
            id_, status = string(parts.get("toolCallId")), string(parts.get("status"))
            if update_name == "tool_call" or status is not None:
                tool = string(parts.get("kind")) or "tool"
                self.turns.log_step("%s %s: %s", tool, id_, status or "pending")

    async def _news_in(self, raw: bytes) -> bytes:
        """Return an update without a title that must not replace ours; EMPTY_UPDATE for one that
        changes nothing: some agents send everything at every load."""
        kind, known = update_kind(raw), self.session.attributes
        if kind in REPEATED and b'"_meta"' not in raw and fold_update(known, kind, raw) == known:
            return EMPTY_UPDATE
        if kind == "session_info_update" and air.tells_archived(raw):
            return EMPTY_UPDATE
        return await self.title.without_worse_title(without_its_title(raw))

    async def _publish_user_messages(self, kind: str, raws: Sequence[bytes]) -> None:
        """Publish user messages; a prompt that an agent sends back becomes an echo.

        The author of the prompt sees the echo, as without acphold; the others were shown the
        prompt.
        """
        running = self.turns.running
        author = None if running is None else running.author
        for raw in raws:
            update = update_of(kind, raw)
            if update_kind(update) != "user_message_chunk":
                await self.session.publish(kind, [raw])
                continue
            content = members_of(members_of(update).get("content", b""))
            text = string(content.get("text"))
            if text is not None and (own := own_words(text)) != text:
                log.info("session %s: the agent repeated its context; dropped", self.id)
                if not own:
                    continue
                without = splice(b"{}", {**content, "text": encode(own)})
                update = splice(update, {"content": without})
                raw = with_update(kind, raw, update)
            if self.interjections.is_echo(update) or (
                running is not None and repeats(update, running.prompt)
            ):
                if running is None or author is not None:
                    await self.session.publish("echo", [update], audience=author)
                else:  # everybody has seen the prompt, as it came out of the queue
                    log.info("session %s: the agent repeated its prompt", self.id)
            else:
                await self.session.publish(kind, [raw])

    # -- what the agent asks --------------------------------------------------------------

    async def answer(self, asked: AgentRequest) -> bytes:
        """Answer a request of the agent; raises MethodNotFoundError if no answer is possible."""
        self.turns.files.hear_request(asked)
        asked = self.children.translate_request(asked)
        try:
            if asked.is_decision:
                if self.turns.is_cancelling:
                    return refusal(asked, "cancelled")  # nobody is asked in a cancelled turn
                clients = [attachment.client for attachment in self.session.attachments]
                if not covers(self.shared.offered, asked) and not any(
                    can_answer(client, asked, self.id) for client in clients
                ):
                    offers = [client.offer.capabilities for client in clients]
                    raise unanswerable(asked, (self.shared.offered, *offers))
                self.turns.log_step("a person is asked: %s", asked.method)
                answer = await self.questions.decide(asked)
                self.turns.log_step("answered: %s", asked.method)
                if is_plan_that_clears(asked.params, answer):
                    self.restoration.on_clearing(PLAN)
                return answer
            await self.session.flush()  # questions are committed themselves
            running = self.turns.running
            client = None if running is None else running.client
            await self.session.outage.until_running()
            if client_row(asked.method).by == "workspace":  # one client, not all that are attached
                return await self.services.answer(asked, client)
            # An extension's request goes to the client that prompted, otherwise to the clients that
            # are attached.
            if client is not None and self.session.attachments.find(client) is not None:
                return await self.questions.relay(asked, client)
            if running is not None and not self.session.attachments:
                # The client that it was meant for is gone.
                raise errors.MethodNotFoundError(asked.method)
            return await self.questions.relay(asked)
        except errors.JournalError as exc:
            await self.fail(exc)
            raise

    # -- what a client does ---------------------------------------------------------------

    def open_to(self, attachment: Attachment) -> None:
        """Go live: the client has the answer that opens the session. Send it what is new, ask it
        what is open."""
        self.session.attachments.open_to(attachment)
        self.questions.put_to(attachment)

    async def cancel(self, client: Client) -> None:
        """Cancel the running turn and those of the client that wait, and hold what is queued."""
        self.waiting.hold_back()
        await self.turns.cancel(client)

    async def close_for(self, client: Client) -> None:
        """Detach a client from a session that others have open; its own turns end."""
        await self.turns.end_for(client)
        if (attachment := self.session.attachments.find(client)) is not None:
            self.detach(attachment)

    def detach(self, attachment: Attachment) -> None:
        """End one attachment, if it has not been replaced since; the turn goes on."""
        if attachment in self.session.attachments:
            self.questions.withdraw(attachment.client)
            self.session.attachments.detach(attachment)
            self.waiting.left(attachment.client)

    def put_back(self, attachment: Attachment) -> None:
        """Give the client back its former attachment: the session could not be opened."""
        if not self.session.attachments.put_back(attachment):
            self.detach(attachment)

    async def _ready_for(self, client: Client, method: str) -> None:
        """Have the agent run with the session open; only for a client that may prompt is it opened
        there. Raises ForbiddenError."""
        if not self.side.is_open and "prompt" not in client.scopes_in(self.id):
            raise errors.ForbiddenError(
                f"{method} of a session that its agent has not open", "prompt"
            )
        await self.restoration.ready()

    async def set_mode(
        self, params: bytes, author: Attachment, reply: Callable[[bytes], None]
    ) -> None:
        """Answer `session/set_mode`; raises RemoteError if the agent refuses."""
        mode_id = _string(members(params).get("modeId"), "modeId")
        await self._ready_for(author.client, SET_SESSION_MODE.name)
        async with self.side.exchange(SET_SESSION_MODE.name, params) as answer:
            if self.session.attributes.current_mode_id != mode_id:
                await self.session.publish("update", [choices.mode_update(mode_id)], author)
            await self._publish_if_any(choices.option_behind_mode(self.session.attributes, mode_id))
            self._reply(author, reply, answer if answer.startswith(b"{") else b"{}")

    async def set_config_option(
        self, params: bytes, author: Attachment, reply: Callable[[bytes], None]
    ) -> None:
        """Answer `session/set_config_option` with all options, whatever the agent sent."""
        option_id = _string(members(params).get("configId"), "configId")
        value = members(params).get("value", b"null")
        await self._ready_for(author.client, SET_SESSION_CONFIG_OPTION.name)
        async with self.side.exchange(SET_SESSION_CONFIG_OPTION.name, params) as answer:
            answer = choices.with_all_options(answer, self.session.attributes, option_id, value)
            options = choices.option_list(members(answer)["configOptions"])
            if array(options) != self.session.attributes.config_options:
                await self.session.publish("update", [choices.options_update(options)], author)
            await self._publish_if_any(choices.mode_behind_option(self.session.attributes, options))
            self._reply(author, reply, answer)

    async def relay(
        self, method: str, params: bytes, client: Client, reply: Callable[[bytes], None]
    ) -> None:
        """Pass a method that is the agent's own business on, about this session.

        If it says something to the agent, that is journalled as said by the user once the agent has
        accepted it.
        """
        await self._ready_for(client, method)
        words = prompt_in(method, params)
        self.interjections.begin(words)
        self.turns.hear(client)
        try:
            async with self.side.exchange(method, params, seconds=None) as answer:
                self.turns.hear(client)  # the agent may take it only now, in the next turn
                if words is not None and self.interjections.is_new(words, answer):
                    await self._say(method, words, client)
                author = self.session.attachments.find(client)
                if author is None:
                    reply(answer)
                else:
                    self._reply(author, reply, answer)
        finally:
            self.interjections.end(words)

    async def tell(self, method: str, params: bytes, client: Client) -> None:
        """Journal a notification's words to the agent; a notification is never refused."""
        if (words := prompt_in(method, params)) is not None:
            self.interjections.begin(words)
            if self.interjections.is_new(words):
                await self._say(method, words, client)

    async def _say(self, method: str, words: bytes, client: Client) -> None:
        if not self.side.is_at_work:
            self.side.voice = Voice.COUNTS  # it may begin a turn with them
        author = self.session.attachments.find(client)
        await self.session.publish("update", user_message(method, words, client.info), author)

    def _reply(self, to: Attachment, reply: Callable[[bytes], None], answer: bytes) -> None:
        """Answer after the updates so far, and before the agent's next ones."""
        to.when_reached(self.session.last_seq, lambda: reply(answer))

    async def _publish_if_any(self, update: bytes | None) -> None:
        if update is not None:
            await self.session.publish("update", [update])

    @property
    def load_result(self) -> bytes:
        """The result of session/load and session/resume."""
        return choices.load_result(self.side.answer, self.session.attributes)

    # -- begun and ended ------------------------------------------------------------------

    async def close_interrupted_turn(self) -> None:
        """Mark a turn that a crash cut off as interrupted, and close what was open in it."""
        session = self.session
        await close_open(session, INTERRUPTED)
        if session.attributes.title is None:
            title = title_of_words(await first_words(session.segments(0)) or "")
            if title is not None:
                await session.publish("update", [title_update(title)])
        await session.publish("turn_end", [b'{"interrupted":true}'])

    def lose(self, error: errors.LeaseLostError) -> None:
        """End everything here: another process owns the session, or it is gone."""
        attachments = self.session.attachments
        if isinstance(error, errors.HistoryLostError):
            log.error("%s", error)
            attachments.tell_history_lost(error)
        if not error.deleted:  # first: prompts that have not begun follow their clients
            attachments.move()
        self.turns.lose(error)
        self._end()
        self.session.stop()
        if error.deleted:
            attachments.tell_deleted()
            attachments.detach_all()

    async def aclose(self) -> None:
        """End the turn, detach all clients, release the lease."""
        self.waiting.stop()
        await self.turns.aclose()
        try:
            await self.terminals.turn_over()
        except errors.JournalError as exc:
            log.warning("session %s: the output of a terminal is lost: %s", self.id, exc)
        await self.questions.aclose()
        self._end()
        await self.services.aclose()
        await self.session.aclose()

    def _end(self) -> None:
        self.waiting.stop()
        self._alerts.stop()
        self.restoration.stop()
        self.questions.close()
        self.side.close()


_is_chunk = methodcaller("startswith", CHUNK_STARTS)


def is_speech(kind: str, raws: Sequence[bytes]) -> bool:
    """Return True if these are only pieces of the agent's messages and thoughts."""
    return kind == "update" and all(map(_is_chunk, raws))


def _string(raw: bytes | None, field: str) -> str:
    if (value := json_value(raw, str)) is None:
        raise errors.InvalidParamsError(f"{field}: a string is required", field=field)
    return value
