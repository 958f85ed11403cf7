"""The owner of a session is told when somebody else has changed its row."""

from __future__ import annotations

import asyncio
import json
from contextlib import nullcontext
from pathlib import Path

import pytest

from acphold.errors import ConnectionLostError, JournalUnavailableError, UnknownSessionError
from acphold.journal.owners import At
from acphold.journal.rows import NewSession, RowChange
from acphold.journal.stores import open_journal
from acphold.live.reading.one_question import is_answering, telling_owners
from acphold.live.reading.processes import ending_processes, live_anywhere
from acphold.machine.addresses import NODE_TOKEN, are_here, can_be_tried, unix_address
from tests.owners import owning
from tests.served import Guest, wrapped


def titles(client: Guest) -> list[str]:
    return [u["title"] for u in client.updates() if u["sessionUpdate"] == "session_info_update"]


@pytest.mark.parametrize("fails", [False, True])
async def test_the_clients_of_a_session_are_told_its_new_title_also_if_the_next_change_fails(
    journal: Path, client: Guest, *, fails: bool
) -> None:
    session = await client.new()
    other = open_journal(journal)
    with pytest.raises(UnknownSessionError) if fails else nullcontext():
        async with telling_owners(other, [session]):
            await other.change(session, RowChange(given="Mine"))
            assert titles(client) == []
            if fails:
                await other.change("gone", RowChange(given="Mine"))
    await client.until(lambda: titles(client) == ["Mine"])
    await other.aclose()


async def test_an_owner_that_cannot_be_reached_is_no_error(journal: Path) -> None:
    opened = open_journal(journal)
    await opened.release(await opened.create(NewSession("s1", "a", "/")))
    for addresses in ([], ["unix:/nowhere/gone.sock"], ["unheard-of://"]):
        async with owning(journal, "s1", *addresses), telling_owners(opened, ["s1"]):
            pass
    await opened.aclose()


async def test_what_is_live_in_a_container_beside_us_is_told_as_at_any_other_machine(
    journal: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(NODE_TOKEN, "any")

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked = json.loads(await reader.readline())
        result = {"pid": 1, "agent": "a", "sessions": [{"sessionId": "s1", "waiting": True}]}
        answer = json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result})
        writer.write(f"{answer}\n".encode())
        await reader.read()
        writer.close()

    path = tmp_path / "elsewhere"  # no folder of ours, on a kernel that is
    opened = open_journal(journal)
    await opened.release(await opened.create(NewSession("s1", "a", "/")))
    async with (
        await asyncio.start_unix_server(serve, path),
        owning(journal, "s1", unix_address(str(path))),
    ):
        live = await live_anywhere(opened)
        assert {name: session.state for name, (session, _) in live.items()} == {"s1": "waiting"}
        other = open_journal(tmp_path / "other.db")
        assert await live_anywhere(other) == {}
        await other.aclose()
    await opened.aclose()


async def test_a_socket_that_is_not_in_our_folders_is_not_of_this_machine(tmp_path: Path) -> None:
    assert are_here([unix_address(str(tmp_path))])
    assert not are_here([unix_address(str(tmp_path / "in a container"))])
    assert can_be_tried([unix_address(str(tmp_path / "in a container"))])


async def test_a_socket_in_another_folder_of_the_same_path_is_not_the_one_that_is_meant(
    tmp_path: Path,
) -> None:
    folder, path = tmp_path / "run", tmp_path / "run" / "socket"
    folder.mkdir()
    there = unix_address(str(path))
    folder.rename(tmp_path / "of another container")
    folder.mkdir()
    path.touch()
    assert are_here([unix_address(str(path))])
    assert not are_here([there])
    assert not can_be_tried([there])


async def test_an_owner_that_has_stopped_does_not_answer_and_one_that_is_there_does(
    journal: Path, tmp_path: Path
) -> None:
    stopped = unix_address(str(tmp_path / "stopped"))

    async def wait(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    async with await asyncio.start_unix_server(wait, tmp_path / "stopped"):
        assert not await is_answering([stopped], 0.05)
    with pytest.raises(ConnectionLostError):
        await is_answering([stopped], 0.05)
    async with wrapped(journal) as client:
        session = await client.new()
        opened = open_journal(journal)
        owner = await opened.owner(session)
        assert isinstance(owner, At)
        assert await is_answering(owner.owner.addresses, 30)
        await opened.aclose()


def test_a_lock_that_cannot_be_asked_is_named(tmp_path: Path) -> None:
    held = tmp_path / "held"
    held.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(JournalUnavailableError, match=str(held)):
        ending_processes(str(held), "")
