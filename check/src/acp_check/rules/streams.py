"""The rules on the streams of Streamable HTTP: which message arrives on which stream.

One conversation is played over HTTP, and all rules check it: two sessions, a permission request, a
cancelled turn, a load. Its steps do not depend on each other.
"""

from __future__ import annotations

import asyncio
from functools import partial

from acp_check import bounds
from acp_check.checks import MUST, SHOULD, Rules
from acp_check.errands import COUNT, GREET, Errand
from acp_check.record import Json, objects
from acp_check.rules.network import (
    FLOW,
    RFD,
    ROUTING,
    Http,
    HttpAnswer,
    StreamEvent,
    Streams,
    connection,
    http_of,
    listening,
    message_of,
)
from acp_check.rules.prompt_turns import plain_turn
from acp_check.stage import Stage
from acp_check.verdicts import NotObservable, Reach, RuleSource, Violation
from acp_wire.tasks import end

RULES = Rules(only=Reach.SERVER)

HTTP = RuleSource(RFD, "Adds an HTTP Transport")

PROMPTED = "session/prompt"
UPDATE = "session/update"
PERMISSION = "session/request_permission"


# -- the conversation -------------------------------------------------------------------------


class HttpLife:
    """The conversation so far: its connection, and the result of each step.

    None stands for a message that did not arrive, or a step that was not tried.
    """

    def __init__(self, http: Http, streams: Streams) -> None:
        self.http = http
        self.streams = streams
        self.sessions: list[str] = []
        self.opened: list[StreamEvent] = []
        self.turns: dict[str, StreamEvent] = {}
        self.posts: dict[str, HttpAnswer] = {}
        self.asked: StreamEvent | None = None
        self.replied: set[int] = set()
        self.is_late = False
        self.loaded: StreamEvent | None = None
        self.replayed: list[StreamEvent] = []

    async def begin(self, stage: Stage) -> str | None:
        """Begin a session and open its stream; return its id."""
        id, posted = await self.http.post("session/new", stage.params())
        answer = await self.streams.answer(id)
        if answer is None:
            posted.expect(202)
        session_id = answer and (answer.message.get("result") or {}).get("sessionId")
        if answer is None or not isinstance(session_id, str):
            return None
        stage.made[session_id] = str(stage.work)
        self.opened.append(answer)
        self.sessions.append(session_id)
        await self.streams.open(session_id)
        return session_id

    def prompt(self, name: str, session_id: str, todo: Errand) -> tuple[int, asyncio.Task[None]]:
        """Post a prompt; the task ends with the answer to the POST."""
        id = self.http.next_id()
        params = {"sessionId": session_id, "prompt": [{"type": "text", "text": todo.words}]}

        async def post() -> None:
            sent = message_of(PROMPTED, params, id)
            self.posts[name] = await self.http.ask("POST", self.http.head(session_id), sent)

        return id, asyncio.create_task(post(), name="post a prompt")

    async def turn(self, name: str, session_id: str, todo: Errand) -> None:
        """Play a turn to its end."""
        id, posting = self.prompt(name, session_id, todo)
        await posting
        await self.finish(name, id, session_id)

    async def finish(self, name: str, id: int, session_id: str, *, allows: bool = True) -> None:
        """Wait for the answer to a prompt; meanwhile answer each permission that is asked for."""
        streams, http = self.streams, self.http

        def open_questions() -> list[StreamEvent]:
            questions = streams.of(session_id, PERMISSION)
            return [it for it in questions if it.line.number not in self.replied]

        while await streams.until(lambda: streams.answers(id) or open_questions()):
            if answers := streams.answers(id):
                self.turns[name] = answers[0]
                return
            for question in open_questions():
                self.replied.add(question.line.number)
                body = _decision(question.message, allows=allows)
                found = await http.ask("POST", http.head(session_id), body)
                self.posts.setdefault("the permission", found)
            if len(self.replied) > bounds.STREAM_PERMISSIONS:
                return

    async def permission(self, stage: Stage, session_id: str) -> None:
        """Play a turn that asks for permission, and allow it once its POST is answered."""
        name = "acphold-check-permitted.txt"
        id, posting = self.prompt(PERMISSION, session_id, Errand("write", name, "heron"))
        streams = self.streams
        before = len(streams.of(session_id, PERMISSION))
        try:
            await streams.until(
                lambda: len(streams.of(session_id, PERMISSION)) > before or streams.answers(id)
            )
            asked = streams.of(session_id, PERMISSION)[before:]
            if not asked:
                return
            self.asked = asked[0]
            await asyncio.wait([posting], timeout=self.http.seconds / 2)
            self.is_late = not posting.done()
            await self.finish(PERMISSION, id, session_id)
        finally:
            await end(posting)

    async def cancel(self, session_id: str) -> None:
        """Play a turn that is cancelled when it has begun."""
        before = len(self.streams.of(session_id, UPDATE))
        id, posting = self.prompt("session/cancel", session_id, COUNT)
        try:
            of = self.streams.of
            await self.streams.until(lambda: len(of(session_id, UPDATE)) > before + 1)
            sent = message_of("session/cancel", {"sessionId": session_id}, None)
            head = self.http.head(session_id)
            self.posts["the cancel"] = await self.http.ask("POST", head, sent)
            await self.finish("session/cancel", id, session_id, allows=False)
        finally:
            await end(posting)


