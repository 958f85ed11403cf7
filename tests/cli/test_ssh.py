"""`--host` and `connect`: the same over the user's own ssh; these tests have a small one."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from argparse import ArgumentTypeError
from collections.abc import Iterator
from pathlib import Path

import pytest

from acphold.faces.cli.options import a_host
from acphold.faces.cli.ssh import ssh_command
from tests.cli.command_line import CommandLine
from tests.cli.conversation import remember
from tests.editor import DEADLINE, SCRIPTED, introduced, scripted_agent, wrapped
from tests.raw_entries import ended, prompt
from tests.screen_terminal import terminal

pytestmark = pytest.mark.slow

SSH = """\
#!/bin/sh
# As sshd does it: what stands behind the host is one string for the login shell.
echo "$@" >> "$SSH_LOG"
while [ "$1" != -- ]; do shift; done
shift 2
exec env -i HOME="$THERE" PATH="/usr/bin:/bin" XDG_RUNTIME_DIR="$THERE_RUN" "$LOGIN_SHELL" -c "$*"
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
    monkeypatch.setenv("LOGIN_SHELL", "/bin/sh")
    yield home
    shutil.rmtree(run, ignore_errors=True)  # a process that is ending there may still write


def write(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)


def journal_of(home: Path) -> Path:
    (folder := home / ".local" / "share" / "acphold").mkdir(parents=True)
    return folder / "journal.db"


def test_a_list_of_another_machine_is_made_there(acphold: CommandLine, there: Path) -> None:
    remember(journal_of(there), "s-there", prompt("x"), title="It's there; $HOME")
    done = acphold.run_as_process("list", "--host", "me@there", "--json", "--limit", "5")
    assert [json.loads(line)["title"] for line in done.out.splitlines()] == ["It's there; $HOME"]
    [said] = (there.parent / "log").read_text().splitlines()[:1]
    assert said.startswith("-T -- me@there exec sh -c")


async def test_an_editor_talks_to_an_agent_on_another_machine(journal: Path, there: Path) -> None:
    words = [sys.executable, "-m", "acphold", "connect", "me@there", "--", *scripted_agent()]
    async with introduced(words, journal=journal) as one:
        await one.talk({"say": "from there; it's $HOME"})
        assert one.text() == "from there; it's $HOME"
    assert journal.name not in os.listdir(journal.parent)
    stop = ssh_command("me@there", ["agent", "stop", "--all"], terminal=False, typed=False)
    stopped = await asyncio.create_subprocess_exec(*stop, stdout=asyncio.subprocess.PIPE)
    assert (await stopped.communicate())[0] == b"Ended scripted.\n"


ODD_WORDS = (
    *(
        "",
        " ",
        "a b",
        "a\tb",
        "a\nb",
        "a\r",
        "ü",
        "\udcff",
        "'",
        '"',
        "it's",
        "\\",
        "\\'",
        "a\\",
        "\\\n",
    ),
    *(
        "$HOME",
        "$(touch $HOME/ran)",
        "`touch $HOME/ran`",
        "; touch $HOME/ran; ",
        "' ; touch ran; '",
    ),
    *(
        "\\'; touch $HOME/ran; '",
        "!",
        "!!",
        "a!b",
        "^a^b",
        "*",
        "?",
        "[a]",
        "{a,b}",
        "~",
        "#",
        "%1",
    ),
    *("=ls", "a=b", "-", "(a)", "<a", ">ran", "|", "&", "&&", "$", "\x01", "x" * 40_000),
)
"""Words that some shell reads otherwise than another one."""

RECORDER = """
import json, os, sys
with open(sys.argv[1], "w") as file:
    json.dump(sys.argv[2:], file)
os.execv(sys.executable, [sys.executable, "-S", "-E", sys.argv[2], "{}"])
"""
"""Notes the words that it gets, and is an agent."""


