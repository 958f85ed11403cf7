"""With the base alone each command works, or says in one line which extra it needs."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

import pytest

from acphold import connect
from acphold.extras import EXTRAS
from tests.cli.command_line import SECONDS, CommandLine, several
from tests.editor import editor, scripted_agent, wrap_command
from tests.hidden_packages import without
from tests.web.conftest import serving

pytestmark = pytest.mark.slow

PROJECT = Path(__file__).parents[1] / "pyproject.toml"
ECHO = PROJECT.parent / "examples" / "echo.py"
DEMO_AGENT = (sys.executable, "-m", "acphold", "agent", "demo")


@pytest.fixture
def acphold(journal: Path) -> CommandLine:
    return CommandLine(journal)


@pytest.fixture
def base(tmp_path: Path) -> Mapping[str, str]:
    """The environment of an installation without any extra."""
    return without((name for names in EXTRAS.values() for name in names), tmp_path / "hiding")


def test_the_packages_of_each_extra_are_those_that_it_installs() -> None:
    declared = tomllib.loads(PROJECT.read_text())["project"]["optional-dependencies"]
    distributions = packages_distributions()
    for extra, packages in EXTRAS.items():
        wanted = {re.split(r"[^\w.-]", text)[0].lower() for text in declared[extra]}
        for package in packages:
            names = {re.sub(r"[-_.]+", "-", name).lower() for name in distributions[package]}
            assert names & wanted, package
            wanted -= names
        assert not wanted
    assert {*re.findall(r"\w+", declared["all"][0])} == {"acphold", *EXTRAS}


NEEDY = (
    ("serve", "serve", ("serve", "--", *DEMO_AGENT)),
    ("serve", "serve", ("serve", "--phone")),
    ("access pair", "serve", ("access", "pair")),
    ("a connection to a server", "serve", ("connect", "https://host.example")),
    ("a connection to a server", "serve", ("check", "--server", "https://host.example")),
    ("mcp", "mcp", ("mcp",)),
    ("mcp-bridge", "mcp", ("mcp-bridge",)),
    ("a postgresql:// journal", "postgres", ("list", "--journal", "postgresql://host/x")),
)
"""The commands that need an extra: the feature, the extra, and the words."""


def test_a_command_that_lacks_its_extra_says_in_one_line_what_installs_it(
    acphold: CommandLine, base: Mapping[str, str]
) -> None:
    done = subprocess.run(
        several(*((words, {}) for _, _, words in NEEDY)),
        env={**acphold.environment, **base},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.stdout == ""
    assert done.stderr.splitlines() == [
        line
        for needy, extra, _ in NEEDY
        for line in (
            f"acphold: {needy} needs: pip install 'acphold[{extra}]' (the same with `pipx install "
            "--force` or `uv tool install`, or in a checkout ACPHOLD_FOLDERS=1 and '.[all]')",
            "exit code 2",
        )
    ]


def test_a_server_that_lacks_its_extra_starts_no_agent(
    acphold: CommandLine, base: Mapping[str, str], tmp_path: Path
) -> None:
    started = tmp_path / "started"
    assert acphold.run_as_process("serve", "--", "touch", str(started), **base).code == 2
    assert not started.exists()


def test_every_command_has_its_help_without_any_extra(base: Mapping[str, str]) -> None:
    code = """
from acphold.faces.cli.main import COMMANDS, parser_of
for name in COMMANDS:
    parser_of(name).format_help()