def _decision(question: Json, *, allows: bool) -> bytes:
    """Return the answer that permits what is asked, or says that the turn is cancelled."""
    if not allows:
        return message_of(None, {"outcome": {"outcome": "cancelled"}}, question.get("id"))
    options = objects((question.get("params") or {}).get("options"))
    allowing = [it for it in options if str(it.get("kind", "")).startswith("allow")]
    chosen = (allowing or options or [{}])[0].get("optionId")
    outcome = {"outcome": "selected", "optionId": chosen}
    return message_of(None, {"outcome": outcome}, question.get("id"))


async def life(stage: Stage) -> HttpLife:
    """Play the conversation."""
    await stage.need(plain_turn)
    async with connection(stage) as http, listening(http) as streams:
        found = HttpLife(http, streams)
        first = await found.begin(stage)
        if first is None:
            raise NotObservable("the answer to `session/new` has no session")
        await found.turn("first", first, GREET)
        second = await found.begin(stage)
        if second is not None:
            await found.turn("second", second, GREET)
        await found.permission(stage, first)
        await found.cancel(first)
        return found


async def load(stage: Stage) -> HttpLife:
    """Load a session of that conversation over another connection."""
    await stage.needs("load")
    played = await stage.need(life)
    session_id = played.sessions[0]
    async with http_of(stage) as http, listening(http) as streams:
        found = HttpLife(http, streams)
        try:
            await streams.open(session_id)
        except Violation as refused:
            # The proposal says both: its flow opens the stream first, its routing has 404.
            raise NotObservable(f"before the load, {refused.why}", *refused.lines) from None
        params = stage.params(sessionId=session_id)
        id, posted = await http.post("session/load", params, session_id)
        found.loaded = await streams.answer(id)
        if found.loaded is None:
            raise Violation("`session/load` was not answered on either stream", *posted.lines)
        if "result" not in found.loaded.message:
            raise NotObservable("the session was not loaded", found.loaded.line)
        await streams.until(lambda: streams.of(session_id, UPDATE))
        found.replayed = streams.of(session_id, UPDATE)
        return found


# -- the rules --------------------------------------------------------------------------------


def _on(event: StreamEvent, stream: str) -> None:
    """Raise Violation unless a message arrived on this stream."""
    if event.stream != stream:
        names = {True: "a session's stream", False: "the connection's stream"}
        raise Violation(f"it arrived on {names[bool(event.stream)]}", event.line)


@RULES.case("http.new-answer", MUST, HTTP)
async def new_answer(stage: Stage) -> None:
    """The answer to `session/new` arrives on the connection's stream."""
    # A server that answers elsewhere gets no further.
    async with connection(stage) as http, listening(http) as streams:
        await HttpLife(http, streams).begin(stage)
    for answer in (await stage.judge(life)).opened:
        _on(answer, "")


@RULES.case("http.session-stream", MUST, HTTP)
async def session_stream(stage: Stage) -> None:
    """Messages about a session arrive on the session's stream."""
    found = await stage.need(life)
    session_id = found.sessions[0]
    found.posts["first"].expect(202)
    updates = found.streams.of(session_id, UPDATE)
    if "first" not in found.turns:
        raise Violation("the prompt was not answered on any stream", *found.posts["first"].lines)
    for name, answer in found.turns.items():
        again = found.streams.answers(answer.message["id"])
        own = found.sessions[name == "second"]
        if not any(event.stream == own for event in again):
            _on(answer, own)
    if not updates:
        raise NotObservable("the agent sent no update")
    for event in updates:
        # Some arrive between the answer to `session/new` and the opening of the session's stream.
        of_turn = ("agent_message_chunk", "tool_call", "tool_call_update")
        if event.line.number > found.opened[0].line.number and event.line.update_kind in of_turn:
            _on(event, session_id)


@RULES.case("http.own-session", MUST, HTTP)
async def own_session(stage: Stage) -> None:
    """The stream of a session carries nothing of another session."""
    found = await stage.need(life)
    if len(found.sessions) < 2 or "second" not in found.turns:
        raise NotObservable("no turn ran in a second session")
    if found.turns["second"].stream == found.sessions[0]:
        raise Violation(
            "the first session's stream has an answer of the second session",
            found.turns["second"].line,
        )
    for event in found.streams.events:
        if event.stream and event.session_id not in (None, event.stream):
            raise Violation(f"this message is about {event.session_id!r}", event.line)


def _question(found: HttpLife) -> StreamEvent:
    """Return the permission that was asked for; raises NotObservable."""
    if found.asked is None:
        raise NotObservable("the agent did not ask for permission")
    return found.asked


@RULES.case("http.permission", MUST, HTTP)
async def permission(stage: Stage) -> None:
    """A permission request arrives on the stream of its session."""
    found = await stage.need(life)
    _on(_question(found), found.sessions[0])


