"""Whatever order the states of a conversation's files are imported in: each turn is there once."""

from __future__ import annotations

import asyncio
import io
import json
import os
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import aclosing
from itertools import product
from pathlib import Path
from shutil import copyfile, rmtree
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, Phase, given, settings, strategies as st
from msgspec.structs import replace

from acphold.conversation.history.timeline import Message
from acphold.imports import NAMES, Intake, Source, pieces, reader, session_writer
from acphold.imports.aider import TYPED
from acphold.imports.records import SMALL_BYTES
from acphold.imports.session_writer import CHECKED_BYTES
from acphold.journal.journal import Journal, state_of, tails_of
from acphold.journal.rows import ListFilter
from acphold.journal.stores import open_journal
from tests.empty_journal import empty
from tests.imports.every_reader import OLDER_FORMS, READERS, Said, found, write

WORDS = st.sampled_from(["continue", "continue", "y", "yes", "", "Fix the first of these."])
ANSWERS = st.sampled_from(["Done.", "Done.", "Yes.", ""])
BEGUN = 1_767_322_800_000
FIRST, LEFT, OLDER, NEWER, NEWEST = (
    Said(number, BEGUN + 60_000 * number, "y", "Done.") for number in range(1, 6)
)
"""Two ways behind a turn that was itself left."""
OTHER = NEWEST._replace(words="yes")


@st.composite
def stories(draw: st.DrawFn) -> list[list[Said]]:
    """The states of a conversation, in which the person said more, or went back to say something
    else; each state is one way, in the order in which they were."""
    ways: list[list[Said]] = []
    way: list[Said] = []
    number, at = 0, BEGUN
    for _ in range(draw(st.integers(1, 5))):
        if way and draw(st.integers(0, 3)) == 0:
            way = way[: draw(st.integers(0, len(way)))]
        at += 1000
        for _ in range(draw(st.integers(1, 3))):
            number += 1
            at += draw(st.sampled_from([0, 1000, 60_000]))  # several prompts within one tick
            words = draw(WORDS) if way else "Fix the first of these."
            way = [*way, Said(number, at, words, draw(ANSWERS) if words else "")]
        ways.append(way)
    return ways


@st.composite
def moments(draw: st.DrawFn) -> list[tuple[list[Said], int]]:
    """The states on disk at each import: any beginning of any way, in one of two places, once
    without its own beginning; at last the way with the newest of these turns, from its first."""
    ways = draw(stories())
    seen: list[tuple[list[Said], int]] = []
    without_beginning = draw(st.integers(0, 6))
    for number in range(draw(st.integers(1, 7))):
        way = draw(st.sampled_from(ways))
        upto = draw(st.one_of(st.just(len(way)), st.integers(1, len(way))))
        way = way[:upto]
        if number == without_beginning:
            begin = draw(st.integers(0, upto - 1))
            # Where a program gives new ids, words and times are all that a turn is known by.
            moments = [(turn.words, turn.at) for it in ways for turn in it if turn != way[begin]]
            way = way[begin if (way[begin].words, way[begin].at) not in moments else 0 :]
        if draw(st.integers(0, 3)) == 0:  # cut inside of the last turn
            cut = way[-1].answer[: draw(st.integers(0, 2))]
            way = [*way[:-1], way[-1]._replace(answer=cut)]
        seen.append((way, draw(st.integers(0, 1))))
    newest = max((turn.number for way, _ in seen for turn in way if turn.words), default=1)
    whole = next(way for way in ways if any(turn.number == newest for turn in way))
    end = [turn for turn in whole if turn.number <= newest]
    return [*seen, (end, draw(st.integers(0, 1)))]


async def turns(journal: Journal, session_id: str) -> list[tuple[str, str]]:
    """The prompts of a session, each with its answer."""
    state = await state_of(journal, session_id)
    found: list[tuple[str, str]] = []
    for item in state.timeline:
        if isinstance(item, Message) and item.role == "user":
            found.append((item.text, ""))
        elif isinstance(item, Message) and item.role == "agent":
            asked, answer = found[-1] if found else ("nothing", "")
            found[-1:] = [(asked, answer + item.text)]
    return [turn for turn in found if turn[0]]  # of an empty prompt nothing need be told


