"""Folders of a person's own, commands in them, and what an agent there is told to do."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any

from acphold.machine.unix import pid_at
from tests.cli.command_line import Finished, run_here
from tests.editor import DEADLINE, scripted_agent
from tests.screen_terminal import Terminal, terminal

ACPHOLD = (sys.executable, "-m", "acphold")


class Place:
    """Folders of its own, and commands in them."""

    def __init__(self, folder: Path, journal: Path) -> None:
        self.folder = folder
        self.journal = journal
        unwanted = {"NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES", "ACPHOLD_SETTINGS"}
        kept = {name: value for name, value in os.environ.items() if name not in unwanted}
        self.env = {
            **kept,
            "XDG_RUNTIME_DIR": str(folder),
            "XDG_STATE_HOME": str(folder / "state"),
            "XDG_CONFIG_HOME": str(folder / "config"),
            "ACPHOLD_JOURNAL": str(journal),
            "TERM": "xterm-256color",
            "LC_ALL": "C.UTF-8",
        }

    def on_terminal(self, *words: str, columns: int = 80) -> AbstractContextManager[Terminal]:
        return terminal([*ACPHOLD, *words], self.env, columns)

    def chat(
        self, *options: str, columns: int = 80, **agent: Any
    ) -> AbstractContextManager[Terminal]:
        return self.on_terminal("chat", *options, "--", *scripted_agent(**agent), columns=columns)

    def here(self, *words: str) -> Finished:
        """Run it in this process."""
        return run_here(words, self.env)

    def run(self, *words: str, typed: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*ACPHOLD, *words],
            env=self.env,
            input=typed,
            capture_output=True,
            text=True,
            timeout=DEADLINE * 2,
            check=False,
        )


@contextmanager
def short_folder() -> Iterator[Path]:
    """Not that of the test, whose name is too long for a socket in it. At the end it has no daemon:
    one whose turn never ends would stay."""
    folder = Path(tempfile.mkdtemp(prefix="acphold-"))
    yield folder
    for path in folder.glob("acphold/*.sock"):
        if (pid := pid_at(str(path))) is not None:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    # A process that ends after its terminal is gone may still write a note in there.
    shutil.rmtree(folder, ignore_errors=True)


def steps(*them: dict[str, Any]) -> str:
    return json.dumps(them) + "\r"


def ask(**tool: Any) -> dict[str, Any]:
    options = [
        {"optionId": "go", "name": "Go on", "kind": "allow_once"},
        {"optionId": "stop", "name": "Stop it", "kind": "reject_once"},
    ]
    request = {"toolCall": {"toolCallId": "t1", **tool}, "options": options}
    return {"ask": ["session/request_permission", request]}
