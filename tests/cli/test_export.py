"""`acphold export`: its files and their content."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

from acphold.conversation.history.entries import Segment
from acphold.journal.rows import SessionRow
from acphold.journal.sqlite.store import SqliteJournal
from tests.cli.command_line import CommandLine
from tests.cli.conversation import remember
from tests.raw_entries import CONVERSATION, Raw, ended, prompt, said, update


@pytest.fixture
def two(journal: Path) -> Path:
    """A journal with two sessions."""
    remember(journal, "aa-1", *CONVERSATION, title="Greeting")
    remember(journal, "bb-2", *CONVERSATION, agent="other", cwd="/home/you")
    return journal


def test_one_turn_is_printed_alone(acphold: CommandLine, journal: Path) -> None:
    turns = [(prompt(f"Do {what}"), said(f"Did {what}"), ended()) for what in ("this", "that")]
    remember(journal, "aa-1", *turns[0], *turns[1], title="Greeting")
    for place, has, lacks in (("aa@2", "this", "that"), ("aa@last", "that", "this")):
        told = acphold.run("export", place).out
        assert told.startswith("# Greeting\n")
        assert f"Did {has}" in told
        assert f"Did {lacks}" not in told
    both = acphold.run("export", "aa@1", "aa@last").out
    assert both == acphold.run("export", "aa").out == acphold.run("export", "aa@1", "aa").out
    assert acphold.run("export", "aa@99").code == 2


def test_a_files_name_tells_its_form(two: Path, acphold: CommandLine, tmp_path: Path) -> None:
    for name, begin in (("x.md", "# "), ("x.jsonl", '{"session"'), ("x.html", "<!DOCTYPE html>")):
        done = acphold.run("export", "aa", "-o", str(tmp_path / name))
        assert done.code == 0
        assert (done.out, done.err.startswith("Wrote 1 session to ")) == ("", True)
        assert (tmp_path / name).read_text().startswith(begin)


def test_nobody_else_can_read_what_is_written(
    two: Path, acphold: CommandLine, tmp_path: Path
) -> None:
    acphold.run("export", "--all", "--format", "html", "-o", str(tmp_path / "out"))
    acphold.run("export", "aa", "-o", str(tmp_path / "x.md"))
    assert (tmp_path / "out").stat().st_mode & 0o777 == 0o700
    files = [*(tmp_path / "out").iterdir(), tmp_path / "x.md"]
    assert {path.stat().st_mode & 0o777 for path in files} == {0o600}


def test_all_sessions_go_into_a_folder_with_an_index(
    two: Path, acphold: CommandLine, tmp_path: Path
) -> None:
    done = acphold.run("export", "--all", "--format", "html", "-o", str(tmp_path / "out"))
    assert done.err == f"Wrote 2 sessions to {tmp_path}/out.\n"
    first, index, second = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert index == "index.html"
    assert re.fullmatch("greeting-aa-1-[0-9a-f]{8}.html", first)
    assert f'href="{second}"' in (tmp_path / "out" / index).read_text()


def test_lines_of_many_sessions_go_into_one_file(
    two: Path, acphold: CommandLine, tmp_path: Path
) -> None:
    acphold.run("export", "aa", "bb", "aa-1", "-o", str(tmp_path / "x.jsonl"))
    lines = map(json.loads, (tmp_path / "x.jsonl").read_text().splitlines())
    heads = [line["session"]["sessionId"] for line in lines if "session" in line]
    assert heads == ["aa-1", "bb-2"]


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        (["--agent", "other"], ["bb-2"]),
        (["--cwd", "/home/me"], ["aa-1"]),
        (["--since", "1d"], ["bb-2", "aa-1"]),
        (["--since", "2999-01-01"], []),
    ],
)
def test_all_can_be_all_of_some_kind(
    two: Path, acphold: CommandLine, arguments: list[str], found: list[str]
) -> None:
    done = acphold.run("export", "--all", "--format", "jsonl", *arguments)
    lines = map(json.loads, done.out.splitlines())
    assert sorted(found) == sorted(x["session"]["sessionId"] for x in lines if "session" in x)


def test_lines_are_those_of_show_below_a_head(two: Path, acphold: CommandLine) -> None:
    head, *lines = acphold.run("export", "aa", "--format", "jsonl").out.splitlines()
    assert lines == acphold.run("show", "aa", "--json").out.splitlines()
    about = json.loads(head)["session"]
    assert (about["agent"], about["cwd"], about["title"]) == ("scripted", "/home/me", "Greeting")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "name the sessions, or use --all"),
        (["aa", "--all"], "name the sessions, or use --all"),
        (["aa", "--agent", "x"], "--agent, --cwd and --since need --all"),
        (["aa", "bb", "--format", "html"], "several pages need a folder: --output FOLDER/"),
        (["--all", "-o", "x.html"], "several pages need a folder: --output FOLDER/"),
        (["aa", "--format", "pdf"], "invalid choice: 'pdf'"),
        (["aa", "--report", "x"], "--report needs --redact"),
        (["--all", "--since", "never"], "'never': give a date (2026-01-31, today"),
    ],
)
def test_what_cannot_be_asked_for_is_said(
    two: Path, acphold: CommandLine, arguments: list[str], said: str
) -> None:
    done = acphold.run("export", *arguments)
    assert done.code == 2
    assert said in done.err


def test_a_session_that_is_not_there_writes_nothing(
    two: Path, acphold: CommandLine, tmp_path: Path
) -> None:
    done = acphold.run("export", "aa", "cc", "-o", str(tmp_path / "x.md"))
    assert done.code == 3
    assert not (tmp_path / "x.md").exists()


def test_a_file_that_cannot_be_written_is_named(two: Path, acphold: CommandLine) -> None:
    done = acphold.run("export", "aa", "-o", "/nowhere/at/all.md")
    assert done.code == 1
    assert done.err == (
        "acphold: cannot write /nowhere/at/all.md: No such file or directory; choose another path\n"
    )


def test_what_was_exported_can_be_imported(two: Path, acphold: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    acphold.run("export", "--all", "-o", str(tmp_path / "kept" / "x.jsonl"))
    other = CommandLine(tmp_path / "other.db")
    done = other.run("import", "--from", str(tmp_path / "kept"))
    assert done.out == "acphold           2 conversations   new 2   (listed as other, scripted)\n"
    for session_id in ("aa-1", "bb-2"):
        shown = [cli.run("show", session_id, "--json").out for cli in (acphold, other)]
        assert shown[1].startswith(shown[0])
        assert json.loads(shown[1].removeprefix(shown[0]))["kind"] == "imported"
    assert other.run("list", "--json").out == acphold.run("list", "--json").out


# -- exports for others -------------------------------------------------------------------------

KEY = "sk-ant-api03-abCD12efGH34ijKL56mnOP78"
TELLING = (
    prompt(f"my key is {KEY} in /home/me/x"),
    said(f"I see {KEY[:12]}"),
    said(f"{KEY[12:]}, ada@example.org"),
    update("tool_call", toolCallId="t1", title="Run", rawInput={"password": "hunter2"}),
    ended(),
)


@pytest.fixture
def telling(journal: Path) -> Path:
    """A journal with a session that tells too much."""
    remember(journal, "s-1", *TELLING, title=f"The key {KEY}", cwd="/home/me/project")
    return journal


FORMS = ("markdown", "jsonl", "html")


def test_what_others_should_not_see_is_in_no_form(telling: Path, acphold: CommandLine) -> None:
    for form in FORMS:
        done = acphold.run("export", "s-1", "--format", form, "--redact")
        assert done.code == 0
        for hidden in (KEY, KEY[12:], "hunter2", "/home/me", "ada@example.org"):
            assert hidden not in done.all, hidden
        assert "[removed: API key]" in done.out


@pytest.mark.parametrize(
    "beside",
    [
        update("usage_update", used=1, size=2),
        update("available_commands_update", availableCommands=[]),
        update("config_option_update", configOptions=[]),
        update("session_info_update", title="A title"),
        update("something_new", x=1),
        update("plan", entries=[]),
        update("tool_call", toolCallId="t2", title="Look"),
    ],
    ids=lambda raw: json.loads(raw[1])["sessionUpdate"],
)
def test_a_secret_is_in_no_form_whatever_came_between_its_pieces(
    journal: Path, acphold: CommandLine, beside: Raw
) -> None:
    pieces = [said(f"It is {KEY[:9]}"), beside, said(KEY[9:20]), beside, said(f"{KEY[20:]} now")]
    remember(journal, "s-1", prompt("Which?"), *pieces, ended(), cwd="/srv")
    for form in FORMS:
        done = acphold.run("export", "s-1", "--format", form, "--redact")
        assert KEY[9:20] not in done.out
        assert KEY[20:] not in done.out
        assert "[removed: API key]" in done.out
        assert "Removed: API key 1" in done.err


def test_what_was_taken_out_is_told_by_kind_and_place(
    telling: Path, acphold: CommandLine, tmp_path: Path
) -> None:
    given = ("export", "s-1", "--redact", "-o", str(tmp_path / "x.md"))
    assert acphold.run(*given).err.splitlines()[1:] == [
        "Removed: API key 3, home path 2, mail address 1, password 1",
        "  s-1@0  API key 1",
        "  s-1@0  home path 1",
        "  s-1@1  API key 1",
        "  s-1@1  home path 1",
        "  s-1@3  API key 1",
        "  s-1@3  mail address 1",
        "  s-1@4  password 1",
    ]
    report = tmp_path / "report.jsonl"
    acphold.run(*given, "--report", str(report))
    lines = [json.loads(line) for line in report.read_text().splitlines()]
    assert lines[0] == {"session": "s-1", "seq": 0, "kind": "API key", "count": 1}
    assert len(lines) == 7


def test_nothing_to_take_out_is_said_too(two: Path, acphold: CommandLine) -> None:
    remember(two, "cc-3", prompt("Hi"), said("Hello"), ended(), cwd="/srv")
    done = acphold.run("export", "cc-3", "--redact")
    assert done.err == "Nothing was removed.\n"


def test_what_cannot_be_looked_through_is_not_written(
    telling: Path, acphold: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(text: str) -> None:
        raise re.error("out of order")

    monkeypatch.setattr("acphold.safety.redaction.redactor.secrets", fail)
    for arguments in (["--format", "html"], ["-o", str(tmp_path / "x.md")]):
        done = acphold.run("export", "s-1", "--redact", *arguments)
        assert (done.code, done.out) == (1, "")
        assert done.err.startswith("acphold: session 's-1' cannot be searched for secrets")
        assert KEY not in done.err
    assert [path.name for path in tmp_path.iterdir() if not path.name.startswith("journal")] == []


def test_a_redacted_session_can_be_imported_into_another_home(
    telling: Path, acphold: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "kept").mkdir()
    acphold.run("export", "s-1", "--redact", "-o", str(tmp_path / "kept" / "x.jsonl"))
    other = CommandLine(tmp_path / "other.db")
    monkeypatch.setenv("HOME", "/people/bob")
    other.run("import", "--from", str(tmp_path / "kept"))
    assert json.loads(other.run("list", "--json").out)["cwd"] == "/people/bob/project"


@pytest.mark.parametrize("which", ["aa", "--all"])
def test_a_pipe_is_written_to_and_not_replaced(
    two: Path, acphold: CommandLine, tmp_path: Path, which: str
) -> None:
    os.mkfifo(tmp_path / "pipe")
    reading = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    try:
        assert acphold.run("export", which, "-o", str(tmp_path / "pipe")).code == 0
        assert b"# Greeting" in os.read(reading, 1 << 16)
        assert (tmp_path / "pipe").is_fifo()
    finally:
        os.close(reading)


def test_a_session_that_is_deleted_meanwhile_is_passed_over(
    two: Path, acphold: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = SqliteJournal.session

    async def delete_first(self: SqliteJournal, session_id: str) -> SessionRow:
        if session_id == "aa-1":
            await self.delete("aa-1")
        return await session(self, session_id)

    monkeypatch.setattr(SqliteJournal, "session", delete_first)
    done = acphold.run("export", "--all", "-o", str(tmp_path / "out"))
    assert done.code == 0
    [left] = (tmp_path / "out").iterdir()
    assert "bb-2" in left.name


def test_a_session_that_is_put_in_order_meanwhile_is_not_written_twice_in_part(
    journal: Path, acphold: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    remember(journal, "aa-1", *CONVERSATION)
    read = SqliteJournal.read

    async def of_another_moment(
        self: SqliteJournal, session_id: str, after: int, **_: int
    ) -> list[Segment]:
        found = await read(self, session_id, after, 1)
        return found[:1] if not after else await read(self, session_id, 0, 1)

    monkeypatch.setattr(SqliteJournal, "read", of_another_moment)
    done = acphold.run("export", "aa-1", "-o", str(tmp_path / "x.md"))
    assert (done.code, (tmp_path / "x.md").exists()) == (4, False)
    assert "was compacted while it was being read; try again" in done.err
