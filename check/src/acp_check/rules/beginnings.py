"""The rules for beginnings: initialization, authentication, and `session/new`."""

from __future__ import annotations

from collections.abc import Sequence

from acp_check.checks import EXPECTED, MUST, SHOULD, Rules, Witness, one_by_one
from acp_check.dialogue import Call
from acp_check.record import Exchange, Json, Record, objects, sessions_in, twice
from acp_check.stage import CheckedSession, Stage, first_answer, first_response, introduce
from acp_check.verdicts import NotObservable, RuleSource, Violation
from acp_wire.errors import AUTH_REQUIRED
from acp_wire.schema import InitializeResponse

PAGE = "Initialization"
SIGN_IN = "Authentication"
INITIALIZATION = RuleSource(PAGE, "")
VERSIONS = RuleSource(PAGE, "Version Negotiation")
CAPABLE = RuleSource(PAGE, "Capabilities")
WHO = RuleSource(PAGE, "Implementation Information")
ADVERTISED = RuleSource(SIGN_IN, "Advertising Authentication")

SIGNED = ("initialize.*", "new.answer", "options.set-boolean")
"""The cases that show how to sign in, to clients that show a terminal and to others."""

RULES = Rules(over=SIGNED)

MESSAGES = (
    *("initialize.*", "auth.*", "new.*", "session.*", "prompt.*", "cancel.*", "cancel-request.*"),
    *("tool.*", "permission.*", "modes.*", "options.*", "list.*", "load.*", "resume.*", "plan.*"),
    *("close.*", "delete.*", "extension.*", "json-rpc.*", "stdio.*", "http.*", "websocket.*"),
)
"""The cases with messages of every kind: all but MCP servers and floods, which take long."""

UNKNOWN_VERSION = 65535
"""The highest version that the schema allows: no agent supports it."""

NEXT_VERSION = 2


@RULES.case("initialize.answer", MUST, INITIALIZATION)
async def answer(stage: Stage) -> None:
    """`initialize` gets a protocol version and capabilities."""
    await stage.judge(first_response)


@RULES.case("initialize.same-version", MUST, VERSIONS)
async def same_version(stage: Stage) -> None:
    """A request for version 1 gets 1."""
    answer = await stage.need(first_answer)
    version = _version(answer)
    if version != 1:
        raise Violation(f"asked for version 1, the agent chose {version}", *answer.lines)


async def _introduction(stage: Stage, version: int) -> Call:
    """Send `initialize` with another version; raises Violation if it is refused."""
    async with stage.temporary(f"client of version {version}") as dialogue:
        answer = await introduce(dialogue, version=version)
    answer.require_result()
    return answer


@RULES.case("initialize.other-version", MUST, VERSIONS)
async def other_version(stage: Stage) -> None:
    """A request for an unsupported version gets the latest supported one."""
    spoken = _version(await stage.need(first_answer))
    answer = await _introduction(stage, UNKNOWN_VERSION)
    version = _version(answer)
    if version == UNKNOWN_VERSION:
        raise Violation(f"the agent claims to support version {UNKNOWN_VERSION}", *answer.lines)
    if version < spoken:
        why = f"the agent supports version {spoken}, but answers {version}"
        raise Violation(why, *answer.lines)
    next_one = await _introduction(stage, NEXT_VERSION)
    if _version(next_one) not in (NEXT_VERSION, version) or _version(next_one) > version:
        why = (
            f"the agent answers {_version(next_one)}, but the latest that it supports is {version}"
        )
        raise Violation(why, *next_one.lines)


def _version(answer: Call) -> int:
    """Return the version in an answer to `initialize`; raises NotObservable without one."""
    version = answer.result.get("protocolVersion")
    if not isinstance(version, int) or isinstance(version, bool):
        raise NotObservable("the answer to `initialize` has no version", *answer.lines)
    return version


async def plain_introduction(stage: Stage) -> Call:
    """Send `initialize` with nothing but a version."""
    async with stage.temporary("client without capabilities") as dialogue:
        seconds = 3 * stage.settings.timeout
        return await dialogue.ask("initialize", {"protocolVersion": 1}, seconds=seconds)


