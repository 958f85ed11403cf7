"""A title that a person gave wins over the agent's, also when it was given in another process."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from acphold.conversation.history.titles import UNTITLED
from acphold.errors import JournalBusyError, JournalError
from acphold.journal import bounds as journal_bounds
from acphold.journal.journal import state_of
from acphold.journal.rows import NewSession, RowChange
from acphold.journal.stores import open_journal
from acphold.live.agents.interface import Updates
from acphold.live.hub.annotations import GIVEN_LENGTH, as_title, title_update
from tests.editor import DEADLINE
from tests.hub.shared import Onlooker, Shared, shared


def told(client: Onlooker) -> list[str | None]:
    """The titles that a client was told, in order."""
    return [
        update["title"]
        for update in client.updates()
        if update["sessionUpdate"] == "session_info_update" and "title" in update
    ]


async def name(house: Shared, session: str, title: str, **beside: Any) -> None:
    """The agent calls the session so."""
    update = {"sessionUpdate": "session_info_update", "title": title}
    raw = json.dumps({"update": update, **beside} if beside else update).encode()
    kind = "params" if beside else "update"
    await house.agent.listener.hear(Updates(session, kind, [raw]))


async def rename(journal: Path, session: str, title: str) -> None:
    """As another process does it: in the journal alone."""
    other = open_journal(journal)
    await other.change(session, RowChange(given=title))
    await other.aclose()


async def titles(client: Onlooker) -> list[str | None]:
    return [listed.get("title") for listed in await client.sessions()]


async def test_a_session_is_a_programs_until_a_person_prompts_it(house: Shared) -> None:
    program, session = await house.opened(_meta={"acphold/automatic": True})

    async def is_by_program() -> bool:
        return (await house.journal.session(session)).by_program

    assert not await is_by_program()
    for _ in range(2):
        await house.turn(program, session, "Look")
        assert await is_by_program()
    [listed] = await program.sessions()
    assert listed["_meta"]["acphold/byProgram"] is True
    person = await house.loaded(session)
    await house.turn(person, session, "And now?")
    assert not await is_by_program()
    await house.turn(program, session, "Look")
    assert not await is_by_program()


async def test_an_agent_does_not_rename_what_a_person_has_named(
    journal: Path, house: Shared
) -> None:
    client, session = await house.opened()
    await name(house, session, "The agent's")
    await rename(journal, session, "Mine")
    await name(house, session, "The agent's second")
    assert await titles(client) == ["Mine"]
    await house.hub.look_at(session)
    await client.until(lambda: told(client) == ["The agent's", "Mine"])


async def test_a_given_title_wins_over_one_that_is_passed_on_whole(
    journal: Path, house: Shared
) -> None:
    client, session = await house.opened()
    await rename(journal, session, "Mine")
    await name(house, session, "The agent's", _meta={"x": 1})
    await client.until(lambda: told(client)[-1:] == ["Mine"])
    assert await titles(client) == ["Mine"]


async def test_clients_are_told_of_it_by_and_by(
    journal: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_bounds, "RENEW_SECONDS", 0.01)
    async with shared(journal) as house:
        client, session = await house.opened()
        await rename(journal, session, "Mine")
        await client.until(lambda: told(client) == ["Mine"])


async def test_a_title_given_while_an_update_waits_for_the_journal_keeps_nobody_waiting(
    journal: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_bounds, "RENEW_SECONDS", 0.01)
    async with shared(journal) as house:
        client, session = await house.opened()
        append, tried = type(house.journal).append, list[str]()

        async def append_later(*given: Any) -> Any:
            if not tried:
                tried.append(session)
                await rename(journal, session, "Mine")
                raise JournalBusyError("database is locked")
            return await append(*given)

        monkeypatch.setattr(type(house.journal), "append", append_later)
        async with asyncio.timeout(DEADLINE):
            await house.agent.say(session, "Hello")
        await client.until(lambda: told(client) == ["Mine"])


async def test_a_client_that_loads_the_session_later_is_told_its_title_last(journal: Path) -> None:
    async with shared(journal) as house:
        client, session, turn = await house.in_turn("Hello")
        await name(house, session, "The agent's")
        await house.ended(session, turn)
    await rename(journal, session, "Mine")
    async with shared(journal) as house:
        client = await house.loaded(session)
        assert told(client)[-1] == "Mine"
        assert (await state_of(house.journal, session)).attributes.title == "Mine"


async def test_the_next_prompt_gives_a_title_where_a_person_took_it_out_but_not_the_agent(
    journal: Path,
) -> None:
    async with shared(journal) as house:
        client, session = await house.opened()
        await house.turn(client, session, "My secret")
    await rename(journal, session, UNTITLED)
    async with shared(journal) as house:
        client = await house.loaded(session)
        await name(house, session, "The agent's, of a secret")
        await house.turn(client, session, "hi")
        assert await titles(client) == [UNTITLED]
        await house.turn(client, session, "Fix the parser")
        assert await titles(client) == ["Fix the parser"]
        await name(house, session, "The agent's second")
        assert await titles(client) == ["Fix the parser"]
        assert told(client)[-2:] == [UNTITLED, "Fix the parser"]


async def test_a_given_title_is_not_told_twice_and_does_not_move_the_session(
    journal: Path, house: Shared
) -> None:
    _, session = await house.opened()
    before = await house.journal.session(session)
    await rename(journal, session, "Mine")
    for _ in range(3):
        await house.hub.look_at(session)
    row = await house.journal.session(session)
    assert row.last_seq == before.last_seq + 1
    assert row.updated_at == before.updated_at


async def test_a_session_that_is_not_live_here_is_nothing_to_look_at(house: Shared) -> None:
    client = await house.client()
    await house.hub.look_at("nobody")
    assert client.updates() == []


async def test_a_session_that_was_deleted_has_no_title_to_be_told(house: Shared) -> None:
    client, session = await house.opened()
    await house.journal.delete(session)
    await house.hub.look_at(session)
    assert told(client) == []


async def test_a_prompt_brings_an_archived_session_back_though_the_clock_is_set_back(
    monkeypatch: pytest.MonkeyPatch, house: Shared
) -> None:
    client, session = await house.opened()
    for hours in (1, 0):
        at = 1_800_000_000_000 + hours * 3_600_000
        monkeypatch.setattr(type(house.journal), "now_ms", lambda _, at=at: at)
        await house.turn(client, session, "and on")
        assert not (await house.journal.session(session)).archived
        await house.journal.change(session, RowChange(archived=True))


async def test_a_prompt_right_behind_another_brings_back_what_was_archived_between_them(
    monkeypatch: pytest.MonkeyPatch, house: Shared
) -> None:
    # All in a second.
    monkeypatch.setattr(type(house.journal), "now_ms", lambda _: 1_800_000_000_000)
    house.unstable = True
    one, two = await house.client(), await house.client()
    session = await one.new()
    for archived in (False, True):
        if archived:
            await two.call("session/archive", {"sessionId": session})
            assert (await house.journal.session(session)).archived
        await house.turn(one, session, "and on")
        assert not (await house.journal.session(session)).archived


async def test_a_title_that_changes_with_each_append_is_a_row_change_a_second_at_most(
    monkeypatch: pytest.MonkeyPatch, house: Shared
) -> None:
    changes: list[RowChange] = []
    append, change = type(house.journal).append, type(house.journal).change

    async def note_append(self: Any, lease: Any, runs: Any, change: Any = None) -> Any:
        changes.extend([] if change is None else [change])
        return await append(self, lease, runs, change)

    async def note_change(self: Any, of: Any, its: RowChange) -> None:
        changes.append(its)
        await change(self, of, its)
        second.set()

    second = asyncio.Event()
    client, session = await house.opened()
    monkeypatch.setattr(type(house.journal), "append", note_append)
    monkeypatch.setattr(type(house.journal), "change", note_change)
    for number in range(10):
        await name(house, session, f"The agent's, {number}")
    await house.hub.look_at(session)
    assert [it.title for it in changes] == ["The agent's, 0"]
    await asyncio.wait_for(second.wait(), DEADLINE)
    assert [it.title for it in changes] == ["The agent's, 0", "The agent's, 9"]
    assert await titles(client) == ["The agent's, 9"]


async def test_the_last_title_of_a_session_that_is_closed_at_once_is_kept(journal: Path) -> None:
    async with shared(journal) as house:
        _, session = await house.opened()
        for title in ("The agent's", "The agent's second"):
            await name(house, session, title)
    other = open_journal(journal)
    assert (await other.session(session)).title == "The agent's second"
    await other.aclose()


async def test_a_title_that_is_written_late_does_not_replace_one_that_came_meanwhile(
    monkeypatch: pytest.MonkeyPatch, house: Shared
) -> None:
    client, session = await house.opened()
    row = house.hub.conversation(session).session.row
    change = type(house.journal).change
    begun, may_write = asyncio.Event(), asyncio.Event()

    async def change_late(self: Any, of: Any, its: RowChange) -> None:
        begun.set()
        await may_write.wait()
        await change(self, of, its)

    for title in ("The agent's", "The agent's second"):
        await name(house, session, title)
    monkeypatch.setattr(type(house.journal), "change", change_late)
    async with asyncio.timeout(DEADLINE):
        moving = asyncio.create_task(row.move_up())
        await begun.wait()
        monkeypatch.setattr("acphold.live.hub.bounds.TOUCH_MS", 0)
        await name(house, session, "The agent's third")
        may_write.set()
        await moving
    assert await titles(client) == ["The agent's third"]


async def test_a_title_that_was_put_off_is_written_though_the_next_is_not(
    monkeypatch: pytest.MonkeyPatch, house: Shared
) -> None:
    client, session = await house.opened()
    live = house.hub.conversation(session).session
    for title in ("The agent's", "The agent's second"):
        await name(house, session, title)

    async def refuse(*_: Any) -> None:
        raise JournalError("the disk is full")

    with monkeypatch.context() as full:
        full.setattr(type(house.journal), "append", refuse)
        with pytest.raises(JournalError):
            await live.publish("update", [title_update("Lost")], change=RowChange(unseen=True))
    await live.row.move_up()
    assert await titles(client) == ["The agent's second"]


@pytest.mark.parametrize("key", ["puppet", "second"])
@pytest.mark.parametrize("way", ["told", "listed"])
async def test_an_agent_that_came_later_does_not_rename_a_conversation(
    journal: Path, key: str, way: str
) -> None:
    said = "Find out why our docker image is 2.1 GB"
    async with shared(journal) as house:
        _, session = await house.talked(said, "ONE")
    async with shared(journal, all_agents=True) as house:  # it has lost the conversation
        house.agent.key, house.agent.first_id = key, 5
        client = await house.loaded(session)
        await house.turn(client, session, "ok do it", "TWO", own="s5")
        for title in ("ok do it", "A plan of its own", "New session - 2026-09-01T11:20:40Z"):
            if way == "told":
                await name(house, "s5", title)
            else:
                house.agent.can("list")
                house.agent.lists = [{"sessionId": "s5", "cwd": "/", "title": title}]
            assert await titles(client) == [said]


async def test_a_title_that_repeats_a_prompt_or_is_a_default_is_none(house: Shared) -> None:
    client, session = await house.opened()
    await house.turn(client, session, "/model opus")
    assert await titles(client) == ["/model opus"]
    for text in ("Please, mend the gate of the garden", "Then paint it"):
        await house.turn(client, session, text)
        for title in ("New session (fork #1)", text[:12], "/model opus"):
            await name(house, session, title)
            assert await titles(client) == ["Mend the gate of the garden"]
    await name(house, session, "Garden work")
    assert await titles(client) == ["Garden work"]


async def test_the_last_title_of_a_turn_is_written_with_its_end(house: Shared) -> None:
    client, session, turn = await house.in_turn("Hello")
    for title in ("The agent's", "The agent's second"):
        await name(house, session, title)
    await house.ended(session, turn)
    assert await titles(client) == ["The agent's second"]


async def test_the_last_title_of_a_turn_in_which_its_process_was_killed_is_kept(
    house: Shared,
) -> None:
    journal = house.journal
    lease = await journal.create(NewSession("s1", "puppet", "/"))
    await journal.append(lease, [("prompt", [b'[{"type":"text","text":"Hello"}]'])])
    change = RowChange(title="First", prompted=True)
    await journal.append(lease, [("update", [title_update("First")])], change)
    await journal.append(lease, [("update", [title_update("Second")])])  # its row was put off
    client = await house.loaded("s1")
    await house.hub.look_at("s1")
    assert (await state_of(journal, "s1")).attributes.title == "Second"
    await house.hub.conversation("s1").session.row.move_up()
    assert await titles(client) == ["Second"]


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("  Mend\tthe \n gate ", "Mend the gate"),
        ("水", "水"),
        ("half a smile \ud83d", "half a smile ?"),
        ("", None),
        (" …?! ", None),
        ("x" * 300, "x" * (GIVEN_LENGTH - 1) + "…"),
    ],
)
def test_a_given_title_is_one_line_with_a_word_in_it(given: str, kept: str | None) -> None:
    assert as_title(given) == kept
