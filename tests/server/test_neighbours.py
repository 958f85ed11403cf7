"""The owner of a session is told when somebody else has changed its row."""

from __future__ import annotations

from pathlib import Path

from acphold.journal import NewSession, SqliteJournal
from acphold.server.neighbours import tell_owner, tell_process
from tests.served import Guest, wrapped


def titles(client: Guest) -> list[str]:
    return [u["title"] for u in client.updates() if u["sessionUpdate"] == "session_info_update"]


async def test_the_clients_of_a_session_are_told_its_new_title_before_the_owner_answers(
    journal: Path,
) -> None:
    async with wrapped(journal) as client:
        session = await client.new()
        other = SqliteJournal.open(journal)
        await other.set_title(session, "Mine")
        assert titles(client) == []
        assert await tell_owner(other, session)
        await client.until(lambda: titles(client) == ["Mine"])
        await other.aclose()


async def test_a_session_that_is_live_nowhere_has_nobody_to_be_told(journal: Path) -> None:
    opened = SqliteJournal.open(journal)
    lease = await opened.create(NewSession("s1", "a", "/"), "host:1")
    assert not await tell_owner(opened, "s1")  # a process that cannot be reached
    await opened.release(lease)
    assert not await tell_owner(opened, "s1")
    await opened.aclose()


async def test_an_owner_that_has_gone_is_no_error(tmp_path: Path) -> None:
    assert not await tell_process(str(tmp_path / "gone.sock"), "s1")
