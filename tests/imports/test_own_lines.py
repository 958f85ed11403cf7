"""Exported, imported and folded, a session is the same."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from msgspec.structs import replace

from acphold.conversation.exports.json_lines import json_lines
from acphold.conversation.history.children import within
from acphold.conversation.history.entries import Entry, Origin, PastEntry
from acphold.conversation.history.fold import SessionState, fold
from acphold.conversation.history.timeline import TurnEnd
from acphold.faces.cli.export import head_of
from acphold.imports import Home, Intake, Outcome
from acphold.imports.acphold import READER
from acphold.imports.entry_writer import is_sound
from acphold.journal.journal import history, session_of, state_of
from acphold.journal.rows import NewSession, RowChange, SessionRow
from tests.conversations import CONVERSATIONS, chunk, encode
from tests.imports.told import write_lines
from tests.journal.conversations import open_file
from tests.served import wrapped

Json = Any
Pieces = list[tuple[str, list[bytes]]]

END = ("turn_end", [b'{"stopReason":"end_turn"}'])
ONE = [("prompt", [b'[{"type":"text","text":"Hi"}]'])]
TALK: Pieces = [*ONE, ("update", [encode(chunk("agent_message", "Hello"))]), END]
NEW = NewSession(
    "s1",
    "gemini (library)",
    "/home/ada/project",
    ("/srv/more", "/srv/other"),
    "Named",
    1_000_000_000_000,
    origins=(Origin("s0", "codex", 7),),
)


async def keep(path: Path, pieces: Pieces, new: NewSession = NEW, link: str = "") -> None:
    """A journal with one session, of which the first half is settled."""
    journal = open_file(path)
    lease = await journal.create(new)
    for number, (kind, raws) in enumerate(pieces):
        await journal.append(lease, [(kind, raws)])
        if number == len(pieces) // 2:
            await journal.settle(lease, lease.next_seq - 1)
    await journal.change(lease, RowChange(prompted=True, updated_at=1_700_000_000_123))
    if link:
        await journal.links.link(lease, new.agent, link)
    await journal.release(lease)
    await journal.aclose()


async def export(path: Path, file: Path) -> None:
    journal = open_file(path)
    with file.open("a", encoding="utf-8") as lines:
        row = await journal.session("s1")
        head = head_of(row)
        entries = (
            entry
            async for segment in history(journal, "s1")
            for entry in segment.entries()
            if entry.raw
        )
        async for line in json_lines(head, entries):
            lines.write(line)
    await journal.aclose()


async def take(path: Path, folder: Path) -> list[Outcome]:
    """Import the files of a folder."""
    journal = open_file(path)
    intake = Intake(journal)
    found = [await intake.take(source, READER) for source in READER.find(Home(folder))]
    await journal.aclose()
    return [taken.outcome for taken in found]


async def session(path: Path, session_id: str = "s1") -> tuple[SessionRow, SessionState]:
    journal = open_file(path)
    found = await journal.session(session_id, counted=True), await state_of(journal, session_id)
    await journal.aclose()
    return found


async def there_and_back(folder: Path, pieces: Pieces, link: str = "") -> None:
    """Export from one journal, import into another, and compare."""
    (folder / "lines").mkdir()
    await keep(folder / "a.db", pieces, link=link)
    await export(folder / "a.db", folder / "lines" / "x.jsonl")
    await take(folder / "b.db", folder / "lines")
    (row, state), (again, its_state) = [await session(folder / name) for name in ("a.db", "b.db")]
    assert its_state == state
    # Its positions are its own: another journal numbers anew.
    row = replace(row, lineage=again.lineage, home="")  # what is imported was planned elsewhere
    assert again == replace(row, last_seq=again.last_seq, downstream_id=again.downstream_id)


def is_json(raw: bytes) -> bool:
    try:
        json.loads(raw)
    except (ValueError, RecursionError):
        return False
    return True


@given(CONVERSATIONS)
@settings(max_examples=15)
def test_a_session_that_is_exported_and_imported_is_the_same(pieces: Pieces) -> None:
    # Anything but JSON cannot have come over a wire.
    legal = [(kind, [raw for raw in raws if is_json(raw)]) for kind, raws in pieces]
    whole = [*ONE, *((kind, raws) for kind, raws in legal if raws), END]
    with TemporaryDirectory() as folder:
        asyncio.run(there_and_back(Path(folder), whole))


async def test_a_session_that_is_taken_in_in_many_pieces_is_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("acphold.imports.pieces.PIECE_BYTES", 100)
    await there_and_back(tmp_path, TALK * 20)
    journal = open_file(tmp_path / "b.db")
    kinds = [segment.kind async for segment in history(journal, "s1")]
    assert kinds.count("imported") == 1
    while await journal.index.catch_up(1):
        pass
    assert len(await journal.index.search("Hello")) == 20
    assert await journal.file.damage() == []
    await journal.aclose()


async def test_the_id_that_its_agent_knows_it_by_is_kept(tmp_path: Path) -> None:
    await there_and_back(tmp_path, TALK, link="agents-own")
    journal = open_file(tmp_path / "b.db")
    assert await session_of(journal, "gemini (library)", "agents-own") == "s1"
    await journal.aclose()


async def test_a_title_that_a_person_gave_and_the_archive_are_kept(tmp_path: Path) -> None:
    await keep(tmp_path / "a.db", TALK)
    journal = open_file(tmp_path / "a.db")
    await journal.change("s1", RowChange(given="Mine"))
    await journal.change("s1", RowChange(archived=True))
    await journal.aclose()
    await export(tmp_path / "a.db", tmp_path / "x.jsonl")
    await take(tmp_path / "b.db", tmp_path)
    row, _ = await session(tmp_path / "b.db")
    assert (row.title, row.renamed, row.archived) == ("Mine", True, True)


async def test_a_turn_that_was_not_over_has_no_answer(tmp_path: Path) -> None:
    await keep(tmp_path / "a.db", TALK[:2])
    await export(tmp_path / "a.db", tmp_path / "x.jsonl")
    await take(tmp_path / "b.db", tmp_path)
    _, state = await session(tmp_path / "b.db")
    end = state.timeline[-1]
    assert isinstance(end, TurnEnd)
    assert end.outcome == "unanswered"


async def test_several_sessions_of_one_file_are_taken_in(tmp_path: Path) -> None:
    for name in ("a", "b"):
        await keep(tmp_path / f"{name}.db", TALK, replace(NEW, title=name))
        await export(tmp_path / f"{name}.db", tmp_path / "x.jsonl")
    text = (tmp_path / "x.jsonl").read_text()
    (tmp_path / "x.jsonl").write_text(text.replace('"s1"', '"s2"', 1))
    assert await take(tmp_path / "c.db", tmp_path) == ["new", "new"]
    titles = [(await session(tmp_path / "c.db", name))[0].title for name in ("s2", "s1")]
    assert titles == ["a", "b"]


async def test_an_import_into_the_journal_it_came_from_changes_nothing(tmp_path: Path) -> None:
    await keep(tmp_path / "a.db", TALK)
    before = await session(tmp_path / "a.db")
    await export(tmp_path / "a.db", tmp_path / "x.jsonl")
    assert await take(tmp_path / "a.db", tmp_path) == ["same"]
    row, state = await session(tmp_path / "a.db")
    assert (replace(row, last_seq=0), state) == (replace(before[0], last_seq=0), before[1])


async def test_a_file_does_not_speak_for_acphold(tmp_path: Path) -> None:
    notice = {"sessionUpdate": "notice", "_meta": {"acphold/notice": {}}, "title": "Run curl"}
    (tmp_path / "lines").mkdir()
    told = [("update", [encode(notice)]), ("params", [encode({"update": notice, "x": 1})])]
    await keep(tmp_path / "a.db", [*TALK, *ONE, *told, END])
    await export(tmp_path / "a.db", tmp_path / "lines" / "x.jsonl")
    await take(tmp_path / "b.db", tmp_path / "lines")
    for name, has_ours in (("a.db", True), ("b.db", False)):
        journal = open_file(tmp_path / name)
        entries = [entry async for it in history(journal, "s1") for entry in it.entries()]
        assert any(b"acphold/notice" in entry.raw for entry in entries) is has_ours
        await journal.aclose()


NONE: list[tuple[str, Json]] = [
    ("update", 5),
    ("update", []),
    ("update", None),
    ("update", {}),
    ("update", {"sessionUpdate": "agent_message_chunk"}),
    ("update", {"sessionUpdate": "agent_message_chunk", "content": [5]}),
    ("params", {"sessionId": "s"}),
    ("params", {"update": 5}),
    ("params", "x"),
    ("echo", 5),
    ("terminal", "x"),
    ("settings", []),
    ("author", 5),
    ("question", "x"),
    ("answer", None),
    ("turn_end", 5),
    ("prompt", {"prompt": [{"text": "no type"}]}),
    ("from the future", 5),
]


async def test_an_entry_that_can_be_none_of_its_kind_is_counted_and_reaches_no_client(
    tmp_path: Path, journal: Path
) -> None:
    write_lines(
        tmp_path / "x.jsonl",
        {"session": {"sessionId": "s1", "agent": "scripted", "cwd": "/"}},
        {"seq": 1, "kind": "prompt", "update": [{"type": "text", "text": "Hello."}]},
        *({"seq": seq, "kind": kind, "update": raw} for seq, (kind, raw) in enumerate(NONE, 2)),
        {"seq": 99, "kind": "update", "update": chunk("agent_message", "Hi.")},
        {"seq": 100, "kind": "turn_end", "update": {"stopReason": "end_turn"}},
    )
    keeping = open_file(journal)
    (source,) = READER.find(Home(tmp_path))
    taken = await Intake(keeping).take(source, READER)
    await keeping.aclose()
    assert taken.facts.missed.counts.total() == len(NONE)
    async with wrapped(journal) as client:
        await client.load("s1")
        told = [update for update in client.updates("s1") if "_chunk" in update["sessionUpdate"]]
        said, answered, lost = [update["content"]["text"] for update in told]
        assert (said, answered) == ("Hello.", "Hi.")
        assert "The agent has lost this conversation" in lost
        await client.prompt("s1", {"say": "More."})


async def test_what_was_deleted_does_not_come_back_from_a_file(tmp_path: Path) -> None:
    await keep(tmp_path / "a.db", TALK, link="agents-own")
    await export(tmp_path / "a.db", tmp_path / "x.jsonl")
    journal = open_file(tmp_path / "a.db")
    await journal.delete("s1")
    await journal.aclose()
    assert await take(tmp_path / "a.db", tmp_path) == ["deleted"]


@pytest.mark.parametrize("seq", ["0", "-5", "99999999999999999999", '"x"', "null", "1e3", "true"])
async def test_an_impossible_entry_number_is_not_believed(tmp_path: Path, seq: str) -> None:
    lines = [
        '{"session":{"sessionId":"s1","agent":"a","cwd":"/"}}',
        '{"seq":1,"kind":"prompt","at":"","update":{"prompt":[{"type":"text","text":"Hi"}]}}',
        f'{{"seq":{seq},"kind":"update","at":"","update":{{"sessionUpdate":"plan","entries":[]}}}}',
    ]
    (tmp_path / "x.jsonl").write_text("\n".join(lines))
    assert await take(tmp_path / "a.db", tmp_path) == ["new"]
    row, _ = await session(tmp_path / "a.db")
    assert row.last_seq < 1010


async def test_entries_keep_the_numbers_they_had(tmp_path: Path) -> None:
    journal = open_file(tmp_path / "a.db")
    lease = await journal.create(NewSession("s", "a", "/"))
    texts = [b'{"sessionUpdate":"of_a_later_release","n":%d}' % n for n in range(4)]
    past = [
        PastEntry("prompt", 5, b"[]", 3),
        PastEntry("update", 5, texts[0], 4),
        PastEntry("update", 5, texts[1], 9),
        PastEntry("update", 5, texts[2], 2),
        PastEntry("prompt", 5, b"[]", 20),
        PastEntry("update", 5, texts[3]),
    ]
    await journal.take_in(lease, past)
    await journal.append(lease, [("update", [texts[0]])])
    entries = [entry for part in await journal.read("s", 0) for entry in part.entries()]
    assert [entry.seq for entry in entries if entry.raw] == [3, 4, 9, 10, 20, 21, 22]
    assert await journal.file.damage() == []
    await journal.aclose()
    assert isinstance(entries[0], Entry)


@pytest.mark.parametrize(
    "raw", [b"null", b"[]", b'{"update":{}}', b'{"method":1}', b'{"sessionId":"k","update":1}', b""]
)
def test_a_file_has_no_entry_of_a_sub_agent_that_is_none(raw: bytes) -> None:
    assert not is_sound("child", within("s", "child", raw))
    assert fold([Entry(1, "child", 0, raw)]).turns == 0
