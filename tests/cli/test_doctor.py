"""`acphold doctor` finds each fault, and says how to fix it."""

from __future__ import annotations

import getpass
import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing, nullcontext
from pathlib import Path
from typing import NoReturn

import pytest

from acphold.faces.cli import bounds, scopes
from acphold.faces.cli.command_line import at_ctrl_c
from acphold.journal.sqlite import deletion
from acphold.journal.sqlite.connection import connect
from acphold.machine import transient_service
from tests.cli.command_line import CommandLine
from tests.cli.conversation import remember
from tests.conftest import Defaults
from tests.imports.claude_home import Transcript
from tests.raw_entries import CONVERSATION, ended, prompt
from tests.watched_processes import lives

DEMO_AGENT = (sys.executable, "-m", "acphold", "agent", "demo")


def test_a_whole_journal_and_an_agent_that_answers_are_well(
    acphold: CommandLine, journal: Path
) -> None:
    remember(journal, "s", *CONVERSATION)
    done = acphold.run("doctor", "--deep", "--", *DEMO_AGENT)
    assert (done.code, done.err) == (0, "")
    assert "full-text search" in done.out
    assert "1 session" in done.out
    assert "it is intact" in done.out
    assert "mode 0600" in done.out
    assert "Demo agent 1 answered" in done.out
    assert "acphold adds: session/list, session/load, session/resume" in done.out
    assert done.out.endswith("No problems found\n")


def test_a_journal_that_is_not_there_is_not_made(acphold: CommandLine, journal: Path) -> None:
    done = acphold.run("doctor")
    assert (done.code, "none yet at" in done.out) == (0, True)
    assert "nothing to repair" in acphold.run("doctor", "--repair").out
    assert not journal.exists()


def test_a_journal_that_others_could_read_is_made_private_and_said_to_have_been_open(
    acphold: CommandLine, journal: Path
) -> None:
    remember(journal, "s", *CONVERSATION)
    journal.chmod(0o644)
    done = acphold.run("doctor")
    assert done.code == 0
    assert "!  other users could read it until now: acphold made it private, mode 0600" in done.out
    assert "other users could read it" not in acphold.run("doctor").out


def test_a_folder_in_which_others_can_replace_the_journal_is_a_problem(
    acphold: CommandLine, journal: Path
) -> None:
    remember(journal, "s", *CONVERSATION)
    journal.parent.chmod(0o777)
    done = acphold.run("doctor")
    assert done.code == 1
    assert f"chmod 700 {journal.parent}" in done.out.replace("\n     ", " ")


def test_a_write_ahead_log_that_lost_its_end_is_told(acphold: CommandLine, journal: Path) -> None:
    remember(journal, "s", *CONVERSATION)
    with closing(sqlite3.connect(journal)) as connection, connection:
        connection.execute("INSERT INTO meta VALUES ('log_cut_at', 1767225600000)")
    done = acphold.run("doctor")
    assert done.code == 0
    assert "!  on 2026-01-01" in done.out or "!  on 2025-12-31" in done.out
    assert "may be lost" in " ".join(done.out.split())


