"""How long an export takes: a session of 10,000 updates, a fresh process, each form."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter

from acphold.journal.stores import open_journal
from bench.conversation import keep, turns
from bench.run import Run
from bench.table import Figure, Goal

SESSION = "a-session"
UPDATES = 10_000
SECONDS = 1.0


def figures(run: Run) -> Iterator[Figure]:
    """As it is after its last turn, and as a crash left it; and looked through for secrets."""
    conversation = list(turns(UPDATES))
    for settle, state in ((True, "compacted"), (False, "not compacted")):
        journal = run.fresh("journal.db")
        asyncio.run(_fill(journal, conversation, settle=settle))
        for form in ("markdown", "jsonl", "html"):
            took = [_seconds(journal, "--format", form) for _ in range(run.rounds)]
            yield Figure(f"export of {UPDATES:,} updates, {form}, {state}", "s", took, goals=GOALS)
    redacted = [_seconds(journal, "--format", "html", "--redact") for _ in range(run.rounds)]
    yield Figure(f"export of {UPDATES:,} updates, html, redacted", "s", redacted)


GOALS = (Goal(SECONDS),)


async def _fill(path: Path, conversation: list[list[bytes]], *, settle: bool) -> None:
    journal = open_journal(path)
    await keep(journal, SESSION, conversation, at_once=1, settle=settle)
    await journal.aclose()


def _seconds(journal: Path, *options: str) -> float:
    command = [sys.executable, "-m", "acphold", "export", SESSION, "--journal", str(journal)]
    began = perf_counter()
    subprocess.run([*command, *options], check=True, capture_output=True)
    return perf_counter() - began
