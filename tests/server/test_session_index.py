"""The session index of JetBrains AIR, in front of agents with and without one."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from acphold.errors import JournalUnavailableError, RemoteError
from acphold.journal.rows import RowChange
from acphold.live.agents import air
from acphold.live.agents.capabilities import introduction_for_agent
from acphold.live.agents.interface import Notified, Updates
from acphold.live.hub import bounds as hub_bounds
from acphold.live.hub.session_list import SessionList
from acphold.live.reading import one_question
from acphold.live.reading.one_question import CHANGED
from acphold.live.server import bounds, session_index
from acphold.live.server.principals import Principal, Visitor
from acphold.safety.snapshots.checkouts import in_main_work_tree, in_other_work_trees
from tests.editor import DEADLINE, open_params
from tests.hub.shared import Onlooker, Shared, shared
from tests.watched_processes import until

INDEX = {"jetbrains": {"air": {"version": 1, "capabilities": ["sessionIndex", "loadReplayEnd"]}}}
ONLY_AIR = {"jetbrains": {"air": {"version": 1, "capabilities": ["diffPatch"]}}}
EVERY = frozenset(
    {air.INDEX, air.RENAME, air.ARCHIVE, air.UNARCHIVE, air.SUBSCRIBE, air.UNSUBSCRIBE}
)
"""The methods of an agent that has a session index itself."""

at_once = pytest.mark.usefixtures("without_pauses")


@pytest.fixture
def without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Changes are told without a pause, and looked for at once, as titles are."""
    monkeypatch.setattr(bounds, "CHANGES_APART_SECONDS", 0.0)
    monkeypatch.setattr(bounds, "INDEX_LOOK_SECONDS", 0.05)
    monkeypatch.setattr(hub_bounds, "TITLE_LOOKS_SECONDS", (0.0,))


