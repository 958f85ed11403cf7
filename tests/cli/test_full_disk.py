"""A journal on a full disk: it can be read, and room can be made in it."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
from contextlib import aclosing
from pathlib import Path

import pytest

from acphold.journal.stores import open_journal
from tests.cli.command_line import ACPHOLD
from tests.cli.conversation import remember
from tests.raw_entries import CONVERSATION, ended, prompt, said

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="mounts a small disk")

LARGE = "".join(map(str, range(600_000)))

SCRIPT = """
mount -t tmpfs -o size=16m none "$DISK"
cp "$JOURNAL"* "$DISK"
cd "$DISK"
cat /dev/zero > filler 2>/dev/null || true
room() { df --output=avail -B1M . | tail -1; }
room
"$@" list --json | grep -o '"sessionId":"[a-z]*"'
"$@" show first --json | grep -c '"at"'
"$@" session delete --yes --now large
room
"$@" journal compact >&2
"$@" list --json | grep -o '"sessionId":"[a-z]*"'
"$@" show first --json | grep -c '"at"'
"""


def on_a_full_disk(journal: Path, disk: Path) -> list[str]:
    """The lines of SCRIPT."""
    disk.mkdir()
    words = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-ec", SCRIPT, "sh"]
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
    lines = on_a_full_disk(journal, tmp_path / "disk")
    first, large = '"sessionId":"first"', '"sessionId":"large"'
    assert lines[0] == "0"
    assert sorted(lines[1:3]) == [first, large]
    assert int(lines[3]) >= (14 if has_log else 7)
    assert lines[4:7] == ["Deleted", "1", "session."]
    assert int(lines[7]) >= 3
    assert lines[8:] == [first, lines[3]]


async def go_on(journal: Path, folder: Path) -> Path:
    """Go on with the first session; return a copy of what is on the disk then."""
    async with aclosing(open_journal(journal)) as written:
        lease = await written.acquire("first")
        for kind, raw in CONVERSATION:
            await written.append(lease, [(kind, [raw])])
        for name in (journal.name, f"{journal.name}-wal", f"{journal.name}-reserve"):
            shutil.copy(journal.with_name(name), folder / name)
    return folder / journal.name
