"""`acphold import` of a home folder full of transcripts, in the forms of Claude Code and Codex.

What tools print is source code of Python's own library, so that texts repeat as real ones do.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sqlite3
import subprocess
import sys
import sysconfig
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import aclosing, suppress
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from random import Random

from acphold.conversation.history.timeline import Message
from acphold.imports import Home, Intake, reader
from acphold.journal.journal import state_of
from acphold.journal.rows import ListFilter
from acphold.journal.stores import open_journal
from bench.run import Run
from bench.table import Figure, Goal

CONVERSATIONS = 2_500
DAYS = 400
"""Over which the conversations are spread; so some 190 are of the last 30 days."""

DAY = 24 * 3600
RECENT_DAYS = 30
TURNS = 9
LONGER = 8
"""One conversation of so many has a turn more, so that all of them are a gigabyte."""

CALLS = 5
"""Tool calls in a turn."""

CODEX = 4
"""One conversation of so many is in the form of Codex."""

LONG_TURNS = 5_000
"""Turns of the one transcript of 200 MB."""

COPIED_TURNS = 1_600
"""Turns of the one transcript of 64 MB that lies there twice."""

SOURCES = 3_000
"""Sources of which an import finds nothing new, and that are interrupted: small ones."""

FOLDERS = 200
"""Folders in which a third of them are, in the form of Claude Code; again a third of these are
older copies of others."""

INTERRUPTIONS = 20
KILLED_AFTER_SECONDS = 0.3, 1.5

POLL_SECONDS = 0.05


def figures(run: Run) -> Iterator[Figure]:
    """Until all are listed, the newest searchable, all there, searchable; again; memory; size."""
    home = run.fresh("home")
    count = run.size(CONVERSATIONS, CONVERSATIONS // 10)
    size = _fill(home, count)
    journal = run.fresh("journal.db")
    taken, peak = _import(home, journal)
    what = f"import {count:,} conversations, {size / 1e6:,.0f} MB"
    yield Figure(f"{what}, all of them listed", "s", [taken["listed"]], goals=(Goal(5),))
    yield Figure("  30 days searchable", "s", [taken["recent"]], goals=(Goal(10),))
    yield Figure("  all of them there", "s", [taken["all"]])
    yield Figure("  all of them searchable", "s", [taken["searchable"]], goals=(Goal(75),))
    again, _ = _import(home, journal)
    yield Figure("  again, with nothing new", "s", [again["all"]], goals=(Goal(1),))
    yield Figure("  memory of the largest process", "MiB", [peak], goals=(Goal(300),))
    yield Figure(
        "  journal, for a byte of transcript",
        "bytes",
        [_journal_bytes(journal) / size],
        goals=(Goal(0.6),),
    )
    yield from _of_one_file(run)
    yield from _of_copies(run)
    yield from _of_many(run)


def _of_one_file(run: Run) -> Iterator[Figure]:
    home = run.fresh("long")
    random = Random(12)
    turns = run.size(LONG_TURNS, LONG_TURNS // 10)
    size = _write(
        home / ".claude/projects/-home-ada-p0/long.jsonl",
        _claude(
            "00000000-1111-4222-8333-444444444444", time.time(), 0, random, _Code(random), turns
        ),
        time.time(),
    )
    _, peak = _import(home, run.fresh("long.db"))
    what = f"one transcript of {size / 1e6:,.0f} MB: memory of the largest process"
    yield Figure(what, "MiB", [peak], goals=(Goal(100),))


def _of_copies(run: Run) -> Iterator[Figure]:
    """One conversation in two copies, one of them older; the newer one grows."""
    turns = run.size(COPIED_TURNS, COPIED_TURNS // 10)
    session_id, at = "00000001-1111-4222-8333-444444444444", 1_790_000_000
    rollout = f"rollout-2026-10-01T00-00-00-{session_id}"
    for name, own, copy in (
        ("claude", f".claude/projects/-p0/{session_id}", f".claude/projects/-copy/{session_id}"),
        ("codex", f".codex/sessions/2026/{rollout}", f".codex/sessions/backup/{rollout}"),
    ):
        home, journal = run.fresh(f"copies-{name}"), run.fresh(f"copies-{name}.db")

        def write(place: str, turns: int, *, name: str = name, home: Path = home) -> int:
            random = Random(13)
            code = _Code(random)
            if name == "claude":
                lines = _claude(session_id, at, 0, random, code, turns)
            else:
                lines = _codex(session_id, at, random, code, turns)
            return _write(home / f"{place}.jsonl", lines, time.time())

        size = write(own, turns)
        write(copy, turns // 2)
        what = f"{name}: one of {size / 1e6:,.0f} MB in two copies: CPU of the first import"
        spent, _ = asyncio.run(_spend(name, home, journal))
        yield Figure(what, "s", [spent])
        write(own, turns + 1)
        spent, read = asyncio.run(_spend(name, home, journal))
        yield Figure("  grown by a turn", "ms", [1000 * spent], goals=(Goal(100),))
        yield Figure("  bytes read for that, of the journal too", "KiB", [read / 1024])
        spent, read = asyncio.run(_spend(name, home, journal))
        yield Figure("  with nothing new", "ms", [1000 * spent])
        yield Figure("  bytes read for that", "KiB", [read / 1024])


def _of_many(run: Run) -> Iterator[Figure]:
    """Small ones, imported by processes that are killed, and then with nothing new."""
    home, journal = run.fresh("many"), run.fresh("many.db")
    count = run.size(SOURCES, SOURCES // 10)
    told = _fill_small(home, count)
    random = Random(14)
    command = [sys.executable, "-m", "acphold", "import", "--from", str(home)]
    for _ in range(INTERRUPTIONS):
        with subprocess.Popen(
            [*command, "--journal", str(journal)],
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        ) as process:
            time.sleep(random.uniform(*KILLED_AFTER_SECONDS))
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    began = time.perf_counter()
    subprocess.run([*command, "--journal", str(journal)], stdout=subprocess.DEVNULL, check=True)
    taken = time.perf_counter() - began
    what = f"{count:,} small ones, {INTERRUPTIONS} imports of them killed: the last import"
    yield Figure(what, "s", [taken])
    prompts, sessions = asyncio.run(_prompts(journal))
    wrong = sum(prompts[words] != 1 for words in {*prompts, *chain.from_iterable(told)})
    yield Figure("  turns that are not there once", "", [wrong], goals=(Goal(0),))
    more = sessions - len(told)
    yield Figure("  second sessions of a conversation", "", [more], goals=(Goal(0),))
    for name, its_count in (("claude", count // 3), ("codex", count - count // 3)):
        spent, read = asyncio.run(_spend(name, home, journal))
        what = f"{name}: with nothing new, CPU for each of {its_count:,}"
        yield Figure(what, "ms", [1000 * spent / its_count], goals=(Goal(0.1),))
        yield Figure("  bytes read for each", "KiB", [read / 1024 / its_count])


async def _prompts(journal: Path) -> tuple[Counter[str], int]:
    """All prompts of a journal, and the number of its sessions."""
    prompts, sessions = Counter[str](), 0
    async with aclosing(open_journal(journal)) as opened:
        after = None
        while rows := await opened.page(ListFilter(include_unprompted=True), after, 500):
            for row in rows:
                sessions += 1
                timeline = (await state_of(opened, row.session_id)).timeline
                said = [item for item in timeline if isinstance(item, Message)]
                prompts.update(item.text for item in said if item.role == "user")
            after = rows[-1].key
    return prompts, sessions


async def _spend(name: str, home: Path, journal: Path) -> tuple[float, int]:
    """Import the conversations of a program; the seconds of CPU, and the bytes that were read."""
    reading = reader(name)
    opened = open_journal(journal, create=True)
    try:
        began, read = time.process_time(), _bytes_read()
        intake = Intake(opened)
        sources = reading.find(Home(home))
        for source in (await intake.select_changed(sources, reading))[0]:
            await intake.take(source, reading)
        return time.process_time() - began, _bytes_read() - read
    finally:
        await opened.aclose()


def _bytes_read() -> int:
    """Bytes that this process has read, from files that the system has in memory, too."""
    counts = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(counts["rchar"])


def _import(home: Path, journal: Path) -> tuple[dict[str, float], float]:
    """Seconds until each point, and the MiB of the largest process."""
    command = [sys.executable, "-m", "acphold", "import", "--from", str(home)]
    began = time.perf_counter()
    taken: dict[str, float] = {}
    peak = 0.0
    since = (time.time() - RECENT_DAYS * DAY) * 1000
    times = [path.stat().st_mtime * 1000 for path in home.rglob("*.jsonl")]
    recent = sum(time >= since for time in times)
    with subprocess.Popen(
        [*command, "--journal", str(journal)], stdout=subprocess.DEVNULL
    ) as process:
        while "searchable" not in taken:
            time.sleep(POLL_SECONDS)
            now = time.perf_counter() - began
            if process.returncode is None:
                ended, status, usage = os.wait4(process.pid, os.WNOHANG)
                if ended:
                    process.returncode = os.waitstatus_to_exitcode(status)
                    taken["all"], peak = now, usage.ru_maxrss / 1024
            listed, there, lagging, old = _progress(journal, since)
            if listed >= len(times):
                taken.setdefault("listed", now)
            if there >= recent and lagging == 0:
                taken.setdefault("recent", now)
            if "all" in taken and old == 0:
                taken["searchable"] = now
    return taken, peak


def _progress(journal: Path, since: float) -> tuple[int, int, int, int]:
    """All sessions, recent ones that are there, how many of these lag behind, how many of all."""
    try:
        connection = sqlite3.connect(f"file:{journal}?mode=ro", uri=True)
        row = connection.execute(
            "SELECT count(*), count(*) FILTER (WHERE updated_at >= ?1 AND settled_through > 0),"
            " count(*) FILTER (WHERE updated_at >= ?1 AND indexed_through < settled_through),"
            " count(*) FILTER (WHERE indexed_through < settled_through) FROM sessions",
            (since,),
        ).fetchone()
        connection.close()
    except sqlite3.OperationalError:
        return 0, 0, 1, 1
    return int(row[0]), int(row[1]), int(row[2]), int(row[3])


def _journal_bytes(journal: Path) -> int:
    connection = sqlite3.connect(journal)
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    return journal.stat().st_size


# -- transcripts ------------------------------------------------------------------------------


def _fill(home: Path, count: int) -> int:
    """Write so many transcripts, the newest of now; their bytes."""
    random = Random(11)
    code = _Code(random)
    now = time.time()
    size = 0
    for number in range(count):
        at = now - number * DAYS * DAY / count - 600
        turns = TURNS + (number % LONGER == 0)
        session_id = f"{number:08x}-1111-4222-8333-444444444444"
        if number % CODEX == 0:
            day = datetime.fromtimestamp(at, UTC)
            name = f".codex/sessions/{day:%Y/%m/%d}/rollout-{day:%Y-%m-%dT%H-%M-%S}-{session_id}"
            lines = _codex(session_id, at, random, code, turns)
        else:
            name = f".claude/projects/-home-ada-p{number % 20}/{session_id}"
            lines = _claude(session_id, at, number % 20, random, code, turns)
        size += _write(home / f"{name}.jsonl", lines, at)
    return size


def _fill_small(home: Path, count: int) -> list[list[str]]:
    """Write so many transcripts of three turns; the prompts of each conversation."""
    told: list[list[str]] = []
    claude = count // 3
    for number in range(count):
        is_copy = number < claude and number % 3 == 2
        of = number - 1 if is_copy else number
        session_id = f"{of:08x}-1111-4222-8333-444444444444"
        prompts = [f"Prompt {turn} of {of}" for turn in range(2 if is_copy else 3)]
        at = 1_790_000_000 + of
        if number < claude:
            name = f".claude/projects/-p{number % FOLDERS}/{session_id}"
            records: list[Line] = []
            for words in prompts:
                records.append({"type": "user", "message": {"role": "user", "content": words}})
                said = [{"type": "text", "text": f"On {words}"}]
                message = {"role": "assistant", "model": "m", "content": said}
                records.append({"type": "assistant", "message": message})
            lines = _claude_lines(session_id, at, number % FOLDERS, records)
        else:
            name = f".codex/sessions/2026/{number % 12}/rollout-2026-10-01T00-00-00-{session_id}"
            payloads: list[tuple[str, Line]] = []
            for words in prompts:
                payloads += _codex_message("user", "user_message", "input_text", words)
                payloads += _codex_message(
                    "assistant", "agent_message", "output_text", f"On {words}"
                )
            lines = _codex_lines(session_id, at, payloads)
        _write(home / f"{name}.jsonl", lines, at)
        if not is_copy:
            told.append(prompts)
    return told


def _write(path: Path, lines: Iterable[Line], at: float) -> int:
    """Write a transcript that was held until then; its bytes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        file.writelines(json.dumps(line).encode() + b"\n" for line in lines)
    os.utime(path, (at, at))
    return path.stat().st_size


