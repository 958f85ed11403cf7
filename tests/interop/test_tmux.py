"""`acphold chat` as a person has it: in tmux, from a shell, keys in and screen out."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.editor import scripted_agent

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]

SECONDS = 60.0
"""Longest wait for something to appear on the screen."""


class Window:
    """A shell in a tmux of its own, in an empty folder, with a journal of its own."""

    def __init__(self, folder: Path) -> None:
        tmux = shutil.which("tmux")
        assert tmux, "no tmux: install tmux"
        self._tmux = [tmux, "-S", str(folder / "tmux"), "-f", os.devnull]
        words = ", ".join(json.dumps(word) for word in scripted_agent())
        settings = folder / "settings.toml"
        settings.write_text(f"[agents.tester]\ncommand = [{words}]\n")
        variables = {
            "XDG_RUNTIME_DIR": str(folder),
            "XDG_STATE_HOME": str(folder / "state"),
            "ACPHOLD_SETTINGS": str(settings),
            "ACPHOLD_JOURNAL": str(folder / "journal.db"),
            "LC_ALL": "C.UTF-8",
            "PS1": "$ ",
            "HISTFILE": "",
        }
        told = [f"{name}={shlex.quote(value)}" for name, value in variables.items()]
        shell = f"cd {shlex.quote(str(folder))} && exec env {' '.join(told)} bash --norc -i"
        self._call("new-session", "-d", "-x", "80", "-y", "24", shell)

    def type(self, *keys: str) -> None:
        """Press keys, by tmux's names; anything else is text."""
        self._call("send-keys", *keys)

    def run(self, *words: str) -> None:
        """Start acphold from the shell."""
        self.type(shlex.join([sys.executable, "-m", "acphold", *words]), "Enter")

    def until(self, *words: str, but: str = "\0") -> str:
        """Wait until the window shows all of this, and not `but`; returns its text."""
        deadline = time.monotonic() + SECONDS
        while True:
            shown = self._call("capture-pane", "-p")
            if all(word in shown for word in words) and but not in shown:
                return shown
            assert time.monotonic() < deadline, f"never showed {words} without {but!r}:\n{shown}"
            time.sleep(0.1)

    def resize(self, columns: int, rows: int) -> None:
        self._call("resize-window", "-x", str(columns), "-y", str(rows))

    def close(self) -> None:
        """Close it, as a person does with the mouse: its programs get SIGHUP."""
        subprocess.run([*self._tmux, "kill-server"], capture_output=True, check=False)

    def _call(self, *words: str) -> str:
        done = subprocess.run(
            [*self._tmux, *words], capture_output=True, text=True, timeout=SECONDS, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture
def folder() -> Iterator[Path]:
    # Not in the folder of the test, whose name is too long for a socket in it.
    made = Path(tempfile.mkdtemp(prefix="acphold-"))
    yield made
    # A process that ends after its window is closed may still write a note in there.
    shutil.rmtree(made, ignore_errors=True)


@pytest.fixture
def window(folder: Path) -> Iterator[Window]:
    window = Window(folder)
    yield window
    window.close()


def steps(*them: dict[str, object]) -> str:
    return json.dumps(them)


def test_a_conversation_goes_on_by_resume_and_by_continue(window: Window) -> None:
    window.run("chat", "tester")
    window.until("ready")
    window.type(steps({"say": "first words"}), "Enter")
    window.until("agent  first words", "ready")
    window.type("C-d")
    window.until("To continue: acphold continue")
    window.type("clear", "Enter")
    window.run("chat", "--resume", "tester")
    window.until("first words", "Enter continues")
    window.type("Enter")
    window.until("agent  first words", "ready")
    window.type(steps({"say": "second words"}), "Enter")
    window.until("agent  second words", "ready")
    window.type("C-d")
    window.until("To continue")
    window.type("clear", "Enter")
    window.run("chat", "--continue", "tester")
    window.until("agent  first words", "agent  second words", "ready")
    window.type("C-d")
    window.until("To continue")


def test_a_question_is_answered_in_a_window_that_was_made_narrow(window: Window) -> None:
    options = [{"optionId": "go", "name": "Go on", "kind": "allow_once"}]
    call = {"toolCall": {"toolCallId": "t", "title": "Run it"}, "options": options}
    window.run("chat", "tester")
    window.until("ready")
    window.resize(50, 16)
    window.type(steps({"ask": ["session/request_permission", call]}), "Enter")
    window.until("Allow this? Run it", ", then Enter")
    window.type("y")
    window.until("Enter: allow once: Go on")
    window.type("Enter")
    window.until("allowed once: Run it → Go on", "ready")


def test_ctrl_z_gives_the_shell_back_and_fg_the_conversation(window: Window, folder: Path) -> None:
    window.run("chat", "tester")
    window.until("ready")
    go = folder / "go"
    window.type(steps({"say": "begun"}, {"until": str(go)}, {"say": ", and ended"}), "Enter")
    window.until("agent  begun", "running")
    window.type("C-z")
    window.until("Stopped", but="running")
    window.type(f"touch {go}", "Enter")
    window.type("clear", "Enter")
    window.type("fg", "Enter")
    window.until("begun, and ended", "ready")


def test_a_window_that_is_closed_ends_the_agent(window: Window, folder: Path) -> None:
    window.run("chat", "tester")
    window.until("ready")
    window.type(steps({"say": "begun"}, {"spawn": f"echo $PPID > {folder}/pid"}), "Enter")
    window.until("agent  begun", "ready")
    deadline = time.monotonic() + SECONDS
    while not (folder / "pid").exists() or not (folder / "pid").read_text().endswith("\n"):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    agent = Path("/proc") / (folder / "pid").read_text().strip()
    assert agent.exists()
    window.close()
    while agent.exists():
        assert time.monotonic() < deadline, "the agent goes on without its window"
        time.sleep(0.05)