async def check(name: str, seen: list[tuple[list[Said], int]], home: Path) -> None:
    """Import each state in turn, and the whole newest way; then that is told, and beside it what
    else was."""
    journal = open_journal(empty(home / "journal.db"))
    told: dict[int, Said] = {}
    its_id = ""
    clock = 1_767_400_000_000_000_000
    try:
        for way, place in seen:
            if name == "aider" and way[0].number > 1:
                continue  # where a chat begins, it has its name
            write(name, home, way, copied=place == 1)
            clock += 1_000_000_000
            intake = Intake(journal)
            for source in found(name, home):
                its_id = source.session_id
                source = replace(source, changed_at=clock)  # each is another state
                outcome = (await intake.take(source, reader(name))).outcome
                assert outcome in ("new", "apart", "grown", "same", "empty"), outcome
            newest_way = [turn.number for turn in way if turn.words]
            for turn in (turn for turn in way if turn.words):
                told[turn.number] = max(told.get(turn.number, turn), turn, key=lambda it: it.answer)
            rows = await journal.page(ListFilter())
            every = [turn for row in rows for turn in await turns(journal, row.session_id)]
            assert Counter(words for words, _ in every) == Counter(it.words for it in told.values())
        here = [await turns(journal, row.session_id) for row in rows]
        # What a turn lacked when it was read first is added.
        whole = [(told[number].words, told[number].answer) for number in newest_way]
        assert whole in here
        here.remove(whole)
        others = told.keys() - {*newest_way}
        assert Counter(words for turns in here for words, _ in turns) == Counter(
            told[number].words for number in others
        )
        # A file of somebody else, of the same id and first words, is another conversation.
        first = told[min(told)]
        strange = [first._replace(number=900), first._replace(number=901, at=first.at + 1)]
        strange = [turn._replace(at=turn.at + 5_000_000_000) for turn in strange]
        write(name, home / "given", strange)
        for source in found(name, home / "given"):
            if is_told := source.session_id == its_id:
                source = replace(source, given=True)
                taken = await Intake(journal).take(source, reader(name))
                assert taken.outcome == "apart"
        assert is_told or name == "aider"
        assert whole in [await turns(journal, row.session_id) for row in rows]
    finally:
        await journal.aclose()


