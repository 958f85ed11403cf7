"""A turn that a person takes out: nothing has it any more, and no import brings it back."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, strategies as st
from msgspec.structs import replace

from acphold.conversation.history.entries import Origin
from acphold.conversation.history.titles import UNTITLED
from acphold.errors import HeldElsewhereError
from acphold.imports import Home, Intake, claude, codex, reader
from acphold.imports.claude import READER
from acphold.imports.forgotten_turns import Forgettable, find_turn, forget
from acphold.imports.intake import read_here
from acphold.imports.pieces import NewsPiece
from acphold.imports.readers import Reader
from acphold.imports.sources import Source
from acphold.imports.turns import KnownPart, ReadTurn
from acphold.journal.copies import copy
from acphold.journal.journal import Journal, history, state_of
from acphold.journal.rows import ListFilter, NewSession, RowChange
from acphold.journal.seams import TurnSnapshot
from acphold.journal.stores import open_journal
from acphold.live.hub.handover import earlier_conversation
from tests.cli.command_line import CommandLine
from tests.empty_journal import empty
from tests.imports.claude_home import CWD, SESSION, Transcript
from tests.imports.codex_home import Rollout
from tests.imports.every_reader import READERS, Said, found, write
from tests.imports.test_killed_import import ending
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


NOWHERE = Home(Path("/nonexistent"))


async def forget_turn(
    journal: Journal, number: int, session_id: str = SESSION, home: Home = NOWHERE
) -> list[str]:
    found = await find_turn(journal, session_id, number, home)
    assert found is not None
    await forget(journal, found)
    return found.sessions


def say_at(transcript: Transcript, first: datetime, *prompts: str) -> None:
    """Say prompts, a minute between them."""
    for minute, words in enumerate(prompts):
        say(transcript, words)
        for record in transcript.records[-2:]:
            record["timestamp"] = (first + timedelta(minutes=minute)).isoformat()


async def raw(journal: Journal, session_id: str = SESSION) -> bytes:
    return b"".join([segment.raw async for segment in history(journal, session_id)])


async def test_a_title_that_a_person_gave_stays_though_it_has_the_one_letter_of_the_turn(
    opened: Journal, tmp_path: Path
) -> None:
    put(tmp_path, conversation("one", "y"))
    await take(opened, tmp_path)
    await opened.change(SESSION, RowChange(given="My title"))
    await forget_turn(opened, 2)
    assert (await opened.session(SESSION)).title == "My title"


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


async def test_it_goes_from_copies_and_from_the_turns_that_were_left(
    opened: Journal, tmp_path: Path
) -> None:
    transcript = conversation("one")
    first = transcript.last
    say(transcript, "my secret")
    put(tmp_path, transcript)
    await take(opened, tmp_path)
    row = await opened.session(SESSION)
    await copy(opened, row, NewSession("copy", READER.key, CWD), row.last_seq)
    say(transcript, "back", first)
    put(tmp_path, transcript)
    await take(opened, tmp_path)
    assert (await opened.session("copy")).origins == (Origin(SESSION, READER.key, row.last_seq),)
    (tail,) = {*await others(opened)} - {"copy"}
    assert {*await forget_turn(opened, 2, "copy")} == {"copy", tail}
    for session_id in (SESSION, "copy", tail):
        assert b"secret" not in await raw(opened, session_id)
    put(tmp_path, transcript, 1, upto=4)
    await take(opened, tmp_path)
    for session_id in (SESSION, "copy", tail):
        assert b"secret" not in await raw(opened, session_id)


async def test_the_snapshots_of_files_from_it_go_and_no_others(opened: Journal) -> None:
    await opened.release(await opened.create(NewSession(SESSION, READER.key, CWD)))
    taken: list[TurnSnapshot] = []
    for words in ("one", "my secret", "three"):
        before = (await opened.session(SESSION)).last_seq
        await say_here(opened, words)
        begin = TurnSnapshot(turn=before, edge="begin", root=CWD, at=before, state="whole")
        taken += [begin, replace(begin, edge="end")]
    await opened.snapshots.keep(SESSION, taken)
    await forget_turn(opened, 2)
    assert await opened.snapshots.of(SESSION) == [*taken[:2], *taken[4:]]


async def test_it_goes_from_a_copy_of_a_session_that_was_deleted(
    opened: Journal, tmp_path: Path
) -> None:
    put(tmp_path, conversation("one", "my secret"))
    await take(opened, tmp_path)
    row = await opened.session(SESSION)
    await copy(opened, row, NewSession("copy", READER.key, CWD), row.last_seq)
    await opened.delete(SESSION)
    assert await forget_turn(opened, 2, "copy") == ["copy"]
    assert b"secret" not in await raw(opened, "copy")


def queued(do: str, id_: str, **more: Any) -> tuple[str, list[bytes]]:
    return "queue", [json.dumps({"do": do, "id": id_, **more}).encode()]


SECRET = "in configuration it is sk-SEKRET77.1"


async def test_a_turn_that_began_in_the_queue_goes_from_that_too(
    opened: Journal, journal: Path
) -> None:
    lease = await opened.create(NewSession(SESSION, READER.key, CWD))
    secret, other = ([{"type": "text", "text": it}] for it in (SECRET, "other"))
    failed: tuple[str, list[bytes]] = ("turn_end", [b'{"error":{"code":1,"message":"no"}}'])
    await opened.append(
        lease,
        [
            queued("add", "dropped", prompt=secret),
            queued("add", "run", prompt=secret),
            queued("add", "waits", prompt=other, before="run"),
            queued("edit", "run", prompt=other),
            queued("edit", "run", prompt=secret),
            queued("drop", "dropped"),
            queued("add", "edited", prompt=secret),
            queued("edit", "edited", prompt=secret),
            queued("edit", "edited", prompt=other),
            queued("add", "other", prompt=[{"type": "text", "text": "put sk-SEKRET77.1 there"}]),
            queued("drop", "other"),
            queued("add", "similar", prompt=[{"type": "text", "text": "the configuration"}]),
            queued("drop", "similar"),
        ],
    )
    prompt: tuple[str, list[bytes]] = ("prompt", [json.dumps(secret).encode()])
    author: tuple[str, list[bytes]] = ("author", [b'{"name":"test"}'])
    await opened.append(lease, [queued("begin", "run"), author, prompt])
    await opened.append(lease, [failed])
    await opened.change(lease, RowChange(prompted=True, queued=2, held="failed"))
    await opened.settle(lease, lease.next_seq - 1)
    await opened.release(lease)
    await opened.index.catch_up(10)
    before = (await opened.summary(SESSION)).queue
    ended = [SECRET, SECRET, "put sk-SEKRET77.1 there", "the configuration"]
    assert sorted(it.words for it in before.ended) == ended
    await forget_turn(opened, 1)
    queue = (await opened.summary(SESSION)).queue
    assert ([it.words for it in queue.ended], queue.begun) == (["the configuration"], None)
    assert [(it.id, it.words) for it in queue.waiting] == [("waits", "other"), ("edited", "other")]
    assert (queue.held, (await state_of(opened, SESSION)).queue) == ("failed", queue)
    row = await opened.session(SESSION)
    assert (row.queued, row.held) == (2, "failed")
    assert b"SEKRET77" not in await raw(opened)
    await check_bytes(opened, journal)


async def check_bytes(opened: Journal, journal: Path) -> None:
    """Nothing of the journal has the secret, once it was swept."""
    assert opened.file is not None
    await opened.file.sweep()
    for path in filter(Path.is_file, journal.parent.glob(f"{journal.name}*")):
        assert b"sekret77" not in path.read_bytes().lower()


@pytest.mark.parametrize("is_renamed", [False, True])
async def test_what_an_agent_said_of_the_session_in_the_turn_goes_too(
    opened: Journal, journal: Path, *, is_renamed: bool
) -> None:
    lease = await opened.create(NewSession(SESSION, READER.key, CWD))
    for words in ("hello", "my token is SEKRET77"):
        told: list[Any] = [
            {"sessionUpdate": "session_info_update", "title": f"On {words}", "_meta": {"x": words}},
            {
                "sessionUpdate": "available_commands_update",
                "availableCommands": [{"name": "x", "description": words}],
            },
        ]
        prompt: tuple[str, list[bytes]] = ("prompt", [json.dumps([{"text": words}]).encode()])
        updates: tuple[str, list[bytes]] = ("update", [json.dumps(it).encode() for it in told])
        end: tuple[str, list[bytes]] = ("turn_end", [b'{"stopReason":"end_turn"}'])
        meta = json.dumps({"x": words}).encode()
        await opened.append(
            lease, [prompt, updates, end], RowChange(title=f"On {words}", meta=meta, prompted=True)
        )
    if is_renamed:
        await opened.change(lease, RowChange(given="Mine"))
    await opened.settle(lease, lease.next_seq - 1)
    await opened.release(lease)
    await opened.index.catch_up(10)
    await forget_turn(opened, 2)
    row, its = await opened.session(SESSION), (await opened.summary(SESSION)).attributes
    assert row.title == ("Mine" if is_renamed else "On hello")
    assert json.loads(row.meta) == json.loads(its.meta or b"") == {"x": "hello"}
    await check_bytes(opened, journal)


async def test_prompts_without_words_stay_in_the_queue_when_a_turn_without_words_goes(
    opened: Journal,
) -> None:
    lease = await opened.create(NewSession(SESSION, READER.key, CWD))
    one, other = ([{"type": "image", "data": it, "mimeType": "image/png"}] for it in ("AAAA", "BB"))
    add, drop = queued("add", "dropped", prompt=other), queued("drop", "dropped")
    prompt: tuple[str, list[bytes]] = ("prompt", [json.dumps(one).encode()])
    end: tuple[str, list[bytes]] = ("turn_end", [b'{"stopReason":"end_turn"}'])
    await opened.append(lease, [add, drop, prompt])
    await opened.append(lease, [end])
    await opened.release(lease)
    await forget_turn(opened, 1)
    left = await raw(opened)
    assert (b'"AAAA"' in left, b'"BB"' in left) == (False, True)


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


@pytest.mark.parametrize("when", ["before it is read", "before it is written", "while it grows"])
async def test_one_that_is_taken_out_while_an_import_runs_comes_back_with_no_fork(
    opened: Journal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    monkeypatch.setattr("acphold.imports.pieces.PIECE_BYTES", 1)
    whole = conversation("one", "my secret", "three")
    put(tmp_path, whole)
    intake = Intake(opened)
    (source,) = sources(READER, tmp_path)
    await intake.take(source, READER)
    path = tmp_path / ".claude/projects" / FOLDERS[1] / f"{FORK}.jsonl"
    write_lines(path, *({**record, "sessionId": FORK} for record in whole.records))
    (fork,) = (it for it in sources(READER, tmp_path) if it.session_id == FORK)
    if when == "before it is read":
        await forget_turn(opened, 2)

    async def forgetting(*reading: Any) -> AsyncIterator[NewsPiece]:
        async for piece in read_here(*reading):
            turn = b"my secret" if when == "before it is written" else b"On my secret"
            if await prompts(opened) != ["one", "three"] and turn in piece.entries[-1].raw:
                await forget_turn(opened, 2)
            yield piece

    assert (await intake.take(fork, READER, forgetting)).outcome in ("new", "grown")
    assert await prompts(opened, FORK) == ["one", "three"]
    assert b"secret" not in await raw(opened, FORK)


async def test_a_tail_that_is_made_once_the_turn_was_found_loses_it_too(
    opened: Journal, tmp_path: Path
) -> None:
    transcript = conversation("one")
    first = transcript.last
    say(transcript, "my secret")
    put(tmp_path, transcript)
    await take(opened, tmp_path)
    turn = await find_turn(opened, SESSION, 2, NOWHERE)
    say(transcript, "back", first)
    put(tmp_path, transcript)
    await take(opened, tmp_path)
    assert turn is not None
    (tail,) = await others(opened)
    await forget(opened, turn)
    assert b"secret" not in await raw(opened, tail)


@given(prompt=st.text("ab1 ", max_size=80), text=st.text("ab1 ", max_size=80), surely=st.booleans())
@example(prompt=f"{'a' * 12} {'b' * 20}", text="a" + "b" * 20, surely=False)
@example(prompt=f"{'a' * 12} b", text="a" * 12, surely=True)
def test_a_text_has_a_prompt_if_it_has_the_words_or_one_that_may_be_a_secret(
    prompt: str, text: str, *, surely: bool
) -> None:
    long = [it for it in prompt.split() if len(it) >= 12]
    long = [it for it in long if not surely or ("1" in it and {*it} != {"1"})]
    is_whole = bool(prompt.split()) and "".join(prompt.split()) == "".join(text.split())
    found = Forgettable(ReadTurn(), prompt, set())
    assert found.finder(surely=surely)(text) == (is_whole or any(it in text for it in long))


async def test_the_conversations_of_an_agent_are_looked_for_once_for_all_copies(
    opened: Journal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path, conversation("one", "my secret"))
    await take(opened, tmp_path)
    row = await opened.session(SESSION)
    for n in range(3):
        await copy(opened, row, NewSession(f"copy {n}", READER.key, CWD), row.last_seq)
    looks: list[str] = []
    real = Reader.find

    def find(its: Reader, home: Home) -> Iterator[Source]:
        looks.append(its.name)
        return real(its, home)

    monkeypatch.setattr(Reader, "find", find)
    turn = await find_turn(opened, SESSION, 2, Home(tmp_path))
    assert turn is not None
    assert len(turn.sessions) == 4
    assert sorted(looks) == sorted({*looks})


def put_rewound(name: str, home: Path, left: list[Said], newer: list[Said]) -> None:
    """Write a conversation whose person went back from the third of `left`."""
    told: list[str] = []
    for way in (left, newer):
        write(name, home, way)
        path = Path(next(found(name, home)).paths[0])
        if name != "opencode":  # it keeps the newest way only
            told += [line for line in path.read_text().splitlines(True) if line not in told]
            rewind = {"$rewindTo": f"{left[2].number:07}a"}
            told += [f"{json.dumps(rewind)}\n"] if name == "gemini" and way is left else []
            path.write_text("".join(told))


@pytest.mark.parametrize("is_left", [True, False])
@pytest.mark.parametrize(
    ("name", "is_told_before"),
    [*product(("claude", "pi", "gemini"), (True, False)), ("opencode", True)],
)
async def test_a_tail_loses_the_turn_and_no_other_one_whether_it_was_told_before_or_is_a_branch(
    opened: Journal, tmp_path: Path, name: str, *, is_told_before: bool, is_left: bool
) -> None:
    words = (
        ["one", "two", "my secret", "left"] if is_left else ["one", "my secret", "three", "left"]
    )
    left = [Said(n, BEGUN + 60_000 * n, its, f"A{n}") for n, its in enumerate(words, 1)]
    newer = [*left[:2], Said(5, BEGUN + 400_000, "five", "A5")]
    reading = reader(name)

    async def take_all(*, branches: bool = False) -> None:
        (source,) = found(name, tmp_path)
        ways = [*reading.branches(source)] if branches and reading.branches else []
        for its in (source, *ways):
            await Intake(opened).take(its, reading)

    if is_told_before:
        write(name, tmp_path, left)
        await take_all()
    put_rewound(name, tmp_path, left, newer)
    await take_all()
    await take_all(branches=True)
    (tail,) = (row for row in await opened.page(ListFilter()) if "~" in row.session_id)
    its_turns = await prompts(opened, tail.session_id)
    assert its_turns == (words if reading.branches else words[2:])
    main = tail.session_id.partition("~")[0]
    its_id, number = (tail.session_id, len(its_turns) - 1) if is_left else (main, 2)
    turn = await find_turn(opened, its_id, number, Home(tmp_path))
    assert turn is not None
    in_file = reading.branches is not None or not is_left
    assert {*turn.files} == {path for it in found(name, tmp_path) if in_file for path in it.paths}
    await forget(opened, turn)
    newer.append(Said(6, BEGUN + 500_000, "six", "A6"))
    here = {main: [*words[:2], "five", "six"], tail.session_id: its_turns}
    for branches in (False, True):
        put_rewound(name, tmp_path, left, newer)
        await take_all(branches=branches)
        for session_id, its in here.items():
            assert await prompts(opened, session_id) == [it for it in its if it != "my secret"]
            assert b"secret" not in await raw(opened, session_id)


def put_fork(home: Path, whole: Transcript, origin: str = SESSION, name: str = FORK) -> None:
    fork = {"sessionId": name, "forkedFrom": {"sessionId": origin}}
    path = home / ".claude/projects" / FOLDERS[1] / f"{name}.jsonl"
    write_lines(path, *(record | fork for record in whole.records))


@pytest.mark.parametrize("own_file", ["is there", "comes later", "is gone"])
@pytest.mark.parametrize("is_known", [True, False])
async def test_a_turn_that_was_said_here_comes_back_with_no_fork(
    opened: Journal, tmp_path: Path, own_file: str, *, is_known: bool
) -> None:
    whole = conversation("one")
    put(tmp_path, whole)
    await take(opened, tmp_path)
    await say_here(opened, "my secret")
    say_at(whole, datetime.now(UTC) + timedelta(seconds=2), "my secret", "three")
    if is_known:
        put_fork(tmp_path, whole)
        await take(opened, tmp_path)
        assert await prompts(opened, FORK) == ["one", "my secret", "three"]
    if own_file == "is there":
        put(tmp_path, whole)
    elif own_file == "is gone":
        (tmp_path / ".claude/projects" / FOLDERS[0] / f"{SESSION}.jsonl").unlink()
    changed = await forget_turn(opened, 2, home=Home(tmp_path))
    assert changed == [SESSION, FORK][: 1 + is_known]
    if own_file == "comes later":
        put(tmp_path, whole)
        await take(opened, tmp_path)
    # Much later: only its name in a file tells that the fork has it.
    for fork, origin in ((FORK, SESSION), (FORK.replace("9", "8"), FORK)):
        put_fork(tmp_path, whole, origin, fork)
        await take(opened, tmp_path)
        assert await prompts(opened, fork) == ["one", "three"]
        assert b"secret" not in await raw(opened, fork)


@pytest.mark.parametrize("is_known", [True, False])
@pytest.mark.parametrize("is_said_here", [True, False])
async def test_a_fork_of_a_fork_that_is_gone_loses_the_turn_too(
    opened: Journal, tmp_path: Path, *, is_known: bool, is_said_here: bool
) -> None:
    whole = conversation("one") if is_said_here else conversation("one", "my secret", "three")
    put(tmp_path, whole)
    await take(opened, tmp_path)
    if is_said_here:
        await say_here(opened, "my secret")
        say_at(whole, datetime.now(UTC) + timedelta(seconds=2), "my secret", "three")
        (tmp_path / ".claude/projects" / FOLDERS[0] / f"{SESSION}.jsonl").unlink()
    its = FORK.replace("9", "8")
    for is_now in (True, False):
        if is_now is is_known:
            put_fork(tmp_path, whole, FORK, its)
            await take(opened, tmp_path)
        if is_now:
            sessions = await forget_turn(opened, 2, home=Home(tmp_path))
            assert sessions == [SESSION, its][: 1 + is_known]
    assert await prompts(opened, its) == ["one", "three"]
    assert b"secret" not in await raw(opened, its)
    (tmp_path / ".claude/projects" / FOLDERS[1] / f"{its}.jsonl").unlink()
    put_fork(tmp_path, whole, "00000000-gone", its.replace("8", "7"))
    await take(opened, tmp_path)
    assert await prompts(opened, its.replace("8", "7")) == ["one", "three"]


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
    await forget_turn(opened, 2, row.session_id, Home(tmp_path))
    # The time here, and what the agent has: an id, and its own time if it keeps times.
    names = [its for kind, its in await opened.links.of(None) if kind == "forgotten"]
    assert len(names) == (2 if name == "zed" else 3)
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
    await forget_turn(opened, 2, row.session_id, Home(tmp_path))
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
    name = ReadTurn(words=words, at=begin, until=begin + took, is_here=True).said
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


async def test_a_title_of_the_turn_that_an_agent_keeps_elsewhere_comes_back_with_no_import(
    opened: Journal, tmp_path: Path
) -> None:
    first = "my key is sk-SEKRET77xyz, keep it"
    told = [Said(n, BEGUN + n, first if n == 1 else f"words {n}", "A") for n in (1, 2)]
    index = tmp_path / ".codex/session_index.jsonl"

    async def take_with(title: str) -> str | None:
        write("codex", tmp_path, told)
        index.write_text(json.dumps({"id": SESSION, "thread_name": title}))
        (source,) = found("codex", tmp_path)
        await Intake(opened).take(source, reader("codex"))
        assert await Intake(opened).expect(source, reader("codex")) == "same"
        return (await opened.session(SESSION)).title

    titles = f"{first[:20]}…", "Keep sk-SEKRET77xyz safe", first
    assert [await take_with(title) for title in titles] == [first, titles[1], titles[1]]
    await forget_turn(opened, 1, home=Home(tmp_path))
    for n, title in enumerate(titles):
        assert b"SEKRET77" not in await raw(opened)
        told.append(Said(9 + n, BEGUN + 9000 + n, f"later {n}", "B"))
        assert await take_with(title) == "words 2"
    assert b"SEKRET77" not in await raw(opened)


@pytest.mark.parametrize("name", ["codex", "opencode"])
async def test_a_file_that_cannot_be_read_is_named_as_one_that_may_have_the_turn(
    opened: Journal, journal: Path, tmp_path: Path, name: str
) -> None:
    told = [Said(n, BEGUN + 60_000 * n, its, "A") for n, its in enumerate(("one", "my secret"), 1)]
    write(name, tmp_path, told)
    (source,) = found(name, tmp_path)
    await Intake(opened).take(source, reader(name))
    (row,) = await opened.page(ListFilter())
    for path in source.paths:
        (tmp_path / path).write_bytes(b"garbage")
    turn = await find_turn(opened, row.session_id, 2, Home(tmp_path))
    assert turn is not None
    assert [line.startswith(f"{source.paths[0]}: ") for line in turn.unread] == [True]


@pytest.mark.parametrize("of", ["search", "branches", "read"])
async def test_a_file_on_which_a_reader_fails_is_named_too(
    opened: Journal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, of: str
) -> None:
    left = [
        Said(n, BEGUN + 60_000 * n, its, "A") for n, its in enumerate(("one", "two", "left"), 1)
    ]
    put_rewound("claude", tmp_path, left, [*left[:2], Said(5, BEGUN + 400_000, "five", "A5")])
    (source,) = found("claude", tmp_path)
    assert READER.branches is not None
    for its in (source, *READER.branches(source)):
        await Intake(opened).take(its, READER)

    def fail(*_: object) -> object:
        raise KeyError("new field")

    failing: dict[str, Any] = {of: fail}
    monkeypatch.setattr(claude, "READER", READER._replace(**failing))
    (tail,) = (row for row in await opened.page(ListFilter()) if "~" in row.session_id)
    turn = await find_turn(opened, tail.session_id, 1, Home(tmp_path))
    assert turn is not None
    assert "reader failed on it" in "".join(turn.unread)


async def test_there_is_no_such_turn_or_somebody_has_the_session_open(
    opened: Journal, journal: Path, tmp_path: Path
) -> None:
    put(tmp_path, conversation("one"))
    await take(opened, tmp_path)
    assert await find_turn(opened, SESSION, 0, NOWHERE) is None
    assert await find_turn(opened, SESSION, 2, NOWHERE) is None
    other = open_journal(journal)
    await other.acquire(SESSION)
    with pytest.raises(HeldElsewhereError):
        await forget_turn(opened, 1)
    await other.aclose()
    assert await prompts(opened) == ["one"]


async def test_a_session_without_turns_gets_the_title_of_its_next_prompt_not_one_of_its_agent(
    opened: Journal, tmp_path: Path
) -> None:
    whole = conversation("Keep my secret")
    put(tmp_path, whole)
    await take(opened, tmp_path)
    await forget_turn(opened, 1)
    assert ((row := await opened.session(SESSION)).title, row.renamed) == (UNTITLED, True)
    whole.beside(type="ai-title", aiTitle="The agent's own", sessionId=SESSION)
    put(tmp_path, whole)
    await take(opened, tmp_path)
    assert (await opened.session(SESSION)).title == UNTITLED
    say(whole, "Fix the parser")
    put(tmp_path, whole)
    await take(opened, tmp_path)
    assert ((row := await opened.session(SESSION)).title, row.renamed) == ("Fix the parser", True)


async def test_a_title_made_of_the_words_goes_with_them(opened: Journal, tmp_path: Path) -> None:
    whole = conversation("please keep my secret.", "two")
    put(tmp_path, whole)
    await take(opened, tmp_path)
    assert (await opened.session(SESSION)).title == "Keep my secret"
    await forget_turn(opened, 1)
    assert ((row := await opened.session(SESSION)).title, row.renamed) == ("two", True)
    assert b"secret" not in await raw(opened)
    say(whole, "three")
    put(tmp_path, whole)
    await take(opened, tmp_path)
    assert await prompts(opened) == ["two", "three"]
    assert (await opened.session(SESSION)).title == "two"
    assert b"secret" not in await raw(opened)


@pytest.mark.parametrize("is_imported_before", [False, True])
async def test_wherever_it_ends_the_next_one_ends_it_and_no_import_brings_the_words_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_imported_before: bool
) -> None:
    for write_number in range(1, 100):
        home = tmp_path / f"{write_number}"
        home.mkdir()
        opened = open_journal(empty(home / "journal.db"))
        whole = conversation("please keep my secret.", "two", "three")
        put(home, whole, upto=4)
        await take(opened, home)
        row = await opened.session(SESSION)
        new = NewSession("copy", READER.key, CWD, title=row.title)
        await copy(opened, row, new, row.last_seq)
        is_ended, left = False, [write_number]
        with monkeypatch.context() as patch:
            for name in ("take_in", "withdraw"):
                patch.setattr(opened, name, ending(getattr(opened, name), left))
            patch.setattr(opened.links, "link", ending(opened.links.link, left))
            try:
                await forget_turn(opened, 1)
            except KeyboardInterrupt:
                is_ended = True
        for is_done in (not is_imported_before, True):
            if is_done:
                found = await find_turn(opened, SESSION, 1, NOWHERE)
                assert found is not None
                if "secret" in found.prompt:
                    await forget(opened, found)
                for session_id in (SESSION, "copy"):
                    assert b"secret" not in await raw(opened, session_id), write_number
                    assert (await opened.session(session_id)).title == "two", write_number
            put(home, whole)
            await take(opened, home)
        assert await prompts(opened) == ["two", "three"]
        await opened.aclose()
        if not is_ended:
            return
    pytest.fail("it never ends")


@pytest.mark.parametrize("question", ["y", "Which of the words was it, please?"])
async def test_what_another_agent_was_handed_is_named_and_can_be_forgotten(
    opened: Journal, journal: Path, tmp_path: Path, question: str
) -> None:
    put(tmp_path, conversation("one", "my key is sk-SEKRET77xyz", "three"))
    await take(opened, tmp_path)
    context = earlier_conversation(await state_of(opened, SESSION), is_new=True)
    assert context is not None
    row = await opened.session(SESSION)
    origin = Origin(SESSION, READER.key, row.last_seq)
    lease = await opened.acquire(SESSION)
    await opened.change(lease, RowChange(agent=codex.READER.key, origins=(origin,)))
    await opened.links.link(lease, codex.READER.key, FORK)
    await opened.release(lease)
    await say_here(opened, question)
    rollout = Rollout(f"{context.text}\n# What the user says now\n\n{question}", session=FORK)
    rollout.agent("It is sk.")
    file = rollout.write(tmp_path)
    (source,) = sources(codex.READER, tmp_path)
    await Intake(opened).take(source, codex.READER)
    found = await find_turn(opened, SESSION, 2, Home(tmp_path))
    assert found is not None
    assert {Path(it).name for it in found.files} == {f"{SESSION}.jsonl", file.name}
    assert len(found.told) == 1
    said = CommandLine(journal).run("session", "forget", SESSION, "2", "--yes").err
    for session_id, seq in found.told:
        assert f"`acphold session forget {session_id}@{seq}`" in said
        again = "session", "forget", f"{session_id}@{seq}", "--yes"
        assert CommandLine(journal).run(*again).code == 0
    await Intake(opened).take(replace(source, changed_at=source.changed_at + 1), codex.READER)
    for row in await opened.page(ListFilter()):
        assert b"SEKRET77" not in await raw(opened, row.session_id)
