"""What reports tell of one program, in the form of every other reader that it may happen to."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from acphold.imports import Home, reader
from acphold.imports.sources import path_in
from acphold.imports.values import ABANDONED
from tests.imports.claude_home import CWD
from tests.imports.every_reader import READERS, Said, found, write
from tests.imports.told import Story, write_lines

BEGUN = 1_767_322_800_000


ID_IS_ORDER = frozenset({"hermes"})
"""Readers of messages whose numbers the database gives, one after the other."""


def told(name: str, home: Path, turns: list[Said]) -> list[str]:
    write(name, home, turns)
    (source,) = found(name, home)
    return [words for _, words in Story(reader(name), source).said()]


@pytest.mark.parametrize("name", READERS)
def test_a_clock_that_goes_back_changes_no_order(tmp_path: Path, name: str) -> None:
    times = (60_000, 120_000, 5_000, 180_000)
    turns = [Said(n, BEGUN + at, f"Q{n}", f"A{n}") for n, at in enumerate(times)]
    assert told(name, tmp_path, turns) == ["Q0", "A0", "Q1", "A1", "Q2", "A2", "Q3", "A3"]


@pytest.mark.parametrize("name", READERS)
def test_equal_prompts_at_one_time_are_all_told(tmp_path: Path, name: str) -> None:
    turns = [Said(n, BEGUN, "continue", "Done.") for n in range(1, 6)]
    assert told(name, tmp_path, turns) == ["continue", "Done."] * 5


@pytest.mark.parametrize("name", [name for name in READERS if name not in ID_IS_ORDER])
def test_ids_that_sort_otherwise_change_no_order(tmp_path: Path, name: str) -> None:
    turns = [Said(9 - n, BEGUN + 60_000 * n, f"Q{n}", f"A{n}") for n in range(4)]
    assert told(name, tmp_path, turns) == ["Q0", "A0", "Q1", "A1", "Q2", "A2", "Q3", "A3"]


@pytest.mark.parametrize("name", ["cline", "cursor", "vscode"])
def test_messages_that_a_program_wrote_down_twice_are_told_once(tmp_path: Path, name: str) -> None:
    write(name, tmp_path, [Said(n, BEGUN + 60_000 * n, f"Q{n}", f"A{n}") for n in range(2)])
    if name == "cursor":
        path = next(tmp_path.rglob("state.vscdb"))
        with closing(sqlite3.connect(path, isolation_level=None)) as database:
            which = "WHERE key = 'composerData:c1'"
            ((raw,),) = database.execute(f"SELECT value FROM cursorDiskKV {which}")
            twice = (json.dumps(_doubled(json.loads(raw))),)
            database.execute(f"UPDATE cursorDiskKV SET value = ? {which}", twice)
    for path in tmp_path.rglob("*.json"):
        path.write_text(json.dumps(_doubled(json.loads(path.read_bytes()))))
    (source,) = found(name, tmp_path)
    said = [words for _, words in Story(reader(name), source).said()]
    assert said == ["Q0", "A0", "Q1", "A1"]


@pytest.mark.parametrize("name", ["cline", "roo", "auggie"])
def test_a_document_whose_beginning_was_written_twice_is_told_once(
    tmp_path: Path, name: str
) -> None:
    write(name, tmp_path, [Said(n, BEGUN + 60_000 * n, f"Q{n}", f"A{n}") for n in range(4)])
    (source,) = found(name, tmp_path)
    whole = json.loads(source.path.read_bytes())
    its = whole if isinstance(whole, list) else whole.get("messages") or whole["chatHistory"]
    its[:0] = its[: len(its) // 2]
    source.path.write_text(json.dumps(whole))
    said = [words for _, words in Story(reader(name), source).said()]
    assert said == ["Q0", "A0", "Q1", "A1", "Q2", "A2", "Q3", "A3"]


@pytest.mark.parametrize("name", ["cline", "goose", "vscode"])
def test_a_conversation_that_a_program_copied_is_told_with_its_beginning(
    tmp_path: Path, name: str
) -> None:
    write(name, tmp_path, [Said(n, BEGUN + 60_000 * n, f"Q{n}", f"A{n}") for n in range(2)])
    (source,) = found(name, tmp_path)
    its, path = source.session_id, source.path
    if name == "goose":
        with closing(sqlite3.connect(path, isolation_level=None)) as database:
            for table, key in (("sessions", "id"), ("messages", "session_id")):
                about = database.execute(f"SELECT name FROM pragma_table_info('{table}')")
                kept = [
                    one for (one,) in about if one != key and (table, one) != ("messages", "id")
                ]
                columns = ", ".join(f'"{one}"' for one in kept)
                copied = f"SELECT 'fork', {columns} FROM {table} WHERE {key} = ? ORDER BY rowid"
                database.execute(f"INSERT INTO {table} ({key}, {columns}) {copied}", (its,))
    elif name == "cline":
        fork = path.parent.with_name("fork")
        fork.mkdir()
        (fork / "fork.messages.json").write_bytes(path.read_bytes())
        manifest = {"metadata": {"fork": {"forkedFromSessionId": its}}}
        (fork / "fork.json").write_text(json.dumps(manifest))
    else:
        whole = json.loads(path.read_bytes()) | {"sessionId": "fork"}
        path.with_name("fork.json").write_text(json.dumps(whole))
    told = {it.session_id: Story(reader(name), it) for it in found(name, tmp_path)}
    assert told.keys() == {its, "fork"}
    for one in told.values():
        assert [words for _, words in one.said()] == ["Q0", "A0", "Q1", "A1"]
    assert told["fork"].facts.begun_as == (its if name == "cline" else "")


def _doubled(whole: Any) -> Any:
    """A document with each item of its lists, behind all of them once more."""
    return {key: it * 2 if isinstance(it, list) else it for key, it in whole.items()}


TREES = {
    "claude": ("uuid", "parentUuid"),
    "qwen": ("uuid", "parentUuid"),
    "pi": ("id", "parentId"),
    "copilot": ("id", "parentId"),
}
"""Readers of records that name their parents: the keys of their ids."""


class Records:
    """A conversation of four turns as such a reader's program writes it, to be gone on with."""

    def __init__(self, name: str, home: Path) -> None:
        self.name, self.home = name, home
        write(name, home, [Said(n, BEGUN + 60_000 * n, f"Q{n}", f"A{n}") for n in range(4)])
        (source,) = found(name, home)
        self.path = source.path
        self.rows: list[Any] = [json.loads(it) for it in self.path.read_bytes().splitlines()]

    def add(self, words: str, behind: str) -> None:
        """Add a record like that of the last turn, as if it followed that with these words."""
        key, parent = TREES[self.name]
        like = self._row(f"{words[0]}3")
        raw = json.dumps(like).replace(f'"{words[0]}3"', f'"{words}"')
        made = f"new{len(self.rows)}"
        raw = raw.replace(like[key], made).replace('"m3"', f'"m{made}"')
        self.rows.append(json.loads(raw) | {parent: self._row(behind)[key]})

    def _row(self, words: str) -> Any:
        return next(row for row in reversed(self.rows) if f'"{words}"' in json.dumps(row))

    def said(self) -> list[str]:
        write_lines(self.path, *self.rows)
        (source,) = found(self.name, self.home)
        return [words for _, words in Story(reader(self.name), source).said()]


