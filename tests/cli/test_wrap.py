"""`acphold wrap` as a command: options, stdout, imports, and the terminal."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import stat
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from acphold.imports import NAMES, reader
from acphold.known_agents import KNOWN_AGENTS
from tests.cli.command_line import CommandLine
from tests.conftest import Defaults
from tests.editor import SCRIPTED, editor, introduced, scripted_agent, wrap_command
from tests.imports.told import write_lines
from tests.owners import lone_command
from tests.watched_processes import folder_contents

HEAVY = {
    "_hashlib",
    "click",
    "cryptography",
    "hashlib",
    "ipaddress",
    "mcp",
    "pathlib",
    "prompt_toolkit",
    "psycopg",
    "pydantic",
    "random",
    "rich",
    "secrets",
    "ssl",
    "urllib",
    "starlette",
    "uvicorn",
    "websockets",
}
"""Modules that take too long to import while an editor waits."""


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """`acphold` with these arguments and nothing to read."""
    return subprocess.run(
        [sys.executable, "-m", "acphold", *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=30,
    )


# -- options ------------------------------------------------------------------------------------


UNUSABLE = (
    (["--unstable"], ["unrecognized arguments: --unstable"]),
    (["--name", " "], ["--name", "a name is required"]),
    (["--log-level", "loud"], ["--log-level", "'loud'", "warning"]),
    (["--no-such"], ["--no-such", "--help"]),
    (["--journal"], ["--journal", "--help"]),
    (["-x"], ["-x", "--help"]),
    (["gemini"], ["give either the agent gemini or a command after `--`", "not both"]),
)


def test_a_value_that_cannot_be_used_is_told_in_a_sentence_with_exit_code_2(
    acphold: CommandLine,
) -> None:
    for place, (options, words) in enumerate(UNUSABLE):
        start = acphold.run if place else acphold.run_as_process
        done = start("wrap", *options, "--", sys.executable, "-c", "")
        assert (done.code, done.out) == (2, ""), options
        (sentence,) = done.err.splitlines()
        assert sentence.startswith("acphold wrap: ")
        assert all(word in sentence for word in words), sentence
        assert sentence.count("see `acphold wrap --help`") <= 1, sentence


async def test_sizes_have_units(journal: Path, defaults: Defaults) -> None:
    defaults(max_message="2K")
    command = wrap_command(scripted_agent())
    async with editor(command, journal=journal) as client:
        client.send_line(b"y" * 2049)
        refused = await client.until(lambda: client.messages)
        assert "limit of 2048" in refused[0]["error"]["message"]
        await client.initialize()


async def test_the_journal_option_goes_over_the_environment(journal: Path, tmp_path: Path) -> None:
    other = tmp_path / "deep" / "er" / "other.db"
    command = wrap_command(scripted_agent(), "--journal", f"sqlite:///{other}")
    async with introduced(command, journal=journal) as client:
        await client.new()
        assert await client.leave() == 0
    assert other.exists()
    assert "journal.db" not in os.listdir(tmp_path)
    assert stat.S_IMODE(other.stat().st_mode) == 0o600
    assert stat.S_IMODE(other.parent.stat().st_mode) == 0o700


@pytest.mark.parametrize(
    ("options", "name"),
    [((), r"/agent-\xff.py"), (("--name", os.fsdecode(b"mine \xff")), "mine \ufffd")],
)
async def test_an_agent_whose_command_line_is_no_text_has_sessions_like_any_other(
    journal: Path,
    tmp_path: Path,
    acphold: CommandLine,
    options: tuple[str, ...],
    name: str,
) -> None:
    program = os.fsdecode(os.fsencode(tmp_path) + b"/agent-\xff.py")
    os.symlink(SCRIPTED, program)
    python, *flags, _, _ = scripted_agent()
    agent = [python, *flags, program, json.dumps({"info": None})]
    for _ in range(2):
        async with introduced(wrap_command(agent, *options), journal=journal) as client:
            before = await client.sessions()
            session = await client.talk("Hello")
            assert len(await client.sessions()) == len(before) + 1
    infos = [json.loads(line) for line in acphold.run("list", "--json").out.splitlines()]
    assert len(infos) == 2
    assert session in {info["sessionId"] for info in infos}
    assert {info["agent"].endswith(name) for info in infos} == {True}


async def test_the_name_option_is_what_the_sessions_are_kept_under(
    journal: Path, acphold: CommandLine
) -> None:
    ids = []
    for name in ("mine", "mine", "other"):
        command = wrap_command(scripted_agent(), "--name", name)
        async with introduced(command, journal=journal) as client:
            ids.append(await client.new())
            await client.prompt(ids[-1], {"say": "hi"})
            listed = [session["sessionId"] for session in await client.sessions()]
            assert await client.leave() == 0
    assert listed == [ids[2]]
    done = acphold.run("list", "--json", "--agent", "mine")
    assert {json.loads(line)["sessionId"] for line in done.out.splitlines()} == {*ids[:2]}


async def said_outside(journal: Path, home: Path, name: str, *, waits: bool = False) -> list[str]:
    """Run `wrap` as agent `name` beside a conversation of Gemini CLI; the ids that it lists."""
    write_lines(
        home / ".gemini/tmp/p/chats/session-2026-01-02T03-04-aaaaaaaa.jsonl",
        {"sessionId": "outside", "startTime": "2026-01-02T03:04:05Z"},
        {"id": "1", "type": "user", "content": [{"text": "Said outside."}]},
    )
    command = wrap_command(scripted_agent(info={"name": name, "version": "1"}))
    with pytest.MonkeyPatch.context() as changed:
        changed.setenv("HOME", str(home))
        changed.delenv("GEMINI_CLI_HOME", raising=False)
        async with introduced(command, journal=journal) as client:
            for _ in range(600):
                found = await client.sessions()
                if found or not waits:
                    break
                await asyncio.sleep(0.05)
            assert await client.leave() == 0
    return [session["sessionId"] for session in found]


async def test_what_was_said_to_the_agent_outside_of_acphold_comes_in_beside_it(
    journal: Path, tmp_path: Path
) -> None:
    listed = await said_outside(journal, tmp_path, "gemini-cli", waits=True)
    assert listed == ["outside"]


async def test_nothing_is_imported_for_who_does_not_want_it(
    journal: Path, tmp_path: Path, defaults: Defaults
) -> None:
    defaults(no_import=True)
    assert await said_outside(journal, tmp_path, "gemini-cli") == []


def test_each_agent_with_a_reader_is_known_by_what_it_calls_itself() -> None:
    readers = {reading.name: reading.key for reading in map(reader, NAMES)}
    imported = {known.name: known for known in KNOWN_AGENTS.values() if known.is_imported}
    assert {name: known.keys[0] for name, known in imported.items()} == {
        name: key for name, key in readers.items() if name in KNOWN_AGENTS
    }


async def test_the_log_file_gets_our_log_and_the_agents_stderr(
    journal: Path, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    command = wrap_command(scripted_agent(), "--log-file", str(log), "--log-level", "info")
    async with introduced(command, journal=journal) as client:
        session = await client.new()
        client.send_line(b"garbage from the client")
        await client.prompt(session, {"stderr": "said the agent"})
        assert await client.leave() == 0
    text = log.read_text()
    assert "from the client: not JSON" in text
    assert "said the agent" in text
    assert stat.S_IMODE(log.stat().st_mode) == 0o600
    assert b"not JSON" not in client.stderr


async def test_a_log_file_that_cannot_be_written_is_told_and_everything_else_works(
    journal: Path, tmp_path: Path
) -> None:
    log = tmp_path / "no" / "log"
    command = wrap_command(scripted_agent(), "--log-file", str(log))
    async with introduced(command, journal=journal) as client:
        client.send_line(b"garbage from the client")
        await client.talk({"say": "hi"})
        assert await client.leave() == 0
    assert str(log) in client.stderr.decode()
    assert b"from the client: not JSON" in client.stderr


async def test_environment_values_of_mcp_servers_reach_no_file_and_no_log(
    journal: Path, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    command = wrap_command(scripted_agent(), "--log-file", str(log), "--log-level", "debug")
    secret = {"name": "TOKEN", "value": "hush-hush"}
    server = {"name": "s", "command": "/bin/true", "args": [], "env": [secret]}
    async with introduced(command, journal=journal) as client:
        session = await client.new(mcpServers=[server])
        await client.prompt(session, {"say": "hi"})
        line = json.dumps({"method": "session/new", "params": {"mcpServers": [server]}})
        client.send_line(line.encode() + b" broken")
        client.send_line(line.encode()[:-1])
        await client.load(session, mcpServers=[server])
        assert await client.leave() == 0
    for name, content in folder_contents(tmp_path).items():
        assert b"hush-hush" not in content, name
    assert b"hush-hush" not in client.stderr


# -- imports ------------------------------------------------------------------------------------

MODULES = """
import atexit, os, sys