@pytest.fixture(autouse=True)
def reads_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Short files, too, are read on from their last turn."""
    monkeypatch.setattr(session_writer, "WORTH_CHECKING", 0)


def test_every_reader_is_tried() -> None:
    assert [*READERS] == [*NAMES]


def take_in(name: str, seen: list[tuple[list[Said], int]], tmp_path: Path) -> None:
    home = Path(tempfile.mkdtemp(dir=tmp_path))
    try:
        asyncio.run(check(name, seen, home))
    finally:
        rmtree(home, ignore_errors=True)


SETTINGS = settings(
    deadline=None,
    phases=[Phase.reuse, Phase.generate],  # each example opens a journal
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


ORDERS: Final[tuple[list[tuple[list[Said], int]], ...]] = (
    [([FIRST, LEFT._replace(answer="Do")], 0), ([FIRST, LEFT, OLDER], 0)],
    [([FIRST, LEFT, OLDER], 0), ([FIRST, LEFT, NEWER], 1), ([FIRST, NEWEST], 0)],
    [([FIRST], 0), ([NEWER, NEWEST], 1), ([FIRST, NEWER], 0), ([FIRST, NEWER, NEWEST], 0)],
    [
        *[([FIRST], 0), ([OLDER], 1), ([NEWER], 1), ([NEWEST], 1), ([OLDER], 1), ([FIRST], 0)],
        ([FIRST, OLDER, NEWER, NEWEST], 0),
    ],
    [
        *[([LEFT, OLDER], 1), ([FIRST, OTHER], 0), ([OTHER._replace(answer="Do")], 1)],
        ([FIRST, OTHER], 0),
    ],
)
"""Orders in which a turn was once lost or told twice."""


@pytest.mark.parametrize("is_quick", [True, pytest.param(False, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", READERS)
def test_each_turn_is_told_once_in_orders_in_which_one_was_not(
    name: str, tmp_path: Path, *, is_quick: bool
) -> None:
    place = [*READERS].index(name)
    for number, seen in enumerate(ORDERS):
        if is_quick == ((number + place) % 2 == 0):
            take_in(name, seen, tmp_path)


@pytest.mark.parametrize("name", READERS)
def test_five_equal_turns_of_one_time_are_five_whatever_is_read_first(
    name: str, tmp_path: Path
) -> None:
    five = [Said(number, BEGUN, "continue", "Done.") for number in range(1, 6)]
    seen = [(five[:3], 0), (five[:2], 1), (five, 1), (five[:1], 0), (five, 0)]
    take_in(name, seen, tmp_path)


@pytest.mark.parametrize("name", READERS)
@settings(SETTINGS, max_examples=2)
@given(seen=moments())
def test_each_turn_is_told_once_in_whatever_order_its_files_are_read(
    name: str, seen: list[tuple[list[Said], int]], tmp_path: Path
) -> None:
    take_in(name, seen, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", READERS)
@settings(SETTINGS, max_examples=20)
@given(seen=moments())
def test_each_turn_is_told_once_in_any_of_many_orders(
    name: str, seen: list[tuple[list[Said], int]], tmp_path: Path
) -> None:
    take_in(name, seen, tmp_path)


@pytest.mark.parametrize("name", READERS)
async def test_a_prompt_without_a_time_is_no_newer_than_one_that_has_its_time(
    name: str, opened: Journal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pieces, "PIECE_BYTES", 1)
    way = [FIRST, NEWEST]
    for clock, told in enumerate(([FIRST, LEFT, OLDER], way)):
        write(name, tmp_path, told)
        for source in found(name, tmp_path):
            changed_at = (FIRST.at + 86_400_000 + clock) * 1_000_000
            await Intake(opened).take(replace(source, changed_at=changed_at), reader(name))
    here = [await turns(opened, row.session_id) for row in await opened.page(ListFilter())]
    assert [(turn.words, turn.answer) for turn in way] in here
    assert sum(map(len, here)) == 4


@pytest.fixture
def bytes_read(monkeypatch: pytest.MonkeyPatch) -> list[range]:
    """The bytes of lines that are read from now on: their places in their files."""
    found: list[range] = []

    class Counting(io.FileIO):
        def readinto(self, buffer: Any) -> int | None:
            at = self.tell()
            count = super().readinto(buffer)
            found.append(range(at, at + (count or 0)))
            return count

    monkeypatch.setattr(io, "FileIO", Counting)
    return found


DATABASES = frozenset({"aider", "crush", "cursor", "goose", "hermes", "kilo", "opencode", "zed"})
"""Readers of databases, and of one file for many."""


MARKS = (" (copy)", " copy 2", " - Copy (2)", " (1)", ".bak", "_backup", "~")


def copy_beside(home: Path) -> None:
    for path, mark in [*product(home.rglob("*.*json*"), MARKS)]:
        copyfile(path, path.with_name(f"{path.stem}{mark}{path.suffix}"))


READ_ON = ["claude", "codex", "copilot", "gemini", "pi", "qwen", *OLDER_FORMS]
"""Readers of files of lines that go on."""


def change_the_beginning(home: Path) -> None:
    for path in home.rglob("*.jsonl"):
        path.write_bytes(path.read_bytes().replace(b'"one"', b'"two"'))


@pytest.mark.parametrize("name", [*READERS])
async def test_where_nothing_is_new_no_file_is_read(
    name: str, opened: Journal, tmp_path: Path, bytes_read: list[range]
) -> None:
    write(name, tmp_path, [Said(0, BEGUN, "one", "On one")])
    intake = Intake(opened)
    (source,) = found(name, tmp_path)
    assert (await intake.take(source, reader(name))).outcome == "new"
    assert bytes_read or Path(source.paths[0]).suffix != ".jsonl"
    bytes_read.clear()
    assert await intake.select_changed([source], reader(name)) == ([], {"same": 1})
    assert (await intake.take(source, reader(name))).outcome == "same"
    assert bytes_read == []


@pytest.mark.parametrize("name", READ_ON)
async def test_where_only_the_time_is_new_nothing_old_is_read_but_what_is_checked(
    name: str, opened: Journal, tmp_path: Path, bytes_read: list[range]
) -> None:
    words = ["one", *("x" * CHECKED_BYTES for _ in range(50)), "last"]
    told = [Said(n, BEGUN + 60_000 * n, it, f"On {it[:5]}") for n, it in enumerate(words)]
    write(name, tmp_path, told)
    for outcome in ("new", "same"):
        (source,) = found(name, tmp_path)
        bytes_read.clear()
        taken = await Intake(opened).take(source, reader(source.reader))
        assert taken.outcome == outcome
        for path in source.paths:
            os.utime(path, (0, 0))
    old = {at for part in bytes_read for at in part if at < source.size - CHECKED_BYTES}
    # The first line, or a rollout's first ones, tell what the later ones mean.
    heads = {"codex": SMALL_BYTES, "goose before 1.10": 1}
    assert len(old) <= (heads[name] + 2 * CHECKED_BYTES if name in heads else 0)
    assert bytes_read


@pytest.mark.parametrize("name", READ_ON)
async def test_of_lines_that_were_added_nothing_old_is_read_but_what_is_checked(
    name: str, opened: Journal, tmp_path: Path
) -> None:
    words = ["one", "x" * CHECKED_BYTES, "three", "four", "five"]
    told = [Said(n, BEGUN + 60_000 * n, it, f"On {it[:5]}") for n, it in enumerate(words)]
    for count in (3, 4, 5):
        write(name, tmp_path, told[:count])
        if count > 3:
            change_the_beginning(tmp_path)
        (source,) = found(name, tmp_path)
        await Intake(opened).take(source, reader(source.reader))
    (row,) = await opened.page(ListFilter())
    here = await turns(opened, row.session_id)
    assert [asked[:5] for asked, _ in here] == ["one", "xxxxx", "three", "four", "five"]
    assert [answer for _, answer in here] == [turn.answer for turn in told]


def told_in(source: Source) -> Path:
    return Path(source.paths[-1] if source.reader == "acpx" else source.paths[0])


def in_each_state(path: Path) -> Iterator[None]:
    """Yield without the lines that have the third turn's id, and with them."""
    whole = path.read_bytes()
    lines = [line for line in whole.splitlines(keepends=True) if b'"r2"' not in line]
    path.write_bytes(b"".join(line for line in lines if b'"t2"' not in line or b"user" in line))
    yield
    path.write_bytes(whole)
    yield


