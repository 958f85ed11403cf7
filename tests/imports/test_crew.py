"""Processes that read conversations for the one that writes the journal."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from acphold.errors import TranscriptError
from acphold.imports import PieceReader, Reader, Source, each
from acphold.imports.claude import READER
from acphold.imports.crew import WORTH_A_WORKER
from acphold.imports.entry_writer import EntryWriter
from acphold.imports.pieces import PIECE_BYTES, pieces
from acphold.imports.sources import ALL
from acphold.imports.turns import NOTHING
from tests.editor import DEADLINE
from tests.imports.claude_home import Transcript
from tests.imports.told import sources


def home_of(tmp_path: Path, *answers: str) -> list[Source]:
    """A conversation with each of these answers, as large as if it were worth a process."""
    for number, answer in enumerate(answers):
        transcript = Transcript()
        for _ in range(3):
            transcript.user("Hello.")
            transcript.assistant(answer)
        transcript.write(tmp_path, f"0000000{number}-2222-4333-8444-555555555555")
    return [replace(source, size=WORTH_A_WORKER) for source in sources(READER, tmp_path)]


def told(source: Source) -> list[bytes]:
    found = pieces(source, READER, NOTHING)
    return [entry.raw for piece in found for entry in piece.entries]


async def test_workers_tell_what_this_process_would_tell(tmp_path: Path) -> None:
    before = children()
    found = home_of(tmp_path, "one", "two " * PIECE_BYTES, "three", "four")
    heard: dict[str, list[bytes]] = {}

    async def take(source: Source, telling: PieceReader) -> None:
        heard[source.session_id] = [
            entry.raw
            async for piece in telling(source, READER, NOTHING, ALL)
            for entry in piece.entries
        ]

    await each(found, take)
    assert heard == {source.session_id: told(source) for source in found}
    assert children() <= before


async def test_copies_of_a_conversation_are_taken_by_turns(tmp_path: Path) -> None:
    (whole,) = home_of(tmp_path, "one")
    taking: list[str] = []

    async def take(source: Source, _: PieceReader) -> None:
        taking.append(source.paths[0])
        await asyncio.sleep(0)
        assert taking.pop() == source.paths[0]
        assert not taking

    await each([whole, replace(whole, paths=("/copy",))], take)


async def test_a_source_that_cannot_be_read_costs_only_itself(tmp_path: Path) -> None:
    gone, kept = home_of(tmp_path, "gone", "kept")
    os.unlink(gone.paths[0])
    outcomes: dict[str, object] = {}

    async def take(source: Source, telling: PieceReader) -> None:
        try:
            async for _ in telling(source, READER, NOTHING, ALL):
                outcomes[source.place] = "read"
        except OSError as error:
            outcomes[source.place] = error.filename

    await each([gone, kept], take)
    assert outcomes == {gone.place: gone.place, kept.place: "read"}


async def test_a_source_that_is_given_up_leaves_nothing_to_the_next_one(tmp_path: Path) -> None:
    long, short = home_of(tmp_path, "long " * PIECE_BYTES, "short")
    heard: list[bytes] = []

    async def take(source: Source, telling: PieceReader) -> None:
        async for piece in telling(source, READER, NOTHING, ALL):
            if source is long:
                return
            heard.extend(entry.raw for entry in piece.entries)

    await each([long, replace(short, size=0)], take)  # one process for both
    assert heard == told(short)


async def test_another_process_reads_on_after_one_was_killed(tmp_path: Path) -> None:
    long, short = home_of(tmp_path, "long " * PIECE_BYTES, "short")
    outcomes: list[object] = []
    before = children()

    async def take(source: Source, telling: PieceReader) -> None:
        try:
            async for _ in telling(source, READER, NOTHING, ALL):
                if source is long:
                    for child in children() - before:
                        os.kill(child, signal.SIGKILL)
            outcomes.append("read")
        except TranscriptError as error:
            outcomes.append(str(error))

    await each([long, replace(short, size=0)], take)
    assert outcomes == ["the process reading it ended: signal SIGKILL", "read"]


async def test_an_error_of_the_taker_ends_all_workers(tmp_path: Path) -> None:
    before = children()
    found = home_of(tmp_path, "one", "two")

    async def take(source: Source, telling: PieceReader) -> None:
        async for _ in telling(source, READER, NOTHING, ALL):
            raise RuntimeError("the journal is full")

    with pytest.raises(RuntimeError, match="the journal is full"):
        await each(found, take)
    assert children() <= before


async def test_a_worker_ends_although_nobody_reads_what_it_has_written(tmp_path: Path) -> None:
    [long] = home_of(tmp_path, "two " * PIECE_BYTES)

    async def take(source: Source, telling: PieceReader) -> None:
        async for _ in telling(source, READER, NOTHING, ALL):
            reading = telling.__self__._process.stdout  # type: ignore[attr-defined]
            while not reading._paused:  # noqa: ASYNC110 - its pipe is full
                await asyncio.sleep(0.001)
            raise RuntimeError("no more")

    with pytest.raises(RuntimeError, match="no more"):
        async with asyncio.timeout(DEADLINE):
            await each([long], take)


def test_a_reader_that_fails_says_in_which_line_of_it(tmp_path: Path) -> None:
    def read(source: Source, writer: EntryWriter) -> Iterator[None]:
        yield
        raise KeyError("surprise")

    (source,) = home_of(tmp_path, "one")
    failing = Reader("failing", "failing", lambda home: iter(()), read)
    with pytest.raises(TranscriptError, match=r"KeyError: 'surprise' \(test_crew\.py:\d+\)"):
        list(pieces(source, failing, NOTHING))


def children() -> set[int]:
    """The processes that this one started and that still are there."""
    tasks = Path("/proc/self/task").glob("*/children")
    return {int(child) for path in tasks for child in path.read_text().split()}