def write():
    with open(os.environ["MODULES"], "w") as file:
        file.write("\\n".join(sys.modules))

atexit.register(write)
"""


async def test_a_session_through_wrap_imports_nothing_heavy(journal: Path, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(MODULES)
    found = tmp_path / "modules"
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    agent = [sys.executable, "-I", *scripted_agent()[1:]]
    environment = {"PYTHONPATH": path, "MODULES": str(found)}
    async with introduced(lone_command(agent), journal=journal, env=environment) as client:
        session = await client.talk({"say": "hi"})
        await client.load(session)
        await client.sessions()
        assert await client.leave() == 0
    modules = set(found.read_text().split())
    assert "acphold.live.server.connection" in modules
    assert HEAVY & modules == set()


def test_importing_acphold_imports_nothing_heavy() -> None:
    code = "import sys, acphold; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not HEAVY & set(done.stdout.split())


# -- on a terminal ------------------------------------------------------------------------------


def on_terminal(*command: str) -> tuple[int, str]:
    """Run it with a terminal as its stdin; the exit status, and all that it printed."""
    ours, theirs = pty.openpty()
    try:
        done = subprocess.run(
            [sys.executable, "-m", "acphold", "wrap", "--", *command],
            stdin=theirs,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=30,
            start_new_session=True,
        )
    finally:
        os.close(ours)
        os.close(theirs)
    return done.returncode, done.stdout


def test_on_a_terminal_the_program_itself_runs_as_for_signing_in() -> None:
    code = "import sys; print('terminal', sys.stdin.isatty(), sys.argv[1:]); sys.exit(5)"
    status, output = on_terminal(sys.executable, "-c", code, "login", "--now")
    assert status == 5
    assert "terminal True ['login', '--now']" in output
    assert "runs without acphold" in output


def test_on_a_terminal_a_program_that_does_not_exist_is_told() -> None:
    status, output = on_terminal("no-such-agent")
    assert status == 127
    assert "cannot start 'no-such-agent'" in output


def test_with_options_on_a_terminal_it_says_what_it_waits_for(acphold: CommandLine) -> None:
    # \x04 ends the input of a terminal.
    shown = acphold.on_terminal("wrap", "--log-level", "info", "--", "true", typed=b"\x04")
    assert shown.code == 0
    assert "waiting for an editor on stdin" in shown.out


def test_what_few_sessions_need_is_not_imported_while_the_editor_waits() -> None:
    modules = "sys, acphold.faces.cli.wrap, acphold.journal.sqlite.store"
    code = f"import {modules}; print(*sys.modules)"
    imported = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    late = {
        "acphold.faces.cli.settings",
        "acphold.live.hub.forks",
        "acphold.journal.hits",
        "acphold.journal.sql.list_filters",
        "acphold.journal.sql.usage_sums",
        "acphold.mcp_servers.bridge",
        "acphold.machine.own_program",
    }
    assert [name for name in late if find_spec(name) is None] == []
    assert late.isdisjoint(imported.stdout.decode().split())