@RULES.case("initialize.few-members", MUST, CAPABLE)
async def few_members(stage: Stage) -> None:
    """A client can leave out its capabilities and its name."""
    await stage.need(first_response)
    (await stage.judge(plain_introduction)).fitting(InitializeResponse)


async def rich_introduction(stage: Stage) -> Call:
    """Send `initialize` with capabilities and members that are not known yet."""
    offers: Json = {
        "fs": {"readTextFile": False, "watch": {}, "_meta": {"check": 1}},
        "session": None,
        "holograms": {"size": 3},
        "_meta": {"check.example": {"holograms": True}},
    }
    params = {
        "protocolVersion": 1,
        "clientCapabilities": offers,
        "clientInfo": {"name": "acphold-check", "version": "1", "colour": "green"},
        "weather": "fine",
        "_meta": {"traceparent": "00-80e1afed08e019fc1110464cfa66635c-7a085853722dc6d2-01"},
    }
    async with stage.temporary("client with unknown capabilities") as dialogue:
        return await dialogue.ask("initialize", params, seconds=3 * stage.settings.timeout)


@RULES.case("initialize.new-members", MUST, CAPABLE)
async def new_members(stage: Stage) -> None:
    """Unknown capabilities and members are ignored."""
    await stage.need(first_response)
    (await stage.judge(rich_introduction)).fitting(InitializeResponse)


@RULES.case("initialize.again", EXPECTED, INITIALIZATION)
async def again(stage: Stage) -> None:
    """Two processes of the agent can run at once."""
    await stage.need(first_response)
    async with stage.temporary("beside another") as dialogue:
        (await introduce(dialogue)).fitting(InitializeResponse)


@RULES.case("initialize.info", SHOULD, WHO)
async def info(stage: Stage) -> None:
    """The agent reports its name and version."""
    await stage.need(first_response)
    answer = await stage.need(first_answer)
    agent_info = answer.result.get("agentInfo")
    if not isinstance(agent_info, dict):
        raise Violation("`agentInfo` is missing", *answer.lines)
    for name in ("name", "version"):
        if not isinstance(agent_info.get(name), str) or not agent_info[name]:
            raise Violation(f"`agentInfo.{name}` is missing or empty", *answer.lines)


# -- signing in -----------------------------------------------------------------------------


def _methods(record: Record) -> list[tuple[Exchange, list[Json]]]:
    return [
        (exchange, methods)
        for exchange in record.exchanges("client", "initialize")
        if (methods := objects(exchange.result.get("authMethods")))
    ]


@RULES.observer(
    "auth.unique-ids", MUST, ADVERTISED, "the agent advertises no authentication methods"
)
def unique_ids(record: Record, witness: Witness) -> None:
    """Each authentication method has a unique id."""
    for answer, methods in _methods(record):
        id = twice(str(it.get("id")) for it in methods)
        witness.check(id is None, f"several methods have the id {id!r}", *answer.lines)


@RULES.observer(
    "auth.terminal-offered",
    MUST,
    RuleSource(SIGN_IN, "Authentication method types"),
    "the agent advertises no authentication methods",
)
def terminal_offered(record: Record, witness: Witness) -> None:
    """Only clients that offer terminal sign-in get `terminal` methods."""
    if (record.offers.get("auth") or {}).get("terminal"):
        return
    for answer, methods in _methods(record):
        is_without = not any(method.get("type") == "terminal" for method in methods)
        witness.check(
            is_without,
            "a client that does not offer terminal sign-in got a `terminal` method",
            *answer.lines,
        )


@RULES.observer(
    "auth.terminal-arguments",
    SHOULD,
    RuleSource(SIGN_IN, "Terminal authentication"),
    "the agent advertises no method of type `terminal`",
)
def terminal_arguments(record: Record, witness: Witness) -> None:
    """A method of type `terminal` has arguments or variables that start a sign-in."""
    for answer, methods in _methods(record):
        for method in methods:
            if method.get("type") == "terminal":
                is_begun = method.get("args") or method.get("env")
                witness.check(
                    is_begun,
                    "the method has neither `args` nor `env`, so it would start the agent itself",
                    *answer.lines,
                )


