"""What is imported comes without the texts that a person has removed, from every program."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from acphold.imports import Intake, reader
from acphold.journal.journal import Journal, history
from acphold.journal.removal import blank_sessions, note
from acphold.journal.rows import ListFilter
from tests.imports.every_reader import READERS, Said, found, write

SECRET = "sk-SEKRET77xyz"
BEGUN = 1_767_322_800_000
TOLD = [
    Said(1, BEGUN, f"the key is {SECRET} for you", "A1"),
    Said(2, BEGUN + 60_000, "two", f"with {SECRET} in it"),
    Said(3, BEGUN + 120_000, "three", "A3"),
]


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize("is_known", [False, True])
async def test_a_text_comes_with_no_import_and_all_else_does_once(
    opened: Journal, tmp_path: Path, name: str, *, is_known: bool
) -> None:
    async def take(count: int) -> str:
        write(name, tmp_path, TOLD[:count])
        (source,) = found(name, tmp_path)
        source = replace(source, changed_at=source.changed_at + count)
        return (await Intake(opened, at_once=True).take(source, reader(name))).outcome

    if is_known:
        await take(2)
    await blank_sessions(opened, await note(opened, SECRET))
    assert await take(2) == ("same" if is_known else "new")
    assert await take(3) == "grown"
    assert await take(3) == "same"
    (row,) = await opened.page(ListFilter())
    raw = b"".join([segment.raw async for segment in history(opened, row.session_id)])
    assert SECRET not in f"{row} {raw!r}"
    told = [raw.count(words) for words in (b"the key is [removed: forgotten] for you", b"A3")]
    assert (told[0] >= 1, told[1], raw.count(b"in it")) == (True, 1, 1)
    assert raw.count(b"three") >= 1