WHOLE = ["Q0", "A0", "Q1", "A1", "Q2", "A2", "Q3", "A3"]


@pytest.mark.parametrize("name", TREES)
def test_a_late_record_behind_an_old_one_leaves_no_prompt_behind(tmp_path: Path, name: str) -> None:
    records = Records(name, tmp_path)
    records.add("A-late", behind="A0")
    said = records.said()
    assert {*said} == {*WHOLE, "A-late"}
    assert [words for words in said if words in WHOLE] == WHOLE


@pytest.mark.parametrize("name", TREES)
def test_a_prompt_that_is_sent_again_behind_an_old_record_leaves_nothing_behind(
    tmp_path: Path, name: str
) -> None:
    records = Records(name, tmp_path)
    records.add("Q4", behind="A3")
    records.add("Q4", behind="A0")
    records.add("A4", behind="Q4")
    said = records.said()
    assert said[:8] == WHOLE
    assert said[-2:] == ["Q4", "A4"]


def went_back(name: str, row: Any) -> Any:
    """The record of going back to a prompt in a log, made from that of the prompt."""
    if name == "codex":
        event = {"type": "thread_rolled_back", "num_turns": 3}
        return row | {"type": "event_msg", "payload": event}
    if name == "gemini":
        return {"$rewindTo": row["id"]}
    kind, about = "session.snapshot_rewind", {"upToEventId": row["id"]}
    return row | {"id": "went-back", "type": kind, "data": about}


