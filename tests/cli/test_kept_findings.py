"""`doctor`, `list` and `show` say which files are kept, and why others are not."""

from __future__ import annotations

import asyncio
import json
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from msgspec.structs import replace

from acphold.conversation.history.entries import now_ms
from acphold.journal.seams import TurnSnapshot
from acphold.journal.stores import open_journal
from acphold.live.hub.kept_stores import stores_of
from tests.cli.command_line import CommandLine
from tests.cli.conversation import remember
from tests.editor import DEADLINE, scripted_agent
from tests.origins.kept import kept
from tests.raw_entries import CONVERSATION
from tests.snapshots.conftest import Project, begun


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "settings.toml"
    monkeypatch.setenv("ACPHOLD_SETTINGS", str(path))
    return path


@pytest.fixture
def project(journal: Path, tmp_path: Path) -> Project:
    """One session with files, one whose files were refused, one of which nothing is known."""
    made = begun(tmp_path)
    made.write("a.txt")
    for name in ("kept", "refused", "unknown"):
        remember(journal, name, *CONVERSATION, cwd=str(made.top), title=name)
    asyncio.run(keep(journal, made))
    return made


async def keep(journal: Path, project: Project, at: int = 1) -> None:
    opened = open_journal(journal)
    project.stores = await stores_of(opened)
    row = TurnSnapshot(turn=0, edge="end", root=str(project.top), at=1, state="refused", reason="x")
    await opened.snapshots.keep("refused", [row])
    row = replace(kept(project, 0, "end", "late", at), left_out_count=2)
    await opened.snapshots.keep("kept", [row])
    store = project.stores.find(row.store)
    assert store is not None
    store.was_named(row.tree)
    await opened.aclose()


def doctor(acphold: CommandLine, *options: str) -> str:
    """Its words, without the ends of lines."""
    return " ".join(acphold.run("doctor", *options).out.split())


@pytest.mark.usefixtures("project")
def test_the_list_says_what_became_of_the_last_files(acphold: CommandLine) -> None:
    rows = [json.loads(line) for line in acphold.run("list", "--json").out.splitlines()]
    files = {row["sessionId"]: row["files"] for row in rows}
    at = "1970-01-01T00:00:00.001Z"
    assert files == {
        "kept": {"state": "late", "at": at, "reason": ""},
        "refused": {"state": "refused", "at": at, "reason": "x"},
        "unknown": None,
    }
    heading, *lines = acphold.run("list").out.splitlines()
    assert heading.endswith("FILES")
    assert {line.split()[0]: line[heading.index("FILES") :] for line in lines} == {
        "kept": "late",
        "refused": "refused",
        "unknown": "",
    }


def test_a_session_says_if_its_files_are_kept_or_why_not(
    acphold: CommandLine, project: Project, settings: Path, tmp_path: Path, journal: Path
) -> None:
    kept = acphold.run("show", "kept").out
    assert "files kept, " in kept
    assert "the agent was already at work; 2 files left out" in kept
    assert "files not kept: x" in acphold.run("show", "refused").out
    assert (
        "no turn of it ran behind acphold with `snapshots` on" in acphold.run("show", "unknown").out
    )
    (tmp_path / "plain").mkdir()
    remember(journal, "plain", *CONVERSATION, cwd=str(tmp_path / "plain"))
    assert "files not kept: its folder is not in a git" in acphold.run("show", "plain").out
    settings.write_text('[agents.scripted]\ncommand = ["x"]\nsnapshots = "all"\n')
    assert (
        "no turn of it ran behind acphold with `snapshots` on" in acphold.run("show", "plain").out
    )
    remember(journal, "home", *CONVERSATION, cwd="/")
    assert "files not kept: it is your home folder" in acphold.run("show", "home").out
    settings.write_text('[agents.scripted]\ncommand = ["x"]\nsnapshots = false\n')
    assert "files" not in acphold.run("show", "unknown").out.partition("Make it")[0]


def test_the_doctor_says_what_is_kept_and_removes_it_once_the_settings_say_false(
    acphold: CommandLine, project: Project, settings: Path
) -> None:
    told = doctor(acphold)
    assert "at the beginning and the end of each turn: for all agents" in told
    assert "1 project, " in told
    assert "work/project: x (1 session)" in told
    settings.write_text('[agents.x]\ncommand = ["x"]\nsnapshots = false\n')
    assert "for all agents but x" in doctor(acphold)
    settings.write_text("[defaults\n")
    assert " ! not known: " in doctor(acphold)
    settings.write_text("[defaults]\nsnapshots = false\n")
    assert "`acphold doctor --repair` removes them" in doctor(acphold)
    assert len(list(project.stores)) == 1
    assert "removed kept files" in doctor(acphold, "--repair")
    assert list(project.stores) == []
    assert "files" not in acphold.run("show", "kept").out.partition("Make it")[0]


def test_files_that_a_running_process_may_keep_stay(
    acphold: CommandLine, project: Project, settings: Path, journal: Path
) -> None:
    settings.write_text("[defaults]\nsnapshots = false\n")
    assert acphold.run("session", "delete", "--yes", "unknown").code == 0
    assert len(list(project.stores)) == 1
    settings.write_text('[agents.x]\ncommand = ["x"]\nsnapshots = false\n')
    assert "removed kept files" not in doctor(acphold, "--repair")
    settings.write_text("[defaults]\nsnapshots = false\n")
    asyncio.run(keep(journal, project, now_ms()))
    assert "some are less than a day old" in doctor(acphold, "--repair")
    assert len(list(project.stores)) == 1


def test_a_question_on_the_command_line_keeps_files_unless_the_settings_say_false(
    acphold: CommandLine, settings: Path, tmp_path: Path
) -> None:
    project = begun(tmp_path)
    words = ["--cwd", str(project.top), "--", *scripted_agent()]
    go = tmp_path / "go"

    def when_kept() -> None:
        until = time.monotonic() + DEADLINE
        while not [*acphold.journal.parent.glob("*-files/told")] and time.monotonic() < until:
            time.sleep(0.02)
        go.touch()

    with ThreadPoolExecutor() as beside:
        beside.submit(when_kept)
        done = acphold.run("ask", json.dumps([{"until": str(go)}, {"say": "Done."}]), *words)
    assert done.code == 0, done.err
    assert done.err == "acphold ask: Files are kept with each turn. `acphold help files`\n"
    assert done.out == "Done.\n"
    assert json.loads(acphold.run("list", "--json").out)["files"]["state"] == "whole"
    settings.write_text("[defaults]\nsnapshots = false\n")
    assert acphold.run("ask", json.dumps([{"say": "Again."}]), *words).code == 0
    newest, _ = map(json.loads, acphold.run("list", "--json").out.splitlines())
    assert newest["files"] is None


def test_a_wrong_value_of_the_setting_is_told(acphold: CommandLine, settings: Path) -> None:
    settings.write_text('[defaults]\nsnapshots = "some"\n')
    told = doctor(acphold)
    assert "snapshots" in told
    assert "true, false or all is required" in told
