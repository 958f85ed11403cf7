"""`acphold agent run`, `agent.run()`, and an editor's view of both."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from acphold.machine.own_program import own_command
from tests.cli.command_line import several
from tests.editor import editor, introduced

ECHO = """
import acphold

if __name__ != "__main__":
    print("printed while it is imported")
agent = acphold.Agent("echo", version="1.0")

@agent.prompt
async def echo(turn: acphold.Turn) -> None:
    print("printed in a turn")
    await turn.say(turn.text)

agent.run()
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """An agent that prints."""
    (path := tmp_path / "my_agent.py").write_text(ECHO)
    return path


def acphold(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "acphold", *arguments]


async def hears_itself(command: list[str], journal: Path) -> None:
    """The agent behind `command` answers, and nothing but ACP is on its stdout.

    `journal` is where ACPHOLD_JOURNAL points to.
    """
    async with editor(command, journal=journal) as client:
        hello = await client.initialize()
        assert hello["agentInfo"] == {"name": "echo", "version": "1.0"}
        await client.talk("hello")
        assert client.text() == "hello"
        assert await client.leave() == 0
        assert b"printed in a turn" in client.stderr


async def test_an_agent_is_run_as_a_program(file: Path, journal: Path) -> None:
    await hears_itself([sys.executable, str(file)], journal)


EXITS = """
import asyncio, acphold

agent = acphold.Agent("exits", version="1.0")

async def leave() -> None:
    raise {error}

@agent.prompt
async def answer(turn: acphold.Turn) -> None:
    if turn.text == "leave":
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(leave())
    await turn.say("still here")
"""


@pytest.mark.parametrize("error", ["SystemExit(3)", "KeyboardInterrupt"])
async def test_a_task_of_the_authors_that_exits_ends_its_turn_and_not_the_process(
    tmp_path: Path, journal: Path, error: str
) -> None:
    (file := tmp_path / "exits.py").write_text(EXITS.format(error=error))
    async with introduced(acphold("agent", "run", str(file)), journal=journal) as client:
        session_id = await client.new()
        params = {"sessionId": session_id, "prompt": [{"type": "text", "text": "leave"}]}
        refused = await client.refused("session/prompt", params)
        assert "internal error" in refused.message
        await client.prompt(session_id, "go on")
        assert client.text() == "still here"
        assert await client.leave() == 0


async def test_a_module_of_the_folder_is_run_only_if_there_is_no_other(
    file: Path, journal: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project := tmp_path / "project").mkdir()
    for name in ("my_agent", "sqlite3"):
        (project / f"{name}.py").write_text(f"print('{name} was run', flush=True)\n")
    monkeypatch.chdir(project)
    monkeypatch.setenv("PYTHONPATH", str(file.parent))
    async with introduced(
        own_command("agent", "run", "my_agent:agent"), journal=journal, cwd=project
    ) as client:
        await client.talk("hello")
    assert b"was run" not in client.stderr
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "nothing"))
    command = own_command("agent", "run", "my_agent")
    async with editor(command, journal=journal, cwd=project) as client:
        await client.ended()
    assert b"my_agent was run" in client.stderr


async def test_options_stand_before_or_behind_the_agent(file: Path, tmp_path: Path) -> None:
    option = f"--journal={tmp_path / 'other.db'}"
    for command in (
        acphold("agent", "run", option, str(file)),
        acphold("agent", "run", f"{file}:agent", option),
    ):
        await hears_itself(command, tmp_path / "unused.db")
    made = os.listdir(tmp_path)
    assert "other.db" in made
    assert "unused.db" not in made


CANNOT_BE_RUN = (
    ((), 2, "arguments are required: MODULE:NAME"),
    (("a", "b"), 2, "unrecognized arguments: b"),
    (("my_agent", "--what"), 2, "unrecognized arguments: --what"),
    (("missing.py",), 5, "there is no file /"),
    (("missing_module",), 5, "No module named 'missing_module'"),
    (("my_agent.py:other",), 5, "my_agent.py has nothing called 'other'"),
    (("my_agent.py:echo",), 5, "has a function called 'echo'; it must be an acphold.Agent"),
    (("broken",), 5, ": ZeroDivisionError: division by zero"),
    (("broken.py",), 5, ": ZeroDivisionError: division by zero"),
    (("torn.py",), 5, "SyntaxError: invalid syntax (torn.py, line 3)"),
    (("behind.py",), 5, "cannot import behind.py: ModuleNotFoundError: "),
    (("lacking.py",), 5, "ModuleNotFoundError: No module named 'xyz'"),
    (("leaves.py",), 5, "cannot import leaves.py: SystemExit: 4"),
    (("silent.py",), 5, "answers no prompts"),
)
"""Arguments, their exit code, and their output."""


