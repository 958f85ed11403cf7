"""A file that cannot be read to its end costs only itself. `acphold import` runs as a process."""

from __future__ import annotations

import json
import os
import resource
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from acphold.imports.databases import REPEATED
from acphold.imports.records import LINE_BYTES, UNPACKED_BYTES
from acphold.imports.sources import DEEPEST
from acphold.journal.compression import zstd
from tests.imports.claude_home import SESSION, Transcript, use
from tests.imports.codex_home import Rollout
from tests.imports.test_opencode import Store
from tests.imports.told import Json, write_lines
from tests.plugin import Until

pytestmark = pytest.mark.slow

SECONDS = 120.0
"""Longest run of an import; without bounds, imports take hours, or all memory."""

CHAT = "session-2026-01-02T03-04-aaaaaaaa.jsonl"


def import_command(home: Path, *words: str) -> list[str]:
    where = ["--from", str(home), "--journal", str(home.parent / "journal.db"), "--json"]
    return [sys.executable, "-m", "acphold", "import", *where, *words]


def imported(home: Path) -> tuple[dict[str, Json], str]:
    """The report of an import for each agent, and its complaints."""
    done = subprocess.run(
        import_command(home), capture_output=True, text=True, timeout=SECONDS, check=True
    )
    told = [json.loads(line) for line in done.stdout.splitlines()]
    return {one["agent"]: one for one in told}, done.stderr


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home folder in which every agent that keeps files has one conversation."""
    found = tmp_path / "home"
    claude = Transcript("Hello.")
    claude.assistant("Hi.")
    claude.write(found)
    codex = Rollout("Hello.")
    codex.agent("Hi.")
    codex.end()
    codex.write(found)
    for chats in (".gemini/tmp/p/chats", ".qwen/tmp/p/chats"):
        write_lines(
            found / chats / CHAT,
            {"sessionId": "s1", "startTime": "2026-01-02T03:04:05Z"},
            {"id": "1", "type": "user", "content": [{"text": "Hello."}]},
        )
    write_lines(
        found / ".copilot/session-state/s1/events.jsonl",
        {"type": "user.message", "data": {"content": "Hello."}},
    )
    task = found / ".cline/data/tasks/2/ui_messages.json"
    task.parent.mkdir(parents=True)
    task.write_text(json.dumps([{"ts": 1, "type": "say", "say": "task", "text": "Hello."}]))
    session = found / ".cline/data/sessions/1/1.messages.json"
    session.parent.mkdir(parents=True)
    session.write_text(json.dumps({"messages": [{"role": "user", "content": "Hello."}]}))
    record: Json = {"schema": "acpx.session.v1", "acp_session_id": "s1"}
    record["messages"] = [{"User": {"content": [{"Text": "Hello."}]}}]
    write_lines(found / ".acpx/sessions/r.json", record)
    opencode = Store(found)
    opencode.session()
    opencode.message("user", "Hello.")
    opencode.db.close()
    return found


EVERY = {"acpx", "claude", "cline", "codex", "copilot", "gemini", "opencode", "qwen"}

BESIDE = (
    ".acpx/sessions/r.stream.ndjson",
    ".claude/projects/-home-ada-project/other.jsonl",
    f".claude/projects/-home-ada-project/{SESSION}/custom-title.json",
    f".claude/projects/-home-ada-project/{SESSION}/subagents/agent-1.jsonl",
    ".cline/data/sessions/1/1.json",
    ".cline/data/state/taskHistory.json",
    ".cline/data/tasks/2/api_conversation_history.json",
    ".codex/session_index.jsonl",
    ".copilot/session-state/s1/workspace.yaml",
    ".gemini/projects.json",
    ".gemini/settings.json",
    ".gemini/tmp/p/.project_root",
    ".gemini/trustedFolders.json",
    ".local/share/goose/sessions/sessions.db",
    ".local/share/opencode/opencode.db-wal",
    ".qwen/projects.json",
    ".qwen/projects/x/chats/s2.jsonl",
)
"""Small files that agents keep beside their conversations, and other transcripts."""


def a_pipe(path: Path) -> None:
    os.mkfifo(path)


def a_device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def an_endless_file(path: Path) -> None:
    path.touch()
    os.truncate(path, 1 << 40)


@pytest.mark.parametrize(
    ("make", "refused"),
    [(a_pipe, set[str]()), (a_device, {"opencode"})],  # a database's log that is a link out
)
def test_a_pipe_or_device_beside_a_conversation_is_neither_waited_for_nor_read(
    home: Path, make: Callable[[Path], None], refused: set[str]
) -> None:
    for name in BESIDE:
        path = home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        make(path)
    told, _ = imported(home)
    assert {name for name, one in told.items() if one["new"]} == EVERY - refused
    assert told["cline"]["new"] == 2


@pytest.mark.parametrize(
    "name", [name for name in BESIDE if name.endswith((".json", ".yaml", ".project_root"))]
)
def test_a_small_file_without_an_end_costs_only_itself(home: Path, name: str) -> None:
    path = home / name
    path.parent.mkdir(parents=True, exist_ok=True)
    an_endless_file(path)
    told, _ = imported(home)
    assert {name for name, one in told.items() if one["new"]} == EVERY


# -- databases --------------------------------------------------------------------------------

ENDLESS = "WITH RECURSIVE {0}(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM {0})"


@pytest.mark.parametrize("name", ["n", REPEATED])
def test_a_view_in_place_of_a_table_is_not_read(home: Path, name: str) -> None:
    database = sqlite3.connect(home / ".local/share/opencode/opencode.db")
    database.executescript(
        f"DROP TABLE session; CREATE VIEW session AS {ENDLESS.format(name)}"
        f" SELECT 'ses_' || x AS id, x AS time_updated, NULL AS parent_id FROM {name}"
    )
    database.close()
    goose = home / ".local/share/goose/sessions/sessions.db"
    goose.parent.mkdir(parents=True)
    database = sqlite3.connect(goose)
    database.executescript(
        "CREATE VIRTUAL TABLE sessions USING fts5(id, updated_at, session_type);"
        "CREATE TABLE messages (session_id); INSERT INTO sessions VALUES ('s', '', 'acp')"
    )
    database.close()
    told, _ = imported(home)
    assert {name for name, one in told.items() if one["new"]} == EVERY - {"opencode"}
    assert told["opencode"]["failed"] == told["goose"]["failed"] == 1


def test_a_row_that_is_too_long_is_counted_and_costs_only_itself(tmp_path: Path) -> None:
    store = Store(tmp_path / "home")
    store.session()
    store.message("user", "Hello.")
    store.message("assistant", "Hi.", "there")
    store.db.execute(
        "UPDATE part SET data = zeroblob(?) WHERE data LIKE '%Hi.%'", (LINE_BYTES + 1,)
    )
    store.session("ses_2", title="x" * LINE_BYTES)
    store.message("user", "And here?", session="ses_2")
    store.db.execute("UPDATE session SET title = title || title WHERE id = 'ses_2'")
    store.session("ses_3")
    store.message("user", "And there?", session="ses_3")
    store.session("ses_" + "4" * LINE_BYTES)
    store.db.close()
    told, _ = imported(tmp_path / "home")
    assert told["opencode"]["new"] == 2
    assert told["opencode"]["missed"] == {"lines that are too long": 1}
    assert told["opencode"]["failed"] == 2


def slow_database(home: Path) -> None:
    """A table of which one column takes a moment in each row: hours, all in all."""
    path = home / ".local/share/opencode/opencode.db"
    path.unlink()
    database = sqlite3.connect(path)
    database.executescript(
        "CREATE TABLE session (id, time_updated,"
        " parent_id AS (length(hex(zeroblob(8000000))) || ''));"
        "CREATE TABLE part (session_id);"
        f"INSERT INTO session {ENDLESS.format('n')} SELECT x, x FROM n LIMIT 100000"
    )
    database.close()


# -- compressed, nested, many -----------------------------------------------------------------


def bomb(home: Path, size: int) -> Path:
    """A small rollout that unpacks to short lines of that many bytes."""
    rollout = Rollout("Hello.")
    path = rollout.write(home)
    packed = path.with_name(f"{path.name}.zst")
    with zstd.open(packed, "wb") as writer:
        writer.write(path.read_bytes())
        for _ in range(size >> 20):
            writer.write(b"5\n" * (1 << 19))
    path.unlink()
    return packed


def test_a_small_file_that_unpacks_to_much_is_read_within_a_bound(home: Path) -> None:
    bomb(home, 4 * UNPACKED_BYTES)
    told, _ = imported(home)
    assert told["codex"]["new"] == 1
    assert told["codex"]["missed"]["the rest of a file that is too large when unpacked"] == 1
    assert told["codex"]["missed"]["lines that are not JSON objects"] < UNPACKED_BYTES
    assert {name for name, one in told.items() if one["new"]} == EVERY


@pytest.fixture
def nested(home: Path) -> Iterator[Path]:
    """1,200 folders in each other, amid the rollouts."""
    (top := home / ".codex/sessions/deep").mkdir()
    before = os.open(".", os.O_RDONLY)
    try:
        os.chdir(top)
        for _ in range(1200):
            os.mkdir("d")
            os.chdir("d")
        yield top
        # pytest removes folders by recursion, and would fail at these.
        os.chdir(top)
        depth = 0
        while os.path.isdir("d"):
            os.chdir("d")
            depth += 1
        for _ in range(depth):
            os.chdir("..")
            os.rmdir("d")
    finally:
        os.chdir(before)
        os.close(before)


def test_folders_that_are_nested_too_deeply_are_named_and_end_no_import(
    home: Path, nested: Path
) -> None:
    told, _ = imported(home)
    assert {name for name, one in told.items() if one["new"]} == EVERY
    assert told["codex"]["failed"] == 1
    text = subprocess.run(
        [word for word in import_command(home) if word != "--json"],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=True,
    )
    deep = "/d" * DEEPEST
    assert (
        f"codex: cannot read {nested}{deep}: it is nested too deeply to be searched" in text.stderr
    )


def test_a_file_whose_name_is_no_text_is_named_and_costs_only_itself(home: Path) -> None:
    folder = os.fsencode(home / ".claude/projects/-home-ada-project")
    with open(os.path.join(folder, b"\xff.jsonl"), "wb") as file:
        file.write(b'{"type":"user","uuid":"x","message":{"content":"Hello."}}\n')
    told, _ = imported(home)
    assert {name for name, one in told.items() if one["new"]} == EVERY
    assert told["claude"]["failed"] == 1


# -- texts that patterns are looked for in ----------------------------------------------------

MANY = 200_000


def test_marks_that_begin_and_never_end_take_no_longer_than_other_text(tmp_path: Path) -> None:
    home = tmp_path / "home"
    claude = Transcript("<command-name>" * MANY)
    claude.assistant(use("t1", "Read", file_path="/a"))
    claude.result("t1", "\n" * MANY + "<system-reminder>" * MANY)
    claude.write(home)
    codex = Rollout()
    codex.program("<environment_context>" + "<cwd>" * MANY)
    codex.user("Hello.")
    codex.write(home)
    edit = "\n" * MANY + "--- SEARCH\n" * MANY + "===\n" * MANY
    tool = {"tool": "editedExistingFile", "path": "a", "content": edit}
    said = [("task", "Hello."), ("tool", json.dumps(tool)), ("task_progress", " \n" * MANY)]
    task = home / ".cline/data/tasks/2/ui_messages.json"
    task.parent.mkdir(parents=True)
    task.write_text(
        json.dumps([{"ts": 1, "type": "say", "say": kind, "text": words} for kind, words in said])
    )
    session = home / ".cline/data/sessions/1/1.messages.json"
    session.parent.mkdir(parents=True)
    said_there = {"role": "user", "content": "<user_input>" * MANY}
    session.write_text(json.dumps({"messages": [said_there]}))
    told, _ = imported(home)
    assert {name: one["new"] for name, one in told.items()} == {"claude": 1, "codex": 1, "cline": 2}


# -- Ctrl-C -----------------------------------------------------------------------------------


def packed_rollout(home: Path) -> Path:
    return bomb(home, UNPACKED_BYTES)


def database(home: Path) -> Path:
    slow_database(home)
    return home / ".local/share/opencode/opencode.db"


def open_files(process: int) -> set[Path]:
    found = set()
    for file in Path(f"/proc/{process}/fd").iterdir():
        with suppress(FileNotFoundError):  # it is closed by now
            found.add(file.readlink())
    return found


def seconds_of(process: int) -> float:
    """The processor time that a process has used."""
    used = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[11:13]
    return sum(map(int, used)) / os.sysconf("SC_CLK_TCK")


@pytest.mark.parametrize("make", [packed_rollout, database])
def test_a_ctrl_c_ends_an_import_in_the_middle_of_a_file(
    home: Path, make: Callable[[Path], Path], until: Until
) -> None:
    """Within a second of its work, however large the file is: that would take several."""
    path = make(home)
    only = import_command(home, "--agent", "codex" if path.suffix == ".zst" else "opencode")
    with subprocess.Popen(only, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as importing:
        try:
            until(lambda: path in open_files(importing.pid))
            ended = resource.getrusage(resource.RUSAGE_CHILDREN)
            used = seconds_of(importing.pid)
            importing.send_signal(signal.SIGINT)
            _, complaints = importing.communicate(timeout=SECONDS)
        finally:
            importing.kill()
    assert importing.returncode == 130
    now = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert now.ru_utime + now.ru_stime - ended.ru_utime - ended.ru_stime - used < 1
    told = complaints.decode()
    assert told.strip().startswith("Interrupted; all that was read is kept."), told
    assert "Traceback" not in told
