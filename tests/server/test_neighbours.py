"""The owner of a session is told when somebody else has changed its row."""

from __future__ import annotations

from pathlib import Path

from acphold.journal import NewSession, RowChange
from acphold.journal.stores import open_journal
from acphold.server.neighbours import tell_owner
from tests.owners import owning
from tests.served import Guest, wrapped


def titles(client: Guest) -> list[str]:
    return [u["title"] for u in client.updates() if u["sessionUpdate"] == "session_info_update"]


async def test_the_clients_of_a_session_are_told_its_new_title_before_the_owner_answers(
    journal: Path,
) -> None:
    async with wrapped(journal) as client:
        session = await client.new()
        other = open_journal(journal)
        await other.change(session, RowChange(given="Mine"))
        assert titles(client) == []
        assert await tell_owner(await other.owner(session), session)
        await client.until(lambda: titles(client) == ["Mine"])
        await other.aclose()


async def test_a_session_that_is_live_nowhere_has_nobody_to_be_told(journal: Path) -> None:
    opened = open_journal(journal)
    await opened.release(await opened.create(NewSession("s1", "a", "/")))
    assert not await tell_owner(await opened.owner("s1"), "s1")
    await opened.aclose()


async def test_an_owner_that_cannot_be_reached_is_no_error(journal: Path) -> None:
    opened = open_journal(journal)
    await opened.release(await opened.create(NewSession("s1", "a", "/")))
    for addresses in ([], ["unix:/nowhere/gone.sock"], ["unheard-of://"]):
        async with owning(journal, "s1", *addresses):
            assert not await tell_owner(await opened.owner("s1"), "s1")
    await opened.aclose()
