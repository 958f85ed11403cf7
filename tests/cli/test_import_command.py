"""`acphold import`, as a person or a script runs it."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from uuid import UUID

import pytest

from acphold.errors import RuntimeFolderError
from acphold.faces.cli import background_import, bounds
from acphold.imports import NAMES
from acphold.journal import bounds as journal_bounds
from acphold.journal.compression import zstd
from tests.cli.command_line import SECONDS, CommandLine
from tests.imports.claude_home import SESSION, Transcript
from tests.imports.codex_home import Rollout
from tests.imports.soak import users
from tests.imports.test_heads import list_first
from tests.imports.told import write_lines
from tests.journal.conversations import open_file
from tests.plugin import Until


def home(tmp_path: Path) -> str:
    transcript = Transcript("Where is the needle?")
    transcript.assistant("In the \x1b[31mhaystack.")
    transcript.write(tmp_path / "home")
    rollout = Rollout("Hello.")
    rollout.agent("Hi.")
    rollout.end()
    rollout.write(tmp_path / "home")
    return str(tmp_path / "home")


def test_the_summary_says_what_is_new_of_each_agent(acphold: CommandLine, tmp_path: Path) -> None:
    done = acphold.run("import", "--from", home(tmp_path))
    assert done.code == 0
    assert [line.split() for line in done.out.splitlines()] == [
        ["claude", "1", "conversation", "new", "1"],
        ["codex", "1", "conversation", "new", "1"],
        ["all", "2", "conversations"],
    ]
    again = acphold.run("import", "--from", home(tmp_path), "--agent", "claude")
    assert again.out.split() == ["claude", "1", "conversation", "unchanged", "1"]


def test_where_nothing_is_found_it_says_what_was_looked_for_and_what_is_next(
    acphold: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    done = acphold.run("import", "--from", str(tmp_path))
    assert done.code == 0
    assert f"No conversations of the {len(NAMES) - 1} programs found in {tmp_path};" in done.out
    assert "`acphold help import` has the places. `acphold chat demo` begins one." in done.out


def test_what_was_imported_is_listed_and_shown_after_the_original_is_gone(
    acphold: CommandLine, tmp_path: Path
) -> None:
    folder = home(tmp_path)
    acphold.run("import", "--from", folder)
    for path in sorted(Path(folder).rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    assert "Where is the needle?" in acphold.run("list").out
    shown = acphold.run("show", SESSION[:8])
    assert "In the \\x1b[31mhaystack." in shown.out
    lines = [json.loads(line) for line in acphold.run("show", SESSION, "--json").out.splitlines()]
    assert lines[0]["update"] == {"prompt": [{"type": "text", "text": "Where is the needle?"}]}


def test_a_conversation_that_ends_with_the_persons_words_has_no_answer_and_is_no_crash(
    acphold: CommandLine, tmp_path: Path
) -> None:
    transcript = Transcript("Where is the needle?")
    transcript.assistant("In the haystack.")
    transcript.user("thanks")
    transcript.write(tmp_path / "home")
    acphold.run("import", "--from", str(tmp_path / "home"))
    [row] = map(json.loads, acphold.run("list", "--json").out.splitlines())
    assert (row["outcome"], row["unseen"]) == (None, False)
    assert "interrupted" not in acphold.run("list").out
    assert acphold.run("show", SESSION).out.rstrip().endswith("thanks\n\nturn: no answer")


def test_a_dry_run_says_what_would_be_new_and_makes_no_journal(
    acphold: CommandLine, tmp_path: Path
) -> None:
    done = acphold.run("import", "--from", home(tmp_path), "--dry-run")
    assert done.out.splitlines()[0].split() == [
        "claude", "1", "conversation", "would", "be", "new", "1",
    ]  # fmt: skip
    assert not acphold.journal.exists()


def test_json_has_one_object_for_each_agent(acphold: CommandLine, tmp_path: Path) -> None:
    folder = home(tmp_path)
    done = acphold.run("import", "--from", folder, "--json")
    first, second = map(json.loads, done.out.splitlines())
    assert (first["agent"], first["found"], first["new"]) == ("claude", 1, 1)
    assert second["agent"] == "codex"


def test_only_what_changed_since_a_time_is_taken(acphold: CommandLine, tmp_path: Path) -> None:
    folder = home(tmp_path)
    for path in Path(folder).rglob("*.jsonl"):
        os.utime(path, (1_500_000_000, 1_500_000_000))
    assert "No conversations" in acphold.run("import", "--from", folder, "--since", "2d").out
    assert "new 1" in acphold.run("import", "--from", folder, "--since", "2017-01-01").out
    wrong = acphold.run("import", "--from", folder, "--since", "lately")
    assert wrong.code == 2
    assert "give a date" in wrong.err


def test_what_could_not_be_understood_is_said_in_one_line(
    acphold: CommandLine, tmp_path: Path
) -> None:
    folder = home(tmp_path)
    (path,) = Path(folder).rglob(f"{SESSION}.jsonl")
    with path.open("a") as file:
        file.write('{"type":"new-thing"}\n{"type":"new-thing"}\nno JSON\n')
    done = acphold.run("import", "--from", folder, "--agent", "claude")
    unknown, broken = "records of type 'new-thing' (2)", "lines that are not JSON objects (1)"
    assert done.err.splitlines()[1:] == [f"claude: skipped {unknown}, {broken}: 47 bytes"]
    assert done.code == 0


def test_a_dry_run_tells_those_of_other_folders_and_those_without_words(
    acphold: CommandLine, tmp_path: Path
) -> None:
    folder = home(tmp_path)
    write_lines(Path(folder, ".claude/projects/x/empty.jsonl"), {"type": "summary"})
    options = ("import", "--from", folder, "--dry-run", "--cwd", "/elsewhere", "--agent", "claude")
    assert acphold.run(*options).out.split() == [
        "claude", "1", "conversation", "would", "be", "in", "other", "folders", "1",
    ]  # fmt: skip


def test_an_agent_with_a_name_of_its_own_has_its_conversations_under_that(
    acphold: CommandLine, tmp_path: Path
) -> None:
    folder = home(tmp_path)
    options = ("import", "--from", folder, "--agent", "claude", "--name", "claude at work")
    assert "new 1" in acphold.run(*options).out
    assert "Where is the needle?" in acphold.run("list", "--agent", "claude at work").out
    assert acphold.run("import", "--from", folder, "--name", "x").code == 2


def test_a_file_that_cannot_be_read_is_named_and_the_others_are_taken(
    acphold: CommandLine, tmp_path: Path
) -> None:
    folder = home(tmp_path)
    broken = Path(folder, ".local/share/opencode/opencode.db")
    broken.parent.mkdir(parents=True)
    broken.write_bytes(b"nonsense" * 1000)
    done = acphold.run("import", "--from", folder)
    assert f"\nopencode: cannot read {broken}: the database cannot be read" in done.err
    names = ["claude", "codex", "opencode", "all"]
    assert [line.split()[0] for line in done.out.splitlines()] == names
    assert done.out.splitlines()[-1].split() == ["all", "3", "conversations"]


def test_secrets_can_be_left_out_and_are_told_by_kind(acphold: CommandLine, tmp_path: Path) -> None:
    transcript = Transcript("The key is AKIAIOSFODNN7ABCDEFG.")
    transcript.assistant("I see.")
    transcript.write(tmp_path)
    done = acphold.run("import", "--from", str(tmp_path), "--redact")
    assert done.out == "claude             1 conversation   new 1\n"
    assert done.err.splitlines()[1:] == ["claude: removed: API key 1"]
    assert "[removed: API key]" in acphold.run("show", "1111").out


def test_branches_that_were_left_are_conversations_of_their_own_when_asked_for(
    acphold: CommandLine, tmp_path: Path
) -> None:
    transcript = Transcript("Hello.")
    fork = transcript.assistant("Hi.")
    transcript.user("Left behind.")
    transcript.assistant("Yes.")
    transcript.user("Another way.", after=fork)
    transcript.write(tmp_path)
    done = acphold.run("import", "--from", str(tmp_path))
    assert done.out.split()[-2:] == ["new", "1"]
    done = acphold.run("import", "--from", str(tmp_path), "--branches")
    assert done.out.split() == ["claude", "2", "conversations", "new", "1,", "unchanged", "1"]
    listed = [json.loads(line) for line in acphold.run("list", "--json").out.splitlines()]
    assert len({session["sessionId"] for session in listed}) == 2


def test_compressed_transcripts_are_counted(acphold: CommandLine, tmp_path: Path) -> None:
    folder = home(tmp_path)
    (path,) = Path(folder).rglob("rollout-*.jsonl")
    path.with_name(f"{path.name}.zst").write_bytes(zstd.compress(path.read_bytes()))
    path.unlink()
    done = acphold.run("import", "--from", folder, "--agent", "codex")
    assert done.out.split() == ["codex", "1", "conversation", "new", "1", "(1", "compressed)"]
    told = acphold.run("import", "--from", folder, "--agent", "codex", "--json")
    assert json.loads(told.out)["compressed"] == 1


def test_on_a_terminal_a_bar_shows_how_far_it_is(acphold: CommandLine, tmp_path: Path) -> None:
    done = acphold.on_terminal("import", "--from", home(tmp_path))
    assert done.code == 0
    assert re.search("claude .*━", done.out)
    assert done.out.rindex("new 1") > done.out.rindex("━")
    assert "━" not in acphold.run("import", "--from", home(tmp_path)).err


def test_what_cannot_be_made_searchable_at_once_is_left_to_a_process_beside(
    acphold: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "INDEX_AT_ONCE_SECONDS", 0)
    monkeypatch.setattr(journal_bounds, "INDEXED_SESSIONS", 1)
    left_to: list[str] = []

    monkeypatch.setattr(background_import, "_start_if_alone", left_to.append)
    for number in range(3):
        transcript = Transcript()
        transcript.user(f"needle {number}", timestamp="2016-01-02T03:04:05.000Z")
        transcript.assistant("Here.", timestamp="2016-01-02T03:04:06.000Z")
        transcript.write(tmp_path, str(UUID(int=number)))
    done = acphold.run("import", "--from", str(tmp_path))
    assert done.out.splitlines()[1] == (
        "The last 30 days are searchable; the rest follows in the background …"
    )
    assert left_to == [str(acphold.journal)]
    acphold.run("import", "--wait", "--from", str(tmp_path))
    assert acphold.run("import", "--from", str(tmp_path)).out.split()[-2:] == ["unchanged", "3"]
    assert len(left_to) == 1


@pytest.fixture
def interrupted(acphold: CommandLine, tmp_path: Path) -> Path:
    """The home of an import that was killed after listing all conversations."""
    folder = Path(home(tmp_path))

    async def listed() -> None:
        journal = open_file(acphold.journal)
        assert len(await list_first(journal, folder)) == 2
        await journal.aclose()

    asyncio.run(listed())
    return folder


UNREAD = "2 conversations listed but not read yet, so not included in searches and sums"

UNREAD_BY = (["search", "needle"], ["usage"], ["list"])


@pytest.mark.usefixtures("interrupted")
def test_what_was_listed_and_not_read_is_said_and_read_in_the_background(
    acphold: CommandLine, until: Until
) -> None:
    done = acphold.run("usage")
    assert f"{UNREAD}; they are being read in the background." in done.err
    assert "not reported" not in done.out
    until(lambda: "not read yet" not in acphold.run("usage").err, seconds=60)
    assert "haystack" in acphold.run("search", "haystack").out
    assert [acphold.run(*words).err for words in UNREAD_BY] == ["", "", ""]
    until(lambda: not users(acphold.journal), seconds=60)


@pytest.mark.usefixtures("interrupted")
def test_on_a_full_disk_nothing_is_said_to_be_read_now(
    acphold: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_bounds, "RESERVED_BYTES", 1 << 60)
    assert f"{UNREAD}; they are read once its disk has room again." in acphold.run("list").err
    assert not users(acphold.journal)


@pytest.mark.usefixtures("interrupted")
def test_where_nothing_can_read_in_the_background_it_is_said_what_does(
    acphold: CommandLine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(
        background_import, "_obstacle", lambda: RuntimeFolderError("/run", "it is not there")
    )
    for words in UNREAD_BY:
        assert f"{UNREAD}; `acphold import` continues reading." in acphold.run(*words).err
    assert UNREAD in " ".join(acphold.run("doctor").out.split())
    (tmp_path / "nothing").mkdir()
    done = acphold.run("import", "--wait", "--from", str(tmp_path / "nothing"))
    assert done.out.endswith("\nEverything is searchable.\n")
    assert "haystack" in acphold.run("search", "haystack").out


def test_a_transcript_that_cannot_be_read_is_tried_once_by_each_command(
    acphold: CommandLine, interrupted: Path, until: Until
) -> None:
    for path in interrupted.rglob("*.jsonl"):
        path.unlink()
    assert UNREAD in acphold.run("search", "needle").err
    until(lambda: acphold.run("list").err.startswith("Nothing here yet"), seconds=60)
    until(lambda: not users(acphold.journal), seconds=60)


def test_an_import_that_is_interrupted_says_what_is_done_and_how_to_go_on(
    acphold: CommandLine, tmp_path: Path
) -> None:
    slow = """
