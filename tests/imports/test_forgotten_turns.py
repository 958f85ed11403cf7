"""A turn that a person took out with an earlier release: no import brings it back."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, strategies as st
from msgspec.structs import replace

from acphold.conversation.history.entries import BACK, FORGOTTEN, PastEntry
from acphold.imports import Intake, reader
from acphold.imports.claude import READER
from acphold.imports.session_writer import Forgotten, read_known
from acphold.imports.turns import SAID, KnownPart, ReadTurn, names_of
from acphold.imports.values import digest_of
from acphold.journal.journal import Journal, history, take_lease
from acphold.journal.rows import ListFilter, RowChange
from tests.imports.claude_home import SESSION, Transcript
from tests.imports.every_reader import READERS, Said, found, write
from tests.imports.test_reconciliation import (
    FOLDERS,
    conversation,
    others,
    prompts,
    put,
    say,
    say_here,
    take,
)
from tests.imports.told import sources, write_lines

BEGUN = 1_767_322_800_000
FORK = SESSION.replace("1", "9")


def name_of(turn: ReadTurn) -> str:
    """What names a turn that was said here."""
    words = f"{digest_of(turn.words)} {len(turn.words)}"
    return f"{words} {turn.at} {max(turn.at, turn.until)}"


async def forget_turn(journal: Journal, number: int, session_id: str = SESSION) -> None:
    """Take a turn out as an earlier release did, with all marks that it made."""
    turns = (await read_known(journal, session_id)).turns
    turn = turns[number - 1]
    names = {*names_of(turn, turns)}
    if turn.is_here:
        names.add(name_of(turn))
    lease = await take_lease(journal, session_id)
    row = await journal.session(session_id)
    past = [
        PastEntry(FORGOTTEN, turn.at, msgspec.json.encode(Forgotten(sorted(names)))),
        PastEntry(BACK, turn.at, msgspec.json.encode({"left": turn.spans})),
    ]
    await journal.take_in(lease, past, RowChange(home=row.home), withdrawn=turn.spans)
    for name in names:
        kind = f"{FORGOTTEN} {row.agent}" if SAID.fullmatch(name) else FORGOTTEN
        await journal.links.link(None, kind, name)
    await journal.release(lease)


def say_at(transcript: Transcript, first: datetime, *prompts: str) -> None:
    """Say prompts, a minute between them."""
    for minute, words in enumerate(prompts):
        say(transcript, words)
        for record in transcript.records[-2:]:
            record["timestamp"] = (first + timedelta(minutes=minute)).isoformat()


async def raw(journal: Journal, session_id: str = SESSION) -> bytes:
    return b"".join([segment.raw async for segment in history(journal, session_id)])


async def test_a_turn_that_was_taken_out_comes_back_with_no_import(
    opened: Journal, tmp_path: Path
) -> None:
    whole = conversation("one", "my secret", "three")
    put(tmp_path, whole, upto=4)
    await take(opened, tmp_path)
    await opened.index.catch_up(10)
    await forget_turn(opened, 2)
    assert await prompts(opened) == ["one"]
    assert b"secret" not in await raw(opened)
    assert await opened.index.search("secret") == []
    assert (await opened.session(SESSION)).message_count == 2
    put(tmp_path, whole)
    put(tmp_path, whole, 1, upto=4)
    await take(opened, tmp_path)
    assert await prompts(opened) == ["one", "three"]
    assert b"secret" not in await raw(opened)
    assert await others(opened) == []


@pytest.mark.parametrize("prompts", [["my secret"], ["my secret", "two"]])
async def test_an_import_that_brings_nothing_back_is_not_announced(
    opened: Journal, tmp_path: Path, prompts: list[str]
) -> None:
    whole = conversation(*prompts)
    put(tmp_path, whole)
    await take(opened, tmp_path)
    await forget_turn(opened, 1)
    (source,) = sources(READER, tmp_path)
    assert await Intake(opened).forecast(source, READER) == "same"
    say(whole, "more")
    put(tmp_path, whole)
    (source,) = sources(READER, tmp_path)
    assert await Intake(opened).forecast(source, READER) == "grown"


def queued(do: str, id_: str, **more: Any) -> tuple[str, list[bytes]]:
    return "queue", [json.dumps({"do": do, "id": id_, **more}).encode()]


SECRET = "in configuration it is sk-SEKRET77.1"


async def check_bytes(opened: Journal, journal: Path) -> None:
    """Nothing of the journal has the secret, once it was swept."""
    assert opened.file is not None
    await opened.file.sweep()
    for path in filter(Path.is_file, journal.parent.glob(f"{journal.name}*")):
        assert b"sekret77" not in path.read_bytes().lower()


async def test_a_turn_that_was_said_here_stays_out_when_it_is_read_from_disk(
    opened: Journal, tmp_path: Path
) -> None:
    whole = conversation("one")
    put(tmp_path, whole)
    await take(opened, tmp_path)
    await say_here(opened, "my secret")
    await forget_turn(opened, 2)
    say_at(whole, datetime.now(UTC), "my secret", "three")
    put(tmp_path, whole)
    await take(opened, tmp_path)
    assert await prompts(opened) == ["one", "three"]


async def test_it_stays_out_of_a_session_of_its_own_that_a_part_or_a_fork_gets(
    opened: Journal, tmp_path: Path
) -> None:
    whole = conversation("one", "my secret", "three")
    put(tmp_path, whole)
    await take(opened, tmp_path)
    await forget_turn(opened, 2)
    say(whole, "four")
    for first, last in ((2, 4), (2, 6)):
        part = conversation()
        part.records = whole.records[first:last]
        put(tmp_path, part)
        await take(opened, tmp_path)
    fork = {"sessionId": FORK, "forkedFrom": {"sessionId": SESSION}}
    path = tmp_path / ".claude/projects" / FOLDERS[1] / f"{FORK}.jsonl"
    write_lines(path, *(record | fork for record in whole.records))
    await take(opened, tmp_path)
    assert await prompts(opened, FORK) == ["one", "three", "four"]
    for session_id in (SESSION, *await others(opened)):
        assert b"secret" not in await raw(opened, session_id)


def put_fork(home: Path, whole: Transcript, origin: str = SESSION, name: str = FORK) -> None:
    fork = {"sessionId": name, "forkedFrom": {"sessionId": origin}}
    path = home / ".claude/projects" / FOLDERS[1] / f"{name}.jsonl"
    write_lines(path, *(record | fork for record in whole.records))


async def test_a_turn_that_was_said_here_comes_back_with_no_fork(
    opened: Journal, tmp_path: Path
) -> None:
    whole = conversation("one")
    put(tmp_path, whole)
    await take(opened, tmp_path)
    await say_here(opened, "my secret")
    await forget_turn(opened, 2)
    say_at(whole, datetime.now(UTC), "my secret", "three")
    put(tmp_path, whole)
    await take(opened, tmp_path)
    # Only its name in a file tells that the fork has it.
    for fork, origin in ((FORK, SESSION), (FORK.replace("9", "8"), FORK)):
        put_fork(tmp_path, whole, origin, fork)
        await take(opened, tmp_path)
        assert await prompts(opened, fork) == ["one", "three"]
        assert b"secret" not in await raw(opened, fork)


@pytest.mark.parametrize("name", [name for name in READERS if name != "acphold"])
async def test_what_each_agent_calls_a_turn_that_was_said_here_is_kept(
    opened: Journal, tmp_path: Path, name: str
) -> None:
    began = round(datetime.now(UTC).timestamp() * 1000)
    told = [Said(1, began - 3_600_000, "one", "A1")]
    write(name, tmp_path, told)
    (source,) = found(name, tmp_path)
    await Intake(opened).take(source, reader(name))
    (row,) = await opened.page(ListFilter())
    await say_here(opened, "my secret", row.session_id)
    told += [Said(2, began + 20_000, "my secret", "A2"), Said(3, began + 40_000, "three", "A3")]
    write(name, tmp_path, told)
    await forget_turn(opened, 2, row.session_id)
    (source,) = found(name, tmp_path)
    source = replace(source, changed_at=source.changed_at + 1)
    await Intake(opened).take(source, reader(name))
    assert await prompts(opened, row.session_id) == ["one", "three"]
    assert len(await opened.page(ListFilter())) == 1


async def test_of_equal_prompts_without_times_only_the_one_that_was_taken_out_goes(
    opened: Journal, tmp_path: Path
) -> None:
    told = [Said(n, 1_767_323_045_000, "continue", f"A{n}") for n in range(3)]
    write("zed", tmp_path, told)
    (source,) = found("zed", tmp_path)
    await Intake(opened).take(source, reader("zed"))
    (row,) = await opened.page(ListFilter())
    await forget_turn(opened, 2, row.session_id)
    told.append(Said(3, 1_767_323_045_000, "continue", "A3"))
    write("zed", tmp_path, told)
    (source,) = found("zed", tmp_path)
    await Intake(opened).take(replace(source, changed_at=source.changed_at + 1), reader("zed"))
    kept = await raw(opened, row.session_id)
    assert [f"A{n}".encode() in kept for n in range(4)] == [True, False, True, True]
    assert await prompts(opened, row.session_id) == ["continue"] * 3


async def test_other_turns_with_the_words_of_one_that_was_said_here_are_told(
    opened: Journal, tmp_path: Path
) -> None:
    whole = conversation("one")
    put(tmp_path, whole)
    await take(opened, tmp_path)
    await say_here(opened, "continue")
    await forget_turn(opened, 2)
    say_at(whole, datetime.now(UTC), "continue", "three", "continue")
    put(tmp_path, whole)
    await take(opened, tmp_path)
    assert await prompts(opened) == ["one", "three", "continue"]


MINUTES = st.sampled_from([1, 10, 11, 12, 21, 22, 32, 33]).map(lambda it: BEGUN + it * 60_000)
PROMPT_WORDS = st.sampled_from(["continue", "x" * 40, "reminder" + "x" * 40])


@given(
    said=st.tuples(PROMPT_WORDS, MINUTES, st.sampled_from([0, 60_000, 1_200_000])),
    theirs=st.lists(st.tuples(PROMPT_WORDS, st.one_of(MINUTES, st.just(0))), max_size=8),
)
@example(said=("continue", BEGUN, 60_000), theirs=[("continue", BEGUN + 660_001)])
@example(said=("continue", BEGUN, 60_000), theirs=[("continue", BEGUN - 600_001)])
def test_of_equal_prompts_the_nearest_within_ten_minutes_is_the_one_that_was_said_here(
    said: tuple[str, int, int], theirs: list[tuple[str, int]]
) -> None:
    words, begin, took = said
    name = name_of(ReadTurn(words=words, at=begin, until=begin + took, is_here=True))
    turns = [ReadTurn(f"id {n}", its, at) for n, (its, at) in enumerate(theirs)]
    may_be = [
        n
        for n, (its, at) in enumerate(theirs)
        if (its == words or (len(words) == 40 and its.endswith(words)))
        # Of a time that several have, or none, only the words are known.
        and (
            at == 0
            or [at for _, at in theirs].count(at) > 1
            or -10 <= since(at, begin) <= 10 + since(begin + took, begin)
        )
    ]
    out = KnownPart(forgotten=frozenset({name})).taken_out(turns)
    assert out.keys() <= {*may_be}
    assert len(out) == bool(may_be)
    assert all(
        abs(theirs[n][1] - begin) <= abs(theirs[it][1] - begin) for n in out for it in may_be
    )


def since(at: int, begin: int) -> float:
    """The minutes from one time to another."""
    return (at - begin) / 60_000


@pytest.mark.parametrize("day", [-1, 1])
async def test_a_turn_of_another_day_is_told_if_its_agent_never_kept_the_one_with_its_words(
    opened: Journal, journal: Path, tmp_path: Path, day: int
) -> None:
    whole = conversation("one")
    put(tmp_path, whole)
    await take(opened, tmp_path)
    await say_here(opened, "please go on")
    await forget_turn(opened, 2)
    say_at(whole, datetime.now(UTC) + timedelta(days=day), "two", "please go on")
    put(tmp_path, whole)
    await take(opened, tmp_path)
    assert await prompts(opened) == ["one", "two", "please go on"]


async def test_turns_of_a_program_that_keeps_no_times_are_known_by_their_words(
    opened: Journal, tmp_path: Path
) -> None:
    whole = conversation("one")
    put(tmp_path, whole)
    await take(opened, tmp_path)
    await say_here(opened, "my secret")
    await forget_turn(opened, 2)
    say(whole, "my secret")
    for record in whole.records:
        record["timestamp"] = whole.records[0]["timestamp"]
    put(tmp_path, whole)
    await take(opened, tmp_path)
    assert await prompts(opened) == ["one"]
