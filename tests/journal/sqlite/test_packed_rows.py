"""Old turns take less room and say the same, and of a deleted one nothing is left."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings

from acphold.conversation.history.entries import PastEntry, Segment
from acphold.conversation.history.raw_update import members
from acphold.errors import NotAJournalError
from acphold.journal import bounds
from acphold.journal.compression import zstd
from acphold.journal.journal import Lease, history, state_of
from acphold.journal.rows import NewSession, RowChange
from acphold.journal.seams import Repaired
from acphold.journal.sql import entry_rows
from acphold.journal.sqlite.session_rows import SqliteTables
from acphold.journal.sqlite.store import SqliteJournal
from acphold.journal.stored_history import DamagedRowError, pack, plain
from tests.conversations import CONVERSATIONS, chunk, encode
from tests.journal.conversations import open_file

Pieces = list[tuple[str, list[bytes]]]

NOW = time.time_ns() // 1_000_000
LONG = " ".join(f"word{number % 50} " for number in range(400))
FRAME = b"\x28\xb5\x2f\xfd"
TURN: Pieces = [
    ("prompt", [b'[{"type":"text","text":"Where is the needle?"}]']),
    ("update", [encode(chunk("agent_message", LONG))]),
    ("turn_end", [b'{"stopReason":"end_turn"}']),
]


async def held(journal: SqliteJournal, pieces: Pieces, session_id: str = "s1") -> Lease:
    """A session that was held now and is settled; somebody still owns it."""
    lease = await journal.create(NewSession(session_id, "a", "/"))
    for kind, raws in pieces:
        await journal.append(lease, [(kind, raws)])
    await journal.change(lease, RowChange(prompted=True))
    await journal.settle(lease, lease.next_seq - 1)
    return lease


def years_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on, all turns up to now are old."""
    for module in ("store", "session_rows"):
        monkeypatch.setattr(
            f"acphold.journal.sqlite.{module}.now_ms", lambda: NOW + 3 * bounds.OLD_MS
        )


async def segments(journal: SqliteJournal, session_id: str = "s1") -> list[Segment]:
    return [segment async for segment in history(journal, session_id)]


def rows(path: Path) -> list[bytes]:
    """The raw rows of the file."""
    with closing(sqlite3.connect(path)) as file:
        return [raw for (raw,) in file.execute("SELECT raw FROM segments ORDER BY key")]


def contents(path: Path) -> bytes:
    """All bytes of the journal's files."""
    files = [path, path.with_name(f"{path.name}-wal")]
    return b"".join([file.read_bytes() for file in files if file.exists()])


@pytest.mark.parametrize(
    "raw", [b"", b"{}", b"x" * (bounds.WORTH_PACKING_BYTES - 1), FRAME + b"x" * 500]
)
def test_what_is_short_or_packed_stays_as_it_is(raw: bytes) -> None:
    assert pack(raw) == raw


def test_what_does_not_get_smaller_stays_as_it_is() -> None:
    raw = bytes(range(256))
    assert pack(raw) == plain(raw) == raw


def test_a_packed_row_says_the_same_and_takes_less_room() -> None:
    raw = encode(chunk("agent_message", LONG))
    assert plain(pack(raw)) == raw
    assert len(pack(raw)) * 4 < len(raw)


