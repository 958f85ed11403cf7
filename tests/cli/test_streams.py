"""Output and exit code of `acphold` when its stdin or stdout is unusual."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.cli.command_line import ACPHOLD, SECONDS, CommandLine
from tests.cli.conversation import remember
from tests.editor import scripted_agent
from tests.raw_entries import CONVERSATION


@pytest.fixture
def told(journal: Path) -> Path:
    """A journal with one session."""
    remember(journal, "aa-1", *CONVERSATION, title="Greeting")
    return journal


def in_shell(acphold: CommandLine, line: str) -> subprocess.CompletedProcess[bytes]:
    """Run a line of a shell in which `"$@"` is acphold."""
    return subprocess.run(
        ["sh", "-c", line, "sh", *ACPHOLD],
        env=acphold.environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=SECONDS,
        check=False,
    )


@pytest.mark.usefixtures("told")
@pytest.mark.parametrize("command", ["list", "check --list"])
def test_a_full_disk_behind_stdout_is_told(acphold: CommandLine, command: str) -> None:
    if not os.path.exists("/dev/full"):
        pytest.skip("there is no /dev/full on this system")
    done = in_shell(acphold, f'"$@" {command} >/dev/full')
    assert done.returncode == 1
    assert done.stderr == b"acphold: cannot write the output: No space left on device\n"


@pytest.mark.usefixtures("told")
@pytest.mark.parametrize("closed", [">&-", "<&- >&- 2>&-"])
def test_a_stream_that_is_closed_is_no_error(acphold: CommandLine, closed: str) -> None:
    done = in_shell(acphold, f'"$@" list {closed}')
    assert (done.returncode, done.stderr) == (0, b"")
    assert in_shell(acphold, f'"$@" delete aa-1 {closed}').returncode == 2  # nobody to ask


def test_a_chat_that_nobody_reads_ends_at_once(acphold: CommandLine) -> None:
    reads, writes = os.pipe()
    os.close(reads)
    asked = json.dumps([{"say": "begun\n\nand"}, {"until": "cancel"}])
    try:
        done = subprocess.run(
            [*ACPHOLD, "chat", "--", *scripted_agent()],
            env=acphold.environment,
            input=asked.encode(),
            stdout=writes,
            stderr=subprocess.PIPE,
            timeout=SECONDS,
            check=False,
        )
    finally:
        os.close(writes)
    assert (done.returncode, done.stderr) == (0, b"")


def test_ctrl_c_before_anything_has_begun_leaves_no_traceback(acphold: CommandLine) -> None:
    # Python itself sends it, as soon as the first module of ours is imported.
    began = "import signal, sys; sys.addaudithook(lambda event, told: event == 'import' and "
    began += "told[0] == 'acphold.faces.cli.main' and signal.raise_signal(signal.SIGINT)); "
    began += "sys.argv = ['acphold', 'list']; from acphold.__main__ import main; main()"
    done = subprocess.run(
        [ACPHOLD[0], "-c", began],
        env=acphold.environment,
        capture_output=True,
        timeout=SECONDS,
        check=False,
    )
    assert (done.returncode, done.stderr) == (-signal.SIGINT, b"")  # 130 for a shell


@pytest.mark.usefixtures("told")
def test_words_are_utf_8_whatever_the_locale(acphold: CommandLine) -> None:
    c_locale = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    done = acphold.run_as_process("session", "rename", "aa-1", "Grüße 你好", **c_locale)
    assert done.code == 0
    assert '"Grüße 你好"' in acphold.run("list", "--json").out
    assert acphold.run_as_process("search", "weiß", **c_locale).err.startswith("No results")
