"""The start of `acphold wrap`: the agent is started before anything that takes time is imported."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.test_shared_daemon import Home, home
from tests.distributions import FOLDERS

__all__ = ["home"]

SOURCES = [folder / "src" for folder in FOLDERS.values()]

NAMES_IMPORTS = """
import os, sys

class Finder:
    def find_spec(self, name, *_):
        with open(os.environ["ACPHOLD_IMPORTS"], "a") as file:
            file.write(f"{name}\\n")

if "daemon" in sys.orig_argv:
    sys.meta_path.insert(0, Finder())
"""
"""A `sitecustomize` by which a daemon names what it imports."""


def test_nothing_that_takes_milliseconds_is_imported_before_the_agent_starts() -> None:
    heavy = {"asyncio", "contextlib", "enum", "importlib", "logging", "msgspec", "re", "signal"}
    code = "import sys, acphold.faces.cli.start; print(*sys.modules)"
    # Without site, which may import anything; so the package is found by its folder.
    command = [sys.executable, "-S", "-c", code]
    env = {"PYTHONPATH": ":".join(map(str, SOURCES))}
    done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True, env=env)
    assert not heavy & set(done.stdout.split())


def test_a_front_imports_few_modules_beside_pythons_own() -> None:
    heavy = {"collections", "contextlib", "enum", "msgspec", "re", "typing"}
    code = (
        "import sys; before = {*sys.modules}; import acphold.__main__, acphold.faces.cli.front; "
        "print(*{*sys.modules} - before)"
    )
    command = [sys.executable, "-S", "-c", code]
    env = {"PYTHONPATH": ":".join(map(str, SOURCES))}
    done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True, env=env)
    imported = {*done.stdout.split()}
    assert not heavy & imported
    assert len([name for name in imported if name.startswith("acp")]) <= 23


COMMANDS = ("list", "import", "queue -", "inbox", "session rename - title", "session prune --yes")


@pytest.mark.parametrize("words", COMMANDS)
def test_a_command_imports_nothing_that_it_rarely_needs(journal: Path, words: str) -> None:
    command = [sys.executable, "-S", "-X", "importtime", "-m", "acphold", *words.split()]
    env = {"PYTHONPATH": ":".join(filter(None, sys.path)), "ACPHOLD_JOURNAL": str(journal)}
    env |= {"HOME": str(journal.parent), "ACPHOLD_SETTINGS": "/nonexistent/settings.toml"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=20, env=env)
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert {"asyncio", "msgspec", "acphold.faces.cli.journals"} <= imported
    rare = {"_ssl", "inspect", "platform", "textwrap", "tokenize"}
    if words == "import":  # `signal.signal` words a task, as the handler has one
        rare -= {"inspect", "tokenize"}
    rare |= {"markdown_it", "pygments", "rich.console"}
    assert not rare & imported


async def test_a_daemon_imports_little_before_the_first_answer(home: Home, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(NAMES_IMPORTS)
    found = tmp_path / "imports"
    path = [str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])]
    home.env |= {"PYTHONPATH": os.pathsep.join(path), "ACPHOLD_IMPORTS": str(found)}
    async with home.editor():
        imported = {*found.read_text().split()}
    assert "acphold.live.server.connection" in imported
    # Whatever compiles many patterns, asks for the libraries of C, prints an object, forks, or
    # looks for modules of another system.
    slow = {"acphold.safety.redaction.detector", "ctypes", "inspect", "platform", "textwrap"}
    slow |= {"argparse", "importlib.util", "msgspec.inspect", "ntpath", "subprocess"}
    assert not slow & imported
    assert len([name for name in imported if name.startswith("acp")]) <= 210