def members(info: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = info["_meta"]["jetbrains"]["air"]
    assert found["version"] == 1
    return found


async def sessions(client: Onlooker, cwd: Path | None = None, **wanted: Any) -> dict[str, Any]:
    """What AIR lists, by id."""
    asked = {"_meta": {"jetbrains": {"air": {"list": wanted}}}}
    folder = {} if cwd is None else {"cwd": str(cwd)}
    return {info["sessionId"]: info for info in await client.sessions(**folder, **asked)}


async def subscribe(client: Onlooker, cwd: Path | str) -> str:
    answer = await client.call("_session/list/subscribe", {"cwd": str(cwd)})
    return str(answer["subscriptionId"])


def changes(client: Onlooker, subscription: str) -> list[dict[str, Any]]:
    told = [it["params"] for it in client.messages if it.get("method") == air.CHANGES]
    return [it for it in told if it["subscriptionId"] == subscription]


async def until_told(
    client: Onlooker, subscription: str, fits: Callable[[dict[str, Any]], bool]
) -> dict[str, Any]:
    """The first session that fits among those that the subscription tells."""

    def found() -> list[dict[str, Any]]:
        told = changes(client, subscription)
        return [info for each in told for info in each["sessions"] if fits(info)]

    await client.until(lambda: bool(found()))
    return found()[0]


def theirs(cwd: Path | str = "/w", **fields: Any) -> dict[str, Any]:
    """A session of the agent's own list."""
    marks = {"jetbrains": {"air": {"version": 1, **fields.pop("air", {})}}}
    return {"sessionId": "theirs", "cwd": str(cwd), "title": "Theirs", "_meta": marks, **fields}


def with_index(house: Shared) -> None:
    """From now on its agent has a session index, too."""
    house.agent.can("load", "list")
    house.agent.index_methods = EVERY
    for method in ("session/load", air.RENAME, air.ARCHIVE, air.UNARCHIVE, air.UNSUBSCRIBE):
        house.agent.results[method] = b"{}"
    house.agent.results[air.SUBSCRIBE] = b'{"subscriptionId":"at-the-agent"}'


async def agent_tells(house: Shared, *infos: dict[str, Any], removed: tuple[str, ...] = ()) -> None:
    told = {"subscriptionId": "at-the-agent", "sessions": infos, "removed": removed}
    await house.agent.listener.hear(Notified(air.CHANGES, json.dumps(told).encode()))


async def asked_of(house: Shared, method: str) -> dict[str, Any]:
    """What the agent was asked last by this method, once it was."""
    await house.agent.was_asked(method)
    return [params for name, params in house.agent.asked if name == method][-1]


# -- offered ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("meta", [{}, ONLY_AIR, INDEX])
async def test_a_client_that_asks_for_it_is_offered_a_session_index(
    meta: dict[str, Any], house: Shared
) -> None:
    client = await house.client(_meta=meta)
    answer = client.messages[0]["result"]
    offered = answer.get("_meta", {}).get("jetbrains", {}).get("air", {})
    assert ({*air.OFFERED} <= {*offered.get("capabilities", ())}) == (meta is INDEX)
    if meta is not INDEX:
        error = await client.refused("_session/batch_get", {"sessionIds": []})
        assert error.code == -32601


async def test_what_the_agent_offers_is_offered_beside_it() -> None:
    answer = b'{"_meta":{"jetbrains":{"air":{"version":1,"capabilities":["goal"],"goal":1}}}}'
    found = json.loads(air.with_index(answer))["_meta"]["jetbrains"]["air"]
    assert found == {"version": 1, "capabilities": ["goal", *air.OFFERED], "goal": 1}


@pytest.mark.parametrize(
    "said",
    [
        {"air": 7},
        {"air": {"version": "1", "capabilities": ["sessionIndex"]}},
        {"air": {"version": 1, "capabilities": 7}},
        [],
        None,
    ],
)
async def test_what_is_not_in_its_form_asks_for_nothing(said: Any, house: Shared) -> None:
    client, session = await house.opened(_meta={"jetbrains": said})
    assert (await client.refused("_session/batch_get", {"sessionIds": []})).code == -32601
    await house.turn(client, session, "one", "ONE")
    await client.call("session/delete", {"sessionId": session})
    assert (await client.refused("session/load", open_params(session, "/"))).code == -32002


# -- lists -----------------------------------------------------------------------------------------


async def test_a_list_says_of_each_session_what_goes_on_and_whether_it_is_archived(
    house: Shared,
) -> None:
    client = await house.client(_meta=INDEX)
    idle, running, archived = [await client.new() for _ in range(3)]
    await house.turn(client, idle, "one", "ONE")
    await house.turn(client, archived, "two", "TWO")
    turn = await house.begun(client, running, "three")
    assert await client.call("_session/archive", {"sessionId": archived}) == {}
    states = {key: members(it)["state"] for key, it in (await sessions(client)).items()}
    assert states == {idle: "idle", running: "running"}
    everything = await sessions(client, archived="all")
    marks = {key: members(it)["archived"] for key, it in everything.items()}
    assert marks == {idle: False, running: False, archived: True}
    assert (await sessions(client, archived="archived")).keys() == {archived}
    assert all("archived" not in info for info in everything.values())
    await house.ended(running, turn)


async def test_a_session_whose_last_turn_failed_says_so(house: Shared) -> None:
    client, session, turn = await house.in_turn("one", _meta=INDEX)
    await house.agent.end(session, RemoteError(-32000, "no"))
    await asyncio.wait([turn])
    assert members((await sessions(client))[session])["state"] == "error"


async def test_pages_have_as_many_sessions_as_are_asked_for(house: Shared) -> None:
    client = await house.client(_meta=INDEX)
    made = [await client.new() for _ in range(3)]
    for session in made:
        await house.turn(client, session, "one", "ONE")
    asked: dict[str, Any] = {"_meta": {"jetbrains": {"air": {"list": {"limit": 2}}}}}
    page = await client.call("session/list", asked)
    rest = await client.call("session/list", {**asked, "cursor": page["nextCursor"]})
    ids = [[it["sessionId"] for it in found["sessions"]] for found in (page, rest)]
    assert [len(some) for some in ids] == [2, 1]
    assert {*ids[0], *ids[1]} == {*made}
    assert rest.get("nextCursor") is None


@pytest.fixture
def work_trees(tmp_path: Path) -> tuple[Path, Path]:
    """The two work trees of a repository, each with a folder `inner`."""
    main, other = tmp_path / "main", tmp_path / "other"
    who = ("-c", "user.name=n", "-c", "user.email=e@x")
    for words in (
        ("init", "-q", str(main)),
        ("-C", str(main), *who, "commit", "-q", "--allow-empty", "-m", "one"),
        ("-C", str(main), "worktree", "add", "-q", str(other)),
    ):
        subprocess.run(["git", *words], check=True)
    for top in (main, other):
        (top / "inner").mkdir()
    return main, other


async def test_sessions_in_the_other_work_trees_of_a_repository_are_listed_if_asked_for(
    journal: Path, work_trees: tuple[Path, Path]
) -> None:
    main, other = work_trees
    async with shared(journal) as house:
        client = await house.client(_meta=INDEX)
        here, there, above = [
            await client.new(it) for it in (main / "inner", other / "inner", other)
        ]
        for session in (here, there, above):
            await house.turn(client, session, "one", "ONE")
        assert (await sessions(client, main / "inner")).keys() == {here}
        found = await sessions(client, main / "inner", includeWorktrees=True)
        assert found.keys() == {here, there}
        back = await sessions(client, other / "inner", includeWorktrees=True)
        assert back.keys() == {here, there}


async def test_a_disk_that_hangs_holds_up_no_work_in_the_shared_threads(
    journal: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looking: list[str] = []
    others_work = threading.Event()

    def look(folder: str) -> tuple[str, ...]:
        looking.append(folder)
        assert others_work.wait(DEADLINE)
        return ()

    monkeypatch.setattr(session_index, "in_other_work_trees", look)
    async with shared(journal) as house:
        count = min(32, (os.cpu_count() or 1) + 4)  # as many threads as asyncio has
        clients = [await house.client(_meta=INDEX) for _ in range(count)]
        lists = [
            asyncio.create_task(sessions(client, tmp_path, includeWorktrees=True))
            for client in (*clients, clients[0])  # each client has one thread for its lists
        ]
        while len(looking) < count:  # noqa: ASYNC110 - other threads
            await asyncio.sleep(0.01)
        assert len(looking) == count
        await asyncio.to_thread(others_work.set)
        await asyncio.gather(*lists)


async def test_a_copy_names_the_session_that_it_was_made_of(house: Shared) -> None:
    client, session = await house.talked("one", "ONE", _meta=INDEX)
    copy = (await client.call("_acphold/fork", {"sessionId": session}))["sessionId"]
    assert members((await sessions(client))[copy])["forkedFrom"] == session


async def test_what_the_agent_lists_of_a_session_stands_beside_what_acphold_knows(
    house: Shared,
) -> None:
    with_index(house)
    client, session = await house.talked("one", "ONE", _meta=INDEX)
    known = {"model": "m", "lastPromptAt": "2026-01-31T12:00:00Z", "state": "running"}
    house.agent.lists = [
        theirs("/", sessionId=session, air=known),
        theirs("/", air={"archived": True}),
    ]
    found = await sessions(client, Path("/"))
    assert members(found[session]) == {
        **{"version": 1, "archived": False},
        **known,
        "state": "idle",
    }
    assert found.keys() == {session}
    both = await sessions(client, Path("/"), archived="all")
    assert members(both["theirs"])["archived"] is True
    asked = await asked_of(house, "session/list")
    assert asked["_meta"]["jetbrains"]["air"]["list"]["archived"] == "all"


async def test_known_ids_are_looked_up_and_others_are_left_out(house: Shared) -> None:
    with_index(house)
    client, session = await house.talked("one", "ONE", _meta=INDEX)
    await client.call("_session/archive", {"sessionId": session})
    house.agent.lists = [theirs()]
    await client.sessions()
    ids = [session, "theirs", "nobody's"]
    answer = await client.call("_session/batch_get", {"sessionIds": ids})
    found = {info["sessionId"]: info for info in answer["sessions"]}
    assert {key: members(it)["archived"] for key, it in found.items()} == {
        session: True,
        "theirs": False,
    }


async def test_what_cannot_be_looked_up_followed_or_wished_for_is_refused(house: Shared) -> None:
    client = await house.client(_meta=INDEX)
    wishes = ({"limit": 0}, {"limit": "7"}, {"archived": "some"}, {"includeWorktrees": 1})
    for method, params in (
        *(("_session/batch_get", {"sessionIds": it}) for it in (["a", "a"], [" "], [7], None)),
        *(("_session/list/subscribe", {"cwd": it}) for it in ("here", None, 7, "/he\0re")),
        *(("session/list", {"_meta": {"jetbrains": {"air": {"list": it}}}}) for it in wishes),
    ):
        assert (await client.refused(method, params)).code == -32602, (method, params)


# -- changes ---------------------------------------------------------------------------------------


async def test_a_session_is_renamed_archived_and_put_back(house: Shared) -> None:
    client, session = await house.talked("one", "ONE", _meta=INDEX)
    asked = {"sessionId": session}
    assert await client.call("_session/rename", {**asked, "title": "Mine"}) == {}
    assert (await sessions(client))[session]["title"] == "Mine"
    for _ in range(2):
        assert await client.call("_session/archive", asked) == {}
    assert await sessions(client) == {}
    for _ in range(2):
        assert await client.call("_session/unarchive", asked) == {}
    assert (await sessions(client)).keys() == {session}
    for method in ("_session/rename", "_session/archive", "_session/unarchive"):
        error = await client.refused(method, {"sessionId": "nobody's", "title": "t"})
        assert error.code == -32002


async def test_an_agent_that_has_a_list_of_its_own_is_told_of_each_change(house: Shared) -> None:
    with_index(house)
    client, session = await house.talked("one", "ONE", _meta=INDEX)
    await client.call("_session/rename", {"sessionId": session, "title": "Mine"})
    assert await asked_of(house, air.RENAME) == {"sessionId": session, "title": "Mine"}
    await client.call("session/archive", {"sessionId": session})
    assert await asked_of(house, air.ARCHIVE) == {"sessionId": session}
    await client.call("session/unarchive", {"sessionId": session})
    assert await asked_of(house, air.UNARCHIVE) == {"sessionId": session}


async def test_an_agent_is_told_what_another_process_has_changed(house: Shared) -> None:
    with_index(house)
    _client, session = await house.talked("one", "ONE", _meta=INDEX)
    kept, beside = house.desk.hub.journal, house.stranger()
    await kept.change(session, RowChange(given="Mine"))
    await beside.call(CHANGED, {"sessionId": session})
    assert await asked_of(house, air.RENAME) == {"sessionId": session, "title": "Mine"}
    assert air.ARCHIVE not in [method for method, _ in house.agent.asked]
    for archived, method in ((True, air.ARCHIVE), (False, air.UNARCHIVE)):
        await kept.change(session, RowChange(archived=archived))
        await beside.call(CHANGED, {"sessionId": session, "archived": archived})
        assert await asked_of(house, method) == {"sessionId": session}


async def test_an_agent_with_the_draft_alone_is_told_a_title_by_that(house: Shared) -> None:
    house.agent.index_methods = frozenset({air.SET_TITLE})
    client, session = await house.opened()
    await client.call("session/set_title", {"sessionId": session, "title": "Mine"})
    assert await asked_of(house, air.SET_TITLE) == {"sessionId": session, "title": "Mine"}


async def test_a_session_that_only_the_agent_has_is_changed_there_and_not_opened(
    house: Shared,
) -> None:
    with_index(house)
    house.agent.lists = [theirs()]
    client = await house.client(_meta=INDEX)
    await client.sessions()
    await client.call("_session/archive", {"sessionId": "theirs"})
    assert await asked_of(house, air.ARCHIVE) == {"sessionId": "theirs"}
    assert "session/load" not in [method for method, _ in house.agent.asked]


async def test_air_without_an_index_archives_what_it_deletes(house: Shared) -> None:
    client, session = await house.talked("one", "ONE", _meta=ONLY_AIR)
    assert await client.call("session/delete", {"sessionId": session}) == {}
    assert await client.sessions() == []
    await client.load(session)
    assert "ONE" in client.text(session_id=session)


# -- subscriptions ---------------------------------------------------------------------------------


@at_once
async def test_changes_of_a_folder_are_told_to_whoever_has_subscribed(
    tmp_path: Path, house: Shared
) -> None:
    client, worker = await house.client(_meta=INDEX), await house.client()
    subscription = await subscribe(client, tmp_path)
    elsewhere = await subscribe(client, "/")
    session = await worker.new(tmp_path)
    turn = await house.begun(worker, session, "Mend the gate")
    await until_told(client, subscription, lambda it: members(it)["state"] == "running")
    await house.ended(session, turn)
    told = await until_told(client, subscription, lambda it: members(it)["state"] == "idle")
    assert (told["sessionId"], told["cwd"]) == (session, str(tmp_path))
    assert told["title"] == "Mend the gate"
    await client.call("_session/rename", {"sessionId": session, "title": "Mine"})
    await until_told(client, subscription, lambda it: it["title"] == "Mine")
    await client.call("_session/archive", {"sessionId": session})
    await until_told(client, subscription, lambda it: members(it)["archived"])
    await worker.call("session/delete", {"sessionId": session})
    await client.until(lambda: changes(client, subscription)[-1]["removed"] == [session])
    assert [it for it in changes(client, elsewhere) if it["sessions"]] == []


@at_once
async def test_nothing_is_told_behind_the_end_of_a_subscription(house: Shared) -> None:
    client = await house.client(_meta=INDEX)
    ended, goes_on = await subscribe(client, "/"), await subscribe(client, "/")
    for _ in range(2):  # repeating it is no error
        answer = await client.call("_session/list/unsubscribe", {"subscriptionId": ended})
        assert answer == {}
    session = await client.new()
    await house.turn(client, session, "one", "ONE")
    await until_told(client, goes_on, lambda it: it["sessionId"] == session)
    assert changes(client, ended) == []


async def test_there_are_so_many_subscriptions_and_no_more(
    journal: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "SUBSCRIPTIONS", 2)
    async with shared(journal) as house:
        client = await house.client(_meta=INDEX)
        made = await asyncio.gather(
            *(subscribe(client, "/") for _ in range(9)), return_exceptions=True
        )
        one, _ = [it for it in made if isinstance(it, str)]
        assert (await client.refused("_session/list/subscribe", {"cwd": "/"})).code == -32602
        await client.call("_session/list/unsubscribe", {"subscriptionId": one})
        await subscribe(client, "/")


@at_once
async def test_a_tenant_is_told_of_no_session_of_another(house: Shared) -> None:
    client = house.stranger(Principal(name="ann", tenant="ann"))
    await client.introduce(None, {"_meta": INDEX})
    subscription = await subscribe(client, "/")
    other = house.stranger(Principal(name="bob", tenant="bob"))
    await other.introduce(None, {})
    bobs, anns = await other.new(), await client.new()
    await house.turn(other, bobs, "secret", "ONE")
    await other.call("session/delete", {"sessionId": bobs})
    await house.turn(client, anns, "mine", "TWO")
    await until_told(client, subscription, lambda it: it["sessionId"] == anns)
    assert bobs not in json.dumps(changes(client, subscription))
    answer = await client.call("_session/batch_get", {"sessionIds": [bobs, anns]})
    assert [it["sessionId"] for it in answer["sessions"]] == [anns]


async def test_a_guest_is_not_told_of_which_session_its_own_was_made(house: Shared) -> None:
    client, session = await house.talked("one", "ONE", _meta=INDEX)
    copy = (await client.call("session/fork", open_params(session, "/")))["sessionId"]
    guest = house.stranger(Principal(name="guest", session_id=copy))
    await guest.introduce(None, {"_meta": INDEX})
    for answer in (
        await guest.call("session/list", {}),
        await guest.call("_session/batch_get", {"sessionIds": [copy]}),
    ):
        assert [it["sessionId"] for it in answer["sessions"]] == [copy]
        assert session not in json.dumps(answer)


@at_once
async def test_what_changes_in_the_agents_own_list_is_told_too(house: Shared) -> None:
    with_index(house)
    client, session = await house.talked("one", "ONE", _meta=INDEX)
    subscription = await subscribe(client, "/")
    assert await asked_of(house, air.SUBSCRIBE) == {"cwd": "/"}
    ours = theirs("/", sessionId=session, air={"model": "m"})
    await agent_tells(house, theirs("/", title="In its own program"), ours)
    await until_told(client, subscription, lambda it: it["title"] == "In its own program")
    told = await until_told(client, subscription, lambda it: "model" in members(it))
    assert told["sessionId"] == session
    await agent_tells(house, removed=("theirs", session))
    await client.until(lambda: changes(client, subscription)[-1]["removed"] == ["theirs"])
    answer = await client.call("_session/batch_get", {"sessionIds": ["theirs"]})
    assert answer["sessions"] == []
    await client.call("_session/list/unsubscribe", {"subscriptionId": subscription})
    left = await asked_of(house, air.UNSUBSCRIBE)
    assert left == {"subscriptionId": "at-the-agent"}


@at_once
async def test_an_agent_that_was_started_again_is_subscribed_to_again(house: Shared) -> None:
    with_index(house)
    client, session = await house.opened(_meta=INDEX)
    await subscribe(client, "/")
    house.agent.results[air.SUBSCRIBE] = b'{"subscriptionId":"anew"}'
    await house.agent.restart()
    await house.turn(client, session, "one", "ONE")
    await until(lambda: "anew" in house.desk.router.subscriptions)


async def test_a_client_that_leaves_ends_its_subscriptions(house: Shared) -> None:
    with_index(house)
    client = await house.client(_meta=INDEX)
    await subscribe(client, "/")
    await house.leave(client)
    await house.agent.was_asked(air.UNSUBSCRIBE)
    assert house.desk.router.subscriptions == {}


# -- what the agent's own list says ----------------------------------------------------------------


async def titled(house: Shared, client: Onlooker, session: str, title: str) -> Any:
    """The title that is listed when the agent's own list has this one."""
    house.agent.lists = [theirs("/", sessionId=session, title=title)]
    return (await sessions(client, Path("/")))[session]["title"]


async def test_a_title_of_the_agents_list_replaces_one_that_is_only_the_first_prompt(
    house: Shared,
) -> None:
    client, session = await house.talked("Mend the gate, please", "ONE")
    house.agent.can("list")
    assert await titled(house, client, session, "Mend the ga…") == "Mend the gate"
    handed = "# Earlier in this conversation You have no memory"
    for made in (handed, f"Here it is: {handed}"):
        assert await titled(house, client, session, made) == "Mend the gate"
    assert await titled(house, client, session, "A better gate") == "A better gate"
    told = [u for u in client.updates() if u["sessionUpdate"] == "session_info_update"]
    assert told[-1]["title"] == "A better gate"
    assert await titled(house, client, session, "Better still") == "Better still"
    await client.call("session/set_title", {"sessionId": session, "title": "Mine"})
    assert await titled(house, client, session, "Not mine") == "Mine"


async def test_a_title_that_the_agent_has_told_outlasts_an_older_one_of_its_list(
    house: Shared,
) -> None:
    client, session, turn = await house.in_turn("Mend the gate")
    update = {"sessionUpdate": "session_info_update", "title": "Told"}
    await house.agent.listener.hear(Updates(session, "update", [json.dumps(update).encode()]))
    await house.ended(session, turn)
    house.agent.can("list")
    assert await titled(house, client, session, "Older") == "Told"


@at_once
async def test_a_title_that_the_agent_makes_beside_the_first_turn_is_looked_for(
    house: Shared,
) -> None:
    house.agent.can("list")
    client, session = await house.opened()
    house.agent.lists = [theirs("/", sessionId=session, title="A better gate")]
    await house.turn(client, session, "Mend the gate", "ONE")
    await client.until(
        lambda: any(update.get("title") == "A better gate" for update in client.updates())
    )


async def test_a_session_that_the_agent_archives_or_puts_back_follows(house: Shared) -> None:
    with_index(house)
    client, session = await house.talked("one", "ONE", _meta=INDEX)
    listed = []
    for archived in (False, True, False):
        house.agent.lists = [theirs("/", sessionId=session, air={"archived": archived})]
        listed.append((await sessions(client, Path("/"))).keys() == {session})
    assert listed == [True, False, True]


async def test_late_news_from_the_agent_undoes_no_change_that_it_made_for_us(house: Shared) -> None:
    with_index(house)
    client, session = await house.talked("one", "ONE", _meta=INDEX)
    there, archived = (theirs("/", sessionId=session, air={"archived": it}) for it in (False, True))

    async def is_archived_once_told(info: dict[str, Any]) -> bool:
        await house.desk.sessions.agents.hear([json.dumps(info).encode()])
        return (await house.journal.session(session)).archived

    house.agent.lists = [there]
    await sessions(client, Path("/"))
    await client.call("_session/archive", {"sessionId": session})
    house.agent.lists = [archived]
    assert await is_archived_once_told(there)  # it was on its way already
    house.agent.lists = [there]
    assert await is_archived_once_told(there)  # told once more
    assert not await is_archived_once_told(there)  # somebody has put it back there
    await client.call("_session/archive", {"sessionId": session})
    await client.call("_session/unarchive", {"sessionId": session})
    assert not await is_archived_once_told(archived)
    house.agent.lists = [archived]
    assert not await is_archived_once_told(archived)
    assert await is_archived_once_told(archived)


@pytest.mark.parametrize("method", ["archive", "unarchive"])
async def test_the_owner_hears_of_it_before_the_agent_which_may_hang(
    method: str, monkeypatch: pytest.MonkeyPatch, house: Shared
) -> None:
    with_index(house)
    client, session = await house.talked("one", "ONE", _meta=INDEX)
    told: list[int] = []

    async def its_addresses(*_: object) -> list[str]:
        return ["unix:/owner"]

    async def note(*_: object) -> None:
        told.append(len(house.agent.asked))

    monkeypatch.setattr(one_question, "owner_addresses", its_addresses)
    monkeypatch.setattr(one_question, "answer_of", note)
    before = len(house.agent.asked)
    await client.call(f"_session/{method}", {"sessionId": session})
    assert told == [before]


async def test_the_agent_archives_a_session_while_it_has_it_open_and_closes_it_then(
    house: Shared,
) -> None:
    with_index(house)
    house.agent.can("load", "list", "close")
    client, session = await house.talked("one", "ONE", _meta=INDEX)
    before = len(house.agent.asked)
    await client.call("_session/archive", {"sessionId": session})
    asked = [method for method, _ in house.agent.asked[before:]]
    assert asked == [air.ARCHIVE, "session/close"]


async def test_what_a_person_did_last_is_told_to_the_agent_once_more_and_not_followed_back(
    monkeypatch: pytest.MonkeyPatch, house: Shared
) -> None:
    with_index(house)
    client, session = await house.talked("one", "ONE", _meta=INDEX)
    lost = theirs("/", sessionId=session, air={"archived": False})
    house.agent.lists = [lost]
    await sessions(client, Path("/"))

    async def listed() -> tuple[bool, int]:
        there = (await sessions(client, Path("/"))).keys() == {session}
        return there, sum(method == air.ARCHIVE for method, _ in house.agent.asked)

    await client.call("_session/archive", {"sessionId": session})
    assert await listed() == (False, 2)  # its list has lost it
    assert await listed() == (True, 2)  # somebody there has put it back again
    await client.call("_session/archive", {"sessionId": session})
    house.agent.lists = [theirs("/", sessionId=session, air={"archived": True})]
    assert await listed() == (False, 3)
    monkeypatch.setattr(hub_bounds, "UNSURE_SECONDS", 0.0)
    assert await listed() == (False, 3)  # it has kept it for long
    house.agent.lists = [lost]
    assert await listed() == (True, 3)


async def test_late_news_of_a_session_that_only_the_agent_has_is_told_as_it_is_by_now(
    house: Shared,
) -> None:
    with_index(house)
    client = await house.client(_meta=INDEX)
    there, archived = (theirs("/", air={"archived": it}) for it in (False, True))
    house.agent.lists = [there]
    await sessions(client, Path("/"))
    await client.call("_session/archive", {"sessionId": "theirs"})
    house.agent.lists = [archived]
    _, told = await house.desk.sessions.agents.hear([json.dumps(there).encode()])
    assert [members(json.loads(info))["archived"] for info in told] == [True]


async def test_a_list_asked_for_before_a_change_does_not_undo_it(house: Shared) -> None:
    with_index(house)
    client, session = await house.talked("one", "ONE", _meta=INDEX)
    before = theirs("/", sessionId=session, air={"archived": False})
    house.agent.lists = [before]
    await sessions(client, Path("/"))
    house.agent.asked.clear()
    house.agent.hangs_after["session/list"] = 0
    looking = asyncio.create_task(house.desk.sessions.agents.look_for_news("/"))
    await house.agent.was_asked("session/list")
    call = house.agent.calls[-1]
    await client.call("_session/archive", {"sessionId": session})
    await call.take(json.dumps({"sessions": [before]}).encode())
    await looking
    assert (await house.journal.session(session)).archived


async def test_that_a_session_is_archived_is_no_part_of_its_history(house: Shared) -> None:
    client, session = await house.opened(_meta=INDEX)
    update = {"sessionUpdate": "session_info_update", **air_meta(archived=True)}
    turn = await house.begun(client, session, "one")
    await house.agent.listener.hear(Updates(session, "update", [json.dumps(update).encode()]))
    await house.ended(session, turn)
    assert "archived" not in json.dumps(await house.entries(session, "update"))


def air_meta(**fields: Any) -> dict[str, Any]:
    return {"_meta": {"jetbrains": {"air": {"version": 1, **fields}}}}


# -- the end of a replay ---------------------------------------------------------------------------


async def test_the_end_of_a_replay_is_told_to_whoever_asks_for_that(house: Shared) -> None:
    _client, session = await house.talked("one", "ONE")
    asking, other = await house.client(_meta=INDEX), await house.client(_meta=ONLY_AIR)
    for each in (asking, other):
        await each.load(session)
    ended = {"sessionUpdate": "session_info_update", **air_meta(loadReplayEnd=True)}
    answered = next(place for place, it in enumerate(asking.messages) if it.get("id") == 2)
    updates = [it["params"]["update"] for it in asking.messages[:answered] if "params" in it]
    assert updates[-1] == ended
    assert updates.count(ended) == 1
    assert ended not in other.updates()
    resumed = await house.client(_meta=INDEX)
    await resumed.resume(session)
    assert ended not in resumed.updates()


async def test_the_agent_is_not_asked_to_tell_the_end_of_its_replay() -> None:
    said = {"protocolVersion": 1, "clientCapabilities": {"_meta": INDEX}}
    told = json.loads(introduction_for_agent(json.dumps(said).encode()))
    assert told["clientCapabilities"]["_meta"]["jetbrains"]["air"]["capabilities"] == [
        "sessionIndex"
    ]


# -- two at once, and strangers --------------------------------------------------------------------


class Doorman:
    """Lets in whoever names a tenant."""

    async def tenant(self, visitor: Visitor) -> str | None:
        return None

    async def sign_in(self, visitor: Visitor, method_id: str) -> str:
        return method_id

    async def sign_out(self, visitor: Visitor) -> None:
        return None


@at_once
async def test_who_has_signed_out_is_told_nothing_more(house: Shared) -> None:
    client = house.stranger(Principal(name="net", is_here=False), door=Doorman())
    await client.introduce(None, {"_meta": INDEX})
    await client.call("authenticate", {"methodId": "ann"})
    subscription = await subscribe(client, "/")
    await client.call("logout", {})
    watching = await house.client(_meta=INDEX)
    seen = await subscribe(watching, "/")
    _worker, session = await house.talked("secret", "ONE")
    await until_told(watching, seen, lambda it: it["sessionId"] == session)
    assert changes(client, subscription) == []


async def test_one_session_has_one_title_whichever_folders_are_listed(house: Shared) -> None:
    with_index(house)
    client, session = await house.talked("Mend the gate", "ONE", _meta=INDEX)
    house.agent.lists = [theirs("/", sessionId=session, title="First", air={"archived": True})]
    await sessions(client)
    house.agent.lists = [theirs("/", sessionId=session, title="Second")]
    for _ in range(2):
        assert (await sessions(client, Path("/")))[session]["title"] == "Second"
    told = [u["title"] for u in client.updates() if u.get("title")]
    assert told == ["Mend the gate", "First", "Second"]


async def test_a_session_that_a_prompt_has_brought_back_stays_and_the_agent_is_told(
    house: Shared,
) -> None:
    with_index(house)
    client, session = await house.talked("one", "ONE", _meta=INDEX)
    house.agent.lists = [theirs("/", sessionId=session, air={"archived": False})]
    await sessions(client, Path("/"))
    await client.call("_session/archive", {"sessionId": session})
    house.agent.lists = [theirs("/", sessionId=session, air={"archived": True})]
    await client.load(session)
    await house.turn(client, session, "two", "TWO")
    assert (await sessions(client, Path("/"))).keys() == {session}
    assert await asked_of(house, air.UNARCHIVE) == {"sessionId": session}


async def test_many_folders_are_listed_at_once(tmp_path: Path, house: Shared) -> None:
    house.agent.can("list")
    client = await house.client(_meta=INDEX)
    folders = [tmp_path / str(number) for number in range(12)]
    house.agent.lists = [theirs(it, sessionId=it.name) for it in folders]
    found = await asyncio.gather(*(sessions(client, it) for it in folders))
    assert [[*it] for it in found] == [[it.name] for it in folders]


async def test_pages_go_on_whatever_is_listed_between_them(
    work_trees: tuple[Path, Path], house: Shared
) -> None:
    house.agent.can("list")
    client = await house.client(_meta=INDEX)
    house.agent.lists = [
        theirs(it, sessionId=f"{it.name}{day}", updatedAt=f"2026-01-0{day}T00:00:00Z")
        for it in work_trees
        for day in (1, 2, 3)
    ]
    wanted = {"limit": 2, "includeWorktrees": True}
    asked: dict[str, Any] = {"cwd": str(work_trees[0])}
    asked["_meta"] = {"jetbrains": {"air": {"list": wanted}}}
    page = await client.call("session/list", asked)
    found = page["sessions"]
    while cursor := page.get("nextCursor"):
        await sessions(client, work_trees[0])
        page = await client.call("session/list", {**asked, "cursor": cursor})
        found += page["sessions"]
    assert len(found) == len({it["sessionId"] for it in found}) == 6


@at_once
async def test_a_list_that_was_on_its_way_does_not_replace_news(house: Shared) -> None:
    with_index(house)
    client, session = await house.talked("one", "ONE", _meta=INDEX)
    subscription = await subscribe(client, "/")
    house.agent.lists = [theirs("/", sessionId=session, title="First")]
    await sessions(client, Path("/"))
    await until(lambda: not house.desk._following)  # it lists, too
    house.agent.may_answer.clear()
    house.agent.asked.clear()
    listing = asyncio.create_task(sessions(client, Path("/")))
    await house.agent.was_asked("session/list")
    await agent_tells(house, theirs("/", sessionId=session, title="Second"))
    await until_told(client, subscription, lambda it: it["title"] == "Second")
    house.agent.may_answer.set()
    await listing
    assert (await house.journal.session(session)).title == "Second"


@at_once
async def test_who_unsubscribes_and_subscribes_at_once_is_told(house: Shared) -> None:
    client, session = await house.opened(_meta=INDEX)
    ended = await subscribe(client, "/")
    _, subscription = await asyncio.gather(
        client.call("_session/list/unsubscribe", {"subscriptionId": ended}),
        subscribe(client, "/"),
    )
    await house.turn(client, session, "one", "ONE")
    await until_told(client, subscription, lambda it: it["sessionId"] == session)


@at_once
async def test_a_journal_that_fails_for_a_moment_ends_no_subscription(
    journal: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "INDEX_LOOK_SECONDS", 0.05)
    async with shared(journal) as house:
        client, session = await house.opened(_meta=INDEX)
        subscription = await subscribe(client, "/")
        find, failed = SessionList.find, asyncio.Event()

        async def fail_once(found: SessionList, *what: Any, **how: Any) -> list[bytes]:
            if not failed.is_set():
                failed.set()
                raise JournalUnavailableError("busy")
            return await find(found, *what, **how)

        monkeypatch.setattr(SessionList, "find", fail_once)
        await house.turn(client, session, "one", "ONE")
        await failed.wait()
        await client.call("_session/rename", {"sessionId": session, "title": "Mine"})
        await until_told(client, subscription, lambda it: it["title"] == "Mine")


@at_once
async def test_a_client_that_leaves_while_it_subscribes_leaves_nothing(house: Shared) -> None:
    with_index(house)
    client = await house.client(_meta=INDEX)
    house.agent.may_answer.clear()
    subscribing = asyncio.create_task(subscribe(client, "/"))
    await house.agent.was_asked(air.SUBSCRIBE)
    await client.leave()
    house.agent.may_answer.set()
    await house.gone(client)
    await asyncio.wait([subscribing])
    await until(lambda: not house.desk.router.subscriptions)
    await until(lambda: "session index" not in [it.get_name() for it in asyncio.all_tasks()])


@at_once
async def test_a_tenant_is_told_that_a_listed_session_is_gone(house: Shared) -> None:
    client, other = [house.stranger(Principal(name="ann", tenant="ann")) for _ in range(2)]
    await client.introduce(None, {"_meta": INDEX})
    await other.introduce(None, {})
    session = await other.new()
    await house.turn(other, session, "mine", "TWO")
    await sessions(client)
    subscription = await subscribe(client, "/")
    await other.call("session/delete", {"sessionId": session})
    await client.until(
        lambda: any(session in it["removed"] for it in changes(client, subscription))
    )


async def test_a_client_that_introduces_itself_again_without_it_has_no_index(house: Shared) -> None:
    client = house.stranger()
    for version, meta in ((2, INDEX), (1, {})):
        said = {"protocolVersion": version, "clientCapabilities": {"_meta": meta}}
        await client.call("initialize", said)
    session = await client.new()
    await house.turn(client, session, "one", "ONE")
    [listed] = await client.sessions()
    assert "jetbrains" not in listed["_meta"]


async def test_our_marks_in_the_agents_list_are_not_taken_for_ours(house: Shared) -> None:
    with_index(house)
    client = await house.client(_meta=INDEX)
    info = theirs("/")
    info["_meta"] |= {"acphold/origins": 7, "vendor": 1}
    house.agent.lists = [info]
    listed = (await sessions(client))["theirs"]
    assert "acphold/origins" not in listed["_meta"]
    assert listed["_meta"]["vendor"] == 1


def test_work_trees_that_name_each_other_by_relative_paths_are_found(
    work_trees: tuple[Path, Path],
) -> None:
    main, other = work_trees
    (main / ".git/worktrees/other/gitdir").write_text("../../../../other/.git\n")
    (other / ".git").write_text("gitdir: ../main/.git/worktrees/other\n")
    assert in_other_work_trees(str(main / "inner")) == (str(other / "inner"),)
    assert in_other_work_trees(str(other / "inner")) == (str(main / "inner"),)
    assert in_main_work_tree(str(other / "inner")) == str(main / "inner")
    assert in_main_work_tree(str(main / "inner")) == str(main / "inner")
