"""A conversation on disk several times, cut, restored, gone back in: each turn is here once."""

from __future__ import annotations

import json
import os
import re
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path
from shutil import rmtree
from typing import Any

import pytest
from msgspec.structs import replace

from acphold.conversation.history.timeline import Message
from acphold.imports import Intake, left_turns, reader, session_writer
from acphold.imports.claude import READER
from acphold.imports.hermes import READER as HERMES
from acphold.imports.intake import read_here
from acphold.imports.pieces import NewsPiece
from acphold.imports.session_writer import CHECKED_BYTES, Known
from acphold.journal.access import Share
from acphold.journal.journal import Journal, history, state_of, tails_of
from acphold.journal.rows import ListFilter, Marks, RowChange
from tests.imports.claude_home import CWD, SESSION, Transcript
from tests.imports.codex_home import Rollout
from tests.imports.every_reader import Said, found, write
from tests.imports.test_acpx import RECORD
from tests.imports.test_hermes import SUMMARY, State
from tests.imports.told import sources, write_lines

FOLDERS = ("-home-ada-project", "-home-ada-copy")


def conversation(*prompts: str, count: int = 0) -> Transcript:
    transcript = Transcript(count=count)
    for words in prompts:
        say(transcript, words)
    return transcript


def say(transcript: Transcript, words: str, after: str | None = "") -> str:
    transcript.user(words, after)
    return transcript.assistant(f"On {words}")


def put(home: Path, transcript: Transcript, folder: int = 0, upto: int | None = None) -> None:
    """Write a transcript, or the first lines of it, into one of the projects."""
    path = home / ".claude/projects" / FOLDERS[folder] / f"{SESSION}.jsonl"
    before = path.stat().st_mtime_ns if path.exists() else 0
    write_lines(path, *transcript.records[:upto])
    if path.stat().st_mtime_ns == before:  # two writes within one tick of the clock
        os.utime(path, ns=(before + 1, before + 1))


async def take(journal: Journal, home: Path) -> list[str]:
    """Import all; return the outcomes."""
    intake = Intake(journal)
    changed, _ = await intake.select_changed(sources(READER, home), READER)
    return [(await intake.take(source, READER)).outcome for source in changed]


async def say_here(
    journal: Journal, words: str, session_id: str = SESSION, answer: str = ""
) -> None:
    lease = await journal.acquire(session_id)
    prompt = json.dumps([{"type": "text", "text": words}]).encode()
    await journal.append(lease, [("prompt", [prompt])])
    if answer:
        said = {"type": "text", "text": answer}
        update = {"sessionUpdate": "agent_message_chunk", "content": said}
        await journal.append(lease, [("update", [json.dumps(update).encode()])])
    await journal.append(lease, [("turn_end", [b'{"stopReason":"end_turn"}'])])
    await journal.release(lease)


async def prompts(journal: Journal, session_id: str = SESSION) -> list[str]:
    state = await state_of(journal, session_id)
    return [
        item.text for item in state.timeline if isinstance(item, Message) and item.role == "user"
    ]


async def others(journal: Journal) -> list[str]:
    rows = await journal.page(ListFilter())
    return [row.session_id for row in rows if row.session_id != SESSION]


async def test_what_was_said_in_the_terminal_between_prompts_here_is_told(
    opened: Journal, tmp_path: Path
) -> None:
    whole = conversation("one")
    put(tmp_path, whole)
    await take(opened, tmp_path)
    for words in ("two", "four"):
        await say_here(opened, words)
    for words in ("two", "in the terminal", "four"):
        say(whole, words)
    put(tmp_path, whole)
    for _ in range(2):
        await take(opened, tmp_path)
        assert await prompts(opened) == ["one", "two", "four", "in the terminal"]
    say(whole, "five")
    put(tmp_path, whole)
    await take(opened, tmp_path)
    assert sorted(await prompts(opened)) == ["five", "four", "in the terminal", "one", "two"]


async def test_what_was_said_here_is_told_once_where_a_copy_is_read_before_the_file_that_has_it(
    opened: Journal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_writer, "WORTH_CHECKING", 0)
    whole = conversation("one", "two")
    put(tmp_path, whole)
    put(tmp_path, whole, 1, upto=2)
    await take(opened, tmp_path)
    await say_here(opened, "here")
    for words in ("here", "behind"):
        os.utime(tmp_path / ".claude/projects" / FOLDERS[1] / f"{SESSION}.jsonl")
        assert await take(opened, tmp_path) in (["same"], ["same", "same"])
        say(whole, words)
        put(tmp_path, whole)
        await take(opened, tmp_path)
    assert await prompts(opened) == ["one", "two", "here", "behind"]


async def test_what_was_said_in_the_terminal_between_and_behind_prompts_here_is_told_at_once(
    opened: Journal, tmp_path: Path
) -> None:
    whole = conversation("one")
    put(tmp_path, whole)
    await take(opened, tmp_path)
    for words in ("two", "four"):
        await say_here(opened, words)
    for words in ("two", "in the terminal", "four", "five"):
        say(whole, words)
    put(tmp_path, whole)
    await take(opened, tmp_path)
    assert sorted(await prompts(opened)) == ["five", "four", "in the terminal", "one", "two"]