async def test_what_is_old_is_packed_and_read_as_before_and_its_plain_words_are_gone(
    journal: SqliteJournal, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await held(journal, TURN)
    before = await segments(journal), await state_of(journal, "s1"), await journal.session("s1")
    assert await journal.index.tidy(0) == 0  # what is new stays as it is
    assert not [raw for raw in rows(path) if raw.startswith(FRAME)]
    years_later(monkeypatch)
    assert await journal.index.tidy(9) == 0
    assert [raw.startswith(FRAME) for raw in rows(path)] == [False, True, False]
    assert await segments(journal) == before[0]
    assert (await state_of(journal, "s1"), await journal.session("s1")) == before[1:]
    assert [hit.seq for hit in await journal.index.search("word7")] == [2]
    await journal.aclose()
    assert b"word7  word8" not in contents(path)


async def test_what_is_long_is_packed_when_it_is_settled(
    journal: SqliteJournal, path: Path
) -> None:
    call = {"sessionUpdate": "tool_call", "toolCallId": "t", "title": "make", "rawInput": "i" * 900}
    text = "a line of output\n" * 50_000
    output = [{"type": "content", "content": {"type": "text", "text": text}}]
    done = {"rawOutput": text, "status": "completed", "content": output}
    update = {"sessionUpdate": "tool_call_update", "toolCallId": "t", **done}
    lease = await journal.create(NewSession("s1", "a", "/"))
    await journal.append(lease, [("update", [encode(call)])])
    await journal.append(lease, [("update", [encode(update)])])
    before = await state_of(journal, "s1")
    await journal.settle(lease, lease.next_seq - 1)
    [row] = rows(path)  # it became a little longer, and is one entry
    assert row.startswith(FRAME)
    assert len(row) < len(text) // 10
    assert await state_of(journal, "s1") == before
    # What is short stands before what is long, so that it is read with the beginning.
    assert [*members(plain(row))][2:] == ["title", "rawInput", "status", "content", "rawOutput"]


@given(CONVERSATIONS, CONVERSATIONS)
@settings(max_examples=15)
def test_packing_changes_nothing_that_is_read(one: Pieces, two: Pieces) -> None:
    async def scenario(path: Path) -> None:
        journal = open_file(path)
        lease = await held(journal, [*one, *TURN])
        for kind, raws in two:
            await journal.append(lease, [(kind, raws)])
        before = await segments(journal), await state_of(journal, "s1"), await journal.summary("s1")
        while await journal._background.run(lambda db: entry_rows.pack_piece(SqliteTables(db), 1)):
            pass
        after = await segments(journal), await state_of(journal, "s1"), await journal.summary("s1")
        assert after == before
        assert await journal.file.damage() == []
        # Settling later entries may make packed rows void.
        await journal.settle(lease, lease.next_seq - 1)
        assert await state_of(journal, "s1") == before[1]
        # The count knows a message again by its id only where it is not long ago.
        await journal.file.repair()
        assert await journal.file.repair() == Repaired((), 0)
        assert await state_of(journal, "s1") == before[1]
        await journal.delete("s1")
        await journal.file.sweep()
        assert rows(path) == []
        await journal.aclose()

    with TemporaryDirectory() as folder:
        asyncio.run(scenario(Path(folder, "journal.db")))


async def test_nothing_is_left_of_a_packed_turn_that_is_deleted(
    journal: SqliteJournal, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await held(journal, TURN)
    years_later(monkeypatch)
    await journal.index.tidy(9)
    frame = next(raw for raw in rows(path) if raw.startswith(FRAME))
    assert frame[:64] in contents(path)
    await journal.delete("s1")
    await journal.file.sweep()
    found = contents(path)
    assert frame[:64] not in found
    assert frame[-64:] not in found
    assert b"needle" not in found
    assert await journal.index.search("word7") == []


async def test_an_import_of_old_turns_is_packed_at_once(journal: SqliteJournal, path: Path) -> None:
    lease = await journal.create(NewSession("s1", "a", "/"))
    past = [PastEntry(kind, 1000, raw) for kind, raws in TURN for raw in raws]
    await journal.take_in(lease, past)
    assert [raw.startswith(FRAME) for raw in rows(path)] == [False, True, False]
    await journal.take_in(lease, [PastEntry(e.kind, NOW, e.raw) for e in past])
    assert [raw.startswith(FRAME) for raw in rows(path)].count(True) == 1
    assert len((await state_of(journal, "s1")).timeline) == 6


async def test_old_turns_of_a_session_that_goes_on_are_packed_when_it_settles(
    journal: SqliteJournal, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = await held(journal, TURN)
    years_later(monkeypatch)
    for kind, raws in TURN:
        await journal.append(lease, [(kind, raws)])
    await journal.change(lease, RowChange(updated_at=NOW + 3 * bounds.OLD_MS))
    await journal.settle(lease, lease.next_seq - 1)
    assert [raw.startswith(FRAME) for raw in rows(path)] == [
        False,
        True,
        False,
        False,
        False,
        False,
    ]


async def test_two_processes_pack_at_once(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "PIECE_BYTES", 3000)
    one, two = open_file(path), open_file(path)
    for number in range(6):
        await held(one, TURN * 3, f"s{number}")
    before = [await state_of(one, f"s{number}") for number in range(6)]
    years_later(monkeypatch)
    await asyncio.gather(one.index.tidy(20), two.index.tidy(20))
    assert await one.index.tidy(20) == 0
    assert [await state_of(two, f"s{number}") for number in range(6)] == before
    assert sum(raw.startswith(FRAME) for raw in rows(path)) == 18
    for journal in (one, two):
        assert await journal.file.damage() == []
        await journal.aclose()


async def test_a_row_that_was_made_void_meanwhile_is_not_packed_over(
    journal: SqliteJournal, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands = [{"name": f"name-{number}", "description": LONG[:20]} for number in range(40)]
    told = encode({"sessionUpdate": "available_commands_update", "availableCommands": commands})
    lease = await held(journal, [("update", [told]), *TURN])

    def void_first(raw: bytes) -> bytes:
        if raw == told:
            with closing(sqlite3.connect(path, isolation_level=None)) as file:
                file.execute("UPDATE segments SET raw = x'' WHERE raw = ?", (told,))
        return pack(raw)

    monkeypatch.setattr(entry_rows, "pack", void_first)
    await journal._background.run(lambda db: entry_rows.pack_piece(SqliteTables(db), lease.number))
    assert rows(path)[0] == b""


async def test_a_damaged_row_is_told_by_the_doctor_and_not_read_as_something_else(
    journal: SqliteJournal, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await held(journal, TURN)
    years_later(monkeypatch)
    await journal.index.tidy(9)
    frame = next(raw for raw in rows(path) if raw.startswith(FRAME))
    wrong = frame[:-10] + bytes([frame[-10] ^ 1]) + frame[-9:]
    claims = (1000 - 256).to_bytes(2, "little")
    bomb = zstd.compress(b"x" * 1000).replace(claims, b"\xff\xff", 1)
    for raw in (wrong, frame[:20], FRAME, bomb):
        with closing(sqlite3.connect(path, isolation_level=None)) as file:
            file.execute("UPDATE segments SET raw = ? WHERE key & 4294967295 = 2", (raw,))
        (sentence,) = await journal.file.damage()
        assert "a packed row cannot be read" in sentence
        with pytest.raises(NotAJournalError, match="damaged"):
            await journal.read("s1", 1)
        with pytest.raises(NotAJournalError, match="damaged"):
            await state_of(journal, "s1")


def test_a_row_that_claims_to_be_endless_is_refused() -> None:
    # A frame header with a content size of eight bytes; RFC 8878, 3.1.1.1.
    claims = FRAME + bytes([0b1110_0000]) + (1 << 62).to_bytes(8, "little") + b"\x01\x00\x00"
    with pytest.raises(DamagedRowError, match="claims"):
        plain(claims)
    options: dict[int, int] = {zstd.CompressionParameter.content_size_flag: 0}
    unknown = zstd.compress(b"x" * 1000, options=options)
    with pytest.raises(DamagedRowError, match="claims"):
        plain(unknown)