class _Code:
    """Pieces of source code, as tools print them."""

    def __init__(self, random: Random) -> None:
        paths = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))
        self._lines = [
            line
            for path in paths
            for line in path.read_text(encoding="utf-8", errors="replace").splitlines()
        ]
        self._random = random

    def lines(self, count: int) -> str:
        start = self._random.randrange(len(self._lines) - count)
        return "\n".join(self._lines[start : start + count])

    def words(self, count: int) -> str:
        return " ".join(self.lines(count // 4).split()[:count])


Line = dict[str, object]


def _claude(
    session_id: str, at: float, project: int, random: Random, code: _Code, turns: int
) -> Iterator[Line]:
    return _claude_lines(session_id, at, project, _claude_records(random, code, turns))


def _claude_lines(
    session_id: str, at: float, project: int, records: Iterable[Line]
) -> Iterator[Line]:
    parent: str | None = None
    for number, record in enumerate(records):
        uuid = f"{number:08x}{session_id[8:]}"
        yield {
            "parentUuid": parent,
            "isSidechain": False,
            "uuid": uuid,
            "timestamp": _iso(at - 3600 + number),
            "cwd": f"/home/ada/p{project}",
            "sessionId": session_id,
            "version": "2.1.316",
            "gitBranch": "main",
            **record,
        }
        parent = uuid


def _claude_records(random: Random, code: _Code, turns: int) -> Iterator[Line]:
    usage = {"input_tokens": 10, "output_tokens": 5, "cache_read_input_tokens": 2}
    for turn in range(turns):
        yield {"type": "user", "message": {"role": "user", "content": code.words(40)}}
        for call in range(CALLS):
            message = {"id": f"m{turn}-{call}", "role": "assistant", "model": "m", "usage": usage}
            said = {"type": "text", "text": code.words(30)}
            yield {"type": "assistant", "message": {**message, "content": [said]}}
            call_id, output = f"t{turn}-{call}", code.lines(random.choice((40, 80, 160)))
            use = {"type": "tool_use", "id": call_id, "name": "Bash", "input": {"command": "cat a"}}
            yield {"type": "assistant", "message": {**message, "content": [use]}}
            result = {"type": "tool_result", "tool_use_id": call_id, "content": output}
            yield {
                "type": "user",
                "message": {"role": "user", "content": [result]},
                "toolUseResult": {"stdout": output, "stderr": "", "interrupted": False},
            }
        said = {"type": "text", "text": code.words(120)}
        message = {"id": f"m{turn}", "role": "assistant", "model": "m", "usage": usage}
        yield {"type": "assistant", "message": {**message, "content": [said]}}


def _codex(session_id: str, at: float, random: Random, code: _Code, turns: int) -> Iterator[Line]:
    return _codex_lines(session_id, at, _codex_records(random, code, turns))


def _codex_lines(
    session_id: str, at: float, payloads: Iterable[tuple[str, Line]]
) -> Iterator[Line]:
    head: Line = {
        "id": session_id,
        "cwd": "/home/ada/p1",
        "cli_version": "0.137.0",
        "source": "cli",
    }
    yield _record(at - 3600, "session_meta", {**head, "timestamp": _iso(at - 3600)})
    for number, (kind, payload) in enumerate(payloads):
        yield _record(at - 3600 + number, kind, payload)


def _record(at: float, kind: str, payload: Line) -> Line:
    return {"timestamp": _iso(at), "type": kind, "payload": payload}


def _codex_records(random: Random, code: _Code, turns: int) -> Iterator[tuple[str, Line]]:
    for turn in range(turns):
        yield from _codex_message("user", "user_message", "input_text", code.words(40))
        for call in range(CALLS):
            call_id = f"c{turn}-{call}"
            yield from _codex_message("assistant", "agent_message", "output_text", code.words(30))
            arguments = json.dumps({"cmd": "cat a"})
            use = {"type": "function_call", "name": "exec_command", "arguments": arguments}
            yield "response_item", {**use, "call_id": call_id}
            output = code.lines(random.choice((80, 160, 320)))
            result: Line = {"type": "function_call_output", "call_id": call_id, "output": output}
            yield "response_item", result
        yield from _codex_message("assistant", "agent_message", "output_text", code.words(120))


def _codex_message(role: str, event: str, kind: str, text: str) -> Iterator[tuple[str, Line]]:
    """Each text stands there twice: for the model, and for the screen."""
    content = [{"type": kind, "text": text}]
    yield "response_item", {"type": "message", "role": role, "content": content}
    yield "event_msg", {"type": event, "message": text}


def _iso(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds")[:23] + "Z"
