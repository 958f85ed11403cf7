"""A journal on a full disk: it can be read, and room can be made in it."""

from __future__ import annotations

import asyncio
import os
import shutil
import sqlite3
import subprocess
import sys
from contextlib import aclosing
from pathlib import Path
from random import Random

import pytest

from acphold.conversation.history.entries import PastEntry
from acphold.errors import JournalUnavailableError
from acphold.faces.cli import session_commands
from acphold.faces.cli.findings import remove_from_disk
from acphold.journal.journal import Lease
from acphold.journal.rows import NewSession, RowChange
from acphold.journal.sqlite.file import failure
from acphold.journal.sqlite.store import SqliteJournal
from acphold.journal.stores import open_journal
from tests.cli.command_line import ACPHOLD
from tests.cli.conversation import remember
from tests.raw_entries import CONVERSATION, ended, prompt, said

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="mounts a small disk")

LARGE = "".join(map(str, range(600_000)))

BEGIN = """
mount -t tmpfs -o size=16m none "$DISK"
cp "$JOURNAL"* "$DISK"
cd "$DISK"
room() { df --output=avail -B1M . | tail -1; }
fill() { cat /dev/zero > filler 2>/dev/null || true; }
"""

SCRIPT = """
fill
room
"$@" list --json | grep -o '"sessionId":"[a-z]*"'
"$@" show first --json | grep -c '"at"'
"$@" journal compact >&2
"$@" session delete --yes --now large
room
"$@" journal compact >&2
"$@" list --json | grep -o '"sessionId":"[a-z]*"'
"$@" show first --json | grep -c '"at"'
"""


WITHOUT_RESERVE = """
rm -f *-reserve
fill
"$@" session prune --yes --keep 4 2>&1 | grep -oE 'free [0-9]+ MiB|[0-9] of .*'
"$@" list --json | grep -c '"sessionId"'
truncate -s -192K filler
"$@" session prune --yes --now --keep 3
room
"$@" journal compact | grep -o shorter
"$@" session tag s-5 kept >&2
"$@" search --json word4 | grep -o '"sessionId":"[^"]*"'
"$@" search --json word1 | grep -c sessionId || true
"""


LITTLE_ROOM = """
rm -f *-reserve
fill
truncate -s -192K filler
"$@" session prune --yes --now --keep 1
"$@" list --json | grep -c '"sessionId"'
"""


def on_a_full_disk(journal: Path, disk: Path, script: str) -> list[str]:
    """The words that a script says on a disk of 16 MiB."""
    disk.mkdir()
    words = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-ec", BEGIN + script, "sh"]
    own = {"DISK": str(disk), "JOURNAL": str(journal), "ACPHOLD_JOURNAL": str(disk / journal.name)}
    done = subprocess.run(
        [*words, *ACPHOLD], capture_output=True, text=True, timeout=120, env=os.environ | own
    )
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout.split()


@pytest.mark.parametrize("has_log", [False, True], ids=["whole", "with a log and no index"])
def test_it_is_read_and_a_deleted_session_gives_its_room_back(
    journal: Path, tmp_path: Path, has_log: bool
) -> None:
    remember(journal, "first", *CONVERSATION)
    remember(journal, "large", prompt("Go"), said(LARGE), ended())
    if has_log:  # as behind a kill and a reboot
        (left := tmp_path / "left").mkdir()
        journal = asyncio.run(go_on(journal, left))
    lines = on_a_full_disk(journal, tmp_path / "disk", SCRIPT)
    first, large = '"sessionId":"first"', '"sessionId":"large"'
    assert lines[0] == "0"
    assert sorted(lines[1:3]) == [first, large]
    assert int(lines[3]) >= (14 if has_log else 7)
    assert lines[4:7] == ["Deleted", "1", "session."]
    assert int(lines[7]) >= 3
    assert lines[8:] == [first, lines[3]]