async def test_turns_that_an_earlier_release_gave_the_time_of_another_keep_their_answers(
    opened: Journal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = Transcript()
    for number, words in enumerate(("one", "continue", "continue")):
        whole.user(words)
        whole.assistant(f"A{number}")
    old = Transcript()
    last = whole.records[-2]["timestamp"]
    old.records = [record | {"timestamp": last} for record in whole.records]
    put(tmp_path, old)
    with monkeypatch.context() as patch:
        patch.setattr(session_writer, "FORM", 1)
        await take(opened, tmp_path)
    await opened.change(SESSION, RowChange(archived=True))
    put(tmp_path, whole)
    await take(opened, tmp_path)
    timeline = (await state_of(opened, SESSION)).timeline
    said = [item.text for item in timeline if isinstance(item, Message)]
    assert said == ["one", "A0", "continue", "A1", "continue", "A2"]
    assert (await opened.session(SESSION)).archived
    assert await others(opened) == []


async def test_another_agent_keeps_its_turns_where_both_have_one_id(
    opened: Journal, tmp_path: Path
) -> None:
    one, two, other = (Said(n, 1_767_323_045_000 + n, f"Q{n}", f"A{n}") for n in (1, 2, 3))
    write("claude", tmp_path, [one])
    write("pi", tmp_path, [other])
    write("pi", tmp_path, [two], copied=True)  # apart, as both have one id
    for said in ([one], [one, two]):
        write("claude", tmp_path, said)
        for name in ("pi", "claude"):
            for source in found(name, tmp_path):
                await Intake(opened).take(source, reader(name))
    told = [await prompts(opened, session_id) for session_id in (SESSION, *await others(opened))]
    assert sorted(told) == [["Q1", "Q2"], ["Q2"], ["Q3"]]


async def test_turns_that_move_are_read_at_once(
    opened: Journal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = conversation(*map(str, range(30)))
    records, whole.records = whole.records, whole.records[2:]
    put(tmp_path, whole)
    await take(opened, tmp_path)
    whole.records = records
    put(tmp_path, whole)
    (source,) = sources(READER, tmp_path)
    reads, read = 0, opened.read

    async def reading(*arguments: Any, **options: Any) -> Any:
        nonlocal reads
        reads += 1
        return await read(*arguments, **options)

    monkeypatch.setattr(opened, "read", reading)
    await Intake(opened).take(source, READER)
    assert await prompts(opened) == [*map(str, range(30))]
    assert reads < 10


# -- copies ------------------------------------------------------------------------------------


async def test_an_older_copy_adds_nothing_however_often_it_is_read(
    opened: Journal, tmp_path: Path
) -> None:
    whole = conversation("one", "two", "three")
    put(tmp_path, whole, 0, upto=4)
    put(tmp_path, whole, 1)
    for number in range(6):
        say(whole, f"more {number}")
        put(tmp_path, whole, 1)
        os.utime(tmp_path / ".claude/projects" / FOLDERS[0] / f"{SESSION}.jsonl")
        await take(opened, tmp_path)
    assert await prompts(opened) == ["one", "two", "three", *(f"more {n}" for n in range(6))]
    assert (await opened.session(SESSION)).message_count == 18


async def test_copies_that_did_not_change_are_not_read_again(
    opened: Journal, tmp_path: Path
) -> None:
    whole = conversation("one", "two")
    put(tmp_path, whole, 0, upto=2)
    put(tmp_path, whole, 1)
    await take(opened, tmp_path)
    assert await take(opened, tmp_path) == []


async def test_a_file_that_was_cut_short_and_comes_back_is_no_news(
    opened: Journal, tmp_path: Path
) -> None:
    whole = conversation("one", "two", "three")
    for upto in (6, 2, 6, 3, 1, 6):
        put(tmp_path, whole, upto=upto)
        await take(opened, tmp_path)
    assert await prompts(opened) == ["one", "two", "three"]
    assert await others(opened) == []


async def test_a_backup_that_has_the_beginning_is_told_before_the_rest(
    opened: Journal, tmp_path: Path
) -> None:
    whole = conversation("one", "two", "three")
    rest = Transcript()
    rest.records = whole.records[4:]
    put(tmp_path, rest)
    await take(opened, tmp_path)
    assert await prompts(opened) == ["three"]
    put(tmp_path, whole)
    await take(opened, tmp_path)
    assert await prompts(opened) == ["one", "two", "three"]


async def test_equal_words_at_one_time_are_as_many_turns_as_the_file_has(
    opened: Journal, tmp_path: Path
) -> None:
    whole = conversation(*["continue"] * 5)
    for record in whole.records:
        record["timestamp"] = "2026-01-02T03:00:00.000Z"
    for upto in (4, 8, 2, 10):
        put(tmp_path, whole, upto=upto)
        await take(opened, tmp_path)
    assert await prompts(opened) == ["continue"] * 5


# -- reading on ----------------------------------------------------------------------------------


async def test_of_a_large_file_that_grew_nothing_old_is_read_but_what_is_checked(
    opened: Journal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_writer, "WORTH_CHECKING", 0)
    whole = conversation("one", "x" * CHECKED_BYTES, "three")
    put(tmp_path, whole)
    await take(opened, tmp_path)
    say(whole, "four")
    put(tmp_path, whole)
    path = tmp_path / ".claude/projects" / FOLDERS[0] / f"{SESSION}.jsonl"
    path.write_bytes(path.read_bytes().replace(b'"one"', b'"two"'))
    assert await take(opened, tmp_path) == ["grown"]
    assert [words[:5] for words in await prompts(opened)] == ["one", "xxxxx", "three", "four"]
    assert (await opened.session(SESSION)).title == "one"
    # If what is checked has changed, all of it is read; and so is all if somebody went back.
    path.write_bytes(path.read_bytes().replace(b'"two"', b'"one"').replace(b"xx", b"yy"))
    put(tmp_path, whole, 1)
    say(whole, "back", whole.records[3]["uuid"])
    put(tmp_path, whole)
    assert "grown" in await take(opened, tmp_path)
    assert [words[:5] for words in await prompts(opened)] == ["one", "xxxxx", "back"]


# -- going back --------------------------------------------------------------------------------


async def test_turns_that_a_person_went_back_from_stand_in_a_session_of_their_own(
    opened: Journal, tmp_path: Path
) -> None:
    transcript = Transcript()
    first = say(transcript, "one")
    say(transcript, "two")
    say(transcript, "three")
    put(tmp_path, transcript)
    await take(opened, tmp_path)
    await opened.access.keep_share(Share(SESSION, "ada"))
    await opened.index.catch_up(10)
    seqs = (await opened.session(SESSION)).last_seq
    say(transcript, "back", first)
    put(tmp_path, transcript)
    assert await take(opened, tmp_path) == ["grown"]
    assert await prompts(opened) == ["one", "back"]
    (tail,) = await others(opened)
    assert tail.startswith(f"{SESSION}~")
    assert await prompts(opened, tail) == ["two", "three"]
    row = await opened.session(tail)
    assert [origin.session_id for origin in row.origins] == [SESSION]
    assert {*row.shared_with} == {"ada"}
    # No number of an entry changes, those who follow are told, and the words are found once.
    entries = [it async for segment in history(opened, SESSION) for it in segment.entries()]
    assert [it.seq for it in entries if it.kind == "back"] == [seqs + 1]
    assert (await opened.session(SESSION)).message_count == 4
    await opened.index.catch_up(10)
    assert {hit.session_id for hit in await opened.index.search("three")} == {tail}
    say(transcript, "and on")
    put(tmp_path, transcript)
    await take(opened, tmp_path)
    assert await prompts(opened) == ["one", "back", "and on"]
    assert await others(opened) == [tail]
    assert await tails_of(opened, SESSION) == [tail]


async def test_a_turn_that_was_left_stays_where_the_same_word_is_said_here(
    opened: Journal, tmp_path: Path
) -> None:
    transcript = conversation("one")
    first = transcript.last
    say(transcript, "y")
    put(tmp_path, transcript, 1)
    say(transcript, "back", first)
    put(tmp_path, transcript)
    await take(opened, tmp_path)
    (tail,) = await others(opened)
    await say_here(opened, "y", answer="On something else")
    os.utime(tmp_path / ".claude/projects" / FOLDERS[1] / f"{SESSION}.jsonl")
    assert "differs" in await take(opened, tmp_path)
    assert await prompts(opened) == ["one", "back", "y"]
    assert await prompts(opened, tail) == ["y"]


async def test_of_tails_with_one_turn_the_one_that_a_person_tagged_keeps_it(
    opened: Journal, tmp_path: Path
) -> None:
    said = [Said(n, 1_767_323_045_000 + 60_000 * n, f"Q{n}", f"A{n}") for n in range(8)]
    tagged = ""
    for way in ([1, 2, 3], [1, 4], [1, 2, 3, 5, 6], [1, 2, 7]):
        write("roo", tmp_path, [said[n] for n in way])
        (source,) = found("roo", tmp_path)
        await Intake(opened).take(replace(source, changed_at=way[-1]), reader("roo"))
        if way == [1, 4]:
            (tagged,) = await tails_of(opened, source.session_id)
            await opened.mark(tagged, Marks(added=("mine",)))
    assert await prompts(opened, source.session_id) == ["Q1", "Q2", "Q7"]
    told = {it: await prompts(opened, it) for it in await tails_of(opened, source.session_id)}
    assert told.pop(tagged) == ["Q2", "Q3"]
    assert sorted(told.values()) == [["Q4"], ["Q5", "Q6"]]


async def test_a_conversation_that_a_person_began_anew_keeps_its_id(
    opened: Journal, tmp_path: Path
) -> None:
    transcript = conversation("one", "two")
    put(tmp_path, transcript)
    put(tmp_path, transcript, 1)
    await take(opened, tmp_path)
    for words in ("anew", "and again"):
        say(transcript, words, None)
        put(tmp_path, transcript)
        for _ in range(2):
            os.utime(tmp_path / ".claude/projects" / FOLDERS[1] / f"{SESSION}.jsonl")
            await take(opened, tmp_path)
    assert await prompts(opened) == ["and again"]
    tails = [await prompts(opened, tail) for tail in await others(opened)]
    assert sorted(tails) == [["anew"], ["one", "two"]]


async def test_a_conversation_continued_here_keeps_its_turns_where_it_was_begun_anew(
    opened: Journal, tmp_path: Path
) -> None:
    transcript = conversation("one")
    put(tmp_path, transcript)
    await take(opened, tmp_path)
    await say_here(opened, "here")
    anew = Transcript("anew", count=50)
    put(tmp_path, anew)
    assert await take(opened, tmp_path) == ["apart"]
    assert await prompts(opened) == ["one", "here"]
    (other,) = await others(opened)
    assert await prompts(opened, other) == ["anew"]


@pytest.mark.parametrize("is_shared", [True, False])
async def test_another_conversation_in_the_place_of_one_has_neither_its_readers_nor_its_folder(
    opened: Journal, tmp_path: Path, *, is_shared: bool
) -> None:
    one = conversation("one")
    put(tmp_path, one)
    await take(opened, tmp_path)
    if is_shared:
        await opened.access.keep_share(Share(SESSION, "bob"))
    other = Transcript("other", count=50)
    folder = CWD if is_shared else str(tmp_path)
    other.records = [record | {"cwd": folder} for record in other.records]
    put(tmp_path, other)
    assert await take(opened, tmp_path) == ["apart"]
    (apart,) = await others(opened)
    say(one, "two")
    put(tmp_path, one)
    await take(opened, tmp_path)
    assert await prompts(opened) == ["one", "two"]
    assert await prompts(opened, apart) == ["other"]
    row = await opened.session(apart)
    assert (row.cwd, dict(row.shared_with)) == (folder, {})


async def test_a_shared_conversation_keeps_its_id_where_its_file_has_what_was_left(
    opened: Journal, tmp_path: Path
) -> None:
    transcript = conversation("one")
    put(tmp_path, transcript)
    await take(opened, tmp_path)
    await opened.access.keep_share(Share(SESSION, "bob"))
    say(transcript, "anew", None)
    put(tmp_path, transcript)
    assert await take(opened, tmp_path) == ["grown"]
    assert await prompts(opened) == ["anew"]


async def test_one_that_was_begun_in_no_folder_may_be_moved_into_one(
    opened: Journal, tmp_path: Path
) -> None:
    transcript = conversation("one")
    for cwd in ("", CWD, "/elsewhere"):
        for record in transcript.records:
            record["cwd"] = cwd
        put(tmp_path, transcript)
        await take(opened, tmp_path)
        say(transcript, "more")
        assert (await opened.session(SESSION)).cwd == (CWD if cwd else str(Path.home()))


def slug(folder: Path) -> str:
    return re.sub(r"[^A-Za-z0-9]", "-", str(folder))


@pytest.mark.parametrize("is_renamed", [True, False], ids=["renamed", "as it was"])
@pytest.mark.parametrize("is_rewritten", [True, False], ids=["rewritten", "gone on with"])
@pytest.mark.parametrize("is_imported", [True, False], ids=["imported", "new"])
async def test_a_conversation_whose_project_was_moved_is_in_the_newest_folder_that_exists(
    opened: Journal, tmp_path: Path, *, is_renamed: bool, is_rewritten: bool, is_imported: bool
) -> None:
    old, new, home = tmp_path / "old", tmp_path / "new", tmp_path / "home"
    (old / "src").mkdir(parents=True)
    transcript = conversation("one", "two")
    projects, at = home / ".claude/projects", slug(old)

    def put_in(*folders: Path) -> None:
        for record, folder in zip(transcript.records, folders, strict=True):
            record["cwd"] = str(folder)
        write_lines(projects / at / f"{SESSION}.jsonl", *transcript.records)

    put_in(old, old / "src", old, old / "src")
    if is_imported:
        await take(opened, home)
        assert (await opened.session(SESSION)).cwd == str(old)
    old.rename(new)
    if is_renamed:
        (projects / at).rename(projects / slug(new))
        at = slug(new)
    say(transcript, "three")
    before = [new] * 4 if is_rewritten else [old, old / "src"] * 2
    put_in(*before, new, new / "src")
    await take(opened, home)
    assert (await opened.session(SESSION)).cwd == str(new)
    if is_renamed:  # the program looks for it there, whatever else is in its place
        old.mkdir()
        say(transcript, "four")
        put_in(*before, new, new / "src", old, new / "src")
        await take(opened, home)
        assert (await opened.session(SESSION)).cwd == str(new)
    assert await others(opened) == []


@pytest.mark.parametrize("name", ["codex", "qwen", "goose"])
async def test_a_conversation_is_in_the_newest_folder_once_its_first_one_is_gone(
    name: str, opened: Journal, tmp_path: Path
) -> None:
    old, new, home = tmp_path / "old", tmp_path / "new", tmp_path / "home"
    turns = [Said(n, 1_767_322_800_000 + n * 1000, f"words {n}", "Yes.") for n in range(1, 4)]
    for upto, at, expected in ((1, old, old), (2, new, old), (3, new, new)):
        for folder in (old, new)[:upto]:
            folder.mkdir(exist_ok=True)
        if expected == new:
            rmtree(old)
        write(name, home, turns[:upto])
        for path in home.rglob("*.jsonl"):
            *before, last = path.read_text().split(CWD)
            path.write_text(f"{str(old).join(before)}{at}{last}")
        for path in home.rglob("*.db"):
            with sqlite3.connect(path) as database:
                database.execute("UPDATE sessions SET working_dir = ?", (str(at),))
        for source in found(name, home):
            await Intake(opened).take(source, reader(name))
        (row,) = await opened.page(ListFilter())
        assert row.cwd == str(expected)


async def test_the_turns_of_an_older_way_of_a_copy_stand_beside_the_newer_one(
    opened: Journal, tmp_path: Path
) -> None:
    one, other = conversation("one", "two"), conversation("one", "two")
    say(one, "older")
    other.beside(type="mode", mode="normal")
    other._count = 30
    say(other, "newer")
    put(tmp_path, other, 1)
    await take(opened, tmp_path)
    put(tmp_path, one, 0)
    for _ in range(3):
        os.utime(tmp_path / ".claude/projects" / FOLDERS[0] / f"{SESSION}.jsonl")
        await take(opened, tmp_path)
    assert await prompts(opened) == ["one", "two", "newer"]
    (tail,) = await others(opened)
    assert await prompts(opened, tail) == ["older"]
    one._count = 60
    say(one, "newest")
    put(tmp_path, one, 0)
    await take(opened, tmp_path)
    assert await prompts(opened) == ["one", "two", "older", "newest"]
    (tail,) = await others(opened)
    assert await prompts(opened, tail) == ["newer"]


async def test_ways_whose_prompts_have_one_id_are_tails_of_their_own(
    opened: Journal, tmp_path: Path
) -> None:
    """In Codex, two prompts are of one turn where the second was sent into it."""
    rollout = Rollout()
    for words in ("one", "two", "three"):
        rollout.user(words)
        rollout.agent(f"On {words}")
        rollout.end()
        for _ in range(2):
            rollout.write(tmp_path)
            for source in found("codex", tmp_path):
                await Intake(opened).take(source, reader("codex"))
        assert await prompts(opened, rollout.session) == [words]
        rollout.event("thread_rolled_back", num_turns=1)
    tails = await tails_of(opened, rollout.session)
    assert sorted([await prompts(opened, tail) for tail in tails]) == [["one"], ["two"]]


async def test_a_client_that_comes_back_after_somebody_went_back_loads_the_session_anew(
    opened: Journal, tmp_path: Path
) -> None:
    """It could not take back what it shows, if it shows anything; what refuses it is
    `HubSession.require_exact`."""
    transcript = conversation("one")
    first = transcript.last
    say(transcript, "two")
    put(tmp_path, transcript)
    await take(opened, tmp_path)
    places = [0, (await opened.session(SESSION)).last_seq]
    say(transcript, "back", first)
    put(tmp_path, transcript)
    await take(opened, tmp_path)
    places.append((await opened.session(SESSION)).last_seq)
    say(transcript, "three")
    put(tmp_path, transcript)
    await take(opened, tmp_path)
    assert [await opened.is_exact(SESSION, place) for place in places] == [True, False, True]


async def test_a_tail_that_a_person_deleted_stays_deleted(opened: Journal, tmp_path: Path) -> None:
    transcript = Transcript()
    first = say(transcript, "one")
    say(transcript, "two")
    put(tmp_path, transcript)
    await take(opened, tmp_path)
    say(transcript, "back", first)
    put(tmp_path, transcript)
    await take(opened, tmp_path)
    (tail,) = await others(opened)
    await opened.delete(tail)
    put(tmp_path, transcript, 1)
    await take(opened, tmp_path)
    assert await others(opened) == []


async def test_of_a_conversation_continued_here_only_more_turns_are_news(
    opened: Journal, tmp_path: Path
) -> None:
    told = conversation("one")
    put(tmp_path, told)
    await take(opened, tmp_path)
    await say_here(opened, "two")
    for words, outcome in (("two", "same"), ("three", "grown")):
        say(told, words)
        put(tmp_path, told)
        (source,) = sources(READER, tmp_path)
        assert await Intake(opened).forecast(source, READER) == outcome


async def test_a_source_that_differs_is_not_read_again_until_one_of_both_changes(
    opened: Journal, tmp_path: Path
) -> None:
    transcript = Transcript()
    first = say(transcript, "one")
    put(tmp_path, transcript)
    await take(opened, tmp_path)
    await say_here(opened, "said here")
    second = say(transcript, "two", first)
    put(tmp_path, transcript)
    assert await take(opened, tmp_path) == ["differs"]
    updated_at = (await opened.session(SESSION)).updated_at
    for _ in range(2):
        assert await take(opened, tmp_path) == []
    (source,) = sources(READER, tmp_path)
    _, unchanged = await Intake(opened).select_changed([source], READER)
    assert unchanged == {"differs": 1}
    await say_here(opened, "and more")
    assert await take(opened, tmp_path) == ["differs"]
    assert await take(opened, tmp_path) == []
    say(transcript, "three", second)
    put(tmp_path, transcript)
    assert await take(opened, tmp_path) == ["differs"]
    assert await prompts(opened) == ["one", "said here", "and more"]
    assert (await opened.session(SESSION)).updated_at >= updated_at
    put(tmp_path, transcript, upto=2)
    assert await take(opened, tmp_path) == ["same"]


# -- a file that was gone on with as another conversation ---------------------------------------


async def test_a_file_is_of_the_conversation_of_its_last_records(
    opened: Journal, tmp_path: Path
) -> None:
    transcript = conversation("one")
    put(tmp_path, transcript)
    await take(opened, tmp_path)
    say(transcript, "two")
    say(transcript, "in another")
    transcript.assistant("x" * 20_000)  # the last record is a long one
    other = "99999999-2222-4333-8444-555555555555"
    for record in transcript.records[4:]:
        record["sessionId"] = other
    put(tmp_path, transcript)
    assert await take(opened, tmp_path) == ["new"]
    assert await prompts(opened) == ["one"]
    assert await prompts(opened, other) == ["one", "two", "in another"]
    assert [origin.session_id for origin in (await opened.session(other)).origins] == [SESSION]
    assert await take(opened, tmp_path) == []


async def test_a_file_that_begins_with_the_records_of_another_conversation_has_that_as_its_origin(
    opened: Journal, tmp_path: Path
) -> None:
    """To go on with one, some versions wrote its records into a new file, with their old ids."""
    transcript = conversation("one", "two")
    put(tmp_path, transcript)
    say(transcript, "three")
    other = "99999999-2222-4333-8444-555555555555"
    for record in transcript.records[4:]:
        record["sessionId"] = other
    transcript.write(tmp_path, other)
    await take(opened, tmp_path)
    assert await prompts(opened) == ["one", "two"]
    assert await prompts(opened, other) == ["one", "two", "three"]
    assert [origin.session_id for origin in (await opened.session(other)).origins] == [SESSION]
    assert not (await opened.session(SESSION)).origins


OTHER = "99999999-2222-4333-8444-555555555555"


@pytest.mark.parametrize("steps", [[2, 4, 6], [6]], ids=["growing", "at once"])
@pytest.mark.parametrize("own", [None, 0, 1], ids=["gone", "told first", "told last"])
@pytest.mark.parametrize("worth_checking", [0, 1 << 20])
async def test_a_file_that_another_conversation_was_written_into_is_of_the_one_that_goes_on(
    opened: Journal,
    tmp_path: Path,
    own: int | None,
    steps: list[int],
    worth_checking: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Both orders of import, and with or without the other one's own file."""
    monkeypatch.setattr(session_writer, "WORTH_CHECKING", worth_checking)
    words = [f"words {n}" for n in range(6)]
    transcript = conversation(*words)
    for record in transcript.records[4:8]:
        record["sessionId"] = OTHER
    its = conversation("before", "and behind", count=500)
    for record in its.records:
        record["sessionId"] = OTHER
    for upto in steps:
        folder = tmp_path / ".claude/projects"
        write_lines(folder / "m" / f"{SESSION}.jsonl", *transcript.records[: 2 * upto])
        if own is not None:
            write_lines(folder / "az"[own] / f"{OTHER}.jsonl", *its.records)
        await take(opened, tmp_path)
    assert await prompts(opened) == words
    assert [origin.session_id for origin in (await opened.session(SESSION)).origins] == [OTHER]
    told = [await prompts(opened, it) for it in await others(opened)]
    assert told == [["before", "and behind"]] * (own is not None)


async def test_what_a_person_tagged_stays_when_its_file_is_gone_on_with_as_another_one(
    opened: Journal, tmp_path: Path
) -> None:
    transcript = conversation("one", "two", "three")
    for record in transcript.records[2:4]:
        record["sessionId"] = OTHER
    for upto in (4, 6):
        put(tmp_path, transcript, upto=upto)
        await take(opened, tmp_path)
        if upto == 4:
            await opened.mark(OTHER, Marks(added=("mine",)))
    assert await prompts(opened) == ["one", "two", "three"]
    assert await prompts(opened, OTHER) == ["one", "two"]


async def test_what_is_said_while_an_import_compares_a_session_is_not_deleted_with_it(
    opened: Journal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    transcript = conversation("one", "two", "three")
    for record in transcript.records[2:4]:
        record["sessionId"] = OTHER
    put(tmp_path, transcript, upto=4)
    await take(opened, tmp_path)
    put(tmp_path, transcript)
    real = session_writer.read_known

    async def read(journal: Journal, session_id: str) -> Known:
        known = await real(journal, session_id)
        if session_id == OTHER:
            await say_here(journal, "and I", session_id=OTHER)
        return known

    monkeypatch.setattr(left_turns, "read_known", read)
    await take(opened, tmp_path)
    assert await prompts(opened, OTHER) == ["one", "two", "and I"]


@pytest.mark.parametrize("ends", [2, 3, 4])
async def test_where_a_file_grows_by_its_own_records_with_other_ids_these_are_no_news(
    opened: Journal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ends: int
) -> None:
    """Also where it ends in the middle of these."""
    monkeypatch.setattr(session_writer, "WORTH_CHECKING", 0)
    transcript = conversation("one", "two")
    put(tmp_path, transcript)
    await take(opened, tmp_path)
    for number, words in enumerate(("three", "four")):
        for n, record in enumerate(transcript.records.copy()):
            again = record | {"uuid": f"{number}{record['uuid']}", "parentUuid": transcript.last}
            transcript.records.append(again)
            transcript.last = again["uuid"]
            if n + 1 == ends:
                put(tmp_path, transcript)
                await take(opened, tmp_path)
                assert await prompts(opened) == ["one", "two", "three"][: 2 + number]
                assert await others(opened) == []
        say(transcript, words)
        put(tmp_path, transcript)
        await take(opened, tmp_path)
    assert await prompts(opened) == ["one", "two", "three", "four"]
    assert await others(opened) == []


async def test_branches_and_turns_that_were_left_are_one_session(
    opened: Journal, tmp_path: Path
) -> None:
    transcript = Transcript()
    first = say(transcript, "one")
    say(transcript, "two")
    put(tmp_path, transcript)
    await take(opened, tmp_path)
    say(transcript, "back", first)
    put(tmp_path, transcript)
    await take(opened, tmp_path)
    (tail,) = await others(opened)
    (source,) = sources(READER, tmp_path)
    assert READER.branches is not None
    (branch,) = READER.branches(source)
    assert branch.session_id == tail
    await Intake(opened).take(branch, READER)
    assert await others(opened) == [tail]
    assert await prompts(opened, tail) == ["one", "two"]
    assert (await Intake(opened).take(branch, READER)).outcome == "same"


# -- two conversations of one id ------------------------------------------------------------------


@pytest.mark.parametrize("given", [False, True])
async def test_equal_words_join_no_two_conversations(
    opened: Journal, tmp_path: Path, given: bool
) -> None:
    intake = Intake(opened)
    for number, last in ((0, "mine"), (500, "theirs")):
        transcript = Transcript(count=number)
        for words in ("continue", "continue", last):
            transcript.user(words)
            transcript.assistant("Done.")
        for upto in (2, None):
            put(tmp_path / last, transcript, upto=upto)
            (source,) = sources(READER, tmp_path / last)
            await intake.take(replace(source, given=given), READER)
    assert await prompts(opened) == ["continue", "continue", "mine"]
    (other,) = await others(opened)
    assert await prompts(opened, other) == ["continue", "continue", "theirs"]


async def test_a_program_may_give_all_its_turns_new_ids(opened: Journal, tmp_path: Path) -> None:
    transcript = conversation("one", "two")
    put(tmp_path, transcript)
    await take(opened, tmp_path)
    for record in transcript.records:
        for name in ("uuid", "parentUuid"):
            record[name] = record[name] and f"new-{record[name]}"
    transcript.last = f"new-{transcript.last}"
    for words in ("three", "four"):
        put(tmp_path, transcript)
        await take(opened, tmp_path)
        say(transcript, words)
    put(tmp_path, transcript)
    await take(opened, tmp_path)
    assert await prompts(opened) == ["one", "two", "three", "four"]
    assert await others(opened) == []


async def test_of_two_places_of_a_conversation_one_may_have_older_ids(
    opened: Journal, tmp_path: Path
) -> None:
    transcript = conversation("one", "two")
    put(tmp_path, transcript)
    await take(opened, tmp_path)
    for record in transcript.records:
        record["uuid"] = f"new-{record['uuid']}"
        record["parentUuid"] = record["parentUuid"] and f"new-{record['parentUuid']}"
    transcript.last = f"new-{transcript.last}"
    say(transcript, "three")
    put(tmp_path, transcript, 1)
    for folder in (0, 1, 0, 1):
        os.utime(tmp_path / ".claude/projects" / FOLDERS[folder] / f"{SESSION}.jsonl")
        await take(opened, tmp_path)
    assert await prompts(opened) == ["one", "two", "three"]
    assert await others(opened) == []


@pytest.mark.parametrize("words", ["one", "continue"])
async def test_a_conversation_that_two_programs_wrote_down_is_told_once(
    opened: Journal, tmp_path: Path, words: str
) -> None:
    turns = [
        Said(n, 1_767_322_800_000 + 60_000 * n, words if n > 1 else "first", f"A{n}")
        for n in range(1, 8)
    ]
    for by_acpx, by_claude in ((3, 3), (4, 4), (4, 5), (6, 6), (6, 7)):
        write("acpx", tmp_path, [turn._replace(at=turn.at - 7) for turn in turns[:by_acpx]])
        path = tmp_path / f".acpx/sessions/{RECORD}.json"
        about = {"acp_session_id": SESSION, "agent_command": "claude-agent-acp"}
        path.write_text(json.dumps(json.loads(path.read_text()) | about))
        write("claude", tmp_path, turns[:by_claude])
        for name in ("acpx", "claude") * 2:
            for source in found(name, tmp_path):
                await Intake(opened).take(source, reader(name))
        assert await prompts(opened) == [turn.words for turn in turns[: max(by_acpx, by_claude)]]
        assert await others(opened) == []


async def test_a_journal_that_is_upgraded_meanwhile_takes_the_news_at_once(
    opened: Journal, journal: Path, tmp_path: Path
) -> None:
    whole = conversation("one")
    put(tmp_path, whole)
    await take(opened, tmp_path)
    say(whole, "two")
    put(tmp_path, whole)
    (source,) = sources(READER, tmp_path)

    async def telling(*given: Any) -> AsyncIterator[NewsPiece]:
        async for piece in read_here(*given):
            with sqlite3.connect(journal) as connection:  # as an upgrade does
                connection.execute("DELETE FROM leases")
            connection.close()
            yield piece

    assert (await Intake(opened).take(source, READER, telling)).outcome == "grown"
    assert await prompts(opened) == ["one", "two"]


@pytest.mark.parametrize("comes_first", ["the conversation", "the branch", "its deletion"])
async def test_a_branch_goes_with_its_conversation_as_a_tail_does(
    opened: Journal, tmp_path: Path, comes_first: str
) -> None:
    transcript = conversation("one")
    first = transcript.last
    say(transcript, "left")
    say(transcript, "back", first)
    put(tmp_path, transcript)
    (source,) = sources(READER, tmp_path)
    assert READER.branches is not None
    (branch,) = READER.branches(source)
    intake = Intake(opened)
    if comes_first != "the branch":
        await intake.take(source, READER)
        await opened.access.keep_share(Share(SESSION, "bob"))
    if comes_first == "its deletion":
        await opened.delete(SESSION)
    taken = await intake.take(branch, READER)
    if comes_first != "its deletion":
        assert await prompts(opened, branch.session_id) == ["one", "left"]
        row = await opened.session(branch.session_id)
        assert row.tail_of == SESSION
        assert [*row.shared_with] == ["bob"] * (comes_first == "the conversation")
        await intake.take(source, READER)
        assert await prompts(opened, branch.session_id) == ["one", "left"]
        await opened.delete(SESSION, *await tails_of(opened, SESSION))
        taken = await intake.take(branch, READER)
    assert taken.outcome == "deleted"
    assert await opened.page(ListFilter()) == []


@pytest.mark.parametrize("is_orphan", [True, False])
async def test_a_conversation_whose_first_part_the_program_deletes_stays_one(
    tmp_path: Path, opened: Journal, *, is_orphan: bool
) -> None:
    state = State(tmp_path)

    async def told() -> list[tuple[str, list[str]]]:
        for source in sources(HERMES, tmp_path):
            await Intake(opened).take(source, HERMES)
        rows = await opened.page(ListFilter())
        return [(row.session_id, await prompts(opened, row.session_id)) for row in rows]

    def copied(role: str, words: str, **about: Any) -> None:
        state.message(role, words, "s2", timestamp=state.at, **about)
        state.at -= 1

    state.session(end_reason="compression")
    for words in ("Hello.", "Look.", "yes"):
        state.message("user", words)
        state.message("assistant", f"On {words}", finish_reason="stop")
    state.at += 60
    state.session("s2", parent_session_id="s1")
    for words in ("Hello.", SUMMARY, "yes"):
        copied("user", words)
        if words != SUMMARY:
            copied("assistant", f"On {words}", finish_reason="stop")
    copied("user", "And now?")
    state.at += 30
    state.message("assistant", "Bye.", "s2", finish_reason="stop")
    whole = ["Hello.", "Look.", "yes", "And now?"]
    assert await told() == [("s1", whole)]
    for table, column in (("messages", "session_id"), ("sessions", "id")):
        state.db.execute(f"DELETE FROM {table} WHERE {column} = 's1'")
    if is_orphan:
        state.db.execute("UPDATE sessions SET parent_session_id = NULL")
    assert await told() == [("s1", whole)]
    state.message("user", "yes", "s2")
    state.message("assistant", "Well.", "s2", finish_reason="stop")
    for _ in range(2):
        assert await told() == [("s1", [*whole, "yes"])]
    await opened.delete("s1")
    assert await told() == []