def test_an_agent_that_deletes_its_conversations_is_told_with_what_keeps_them(
    acphold: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    transcript = Transcript("Hello.")
    transcript.write(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("CLAUDE_CONFIG_DIR", raising=False)
    done = acphold.run("doctor")
    said = " ".join(done.out.split())
    assert "! Claude Code deletes conversations after 30 days; `acphold import` keeps them" in said
    assert "(1 not yet)" in said
    assert '"cleanupPeriodDays": 99999 in ~/.claude/settings.json' in said
    assert done.code == 0
    acphold.run("import")
    said = " ".join(acphold.run("doctor").out.split())
    assert (
        "✓ Claude Code deletes conversations after 30 days; all current ones are imported" in said
    )


def test_a_damaged_journal_is_a_problem(acphold: CommandLine, journal: Path) -> None:
    remember(journal, "s", *CONVERSATION)
    with journal.open("r+b") as file:
        file.seek(4096)
        file.write(os.urandom(journal.stat().st_size - 4096))
    done = acphold.run("doctor")
    assert done.code == 1
    assert "✗" in done.out


@pytest.mark.parametrize("options", [[], ["--repair"]])
def test_a_file_that_is_no_journal_is_a_problem_among_others(
    options: list[str],
    acphold: CommandLine,
    journal: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    journal.write_text("shopping list")
    Transcript("Hello.").write(tmp_path)
    (settings := tmp_path / "settings.toml").write_text("[defaults]\nsnapshots = false\n")
    monkeypatch.setenv("ACPHOLD_SETTINGS", str(settings))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("CLAUDE_CONFIG_DIR", raising=False)
    done = acphold.run("doctor", *options)
    said = " ".join(done.out.split())
    assert done.code == 1, done.err
    assert "is not an acphold journal" in said
    assert "(1 not yet)" in said
    assert "found" in said.rpartition("problem")[2]
    assert journal.read_text() == "shopping list"


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (["no-such-program-anywhere"], "no such program on PATH"),
        ([sys.executable, "-c", "raise SystemExit(3)"], "exit status 3"),
        (["cat"], "refused `initialize`"),
    ],
)
def test_an_agent_that_does_not_answer_is_a_problem(
    acphold: CommandLine, command: list[str], words: str
) -> None:
    done = acphold.run("doctor", "--", *command)
    assert done.code == 1
    assert words in " ".join(done.out.split())


def test_a_program_that_is_not_there_is_not_to_be_run_by_itself(acphold: CommandLine) -> None:
    told = acphold.run("doctor", "--", "no-such-program-anywhere").out
    assert "→  install it, or give its full path" in told
    assert "run the command by itself" not in told


def test_ctrl_c_leaves_at_once_whatever_the_agent_does(
    acphold: CommandLine, defaults: Defaults
) -> None:
    defaults(start_timeout=500)
    deaf = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(60)"
    done = acphold.on_terminal(
        "doctor",
        *("--", sys.executable, "-c", deaf),
        columns=60,
        interrupted_at=b"\x1b[?25l",  # what counts the seconds hides the cursor
    )
    assert done.code == 130
    assert done.out.endswith("\x1b[?25h")


@pytest.mark.parametrize("is_wanted", [True, False])
def test_a_ctrl_c_that_is_ignored_stays_ignored(is_wanted: bool) -> None:
    before = signal.default_int_handler if is_wanted else signal.SIG_IGN
    previous = signal.signal(signal.SIGINT, before)

    def leave() -> NoReturn:
        raise EOFError

    try:
        with pytest.raises(EOFError) if is_wanted else nullcontext(), at_ctrl_c(leave):
            signal.raise_signal(signal.SIGINT)
    finally:
        assert signal.signal(signal.SIGINT, previous) is before


def test_the_doctor_says_what_takes_the_room(acphold: CommandLine, journal: Path) -> None:
    remember(journal, "small-1", *CONVERSATION)
    words = os.urandom(2_000_000).hex()  # which becomes no shorter than a half where it is packed
    remember(journal, "large-1", prompt(words), ended(), title="A long one")
    out = acphold.run("doctor", "--deep").out
    assert re.search(r"conversations .*, search .*, .* free inside", out)
    assert re.search(r"largest: A long one \(large-1, \S+ MiB\)", " ".join(out.split()))
    assert "small-1" not in out


def test_the_doctor_repairs_counts_summaries_and_the_search_index(
    acphold: CommandLine, journal: Path
) -> None:
    remember(journal, "aa-1", *CONVERSATION, title="Greeting")
    with closing(sqlite3.connect(journal, isolation_level=None)) as file:
        file.execute("UPDATE sessions SET message_count = 77")
        file.execute("INSERT INTO words_1 (words_1) VALUES ('delete-all')")
        file.execute("DELETE FROM documents")
        file.execute("UPDATE summaries SET summary = CAST(summary || 'x' AS BLOB)")
    assert "friendlier" not in acphold.run("search", "friendlier", "--json").out
    told = acphold.run("doctor")
    assert told.code == 1
    assert "the summary of 1 session is corrupted: aa-1" in " ".join(told.out.split())
    done = acphold.run("doctor", "--repair")
    assert "corrected wrong counts: aa-1" in done.out
    assert "put 1 session into the search index again" in done.out
    assert json.loads(acphold.run("list", "--json").out)["messageCount"] == 3
    assert "friendlier" in acphold.run("search", "friendlier", "--json").out
    again = acphold.run("doctor", "--repair").out
    assert "all counts were right" in again
    assert "the search index was complete" in again
    assert acphold.run("doctor").code == 0


def test_the_doctor_tells_what_a_deletion_that_was_cut_short_has_left(
    acphold: CommandLine, journal: Path
) -> None:
    remember(journal, "aa-1", *CONVERSATION)
    remember(journal, "bb-2", *CONVERSATION)
    with closing(connect(str(journal), 1.0)) as killed:
        assert any(True for _ in deletion.delete(killed, ["aa-1"], None, set()))
    left = "traces of 1 deletion are still in the file"
    assert left in " ".join(acphold.run("doctor").out.split())
    assert acphold.run("journal", "compact").code == 0
    assert left not in " ".join(acphold.run("doctor").out.split())


@pytest.mark.parametrize(("name", "part"), [("PATH", "''"), ("PYTHONPATH", "'.'")])
def test_what_leads_into_whatever_folder_one_is_in_is_told(
    acphold: CommandLine, name: str, part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    value = os.environ.get(name, "/libraries")
    assert f"{name} contains" not in acphold.run("doctor").out
    monkeypatch.setenv(name, os.pathsep.join([value, part.strip("'")]))
    done = acphold.run("doctor")
    assert done.code == 1
    assert f"{name} contains {part}, which is relative" in done.out


def test_agents_that_are_installed_are_named_with_their_versions(
    acphold: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (programs := tmp_path / "bin").mkdir()
    marker = tmp_path / "hung"
    for name, script in {
        "gemini": "echo gemini 0.61.0",
        "opencode": "echo '\x1b[31mv1.18.33'; exit 1",
        "qwen": "echo no number here",
        "codex-acp": f"echo $$ > {marker}; exec sleep 600",
        "goose": "echo 1.2.3",
    }.items():
        (programs / name).write_text(f"#!/bin/sh\n{script}\n")
        (programs / name).chmod(0o755)
    (programs / "goose").write_text("#!/nonexistent/interpreter\n")
    monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")
    monkeypatch.setattr(bounds, "AGENT_VERSION_SECONDS", 1.0)
    said = acphold.run("doctor").out
    assert "  ✓  gemini: Gemini CLI, gemini --acp, 0.61.0\n" in said
    assert "  ✓  opencode: OpenCode, opencode acp, 1.18.33\n" in said
    assert "  ✓  qwen: Qwen Code, qwen --acp\n" in said
    assert "  ✓  codex: Codex, codex-acp\n" in said
    assert "  ✓  goose: Goose, goose acp\n" in said
    assert not lives(int(marker.read_text()))


def test_without_any_agent_it_is_said_how_to_get_one(
    acphold: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    said = " ".join(acphold.run("doctor").out.split())
    assert "none that acphold knows; `acphold chat NAME` shows how to install claude, codex" in said


def test_where_acphold_is_not_on_path_its_own_script_is_named(tmp_path: Path) -> None:
    script = Path(sys.executable).with_name("acphold")
    done = subprocess.run(
        [script, "doctor"],
        env={"HOME": str(tmp_path), "PATH": os.defpath},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    told = " ".join(done.stdout.split())
    assert f"`acphold` is not on PATH: use {script} in an editor's settings" in told


def test_on_macos_it_says_that_nobody_has_tried(
    acphold: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    untried = "acphold is untested on macOS; `acphold help versions` lists the differences"
    assert untried not in " ".join(acphold.run("doctor").out.split())
    monkeypatch.setattr("platform.system", lambda: "Darwin")
    assert untried in " ".join(acphold.run("doctor").out.split())
    assert "## macOS" in acphold.run("help", "versions").out


@pytest.mark.parametrize(
    ("ends_at_logout", "lingers", "is_told"),
    [(True, False, True), (True, True, False), (False, False, False)],
)
def test_a_logout_that_ends_the_daemon_is_told(
    acphold: CommandLine,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    ends_at_logout: bool,
    lingers: bool,
    is_told: bool,
) -> None:
    programs, lingering = tmp_path / "programs", tmp_path / "lingering"
    programs.mkdir()
    (programs / "busctl").write_text(f"#!/bin/sh\necho b {str(ends_at_logout).lower()}\n")
    (programs / "busctl").chmod(0o755)
    lingering.mkdir()
    if lingers:
        (lingering / getpass.getuser()).touch()
    monkeypatch.setattr(transient_service, "LINGERING", str(lingering))
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    told = " ".join(acphold.run("doctor").out.split())
    assert ("`loginctl enable-linger` keeps them" in told) is is_told


def test_what_a_container_and_an_idle_wsl_end_is_told(
    acphold: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scopes, "CONTAINER_FILES", [str(tmp_path / "mark")])
    assert "end with this container" not in " ".join(acphold.run("doctor").out.split())
    (tmp_path / "mark").touch()
    wsl = os.uname_result(("Linux", "here", "5.15.153.1-microsoft-standard-WSL2", "", "x86_64"))
    monkeypatch.setattr(os, "uname", lambda: wsl)
    told = " ".join(acphold.run("doctor").out.split())
    assert "the daemon and running turns end with this container" in told
    assert "WSL ends once no window uses it" in told