print("all of them")
"""
    done = subprocess.run(
        [sys.executable, "-c", code], env={**base}, capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.stderr) == ("all of them\n", "")


def test_sessions_are_held_found_and_read_without_any_extra(
    acphold: CommandLine, base: Mapping[str, str]
) -> None:
    asked = acphold.run_as_process("ask", "hello there", "--", *DEMO_AGENT, **base)
    assert asked.code == 0, asked.err
    listed = acphold.run_as_process("list", "--all", "--json", **base)
    assert len(listed.out.splitlines()) == 1
    assert "hello there" in acphold.run_as_process("search", "hello", **base).out
    told = acphold.run_as_process("doctor", **base)
    assert told.code == 0
    assert "extras: none; not installed: serve, mcp, postgres, otel" in " ".join(told.out.split())


HTTP: dict[str, Any] = {"type": "http", "name": "far", "url": "http://127.0.0.1:1/", "headers": []}
STDIO: dict[str, Any] = {"name": "near", "command": "/bin/cat", "args": [], "env": []}


@pytest.mark.parametrize("own", [False, True])
async def test_a_wrapped_agent_is_advertised_with_the_mcp_servers_that_it_reaches_itself(
    journal: Path, base: Mapping[str, str], *, own: bool
) -> None:
    told = {"mcpCapabilities": {"http": own}}
    command = wrap_command(scripted_agent(capabilities=told))
    async with editor(command, journal=journal, env=base) as first:
        can = (await first.initialize())["agentCapabilities"]
        assert can["mcpCapabilities"] == {"http": own}
        await first.new(mcpServers=[STDIO])
        if own:
            await first.new(mcpServers=[HTTP])
        else:
            refused = await first.refused("session/new", {"cwd": "/", "mcpServers": [HTTP]})
            assert "mcpServers[0]" in refused.message
            assert "pip install 'acphold[mcp]'" in refused.message


async def test_an_editor_is_told_why_wrap_cannot_give_its_agent_what_recall_needs(
    journal: Path, base: Mapping[str, str]
) -> None:
    command = wrap_command(DEMO_AGENT, "--recall")
    async with editor(command, journal=journal, env=base) as first:
        refused = await first.refused("initialize", {"protocolVersion": 1})
        assert refused.message.startswith("--recall needs: pip install 'acphold[mcp]'")


def test_an_agent_of_the_library_advertises_no_mcp_servers_that_it_cannot_reach(
    base: Mapping[str, str],
) -> None:
    code = """
import acphold
from acphold.library.definition import capabilities_of, introduction
definition = acphold.Agent("a", version="1")._definition
print(introduction(definition, capabilities_of(definition)).decode())
"""
    said = subprocess.check_output([sys.executable, "-c", code], env={**base}, text=True)
    assert not any(json.loads(said)["agentCapabilities"].get("mcpCapabilities", {}).values())


async def test_a_client_is_told_why_an_agent_of_the_library_cannot_reach_its_servers(
    journal: Path, base: Mapping[str, str]
) -> None:
    agent = (sys.executable, "-m", "acphold", "agent", "run", str(ECHO))
    async with editor(agent, journal=journal, env=base) as first:
        await first.initialize()
        session = await first.new(mcpServers=[STDIO])
        await first.prompt(session, "hello")
        assert "pip install 'acphold[mcp]'" in json.dumps(first.updates(session))


@pytest.mark.parametrize(
    ("code", "extra"),
    [
        ("import acphold.otel", "otel"),
        (
            "import acphold.sync\nwith acphold.sync.connect('https://host.example'): pass",
            "serve",
        ),
    ],
)
def test_a_program_is_told_what_to_install(base: Mapping[str, str], code: str, extra: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", code], env={**base}, capture_output=True, text=True, check=False
    )
    assert "MissingExtraError: a" in done.stderr
    assert f"pip install 'acphold[{extra}]'" in done.stderr


async def test_a_server_runs_with_its_own_extra_alone(tmp_path: Path) -> None:
    others = ("mcp", "mcp_types", "psycopg", "pydantic", "opentelemetry")
    with serving(tmp_path, variables=without(others, tmp_path / "hiding")) as served:
        async with connect(served.url, token=served.token()) as agent:
            session = await agent.new_session(cwd=tmp_path)
            assert (await session.prompt("quick one")).text == "You said: quick one"


def test_the_mcp_server_runs_with_its_own_extra_alone(acphold: CommandLine, tmp_path: Path) -> None:
    others = ("http_ece", "httptools", "psycopg", "segno", "websockets")
    hello: dict[str, Any] = {"protocolVersion": "2025-06-18", "capabilities": {}}
    hello["clientInfo"] = {"name": "test", "version": "1"}
    asked = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}
    done = subprocess.run(
        [sys.executable, "-m", "acphold", "mcp"],
        input=json.dumps(asked) + "\n",
        env={**acphold.environment, **without(others, tmp_path / "hiding")},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert json.loads(done.stdout)["result"]["serverInfo"]["name"] == "acphold", done.stderr