def test_without_a_reserve_it_says_how_much_to_free_and_a_little_is_enough(
    journal: Path, tmp_path: Path
) -> None:
    random = Random(7)
    for number in range(6):  # numbers that take room when they are packed, too
        words = " ".join(f"word{number} {random.getrandbits(40):x}" for _ in range(60_000))
        remember(journal, f"s-{number}", prompt("Go"), said(words), ended())
    told = on_a_full_disk(journal, tmp_path / "disk", WITHOUT_RESERVE)
    assert " ".join(told[:12]) == "free 8 MiB 0 of 2 sessions were deleted before that 6"
    assert told[12:15] == ["Deleted", "3", "sessions."]
    assert int(told[15]) >= 2
    assert told[16:] == ["shorter", '"sessionId":"s-4"', "0"]


def test_many_sessions_are_deleted_one_by_one_with_little_room(
    journal: Path, tmp_path: Path
) -> None:
    asyncio.run(begin(journal, 200))
    told = on_a_full_disk(journal, tmp_path / "disk", LITTLE_ROOM)
    assert told == ["Deleted", "199", "sessions.", "1"]


async def begin(journal: Path, sessions: int) -> None:
    """Have a short turn in so many sessions."""
    async with aclosing(open_journal(journal)) as written:
        for number in range(sessions):
            new = NewSession(
                f"s-{number}", "agent", f"/work/{number}", title=f"Title {number} " * 9
            )
            lease = await written.create(new)
            past = [PastEntry(kind, number, raw) for kind, raw in CONVERSATION]
            change = RowChange(prompted=True, updated_at=number)
            await written.take_in(lease, past, change, release=True)


async def go_on(journal: Path, folder: Path) -> Path:
    """Go on with the first session; return a copy of what is on the disk then."""
    async with aclosing(open_journal(journal)) as written:
        lease = await written.acquire("first")
        for kind, raw in CONVERSATION:
            await written.append(lease, [(kind, [raw])])
        for name in (journal.name, f"{journal.name}-wal", f"{journal.name}-reserve"):
            shutil.copy(journal.with_name(name), folder / name)
    return folder / journal.name


def test_what_is_hidden_and_not_yet_overwritten_is_told_so(
    journal: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    remember(journal, "first", *CONVERSATION)
    full = sqlite3.OperationalError("database or disk is full")
    full.sqlite_errorcode = sqlite3.SQLITE_FULL

    async def sweep() -> None:
        raise failure(full, str(journal))

    async def delete() -> None:
        async with aclosing(open_journal(journal)) as opened:
            assert opened.file is not None
            await opened.delete("first")
            monkeypatch.setattr(opened.file, "sweep", sweep)
            await remove_from_disk(opened, now=True)

    with pytest.raises(JournalUnavailableError, match="hidden, but not overwritten yet") as error:
        asyncio.run(delete())
    advice = "free 8 MiB on its disk, then run `acphold journal compact`"
    assert str(error.value).rpartition("; ")[2] == advice


def test_of_several_sessions_it_is_told_how_many_were_deleted_before_the_disk_was_full(
    journal: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("first", "second", "third"):
        remember(journal, name, *CONVERSATION)
    full = sqlite3.OperationalError("database or disk is full")
    full.sqlite_errorcode = sqlite3.SQLITE_FULL
    delete = SqliteJournal.delete

    async def delete_one(
        self: SqliteJournal, *sessions: Lease | str, idle_since: int | None = None
    ) -> list[str]:
        if sessions[0] != "first":
            raise failure(full, str(journal))
        return await delete(self, *sessions, idle_since=idle_since)

    monkeypatch.setattr(SqliteJournal, "delete", delete_one)
    monkeypatch.setenv("ACPHOLD_JOURNAL", str(journal))
    told = "1 of 2 sessions were deleted before that; `acphold journal compact` overwrites"
    with pytest.raises(JournalUnavailableError, match=told):
        asyncio.run(session_commands.delete(session_ids=["first", "second"], sure=True, now=False))
    with pytest.raises(JournalUnavailableError, match=r"free 8 MiB on its disk$"):
        asyncio.run(session_commands.delete(session_ids=["third"], sure=True, now=False))
