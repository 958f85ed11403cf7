"""The scratch repository of `acphold chat demo`: the one place where the demo's agent writes."""

from __future__ import annotations

import os
import shutil
import stat
import time
from contextlib import suppress
from pathlib import Path
from tempfile import mkdtemp
from typing import Final

from acp_wire.processes.program import on_path
from acp_wire.state_folder import state_folder
from acphold.errors import AgentStartError, SettingsError
from acphold.faces.cli import bounds
from acphold.faces.cli.terminal_text import tell
from acphold.machine.program_group import ProgramGroup

MARKER: Final = ".acphold-demo"
"""A regular file of this name allows the demo's agent to write in its folder. It is committed, so
that a copy with files has it, too."""

FILE: Final = "hello.py"
"""The file that the agent changes and runs."""

HELLO: Final = '''"""Says hello."""


def greeting(name: str) -> str:
    return f"hi {name}"


if __name__ == "__main__":
    print(greeting("world"))
'''

FILES: Final = {
    MARKER: "`acphold agent demo` may change the files in this folder.\n",
    FILE: HELLO,
    "test_hello.py": """import unittest

from hello import greeting


class GreetingTest(unittest.TestCase):
    def test_it_has_the_name(self) -> None:
        self.assertIn("Ada", greeting("Ada"))
""",
    "README.md": """# A scratch repository

`acphold chat demo` works here. Run `python3 hello.py`, and `python3 -m unittest` for the test.
Delete this folder whenever you like: the next `acphold chat demo` makes it again.
""",
    ".gitignore": "__pycache__/\n",
}

IDENTITY: Final = ("-c", "user.name=acphold demo", "-c", "user.email=demo@localhost")

COMMIT: Final = (
    ("init", "--quiet", "--template="),
    ("add", "--all"),
    ("commit", "--quiet", "--no-verify", "--message=A greeting"),
)
"""The words after `git` that make the repository."""


def is_scratch(folder: str) -> bool:
    """Return True if the demo's agent may write in this folder: it is this user's, and marked."""
    try:
        found = (os.stat(folder), os.lstat(os.path.join(folder, MARKER)))
    except OSError:
        return False
    return stat.S_ISREG(found[1].st_mode) and all(it.st_uid == os.getuid() for it in found)


def scratch_repository() -> str:
    """Return the scratch repository, made if need be; raises SettingsError."""
    outer = os.path.join(state_folder(), "demo")  # copies with files come beside the repository
    folder = os.path.join(outer, "greeting")
    if is_scratch(folder):
        return folder
    try:
        os.makedirs(outer, 0o700, exist_ok=True)
        new = mkdtemp(prefix=".new-", dir=outer)
        try:
            for name, text in FILES.items():
                Path(new, name).write_text(text, encoding="utf-8")
            _commit(new)
            os.rename(new, folder)
        except BaseException:
            shutil.rmtree(new, ignore_errors=True)
            if not is_scratch(folder):  # otherwise another process was first
                raise
    except OSError as error:
        raise SettingsError(
            f"the demo's folder {folder} cannot be made: {error.strerror}; move away what is "
            "there, or name a folder with --cwd"
        ) from None
    return folder


def _commit(folder: str) -> None:
    """Make the folder a git repository with one commit; on stderr, say if that is not possible."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    env |= {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    failure = "git is not installed"
    if (git := on_path("git")) is not None:
        failure = f"{git} makes no commit there"
        start = (os.path.abspath(git), "-C", folder, *IDENTITY)
        with (
            suppress(AgentStartError, TimeoutError),
            ProgramGroup(time.monotonic() + bounds.DEMO_COMMAND_SECONDS) as group,
        ):
            if not any(group.run([*start, *words], env).status for words in COMMIT):
                return
    tell(
        f"acphold: {failure}, so the demo's folder is no repository: `why` and copies with files "
        "do not work in it"
    )
