"""Sums of usage count the tokens of a turn once, however many conversations have it."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from acphold.imports import Intake, Reader, pieces, reader as made_reader, session_writer
from acphold.imports.auggie import READER as AUGGIE
from acphold.imports.claude import READER as CLAUDE
from acphold.imports.codex import READER as CODEX
from acphold.imports.copilot import READER as COPILOT
from acphold.imports.gemini import READER as GEMINI
from acphold.imports.opencode import KILO, READER as OPENCODE
from acphold.imports.pi import READER as PI
from acphold.imports.qwen import READER as QWEN
from acphold.journal.journal import Journal, history
from acphold.journal.rows import NewSession
from acphold.journal.seams import Grouping
from tests.conversations import chunk, encode
from tests.imports.claude_home import CWD, SESSION, Transcript, use
from tests.imports.every_reader import Said, found, write
from tests.imports.told import sources, write_lines
from tests.raw_entries import ended, prompt

Json = Any
FORK = "99999999-2222-4333-8444-555555555555"


async def import_all(journal: Journal, home: Path, reader: Reader) -> None:
    for source in sources(reader, home):
        assert (await Intake(journal).take(source, reader)).outcome == "new"


async def total(journal: Journal) -> int | None:
    return (await journal.index.usage("agent")).total.tokens.total


def claude_fork(home: Path) -> None:
    """A transcript, and its copy, which ends with a turn of its own; each turn has 17 tokens."""
    original = Transcript("One.")
    original.assistant("1")
    original.user("Two.")
    original.assistant("2")
    original.write(home)
    copied = [it | {"sessionId": FORK, "forkedFrom": SESSION} for it in original.records[:2]]
    fork = Transcript(count=100)
    fork.last = original.records[1]["uuid"]
    fork.user("Three.")
    fork.assistant("3")
    path = home / ".claude/projects/-home-ada-project" / f"{FORK}.jsonl"
    write_lines(path, *copied, *(it | {"sessionId": FORK} for it in fork.records))


def qwen_fork(home: Path) -> None:
    def record(name: str, after: str | None, kind: str, words: str) -> Json:
        message = {"role": "x", "parts": [{"text": words}]}
        about = {"uuid": name, "parentUuid": after, "type": kind, "message": message, "cwd": CWD}
        spent = {"promptTokenCount": 12, "candidatesTokenCount": 5}
        return about | ({"usageMetadata": spent} if kind == "assistant" else {})

    first = [record("u1", None, "user", "One."), record("a1", "u1", "assistant", "1")]
    second = [record("u2", "a1", "user", "Two."), record("a2", "u2", "assistant", "2")]
    third = [record("u3", "a1", "user", "Three."), record("a3", "u3", "assistant", "3")]
    chats = home / ".qwen/projects/-home-ada-project/chats"
    write_lines(chats / f"{SESSION}.jsonl", *first, *second)
    write_lines(chats / f"{FORK}.jsonl", *first, *third)


def codex_fork(home: Path) -> None:
    from tests.imports.test_codex_threads import Segment

    def spend(segment: Segment, total: int) -> None:
        last = {"input_tokens": 12, "output_tokens": 5}
        info = {"last_token_usage": last, "total_token_usage": {"total_tokens": total}}
        segment.records.insert(-1, segment.records[-1] | {"ordinal": segment.ordinal - 1})
        segment.records[-2]["payload"] = {"type": "token_count", "info": info}
        segment.records[-1]["ordinal"] = segment.ordinal
        segment.ordinal += 1

    first = Segment(SESSION)
    first.turn("One.", "1")
    spend(first, 17)
    cut = first.turn("Two.", "2")
    spend(first, 34)
    fork = Segment(FORK, base=(SESSION, cut), forked_from_id=SESSION)
    fork.turn("Three.", "3")
    spend(fork, 34)
    first.write(home)
    fork.write(home)


def opencode_fork(home: Path, program: str = "opencode") -> None:
    from tests.imports.test_opencode import Store

    store = Store(home, program)
    spent = {"tokens": {"input": 12, "output": 5}, "finish": "stop"}
    for session, words in (("ses_1", "Two."), ("ses_2", "Three.")):
        store.session(session)
        for said, answer in (("One.", "1"), (words, "2")):
            at = {"created": 1_700_000_000_000 + (0 if said == "One." else 1_000 + store._count)}
            store.message("user", said, session=session, time=at)
            later = {"created": at["created"] + 500}
            store.message("assistant", answer, session=session, **spent, time=later)


def pi_fork(home: Path) -> None:
    from tests.imports.test_pi import SESSION as PARENT, Session

    spent: Json = {"usage": {"input": 12, "output": 5}}
    parent = Session()
    parent.user("One.")
    parent.agent("1", **spent)
    path = parent.write(home)
    fork = [parent.records[0] | {"id": FORK, "parentSession": str(path)}, *parent.records[1:]]
    rest = Session()
    rest.records, rest.leaf = fork, parent.leaf
    parent.user("Two.")
    parent.agent("2", **spent)
    parent.write(home)
    rest.add("label")
    rest.user("Three.")
    rest.agent("3", **spent)
    write_lines(path.with_name(path.name.replace(PARENT, FORK)), *rest.records)


def copilot_fork(home: Path) -> None:
    from tests.imports.test_copilot import SESSION as PARENT, Events

    spent: Json = {"usage": {"model": "m", "inputTokens": 12, "outputTokens": 5}}
    events = Events()

    def tell(words: str, answer: str) -> None:
        events.user(words)
        events.agent(answer)
        events.add("session.usage_record", **spent)

    tell("One.", "1")
    path = events.write(home)
    shared = list(events.lines)
    tell("Two.", "2")
    events.write(home)
    events.lines = [*shared, events.lines[-1] | {"id": "x", "type": "session.resume"}]
    tell("Three.", "3")
    write_lines(path.parent.with_name(path.parent.name.replace(PARENT, FORK)) / path.name,
                *events.lines)  # fmt: skip


def auggie_fork(home: Path) -> None:
    from tests.imports.test_auggie import exchange, session

    spent = {"id": 3, "type": 10, "token_usage": {"input_tokens": 12, "output_tokens": 5}}
    first = exchange("One.", spent)
    path = session(home, first, exchange("Two.", spent))
    path.with_name(f"{FORK}.json").write_bytes(path.read_bytes().replace(b"Two.", b"Three."))


def kilo_fork(home: Path) -> None:
    opencode_fork(home, "kilo")


@pytest.mark.parametrize(
    ("reader", "fork"),
    [
        (AUGGIE, auggie_fork),
        (CLAUDE, claude_fork),
        (CODEX, codex_fork),
        (COPILOT, copilot_fork),
        (KILO, kilo_fork),
        (OPENCODE, opencode_fork),
        (PI, pi_fork),
        (QWEN, qwen_fork),
    ],
)
@pytest.mark.parametrize("by", ["agent", "day", "session"])
async def test_the_beginning_of_a_fork_counts_once(
    tmp_path: Path,
    opened: Journal,
    reader: Reader,
    fork: Callable[[Path], None],
    by: Grouping,
) -> None:
    fork(tmp_path)
    await import_all(opened, tmp_path, reader)
    found = await opened.index.usage(by)
    assert found.total.tokens.total == 3 * 17
    assert sum(it.tokens.total or 0 for it in found.groups) == 3 * 17


async def test_replies_of_two_conversations_in_one_millisecond_both_count(
    tmp_path: Path, opened: Journal
) -> None:
    from tests.imports.test_opencode import Store

    store, begun = Store(tmp_path), 1_700_000_000_000
    spent = {"tokens": {"input": 12, "output": 5}, "finish": "stop"}
    for session, asked in (("ses_1", begun), ("ses_2", begun + 1)):
        store.session(session)
        store.message("user", "One.", session=session, time={"created": asked})
        later = {"created": begun + 500}
        store.message("assistant", "1", session=session, **spent, time=later)
    await import_all(opened, tmp_path, OPENCODE)
    assert await total(opened) == 2 * 17


def auggie_reply(home: Path, counts: list[Json]) -> None:
    from tests.imports.test_auggie import exchange, session

    session(home, exchange("One.", *({"type": 10, "token_usage": it} for it in counts)))


def claude_reply(home: Path, counts: list[Json]) -> None:
    transcript = Transcript("One.")
    for usage in counts:
        transcript.add("assistant", message={"id": "m1", "content": [], "usage": usage})
    transcript.write(home)


def copilot_reply(home: Path, counts: list[Json]) -> None:
    from tests.imports.test_copilot import Events

    (events := Events()).user("One.")
    for usage in counts:
        events.add("session.usage_record", usage=usage | {"apiCallId": "c1"})
    events.write(home)


def gemini_reply(home: Path, counts: list[Json]) -> None:
    from tests.imports.test_gemini import Log

    (log := Log()).user("u1", "One.")
    for usage in counts:
        spent = {"input": usage["input_tokens"], "output": usage["output_tokens"]}
        log.message("g1", "gemini", "1", tokens=spent)
    log.write(home)


@pytest.mark.parametrize(
    ("reader", "tell"),
    [
        (AUGGIE, auggie_reply),
        (CLAUDE, claude_reply),
        (COPILOT, copilot_reply),
        (GEMINI, gemini_reply),
    ],
)
async def test_a_reply_whose_tokens_are_written_again_counts_with_the_largest(
    reader: Reader, tell: Callable[[Path, list[Json]], None], tmp_path: Path, opened: Journal
) -> None:
    tell(tmp_path, [{"input_tokens": 12, "output_tokens": it} for it in (1, 5, 5, 2)])
    await import_all(opened, tmp_path, reader)
    assert await total(opened) == 17


def _lines(home: Path) -> dict[Path, list[bytes]]:
    return {path: path.read_bytes().splitlines(keepends=True) for path in home.rglob("*.jsonl")}


def claude_reply_around_a_prompt(home: Path) -> None:
    transcript = Transcript("One.")
    transcript.assistant("1")
    again = json.loads(json.dumps(transcript.records[-1]["message"]))
    transcript.user("Two.")
    transcript.add("assistant", message=again)
    transcript.assistant("2")
    transcript.user("Three.")
    transcript.assistant("3")
    transcript.write(home)


@pytest.mark.parametrize(
    ("reader", "tell"),
    [
        (CLAUDE, claude_fork),
        (CLAUDE, claude_reply_around_a_prompt),
        (CODEX, codex_fork),
        (COPILOT, copilot_fork),
        (PI, pi_fork),
        (QWEN, qwen_fork),
    ],
)
@pytest.mark.parametrize("piece_bytes", [1, 600, pieces.PIECE_BYTES])
@pytest.mark.parametrize("is_long", [False, True])
async def test_tokens_count_once_wherever_an_import_or_a_piece_of_it_ends(
    is_long: bool,
    piece_bytes: int,
    reader: Reader,
    tell: Callable[[Path], None],
    tmp_path: Path,
    opened: Journal,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(session_writer, "WORTH_CHECKING", 0 if is_long else 1 << 20)
    monkeypatch.setattr(pieces, "PIECE_BYTES", piece_bytes)
    tell(tmp_path)
    files = _lines(tmp_path)
    for count in range(1, max(map(len, files.values())) + 1):
        for path, lines in files.items():
            path.write_bytes(b"".join(lines[:count]))
        for source in sources(reader, tmp_path):
            await Intake(opened).take(replace(source, changed_at=count), reader)
    assert await total(opened) == 3 * 17
    assert sum(it.tokens.total or 0 for it in (await opened.index.usage("day")).groups) == 3 * 17


async def test_the_end_of_a_turn_that_was_said_here_is_not_told_again_with_what_it_has_cost(
    tmp_path: Path, opened: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tests.imports.test_copilot import SESSION as COPIED, Events

    monkeypatch.setattr(session_writer, "WORTH_CHECKING", 0)
    lease = await opened.create(NewSession(COPIED, COPILOT.key, CWD))
    await opened.links.link(lease, COPILOT.key, COPIED)
    for kind, raw in (prompt("One."), ("update", encode(chunk("agent_message", "1"))), ended()):
        await opened.append(lease, [(kind, [raw])])
    await opened.release(lease)
    events = Events()
    events.user("One.")
    events.agent("1")
    for count in range(2):
        events.write(tmp_path)
        (source,) = sources(COPILOT, tmp_path)
        await Intake(opened).take(replace(source, changed_at=count), COPILOT)
        events.add("session.usage_record", usage={"model": "m", "inputTokens": 12})
    assert await total(opened) is None


async def test_of_copies_of_a_turn_the_largest_counts_are_the_sum(
    tmp_path: Path, opened: Journal
) -> None:
    original = Transcript("One.")
    original.assistant("1")
    original.write(tmp_path)
    longer = Transcript()
    longer.records = json.loads(json.dumps(original.records))
    longer.records[-1]["message"]["usage"]["output_tokens"] = 500
    longer.write(tmp_path, FORK)
    await import_all(opened, tmp_path, CLAUDE)
    found = await opened.index.usage("agent")
    assert (found.total.tokens.output, found.total.tokens.input) == (500, 10)


@pytest.mark.parametrize("is_long", [False, True])
async def test_a_turn_that_was_imported_while_it_ran_counts_once(
    is_long: bool, tmp_path: Path, opened: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_writer, "WORTH_CHECKING", 0 if is_long else 1 << 20)
    transcript = Transcript()
    for number in range(2):
        transcript.user(f"prompt {number}")
        for call in "abc":
            transcript.assistant("I look.", use(f"{number}{call}", "Bash", command="ls"))
            transcript.result(f"{number}{call}", "x")
        transcript.assistant("Done.")
    whole = transcript.records
    path = transcript.write(tmp_path)
    for count in range(2, len(whole) + 1):
        write_lines(path, *whole[:count])
        (source,) = sources(CLAUDE, tmp_path)
        await Intake(opened).take(replace(source, changed_at=count), CLAUDE)
    assert await total(opened) == 8 * 17
    write_lines(path.with_name(f"{FORK}.jsonl"), *(it | {"sessionId": FORK} for it in whole[:5]))
    for source in sources(CLAUDE, tmp_path):
        await Intake(opened).take(source, CLAUDE)
    assert await total(opened) == 8 * 17
    assert sum(it.tokens.total or 0 for it in (await opened.index.usage("day")).groups) == 8 * 17


REPLIES: dict[str, tuple[Callable[[Json], bool], Callable[[int], Json]]] = {
    "opencode": (
        lambda it: it.get("role") == "assistant",
        lambda count: {"tokens": {"input": 12, "output": count}},
    ),
    "kilo": (
        lambda it: it.get("role") == "assistant",
        lambda count: {"tokens": {"input": 12, "output": count}},
    ),
    "cline": (
        lambda it: it.get("role") == "assistant",
        lambda count: {"metrics": {"inputTokens": 12, "outputTokens": count}},
    ),
    "roo": (
        lambda it: it.get("say") == "api_req_started",
        lambda count: {"text": json.dumps({"tokensIn": 12, "tokensOut": count})},
    ),
    "cursor": (
        lambda it: it.get("type") == 2 and "text" in it,
        lambda count: {"tokenCount": {"inputTokens": 12, "outputTokens": count}},
    ),
    "vscode": (
        lambda it: "requestId" in it,
        lambda count: {"result": {"metadata": {"promptTokens": 12, "outputTokens": count}}},
    ),
}
"""Readers of programs that write a reply anew as it grows: its records, and its tokens in them."""


def spend(name: str, home: Path, count: int) -> None:
    """Give each reply in a home folder the tokens 12 and `count`."""
    is_reply, told = REPLIES[name]

    def spent(value: Json) -> Json:
        if isinstance(value, list):
            return [*map(spent, value)]
        if not isinstance(value, dict):
            return value
        return {key: spent(it) for key, it in value.items()} | (
            told(count) if is_reply(value) else {}
        )

    for path in home.rglob("*.json"):
        path.write_text(json.dumps(spent(json.loads(path.read_bytes()))))
    table, column = ("cursorDiskKV", "value") if name == "cursor" else ("message", "data")
    for path in home.rglob("*db"):
        with closing(sqlite3.connect(path, isolation_level=None)) as database:
            for row, raw in database.execute(f"SELECT rowid, {column} FROM {table}").fetchall():
                values = json.dumps(spent(json.loads(raw))), row
                database.execute(f"UPDATE {table} SET {column} = ? WHERE rowid = ?", values)


@pytest.mark.parametrize("name", REPLIES)
async def test_a_reply_that_is_written_anew_counts_once_with_its_largest_counts(
    name: str, tmp_path: Path, opened: Journal
) -> None:
    turns = [Said(n, 1_767_322_800_000 + 1_000 * n, f"Q{n}", f"A{n}") for n in (1, 2)]
    for number, (told, count) in enumerate([(1, 1), (1, 500), (2, 5), (2, 5)]):
        write(name, tmp_path / "home", turns[:told])
        spend(name, tmp_path / "home", count)
        for source in found(name, tmp_path / "home"):
            changed = replace(source, changed_at=number)
            await Intake(opened).take(changed, made_reader(name))
    assert await total(opened) == (12 + 500) + (12 + 5)


async def test_turns_that_are_no_copies_count_each(tmp_path: Path, opened: Journal) -> None:
    for name, count in ((SESSION, 0), (FORK, 100)):
        transcript = Transcript("One.", count=count)
        transcript.assistant("1")
        transcript.write(tmp_path, name)
    await import_all(opened, tmp_path, CLAUDE)
    assert await total(opened) == 2 * 17


async def test_a_reply_that_a_prompt_came_into_takes_nothing_from_the_next_turn(
    tmp_path: Path, opened: Journal
) -> None:
    transcript = Transcript("One.")
    transcript.assistant("1")
    again = json.loads(json.dumps(transcript.records[-1]["message"]))
    transcript.user("Two.")
    transcript.add("assistant", message=again)
    transcript.assistant("2")
    transcript.write(tmp_path)
    await import_all(opened, tmp_path, CLAUDE)
    assert await total(opened) == 2 * 17


async def test_a_turn_that_was_the_last_one_ends_once_when_the_file_has_grown(
    tmp_path: Path, opened: Journal
) -> None:
    transcript = Transcript()
    for number in range(3):
        transcript.user(f"prompt {number}")
        transcript.assistant(f"answer {number}")
        transcript.write(tmp_path)
        (source,) = sources(CLAUDE, tmp_path)
        assert (await Intake(opened).take(source, CLAUDE)).outcome in ("new", "grown")
    kinds = [
        entry.kind
        async for segment in history(opened, SESSION)
        for entry in segment.entries()
        if entry.kind in ("prompt", "turn_end")
    ]
    assert kinds == ["prompt", "turn_end"] * 3
    assert await total(opened) == 3 * 17
