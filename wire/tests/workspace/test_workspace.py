"""Requests about files and terminals, answered on behalf of a client."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest

from acp_wire.errors import (
    AcpError,
    InvalidParamsError,
    MethodNotFoundError,
    OutsideRootsError,
    UnknownTerminalError,
)
from acp_wire.schema import CLIENT_METHODS
from acp_wire.workspace.workspace import Workspace
from tests.watched_processes import until


async def ask(workspace: Workspace, method: str, **params: object) -> dict[str, object]:
    raw = await workspace.answer(method, json.dumps({"sessionId": "s", **params}).encode())
    answer = json.loads(raw)
    assert isinstance(answer, dict)
    return answer


async def test_files_are_written_and_read(workspace: Workspace, project: Path) -> None:
    path = f"{project}/new/file"
    assert await ask(workspace, "fs/write_text_file", path=path, content="a\nb\nc\n") == {}
    assert await ask(workspace, "fs/read_text_file", path=path) == {"content": "a\nb\nc\n"}
    page = await ask(workspace, "fs/read_text_file", path=path, line=2, limit=1)
    assert page == {"content": "b\n"}
    page = await ask(workspace, "fs/read_text_file", path=path, line=None, limit=None)
    assert page == {"content": "a\nb\nc\n"}


async def test_a_terminal_lives_from_create_to_release(workspace: Workspace) -> None:
    created = await ask(
        workspace,
        "terminal/create",
        command="sh",
        args=["-c", 'echo "$GREETING"; exec sleep 60'],
        env=[{"name": "GREETING", "value": "hi"}],
        cwd=None,
        outputByteLimit=1000,
    )
    name = created["terminalId"]
    assert name in workspace.terminals
    terminal = workspace.terminals[str(name)]
    await until(lambda: terminal.output().output != "")
    output = await ask(workspace, "terminal/output", terminalId=name)
    assert output == {"output": "hi\n", "truncated": False}
    waiting = asyncio.create_task(ask(workspace, "terminal/wait_for_exit", terminalId=name))
    assert await ask(workspace, "terminal/kill", terminalId=name) == {}
    assert await waiting == {"signal": "SIGTERM"}
    output = await ask(workspace, "terminal/output", terminalId=name)
    assert output == {"output": "hi\n", "truncated": False, "exitStatus": {"signal": "SIGTERM"}}
    assert await ask(workspace, "terminal/release", terminalId=name) == {}
    for method in ("output", "wait_for_exit", "kill", "release"):
        with pytest.raises(UnknownTerminalError):
            await ask(workspace, f"terminal/{method}", terminalId=name)


async def test_the_exit_code_of_a_command_is_answered(workspace: Workspace) -> None:
    created = await ask(workspace, "terminal/create", command="exit 7")
    name = created["terminalId"]
    async with asyncio.timeout(10):
        assert await ask(workspace, "terminal/wait_for_exit", terminalId=name) == {"exitCode": 7}


async def test_refusals_carry_an_error_code_and_the_facts(
    workspace: Workspace, project: Path
) -> None:
    with pytest.raises(OutsideRootsError) as outside:
        await ask(workspace, "fs/read_text_file", path="/etc/passwd")
    assert outside.value.code == -32602
    assert outside.value.data == {"path": "/etc/passwd", "roots": (str(project),)}
    with pytest.raises(InvalidParamsError, match="path"):
        await workspace.answer("fs/read_text_file", b'{"sessionId":"s"}')
    with pytest.raises(AcpError) as missing:
        await ask(workspace, "fs/read_text_file", path=f"{project}/none")
    assert missing.value.code == -32002


async def test_files_and_terminals_are_served_and_nothing_else(workspace: Workspace) -> None:
    for name in CLIENT_METHODS:
        is_served = name.startswith(("fs/", "terminal/"))
        with pytest.raises(InvalidParamsError if is_served else MethodNotFoundError):
            await workspace.answer(name, b"{}")


def test_naming_the_room_imports_nothing_that_takes_long() -> None:
    code = "import sys, acp_wire.workspace; print({'asyncio', 'msgspec'} & {*sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert done.stdout == b"set()\n"
