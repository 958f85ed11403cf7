"""Lines that match a regular expression, looked for in a process of its own.

An expression can take longer than the age of the universe, and holds the interpreter meanwhile:
such a process can be ended, and ends itself. `python -m holdfast.agents.model.searching` reads a
`Query` as JSON and writes a `Report`.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import stat
import sys
from collections.abc import Iterator
from contextlib import suppress

import msgspec
from msgspec import Struct

from holdfast.agents.model.ignoring import glob_pattern
from holdfast.agents.model.walking import Found, below, open_file, starting_at
from holdfast.errors import HoldfastError, InvalidParamsError, WorkspaceError
from holdfast.workspace.roots import Roots

SECONDS = 20
"""How long a search may take."""

MAX_LINES = 200
MAX_LINE = 300
"""Characters shown of one line."""

MAX_FILE = 4 * 1024 * 1024
"""Bytes of a file that is looked at; longer ones are data."""


class Query(Struct):
    """What to look for; `path` is where, a file or a folder; `glob` which files."""

    cwd: str
    additional: tuple[str, ...]
    pattern: str
    path: str = "."
    glob: str | None = None
    ignore_case: bool = False


class Report(Struct):
    """Lines as `path:number: text`, in the order of the paths; `more` if these are not all.

    `error` is why nothing could be looked for.
    """

    lines: list[str] = []
    files: int = 0
    more: bool = False
    error: str | None = None


async def search(query: Query) -> Report:
    """Run the query; raises InvalidParamsError and WorkspaceError, also when it takes too long."""
    try:
        re.compile(query.pattern)
    except (re.error, RecursionError) as error:
        raise InvalidParamsError(f"pattern is no regular expression: {error}") from None
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", __name__),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        cwd="/",  # nothing of the person's project is imported
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    try:
        async with asyncio.timeout(SECONDS):
            output, _ = await process.communicate(msgspec.json.encode(query))
    except TimeoutError:
        output = b""
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
    if not output:
        raise WorkspaceError(f"the search took more than {SECONDS} s: use a simpler pattern")
    report = msgspec.json.decode(output, type=Report)
    if report.error is not None:
        raise WorkspaceError(report.error)
    return report


def look(query: Query) -> Report:
    """Run the query here; raises WorkspaceError."""
    roots = Roots(query.cwd, query.additional)
    pattern = re.compile(query.pattern, re.IGNORECASE if query.ignore_case else 0)
    wanted = None if query.glob is None else glob_pattern(query.glob)
    report = Report()
    cwd = os.path.realpath(query.cwd)
    with starting_at(roots, query.path) as start:
        folder = start.path if start.name is None else start.path.rpartition("/")[0]
        for found in below(start):
            if found.path.endswith("/") or (wanted and not wanted.fullmatch(found.path)):
                continue
            shown = f"{folder}/{found.path}".removeprefix(f"{cwd}/")
            before = len(report.lines)
            report.lines += _matches(found, shown, pattern, MAX_LINES + 1 - before)
            report.files += len(report.lines) > before
            if len(report.lines) > MAX_LINES:
                del report.lines[MAX_LINES:]
                report.more = True
                break
    return report


def _matches(found: Found, shown: str, pattern: re.Pattern[str], limit: int) -> Iterator[str]:
    for number, line in enumerate(_lines(found), 1):
        if pattern.search(line):
            yield f"{shown}:{number}: {line.strip()[:MAX_LINE]}"
            limit -= 1
            if not limit:
                return


def _lines(found: Found) -> list[str]:
    """The lines of a text file; none of what is no text."""
    fd = open_file(found)
    if fd is None:
        return []
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode) or status.st_size > MAX_FILE:
            return []
        with open(fd, "rb", closefd=False) as file:
            data = file.read(MAX_FILE)
    except OSError:
        return []
    finally:
        os.close(fd)
    return [] if b"\0" in data[:8000] else data.decode(errors="replace").splitlines()


def _main() -> None:
    signal.alarm(SECONDS + 1)  # its default ends us even inside of a match
    query = msgspec.json.decode(sys.stdin.buffer.read(), type=Query)
    try:
        report = look(query)
    except (HoldfastError, OSError) as error:
        report = Report(error=str(error))
    sys.stdout.buffer.write(msgspec.json.encode(report))


if __name__ == "__main__":
    _main()
