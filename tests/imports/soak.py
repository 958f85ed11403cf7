"""Imports killed at random points: `python -m tests.imports.soak POINTS [SEED]`.

`acphold import` of a home of several agents counts its own function calls, and kills itself with
SIGKILL at a random number. It is run again, and killed again, until one run reaches its end. Then
the journal must equal that of a single import of the same home: the same sessions, each with the
same entries in the same order. No process of an import may be left.

A piece is small here, so that there are many places to be killed at. It is equally small in all
processes that read, because a call is joined with its result inside a piece. Every second journal
is filled as in a large import: processes read beside the one that writes, and all sessions are
listed before they are read. If such an import is killed, the sessions it listed are read in the
background.
"""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import aclosing, suppress
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import psutil

from acphold.imports.session_writer import IMPORTED
from acphold.journal.journal import history
from acphold.journal.rows import ListFilter
from acphold.journal.stores import open_journal
from tests.imports.claude_home import Transcript, thinking, use
from tests.imports.codex_home import Rollout
from tests.imports.test_gemini import Log, call
from tests.imports.test_opencode import Store, tool

DEADLINE: Final = 60.0
"""For whatever is waited for; it takes a second."""

PIECE_BYTES: Final = 2 << 10

_SMALL: Final = f"from acphold.imports import pieces; pieces.PIECE_BYTES = {PIECE_BYTES}"

# CPython 3.11.2 may crash while it collects frames that a profile function has seen.
_COUNTED: Final = f"""
import gc, os, signal, sys, threading
gc.disable()
{_SMALL}
from acphold.faces.cli import main as command_line
from acphold.faces.cli import import_command, background_import
from acphold.imports import crew
from acp_wire.processes.own_python import own_python

left, beside = int(sys.argv[1]), sys.argv[2] == "beside"
crew.WORTH_A_WORKER = import_command.imports.WORTH_LISTING = 1 if beside else 1 << 60
crew._WORKER = "{_SMALL}; " + crew._WORKER
command = "from acphold.faces.cli.main import main; import sys; sys.exit(main(sys.argv[1:]))"
small = "{_SMALL}; " + command
background_import.own_command = lambda *words: own_python("-c", small, *words)

def count(*_):
    global left
    left -= 1
    if left <= 0:
        os.kill(os.getpid(), signal.SIGKILL)

threading.setprofile(count)
sys.setprofile(count)
code = command_line.main(sys.argv[3:])
sys.setprofile(None)
print(left, file=sys.stderr)
sys.exit(code)
"""

_NEVER: Final = 1 << 40
"""More calls than an import makes."""

Kept = dict[str, tuple[Any, ...]]
"""The sessions of a journal: the row and the entries of each."""


class Soak:
    """Imports of one home; `points` is how often one of them was killed."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.points = 0
        self._folder = folder
        self._home = folder / "home"
        self._chance = random.Random(seed)
        self._journals = 0
        fill(self._home)
        whole = self._fresh()
        self._calls = _NEVER - self._left(self._run(whole, _NEVER, "alone"))
        self._whole = asyncio.run(kept(whole))

    def run(self, points: int) -> None:
        """Kill at so many points; AssertionError where something is lost, doubled or left."""
        way = "alone"
        while self.points < points:
            way = "beside" if way == "alone" else "alone"
            self._fill_journal(way)

    def _fill_journal(self, way: str) -> None:
        journal = self._fresh()
        points = []
        ended = False
        while not ended:
            points.append(self._chance.randrange(1, self._calls))
            ended = self._run(journal, points[-1], way) is not None
        self.points += len(points) - 1
        self._nobody_is_left(journal)
        found = asyncio.run(kept(journal))
        assert found == self._whole, f"killed after {points[:-1]} calls, {way}: {journal}"
        journal.unlink()

    def _fresh(self) -> Path:
        self._journals += 1
        return self._folder / f"{self._journals}.db"

    def _run(self, journal: Path, calls: int, way: str) -> str | None:
        """An import that is killed after so many calls; its output, or None if it was killed."""
        command = [sys.executable, "-c", _COUNTED, str(calls), way]
        done = subprocess.run(
            [*command, "import", "--from", str(self._home)],
            env={**os.environ, "ACPHOLD_JOURNAL": str(journal)},
            capture_output=True,
            text=True,
            timeout=DEADLINE,
            check=False,
        )
        if done.returncode == -signal.SIGKILL:
            return None
        assert done.returncode == 0, (done.returncode, done.stderr)
        return done.stderr

    def _left(self, said: str | None) -> int:
        assert said is not None
        return int(said.split()[-1])

    def _nobody_is_left(self, journal: Path) -> None:
        """The processes that read end when the one that writes is gone."""
        deadline = time.monotonic() + DEADLINE
        while left := users(journal):
            assert time.monotonic() < deadline, f"left: {left}"
            time.sleep(0.01)


def users(journal: Path) -> list[psutil.Process]:
    """The processes whose journal this is."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.environ().get("ACPHOLD_JOURNAL") == str(journal):
                found.append(process)
    return found


async def kept(journal: Path) -> Kept:
    """The sessions of the journal, without import marks and sequence numbers."""
    found: Kept = {}
    async with aclosing(open_journal(journal)) as opened:
        for row in await opened.page(ListFilter()):
            entries = [
                (entry.kind, entry.at, bytes(entry.raw))
                async for segment in history(opened, row.session_id)
                for entry in segment.entries()
                if entry.kind != IMPORTED
            ]
            assert not row.is_unread
            facts = row.agent, row.cwd, row.title, row.created_at, row.updated_at
            found[row.session_id] = (facts, entries)
    return found


def fill(home: Path) -> None:
    """Conversations of several agents, of one piece and of many."""
    for number, turns in enumerate((1, 4, 15)):
        transcript = Transcript()
        for turn in range(turns):
            transcript.user(f"prompt {turn}")
            transcript.assistant(thinking("Hm."), f"answer {turn}", use(f"t{turn}", "Read"))
            transcript.result(f"t{turn}", "A" * 400)
            transcript.assistant("done")
        transcript.write(home, str(UUID(int=number)))
    for number, turns in enumerate((2, 8), 10):
        rollout = Rollout(session=str(UUID(int=number)))
        for turn in range(turns):
            rollout.user(f"prompt {turn}")
            rollout.run(f"c{turn}", "cat a", "A" * 400)
            rollout.agent(f"answer {turn}")
            rollout.end()
        rollout.write(home)
    log = Log()
    for turn in range(5):
        log.user(f"u{turn}", f"prompt {turn}")
        log.message(f"g{turn}", "gemini", f"answer {turn}", toolCalls=[call(f"c{turn}")])
        log.result(f"c{turn}", output="A" * 400)
    log.write(home)
    store = Store(home)
    for session in ("ses_1", "ses_2"):
        store.session(session)
        for turn in range(5):
            store.message("user", f"prompt {turn}", session=session)
            used = tool(f"c{turn}", "read", output="A" * 400)
            store.message("assistant", f"answer {turn}", used, session=session)
    store.db.close()


def main(points: int, seed: int) -> None:
    """Kill at so many points; prints how it went."""
    began = time.monotonic()
    folder = Path(tempfile.mkdtemp(prefix="acphold-"))
    try:
        soak = Soak(folder, seed)
        soak.run(points)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    spent = time.monotonic() - began
    print(f"killed at {soak.points} points with seed {seed} in {spent:.0f} s: nothing lost")  # noqa: T201


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1)
