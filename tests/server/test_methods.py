"""The table of methods: who answers, whatever the client says of itself."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, Final

import pytest

from acphold.journal.access import Scope
from acphold.live.agents import air
from acphold.live.reading.one_question import SIGNED_IN
from acphold.live.server import bounds
from acphold.live.server.methods import METHODS
from acphold.live.server.principals import THIS_USER, Principal, Visitor
from tests.editor import DEADLINE, open_params
from tests.hub.shared import shared
from tests.server.test_session_index import INDEX, Doorman, changes, subscribe

BATCH: Final = {"sessionIds": ["theirs"]}

SAID_OF_ITSELF: Final[dict[str, Any]] = {
    "nothing": {},
    "AIR without an index": {"jetbrains": {"air": {"version": 1, "capabilities": ["diffPatch"]}}},
    "lies": {"jetbrains": {"air": {"version": 0, "capabilities": ["sessionIndex"]}}},
}


def reader(*scopes: Scope, tenant: str = "alice") -> Principal:
    return Principal(name=tenant, tenant=tenant, scopes=frozenset(scopes), is_here=False)


WHO: Final = {
    "this user": THIS_USER,
    "a watcher": reader("watch"),
    "everything": reader("watch", "prompt", "answer", "manage"),
}


@pytest.mark.parametrize("meta", SAID_OF_ITSELF.values(), ids=SAID_OF_ITSELF.keys())
@pytest.mark.parametrize("who", WHO.values(), ids=WHO.keys())
async def test_what_acphold_answers_for_one_client_goes_to_the_agent_for_none(
    tmp_path: Path, who: Principal, meta: dict[str, Any]
) -> None:
    ours = [it.name for it in METHODS.values() if it.by not in ("agent", "entrance")]
    async with asyncio.timeout(DEADLINE), shared(tmp_path / "journal.db") as house:
        house.agent.can("load", "list")
        house.agent.index_methods = frozenset({air.INDEX})
        house.agent.results |= dict.fromkeys(ours, b'{"sessions":[{"title":"of another person"}]}')
        introduced = house.stranger(WHO["everything"])
        await introduced.introduce(None, {"_meta": INDEX})  # now the agent knows an AIR
        session = await introduced.new()
        client = house.stranger(who)
        await client.introduce(None, {"_meta": meta})
        before = len(house.agent.asked)
        for method, params in {
            air.BATCH_GET: BATCH,
            air.SUBSCRIBE: {"cwd": "/"},
            air.UNSUBSCRIBE: {"subscriptionId": "x"},
        }.items():
            assert (await client.refused(method, params)).code == -32601, method
        for method in ours:
            if method != "session/cancel":
                client.tell(method, {**BATCH, "sessionId": session, "cwd": "/"})
        await client.refused("session/load", {})  # they are handled once this is answered
        if "prompt" in who.scopes:
            assert (await client.refused("session/cancel", {"sessionId": session})).code == -32601
        assert house.agent.asked[before:] == []
        assert house.agent.told == []


async def test_a_client_that_may_only_watch_has_a_session_index(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "INDEX_LOOK_SECONDS", 0.05)
    async with asyncio.timeout(DEADLINE), shared(tmp_path / "journal.db") as house:
        owner = house.stranger(reader("watch", "prompt", "manage"))
        await owner.introduce(None, {"_meta": INDEX})
        first, second = await owner.new(), await owner.new()
        for session in (first, second):
            await house.turn(owner, session, "hello", "HELLO")
        await owner.call(air.ARCHIVE, {"sessionId": second})
        watcher = house.stranger(reader("watch"))
        await watcher.introduce(None, {"_meta": INDEX})
        wishes = {"_meta": {"jetbrains": {"air": {"list": {"archived": "archived", "limit": 1}}}}}
        assert [it["sessionId"] for it in await watcher.sessions(**wishes)] == [second]
        found = await watcher.call(air.BATCH_GET, {"sessionIds": [first, second]})
        assert [it["sessionId"] for it in found["sessions"]] == [first, second]
        subscription = await subscribe(watcher, "/")
        await house.turn(owner, first, "again", "AGAIN")
        await watcher.until(lambda: bool(changes(watcher, subscription)))
        assert await watcher.call(air.UNSUBSCRIBE, {"subscriptionId": subscription}) == {}


async def test_a_client_that_may_only_watch_lists_what_is_archived(tmp_path: Path) -> None:
    async with asyncio.timeout(DEADLINE), shared(tmp_path / "journal.db") as house:
        house.unstable = True
        owner = house.stranger(reader("watch", "prompt", "manage"))
        await owner.introduce(None, {})
        session = await owner.new()
        await house.turn(owner, session, "hello", "HELLO")
        await owner.call("session/archive", {"sessionId": session})
        watcher = house.stranger(reader("watch"))
        await watcher.introduce(None, {})
        assert await watcher.sessions() == []
        assert [it["sessionId"] for it in await watcher.sessions(archived="only")] == [session]


async def test_whoever_may_not_prompt_restarts_no_agent_by_saying_that_somebody_signed_in(
    tmp_path: Path,
) -> None:
    async with asyncio.timeout(DEADLINE), shared(tmp_path / "journal.db") as house:
        starts = []
        for scopes in (("watch", "manage"), ("watch", "manage", "prompt")):
            who = Principal(name="a", sees_all=True, scopes=frozenset(scopes), is_here=False)
            client = house.stranger(who)
            await client.introduce(None, {})
            before = house.agent.generation
            answered = client.begin(SIGNED_IN, {})
            await asyncio.wait([answered])
            starts.append(house.agent.generation - before)
            assert (answered.exception() is None) == ("prompt" in scopes)
        assert starts == [0, 1]


class Doorkeeper(Doorman):
    """Lets everybody in as bob, without a word."""

    async def tenant(self, visitor: Visitor) -> str | None:
        return "bob"


async def test_behind_a_door_this_user_has_the_sessions_of_whom_it_is_let_in_as(
    tmp_path: Path,
) -> None:
    async with asyncio.timeout(DEADLINE), shared(tmp_path / "journal.db") as house:
        owner = house.stranger(WHO["everything"])
        await owner.introduce(None, {})
        session = await owner.new()
        client = house.stranger(THIS_USER, door=Doorkeeper())
        await client.introduce(None, {})
        for _ in range(2):  # as it is let in, and once it is
            assert (await client.refused("session/load", open_params(session, "/"))).code == -32002
            await client.call("session/list", {})
