"""Importing conversations into a journal: each once, and later their additions."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from acphold.conversation.history.timeline import Message
from acphold.imports import Home, ImportSelection, Intake, Outcome, Source
from acphold.imports.claude import READER
from acphold.imports.intake import read_here
from acphold.imports.pieces import PIECE_BYTES, NewsPiece
from acphold.journal.journal import Journal, history, state_of
from acphold.journal.rows import ListFilter, NewSession, RowChange
from acphold.journal.stores import open_journal
from tests.imports.claude_home import CWD, SESSION, Transcript, use
from tests.imports.told import sources

LONG = "A" * (PIECE_BYTES // 8)
"""Output of a tool, so long that its conversation is imported in several pieces."""


def conversation(turns: int = 2, output: str = "A") -> Transcript:
    transcript = Transcript()
    for number in range(1, turns + 1):
        say(transcript, number, output)
    return transcript


def say(transcript: Transcript, number: int, output: str = "A") -> None:
    transcript.user(f"prompt {number}")
    transcript.assistant(f"answer {number}", use(f"t{number}", "Read", file_path="/a"))
    transcript.result(f"t{number}", output)
    transcript.assistant("done")


async def take(journal: Journal, home: Path, selection: ImportSelection | None = None) -> Outcome:
    (source,) = sources(READER, home)
    intake = Intake(journal, selection) if selection else Intake(journal)
    # Asked for with many others, it is the same to be told.
    changed, _ = await intake.select_changed([source], READER)
    assert (not changed) == (await intake.expect(source, READER) == "same")
    return (await intake.take(source, READER)).outcome


async def said(journal: Journal, session_id: str = SESSION) -> list[str]:
    state = await state_of(journal, session_id)
    return [
        item.text
        for item in state.timeline
        if isinstance(item, Message) and item.role in ("user", "agent")
    ]


def whole(turns: int) -> list[str]:
    return [
        words
        for number in range(1, turns + 1)
        for words in (f"prompt {number}", f"answer {number}", "done")
    ]


async def test_a_conversation_is_listed_under_the_agents_key_with_its_own_times(
    opened: Journal, tmp_path: Path
) -> None:
    conversation().write(tmp_path)
    assert await take(opened, tmp_path) == "new"
    (row,) = await opened.page(ListFilter(agents=(READER.key,), cwd=CWD))
    assert row.session_id == SESSION
    assert row.title == "prompt 1"
    assert row.message_count == 6
    assert row.created_at == 1767322801000
    assert row.updated_at == 1767322810000
    assert await said(opened) == whole(2)
    assert (await opened.session(SESSION)).downstream_id == SESSION


async def test_each_entry_has_the_time_at_which_it_happened(
    opened: Journal, tmp_path: Path
) -> None:
    conversation().write(tmp_path)
    await take(opened, tmp_path)
    entries = [entry async for part in history(opened, SESSION) for entry in part.entries()]
    prompts = [entry.at for entry in entries if entry.kind == "prompt"]
    assert prompts == [1767322801000, 1767322806000]
    assert entries[-1].at == 1767322810000


async def test_unchanged_conversations_are_recognized_many_at_once(
    opened: Journal, tmp_path: Path
) -> None:
    conversation().write(tmp_path)
    await take(opened, tmp_path)
    (source,) = sources(READER, tmp_path)
    others = [replace(source, session_id=f"other-{number}") for number in range(1200)]
    grown = replace(source, size=source.size + 1)
    no_text = replace(source, session_id="\ud800")
    another = replace(source, agent="another")
    asked = [*others, source, grown, no_text, another, *others]
    changed, _ = await Intake(opened).select_changed(asked, READER)
    assert changed == [
        *others, grown, no_text, another, *others
    ]  # fmt: skip


async def test_what_came_to_a_conversation_is_added(opened: Journal, tmp_path: Path) -> None:
    transcript = conversation(1)
    transcript.write(tmp_path)
    await take(opened, tmp_path)
    say(transcript, 2)
    transcript.write(tmp_path)
    assert await take(opened, tmp_path) == "grown"
    assert await said(opened) == whole(2)
    assert await take(opened, tmp_path) == "same"


async def test_the_rest_of_a_turn_that_was_not_over_is_added(
    opened: Journal, tmp_path: Path
) -> None:
    transcript = conversation(1)
    transcript.user("prompt 2")
    transcript.write(tmp_path)
    await take(opened, tmp_path)
    transcript.assistant("answer 2")
    transcript.write(tmp_path)
    assert await take(opened, tmp_path) == "grown"
    assert await said(opened) == [*whole(1), "prompt 2", "answer 2"]


async def test_a_conversation_held_through_wrap_gets_only_what_came_behind_it(
    opened: Journal, tmp_path: Path
) -> None:
    lease = await opened.create(NewSession("ours", READER.key, CWD))
    await opened.append(lease, [("prompt", [b'[{"type":"text","text":"prompt 1"}]'])])
    chunk = b'{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"live"}}'
    await opened.append(lease, [("update", [chunk])])
    await opened.append(lease, [("turn_end", [b'{"stopReason":"end_turn"}'])])
    await opened.links.link(lease, READER.key, SESSION)
    await opened.release(lease)
    conversation(2).write(tmp_path)
    assert await take(opened, tmp_path) == "grown"
    assert await said(opened, "ours") == ["prompt 1", "live", "prompt 2", "answer 2", "done"]
    assert await take(opened, tmp_path) == "same"
    assert len(await opened.page(ListFilter(agents=(READER.key,)))) == 1


async def test_a_conversation_held_under_another_name_of_its_agent_is_the_same_one(
    opened: Journal, tmp_path: Path
) -> None:
    earlier = "@zed-industries/claude-code-acp"
    lease = await opened.create(NewSession("ours", earlier, CWD))
    await opened.append(lease, [("prompt", [b'[{"type":"text","text":"prompt 1"}]'])])
    await opened.append(lease, [("turn_end", [b'{"stopReason":"end_turn"}'])])
    await opened.links.link(lease, earlier, SESSION)
    await opened.release(lease)
    conversation(2).write(tmp_path)
    (source,) = sources(READER, tmp_path)
    await Intake(opened).list_first([source])
    assert await opened.count() == 1
    assert await take(opened, tmp_path) == "grown"
    assert await said(opened, "ours") == ["prompt 1", "prompt 2", "answer 2", "done"]
    assert await take(opened, tmp_path) == "same"
    await opened.delete("ours")
    assert await take(opened, tmp_path) == "deleted"


async def test_a_turn_through_wrap_behind_an_import_is_not_doubled(
    opened: Journal, tmp_path: Path
) -> None:
    transcript = conversation(1)
    transcript.write(tmp_path)
    await take(opened, tmp_path)
    lease = await opened.acquire(SESSION)
    await opened.append(lease, [("prompt", [b'[{"type":"text","text":"prompt 2"}]'])])
    await opened.append(lease, [("turn_end", [b'{"stopReason":"end_turn"}'])])
    await opened.release(lease)
    say(transcript, 2)
    transcript.write(tmp_path)
    assert await take(opened, tmp_path) == "same"
    assert await said(opened) == [*whole(1), "prompt 2"]
    say(transcript, 3)
    transcript.write(tmp_path)
    assert await take(opened, tmp_path) == "grown"
    assert await said(opened) == [*whole(1), "prompt 2", "prompt 3", "answer 3", "done"]


async def test_a_session_held_only_in_the_agents_own_program_gets_all_of_it(
    opened: Journal, tmp_path: Path
) -> None:
    lease = await opened.create(NewSession("ours", READER.key, CWD))
    await opened.links.link(lease, READER.key, SESSION)
    await opened.release(lease)
    conversation(1).write(tmp_path)
    assert await take(opened, tmp_path) == "grown"
    assert await said(opened, "ours") == whole(1)


async def test_a_long_conversation_is_taken_in_by_pieces_that_each_say_where_they_end(
    opened: Journal, tmp_path: Path
) -> None:
    transcript = conversation(9, LONG)
    transcript.write(tmp_path)
    await take_one_piece(opened, tmp_path)
    assert 1 < len(await said(opened)) < len(whole(9))
    assert await take(opened, tmp_path) == "grown"
    assert await said(opened) == whole(9)
    for number in range(10, 20):
        say(transcript, number, LONG)
    transcript.write(tmp_path)
    await take_one_piece(opened, tmp_path)
    assert len(whole(9)) < len(await said(opened)) < len(whole(19))
    assert await take(opened, tmp_path) == "grown"
    assert await said(opened) == whole(19)
    assert await take(opened, tmp_path) == "same"


async def take_one_piece(journal: Journal, home: Path) -> None:
    """An import that ends behind the first piece."""

    async def telling(*given: Any) -> AsyncIterator[NewsPiece]:
        async for piece in read_here(*given):
            yield piece
            raise OSError("enough")

    (source,) = sources(READER, home)
    with pytest.raises(OSError, match="enough"):
        await Intake(journal).take(source, READER, telling)


class Quicker:
    """Another import, which is quicker: it runs when we have read, and before we take in.

    With `pieces`, it ends behind so many of them.
    """

    def __init__(self, journal: Journal, source: Source, pieces: int = 1_000) -> None:
        self._journal = journal
        self._source = source
        self._pieces: int | None = pieces

    async def telling(self, *given: Any) -> AsyncIterator[NewsPiece]:
        async for piece in read_here(*given):
            if self._pieces is not None:
                await self._run()
            yield piece

    async def _run(self) -> None:
        with suppress(InterruptedError):
            await Intake(self._journal).take(self._source, READER, self._some)
        self._pieces = None

    async def _some(self, *given: Any) -> AsyncIterator[NewsPiece]:
        left = self._pieces or 0
        async for piece in read_here(*given):
            if not left:
                raise InterruptedError
            left -= 1
            yield piece


@pytest.mark.parametrize(
    ("pieces", "outcome"), [(1_000, "same"), (0, "new"), (1, "grown"), (2, "grown")]
)
@pytest.mark.parametrize("listed", [False, True])
async def test_two_imports_at_once_take_in_each_conversation_once(
    opened: Journal,
    journal: Path,
    tmp_path: Path,
    pieces: int,
    outcome: Outcome,
    listed: bool,
) -> None:
    conversation(20, LONG).write(tmp_path)
    (source,) = sources(READER, tmp_path)
    if listed:
        await Intake(opened).list_first([source])
    other = open_journal(journal)
    quicker = Quicker(other, source, pieces)
    taken = await Intake(opened).take(source, READER, quicker.telling)
    await other.aclose()
    assert taken.outcome == outcome
    (row,) = await opened.page(ListFilter())
    assert not row.is_unread
    assert await said(opened, row.session_id) == whole(20)


async def test_two_imports_at_once_add_what_has_come_once(
    opened: Journal, journal: Path, tmp_path: Path
) -> None:
    transcript = conversation(1)
    transcript.write(tmp_path)
    await take(opened, tmp_path)
    say(transcript, 2)
    transcript.write(tmp_path)
    (source,) = sources(READER, tmp_path)
    other = open_journal(journal)
    quicker = Quicker(other, source)
    taken = await Intake(opened).take(source, READER, quicker.telling)
    await other.aclose()
    assert taken.outcome == "same"  # as what the other has taken in meanwhile
    assert await said(opened) == whole(2)


async def test_the_next_import_takes_in_what_one_had_only_begun(
    opened: Journal, tmp_path: Path
) -> None:
    conversation(1).write(tmp_path)
    await opened.create(NewSession(SESSION, READER.key, CWD), yields=True)
    assert await take(opened, tmp_path) == "new"
    (row,) = await opened.page(ListFilter())
    assert row.session_id == SESSION


async def held_here(journal: Journal, *prompts: str) -> None:
    """A session with the id of the transcript, in which somebody said this through `wrap`."""
    lease = await journal.create(NewSession("ours", READER.key, CWD))
    for words in prompts:
        prompt = f'[{{"type":"text","text":"{words}"}}]'.encode()
        await journal.append(lease, [("prompt", [prompt])])
        await journal.append(lease, [("turn_end", [b'{"stopReason":"end_turn"}'])])
    await journal.links.link(lease, READER.key, SESSION)
    await journal.release(lease)


async def test_a_conversation_with_nothing_in_common_is_a_session_of_its_own(
    opened: Journal, tmp_path: Path
) -> None:
    await held_here(opened, "quite another")
    conversation(2).write(tmp_path)
    assert await take(opened, tmp_path) == "apart"
    assert await said(opened, "ours") == ["quite another"]
    (row,) = [row for row in await opened.page(ListFilter()) if row.session_id != "ours"]
    assert await said(opened, row.session_id) == whole(2)
    assert row.title == "prompt 1 (imported)"
    assert await take(opened, tmp_path) == "same"


async def test_a_conversation_that_went_another_way_here_is_left_as_it_is(
    opened: Journal, tmp_path: Path
) -> None:
    await held_here(opened, "prompt 1", "quite another")
    conversation(2).write(tmp_path)
    assert await take(opened, tmp_path) == "differs"
    assert await said(opened, "ours") == ["prompt 1", "quite another"]
    assert len(await opened.page(ListFilter(include_unprompted=True))) == 1


async def test_a_session_that_somebody_holds_is_left_for_later(
    opened: Journal, tmp_path: Path
) -> None:
    transcript = conversation(1)
    transcript.write(tmp_path)
    await take(opened, tmp_path)
    await opened.acquire(SESSION)
    say(transcript, 2)
    transcript.write(tmp_path)
    assert await take(opened, tmp_path) == "busy"


async def test_a_file_in_which_nobody_said_anything_is_no_conversation(
    opened: Journal, tmp_path: Path
) -> None:
    transcript = Transcript()
    transcript.beside(type="mode", mode="normal")
    transcript.write(tmp_path)
    assert await take(opened, tmp_path) == "empty"
    assert await opened.page(ListFilter(include_unprompted=True)) == []


async def test_only_conversations_of_the_folder_asked_for_are_taken(
    opened: Journal, tmp_path: Path
) -> None:
    conversation(1).write(tmp_path)
    assert await take(opened, tmp_path, ImportSelection(cwd="/elsewhere")) == "elsewhere"
    assert await take(opened, tmp_path, ImportSelection(cwd=CWD)) == "new"


async def test_an_id_that_another_agent_has_already_gets_a_prefix(
    opened: Journal, tmp_path: Path
) -> None:
    await opened.create(NewSession(SESSION, "another", "/x"))
    conversation(1).write(tmp_path)
    assert await take(opened, tmp_path) == "new"
    assert await said(opened, f"claude-{SESSION}") == whole(1)
    assert await take(opened, tmp_path) == "same"


async def test_a_name_that_a_person_gave_here_stays(opened: Journal, tmp_path: Path) -> None:
    transcript = conversation(1)
    transcript.write(tmp_path)
    await take(opened, tmp_path)
    await opened.change(SESSION, RowChange(given="My own name"))
    say(transcript, 2)
    transcript.beside(type="ai-title", aiTitle="Theirs")
    transcript.write(tmp_path)
    await take(opened, tmp_path)
    assert (await opened.session(SESSION)).title == "My own name"


async def test_a_conversation_that_goes_on_outside_is_archived_no_longer(
    opened: Journal, tmp_path: Path
) -> None:
    transcript = conversation(1)
    transcript.write(tmp_path)
    await take(opened, tmp_path)
    await opened.change(SESSION, RowChange(archived=True))
    assert await take(opened, tmp_path) == "same"
    assert (await opened.session(SESSION)).archived
    say(transcript, 2)
    transcript.write(tmp_path)
    assert await take(opened, tmp_path) == "grown"
    assert not (await opened.session(SESSION)).archived


async def test_words_of_an_imported_conversation_are_found(opened: Journal, tmp_path: Path) -> None:
    conversation(1).write(tmp_path)
    await take(opened, tmp_path)
    await opened.index.catch_up(20)
    assert [hit.session_id for hit in await opened.index.search("answer")] == [SESSION]


async def test_the_last_30_days_of_what_is_imported_are_searchable_at_once(
    opened: Journal, tmp_path: Path
) -> None:
    transcript = Transcript()
    transcript.user("An old question", timestamp="2016-01-02T03:04:05.000Z")
    transcript.assistant("answer", timestamp="2016-01-02T03:04:06.000Z")
    transcript.write(tmp_path)
    await take(opened, tmp_path)
    assert await opened.index.search("answer") == []
    assert await opened.index.catch_up(0) == 1
    recent = datetime.now(UTC) - timedelta(days=29)
    transcript.user("A newer question", timestamp=recent.isoformat())
    transcript.write(tmp_path)
    await take(opened, tmp_path)
    assert len(await opened.index.search("newer question")) == 1
    assert await opened.index.catch_up(0) == 0


def test_nothing_in_the_home_folder_is_changed(journal: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    path = conversation(2).write(home)
    before = {found: found.stat() for found in home.rglob("*")}
    content = path.read_bytes()
    environment = {**os.environ, "ACPHOLD_JOURNAL": str(journal)}
    command = [sys.executable, "-m", "acphold", "import", "--from", str(home)]
    subprocess.run(command, env=environment, check=True, timeout=50, capture_output=True)
    after = {found: found.stat() for found in home.rglob("*")}
    assert {f: (s.st_size, s.st_mtime_ns) for f, s in after.items()} == {
        f: (s.st_size, s.st_mtime_ns) for f, s in before.items()
    }
    assert path.read_bytes() == content


def test_a_home_without_agents_has_no_conversations(tmp_path: Path) -> None:
    assert list(READER.find(Home(tmp_path))) == []
