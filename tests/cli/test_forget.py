"""`acphold forget`: a text that stands nowhere any more."""

from __future__ import annotations

import os
import pty
import select
import subprocess
from pathlib import Path

import pytest

from acphold.faces.screen.typed import prompt_history
from tests.cli.command_line import ACPHOLD, CommandLine, Finished
from tests.cli.conversation import remember
from tests.imports.claude_home import SESSION
from tests.imports.test_reconciliation import conversation, put
from tests.raw_entries import ended, prompt, said

SECRET = "sk-SEKRET77xyz"
STORY = (prompt(f"the key is {SECRET}"), said(f"I see {SECRET}"), ended())


@pytest.fixture
def acphold(journal: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CommandLine:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return CommandLine(journal)


def forget(acphold: CommandLine, text: str = SECRET, *words: str) -> Finished:
    """Run it behind a pipe that brings the text."""
    done = subprocess.run(
        [*ACPHOLD, "forget", *(words or ["--yes"])],
        input=f"{text}\n".encode(),
        env=acphold.environment,
        capture_output=True,
        timeout=60,
    )
    return Finished(done.returncode, done.stdout, done.stderr)


def on_terminal(acphold: CommandLine, *answers: tuple[str, str]) -> str:
    """Run it on a terminal, and answer each question once it stands there; return the output."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [*ACPHOLD, "forget"],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=acphold.environment,
    ) as process:
        os.close(theirs)
        out = b""
        for question, answer in answers:
            while question.encode() not in out:
                assert select.select([ours], [], [], 60)[0], out
                out += os.read(ours, 10_000)
            os.write(ours, f"{answer}\n".encode())
        assert process.wait(60) == 1
    os.close(ours)
    return out.decode()


def holds(folder: Path, text: str = SECRET) -> list[str]:
    """The files of the journal that have a text; not those of agents, and what was replaced."""
    return [
        str(path)
        for path in folder.rglob("*")
        if path.is_file() and ".claude" not in str(path) and "before" not in path.name
        if path.suffix not in (".log", ".kept") and text.encode() in path.read_bytes()
    ]


def test_a_text_is_asked_for_unseen_and_stands_nowhere_then(
    acphold: CommandLine, journal: Path, tmp_path: Path
) -> None:
    remember(journal, "aa-1", *STORY, title=f"The key {SECRET}")
    acphold.run("queue", "aa-1", "add", f"use {SECRET}")
    history = prompt_history()
    for typed in ("hello", f"the key is {SECRET}"):
        history.store_string(typed)
    assert holds(tmp_path)
    asked = on_terminal(acphold, ("The text to remove", SECRET), ("14 characters everywhere?", "n"))
    assert SECRET not in asked
    assert SECRET in acphold.run("show", "aa-1").out
    done = forget(acphold)
    assert (done.code, done.out.startswith("Removed it from ")) == (0, True), done.all
    assert holds(tmp_path) == []
    assert SECRET not in acphold.run("list", "--json").out + acphold.run("queue", "aa-1").out
    assert "[removed: forgotten]" in acphold.run("show", "aa-1").out
    assert [*prompt_history().load_history_strings()] == ["hello"]


@pytest.mark.parametrize(
    ("text", "words", "why"),
    [
        ("short", ["--yes"], "fewer than 8 characters"),
        ("x" * 5_000, ["--yes"], "at most 4,096 characters"),
        (SECRET, ["--json"], "--json"),
        (SECRET, [SECRET], "rgument"),
        (SECRET, ["--journal", "JOURNAL"], "use --yes"),
    ],
)
def test_what_it_cannot_do_it_says(
    acphold: CommandLine, journal: Path, text: str, words: list[str], why: str
) -> None:
    remember(journal, "aa-1", *STORY)
    done = forget(acphold, text, *[str(journal) if it == "JOURNAL" else it for it in words])
    assert (done.code, why in done.err) == (2, True), done.err
    assert SECRET in acphold.run("show", "aa-1").out


def test_files_that_have_it_still_are_named(
    acphold: CommandLine, journal: Path, tmp_path: Path
) -> None:
    put(tmp_path, conversation("one", f"with {SECRET}"))
    acphold.run("import")
    acphold.run("journal", "backup", f"{tmp_path}/backup.kept")
    assert acphold.run("journal", "restore", f"{tmp_path}/backup.kept").code == 0
    logs = Path(f"{journal}-state")
    logs.mkdir(exist_ok=True)
    (logs / "daemon-one.log").write_text("nothing")
    (logs / "daemon-two.log").write_text(f"I got {SECRET}")
    os.mkfifo(logs / "pipe.log")
    (logs / "gone.log.1").symlink_to(logs / "gone")
    said_then = forget(acphold).err
    assert f"Its agent still has it: {tmp_path}/.claude/projects" in said_then
    assert ("daemon-one.log" in said_then, "A log has it" in said_then) == (False, True)
    assert "pipe.log; it cannot be read: it is a pipe, not a file" in said_then
    assert "gone.log" not in said_then
    assert "A journal replaced by a restore may still have it" in said_then


def test_no_import_restore_or_copy_brings_it_back(
    acphold: CommandLine, journal: Path, tmp_path: Path
) -> None:
    transcript = conversation("one", f"with {SECRET}")
    put(tmp_path, transcript)
    acphold.run("import")
    copied = ("journal", "copy", str(journal), f"{tmp_path}/copy.db")
    assert acphold.run(*copied).code == 0
    acphold.run("journal", "backup", f"{tmp_path}/backup.kept")
    assert forget(acphold).code == 0
    transcript.user(f"again {SECRET}")
    put(tmp_path, transcript)
    put(tmp_path, transcript, 1)
    assert "grown 1" in acphold.run("import").out
    assert "unchanged" in acphold.run("import").out
    shown = acphold.run("show", SESSION).out
    assert shown.count("[removed: forgotten]") == 3
    assert [acphold.run(*copied).code for _ in range(2)] == [0, 0]
    assert "1 unchanged" in acphold.run(*copied).out
    assert [it for it in holds(tmp_path) if "copy.db" in it or "journal.db" in it] == []
    assert acphold.run("journal", "restore", f"{tmp_path}/backup.kept").code == 0
    assert SECRET not in acphold.run("show", SESSION).out
    assert holds(tmp_path) == []
    assert "[removed: forgotten]" in acphold.run("show", SESSION).out
