"""Every member of every method, by scopes, relation to the session, and whether it is live.

Each member of a request has a mark in its value. What reaches a scripted agent is then seen by the
marks in all that it is sent. The answer is the one that the table and the relation promise: see
`refusal_of`. The methods and their members are those of the tables of the schema
and of the connection: one that no row here knows fails `test_every_method_and_member_has_a_row`.
"""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Union, get_args, get_origin

import pytest
from msgspec import Raw, Struct
from msgspec.structs import fields

from acp_wire import schema
from acp_wire.errors import METHOD_NOT_FOUND, RESOURCE_NOT_FOUND
from acp_wire.schema.methods import AGENT_METHODS, REQUESTS, UNSTABLE_METHODS
from acp_wire.schema.salvage import field_types, split
from acphold.conversation.history.raw_update import kinds_to_withhold
from acphold.errors import FORBIDDEN, InvalidParamsError
from acphold.journal.access import SCOPES, Scope, Share
from acphold.journal.rows import NewSession, RowChange
from acphold.live.agents import air
from acphold.live.agents.capabilities import QUEUE_METHOD
from acphold.live.agents.extensions import (
    DISABLE_PROVIDER,
    FORK_METHOD,
    MARK_METHOD,
    SET_PROVIDER,
    STEERING,
    TREE_METHOD,
)
from acphold.live.reading.one_question import CHANGED, PRESENCE, SIGNED_IN, STOP
from acphold.live.server.field_rights import ANSWERS, restrict, restrict_answer
from acphold.live.server.methods import METHODS as TABLE, Asked, method_of
from acphold.live.server.positions import Sent, with_sent
from acphold.live.server.principals import Principal
from tests.editor import Refused
from tests.hub.shared import Onlooker, Shared, shared
from tests.journal.conversations import append
from tests.web.test_journal_pages import said

DEADLINE: Final = 30.0

VENDOR: Final = "_vendor/do"

# -- rows: members ------------------------------------------------------------------------------

BLOCK: Final = {
    "type": "text",
    "text": "mark:words",
    "_meta": {"vendor": "mark:block"},
    "unknownMember": "mark:block",
}

MEMBERS: Final[dict[str, Any]] = {
    "additionalDirectories": ["/mark:folder"],
    "archived": None,
    "change": {"do": "add", "prompt": [BLOCK], "unknownMember": "mark:unknown"},
    "configId": "loud",
    "cursor": None,
    "cwd": "/",
    "mcpServers": [{"name": "mark:server", "command": "/bin/true", "args": [], "env": []}],
    "modeId": "calm",
    "prompt": [BLOCK],
    "read": "",
    "sessionId": None,  # the session of the case
    "title": "t",
    "type": "boolean",
    "value": True,
    # of `_acphold/fork`, of which nothing is for the agent
    "agent": None,
    "at": None,
    "before": False,
    "files": False,
    "include": False,
    # of `_acphold/worktree`, of which nothing is for the agent
    "do": "",
    "seen": "",
    # of `_acphold/mark`, of which nothing is for the agent
    "pinned": True,
    "tags": None,
    # of methods that are not about sessions
    "clientCapabilities": {"unknownMember": "mark:unknown", "_meta": {"vendor": "mark:vendor"}},
    "clientInfo": {"name": "c", "version": "1", "unknownMember": "mark:unknown"},
    "methodId": "m",
    "sessionIds": None,
    "subscriptionId": None,
    "protocolVersion": 1,
}
"""A value of each member that a method has by our tables."""

BESIDE: Final[dict[str, Any]] = {
    "unknownMember": "mark:unknown",
    "_meta": {"vendor": "mark:vendor", "traceparent": "mark:trace"},
}
"""Members that every request may have."""

FREE: Final = frozenset({"mark:words", "mark:trace"})
"""The marks that need no scope but that of the method."""

# -- rows: methods ------------------------------------------------------------------------------

UP: Final = {"mark:folder", "mark:server", "mark:vendor", "mark:unknown", "mark:trace"}
SAID: Final = {"mark:vendor", "mark:unknown", "mark:trace"}
WORDS: Final = {*SAID, "mark:words", "mark:block"}