def test_what_cannot_be_run_is_reported(file: Path) -> None:
    for name, code_in_it in {
        "broken": "x = 0\n1 / x\n",
        "torn": "\n\ndef (:\n",
        "lacking": "import os\nimport xyz\n",
        "behind": "import lacking\n",
        "leaves": "raise SystemExit(4)\n",
    }.items():
        (file.parent / f"{name}.py").write_text(code_in_it)
    (file.parent / "silent.py").write_text(
        'import acphold\nagent = acphold.Agent("silent", version="1")\n'
    )
    tries = several(*((("agent", "run", *arguments), {}) for arguments, _, _ in CANNOT_BE_RUN))
    done = subprocess.run(
        tries, cwd=file.parent, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True
    )
    assert done.stdout == ""
    *told, _ = re.split(r"exit code (\d)\n", done.stderr)
    for (arguments, code, why), said, ended in zip(
        CANNOT_BE_RUN, told[::2], told[1::2], strict=True
    ):
        assert (int(ended), why in said) == (code, True), (arguments, said)
    assert "Traceback" not in done.stderr
    assert "ERROR" not in done.stderr, "it is told, and no line of a log"


async def test_a_journal_that_cannot_be_opened_is_reported_to_the_editor(
    file: Path, tmp_path: Path
) -> None:
    (torn := tmp_path / "torn.db").write_bytes(b"this is no journal, whatever its name" * 100)
    async with editor(acphold("agent", "run", str(file)), journal=torn) as client:
        await client.initialize()  # answered before the journal is opened
        refused = await client.refused("session/new", {"cwd": "/", "mcpServers": []})
        assert "not a" in refused.message
    assert torn.read_bytes().startswith(b"this is no journal")


def test_a_terminal_is_told_that_an_editor_is_wanted(file: Path, journal: Path) -> None:
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, str(file)],
        stdin=theirs,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "ACPHOLD_JOURNAL": str(journal)},
    )
    os.close(theirs)
    try:
        assert process.stderr is not None
        assert b"waits for an editor on stdin" in process.stderr.readline()
    finally:
        os.close(ours)  # it leaves with its terminal
        process.communicate(timeout=20)
    assert process.returncode in (0, -signal.SIGHUP)


