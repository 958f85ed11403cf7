"""The examples over all sessions: they run as they are, beside a hub with its journal."""

from __future__ import annotations

import asyncio
import csv
import io
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.editor import DEADLINE
from tests.served import Guest, wrapped

EXAMPLES = Path(__file__).parents[2] / "examples"

OPTIONS = [
    {"optionId": "go", "name": "Go on", "kind": "allow_once"},
    {"optionId": "stop", "name": "Stop it", "kind": "reject_once"},
]


def ask(kind: str) -> dict[str, Any]:
    call = {"toolCallId": f"{kind}-1", "title": f"{kind} it", "kind": kind}
    return {"ask": ["session/request_permission", {"toolCall": call, "options": OPTIONS}]}


@asynccontextmanager
async def example(name: str, journal: Path) -> AsyncIterator[asyncio.StreamReader]:
    """What the example prints, which runs until the end of the block."""
    words = (str(EXAMPLES / name), str(journal))
    running = await asyncio.create_subprocess_exec(
        sys.executable, *words, stdout=asyncio.subprocess.PIPE, env={**os.environ}
    )
    assert running.stdout is not None
    try:
        async with asyncio.timeout(DEADLINE):
            yield running.stdout
    finally:
        if running.returncode is None:
            running.kill()
        await running.wait()


async def begin_to_ask(editor: Guest, kind: str) -> asyncio.Future[Any]:
    editor.answers["session/request_permission"] = lambda _: asyncio.Future()
    return editor.begin_prompt(await editor.new(), ask(kind))


async def test_a_bot_answers_by_policy_and_leaves_the_rest(journal: Path) -> None:
    async with wrapped(journal) as editor:
        left = await begin_to_ask(editor, "execute")
        turns = [await begin_to_ask(editor, kind) for kind in ("read", "delete")]
        async with example("policy_bot.py", journal) as told:
            lines = {(await told.readline()).decode().strip() for _ in turns}
            assert lines == {"allowed read it", "refused delete it"}
            await asyncio.gather(*turns)
        assert not left.done()


async def test_a_dashboard_shows_what_waits(journal: Path) -> None:
    async with wrapped(journal) as editor:
        await editor.talk({"say": "done"})
        async with example("dashboard.py", journal) as told:
            await told.readuntil(b"0 waiting")
            await begin_to_ask(editor, "execute")
            await told.readuntil(b"1 waiting")
            await told.readuntil(b"  waiting ")


async def test_an_export_of_ones_own_has_each_call(journal: Path) -> None:
    call = {"sessionUpdate": "tool_call", "toolCallId": "t1", "title": "Look", "kind": "read"}
    async with wrapped(journal) as editor:
        session = await editor.talk({"update": {**call, "status": "completed"}})
    async with example("to_csv.py", journal) as told:
        head, *lines = csv.reader(io.StringIO((await told.read()).decode()))
    assert head[0] == "session"
    assert [(it[0], *it[3:]) for it in lines] == [(session, "read", "completed", "Look")]