METHODS: Final[dict[str, tuple[Scope, set[str]]]] = {
    "session/new": ("manage", UP),
    "session/load": ("watch", UP),
    "session/resume": ("watch", UP),
    "session/fork": ("manage", UP),
    "session/list": ("watch", set()),
    "session/prompt": ("prompt", WORDS),
    "session/cancel": ("prompt", set()),
    "session/set_mode": ("answer", SAID),
    "session/set_config_option": ("answer", SAID),
    STEERING: ("prompt", WORDS),
    QUEUE_METHOD: ("prompt", {"mark:words", "mark:block"}),
    FORK_METHOD: ("manage", set()),
    TREE_METHOD: ("manage", set()),
    MARK_METHOD: ("watch", set()),
    **dict.fromkeys((*air.NAMING, *air.ARCHIVING, *air.UNARCHIVING), ("manage", set())),
    air.STATUS: ("manage", set()),
    "session/close": ("prompt", set()),
    "session/delete": ("manage", set()),
    VENDOR: ("manage", {*SAID, "mark:words"}),
    **dict.fromkeys((air.BATCH_GET, air.SUBSCRIBE, air.UNSUBSCRIBE, PRESENCE), ("watch", set())),
    **dict.fromkeys((CHANGED, STOP, SIGNED_IN), ("manage", set())),
    # last: after these, agents have to open all sessions anew
    SET_PROVIDER: ("manage", SAID),
    DISABLE_PROVIDER: ("manage", SAID),
    "authenticate": ("manage", SAID),
    "logout": ("manage", SAID),
}
"""The scope that each method needs, and the marks that reach the agent from whoever has `manage`
and `prompt`, if the session is live."""

NEVER: Final = {STOP, SIGNED_IN}
"""They are for this user, and for processes of ours."""

NOT_IN_SESSIONS: Final = {
    "session/new",
    "session/list",
    SET_PROVIDER,
    DISABLE_PROVIDER,
    "authenticate",
    "logout",
    PRESENCE,
    SIGNED_IN,
    air.BATCH_GET,
    air.SUBSCRIBE,
    air.UNSUBSCRIBE,
}

SESSIONS: Final = {
    method: f"{'any' if method in NOT_IN_SESSIONS else method}-session".replace("/", "-")
    for method in METHODS
}
"""The session of each method: it may be gone afterwards."""

EXTRA: Final[dict[str, dict[str, Any]]] = {
    air.UNSUBSCRIBE: {"subscriptionId": "x"},
    VENDOR: {"member": "mark:words"},
}


def params_of(method: str, session_id: str) -> dict[str, Any]:
    """All members of this method."""
    names = [it.encode_name for it in fields(TABLE[method].params)] if method in TABLE else []
    found = {name: MEMBERS[name] for name in names if name != "_meta"}
    if method not in NOT_IN_SESSIONS:
        found["sessionId"] = session_id
    if method == air.BATCH_GET:
        found["sessionIds"] = [session_id, CAROLS]
    given = {name: value for name, value in found.items() if value is not None}
    return {**given, **EXTRA.get(method, {}), **BESIDE}


def test_every_method_and_member_has_a_row() -> None:
    assert {*AGENT_METHODS, *UNSTABLE_METHODS} <= TABLE.keys()
    assert TABLE.keys() - {"initialize"} == METHODS.keys() - {VENDOR}
    members = {it.encode_name for row in TABLE.values() for it in fields(row.params)}
    assert members - {"_meta"} == MEMBERS.keys()


# -- the matrix ---------------------------------------------------------------------------------

SCOPE_SETS: Final[tuple[tuple[Scope, ...], ...]] = (
    (),
    ("watch",),
    ("watch", "prompt"),
    ("watch", "answer"),
    ("watch", "prompt", "answer"),
    ("prompt", "answer"),
    ("watch", "manage"),
    ("watch", "answer", "manage", "files", "rules"),
    ("watch", "prompt", "answer", "manage", "files", "rules"),
)

SHARED: Final[Mapping[str, frozenset[str]]] = {
    "shared to read": frozenset({"watch"}),
    "shared to continue": frozenset({"watch", "prompt", "answer"}),
    "other tenant": frozenset(),
}

RELATIONS: Final = ("own", "one session's token", *SHARED)

AIR: Final = "AIR"