@RULES.observer(
    "auth.methods-for-sign-in",
    EXPECTED,
    RuleSource(SIGN_IN, "Protocol-driven authentication"),
    "no request was answered with `auth_required`",
)
def methods_for_sign_in(record: Record, witness: Witness) -> None:
    """An agent that requires a sign-in advertises a method."""
    for exchange in record.exchanges("client"):
        if exchange.error.get("code") == AUTH_REQUIRED:
            why = "the agent requires a sign-in, but `authMethods` is empty"
            witness.check(_methods(record), why, *exchange.lines)


@RULES.case("auth.unknown-method", EXPECTED, RuleSource(SIGN_IN, "Protocol-driven authentication"))
async def unknown_method(stage: Stage) -> None:
    """`authenticate` with an unadvertised method is refused."""
    if not (await stage.hello()).auth_methods:
        raise NotObservable("the agent advertises no authentication methods")
    dialogue = await stage.main()
    answer = await dialogue.ask("authenticate", {"methodId": "check-no-such-method"})
    answer.require_error("the agent accepted an unknown authentication method")


@RULES.case("auth.signed-in", MUST, RuleSource(SIGN_IN, "Protocol-driven authentication"))
async def session_after_sign_in(stage: Stage) -> None:
    """After a successful sign-in, sessions can be created."""
    if stage.settings.sign_in is None:
        raise NotObservable("the check did not sign in; name a method with --sign-in METHOD")
    dialogue = await stage.connect("sign-in")
    (await introduce(dialogue)).require_result()
    signed = await dialogue.ask("authenticate", {"methodId": stage.settings.sign_in})
    signed.require_result()
    made = await dialogue.ask("session/new", stage.params())
    if made.code == AUTH_REQUIRED:
        raise Violation(
            "`session/new` still requires a sign-in after a successful one",
            *signed.lines,
            *made.lines,
        )


@RULES.case("auth.logout", MUST, RuleSource(SIGN_IN, "Logging Out"), "logout", destructive=True)
async def logout(stage: Stage) -> None:
    """`logout` has an empty result; sessions are refused after it only for lack of a sign-in."""
    dialogue = await stage.meet("logout")
    answer = await dialogue.ask("logout", {})
    made = None if answer.is_refused else await dialogue.ask("session/new", stage.params())
    answer.require_result()
    if not isinstance(answer.result or {}, dict):
        raise Violation("the result is not an object", *answer.lines)
    if made is not None and made.code not in (None, AUTH_REQUIRED):
        raise Violation(
            f"after the logout, a session was refused with {made.code}, not with {AUTH_REQUIRED}",
            *answer.lines,
            *made.lines,
        )


# -- session/new ----------------------------------------------------------------------------

SETUP = "Session Setup"
CREATING = RuleSource(SETUP, "Creating a Session")
SESSION_ID = RuleSource(SETUP, "Session ID")
FOLDER = RuleSource(SETUP, "Working Directory")
ROOTS = RuleSource(SETUP, "Additional Workspace Roots")


async def plain_session(stage: Stage) -> CheckedSession:
    """Make a new session in the main process."""
    return await stage.new_session(await stage.main())


async def second_session(stage: Stage) -> CheckedSession:
    """Make another one, in another folder."""
    first = await stage.need(plain_session)
    second = await stage.new_session(await stage.main(), cwd=stage.new_folder("beside"))
    if first.id == second.id:
        lines = (*first.answer.lines, *second.answer.lines)
        raise Violation("two sessions have the same id", *lines)
    return second


@RULES.case("new.answer", MUST, CREATING)
async def new_answer(stage: Stage) -> None:
    """`session/new` gets a session's id."""
    session = await stage.judge(plain_session)
    if not session.id:
        raise Violation("the session's id is empty", *session.answer.lines)


@RULES.case("new.unique-ids", MUST, SESSION_ID)
async def unique_session_ids(stage: Stage) -> None:
    """Each session has a unique id."""
    await stage.judge(second_session)


@RULES.also("new.unique-ids", over=("new.*",))
@one_by_one
def unique_throughout(record: Record, witness: Witness) -> None:
    made: dict[object, Exchange] = {}
    for exchange in record.exchanges("client", "session/new"):
        id = exchange.result.get("sessionId")
        if isinstance(id, str) and id in made:
            witness.accuse("two sessions have the same id", *made[id].lines, *exchange.lines)
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
    """No two of the agent's processes use the same session id."""
    first = await stage.need(plain_session)
    second = await stage.need(second_session)
    other = await stage.need(session_of_another_process)
    if other.id in (first.id, second.id):
        raise Violation(
            "a session of another process has the same id", *first.answer.lines, *other.answer.lines
        )