import asyncio, sys
from acphold.faces.cli import import_command, main
from acphold.imports import intake
import_command.imports.WORTH_LISTING = 1
tried = intake.Intake._take
taken = []
async def _take(self, *args, **more):
    if taken:
        print("at work", flush=True)
        await asyncio.sleep(60)
    taken.append(await tried(self, *args, **more))
    return taken[0]
intake.Intake._take = _take
sys.exit(main.main(["import", "--from", sys.argv[1]]))
"""
    importing = subprocess.Popen(
        [sys.executable, "-c", slow, home(tmp_path)],
        env=acphold.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    with importing:
        assert importing.stdout is not None
        assert importing.stdout.readline() == b"at work\n"
        importing.send_signal(signal.SIGINT)
        _, told = importing.communicate(timeout=SECONDS)
    assert importing.returncode == 130
    assert told.decode().strip() == (
        "Interrupted; all that was read is kept: 1 conversation. 1 conversation listed but not "
        "read yet, so not included in searches and sums; the next `acphold search` reads them in "
        "the background, `acphold import` at once."
    )


def test_a_file_in_place_of_a_home_folder_is_told_with_its_folder(
    acphold: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.jsonl").touch()
    monkeypatch.chdir(tmp_path)
    done = acphold.run("import", "--from", "a.jsonl")
    assert (done.code, "--from a.jsonl: it is a file" in done.err) == (2, True)
    assert f"such as {tmp_path}\n" in done.err