SAYS: Final[Mapping[str, dict[str, Any]]] = {
    "nothing": {},
    AIR: {"jetbrains": {"air": {"version": 1, "capabilities": [air.INDEX]}}},
    "lies": {
        "jetbrains": {"air": {"version": 0, "capabilities": [air.INDEX]}},
        "acphold/line": True,
        "acphold/tenant": "alice",
        "acphold/scopes": [*SCOPES],
        "acphold/guest": False,
    },
}
"""What the client says of itself, in the `_meta` of its capabilities. Lies count as nothing: each
of these two is told about one kind of sessions."""

SECRET: Final = "of alice alone"
"""A part of the title of each session."""

CAROLS: Final = "carols-session"
"""A session that nobody here may know of."""


def principal(relation: str, scopes: tuple[Scope, ...], session_id: str) -> Principal:
    may = frozenset(scopes)
    if relation == "one session's token":
        return Principal(name="token", session_id=session_id, scopes=may, is_here=False)
    tenant = "alice" if relation == "own" else "bob"
    return Principal(name=tenant, tenant=tenant, scopes=may, is_here=False)


async def begin(house: Shared, session_id: str, relation: str, tenant: str = "alice") -> None:
    """A session of a tenant's with one turn, which is not live."""
    lease = await house.journal.create(NewSession(session_id, "puppet", "/", tenant=tenant))
    await append(house.journal, lease, said(1))
    title = f"{session_id} of {tenant} alone"
    await house.journal.change(lease, RowChange(prompted=True, given=title))
    await house.journal.release(lease)
    if relation.startswith("shared"):
        share = Share(session_id, "bob", relation == "shared to continue")
        await house.journal.access.keep_share(share)


def marks(messages: list[Any]) -> set[str]:
    """The marks in these messages."""

    def found(value: Any) -> Iterator[str]:
        match value:
            case dict():
                for each in value.values():
                    yield from found(each)
            case list() | tuple():
                for each in value:
                    yield from found(each)
            case str():
                if "mark:" in value:
                    yield value[value.index("mark:") :]

    return set(found(messages))


async def ask(house: Shared, client: Onlooker, method: str, params: dict[str, Any]) -> Any:
    """Send it, and end the turn that it begins; its result, or the code of its refusal."""
    if method == "session/cancel":
        client.tell(method, params)
        await client.refused("session/load", {})  # handled once this is answered
        return None
    answered = client.begin(method, params)
    turn = (
        asyncio.create_task(end_turn(house)) if method in ("session/prompt", QUEUE_METHOD) else None
    )
    await asyncio.wait([answered])
    refusal = answered.exception()
    if turn is not None:
        if refusal is None:
            await turn
        turn.cancel()
    if refusal is None:
        return answered.result()
    assert isinstance(refusal, Refused)
    return refusal.code


async def end_turn(house: Shared) -> None:
    """Wait for a turn at the agent, and end it."""
    await house.agent.until_at_work()
    await house.agent.end(house.agent.at_work[0])


STATES: Final = (("nothing", False), (AIR, False), (AIR, True), ("lies", True))
"""What a client says of itself, and whether the sessions are live."""


@pytest.mark.parametrize("is_quick", [True, pytest.param(False, marks=pytest.mark.slow)])
@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize(("says", "is_live"), STATES)
async def test_what_a_client_may_not_say_reaches_no_agent_and_starts_and_tells_nothing(
    tmp_path: Path, says: str, relation: str, is_live: bool, is_quick: bool
) -> None:
    begun = tmp_path / "begun.db"
    async with asyncio.timeout(DEADLINE), shared(begun) as house:
        for session_id in {*SESSIONS.values()}:
            await begin(house, session_id, relation)
        await begin(house, CAROLS, "own", "carol")
    place_in = RELATIONS.index(relation) + STATES.index((says, is_live))
    for number, scopes in enumerate(SCOPE_SETS):
        # A third is quick: each method with any two of relation, state and scopes.
        if is_quick != ((number + place_in) % 3 == 0):
            continue
        place = shutil.copyfile(begun, tmp_path / f"{number}.db")
        async with asyncio.timeout(DEADLINE), shared(place) as house:
            house.unstable = True
            agent = house.agent
            agent.can("load", "resume", "additionalDirectories", "list")
            for method in (*METHODS, "session/load"):
                agent.results[method] = b"{}"
            agent.results["session/set_config_option"] = b'{"configOptions":[]}'
            owner = house.stranger(Principal(name="alice", tenant="alice"))
            carol = house.stranger(Principal(name="carol", tenant="carol"))
            if is_live:
                await carol.introduce(None, {})
                await carol.load(CAROLS)
                await owner.introduce(None, {})
                for session_id in {*SESSIONS.values()}:
                    await owner.load(session_id)
            client: Onlooker | None = None
            for method, session_id in SESSIONS.items():
                if client is None or relation == "one session's token":
                    client = house.stranger(principal(relation, scopes, session_id))
                    await client.introduce(None, {"_meta": SAYS[says]})
                case = Case(method, session_id, relation, scopes, says, is_live)
                await one_case(house, client, case)
                client.connection.terms.clear()  # no client objects to what the next one chooses


