"""Tokens and shares are good under the identity of the journal in which they were made."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from acphold.journal.access import SCOPES, Share, new_token
from acphold.journal.journal import Identity, Journal
from acphold.journal.rows import NewSession
from acphold.journal.sqlite.session_rows import SqliteTables
from acphold.journal.stores import open_journal


def become(patch: pytest.MonkeyPatch, mark: str, *, is_kept: bool = True) -> None:
    """Give all journals this identity."""
    patch.setattr(SqliteTables, "identity", lambda _: Identity(b"", mark, is_kept))


async def grant(journal: Journal, name: str, session_id: str) -> None:
    await journal.access.keep_token(new_token(name, SCOPES, 1)[1])
    await journal.access.keep_share(Share(session_id, name))


async def good(journal: Journal) -> tuple[set[str], set[str], set[str]]:
    """The names of the tokens and of the shares that are good, and who a session is shared with."""
    tokens = {it.name for it in await journal.access.tokens() if not it.is_held}
    shares = {it.tenant for it in await journal.access.shares() if not it.is_held}
    rows = [await journal.session(id_) for id_ in ("one", "two")]
    return tokens, shares, {tenant for row in rows for tenant in row.shared_with}


async def two_sessions(path: Path) -> Journal:
    journal = open_journal(path)
    for id_ in ("one", "two"):
        await journal.release(await journal.create(NewSession(id_, "a", "/")))
    return journal


async def test_under_an_identity_that_returns_access_is_good_again_and_what_was_made_meanwhile_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = await two_sessions(tmp_path / "journal.db")
    for mark, name, session_id in (("first", "ada", "one"), ("second", "bob", "two")):
        become(monkeypatch, mark)
        await journal.access.hold()
        assert await good(journal) == (set(), set(), set())
        await grant(journal, name, session_id)
        assert await good(journal) == ({name}, {name}, {name})
    become(monkeypatch, "first")
    await journal.access.hold()
    assert await good(journal) == ({"ada"}, {"ada"}, {"ada"})
    await journal.access.accept()
    assert await good(journal) == ({"ada", "bob"},) * 3
    await journal.aclose()


@pytest.mark.parametrize("is_kept", [True, False])
async def test_access_of_an_earlier_release_is_good_where_the_identity_fits_the_place(
    is_kept: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = await two_sessions(tmp_path / "journal.db")
    become(monkeypatch, "first")
    await grant(journal, "ada", "one")
    await journal._write(  # type: ignore[attr-defined]
        lambda tables: tables.execute("DELETE FROM acphold.meta WHERE name = 'access'")
    )
    become(monkeypatch, "first", is_kept=is_kept)
    await journal.access.hold()
    assert await good(journal) == (({"ada"} if is_kept else set()),) * 3
    await journal.aclose()


async def test_many_shares_are_held_by_as_many_statements_as_one_and_their_sessions_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts: list[int] = []
    execute = SqliteTables.execute

    def counting(tables: SqliteTables, *given: Any) -> Any:
        counts[-1] += 1
        return execute(tables, *given)

    monkeypatch.setattr(SqliteTables, "execute", counting)
    for tenants in (["ada"], [f"tenant {number}" for number in range(40)]):
        counts.append(0)
        journal = await two_sessions(tmp_path / f"{len(tenants)}.db")
        become(monkeypatch, "first")
        await journal.access.hold()
        for tenant in tenants:
            await journal.access.keep_share(Share("one", tenant))
        place = (await journal.changes(None)).last
        become(monkeypatch, "second")
        counts[-1] = 0
        await journal.access.hold()
        assert (await journal.session("one")).shared_with == {}
        assert (await journal.changes(place)).session_ids == ["one"]
        await journal.aclose()
    assert counts[0] == counts[1]
