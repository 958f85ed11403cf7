"""`ask` and `chat` set up the session: MCP servers, mode, options."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from acp_wire.schema import EnvVariable, HttpHeader, McpServerHttp, McpServerSse, McpServerStdio
from acphold.faces.cli.command_line import Exit, UsageError
from acphold.faces.cli.session_setup import setup_of
from tests.cli.command_line import ACPHOLD, SECONDS, CommandLine
from tests.library.conftest import SERVER

pytestmark = pytest.mark.slow

AGENT = """\
import acphold

agent = acphold.Agent("adjustable", version="1")
agent.mode("ask", "Ask first")
agent.mode("code", "Write code")
agent.option("model", default="small", values=["small", ("large", "The large one")])
agent.option("careful", default=False)


@agent.prompt
async def work(turn: acphold.Turn) -> None:
    mode, options = turn.session.mode, turn.session.config_options
    await turn.say(f"{mode} {options['model']} {options['careful']}: ")
    for name in turn.mcp:
        result = await turn.mcp.call(name, "echo", {"message": turn.text})
        await turn.say(f"{name} says {result.text}")


agent.run()
"""


@pytest.fixture
def program(tmp_path: Path) -> list[str]:
    """The command of an agent with modes, options and MCP servers."""
    (file := tmp_path / "adjustable.py").write_text(AGENT)
    return [sys.executable, str(file)]


def config(tmp_path: Path) -> Path:
    """A file of MCP servers, with comments, as editors have it."""
    file = tmp_path / "mcp.json"
    server = {"command": "${PYTHON:-" + sys.executable + "}", "args": ["-S", "-E", str(SERVER)]}
    file.write_text('{ // for tests\n"mcpServers": {"test": ' + json.dumps(server) + ",}}")
    return file


def test_ask_opens_a_session_with_these_servers_this_mode_and_these_options(
    acphold: CommandLine, tmp_path: Path, program: list[str]
) -> None:
    options = ["--mcp-config", str(config(tmp_path)), "--mode", "Write code"]
    options += ["--option", "model=large", "--option", "careful=on"]
    done = acphold.run("ask", "hi", *options, "--", *program)
    assert (done.code, done.out) == (Exit.OK, "code large True: \ntest says hi\n"), done.err
    # Settings are kept; a server counts only for the run that names it.
    again = acphold.run("ask", "hi", "--continue", "--mode", "ask", "--", *program)
    assert (again.code, again.out) == (Exit.OK, "ask large True: \n"), again.err


def test_chat_in_a_pipe_does_so_too(
    acphold: CommandLine, tmp_path: Path, program: list[str]
) -> None:
    given = ["--mcp-config", config(tmp_path).read_text(), "--mode", "code", "--option=model=large"]
    done = subprocess.run(
        [*ACPHOLD, "chat", *given, "--", *program],
        input=b"hi\n",
        capture_output=True,
        env=acphold.environment,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == Exit.OK, done.stderr
    assert b"agent: code large False:" in done.stdout
    assert b"agent: test says hi" in done.stdout


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--mode", "plan"], "--mode: this session has no 'plan'; it has ask, code"),
        (
            ["--option", "models=x"],
            "--option: this session has no 'models'; it has mode, model, careful",
        ),
        (["--option", "model=x"], "--option model: this session has no 'x'; it has small, large"),
        (["--option", "careful=x"], "--option careful: this session has no 'x'; it has on, off"),
    ],
)
def test_what_the_agent_does_not_have_is_told_with_what_it_has(
    acphold: CommandLine, program: list[str], options: list[str], told: str
) -> None:
    done = acphold.run("ask", "hi", *options, "--", *program)
    assert (done.code, done.out) == (Exit.USAGE, "")
    assert told in done.err


def test_servers_are_read_as_other_programs_write_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KEY", "secret")
    servers = {
        "local": {"command": sys.executable, "args": ["-m", "it"], "env": {"TOKEN": "${KEY}"}},
        "far": {"type": "http", "url": "https://x/mcp", "headers": {"Authorization": "${KEY}"}},
        "old": {"type": "sse", "url": "https://${HOST_OF_IT:-y}/sse"},
        "plain": {"url": "https://z/mcp"},
    }
    (file := tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": servers}))
    replaced = json.dumps({"servers": {"plain": {"url": "https://other/mcp"}}})
    found = setup_of([str(file), replaced], None, []).servers
    assert found == (
        McpServerStdio(
            name="local",
            command=sys.executable,
            args=("-m", "it"),
            env=(EnvVariable(name="TOKEN", value="secret"),),
        ),
        McpServerHttp(
            name="far",
            url="https://x/mcp",
            headers=(HttpHeader(name="Authorization", value="secret"),),
        ),
        McpServerSse(name="old", url="https://y/sse", headers=()),
        McpServerHttp(name="plain", url="https://other/mcp", headers=()),
    )


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("no-such.json", "--mcp-config no-such.json: No such file or directory"),
        ("/dev/zero", "--mcp-config /dev/zero: it is a device, not a file"),
        ("{}", "no servers found; list them in"),
        ('{"mcpServers": 1}', "--mcp-config: Expected `object`"),
        ('{"mcpServers": {"a": {}}}', "--mcp-config: a: a server needs a command or a url"),
        (
            '{"mcpServers": {"a": {"command": "no-such-x"}}}',
            "a: the program 'no-such-x' was not found",
        ),
        (
            '{"mcpServers": {"a": {"url": "${NO_SUCH_X}"}}}',
            "the environment variable NO_SUCH_X is not set",
        ),
        ('{"mcpServers": ', "--mcp-config: "),
    ],
)
def test_a_configuration_that_cannot_be_used_is_refused_with_the_reason(
    given: str, told: str
) -> None:
    with pytest.raises(UsageError) as refused:
        setup_of([given], None, [])
    assert told in str(refused.value)


def test_an_option_has_a_name_and_a_value() -> None:
    assert setup_of([], None, ["a=b=c"]).options == (("a", "b=c"),)
    for given in ("model", "=x"):
        with pytest.raises(UsageError, match="NAME=VALUE"):
            setup_of([], None, [given])