def test_importing_the_package_imports_neither_the_library_nor_what_is_optional() -> None:
    code = (
        "import sys, acphold; early = set(sys.modules); acphold.Agent;"
        "heavy = {'mcp', 'pydantic', 'click', 'rich', 'starlette', 'httpx2', 'anyio'};"
        "print(sorted(heavy & set(sys.modules)), 'asyncio' in early,"
        " 'acp_wire.workspace.files' in sys.modules, 'acphold.live.agents.wrapped' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[] False False False"


def test_what_few_agents_need_is_not_imported_while_the_editor_waits() -> None:
    late = {
        "acphold.library.method_help",
        "acphold.library.session_servers",
        "acphold.live.lines.line",
        "acphold.mcp_servers.transports",
        "acp_wire.processes.program",
        "acphold.live.server.far_line",
    }
    assert [name for name in late if find_spec(name) is None] == []
    code = "import sys, acphold; acphold.Agent; print(*sys.modules)"
    imported = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert late.isdisjoint(imported.stdout.decode().split())


RARE = """
import sys

sys.modules["typing_extensions"] = None  # msgspec imports it where there is one, and it `inspect`
import acphold

agent = acphold.Agent("rare", version="1.0")

@agent.prompt
async def answer(turn: acphold.Turn) -> None:
    await turn.say(" ".join({*turn.text.split()} & {*sys.modules}))

agent.run()
"""


async def test_a_plain_turn_needs_nothing_of_python_that_only_errors_and_programs_need(
    tmp_path: Path, journal: Path
) -> None:
    (file := tmp_path / "rare.py").write_text(RARE)
    async with introduced([sys.executable, str(file)], journal=journal) as client:
        await client.talk("ast dis inspect locale ssl subprocess tokenize asyncio")
        assert client.text() == "asyncio"


WRITES = """
import os, sys

def write(fd, data, write=os.write):
    print(*sys.modules, file=sys.stderr)
    os._exit(0)

os.write = write
"""


def answers(file: Path, journal: Path, *lines: str) -> list[dict[str, Any]]:
    """What an agent says to lines that are there before it starts, and are all."""
    done = subprocess.run(
        [sys.executable, str(file)],
        input="\n".join([*lines, ""]).encode(),
        env={**os.environ, "ACPHOLD_JOURNAL": str(journal)},
        capture_output=True,
        check=True,
        timeout=30,
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


def initialize(params: dict[str, Any]) -> str:
    return json.dumps({"jsonrpc": "2.0", "id": "a", "method": "initialize", "params": params})


NEW = '{"jsonrpc":"2.0","id":2,"method":"session/new","params":{"cwd":"/","mcpServers":[]}}'


def test_initialize_is_answered_before_what_sessions_need_is_loaded(
    file: Path, tmp_path: Path
) -> None:
    (tmp_path / "sitecustomize.py").write_text(WRITES)
    done = subprocess.run(
        [sys.executable, str(file)],
        input=initialize({"protocolVersion": 1}).encode() + b"\n",
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        check=True,
    )
    loaded = done.stderr.decode().split()
    assert "acphold.library.agent" in loaded
    late = {"sqlite3", "ssl", "acphold.live.hub", "acphold.live.server", "acphold.journal"}
    assert late.isdisjoint(loaded)


@pytest.mark.parametrize(
    "params",
    [
        {"protocolVersion": 1},
        {"protocolVersion": 2, "info": {"name": "v", "version": "2"}, "capabilities": {}},
        {"protocolVersion": 1, "clientCapabilities": {"_meta": {"acphold/positions": True}}},
        {"protocolVersion": [], "clientCapabilities": 1},
    ],
)
def test_the_early_answer_is_that_of_a_connection_and_what_follows_waits(
    file: Path, journal: Path, params: dict[str, Any]
) -> None:
    early = answers(file, journal, initialize(params), NEW)
    late = answers(file, journal, "", initialize(params), NEW)  # a blank line is not looked behind
    assert [each["id"] for each in early] == [each["id"] for each in late] == ["a", 2]
    assert early[0] == late[0]
    assert early[1].keys() == late[1].keys()


def test_no_garbage_is_looked_for_in_what_was_imported() -> None:
    code = (
        "import gc, acphold.quick_start; gc.collect(); looked = [];"  # it may be compiled by that
        "gc.callbacks.append(lambda *_: looked.append(1));"
        "acphold.Agent; kept = [[] for _ in range(100)];"
        "print(len(looked), gc.isenabled(), gc.get_freeze_count())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["0", "True", "0"]


def test_what_a_program_has_frozen_stays_frozen() -> None:
    code = (
        "import gc, acphold; gc.freeze(); before = gc.get_freeze_count();"
        "acphold.Agent; print(0 < before // 2 < gc.get_freeze_count() <= before)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "True"


async def test_an_agent_behind_wrap_is_listed_once_and_goes_on_after_a_restart(
    file: Path, journal: Path
) -> None:
    command = acphold("wrap", "--", *acphold("agent", "run", str(file)))
    async with introduced(command, journal=journal) as client:
        session_id = await client.talk("hello")
        assert [line["sessionId"] for line in await client.sessions()] == [session_id]
    async with introduced(command, journal=journal) as client:
        await client.load(session_id)
        await client.prompt(session_id, "again")
        assert client.text().endswith("again")
        assert [line["sessionId"] for line in await client.sessions()] == [session_id]
        assert "hello" not in str(client.updates()[-1]), "the agent itself remembers"
    async with introduced(acphold("agent", "run", str(file)), journal=journal) as client:
        assert await client.sessions() == [], "the one in front lists it"
        await client.load(session_id)
        assert client.text() == "helloagain"


PATIENCE = """
import gc
import acphold

agent = acphold.Agent("patient", version="1.0")
{before}

@agent.prompt
async def answer(turn: acphold.Turn) -> None:
    await turn.say(str(gc.get_threshold()[0]))

agent.run()
"""


@pytest.mark.parametrize(("before", "then"), [("", "10000"), ("gc.set_threshold(50_000)", "50000")])
async def test_garbage_is_looked_for_less_often_unless_the_author_has_said_when(
    tmp_path: Path, journal: Path, before: str, then: str
) -> None:
    (file := tmp_path / "patient.py").write_text(PATIENCE.format(before=before))
    async with introduced([sys.executable, str(file)], journal=journal) as client:
        await client.talk("when?")
        assert client.text() == then


STARTS = """
import gc
import acphold

agent = acphold.Agent("quick", version="1.0")
looked = []

@agent.prompt
async def answer(turn: acphold.Turn) -> None:
    await turn.say(str(looked.count(0)))

gc.collect()
gc.callbacks.append(lambda *_: looked.append(gc.get_freeze_count()))
agent.run()
"""


async def test_no_garbage_is_looked_for_in_what_a_start_imports(
    tmp_path: Path, journal: Path
) -> None:
    (file := tmp_path / "quick.py").write_text(STARTS)
    async with introduced([sys.executable, str(file)], journal=journal) as client:
        await client.talk("how often?")
        assert client.text() == "0"