@RULES.case("http.response", MUST, FLOW)
async def response(stage: Stage) -> None:
    """A posted answer to a permission request is accepted with 202, and the turn continues."""
    found = await stage.need(life)
    asked = _question(found)
    posted = found.posts["the permission"]
    posted.expect(202)
    if PERMISSION not in found.turns:
        raise Violation("the turn does not continue", asked.line, *posted.lines)


@RULES.case("http.at-once", MUST, HTTP)
async def at_once(stage: Stage) -> None:
    """A POST is accepted at once, not when its request is answered."""
    found = await stage.need(life)
    asked = _question(found)
    if found.is_late:
        raise Violation("a prompt's POST stays open while a permission is pending", asked.line)


@RULES.case("http.cancel", MUST, FLOW)
async def cancel(stage: Stage) -> None:
    """A posted `session/cancel` is accepted with 202, and ends the turn."""
    found = await stage.need(life)
    if "the cancel" not in found.posts:
        raise NotObservable("no turn was cancelled")
    found.posts["the cancel"].expect(202)
    if "session/cancel" not in found.turns:
        raise Violation("the prompt was not answered", *found.posts["the cancel"].lines)


@RULES.case("http.once", MUST, HTTP)
async def once(stage: Stage) -> None:
    """Each message arrives on one stream, once."""
    found = await stage.need(life)
    seen: dict[object, StreamEvent] = {}
    for event in found.streams.events:
        if "id" not in event.message:
            continue
        key = event.line.is_response, str(event.message["id"])
        if (before := seen.setdefault(key, event)) is not event:
            raise Violation("this message arrived twice", before.line, event.line)


@RULES.case("http.events", MUST, FLOW)
async def events(stage: Stage) -> None:
    """Each event of a stream is one message."""
    found = await stage.judge(life)
    for event in found.streams.events:
        if event.line.problem or event.message.get("jsonrpc") != "2.0":
            raise Violation(event.line.problem or "the event is not a message", event.line)


@RULES.case("http.load-answer", SHOULD, HTTP)
async def load_answer(stage: Stage) -> None:
    """The answer to `session/load` arrives on the connection's stream."""
    loaded = (await stage.judge(load)).loaded
    assert loaded is not None
    _on(loaded, "")


@RULES.case("http.replay", SHOULD, HTTP)
async def replay(stage: Stage) -> None:
    """A session is replayed on its own stream."""
    found = await stage.need(load)
    if not found.replayed:
        raise NotObservable("nothing was replayed")
    for event in found.replayed:
        _on(event, event.session_id or "")


async def nameless(stage: Stage) -> dict[str, HttpAnswer]:
    """Post what is about a session without its header; return what was answered to each."""
    await stage.need(life)
    async with connection(stage) as http, listening(http) as streams:
        found = HttpLife(http, streams)
        session_id = await found.begin(stage)
        if session_id is None:
            raise NotObservable("the agent created no session")
        posts: dict[str, HttpAnswer] = {}
        cancelled = message_of("session/cancel", {"sessionId": session_id}, None)
        posts["session/cancel"] = await http.ask("POST", http.head(), cancelled)
        content = [{"type": "text", "text": GREET.words}]
        id, prompted = await http.post(PROMPTED, {"sessionId": session_id, "prompt": content})
        posts[PROMPTED] = prompted
        if prompted.status == 202:
            await found.finish(PROMPTED, id, session_id)
        name = "acphold-check-nameless.txt"
        id, posting = found.prompt(PERMISSION, session_id, Errand("write", name, "heron"))
        asked = partial(streams.of, session_id, PERMISSION)
        try:
            await streams.until(lambda: len(asked()) > len(found.replied) or streams.answers(id))
            if questions := asked()[len(found.replied) :]:
                decided = _decision(questions[0].message, allows=True)
                posts[PERMISSION] = refused = await http.ask("POST", http.head(), decided)
                if refused.status == 202:  # it has its answer
                    found.replied.add(questions[0].line.number)
                await found.finish(PERMISSION, id, session_id)
        finally:
            await end(posting)
        return posts


async def _refuses_nameless(stage: Stage, what: str) -> None:
    posted = (await stage.need(nameless)).get(what)
    if posted is None:
        raise NotObservable("the agent did not ask for permission")
    posted.expect(400)


@RULES.case("http.session-header", SHOULD, ROUTING)
async def session_header(stage: Stage) -> None:
    """A prompt without `Acp-Session-Id` gets 400."""
    await _refuses_nameless(stage, PROMPTED)


@RULES.case("http.cancel-header", SHOULD, ROUTING)
async def cancel_header(stage: Stage) -> None:
    """A `session/cancel` without `Acp-Session-Id` gets 400."""
    await _refuses_nameless(stage, "session/cancel")


@RULES.case("http.response-header", SHOULD, ROUTING)
async def response_header(stage: Stage) -> None:
    """An answer to a permission request without `Acp-Session-Id` gets 400."""
    await _refuses_nameless(stage, PERMISSION)