@RULES.also("new.unique-over-restarts", over=("new.*",))
def unique_over_all(records: Sequence[Record], witness: Witness) -> None:
    made: dict[object, tuple[Record, Exchange]] = {}
    for record in records:
        for exchange in record.exchanges("client", "session/new"):
            id = exchange.result.get("sessionId")
            first, earlier = made.setdefault(id, (record, exchange))
            if isinstance(id, str) and first is not record:
                why = "a session of another process has the same id"
                witness.accuse(why, *earlier.lines, *exchange.lines)


@RULES.case("new.two-at-once", EXPECTED, CREATING)
async def two_at_once(stage: Stage) -> None:
    """Two sessions can be requested at the same time."""
    await stage.need(plain_session)
    dialogue = await stage.main()
    calls = [dialogue.begin("session/new", stage.params()) for _ in range(2)]
    for call in calls:
        (await dialogue.answer_to(call)).require_result()


@RULES.case("new.new-members", MUST, RuleSource("Extensibility", "The `_meta` Field"))
async def new_members_of_new(stage: Stage) -> None:
    """Unknown members of `session/new`, and `_meta`, are ignored."""
    await stage.need(plain_session)
    meta = {"traceparent": "00-80e1afed08e019fc1110464cfa66635c-7a085853722dc6d2-01"}
    await stage.new_session(await stage.main(), _meta=meta, weather="fine")


@RULES.case("new.directories", MUST, ROOTS, "directories")
async def directories(stage: Stage) -> None:
    """Additional folders are accepted if the agent advertises them."""
    await stage.need(plain_session)
    more = stage.new_folder("more")
    await stage.new_session(await stage.main(), additionalDirectories=[more])


@RULES.case("new.odd-folder", EXPECTED, FOLDER)
async def odd_folder(stage: Stage) -> None:
    """A folder's name can have spaces, quotes and non-ASCII letters."""
    await stage.need(plain_session)
    folder = stage.new_folder("it's ünïcode \U0001f41d")
    await stage.new_session(await stage.main(), cwd=folder)


RELATIVE = "check-no-such-folder"


@RULES.case("new.relative-folder", EXPECTED, FOLDER)
async def relative_folder(stage: Stage) -> None:
    """A relative working directory is refused."""
    await stage.need(plain_session)
    new_answer = await (await stage.main()).ask("session/new", stage.params(cwd=RELATIVE))
    new_answer.require_error("the agent accepted a relative path")


@RULES.observer(
    "session.known-id", MUST, SESSION_ID, "the agent sent nothing about a session", over=MESSAGES
)
def only_known_ids(record: Record, witness: Witness) -> None:
    """Messages about sessions have ids that the client knows."""
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
            id = line.params["sessionId"]
            is_known = isinstance(id, str) and id in known
            witness.check(is_known, f"the client has no session {id!r}", line)


@RULES.observer(
    "session.not-early",
    EXPECTED,
    SESSION_ID,
    "the agent sent nothing about a session",
    over=MESSAGES,
)
def not_early(record: Record, witness: Witness) -> None:
    """Nothing is sent about a session before the client has its id."""
    made: dict[object, int] = {}
    for exchange in record.exchanges("client", "session/new"):
        if exchange.answer is not None:
            made.setdefault(exchange.result.get("sessionId"), exchange.answer.number)
    for line in record.by("agent"):
        if line.method is not None and line.session_id is not None and line.session_id in made:
            witness.check(
                line.number >= made[line.session_id],
                "the client received this session's id later",
                line,
            )


@RULES.case("session.unknown-id", EXPECTED, SESSION_ID)
async def unknown_id(stage: Stage) -> None:
    """A prompt for an unknown session gets an error."""
    await stage.need(plain_session)
    dialogue = await stage.main()
    params = {"sessionId": "check-no-such-session", "prompt": [{"type": "text", "text": "Hello"}]}
    new_answer = await dialogue.ask("session/prompt", params, seconds=2 * dialogue.timeout)
    new_answer.require_error("the prompt for an unknown session was answered with a result")