@pytest.mark.parametrize("shell", ["sh", "bash", "fish", "csh"])
async def test_each_word_arrives_as_it_is_whatever_the_login_shell_there(
    shell: str, journal: Path, there: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOGIN_SHELL", shell)
    noted = tmp_path / "noted"
    agent = [sys.executable, "-c", RECORDER, str(noted), SCRIPTED, *ODD_WORDS]
    words = [sys.executable, "-m", "acphold", "connect", "me@there", "--", *agent]
    async with introduced(words, journal=journal) as one:
        await one.talk({"say": "from there"})
    assert json.loads(noted.read_text()) == [SCRIPTED, *ODD_WORDS]
    assert {"ran"}.isdisjoint(os.listdir(there))
    stop = ssh_command("me@there", ["agent", "stop", "--all"], terminal=False, typed=False)
    stopped = await asyncio.create_subprocess_exec(*stop, stdout=asyncio.subprocess.PIPE)
    assert (await stopped.communicate())[0] == b"Ended scripted.\n"


class Far:
    """Commands that are done on the other machine, in a pipe."""

    def __init__(self, journal: Path) -> None:
        self._env = {**os.environ, "ACPHOLD_JOURNAL": str(journal)}

    def begin(self, name: str, *words: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "acphold", *name.split(), "--host", "me@there", *words]
        return subprocess.Popen(
            command,
            env=self._env,
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    async def run(self, name: str, *words: str, stdin: str = "") -> str:
        """Run a command, which must succeed, and return its output."""
        done = self.begin(name, *words)
        out, err = await asyncio.to_thread(done.communicate, stdin, DEADLINE)
        assert done.returncode == 0, err
        return out


async def test_list_resume_follow_chat_and_stop_are_done_on_the_other_machine(
    journal: Path, there: Path
) -> None:
    far = Far(journal)
    agent = scripted_agent()
    words = [sys.executable, "-m", "acphold", "connect", "me@there", "--", *agent]
    async with introduced(words, journal=journal) as one:
        session = await one.talk({"say": "said there"})
        assert json.loads(await far.run("list", "--json"))["live"]["background"]
        said = await far.run("continue", session, stdin='[{"say": "to a line of stdin"}]\n')
        assert "said there" in said
        assert "to a line of stdin" in said
        await one.until_text("to a line of stdin")
        assert "from chat" in await far.run(
            "chat", "--resume", session, "--", *agent, stdin='[{"say": "from chat"}]\n'
        )
        followed = [
            (kind, far.begin(*kind, session))
            for kind in (("show", "--follow"), ("continue", "--watch"))
        ]
        for _, process in followed:
            assert process.stdout is not None
            assert "chat" in await asyncio.to_thread(until_line, process, "from chat")
        await far.run("agent stop", session)
        for kind, process in followed:
            _, err = await asyncio.to_thread(process.communicate, timeout=DEADLINE)
            assert process.returncode in (0, 5), (kind, err)
    assert not [file for file in journal.parent.iterdir() if file.name == journal.name]
    hosts = (there.parent / "log").read_text().count("-T -- me@there exec sh -c")
    assert hosts == 7


async def test_what_was_said_there_is_read_here(journal: Path, there: Path, tmp_path: Path) -> None:
    words = prompt("apples"), ended()
    await asyncio.to_thread(remember, journal_of(there), "s-there", *words, title="A title")
    far = Far(journal)
    assert "apples" in await far.run("show", "s-there")
    assert "s-there" in await far.run("search", "apples", "--json")
    assert "apples" in await far.run("export", "s-there")
    assert '"agent":"scripted"' in (await far.run("usage", "--json")).replace(" ", "")
    await far.run("diff", "s-there")
    file = tmp_path / "here.md"
    done = far.begin("export", "s-there", "--output", str(file))
    _, err = await asyncio.to_thread(done.communicate, "", DEADLINE)
    assert done.returncode == 2
    assert "`acphold export --host me@there … > FILE` writes here" in err
    assert not file.exists()


def until_line(process: subprocess.Popen[str], words: str) -> str:
    """Read on until a line has these words."""
    assert process.stdout is not None
    return next(line for line in process.stdout if words in line)


def test_with_a_terminal_here_there_is_one_there(acphold: CommandLine, there: Path) -> None:
    remember(journal_of(there), "s-there", prompt("x"), title="A title")
    command = [sys.executable, "-m", "acphold", "list", "--host", "me@there"]
    with terminal(command, {**os.environ, "TERM": "xterm"}) as seen:
        assert "A title" in seen.until("A title")
        assert seen.ended() == 0
    assert (there.parent / "log").read_text().startswith("-t -o LogLevel=ERROR -- me@there ")


def test_a_command_that_is_told_there_can_be_typed_here(there: Path, tmp_path: Path) -> None:
    acphold = [sys.executable, "-m", "acphold"]
    environment = {**os.environ, "TERM": "xterm"}
    chat = ["chat", "--host", "me@there", "--cwd", str(tmp_path), "--", *scripted_agent()]
    with terminal([*acphold, *chat], environment) as seen:
        seen.until("Starting")
        seen.type('[{"say": "said there"}]\n')  # by lines: this ssh passes no TERM on
        seen.until("agent: said there")
        seen.type("\x04", "To continue: acphold continue --host me@there own-")
    subprocess.run([*acphold, "agent", "stop", "--all", "--yes", "--host", "me@there"], check=True)
    with terminal(
        [*acphold, "continue", "--watch", "--host", "me@there", "own-"], environment, 120
    ) as seen:
        seen.until("acphold continue --host me@there own-")


@pytest.mark.parametrize("words", [("show", "--follow"), ("continue", "--watch")])
async def test_what_follows_a_session_there_ends_when_nobody_reads_it_any_more(
    words: tuple[str, ...], journal: Path
) -> None:
    async with wrapped(journal) as one:
        session = await one.talk({"say": "said"})
        process = following(journal, *words, session)
        assert process.stdout is not None
        await asyncio.to_thread(until_line, process, "said")
        process.stdout.close()
        assert await asyncio.to_thread(process.wait, DEADLINE) == 0
        assert one.process.returncode is None  # it was not the session that ended


def following(journal: Path, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "acphold", *words, "--journal", str(journal)],
        text=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
    )


def test_a_machine_without_acphold_says_what_to_do(acphold: CommandLine, there: Path) -> None:
    (there / ".local" / "bin" / "acphold").unlink()
    done = acphold.run_as_process("list", "--host", "me@there")
    assert done.code == 127
    assert "install it there" in done.err


def test_a_machine_without_ssh_says_so(acphold: CommandLine, tmp_path: Path) -> None:
    done = acphold.run_as_process("list", "--host", "me@there", PATH=str(tmp_path))
    assert done.code == 5
    assert "cannot start 'ssh'" in done.err


@pytest.mark.parametrize("host", ["-oProxyCommand=touch /tmp/x", ""])
def test_what_ssh_would_take_for_an_option_is_no_host(host: str) -> None:
    with pytest.raises(ArgumentTypeError, match="not a host"):
        a_host(host)


@pytest.mark.parametrize(
    "words",
    [("list", "--host=--"), ("list", "--journal=--"), ("ask", "x", "-f--")],
)
def test_what_is_no_value_is_a_usage_error(acphold: CommandLine, words: tuple[str, ...]) -> None:
    done = acphold.run(*words)
    assert done.code == 2
    assert "acphold" in done.err


def test_words_that_nobody_packed_are_told(acphold: CommandLine) -> None:
    done = acphold.run_as_process("packed", "list")
    assert (done.code, done.err.count("\n")) == (1, 1)