@pytest.mark.parametrize("name", ["acpx", "codex"])
async def test_a_turn_whose_id_stood_in_a_damaged_line_is_told_once_when_that_is_restored(
    name: str, opened: Journal, tmp_path: Path
) -> None:
    write(name, tmp_path, [Said(n, BEGUN + n, f"Q{n}", f"A{n}") for n in range(4)])
    for _ in in_each_state(Path(next(found(name, tmp_path)).paths[-1])):
        for source in found(name, tmp_path):
            await Intake(opened).take(source, reader(name))
        (row,) = await opened.page(ListFilter())
        assert await turns(opened, row.session_id) == [(f"Q{n}", f"A{n}") for n in range(4)]


@pytest.mark.parametrize("name", READ_ON)
async def test_a_line_that_is_mended_in_place_while_the_file_grows_is_taken_in(
    name: str, opened: Journal, tmp_path: Path
) -> None:
    words = ["one", "two", "x" * CHECKED_BYTES, "y" * CHECKED_BYTES, "last", "more"]
    told = [Said(n, BEGUN + 60_000 * n, it, f"On {it[:5]}") for n, it in enumerate(words)]
    for count, is_damaged in ((5, True), (6, False)):
        write(name, tmp_path, told[:count])
        (source,) = found(name, tmp_path)
        if is_damaged:
            whole = source.path.read_bytes()
            begin = whole.index(b"On two")
            source.path.write_bytes(whole[:begin] + bytes(40) + whole[begin + 40 :])
        await Intake(opened).take(source, reader(source.reader))
        (row,) = await opened.page(ListFilter())
        answers = [answer for _, answer in await turns(opened, row.session_id)]
        assert answers == [turn.answer for turn in told] or is_damaged


