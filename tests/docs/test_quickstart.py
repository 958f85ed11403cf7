"""docs/quickstart.md: its console blocks work as they stand."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from tests.editor import wrapped

pytestmark = pytest.mark.slow

PAGE = Path(__file__).parents[2] / "docs" / "quickstart.md"
COMMANDS = re.findall(r"^\$ acphold (.*)$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)


async def kept(journal: Path) -> str:
    """A session in the journal; its id."""
    async with wrapped(journal) as client:
        session = await client.talk({"say": "hello"})
        return session


def acphold(command: str, journal: Path, session: str) -> subprocess.CompletedProcess[str]:
    """Run a command of the page on this journal; the id on the page stands for the session."""
    words = [session if word == "3f9a" else word for word in shlex.split(command)]
    if "sqlite:////tmp/other.db" in words:
        words[words.index("sqlite:////tmp/other.db")] = f"sqlite:///{journal}"
    if words[:2] == ["session", "delete"]:
        words.append("--yes")  # there is no terminal to ask on
    # An installation puts the command on PATH; here it is beside the interpreter.
    path = os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]])
    # With a home folder of its own, so that `import` does not find your own conversations.
    kept = {name: os.environ[name] for name in ("XDG_RUNTIME_DIR", "TMPDIR") if name in os.environ}
    kept["ACPHOLD_DAEMON"] = "0"  # nothing stays in the background
    env = {**kept, "HOME": str(journal.parent), "ACPHOLD_JOURNAL": str(journal), "PATH": path}
    return subprocess.run(
        [sys.executable, "-m", "acphold", *words],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env=env,
        timeout=60,
        check=False,
    )


def test_the_page_has_its_commands() -> None:
    assert [command.split()[0] for command in COMMANDS] == [
        "chat",
        "demo",
        "doctor",
        "ask",
        "list",
        "list",
        "show",
        "show",
        "session",
        "import",
        "search",
        "list",
    ]


@pytest.mark.parametrize("command", COMMANDS)
async def test_a_command_of_the_quickstart_works(command: str, journal: Path) -> None:
    session = await kept(journal)
    done = acphold(command, journal, session)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    if command.startswith("list"):
        assert session[:4] in done.stdout
    if "--json" in command:
        lines = [msgspec.json.decode(line) for line in done.stdout.splitlines()]
        assert lines