@pytest.mark.parametrize("is_gone_on", [True, False])
@pytest.mark.parametrize("name", ["claude", "pi", "qwen", "codex", "copilot", "gemini"])
def test_a_newer_prompt_in_the_place_of_others_leaves_these_as_a_branch(
    tmp_path: Path, name: str, *, is_gone_on: bool
) -> None:
    """Going back alone takes nothing away."""
    write(name, tmp_path, [Said(n + 1, BEGUN + 60_000 * n, f"Q{n}", f"A{n}") for n in range(5)])
    (source,) = found(name, tmp_path)
    rows = [json.loads(it) for it in source.path.read_bytes().splitlines()]

    def place(words: str) -> int:
        return next(n for n, row in enumerate(rows) if f'"{words}"' in json.dumps(row))

    end = place("t5" if name == "codex" else "Q4")
    if name in ("claude", "pi", "qwen"):
        key, parent = TREES[name]
        rows[end][parent] = rows[place("A0")][key]
    else:
        rows.insert(end, went_back(name, rows[place("Q1")]))
        end += 1
    write_lines(source.path, *(rows if is_gone_on else rows[:end]))
    reading, way = reader(name), ["Q0", "A0", "Q4", "A4"] if is_gone_on else WHOLE
    assert reading.branches is not None
    told = [Story(reading, it) for it in (source, *reading.branches(source))]
    assert [[words for _, words in it.said()] for it in told] == [way, *[WHOLE] * is_gone_on]
    assert told[0].facts.missed.counts == ({ABANDONED: 3} if is_gone_on else {})


@pytest.mark.parametrize("name", TREES)
def test_two_programs_that_write_at_one_time_leave_nothing_behind(
    tmp_path: Path, name: str
) -> None:
    records = Records(name, tmp_path)
    for words, behind in (("Q-b", "A3"), ("Q-x", "A3"), ("A-b", "Q-b"), ("A-x", "Q-x")):
        records.add(words, behind)
    for words, behind in (("Q-c", "A-b"), ("Q-y", "A-x"), ("A-c", "Q-c"), ("A-y", "Q-y")):
        records.add(words, behind)
    assert {*records.said()} == {*WHOLE, *(f"{of}-{its}" for of in "QA" for its in "bcxy")}


AMONG_LINES = ["claude", "codex", "qwen", "pi", "copilot", "gemini", "cline", "acphold"]


@pytest.mark.parametrize("name", AMONG_LINES)
def test_a_folder_of_windows_that_is_not_here_stays_as_it_is(tmp_path: Path, name: str) -> None:
    write(name, tmp_path, [Said(1, BEGUN, "Hello.", "Hi.")])
    windows = "D:\\Users\\me\\project"
    for path in (path for path in tmp_path.rglob("*") if path.is_file()):
        is_text = path.name in (".project_root", "workspace.yaml")
        instead = windows if is_text else json.dumps(windows)[1:-1]
        path.write_text(path.read_text().replace(CWD, instead))
    (source,) = found(name, tmp_path)
    assert Story(reader(name), source).facts.folder == windows


@pytest.mark.parametrize(
    ("folder", "path", "expected"),
    [
        ("/home/ada", "a/b.py", "/home/ada/a/b.py"),
        ("/home/ada", "/b.py", "/b.py"),
        ("/home/ada", "", ""),
        (r"C:\ada", "a/b.py", r"C:\ada\a\b.py"),
        (r"C:\ada", r"C:\ada\b.py", r"C:\ada\b.py"),
        ("c:/ada", r"D:\b.py", r"D:\b.py"),
        ("/home/ada", r"C:\ada\b.py", r"C:\ada\b.py"),
        (r"\\wsl.localhost\Ubuntu\home", "b.py", r"\\wsl.localhost\Ubuntu\home\b.py"),
    ],
)
def test_the_path_of_a_call_is_one_of_the_system_that_its_program_ran_on(
    folder: str, path: str, expected: str
) -> None:
    assert path_in(folder, path) == expected


