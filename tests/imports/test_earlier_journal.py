"""A journal that the code of an earlier commit has left, and the next import into it."""

from __future__ import annotations

import lzma
from pathlib import Path

from acphold.journal.journal import session_of
from acphold.journal.rows import ListFilter, RowChange
from acphold.journal.stores import open_journal
from tests.imports.earlier_journal import CONTINUED, COPIED, GONE_BACK, STORED, TENANT, write
from tests.imports.test_reconciliation import prompts, take

WAYS = {
    COPIED: ["one", "two", *(f"more {n}" for n in range(5))],
    GONE_BACK: ["one", "back", "more 1", "more 2", "more 3", "more 4"],
    CONTINUED: ["one", "two", "said here"],
}


async def test_the_next_import_puts_right_what_an_earlier_one_multiplied_or_left(
    tmp_path: Path,
) -> None:
    kept = tmp_path / "journal.db"
    kept.write_bytes(lzma.decompress(STORED.read_bytes()))
    journal = open_journal(kept)
    assert (await prompts(journal, COPIED)).count("more 0") > 1
    assert await prompts(journal, GONE_BACK) == ["one", "left"]
    for session in WAYS:
        await journal.change(session, RowChange(tags=("a tag",)))
    write(tmp_path, 4)
    for _ in range(3):
        await take(journal, tmp_path)
        for number, (session, way) in enumerate(WAYS.items(), 1):
            assert await prompts(journal, session) == way
            row = await journal.session(session)
            assert (row.title, row.tags) == (f"Named {number}", ("a tag",))
            assert await session_of(journal, "codex", f"also-{session}") == session
            assert await session_of(journal, "claude", session) == session
        (tail,) = {row.session_id for row in await journal.page(ListFilter())} - WAYS.keys()
        assert tail.startswith(f"{GONE_BACK}~")
        assert await prompts(journal, tail) == ["left"]
        shares = await journal.access.shares()  # some held, as this is a copy of that journal
        assert {(it.session_id, it.tenant) for it in shares} == {
            (session, TENANT) for session in (*WAYS, tail)
        }
    await journal.aclose()
