"""Conversations that are listed by their beginnings, and read later."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from msgspec.structs import replace

from acphold.conversation.history.entries import PastEntry
from acphold.errors import TranscriptError, UnknownSessionError
from acphold.imports import (
    Home,
    ImportSelection,
    Intake,
    Reader,
    Source,
    claude,
    read_beside,
    reader,
)
from acphold.imports.entry_writer import EntryWriter
from acphold.imports.heads import give_up_lost, unread_in
from acphold.imports.intake import read_here
from acphold.imports.joins import HEAD_BYTES
from acphold.imports.pieces import NewsPiece
from acphold.imports.readers import NAMES
from acphold.imports.sources import Facts
from acphold.imports.turns import KnownPart
from acphold.journal.journal import history, is_forgotten
from acphold.journal.rows import ListFilter, RowChange, SessionRow
from acphold.journal.sqlite.store import SqliteJournal
from tests.cli.command_line import CommandLine
from tests.imports.claude_home import CWD, SESSION, Transcript
from tests.imports.codex_home import Rollout
from tests.imports.soak import fill
from tests.imports.test_cline import Session as ClineSession
from tests.imports.test_intake import LONG, conversation, said, whole
from tests.imports.told import write_lines
from tests.journal.conversations import open_file
from tests.served import wrapped


@pytest.fixture
async def opened(journal: Path) -> AsyncIterator[SqliteJournal]:
    found = open_file(journal, read_transcript=read_beside)
    yield found
    await found.aclose()


def found(home: Path) -> list[tuple[Source, Reader]]:
    readers = [reader(name) for name in NAMES]
    return [(source, reading) for reading in readers for source in reading.find(Home(home))]


def remove(source: Source) -> None:
    Path(source.paths[0]).unlink()


class _KilledError(Exception):
    """The end of an import."""


async def killed(
    source: Source, reading: Reader, known: KnownPart, selection: ImportSelection
) -> AsyncIterator[NewsPiece]:
    """An import that is killed after its first piece."""
    async for piece in read_here(source, reading, known, selection):
        yield piece
        raise _KilledError


async def list_first(
    journal: SqliteJournal, home: Path, selection: ImportSelection | None = None
) -> list[SessionRow]:
    intake = Intake(journal, selection) if selection else Intake(journal)
    await intake.list_first([source for source, _ in found(home)])
    return await journal.page(ListFilter())


async def kept(journal: SqliteJournal) -> dict[str, object]:
    """All that the journal has, but for the numbers of leases and links, and its lineages."""
    return {
        row.session_id: (
            replace(row, lineage=""),
            [segment async for segment in history(journal, row.session_id)],
            row.downstream_id,
        )
        for row in await journal.page(ListFilter())
    }


async def test_a_conversation_is_listed_before_it_is_read(
    opened: SqliteJournal, tmp_path: Path
) -> None:
    conversation().write(tmp_path)
    (row,) = await list_first(opened, tmp_path)
    assert (row.session_id, row.title, row.cwd) == (SESSION, "prompt 1", CWD)
    assert row.is_unread
    assert (row.message_count, row.last_seq) == (0, 0)
    ((source, reading),) = found(tmp_path)
    assert row.updated_at == source.changed_at // 1_000_000
    assert (await Intake(opened).take(source, reading)).outcome == "new"
    (row,) = await opened.page(ListFilter())
    assert not row.is_unread
    assert row.message_count == 6
    assert await said(opened) == whole(2)


async def test_listing_first_does_not_change_what_is_taken_in(
    opened: SqliteJournal, tmp_path: Path
) -> None:
    fill(tmp_path)
    assert len(await list_first(opened, tmp_path)) == 8
    assert len(await list_first(opened, tmp_path)) == 8
    async with aclosing(open_file(tmp_path / "other.db", read_transcript=read_beside)) as other:
        for source, reading in found(tmp_path):
            assert (await Intake(opened).take(source, reading)).outcome == "new"
            await Intake(other).take(source, reading)
        assert await kept(opened) == await kept(other)


async def test_what_the_beginning_does_not_tell_is_listed_once_it_is_read(
    opened: SqliteJournal, tmp_path: Path
) -> None:
    transcript = Transcript()
    for _ in range(3):
        transcript.beside(type="file-history-snapshot", snapshot="A" * HEAD_BYTES)
    transcript.user("prompt")
    transcript.write(tmp_path)
    (tmp_path / ".claude/projects/broken").mkdir()
    (tmp_path / ".claude/projects/broken/b.jsonl").write_bytes(b'{"type":"user","message":[[[')
    assert await list_first(opened, tmp_path) == []
    source, reading = next(pair for pair in found(tmp_path) if pair[0].session_id == SESSION)
    assert (await Intake(opened).take(source, reading)).outcome == "new"


async def test_a_conversation_is_read_up_to_its_first_prompt_to_be_listed(
    opened: SqliteJournal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    conversation(9, LONG).write(tmp_path)
    read: list[PastEntry] = []
    take = EntryWriter.take

    def counted(writer: EntryWriter) -> list[PastEntry]:
        made = take(writer)
        read.extend(made)
        return made

    monkeypatch.setattr(EntryWriter, "take", counted)
    assert len(await list_first(opened, tmp_path)) == 1
    assert [entry.kind for entry in read] == ["prompt"]


@pytest.mark.parametrize("fails", ["reader", "writer"])
async def test_only_failures_of_a_reader_are_left_to_the_reading_of_all(
    opened: SqliteJournal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    def fail(*_: object) -> Any:
        raise KeyError("new field")

    conversation().write(tmp_path)
    if fails == "reader":
        monkeypatch.setattr(claude, "READER", claude.READER._replace(read=fail))
        assert await list_first(opened, tmp_path) == []
    else:
        monkeypatch.setattr(EntryWriter, "take", fail)
        with pytest.raises(KeyError):
            await list_first(opened, tmp_path)


async def test_only_what_was_asked_for_is_listed_and_no_secret_in_a_title(
    opened: SqliteJournal, tmp_path: Path
) -> None:
    conversation().write(tmp_path)
    assert await list_first(opened, tmp_path, ImportSelection(cwd="/elsewhere")) == []
    (row,) = await list_first(opened, tmp_path, ImportSelection(cwd=CWD, redact=True))
    assert row.title is None


async def test_a_title_that_is_kept_elsewhere_is_in_no_row_before_all_is_looked_through(
    opened: SqliteJournal, journal: Path, tmp_path: Path
) -> None:
    key, word = "sk-ant-api03-abCD12efGH34ijKL56mnOP78", "Tr0ub4dor&3"
    rollout = Rollout(f"The password: {word}")
    rollout.agent("I see.")
    rollout.write(tmp_path)
    name = f"Rotate {key} and {word}"
    write_lines(
        tmp_path / ".codex/session_index.jsonl", {"id": rollout.session, "thread_name": name}
    )
    cline = ClineSession(tmp_path)
    cline.user(f"The password: {word}")
    cline.agent("I see.")
    cline.write(title=name)
    redact = ImportSelection(redact=True)
    assert len(await list_first(opened, tmp_path, redact)) == 2
    rows = await opened.page(ListFilter(unread=True))
    await opened.aclose()
    for hidden in (key, word):
        assert not files_with(tmp_path, hidden)
    async with aclosing(open_file(journal, read_transcript=read_beside)) as again:
        for row in rows:
            assert row.unread is not None
            source, is_redacted = unread_in(row.unread)
            assert is_redacted
            intake = Intake(again, redact)
            assert (await intake.take(source, reader(source.reader))).outcome == "new"
        titles = {row.title for row in await again.page(ListFilter())}
        assert titles == {"Rotate [removed: API key] and [removed: password]"}
    for hidden in (key, word):
        assert not files_with(tmp_path, hidden)


def files_with(folder: Path, text: str) -> list[Path]:
    """The files of journals in which this stands."""
    return [path for path in folder.glob("*.db*") if text.encode() in path.read_bytes()]


async def test_what_was_deleted_is_not_listed_again(opened: SqliteJournal, tmp_path: Path) -> None:
    conversation().write(tmp_path)
    await list_first(opened, tmp_path)
    assert await opened.delete(SESSION)
    assert await list_first(opened, tmp_path) == []
    ((source, reading),) = found(tmp_path)
    assert (await Intake(opened).take(source, reading)).outcome == "deleted"


async def test_what_a_person_did_with_an_unread_session_stays(
    opened: SqliteJournal, tmp_path: Path
) -> None:
    conversation().write(tmp_path)
    await list_first(opened, tmp_path)
    await opened.change(SESSION, RowChange(given="Mine"))
    await opened.change(SESSION, RowChange(archived=True))
    ((source, reading),) = found(tmp_path)
    await Intake(opened).take(source, reading)
    row = await opened.session(SESSION)
    assert (row.title, row.archived, row.is_unread) == ("Mine", True, False)


async def test_an_unread_session_is_read_when_somebody_needs_it(
    opened: SqliteJournal, tmp_path: Path
) -> None:
    conversation().write(tmp_path)
    await list_first(opened, tmp_path)
    await opened.complete(SESSION)
    assert await said(opened) == whole(2)
    assert not (await opened.session(SESSION)).is_unread
    ((source, reading),) = found(tmp_path)
    assert (await Intake(opened).take(source, reading)).outcome == "same"


async def test_an_unread_session_that_several_need_at_once_is_read_for_all(
    opened: SqliteJournal, journal: Path, tmp_path: Path
) -> None:
    conversation(60, LONG).write(tmp_path)
    await list_first(opened, tmp_path)
    async with aclosing(
        open_file(journal, read_transcript=read_beside)
    ) as other:  # as another process would
        left = asyncio.create_task(opened.complete(SESSION))
        waiting = [opened.complete(SESSION), other.complete(SESSION), other.complete(SESSION)]
        all_waiting = asyncio.gather(*waiting)
        await asyncio.sleep(0)
        left.cancel()  # one caller leaves, and the others still get theirs
        await all_waiting
    assert await said(opened) == whole(60)
    assert await opened.file.damage() == []


async def test_a_journal_that_is_closed_reads_no_transcript_any_more(
    opened: SqliteJournal, journal: Path, tmp_path: Path
) -> None:
    conversation().write(tmp_path)
    await list_first(opened, tmp_path)
    other = open_file(journal, read_transcript=read_beside)
    waiting = asyncio.create_task(other.complete(SESSION))
    await asyncio.sleep(0)
    await other.aclose()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await opened.complete(SESSION)
    assert await said(opened) == whole(2)


async def test_who_needs_a_session_in_the_middle_of_its_import_gets_all_of_it_once(
    opened: SqliteJournal, journal: Path, tmp_path: Path
) -> None:
    conversation(12, LONG).write(tmp_path)
    await list_first(opened, tmp_path)
    ((source, reading),) = found(tmp_path)
    importing = open_file(journal, read_transcript=read_beside)

    async def interrupted(
        source: Source, reading: Reader, known: KnownPart, selection: ImportSelection
    ) -> AsyncIterator[NewsPiece]:
        async for number, piece in numbered(read_here(source, reading, known, selection)):
            yield piece
            if number == 1:
                await opened.complete(SESSION)
                assert await said(opened) == whole(12)

    taken = await Intake(importing).take(source, reading, interrupted)
    assert taken.outcome == "busy"
    await importing.aclose()
    assert await said(opened) == whole(12)
    assert (await Intake(opened).take(source, reading)).outcome == "same"


async def numbered(told: AsyncIterator[NewsPiece]) -> AsyncIterator[tuple[int, NewsPiece]]:
    number = 0
    async for piece in told:
        number += 1
        yield number, piece


async def test_an_unread_session_whose_file_is_gone_is_said_and_given_up(
    opened: SqliteJournal, tmp_path: Path
) -> None:
    conversation().write(tmp_path)
    await list_first(opened, tmp_path)
    ((source, _),) = found(tmp_path)
    remove(source)
    with pytest.raises(TranscriptError, match="No such file"):
        await opened.complete(SESSION)
    with pytest.raises(UnknownSessionError):
        await opened.session(SESSION)
    assert not await is_forgotten(opened, "codex", SESSION)
    assert await opened.file.damage() == []


async def test_the_next_import_gives_up_what_was_gone_before_it_was_read(
    opened: SqliteJournal, tmp_path: Path
) -> None:
    conversation().write(tmp_path)
    conversation().write(tmp_path, str(UUID(int=1)))
    assert len(await list_first(opened, tmp_path)) == 2
    (there, _), (source, _) = found(tmp_path)
    remove(source)
    await give_up_lost(opened)
    assert [row.session_id for row in await opened.page(ListFilter())] == [there.session_id]


async def test_a_session_that_somebody_has_open_is_not_given_up(
    opened: SqliteJournal, journal: Path, tmp_path: Path
) -> None:
    conversation().write(tmp_path)
    await list_first(opened, tmp_path)
    ((source, _),) = found(tmp_path)
    remove(source)
    other = open_file(journal)
    lease = await other.acquire(SESSION)
    await give_up_lost(opened)
    assert (await opened.session(SESSION)).is_unread
    await other.release(lease)
    await give_up_lost(opened)
    assert await opened.page(ListFilter()) == []
    await other.aclose()


async def test_a_session_read_in_part_shows_that_part_when_its_file_is_gone(
    opened: SqliteJournal, tmp_path: Path
) -> None:
    conversation(12, LONG).write(tmp_path)
    await list_first(opened, tmp_path)
    ((source, reading),) = found(tmp_path)
    with pytest.raises(_KilledError):
        await Intake(opened).take(source, reading, killed)
    assert (await opened.session(SESSION)).is_unread
    remove(source)
    await opened.complete(SESSION)
    assert 0 < len(some := await said(opened)) < len(whole(12))
    assert some == whole(12)[: len(some)]
    assert not (await opened.session(SESSION)).is_unread


async def test_a_listed_conversation_that_turns_out_to_be_empty_is_given_up(
    opened: SqliteJournal, tmp_path: Path
) -> None:
    conversation().write(tmp_path)
    await list_first(opened, tmp_path)
    transcript = Transcript()
    transcript.beside(type="summary", summary="nothing")
    transcript.write(tmp_path)
    ((source, reading),) = found(tmp_path)
    assert (await Intake(opened).take(source, reading)).outcome == "empty"
    assert await opened.page(ListFilter()) == []


async def test_an_editor_that_lists_and_loads_an_unread_session_gets_all_of_it(
    opened: SqliteJournal, journal: Path, tmp_path: Path
) -> None:
    conversation().write(tmp_path)
    ((source, _),) = found(tmp_path)
    await Intake(opened).list_first([replace(source, agent="scripted")])
    async with wrapped(journal) as client:
        listed = await client.call("session/list", {})
        (unread,) = listed["sessions"]
        assert unread["_meta"]["acphold/unread"] is True
        await client.load(SESSION, CWD)
        words = [
            update["content"]["text"]
            for update in client.updates()
            if update["sessionUpdate"] in ("user_message_chunk", "agent_message_chunk")
            and "acphold/notice" not in update.get("_meta", {})
        ]
    assert words == whole(2)


async def test_lists_call_a_session_unread_and_showing_or_exporting_it_reads_it(
    opened: SqliteJournal, journal: Path, tmp_path: Path
) -> None:
    transcripts = conversation(), conversation()
    for transcript, session in zip(transcripts, (SESSION, str(UUID(int=1))), strict=True):
        transcript.write(tmp_path, session)
    assert len(await list_first(opened, tmp_path)) == 2
    acphold = CommandLine(journal)
    listed = await asyncio.to_thread(acphold.run, "list")
    assert listed.out.count(" unread ") == 2
    shown = await asyncio.to_thread(acphold.run, "show", SESSION)
    assert "answer 2" in shown.out
    exported = await asyncio.to_thread(acphold.run, "export", "--all")
    assert exported.out.count("answer 2") == 2
    listed = await asyncio.to_thread(acphold.run, "list")
    assert "unread" not in listed.out


def test_a_folder_that_can_be_none_is_taken_for_the_home_folder() -> None:
    home = os.path.expanduser("~")
    for cwd, folder in (("/a", "/a"), ("a", home), ("", home), ("/" + "a" * 5000, home)):
        assert Facts("agent", "id", cwd).folder == folder
