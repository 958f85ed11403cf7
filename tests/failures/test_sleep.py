"""A machine that sleeps in the middle of work: all of its processes stop, and wake later."""

from __future__ import annotations

import asyncio
import os
import signal
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest

from acphold.faces.cli.front import daemon_lock, journal_of
from acphold.machine.locked_file import holder
from tests.editor import Editor, allow, wrapped
from tests.failures.outage import ASK, PACE, PERMISSION, numbers, own_server, was_asked

SLEPT = 35.0
"""Longer than a process may be silent before another takes its sessions, and than any bound of a
wait for another process."""


async def sleep_of_all(journal: str | Path, editor: Editor) -> None:
    """Stop the front, the daemon and all that it has started, and have them go on again."""
    daemon = holder(daemon_lock(journal_of(["--journal", str(journal)])))
    assert daemon is not None
    below = psutil.Process(daemon).children(recursive=True)
    pids = [editor.process.pid, daemon, *(it.pid for it in below)]
    assert len(pids) > 2
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    await asyncio.sleep(SLEPT)
    for pid in pids:
        os.kill(pid, signal.SIGCONT)


async def live_through_sleep(journal: str | Path) -> None:
    async with wrapped(journal) as editor:
        session = await editor.new()
        turn = editor.begin_prompt(session, {"paced": [100, PACE]})
        await editor.until_text("#9 ")
        await sleep_of_all(journal, editor)
        assert await turn == {"stopReason": "end_turn"}
        assert numbers(editor.text()) == [*range(100)]
        assert b"does not answer" not in editor.stderr
        assert await editor.prompt(session, {"say": "again"}) == {"stopReason": "end_turn"}


@pytest.mark.slow
async def test_a_turn_goes_on_and_nobody_is_told_of_a_silence(journal: Path) -> None:
    await live_through_sleep(journal)


@pytest.mark.postgresql
async def test_a_turn_goes_on_though_the_database_did_not_sleep() -> None:
    with own_server() as server:
        await live_through_sleep(server.url())


@pytest.mark.slow
async def test_a_question_waits(journal: Path) -> None:
    async with wrapped(journal) as editor:
        session = await editor.new()
        decided = asyncio.Event()

        async def answer(params: Any) -> Any:
            await decided.wait()
            return allow(params)

        editor.answers[PERMISSION] = answer
        turn = editor.begin_prompt(session, {"ask": [PERMISSION, ASK]}, {"say": "done"})
        await editor.until(partial(was_asked, editor))
        await sleep_of_all(journal, editor)
        await asyncio.sleep(1)
        assert not turn.done()
        decided.set()
        assert await turn == {"stopReason": "end_turn"}
        assert "yes" in editor.text()
