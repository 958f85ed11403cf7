"""Whatever order the states of a conversation's files are imported in: each turn is there once."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections import Counter
from pathlib import Path
from shutil import rmtree

import pytest
from hypothesis import HealthCheck, Phase, given, settings, strategies as st

from acp_conversation.history.timeline import Message
from acphold.imports import Intake, reader, session_writer
from acphold.journal.journal import Journal, state_of
from acphold.journal.rows import ListFilter
from acphold.journal.stores import open_journal
from tests.imports.every_reader import READERS, Said, claude, found

WORDS = st.sampled_from(["continue", "continue", "y", "yes", "go on", "Fix the first of these."])
ANSWERS = st.sampled_from(["Done.", "Done.", "Yes.", ""])
BEGUN = 1_767_322_800_000


@st.composite
def stories(draw: st.DrawFn) -> list[list[Said]]:
    """The states of a conversation, in which the person said more, or went back to say something
    else; each state is one way, in the order in which they were."""
    ways: list[list[Said]] = []
    way: list[Said] = []
    number, at = 0, BEGUN
    for _ in range(draw(st.integers(1, 5))):
        if way and draw(st.integers(0, 3)) == 0:
            way = way[: draw(st.integers(1, len(way)))]  # one that shares no turn is another one
        for _ in range(draw(st.integers(1, 3))):
            number += 1
            at += draw(st.sampled_from([1000, 1000, 60_000]))
            way = [*way, Said(number, at, draw(WORDS), draw(ANSWERS))]
        ways.append(way)
    return ways


@st.composite
def moments(draw: st.DrawFn) -> list[tuple[list[Said], int]]:
    """The states on disk at each import: any beginning of any way, in one of two places."""
    ways = draw(stories())
    seen: list[tuple[list[Said], int]] = []
    for _ in range(draw(st.integers(1, 7))):
        way = draw(st.sampled_from(ways))
        upto = draw(st.one_of(st.just(len(way)), st.integers(1, len(way))))
        seen.append((way[:upto], draw(st.integers(0, 1))))
    return seen


async def prompts(journal: Journal, session_id: str) -> list[str]:
    state = await state_of(journal, session_id)
    return [
        item.text for item in state.timeline if isinstance(item, Message) and item.role == "user"
    ]


async def check(name: str, seen: list[tuple[list[Said], int]], home: Path) -> None:
    """Import each state in turn; afterwards the newest way is told, and beside it what else was."""
    journal = open_journal(str(home / "journal.db"), create=True)
    told: dict[int, Said] = {}
    clock = 1_767_400_000_000_000_000
    try:
        for way, place in seen:
            if name == "claude":
                claude(home, way, ("-home-ada-project", "-home-ada-copy")[place])
            else:
                READERS[name](home, way)
            clock += 1_000_000_000
            intake = Intake(journal)
            sources = [*found(name, home)]
            for source in sources:
                for path in source.paths:
                    os.utime(path, ns=(clock, clock))
            for source in found(name, home):
                outcome = (await intake.take(source, reader(name))).outcome
                assert outcome in ("new", "grown", "same"), outcome
            told |= {turn.number: turn for turn in way}
        newest = max(told)
        (newest_way,) = {
            tuple(way[: next(n for n, turn in enumerate(way) if turn.number == newest) + 1])
            for way, _ in seen
            if any(turn.number == newest for turn in way)
        }
        rows = await journal.page(ListFilter())
        main = min((row.session_id for row in rows), key=len)
        assert await prompts(journal, main) == [turn.words for turn in newest_way]
        beside: Counter[str] = Counter()
        for row in rows:
            if row.session_id != main:
                beside.update(await prompts(journal, row.session_id))
        others = told.keys() - {turn.number for turn in newest_way}
        assert beside == Counter(told[number].words for number in others)
    finally:
        await journal.aclose()


@pytest.fixture(autouse=True)
def reads_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Short files, too, are read on from their last turn."""
    monkeypatch.setattr(session_writer, "WORTH_CHECKING", 0)


@pytest.mark.parametrize("name", READERS)
@settings(
    max_examples=8,
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],  # each example opens a journal
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(seen=moments())
def test_each_turn_is_told_once_in_whatever_order_its_files_are_read(
    name: str, seen: list[tuple[list[Said], int]], tmp_path: Path
) -> None:
    home = Path(tempfile.mkdtemp(dir=tmp_path))
    try:
        asyncio.run(check(name, seen, home))
    finally:
        rmtree(home, ignore_errors=True)
