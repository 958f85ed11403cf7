"""The rules for `session/new`, and for every session."""

from __future__ import annotations

from collections.abc import Sequence

from acphold.conformance.catalogue import EXPECTED, MUST, Rules, Witness, one_by_one
from acphold.conformance.record import Record, RecordedExchange, sessions_in
from acphold.conformance.stage import CheckedSession, Stage
from acphold.conformance.verdicts import RuleSource, Violation

RULES = Rules()

PAGE = "Session Setup"
CREATING = RuleSource(PAGE, "Creating a Session")
SESSION_ID = RuleSource(PAGE, "Session ID")
FOLDER = RuleSource(PAGE, "Working Directory")
ROOTS = RuleSource(PAGE, "Additional Workspace Roots")


async def plain_session(stage: Stage) -> CheckedSession:
    """Make a new session in the main process."""
    return await stage.new_session(await stage.main())


async def second_session(stage: Stage) -> CheckedSession:
    """Make another one, in another folder."""
    first = await stage.given(plain_session)
    second = await stage.new_session(await stage.main(), cwd=stage.new_folder("beside"))
    if first.id == second.id:
        lines = (*first.answer.lines, *second.answer.lines)
        raise Violation("two sessions have one id", *lines)
    return second


@RULES.case("new.answer", MUST, CREATING)
async def answer(stage: Stage) -> None:
    """`session/new` is answered with the id of a session."""
    session = await stage.judge(plain_session)
    if not session.id:
        raise Violation("the id is empty", *session.answer.lines)


@RULES.case("new.unique-ids", MUST, SESSION_ID)
async def unique_ids(stage: Stage) -> None:
    """Each session has an id of its own."""
    await stage.judge(second_session)


@RULES.also("new.unique-ids")
@one_by_one
def unique_throughout(record: Record, witness: Witness) -> None:
    made: dict[object, RecordedExchange] = {}
    for exchange in record.exchanges("client", "session/new"):
        id = exchange.result.get("sessionId")
        if isinstance(id, str) and id in made:
            witness.accuse("two sessions have one id", *made[id].lines, *exchange.lines)
        made[id] = exchange


async def session_of_another_process(stage: Stage) -> CheckedSession:
    """Make a new session in a separate process."""
    dialogue = await stage.meet("another process", is_restart=True)
    try:
        return await stage.new_session(dialogue)
    finally:
        await stage.leave(dialogue)


@RULES.case("new.unique-over-restarts", EXPECTED, SESSION_ID)
async def unique_over_restarts(stage: Stage) -> None:
    """No two processes of the agent give the same session id."""
    first = await stage.given(plain_session)
    await stage.given(second_session)
    before = set(stage.made)
    other = await stage.given(session_of_another_process)
    if other.id in before:
        raise Violation(
            "a session of another process had this id", *first.answer.lines, *other.answer.lines
        )


@RULES.also("new.unique-over-restarts")
def unique_over_all(records: Sequence[Record], witness: Witness) -> None:
    made: dict[object, tuple[Record, RecordedExchange]] = {}
    for record in records:
        for exchange in record.exchanges("client", "session/new"):
            id = exchange.result.get("sessionId")
            first, earlier = made.setdefault(id, (record, exchange))
            if isinstance(id, str) and first is not record:
                why = "a session of another process had this id"
                witness.accuse(why, *earlier.lines, *exchange.lines)


@RULES.case("new.two-at-once", EXPECTED, CREATING)
async def two_at_once(stage: Stage) -> None:
    """Two sessions may be asked for at the same time."""
    await stage.given(plain_session)
    dialogue = await stage.main()
    calls = [dialogue.begin("session/new", stage.params()) for _ in range(2)]
    for call in calls:
        (await dialogue.answered(call)).succeeded()


@RULES.case("new.new-members", MUST, RuleSource("Extensibility", "The `_meta` Field"))
async def new_members(stage: Stage) -> None:
    """Members of `session/new` that the agent does not know, and `_meta`, do no harm."""
    await stage.given(plain_session)
    meta = {"traceparent": "00-80e1afed08e019fc1110464cfa66635c-7a085853722dc6d2-01"}
    await stage.new_session(await stage.main(), _meta=meta, weather="fine")


@RULES.case("new.directories", MUST, ROOTS, "directories")
async def directories(stage: Stage) -> None:
    """Additional folders are taken where they are advertised."""
    await stage.given(plain_session)
    more = stage.new_folder("more")
    await stage.new_session(await stage.main(), additionalDirectories=[more])


@RULES.case("new.odd-folder", EXPECTED, FOLDER)
async def odd_folder(stage: Stage) -> None:
    """A folder may have blanks, quotes and letters beyond ASCII in its name."""
    await stage.given(plain_session)
    folder = stage.new_folder("it's ünïcode \U0001f41d")
    await stage.new_session(await stage.main(), cwd=folder)


RELATIVE = "check-no-such-folder"


@RULES.case("new.relative-folder", EXPECTED, FOLDER)
async def relative_folder(stage: Stage) -> None:
    """A folder that is not absolute is refused."""
    await stage.given(plain_session)
    answer = await (await stage.main()).ask("session/new", stage.params(cwd=RELATIVE))
    answer.refused("it was taken")


@RULES.observer(
    "session.known-id", MUST, SESSION_ID, unless="the agent said nothing about a session"
)
def known_id(record: Record, witness: Witness) -> None:
    """Messages about a session carry the id of one that the client has."""
    known: set[object] = set()
    for line in record.lines:
        if line.by == "client" and line.is_request:
            known.add(line.session_id)
    known |= {
        exchange.result.get("sessionId") for exchange in record.exchanges("client", "session/new")
    }
    known |= {
        entry.get("sessionId")
        for exchange in record.exchanges("client", "session/list")
        for entry in sessions_in(exchange)
    }
    for line in record.by("agent"):
        if line.method is not None and "sessionId" in line.params:
            witness.check(line.session_id in known, "the client has no session with this id", line)


@RULES.observer(
    "session.not-early", EXPECTED, SESSION_ID, unless="the agent said nothing about a session"
)
def not_early(record: Record, witness: Witness) -> None:
    """Nothing is sent about a session before the client has its id."""
    made: dict[object, int] = {}
    for exchange in record.exchanges("client", "session/new"):
        if exchange.answer is not None:
            made.setdefault(exchange.result.get("sessionId"), exchange.answer.number)
    for line in record.by("agent"):
        if line.method is not None and line.session_id is not None and line.session_id in made:
            witness.check(line.number >= made[line.session_id], "its id came later", line)


@RULES.case("session.unknown-id", EXPECTED, SESSION_ID)
async def unknown_id(stage: Stage) -> None:
    """A prompt for a session that does not exist is answered with an error."""
    await stage.given(plain_session)
    dialogue = await stage.main()
    params = {"sessionId": "check-no-such-session", "prompt": [{"type": "text", "text": "Hello"}]}
    answer = await dialogue.ask("session/prompt", params, seconds=2 * dialogue.timeout)
    answer.refused("it was answered with a result")
