"""A program: the files below a folder, or lines in them, without what git ignores.

It reads a query as JSON and prints what it finds; `find` in `toolbox.py` runs it, as a process of
its own, because nothing interrupts Python while it matches an expression.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import islice

from pathspec import GitIgnoreSpec

MOST = 500  # files or lines that are told; who wants more asks for less
GIT = os.path.abspath(shutil.which("git") or "git")  # before we are in a folder of somebody's
LARGEST = 4 * 1024 * 1024  # bytes of a file that are looked at; behind them it is data


def main() -> None:
    signal.alarm(30)  # seconds; if nobody is there any more to end it, the system does
    query = json.load(sys.stdin)
    os.chdir(query["folder"])
    names, place = _files(), query["path"]
    if query["glob"]:
        names = sorted(GitIgnoreSpec.from_lines([query["glob"]]).match_files(names))
    found: Iterable[str] = dict.fromkeys("".join(name.partition("/")[:2]) for name in names)
    if query["pattern"]:
        found = _lines(names, re.compile(query["pattern"]), place)
    elif query["glob"]:
        found = (os.path.normpath(f"{place}/{name}") for name in names)
    told = list(islice(found, MOST + 1)) or ["(Nothing.)"]
    told[MOST:] = ["(There is more: ask for less.)"] * (len(told) > MOST)
    sys.stdout.buffer.write("\n".join(told).encode(errors="replace"))  # not all names are UTF-8


def _files() -> list[str]:
    """The files below this folder, as git knows them, else as far as no .gitignore names them."""
    # A repository could name programs for git to run: as its fsmonitor, or to get what it lacks.
    git = (GIT, "-c", "core.fsmonitor=false", "ls-files", "-zco", "--exclude-standard")
    try:
        told = subprocess.check_output(git, env=os.environ | {"GIT_ALLOW_PROTOCOL": ""})
    except (OSError, subprocess.CalledProcessError):
        ignored = GitIgnoreSpec.from_lines([".git/", "node_modules/", "__pycache__/", ".venv/"])
        for rule in _text(".gitignore").splitlines():
            with suppress(ValueError):  # git, too, passes by what is no rule
                ignored += GitIgnoreSpec.from_lines([rule])
        return sorted(ignored.match_tree_files(".", follow_links=False, negate=True))
    return sorted({name for name in os.fsdecode(told).split("\0") if os.path.lexists(name)})


def _lines(names: list[str], pattern: re.Pattern[str], place: str) -> Iterator[str]:
    """The lines that match, as `path:number: line`, cut where they are too long to be read."""
    for name in names:
        path = os.path.normpath(f"{place}/{name}")
        for number, line in enumerate(_text(name).splitlines(), 1):
            if pattern.search(line):
                yield f"{path}:{number}: {line.strip()[:300]}"


def _text(name: str) -> str:
    """The text of a file; nothing if it is none, or lies elsewhere behind a link."""
    path = os.path.realpath(name)
    if path.startswith(os.path.join(os.getcwd(), "")) and os.path.isfile(path):
        with suppress(OSError), open(path, "rb") as file:  # what may not be read is not found
            data = file.read(LARGEST)
            return "" if b"\0" in data else data.decode(errors="replace")
    return ""


if __name__ == "__main__":
    main()
