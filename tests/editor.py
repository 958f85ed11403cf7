"""An editor for tests: a client without our own code, and the program it talks to."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import psutil

from tests.talker import (
    DEADLINE as DEADLINE,
    PREPARED,
    Answer as Answer,
    Refused as Refused,
    Talker as Talker,
    allow as allow,
    open_params as open_params,
    prompt_params as prompt_params,
)
from tests.watched_processes import below

SCRIPTED = str(Path(__file__).with_name("scripted_agent.py"))


def _note_lineage(answered: asyncio.Future[Any], session: str) -> None:
    if answered.cancelled() or answered.exception() is not None:
        return
    match answered.result():
        case {"_meta": {"acphold/lineage": str(lineage)}, **members}:
            LINEAGES[str(members.get("sessionId", session))] = lineage


def scripted_agent(**options: Any) -> list[str]:
    """The command of an agent of scripted_agent.py."""
    return [sys.executable, "-S", "-E", SCRIPTED, json.dumps(options)]


def under_name(name: str, folder: Path, agent: Sequence[str]) -> list[str]:
    """The command of an agent in a program of this name, which is what it is known by."""
    program = folder / name
    program.write_text(f"#!/bin/sh\nexec {shlex.join(agent)}\n")
    program.chmod(0o755)
    return [str(program)]


def wrap_command(agent: Sequence[str], *options: str) -> list[str]:
    """`acphold wrap` in front of `agent`."""
    return [sys.executable, "-m", "acphold", "wrap", *options, "--", *agent]


LINEAGES: dict[str, str] = {}
"""The lineage of each session, as any client of these tests was told it last."""


def _with_lineage(
    method: str, params: dict[str, Any], answered: asyncio.Future[Any]
) -> dict[str, Any]:
    """A `session/resume` with a position but no lineage gets the lineage that was sent last."""
    session, meta = params.get("sessionId", ""), params.get("_meta")
    answered.add_done_callback(lambda future: _note_lineage(future, session))
    if method == "session/resume" and meta and "acphold/after" in meta and session in LINEAGES:
        return {**params, "_meta": {"acphold/lineage": LINEAGES[session], **meta}}
    return params


PREPARED.append(_with_lineage)


class Editor(Talker):
    """One client and the program it talks to."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        super().__init__()
        self.process = process

    def send_line(self, line: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + b"\n")

    async def read_line(self) -> bytes:
        assert self.process.stdout is not None
        return await self.process.stdout.readline()

    async def read_stderr(self) -> None:
        assert self.process.stderr is not None
        while chunk := await self.process.stderr.read(65536):
            self.stderr += chunk

    async def leave(self) -> int:
        """Close stdin as an editor that quits, and wait for the program to end."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        return await asyncio.wait_for(self.process.wait(), DEADLINE)

    async def ended(self) -> None:
        """Wait until everything the program has said has been read."""
        async with self._news:
            await asyncio.wait_for(self._news.wait_for(lambda: self._ended), DEADLINE)

    async def kill(self) -> None:
        """SIGKILL the program itself, as a crash would."""
        with suppress(ProcessLookupError):  # it has ended, and is waited for already
            self.process.kill()
        await self.process.wait()


def say(text: str) -> dict[str, Any]:
    """The update of an agent that says `text`."""
    return {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": text}}


def update_line(update: dict[str, Any], session_id: str = "$ID", **beside: Any) -> str:
    """An update as an agent prints it; `$ID` is the session that a scripted one is asked about."""
    params = {"sessionId": session_id, "update": update, **beside}
    return json.dumps({"jsonrpc": "2.0", "method": "session/update", "params": params})


def received(log: Path, method: str | None = None) -> list[dict[str, Any]]:
    """The messages that a scripted agent with this `log` received: of one method, or all."""
    if not log.exists():
        return []
    *lines, _ = log.read_text().split("\n")  # the last may be half written
    messages = [json.loads(line) for line in lines]
    return [message for message in messages if method in (None, message.get("method"))]


@asynccontextmanager
async def wrapped(
    journal: str | Path,
    *options: str,
    client: Mapping[str, Any] | None = None,
    through: Callable[..., list[str]] = wrap_command,
    **agent: Any,
) -> AsyncIterator[Editor]:
    """An editor with these client capabilities, introduced to a scripted agent behind `wrap`, or
    `through` another command."""
    command = through(scripted_agent(**agent), *options)
    async with introduced(command, journal=journal, client=client) as first:
        yield first


@asynccontextmanager
async def introduced(
    command: Sequence[str], *, client: Mapping[str, Any] | None = None, **how: Any
) -> AsyncIterator[Editor]:
    """An editor with these client capabilities, introduced to `command`."""
    async with editor(command, **how) as first:
        await first.initialize(**(client or {}))
        yield first


@asynccontextmanager
async def editor(
    command: Sequence[str],
    *,
    journal: str | Path,
    env: Mapping[str, str] | None = None,
    cwd: str | Path | None = None,
    read_stderr: bool = True,
    before: Callable[[], None] | None = None,
) -> AsyncIterator[Editor]:
    """Run `command` and talk to it; at the end it is gone, with all it started.

    `before` is called in the new process, before it becomes the program.
    """
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        limit=256 << 20,
        env={**os.environ, "ACPHOLD_JOURNAL": str(journal), **(env or {})},
        start_new_session=True,
        cwd=cwd,
        preexec_fn=before,
    )
    client = Editor(process)
    reading = [asyncio.create_task(client.read())]
    if read_stderr:
        reading.append(asyncio.create_task(client.read_stderr()))
    try:
        yield client
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
        await asyncio.wait(reading, timeout=5)
        for task in reading:
            task.cancel()


def agent_pid(editor: Editor) -> int:
    """The scripted agent behind an `acphold wrap`."""
    for pid in below(editor.process.pid):
        with suppress(psutil.NoSuchProcess):
            if any("scripted_agent" in word for word in psutil.Process(pid).cmdline()):
                return pid
    raise AssertionError("no agent runs")