@pytest.mark.parametrize("name", ["claude", "copilot", "gemini", "pi", "qwen"])
async def test_a_record_whose_kind_was_damaged_is_read_again_once_it_is_mended(
    name: str, opened: Journal, tmp_path: Path
) -> None:
    told = [Said(n, BEGUN + 60_000 * n, f"Q{n}", f"A{n}") for n in range(4)]
    write(name, tmp_path, told)
    (source,) = found(name, tmp_path)
    whole = source.path.read_bytes()
    kind_at = whole.index(b'"type"', whole.rindex(b"\n", 0, whole.index(b'"A1"')))
    for count, content in enumerate((whole[:kind_at] + b'"tqpe"' + whole[kind_at + 6 :], whole)):
        source.path.write_bytes(content)
        source = replace(source, changed_at=source.changed_at + count)
        await Intake(opened).take(source, reader(name))
        (row,) = await opened.page(ListFilter())
        here = await turns(opened, row.session_id)
        assert here[1] == ("Q1", "A1" if count else "")
    assert here == [(f"Q{n}", f"A{n}") for n in range(4)]


@pytest.mark.parametrize("name", READERS)
async def test_an_answer_that_was_missing_in_an_old_turn_is_taken_in_later(
    name: str, opened: Journal, tmp_path: Path
) -> None:
    whole = [Said(n, BEGUN + 60_000 * n, f"Q{n}", f"A{n}") for n in range(4)]
    for told in ([whole[0], whole[1]._replace(answer=""), *whole[2:]], whole):
        write(name, tmp_path, told)
        for source in found(name, tmp_path):
            source = replace(source, changed_at=source.changed_at + len(told[1].answer))
            await Intake(opened).take(source, reader(name))
        (row,) = await opened.page(ListFilter())
        here = await turns(opened, row.session_id)
        assert here == [(turn.words, turn.answer) for turn in told]


@pytest.mark.parametrize("name", [it for it in READERS if it not in DATABASES])
async def test_a_copy_that_a_person_made_beside_it_is_the_same_conversation(
    name: str, opened: Journal, tmp_path: Path
) -> None:
    told = [Said(n, BEGUN + 60_000 * n, f"Q{n}", f"A{n}") for n in range(4)]
    for count in (2, 4):
        write(name, tmp_path, told[:count])
        if count == 2:
            copy_beside(tmp_path)
        for source in found(name, tmp_path):
            await Intake(opened).take(source, reader(name))
    (row,) = await opened.page(ListFilter())
    assert await turns(opened, row.session_id) == [(f"Q{n}", f"A{n}") for n in range(4)]


async def test_where_the_times_of_prompts_are_lost_for_a_while_each_is_told_once(
    opened: Journal, tmp_path: Path
) -> None:
    told = [Said(n, BEGUN + 60_000 * n, f"Q{n % 2}", f"A{n}") for n in range(4)]
    for count in (3, 3, 4):
        write("aider", tmp_path, told[:count])
        (source,) = found("aider", tmp_path)
        for number in range(2):  # each is another state
            await Intake(opened).take(replace(source, changed_at=number), reader("aider"))
            source.path.with_name(TYPED).unlink(missing_ok=True)
    (row,) = await opened.page(ListFilter())
    here = await turns(opened, row.session_id)
    assert here == [(turn.words, turn.answer) for turn in told]


@pytest.mark.parametrize("name", [*READ_ON, "acphold", "acpx"])
async def test_of_a_file_that_contains_itself_each_turn_is_told_once(
    name: str, opened: Journal, tmp_path: Path
) -> None:
    words = ["one", "x" * CHECKED_BYTES, "one", "last"]
    told = [Said(n, BEGUN + 60_000 * n, it, f"On {n}") for n, it in enumerate(words)]
    write(name, tmp_path, told)
    (source,) = found(name, tmp_path)
    path = told_in(source)
    once = path.read_bytes()
    for times in (2, 1, 3):
        path.write_bytes(once * times)
        for source in found(name, tmp_path):
            await Intake(opened).take(source, reader(source.reader))
        (row,) = await opened.page(ListFilter())
        here = await turns(opened, row.session_id)
        assert here == [(turn.words, turn.answer) for turn in told], times


