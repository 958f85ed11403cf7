"""A database that is away for a while, for clients of `serve` at several machines."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import acphold
from acp_wire.tasks import beside
from acphold.live.hub.ownership import AWAY, BACK
from tests.editor import scripted_agent
from tests.failures.outage import PATIENCE, Away, away
from tests.failures.test_outages import STOPS, are_stopped, pids_behind, writing
from tests.watched_processes import until
from tests.web.machines import Node, machines

pytestmark = pytest.mark.postgresql


class Two(NamedTuple):
    there: Away
    near: acphold.RemoteSession
    far: acphold.RemoteSession
    nodes: list[Node]


@asynccontextmanager
async def two(kind: str, folder: Path) -> AsyncIterator[Two]:
    """A session of one machine that a client of another has open, too; its agent has started a
    shell that writes to the file `written`."""
    agent = tuple(scripted_agent(steps=[writing(folder / "written")]))
    async with (
        away(kind) as there,
        machines(there.url, folder, agent=agent) as nodes,
        nodes[0].client() as one,
        nodes[1].client() as other,
    ):
        near = await one.new_session(cwd=folder)
        await near.prompt("begin")
        yield Two(there, near, await other.load_session(near.id, cwd=folder), nodes)


def steps(*each: Any) -> str:
    return json.dumps(each)


def shown(session: acphold.RemoteSession) -> str:
    return str(session.state.timeline)


@asynccontextmanager
async def hearing(session: acphold.RemoteSession) -> AsyncIterator[list[str]]:
    """All updates that its client is told in the block."""
    heard: list[str] = []

    async def hear() -> None:
        async for update in session.updates():
            heard.append(str(update))  # noqa: PERF401 - they are read meanwhile

    async with beside(hear(), "hear"):
        yield heard


def tells(words: str, *heard: list[str]) -> Callable[[], bool]:
    return lambda: all(words in "".join(each) for each in heard)


@pytest.mark.parametrize(("kind", "is_long"), [("ended", False), ("frozen", True)])
async def test_a_client_of_another_machine_cancels_while_the_database_is_away(
    kind: str, tmp_path: Path, *, is_long: bool
) -> None:
    done = tmp_path / "done"
    act = {"until": "cancel"}, {"touch": str(done)}, {"stop": "cancelled"}
    async with (
        two(kind, tmp_path) as (there, near, far, _),
        hearing(near) as ours,
        hearing(far) as theirs,
    ):
        turn = near.prompt(steps({"say": "begun"}, *act))
        await until(tells("begun", theirs))
        pids = await pids_behind(tmp_path / "written")
        with there.outage():
            await until(tells(AWAY, ours, theirs), STOPS)
            if is_long:
                await until(lambda: are_stopped(*pids[:2]), STOPS)
            far.cancel()
            if not is_long:
                await until(done.exists)
        async with asyncio.timeout(PATIENCE):
            assert (await turn).stop_reason == "cancelled"
        await until(tells(BACK, ours, theirs))
        assert done.exists()
