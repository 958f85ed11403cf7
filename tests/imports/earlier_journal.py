"""Makes `earlier_journal.db.xz`: a journal as the code of commit 3fd8d49f left it.

There, an import remembered places in bytes. So of three conversations one has turns several times,
as two copies of it lay on disk; one was gone back in, which that code took for a difference; one
was continued here. Run once, with that commit's packages before ours on the path:

    PYTHONPATH=OLD/src:OLD/wire/src:OLD/conversation/src:OLD/safety/src:OLD/mcp_servers/src \\
        python tests/imports/earlier_journal.py

`write` makes the files of the conversations, also for the test.
"""

from __future__ import annotations

import asyncio
import json
import lzma
import os
import sqlite3
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

STORED = Path(__file__).with_name("earlier_journal.db.xz")
COPIED, GONE_BACK, CONTINUED = (f"{n:08}-0000-4000-8000-000000000000" for n in (1, 2, 3))
TENANT = "bert"
"""The user with whom the sessions are shared."""


def way(session: str, *prompts: str) -> list[dict[str, Any]]:
    """The records of a conversation; what follows "back" was said in the place of "left"."""
    records: list[dict[str, Any]] = []
    minute = 0
    for words in prompts:
        last = records[-1]["uuid"] if records else None
        for kind, text in (("user", words), ("assistant", f"On {words}")):
            minute += 1 if words != "back" else 10
            message: dict[str, Any] = {"role": kind, "content": [{"type": "text", "text": text}]}
            if kind == "assistant":
                message |= {"id": f"msg-{words}", "model": "m", "stop_reason": "end_turn"}
            its = f"{words}-{kind}"
            records.append(
                {"type": kind, "uuid": its, "parentUuid": last, "sessionId": session,
                 "timestamp": f"2026-01-02T03:{minute:02}:00.000Z", "cwd": "/work",
                 "version": "2.1.0", "message": message}
            )  # fmt: skip
            last = its
    return records


def write(home: Path, step: int) -> None:
    """Write the files as they are at a step: 0, 1, …"""
    grown = ["one", "two", *(f"more {n}" for n in range(step + 1))]
    files = {("a", COPIED): way(COPIED, *grown[:2]), ("b", COPIED): way(COPIED, *grown)}
    files["a", GONE_BACK] = way(GONE_BACK, "one", "left")
    if step:
        files["a", GONE_BACK] += way(GONE_BACK, "one", "back", *grown[3:])[2:]
    files["a", CONTINUED] = way(CONTINUED, "one", "two")
    for (folder, session), records in files.items():
        path = home / ".claude/projects" / folder / f"{session}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(f"{json.dumps(record)}\n" for record in records))


def _make(folder: Path) -> None:
    """Import with the packages of that commit, five times, and do what people do."""
    kept = folder / "journal.db"
    env = os.environ | {"HOME": str(folder), "XDG_STATE_HOME": str(folder / "state"),
                        "ACPHOLD_JOURNAL": str(kept)}  # fmt: skip

    def run(*words: str) -> None:
        subprocess.run([sys.executable, "-m", "acphold", *words], env=env, check=True)

    for step in range(5):
        write(folder, step)
        run("import", "--agent", "claude", "--wait")
        if not step:
            asyncio.run(_say_here(kept))
    asyncio.run(_do_what_people_do(kept))
    connection = sqlite3.connect(kept)
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.execute("PRAGMA journal_mode = DELETE")
    connection.execute("VACUUM")
    connection.close()
    STORED.write_bytes(lzma.compress(kept.read_bytes(), preset=9 | lzma.PRESET_EXTREME))


async def _say_here(kept: Path) -> None:
    from acphold.journal.stores import open_journal

    journal = open_journal(kept)
    lease = await journal.acquire(CONTINUED)
    said = json.dumps([{"type": "text", "text": "said here"}]).encode()
    await journal.append(lease, [("prompt", [said]), ("turn_end", [b'{"stopReason":"end_turn"}'])])
    await journal.release(lease)
    await journal.aclose()


async def _do_what_people_do(kept: Path) -> None:
    from acphold.journal.access import Share
    from acphold.journal.rows import RowChange
    from acphold.journal.stores import open_journal

    journal = open_journal(kept)
    for session in (COPIED, GONE_BACK, CONTINUED):
        lease = await journal.acquire(session)
        await journal.change(lease, RowChange(given=f"Named {session[7]}"))
        await journal.links.link(lease, "codex", f"also-{session}")
        await journal.release(lease)
        await journal.access.keep_share(Share(session, TENANT, prompts=True))
    await journal.aclose()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        _make(Path(made))
