"""`acphold.open` at the address of a server: the same as beside its journal."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

import acphold
from tests.editor import scripted_agent
from tests.page.conftest import ask
from tests.web.conftest import Served, serving

pytestmark = pytest.mark.slow

SECONDS = 60


@pytest.fixture
def scripted(tmp_path: Path) -> Iterator[Served]:
    agent = scripted_agent(info={"name": "scripted", "version": "1"})
    with serving(tmp_path, agent=tuple(agent)) as served:
        yield served


async def test_a_server_tells_what_its_journal_does_and_takes_answers(scripted: Served) -> None:
    import json

    token = scripted.token()

    def told(*steps: Any) -> str:
        return json.dumps(steps)

    async with (
        asyncio.timeout(SECONDS),
        acphold.connect(scripted.url, token=token) as agent,
        acphold.open(scripted.url, token=token) as history,
        aclosing(history.sessions(follow=True)) as sessions,
    ):
        session = await agent.new_session(cwd=scripted.folder)
        await session.prompt(told({"say": "Of herons"}))
        async for kept in sessions:
            if (kept.id, kept.state) == (session.id, "completed"):
                break
        listed = [it async for it in history.sessions()]
        assert listed == [kept]
        far = await history.read(kept)
        assert "Of herons" in str(far.timeline)
        async with acphold.open(scripted.env["ACPHOLD_JOURNAL"]) as here:
            assert await here.read(kept.id) == far
        assert {hit.session_id for hit in await history.search("herons")} == {session.id}
        assert (await history.usage("agent")).sessions == 1

        async with acphold.connect(scripted.url, token=token, on_permission=_never) as other:
            asking = await other.new_session(cwd=scripted.folder)
            turn = asking.prompt(told(ask(title="Run it", kind="execute")))
            running = asyncio.ensure_future(turn)
            async with aclosing(history.questions(follow=True)) as questions:
                question = await anext(questions)
            assert isinstance(question.about, acphold.PermissionQuestion)
            assert question.about.tool_call.kind == "execute"
            assert await question.answer(True)
            await running
            async with aclosing(sessions):
                async for kept in sessions:
                    if (kept.id, kept.state) == (asking.id, "completed"):
                        break


async def _never(_: acphold.PermissionQuestion) -> bool:
    await asyncio.Event().wait()
    return False