class Case(Struct, frozen=True):
    """One request in a session, of a client with these scopes that says this of itself."""

    method: str
    session_id: str
    relation: str
    scopes: tuple[Scope, ...]
    says: str
    is_live: bool

    @property
    def may(self) -> frozenset[str]:
        """The scopes of the client in this session."""
        return frozenset(self.scopes) & SHARED.get(self.relation, frozenset(SCOPES))


def refusal_of(case: Case) -> int | None:
    """The code with which the table and the relation refuse this request; None if it has to be
    answered."""
    row, is_about_it = method_of(case.method), case.method not in NOT_IN_SESSIONS
    params = json.dumps(params_of(case.method, case.session_id)).encode()
    needs = {*Asked.read(case.method, params).needs}
    may = case.may if is_about_it else frozenset(case.scopes)
    if not needs <= {*case.scopes}:
        return FORBIDDEN
    if not may and is_about_it:
        return RESOURCE_NOT_FOUND  # as if there were none
    if not needs <= may:
        return FORBIDDEN
    if case.method in NEVER or (row.by == "index" and case.says != AIR):
        return METHOD_NOT_FOUND
    is_for_open = row.by in ("prompt", "session") and case.method != "session/close"
    is_for_agent = row.by in ("agent", "entrance") or is_for_open
    if "watch" not in may and (is_for_open or (is_for_agent and not case.is_live)):
        return RESOURCE_NOT_FOUND  # the client could not open it
    if "prompt" not in may and is_for_agent and not case.is_live:
        return FORBIDDEN  # it would start the agent
    if case.method == MARK_METHOD and case.relation == "one session's token":
        return InvalidParamsError.code  # nobody in particular has no pins
    return None


def sessions_in(messages: list[Any]) -> set[str]:
    """The sessions of alice and carol of which these messages have something."""
    text = json.dumps(messages)
    return {it for it in (*SESSIONS.values(), CAROLS) if f'"{it}"' in text or f'"{it} of ' in text}


async def one_case(house: Shared, client: Onlooker, case: Case) -> None:
    """Have one client send one request with everything; look at what the agent got of it, and at
    what the client was told."""
    agent, method, is_live = house.agent, case.method, case.is_live
    before, heard = len(agent.asked), len(client.messages)
    scopes, may = frozenset(case.scopes), case.may
    if method not in NOT_IN_SESSIONS and not REQUESTS[method].opens:
        with suppress(Refused):
            await client.load(case.session_id)
    answer = await ask(house, client, method, params_of(method, case.session_id))
    if method != "session/cancel":
        assert (answer if isinstance(answer, int) else None) == refusal_of(case), case
    asked = agent.asked[before:]
    got = marks([params for _, params in asked])
    if "watch" not in may:  # a new session, or a title, needs no right to see this one
        assert SECRET not in json.dumps(client.messages[heard:]), case
    told = sessions_in([it for it in client.messages[heard:] if "error" not in it])
    assert CAROLS not in told, case  # a refusal names the session that was asked about
    if "watch" not in may:
        assert told == set(), case
    elif case.relation == "one session's token":
        assert told <= {case.session_id}, case
    if method in ("session/list", air.BATCH_GET) and refusal_of(case) is None:
        assert (case.session_id in told) == ("watch" in may), case
    needed, whole = METHODS[method]
    in_session = scopes if method in NOT_IN_SESSIONS else may
    if needed not in in_session:
        assert got == set(), case
    if "prompt" not in in_session:
        assert is_live or not agent.alive or "prompt" in scopes, case
        assert not [it for it, _ in asked if it == "session/prompt" or REQUESTS[it].opens], case
        if not is_live:
            assert [it for it, _ in asked if it != "session/list"] == [], case
    if "manage" not in in_session:
        assert got <= FREE, case
        # It joins: the agent is not asked to open the session anew, and keeps its MCP servers.
        assert not is_live or not [it for it, _ in asked if REQUESTS[it].opens], case
    elif {"watch", "prompt", needed} <= in_session and method != "session/fork":
        assert got == whole, case


