"""A client that goes while a question is open has not answered it: the question waits for others.

However it goes, and whatever line led to it.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import acphold
from acphold.client.answers import PermissionQuestion
from tests.editor import SCRIPTED, Talker, editor, introduced, scripted_agent, wrap_command
from tests.web.conftest import ACPHOLD, Served
from tests.web.far_client import (
    ALL_AGENTS,
    PERMISSION,
    POSITIONS,
    YES,
    FarClient,
    asks,
    far_client,
)
from tests.web.machines import machines
from tests.web.network import Network, network, served_through

pytestmark = pytest.mark.slow

DEADLINE = 60.0

ALL = ALL_AGENTS | POSITIONS

Leave = Callable[[Served, FarClient, Network, str], Awaitable[None]]


async def closes(served: Served, client: FarClient, way: Network, token: str) -> None:
    """The tab is closed, or the page loaded anew: an orderly end."""
    await client.peer.aclose()


async def is_cut(served: Served, client: FarClient, way: Network, token: str) -> None:
    """The machine is killed, or loses its network: an end without a word."""
    way.go_down()


async def is_let_in_no_more(served: Served, client: FarClient, way: Network, token: str) -> None:
    await asyncio.to_thread(served.run, "access", "revoke", token.split("_")[1])


@asynccontextmanager
async def behind(way: Network, folder: Path) -> AsyncIterator[Served]:
    """A server with a scripted agent; `way` leads there."""
    agent = (sys.executable, SCRIPTED, "{}")
    with served_through(way, folder, agent=agent) as served:
        yield served


async def until_left(served: Served, session_id: str) -> None:
    """Wait until nobody has the session open."""
    async with asyncio.timeout(DEADLINE):
        while True:
            said = await asyncio.to_thread(served.run, "list", "--json")
            rows = [json.loads(line) for line in said.splitlines()]
            (row,) = [row for row in rows if row["sessionId"] == session_id]
            if row["live"] is None or not row["live"]["clients"]:
                return
            await asyncio.sleep(0.1)


async def answered_later(served: Served, url: str, session_id: str, folder: Path) -> None:
    """Somebody else comes, is asked, and the answer counts."""
    async with far_client(url, served.token(), POSITIONS) as other:
        await other.ask("session/resume", sessionId=session_id, cwd=str(folder), mcpServers=[])
        async with asyncio.timeout(15):
            _, answer = await other.asked.get()
        answer.set_result(json.dumps(YES).encode())
        await other.until('\\"yes\\"')
    assert "refused" not in served.run("show", session_id)


@pytest.mark.parametrize(
    ("can", "http"),
    [(POSITIONS, False), (ALL, False), (POSITIONS, True)],
    ids=["one", "all", "http"],
)
async def test_a_client_far_away_that_goes_leaves_its_question_to_others(
    tmp_path: Path, can: dict[str, bool], http: bool
) -> None:
    async with network() as way, behind(way, tmp_path) as served:
        for leave in (closes, is_cut, is_let_in_no_more):
            way.come_up()
            await leave_a_question(way, served, leave, can, http=http)


async def leave_a_question(
    way: Network, served: Served, leave: Leave, can: dict[str, bool], *, http: bool
) -> None:
    token, folder = served.token(), served.folder
    async with far_client(served.url, token, can, http=http) as client:
        opened = await client.ask("session/new", cwd=str(folder), mcpServers=[])
        session_id = opened["sessionId"]
        prompt = client.ask("session/prompt", sessionId=session_id, prompt=asks(session_id))
        prompting = asyncio.ensure_future(prompt)
        await client.asked.get()
        await leave(served, client, way, token)
        near = f"http://127.0.0.1:{way.to}"
        if not http:  # one that posts is there for two minutes, should it come back
            await until_left(served, session_id)
        await answered_later(served, near, session_id, folder)
    await asyncio.wait([prompting])
    prompting.exception()


async def test_a_question_of_another_process_outlives_a_page_that_only_looked_at_it(
    tmp_path: Path,
) -> None:
    """That process has no client any more; the page is one of all agents, over two lines."""
    async with network() as way, behind(way, tmp_path) as served:
        words = wrap_command(scripted_agent())
        journal = served.env["ACPHOLD_JOURNAL"]
        async with introduced(words, journal=journal, env=served.env) as owner:
            owner.answers = {"session/request_permission": lambda _: asyncio.Event().wait()}
            session_id = await owner.new(tmp_path)
            owner.begin_prompt(session_id, {"ask": ["session/request_permission", PERMISSION]})
            await owner.until(lambda: asked(owner))
        await until_left(served, session_id)
        async with far_client(served.url, served.token(), ALL) as page:
            here = {"cwd": str(tmp_path), "mcpServers": []}
            await page.ask("session/resume", sessionId=session_id, **here)
            await page.asked.get()
        await until_left(served, session_id)
        await answered_later(served, served.url, session_id, tmp_path)
        served.run("agent", "stop", "--all", "--yes")


async def test_a_program_that_leaves_a_server_leaves_its_question_to_others(
    tmp_path: Path,
) -> None:
    async with network() as way, behind(way, tmp_path) as served:
        was_asked = asyncio.Event()

        async def think(_: PermissionQuestion) -> str:
            was_asked.set()
            await asyncio.Event().wait()
            return "no"

        token = served.token()
        async with served.session(token, cwd=tmp_path, on_permission=think) as session:
            turn = session.prompt(asks(session.id)[0]["text"])
            await was_asked.wait()
        with pytest.raises(acphold.AcpError):
            await turn
        await until_left(served, session.id)
        await answered_later(served, served.url, session.id, tmp_path)


async def test_an_editor_that_leaves_connect_leaves_its_question_to_others(
    tmp_path: Path,
) -> None:
    async with network() as way, behind(way, tmp_path) as served:
        words = [*ACPHOLD, "connect", served.url]
        env = {**served.env, "ACPHOLD_TOKEN": served.token()}
        async with editor(words, journal=tmp_path / "none.db", env=env) as client:
            await client.initialize()
            session_id = await begin_question(client, tmp_path)
            await client.leave()
            await until_left(served, session_id)
            await answered_later(served, served.url, session_id, tmp_path)


async def begin_question(client: Talker, folder: Path) -> str:
    """Begin a turn that asks, and is not answered here; the session."""
    client.answers["session/request_permission"] = lambda _: asyncio.Event().wait()
    session_id = await client.new(folder)
    client.begin_prompt(session_id, {"ask": ["session/request_permission", PERMISSION]})
    await client.until(lambda: asked(client))
    return session_id


def asked(client: Talker) -> list[Any]:
    return [it for it in client.messages if it.get("method") == "session/request_permission"]


@pytest.mark.parametrize("can", [POSITIONS, ALL], ids=["one", "all"])
async def test_a_client_of_one_machine_leaves_the_question_of_another_open(
    tmp_path: Path, can: dict[str, bool]
) -> None:
    agent = (sys.executable, SCRIPTED, "{}")
    async with machines(str(tmp_path / "shared.db"), tmp_path, agent=agent) as (one, two):
        async with far_client(one.served.url, one.served.token(), POSITIONS) as first:
            opened = await first.ask("session/new", cwd=str(tmp_path), mcpServers=[])
            session_id = opened["sessionId"]
            prompt = first.ask("session/prompt", sessionId=session_id, prompt=asks(session_id))
            prompting = asyncio.ensure_future(prompt)
            await first.asked.get()
            async with far_client(two.served.url, two.served.token(), can) as other:
                here = {"cwd": str(tmp_path), "mcpServers": []}
                await other.ask("session/resume", sessionId=session_id, **here)
                await other.asked.get()
                await first.peer.aclose()
                await asyncio.wait([prompting])
                prompting.exception()
        await until_left(one.served, session_id)
        await answered_later(one.served, one.served.url, session_id, tmp_path)
