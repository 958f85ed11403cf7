"""Adopting: a session of the agent's own is taken into the journal, or nothing is."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from acphold.errors import RemoteError
from acphold.journal import bounds as journal_bounds
from acphold.journal.journal import Lease, Owners
from acphold.journal.rows import NewSession
from acphold.live.hub import adoption, bounds
from acphold.machine.runtime_folder import is_running
from tests.editor import DEADLINE, Refused, open_params
from tests.hub.shared import Onlooker, Shared, apart, said, shared
from tests.owners import left_by_killed
from tests.watched_processes import until

TOLD = [said("What is it?", "user_message_chunk"), said("It is that.")]


@pytest.fixture
def forgets(journal: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Owners that have ended expire at once; a database would wait in case they come back."""
    if hasattr(journal, "url"):  # a file knows at once who has ended
        monkeypatch.setattr(journal_bounds, "SILENT_SECONDS", 0.0)


def holding(house: Shared, **listed: Any) -> None:
    """The agent has a session "theirs" of its own, and lists it so."""
    house.agent.can("load", "list")
    house.agent.replays["session/load"] = TOLD
    info = {"sessionId": "theirs", "cwd": "/", **listed}
    house.agent.results["session/list"] = json.dumps({"sessions": [info]}).encode()


async def adopting(house: Shared, client: Onlooker) -> asyncio.Future[Any]:
    """A load of that session, which the agent has replayed and not answered."""
    await client.sessions()
    house.agent.may_answer.clear()
    loading = client.begin("session/load", open_params("theirs", "/"))
    await house.agent.replayed.wait()
    return loading


@pytest.mark.parametrize(
    "updated_at", [None, "0001-01-01T00:00:00Z", "yesterday", "2026-01-01T00:00:00Z"]
)
async def test_an_adopted_session_stays_whatever_time_the_agent_lists_it_with(
    journal: Path, updated_at: str | None
) -> None:
    for _ in range(3):
        async with shared(journal) as house:
            holding(house, updatedAt=updated_at)
            client = await house.client()
            assert [info["sessionId"] for info in await client.sessions()] == ["theirs"]
            await client.load("theirs")
            assert client.text() == "It is that."
            assert [info["sessionId"] for info in await client.sessions()] == ["theirs"]


@pytest.mark.parametrize("none", ["", "a\0b", "x" * 1001])
async def test_what_is_no_id_is_not_adopted_though_the_agent_would_load_it(
    none: str, house: Shared
) -> None:
    holding(house)
    client = await house.client()
    await client.refused("session/load", open_params(none, "/"))
    assert house.agent.replayed.is_set() is False


async def test_a_second_load_while_the_agent_replays_gets_the_whole_of_it_too(
    house: Shared,
) -> None:
    holding(house)
    house.agent.may_answer.clear()
    one, two = await house.client(), await house.client()
    house.agent.may_answer.set()
    await one.sessions()
    house.agent.may_answer.clear()
    loads = [client.begin("session/load", open_params("theirs", "/")) for client in (one, two)]
    await house.agent.replayed.wait()
    house.agent.may_answer.set()
    await asyncio.gather(*loads)
    assert one.text() == two.text() == "It is that."
    assert [method for method, _ in house.agent.asked].count("session/load") == 1


