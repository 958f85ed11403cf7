"""Values of `env` and `headers` are never written anywhere."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.editor import Editor, open_params, received
from tests.owners import program

SECRET = "s3cr3t-value-that-must-not-be-written"

STDIO = {
    "name": "tool",
    "command": "/bin/cat",
    "args": [],
    "env": [{"name": "TOKEN", "value": SECRET}],
}
HTTP = {
    "type": "http",
    "name": "web",
    "url": "https://example.test",
    "headers": [{"name": "Authorization", "value": SECRET}],
}
CAN = {"mcpCapabilities": {"http": True}}


def written(folder: Path, but: Path) -> list[Path]:
    """The files below `folder` with the secret, except those that the agent wrote itself."""
    return [
        path
        for path in folder.rglob("*")
        if path.is_file() and path != but and SECRET.encode() in path.read_bytes()
    ]


async def test_values_of_env_and_headers_are_in_no_journal_log_or_error(
    journal: Path, tmp_path: Path
) -> None:
    agents_log, log = tmp_path / "agent.jsonl", tmp_path / "acphold.log"
    options = ("--log-level", "debug", "--log-file", str(log))
    agent: dict[str, Any] = {"capabilities": CAN, "log": str(agents_log)}
    servers = [STDIO, HTTP]
    async with program(journal, *options, **agent) as client:
        session = await client.talk({"say": "a"}, cwd="/", mcpServers=servers)
        with pytest.raises(Exception, match="exit status 3"):
            await client.prompt(session, {"exit": 3})
        await client.prompt(session, {"say": "b"})  # restored with the same servers
        assert received(agents_log, "session/new")[-1]["params"]["mcpServers"] == servers
        await client.leave()
        assert SECRET.encode() not in b"".join(client.lines)
        assert SECRET.encode() not in client.stderr
    async with program(journal, *options, **agent) as client:
        await client.load(session, "/", mcpServers=servers)
        await client.leave()
    assert log.exists()
    assert written(tmp_path, agents_log) == []


WRONG: tuple[dict[str, Any], ...] = (
    {**STDIO, "command": "no-such-program"},
    {**STDIO, "args": 5},
    {**STDIO, "env": [{"name": "A", "value": SECRET}, {"name": 5, "value": SECRET}]},
    {**STDIO, "env": {"TOKEN": SECRET}},
    {**STDIO, "env": SECRET},
    {**HTTP, "type": "sse", "url": 7},
    {**HTTP, "headers": [{"name": "A", "value": [SECRET]}]},
)


async def test_a_refusal_does_not_repeat_them(journal: Path, tmp_path: Path) -> None:
    log = tmp_path / "acphold.log"
    options = ("--log-level", "debug", "--log-file", str(log))
    async with program(journal, *options, capabilities=CAN) as client:
        for wrong in WRONG:
            params = {"cwd": "/", "mcpServers": [wrong]}
            error = await client.refused("session/new", params)
            assert error.code == -32602, wrong
            await client.refused("session/load", {**open_params("x", "/"), "mcpServers": [wrong]})
            assert SECRET.encode() not in b"".join(client.lines), wrong
            assert written(tmp_path, journal) == [], wrong
        await client.leave()
        assert SECRET.encode() not in client.stderr
    assert written(tmp_path, journal) == []


MALFORMED = (
    json.dumps({"mcpServers": [STDIO]})[:-4],
    json.dumps({"jsonrpc": "1.0", "id": 1, "params": {"mcpServers": [STDIO]}}),
    json.dumps([STDIO]),
)


async def refused(client: Editor, line: str) -> None:
    """Send this line, and wait for its answer."""
    before = len(client.messages)
    client.send_line(line.encode())
    await client.until(lambda: len(client.messages) > before)


async def test_a_malformed_line_of_the_client_is_not_written_into_the_log(
    journal: Path, tmp_path: Path
) -> None:
    log = tmp_path / "acphold.log"
    for options in (("--log-level", "debug", "--log-file", str(log)), ()):
        async with program(journal, *options) as client:
            for line in MALFORMED:
                await refused(client, line)
                assert written(tmp_path, journal) == [], line
            await client.leave()
            assert SECRET.encode() not in client.stderr
        assert written(tmp_path, journal) == []