@pytest.mark.parametrize("agent", ["puppet", "another", None])
async def test_the_guest_of_one_session_starts_only_the_agent_of_that_session(
    tmp_path: Path, agent: str | None
) -> None:
    async with asyncio.timeout(DEADLINE), shared(tmp_path / "journal.db") as house:
        if agent is not None:
            await house.journal.release(await house.journal.create(NewSession("s", agent, "/")))
        guest = house.stranger(principal("one session's token", ("watch", "prompt"), "s"))
        await guest.introduce(None, {})
        assert house.agent.alive == (agent == "puppet")


# -- within members -----------------------------------------------------------------------------

UNKNOWN: Final = {"unknownMember": "mark:unknown"}
META: Final = {"vendor": "mark:vendor", "traceparent": "00", "acphold/x": 1}


def samples(hint: object) -> Iterator[Any]:
    """Values of a type, of each variant one, in which every object has members of nobody's."""
    kind, otherwise = split(hint)
    variants = [*(get_args(kind) if get_origin(kind) is Union else (kind,)), otherwise.untagged]
    for it in variants:
        if it is None:
            continue
        if isinstance(it, type) and issubclass(it, Struct):
            yield from objects(it)
        elif get_origin(it) in (tuple, list):
            yield [*samples(get_args(it)[0])]
        elif get_origin(it) is dict:
            yield {"name": "text"}
        elif it in (int, float):
            yield 1
        elif it is bool:
            yield True
        elif it is not Raw:
            yield "text"


def objects(kind: type[Struct]) -> Iterator[dict[str, Any]]:
    config = kind.__struct_config__
    first: dict[str, Any] = {}
    others: list[dict[str, Any]] = []
    for info, hint in field_types(kind):
        if info.encode_name != "_meta" and (found := [*samples(hint)]):
            first[info.encode_name] = found[0]
            others += [{info.encode_name: it} for it in found[1:]]
    if config.tag_field is not None:
        first[config.tag_field] = config.tag
    for other in ({}, *others):
        yield {**first, **other, **UNKNOWN, "_meta": dict(META)}


def known_of(value: Any) -> Any:
    """The same without members of nobody's."""
    match value:
        case dict():
            found = {name: known_of(it) for name, it in value.items() if name not in UNKNOWN}
            found.pop("vendor", None)
            return found
        case list():
            return [known_of(it) for it in value]
    return value


@pytest.mark.parametrize("method", [*TABLE, *(f"answer to {it}" for it in ANSWERS)])
def test_members_within_members_are_left_out_and_those_of_the_protocol_stay(method: str) -> None:
    is_answer = method.startswith("answer to ")
    name = method.removeprefix("answer to ")
    kind = ANSWERS[name] if is_answer else TABLE[name].params
    pare = restrict_answer if is_answer else restrict
    for sample in objects(kind):
        raw = json.dumps(sample).encode()
        assert pare(name, raw, frozenset({"manage"})) == (raw, ())
        pared, left_out = pare(name, raw, frozenset(SCOPES) - {"manage"})
        assert marks([json.loads(pared)]) == set()
        assert json.loads(pared) == known_of(sample)
        assert {"unknownMember", "_meta.vendor"} <= {*left_out}


@pytest.mark.parametrize(
    "params",
    [
        {"sessionId": "s", "prompt": [{}] * 50_001},
        {"sessionId": "s", "prompt": [{"type": "text", "text": "", "x": 1}] * 20_000},
        {"sessionId": "s", **{f"m{number}": 1 for number in range(50_001)}},
        {"sessionId": "s", "_meta": {f"m{number}": 1 for number in range(50_001)}},
    ],
    ids=["blocks", "members of blocks", "members", "meta"],
)
def test_a_message_of_very_many_values_is_refused_as_it_would_hold_up_everybody(
    params: dict[str, Any],
) -> None:
    with pytest.raises(InvalidParamsError, match="more than 50,000 values; send it in parts"):
        restrict("session/prompt", json.dumps(params).encode(), frozenset({"watch", "prompt"}))