@pytest.mark.usefixtures("forgets")
async def test_one_of_two_processes_that_find_a_half_adopted_session_adopts_it(
    journal: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with apart(journal) as (first, second):
        one, two = await first.client(), await second.client()
        for house, client in ((first, one), (second, two)):
            holding(house)
            await client.sessions()
            house.agent.may_answer.clear()
        await left_by_killed(journal, NewSession("theirs", first.agent.key, "/"))
        loads: list[asyncio.Future[Any]] = []

        async def slow(journal: Owners, session_id: str) -> Lease:
            seen = await journal.owner(session_id)
            if not loads:  # the other one is quicker, and is at it now
                loads.append(two.begin("session/load", open_params("theirs", "/")))
                await second.agent.replayed.wait()
                second.agent.may_answer.set()
                first.agent.may_answer.set()
            return await journal.acquire(session_id, seen)

        monkeypatch.setattr(adoption, "take_lease", slow)
        async with asyncio.timeout(DEADLINE):
            await one.load("theirs")
            await loads[0]
        assert one.text() == two.text() == "It is that."


async def test_a_load_that_its_client_cancels_is_adopted_all_the_same(house: Shared) -> None:
    holding(house)
    client = await house.client()
    loading = await adopting(house, client)
    client.tell("$/cancel_request", {"requestId": client.last_id})
    with pytest.raises(Exception, match="cancelled"):
        await loading
    house.agent.may_answer.set()
    await client.load("theirs")
    assert client.text() == "It is that."


async def test_a_session_that_is_closed_while_it_is_adopted_can_be_loaded_again(
    house: Shared,
) -> None:
    holding(house)
    client = await house.client()
    loading = await adopting(house, client)
    await client.call("session/close", {"sessionId": "theirs"})
    assert loading.done() or await asyncio.wait([loading])
    assert loading.exception() is not None
    house.agent.may_answer.set()
    assert [info["sessionId"] for info in await client.sessions()] == ["theirs"]
    await client.load("theirs")
    assert client.text() == "It is that."


async def test_an_agent_that_never_answers_the_load_is_given_up_and_can_be_asked_again(
    monkeypatch: pytest.MonkeyPatch, house: Shared
) -> None:
    monkeypatch.setattr(bounds, "ADOPT_SECONDS", 0.05)
    holding(house)
    client = await house.client()
    await client.sessions()
    house.agent.hangs_after["session/load"] = 0
    error = await client.refused("session/load", open_params("theirs", "/"))
    assert "did not answer session/load" in error.message
    house.agent.hangs_after.clear()
    await client.load("theirs")
    assert client.text() == "It is that."


async def test_what_another_process_adopts_behind_the_first_look_is_loaded_all_the_same(
    journal: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = shared(journal)
    async with shared(journal) as first, elsewhere as second:
        for house in (first, second):
            await house.give_way()
            holding(house)
        one, two = await first.client(), await second.client()
        for client in (one, two):
            await client.sessions()
        adopt = second.desk._adoption.adopt

        async def late(*args: Any) -> Any:
            await one.load("theirs")
            await one.call("session/close", {"sessionId": "theirs"})
            return await adopt(*args)

        monkeypatch.setattr(second.desk._adoption, "adopt", late)
        await two.load("theirs")
        assert two.text() == "It is that."


@pytest.mark.usefixtures("forgets")
async def test_what_a_process_that_died_has_half_adopted_is_adopted_anew(
    journal: Path, house: Shared
) -> None:
    await left_by_killed(journal, NewSession("theirs", "puppet", "/"), said("half"))
    await is_adopted(house)


async def test_what_this_process_has_left_half_adopted_is_adopted_anew(house: Shared) -> None:
    lease = await house.journal.create(NewSession("theirs", "puppet", "/"))
    await house.journal.append(lease, [("update", [said("half")])])
    await is_adopted(house)


async def is_adopted(house: Shared) -> None:
    """A client lists the agent's session and loads all of it."""
    holding(house)
    client = await house.client()
    assert [info["sessionId"] for info in await client.sessions()] == ["theirs"]
    await client.load("theirs")
    assert client.text() == "It is that."


async def test_an_agent_that_reads_the_journal_does_not_wait_for_who_asks_it(
    journal: Path,
) -> None:
    async with shared(journal) as in_front, shared(journal) as behind:
        for house in (in_front, behind):
            holding(house)
        behind.agent.reads_journal = True
        one, two = await in_front.client(), await behind.client()
        loading = await adopting(in_front, one)
        error = await two.refused("session/load", open_params("theirs", "/"))
        assert "no session 'theirs'" in error.message
        in_front.agent.may_answer.set()
        await loading


async def test_the_agents_list_is_asked_before_a_folder_is_believed(house: Shared) -> None:
    holding(house, cwd="/right")
    client = await house.client()
    error = await client.refused("session/load", open_params("theirs", "/wrong"))
    assert error.code == -32602
    await client.load("theirs", "/right")
    assert client.text() == "It is that."


CONTEXT = "<environment_context>\n  <cwd>/work</cwd>\n</environment_context>"


@pytest.mark.parametrize(
    ("messages", "listed", "title"),
    [
        ([CONTEXT, "What is it?"], None, "What is it?"),
        ([CONTEXT + "\n\nWhat is it?"], None, "What is it?"),
        ([CONTEXT + "\n<user_instructions>x</user_instructions>", "Why?"], None, "Why?"),
        ([CONTEXT], None, None),
        (["What is it?"], "<environment_context> <cwd>/wo…", "What is it?"),
        (["What is it?"], "A name", "A name"),
        (["<b>What</b> is it?"], None, "<b>What</b> is it?"),
    ],
)
async def test_what_an_agent_told_the_model_does_not_name_an_adopted_session(
    messages: list[str], listed: str | None, title: str | None, house: Shared
) -> None:
    holding(house, title=listed)
    told = [json.loads(said(text, "user_message_chunk")) for text in messages]
    house.agent.replays["session/load"] = [
        json.dumps({**update, "messageId": str(number)}).encode()
        for number, update in enumerate(told)
    ]
    await house.loaded("theirs")
    assert (await house.journal.session("theirs")).title == title


async def test_a_second_load_while_the_agent_replays_is_checked_and_heeded_like_any_other(
    house: Shared,
) -> None:
    server = {"name": "s", "command": "/bin/true", "args": [], "env": []}
    holding(house)
    one, two, three = [await house.client() for _ in range(3)]
    first = await adopting(house, one)
    wrong = two.begin("session/load", open_params("theirs", "/wrong"))
    other = three.begin("session/load", open_params("theirs", "/", mcpServers=[server]))
    house.agent.may_answer.set()
    await asyncio.wait([first, wrong, other])
    await first
    await other
    assert "belongs to" in str(wrong.exception())
    loads = [asked for method, asked in house.agent.asked if method == "session/load"]
    assert [len(asked["mcpServers"]) for asked in loads] == [0, 1]


async def test_all_who_wait_get_the_session_that_another_process_has_adopted(
    journal: Path,
) -> None:
    elsewhere = shared(journal)
    async with shared(journal) as first, elsewhere as second:
        for house in (first, second):
            holding(house)
        one, two, three = await first.client(), await second.client(), await second.client()
        await two.sessions()
        loading = await adopting(first, one)
        waiting = [
            client.begin("session/load", open_params("theirs", "/")) for client in (two, three)
        ]
        for client in (two, three):
            await client.sessions()
        first.agent.may_answer.set()
        await loading
        for each in waiting:
            with pytest.raises(Refused, match="is open in process"):  # which shares nothing
                await each
        await first.give_way()
        await two.load("theirs")
        await three.load("theirs")
        assert two.text() == three.text() == "It is that."


async def test_a_session_that_is_deleted_while_it_is_adopted_is_deleted_at_the_agent_too(
    house: Shared,
) -> None:
    holding(house)
    house.agent.can("load", "list", "delete")
    house.agent.results["session/delete"] = b"{}"
    client = await house.client()
    loading = await adopting(house, client)
    deleting = client.begin("session/delete", {"sessionId": "theirs"})
    await asyncio.wait([loading])
    assert loading.exception() is not None
    house.agent.may_answer.set()
    await deleting
    assert "session/delete" in [method for method, _ in house.agent.asked]
    assert await client.sessions() == []


async def test_a_command_that_the_agent_ran_in_an_adoption_ends_if_that_fails(
    tmp_path: Path, house: Shared
) -> None:
    noted = tmp_path / "pid"
    holding(house)
    client = await house.client(terminal=True)
    house.agent.results["session/load"] = RemoteError(-32603, "cannot")
    loading = await adopting(house, client)
    script = f"echo $$ > {noted}.new; mv {noted}.new {noted}; exec sleep 1000"
    command = {"command": "sh", "args": ["-c", script]}
    await house.agent.ask_client("terminal/create", sessionId="theirs", **command)
    await until(lambda: noted.exists())
    house.agent.may_answer.set()
    with pytest.raises(Refused):
        await loading
    await until(lambda: not is_running(int(noted.read_text())))
