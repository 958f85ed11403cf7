"""`--host` and `connect`: the same over the user's own ssh; these tests have a small one."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from acphold.cli.command_line import UsageError
from acphold.cli.ssh import a_host, ssh_command
from tests.cli.command_line import CommandLine
from tests.cli.conversation import prompt, remember
from tests.editor import editor, scripted_agent

SSH = """\
#!/bin/sh
# As sshd does it: what stands behind the host is one string for the login shell.
echo "$@" >> "$SSH_LOG"
while [ "$1" != -- ]; do shift; done
shift 2
exec env -i HOME="$THERE" PATH="/usr/bin:/bin" XDG_RUNTIME_DIR="$THERE_RUN" sh -c "$*"
"""

ACPHOLD = """\
#!/bin/sh
exec {python} -m acphold "$@"
"""


@pytest.fixture
def there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The home folder of another machine, which `ssh` leads to."""
    home, programs = tmp_path / "there", tmp_path / "bin"
    for folder in (home / ".local" / "bin", programs):
        folder.mkdir(parents=True)
    run = tempfile.mkdtemp(prefix="acphold-")  # a short name: sockets are made in it
    monkeypatch.setenv("THERE_RUN", run)
    write(programs / "ssh", SSH)
    write(home / ".local" / "bin" / "acphold", ACPHOLD.format(python=shlex.quote(sys.executable)))
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    monkeypatch.setenv("THERE", str(home))
    monkeypatch.setenv("SSH_LOG", str(tmp_path / "log"))
    yield home
    shutil.rmtree(run)


def write(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)


def journal_of(home: Path) -> Path:
    folder = home / ".local" / "share" / "acphold"
    folder.mkdir(parents=True)
    return folder / "journal.db"


def test_a_list_of_another_machine_is_made_there(acphold: CommandLine, there: Path) -> None:
    remember(journal_of(there), "s-there", prompt("x"), title="It's there; $HOME")
    done = acphold.run_as_process("list", "--host", "me@there", "--json", "--limit", "5")
    assert [json.loads(line)["title"] for line in done.out.splitlines()] == ["It's there; $HOME"]
    [said] = (there.parent / "log").read_text().splitlines()[:1]
    assert said.startswith("-T -- me@there exec sh -c")


async def test_an_editor_talks_to_an_agent_on_another_machine(journal: Path, there: Path) -> None:
    words = [sys.executable, "-m", "acphold", "connect", "me@there", "--", *scripted_agent()]
    async with editor(words, journal=journal) as one:
        await one.initialize()
        session = await one.new()
        await one.prompt(session, {"say": "from there; it's $HOME"})
        assert one.text() == "from there; it's $HOME"
    assert journal.name not in os.listdir(journal.parent)
    stop = ssh_command("me@there", ["stop", "--all"], terminal=False)
    stopped = await asyncio.create_subprocess_exec(*stop, stdout=asyncio.subprocess.PIPE)
    assert (await stopped.communicate())[0] == b"Stopped scripted with 1 session.\n"


def test_a_machine_without_acphold_says_what_to_do(acphold: CommandLine, there: Path) -> None:
    (there / ".local" / "bin" / "acphold").unlink()
    done = acphold.run_as_process("list", "--host", "me@there")
    assert done.code == 127
    assert "install it there" in done.err


def test_a_machine_without_ssh_says_so(acphold: CommandLine, tmp_path: Path) -> None:
    done = acphold.run_as_process("list", "--host", "me@there", PATH=str(tmp_path))
    assert done.code == 5
    assert "cannot run ssh" in done.err


@pytest.mark.parametrize("host", ["-oProxyCommand=touch /tmp/x", ""])
def test_what_ssh_would_take_for_an_option_is_no_host(host: str) -> None:
    with pytest.raises(UsageError, match="no host"):
        a_host(host)
