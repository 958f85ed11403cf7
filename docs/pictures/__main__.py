"""The pictures of the README and of docs/use.md, of a real run: `make pictures`.

A shell on a terminal of its own runs what a person would: a small editor with an agent behind
`acphold wrap`, which is killed in the middle of a turn; `acphold`, and the conversation goes on.
The agent is a script, so that no account is needed; everything else is what everybody has. The page
is filmed by `docs.pictures.phone`.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import psutil

from docs.pictures.phone import filmed
from docs.pictures.terminal_svg import Frame, frame, svg
from tests.screen_terminal import Terminal

HERE = Path(__file__).parent
COLUMNS, ROWS = 88, 26
SECONDS = 60.0
"""What any one thing may take."""

SAMPLE_SECONDS = 0.15
"""Between two frames while something is being said."""

FIRST = "Why is the retry test flaky?"
SECOND = "Mend it, please"
THIRD = "Go on"
WAITING = (
    "Then run the whole suite, and fix what fails",
    "Write the changelog",
    "/later 02:00 Run it a thousand times",
)

FILE = """import time


def retry(call, clock=time.monotonic):
    began = clock()
    while clock() - began < 10:
        call()
"""


class Camera:
    """Films a terminal; `key` frames are those that every run gives."""

    def __init__(self, terminal: Terminal) -> None:
        self.terminal = terminal
        self.frames: list[Frame] = []
        self.keys: list[Frame] = []
        self.title = ""

    def take(self, seconds: float, *, is_key: bool = False) -> None:
        """What is there now stays for so long."""
        taken = frame(self.terminal.screen, self.title, seconds)
        self.frames.append(taken)
        if is_key:
            self.keys.append(taken)

    def type(self, text: str) -> None:
        """Letter by letter, as a person does, and Enter."""
        for letter in text:
            self.terminal.type(letter)
            self.settle(0.04)
            self.take(0.045)
        self.terminal.type("\r")

    def until(self, *words: str, seconds: float) -> None:
        """Film until all of this is there; then it stays for so long."""
        deadline = time.monotonic() + SECONDS
        while not all(word in self.terminal.text for word in words):
            assert time.monotonic() < deadline, f"never showed {words}:\n{self.terminal.text}"
            before = self.terminal.text
            self.settle(SAMPLE_SECONDS)
            if self.terminal.text != before:
                self.take(SAMPLE_SECONDS)
        self.settle(0.3)
        self.take(seconds, is_key=True)

    def still(self, command: str, *words: str) -> Frame:
        """A picture of what a command prints."""
        self.terminal.type(f"clear; {command}\r")
        self.terminal.until(*words)
        self.settle()
        self.terminal.screen.cursor.hidden = True
        return frame(self.terminal.screen, command)

    def settle(self, seconds: float = 0.5) -> None:
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            self.terminal.read(left)


@contextmanager
def shell(folder: Path) -> Iterator[Terminal]:
    """A shell in a project, with an agent by name, and a home of its own."""
    project = folder / "home" / "project"
    project.mkdir(parents=True)
    (project / "retry.py").write_text(FILE, encoding="utf-8")
    (folder / "run").mkdir(mode=0o700)
    settings = folder / "settings.toml"
    agent = [sys.executable, str(HERE / "small_agent.py")]
    settings.write_text(f"[agents.coder]\ncommand = {agent}\n", encoding="utf-8")
    env = {
        "HOME": str(folder / "home"),
        "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin",
        "TERM": "xterm-256color",
        "LANG": "C.UTF-8",
        "PAGER": "",
        "XDG_RUNTIME_DIR": str(folder / "run"),
        "ACPHOLD_SETTINGS": str(settings),
    }
    started = folder / "bashrc"
    editor = f"{sys.executable} {HERE / 'small_editor.py'} acphold wrap coder"
    started.write_text(f"PS1='$ '\nalias editor='{editor}'\n", encoding="utf-8")
    command = ["bash", "--noprofile", "--rcfile", str(started)]
    terminal = Terminal(command, env, COLUMNS, ROWS, cwd=str(project))
    try:
        terminal.until("$")
        yield terminal
    finally:
        terminal.close()


def story(terminal: Terminal) -> Camera:
    """An editor is killed, and the conversation goes on."""
    camera = Camera(terminal)
    camera.title = "An editor, and an agent behind `acphold wrap`"
    camera.take(0.5)
    camera.type("editor")
    camera.until("you", seconds=0.4)
    camera.type(FIRST)
    camera.until("gives up.", seconds=1.2)
    camera.type(SECOND)
    camera.until("monotonic one", seconds=0.6)
    camera.title = "kill -9, in the middle of a turn"
    kill_editor(terminal)
    camera.until("Killed", seconds=1.5)
    camera.title = "acphold finds it again …"
    camera.type("acphold")
    camera.until(FIRST, "continues", seconds=1.4)
    terminal.type("\r")
    camera.title = "… with all that was said, and goes on"
    camera.until(SECOND, "Ctrl-D", seconds=1.5)
    camera.type(THIRD)
    camera.until("20 passed.", "ready", seconds=3.5)
    return camera


def kill_editor(terminal: Terminal) -> None:
    """SIGKILL for the editor and acphold; returns when nothing is left of the agent behind it."""
    started = psutil.Process(terminal.process.pid).children(recursive=True)
    [editor] = [one for one in started if any("small_editor" in word for word in one.cmdline())]
    place = editor.environ()["XDG_RUNTIME_DIR"]
    [daemon] = [
        one
        for one in psutil.process_iter(["cmdline", "environ"])
        if "daemon" in (one.info["cmdline"] or [])
        and (one.info["environ"] or {}).get("XDG_RUNTIME_DIR") == place
    ]
    started += [daemon, *daemon.children(recursive=True)]
    for one in (editor, daemon):
        one.kill()
    _, left = psutil.wait_procs([one for one in started if one != editor], timeout=SECONDS)
    assert not left, left


def screens(terminal: Terminal) -> dict[str, Frame]:
    """Things to look at, in the journal of the story."""
    camera = Camera(terminal)
    terminal.type("\x04")
    terminal.until("To continue")
    camera.still("acphold ask 'Name the release' coder", "mends the clock.", "$")
    found = camera.still("acphold list", "TITLE", "$")
    [told] = re.findall(r"flaky\? +(\w+)", terminal.text)
    return {
        "list": found,
        "search": camera.still("acphold search clock", "Name the release", "gives up"),
        "diff": camera.still(f"acphold diff {told}", "+++"),
        "queue": queue(camera),
    }


def queue(camera: Camera) -> Frame:
    """What waits above the input, while a turn runs that is stopped behind it."""
    terminal = camera.terminal
    terminal.type("clear; acphold chat coder\r")
    terminal.until("ready")
    terminal.type(f"{SECOND}\r")
    terminal.until("monotonic one", "running")
    for count, text in enumerate(WAITING, 1):
        terminal.type(f"{text}\r")
        terminal.until(f"         {count}  ")
    terminal.type("\x03")
    terminal.until("(/queue resume)", "ready")
    camera.settle()
    return frame(terminal.screen, "acphold chat coder")


def pictures() -> tuple[dict[str, str], list[Frame]]:
    """The files by name, and the frames that every run gives."""
    with TemporaryDirectory() as folder, shell(Path(folder)) as terminal:
        film = story(terminal)
        stills = screens(terminal)
    about = "An editor is killed with kill -9; acphold lists the conversation, and it goes on"
    made = {"story.svg": svg(film.frames, COLUMNS, ROWS, about)}
    for name, still in stills.items():
        made[f"{name}.svg"] = svg([still], COLUMNS, still.rows, still.title)
    return made, [*film.keys, *stills.values()]


if __name__ == "__main__":
    for file, text in pictures()[0].items():
        (HERE / file).write_text(text, encoding="utf-8")
    film, _, picture = filmed()
    (HERE / "phone.webp").write_bytes(film)
    (HERE / "page.png").write_bytes(picture)