LINES = [*READ_ON, "acphold", "acpx"]
"""Readers of files of lines."""


async def here_after(name: str, home: Path, states: Iterable[bytes]) -> list[list[tuple[str, str]]]:
    """The sessions of a journal of its own, after the file was in each of these states."""
    async with aclosing(open_journal(empty(home / "journal.db"))) as journal:
        for clock, content in enumerate(states):
            told_in(next(found(name, home))).write_bytes(content)
            for source in found(name, home):
                source = replace(source, changed_at=source.changed_at + clock)
                await Intake(journal).take(source, reader(source.reader))
        rows = await journal.page(ListFilter())
        return [await turns(journal, row.session_id) for row in rows]


AGAIN = [
    Said(n, BEGUN + 60_000 * n, words, answer)
    for n, (words, answer) in enumerate([("one", "A0"), ("continue", "ok"), ("continue", "ok")])
]


@pytest.mark.parametrize("name", LINES)
async def test_a_line_that_is_there_twice_or_was_lost_for_a_while_changes_no_turn(
    name: str, tmp_path: Path
) -> None:
    write(name, tmp_path / "whole", AGAIN)
    whole = told_in(next(found(name, tmp_path / "whole"))).read_bytes()
    lines = whole.splitlines(keepends=True)
    for n, line in enumerate(lines[1:], 1):
        lost = b"".join([*lines[:n], *lines[n + 1 :]])
        twice = b"".join([*lines[:n], line, *lines[n:]])
        is_chunk = name == "acpx" and b"session/update" in line  # an agent may say it twice
        for place, states in enumerate([(lost, whole), () if is_chunk else (twice,)]):
            home = tmp_path / f"{n} {place}"
            write(name, home, AGAIN)
            here = await here_after(name, home, states or (whole,))
            assert here == [[(turn.words, turn.answer) for turn in AGAIN]], (place, line)


@pytest.mark.parametrize("name", ["auggie", "cline", "roo", "vscode"])
async def test_an_item_that_is_in_a_document_twice_is_told_once(name: str, tmp_path: Path) -> None:
    write(name, tmp_path / "whole", AGAIN)
    whole = json.loads(told_in(next(found(name, tmp_path / "whole"))).read_bytes())
    for key, items in whole.items() if isinstance(whole, dict) else [("", whole)]:
        for n, item in enumerate(items if isinstance(items, list) else ()):
            twice = [*items[:n], item, *items[n:]]
            home = tmp_path / f"{key} {n}"
            write(name, home, AGAIN)
            content = json.dumps(whole | {key: twice} if key else twice).encode()
            here = await here_after(name, home, [content])
            assert here == [[(turn.words, turn.answer) for turn in AGAIN]]


GIVEN = ("acphold", "aider", "crush")
"""Readers of files that anybody may have written: an id proves nothing there."""


@pytest.mark.parametrize("is_copied", [False, True])
@pytest.mark.parametrize("name", [name for name in READERS if name not in GIVEN])
async def test_where_the_first_prompt_was_edited_the_living_way_keeps_the_id(
    name: str, opened: Journal, tmp_path: Path, *, is_copied: bool
) -> None:
    async def take(*way: Said, at: int, copied: bool = False) -> None:
        write(name, tmp_path, way, copied=copied)
        for source in found(name, tmp_path):
            await Intake(opened).take(replace(source, changed_at=at), reader(name))

    if is_copied:
        await take(FIRST, LEFT, at=BEGUN, copied=True)
    await take(FIRST, LEFT, at=BEGUN)
    (row,) = await opened.page(ListFilter())
    edited = NEWER._replace(words="Otherwise, please."), NEWEST
    for way in (edited[:1], edited, edited):
        await take(*way, at=BEGUN + len(way))
        assert await turns(opened, row.session_id) == [(it.words, it.answer) for it in way]
        (tail,) = await tails_of(opened, row.session_id)
        assert await turns(opened, tail) == [(it.words, it.answer) for it in (FIRST, LEFT)]
    assert len(await opened.page(ListFilter())) == 2