MOVED = [
    ("claude", "CLAUDE_CONFIG_DIR", ".claude"),
    ("cline", "CLINE_DIR", ".cline"),
    ("cline", "CLINE_DATA_DIR", ".cline/data"),
    ("cline", "CLINE_SESSION_DATA_DIR", ".cline/data/sessions"),
    ("codex", "CODEX_HOME", ".codex"),
    ("copilot", "COPILOT_HOME", ".copilot"),
    ("gemini", "GEMINI_CLI_HOME", "."),
    ("goose", "XDG_DATA_HOME", ".local/share"),
    ("hermes", "HERMES_HOME", ".hermes"),
    ("kilo", "XDG_DATA_HOME", ".local/share"),
    ("kilo", "KILO_DB", ".local/share/kilo/kilo.db"),
    ("opencode", "XDG_DATA_HOME", ".local/share"),
    ("opencode", "OPENCODE_DB", ".local/share/opencode/opencode.db"),
    ("pi", "PI_CODING_AGENT_DIR", ".pi/agent"),
    ("qwen", "QWEN_HOME", ".qwen"),
    ("zed", "XDG_DATA_HOME", ".local/share"),
]
"""The variables that name the folders of agents, or a file, and what they name otherwise."""


@pytest.mark.parametrize("is_relative", [False, True])
@pytest.mark.parametrize(("name", "variable", "place"), MOVED)
def test_a_folder_that_a_variable_names_is_searched_and_no_other(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    variable: str,
    place: str,
    *,
    is_relative: bool,
) -> None:
    """A relative one is not below the home folder."""
    for home in ("moved", "home"):
        write(name, tmp_path / home, [Said(1, BEGUN, "Hello.", "Hi.")])
    monkeypatch.chdir(tmp_path)
    moved = f"moved/{place}" if is_relative else str(tmp_path / "moved" / place)
    if is_relative and variable.endswith("_DB"):
        moved = f"../../../../{moved}"  # it is below the program's own folder
    (source,) = reader(name).find(Home(tmp_path / "home", {variable: moved}))
    assert source.path.resolve().is_relative_to(tmp_path / "moved")


@pytest.mark.parametrize("variable", ["OPENCODE_DB", "KILO_DB"])
def test_a_database_that_a_person_named_is_read_through_a_link(
    tmp_path: Path, variable: str
) -> None:
    name = variable.partition("_")[0].lower()
    write(name, tmp_path / "moved", [Said(1, BEGUN, "Hello.", "Hi.")])
    (file,) = (tmp_path / "moved").rglob("*.db")
    (link := tmp_path / "named/link.db").parent.mkdir()
    link.symlink_to(file)
    (source,) = reader(name).find(Home(tmp_path / "home", {variable: str(link)}))
    assert Story(reader(name), source).said() == [("user", "Hello."), ("agent", "Hi.")]


LINKED = {
    "claude": ".claude/projects",
    "codex": ".codex/sessions",
    "gemini": ".gemini/tmp",
    "qwen": ".qwen/projects",
    "copilot": ".copilot/session-state",
    "cline": ".cline/data/sessions",
    "pi": ".pi/agent/sessions",
    "opencode": ".local/share/opencode",
    "goose": ".local/share/goose/sessions",
    "zed": ".local/share/zed",
    "hermes": ".hermes",
    "auggie": ".augment/sessions",
    "vscode": ".config/Code",
    "cursor": ".config/Cursor/User/globalStorage",
}
"""Folders that people keep elsewhere, with a link in their place."""


@pytest.mark.parametrize("name", LINKED)
def test_a_folder_of_all_conversations_may_be_a_link(tmp_path: Path, name: str) -> None:
    home, folder = tmp_path / "home", tmp_path / "home" / LINKED[name]
    write(name, home, [Said(1, BEGUN, "Hello.", "Hi.")])
    folder.rename(tmp_path / "elsewhere")
    folder.symlink_to(tmp_path / "elsewhere")
    (source,) = found(name, home)
    assert Story(reader(name), source).said() == [("user", "Hello."), ("agent", "Hi.")]