def test_no_repeated_name_or_odd_spelling_hides_a_member() -> None:
    guest = frozenset(SCOPES) - {"manage"}
    for raw in (
        b'{"sessionId":"s","modeId":"m","_meta":{"vendor":1},"_meta":{}}',
        b'{"sessionId":"s","modeId":"m","\\u005fmeta":{"vendor":1}}',
        b'{"sessionId":"s","modeId":"m","_meta":{"v\\u0065ndor":1}}',
        b'{"sessionId":"s","modeId":"m","_meta":[{"vendor":1}]}',
        b'{"sessionId":"s","modeId":"m","_meta":"vendor"}',
    ):
        pared, _ = restrict("session/set_mode", raw, guest)
        assert pared == b'{"sessionId":"s","modeId":"m"}'
    for raw in (
        b'{"sessionId":"s","modeId":{"vendor":1}}',
        b'{"sessionId":"s","modeId":["vendor"]}',
    ):
        pared, left_out = restrict("session/set_mode", raw, guest)
        assert (pared, left_out) == (b'{"sessionId":"s","modeId":null}', ("modeId",))
    resource = b'"resource":{"uri":"u","text":"t","_meta":{"vendor":1}},"vendor":1'
    raw = b'{"sessionId":"s","prompt":[{"type":"re\\u0073ource",%b}]}' % resource
    pared, left_out = restrict("session/prompt", raw, guest)
    assert json.loads(pared)["prompt"] == [
        {"type": "resource", "resource": {"uri": "u", "text": "t"}}
    ]
    assert left_out == ("prompt[0].resource._meta.vendor", "prompt[0].vendor")


def test_the_introduction_of_a_client_that_may_not_manage_has_what_the_protocol_knows() -> None:
    asked = {
        "protocolVersion": 1,
        "clientCapabilities": {
            "fs": {"readTextFile": True, "vendor": 1},
            "vendor": {},
            "subagents": {"vendor": 1},
            "session": {"notices": {}, "vendor": {}},
            "_meta": {
                "terminal_output": True,
                "acphold/queue": True,
                "jetbrains": {"air": {"capabilities": {"nativeSubagentSessions": True}}, "x": 1},
                "opencode/child-session-updates": True,
                "vendor": 1,
            },
        },
        "clientInfo": {"name": "c", "version": "1"},
    }
    raw = schema.encode(asked)
    pared, left_out = restrict("initialize", raw, frozenset({"watch", "prompt"}))
    assert json.loads(pared)["clientCapabilities"] == {
        "fs": {"readTextFile": True},
        "subagents": {},
        "session": {"notices": {}},
        "_meta": {
            "terminal_output": True,
            "acphold/queue": True,
            "jetbrains": {"air": {"capabilities": {"nativeSubagentSessions": True}}},
            "opencode/child-session-updates": True,
        },
    }
    assert len(left_out) == 6
    was, now = (json.loads(it)["clientCapabilities"] for it in (raw, pared))
    assert kinds_to_withhold(schema.encode(was)) == kinds_to_withhold(schema.encode(now))


async def test_a_guest_takes_over_no_turn_of_the_owner_by_the_id_of_its_prompt(
    tmp_path: Path,
) -> None:
    async with asyncio.timeout(DEADLINE), shared(tmp_path / "journal.db") as house:
        every: tuple[Scope, ...] = ("watch", "prompt", "answer", "manage")
        owner = house.stranger(principal("own", every, ""))
        await owner.introduce(None, {"_meta": {"acphold/positions": True}})
        session = await owner.new()
        await house.journal.access.keep_share(Share(session, "bob", True))
        guest = house.stranger(principal("shared to continue", every, ""))
        await guest.introduce(None, {"_meta": {"acphold/positions": True}})
        await guest.load(session)
        words = {"sessionId": session, "prompt": [{"type": "text", "text": "hello"}]}
        first = with_sent(json.dumps(words).encode(), Sent("one"))
        again = with_sent(json.dumps(words).encode(), Sent("one", 1))
        turn = owner.begin("session/prompt", json.loads(first))
        await house.agent.prompted(session)
        refusal = await guest.refused("session/prompt", json.loads(again))
        assert refusal.code == -32602
        await house.agent.end(session)
        assert (await turn)["stopReason"] == "end_turn"
