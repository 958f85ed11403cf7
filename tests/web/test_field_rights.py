"""A right belongs to a field, in a session: black box, over `acphold serve`."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import acphold
from acp_wire.schema.updates import UserMessageChunk
from acphold.errors import RemoteError
from tests.editor import DEADLINE, scripted_agent
from tests.web.conftest import Served, serving
from tests.web.far_client import ALL_AGENTS, far_client
from tests.web.test_audit import audited

pytestmark = pytest.mark.slow


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """The file in which the agent writes what it gets; it is there once the agent has started."""
    return tmp_path / "agent.log"


@pytest.fixture
def served(tmp_path: Path, log: Path) -> Iterator[Served]:
    """A server of a scripted agent that keeps its sessions."""
    can = {"loadSession": True, "sessionCapabilities": {"resume": {}}}
    store = str(tmp_path / "store.json")
    agent = scripted_agent(log=str(log), store=store, capabilities=can)
    with serving(tmp_path, agent=tuple(agent)) as found:
        yield found


def said(log: Path, method: str) -> list[dict[str, Any]]:
    """The params of the messages of this method that the agent got."""
    lines = log.read_text().splitlines() if log.exists() else []
    found = [json.loads(line) for line in lines]
    return [it.get("params", {}) for it in found if it.get("method") == method]


async def begin(served: Served, *token: str) -> str:
    """A session of whoever has this token, with one turn."""
    async with served.session(served.token(*token)) as session:
        await session.prompt("hello")
        return session.id


def restart(served: Served, log: Path) -> None:
    """Start the server again, with nothing live and no agent that runs."""
    served.start_again()
    log.unlink(missing_ok=True)


def is_started(left: Path) -> bool:
    """True once a program has left this file: the agent, with its first message, does."""
    return left.exists()


def stop(served: Served) -> None:
    """Stop the server: at its end the whole audit log is written."""
    served.process.terminate()
    served.process.wait()


async def test_a_pin_needs_no_more_than_watch_and_a_tag_what_a_title_needs(served: Served) -> None:
    session = await begin(served)
    async with far_client(served.url, served.token("--scope", "watch"), ALL_AGENTS) as reader:
        told = await reader.ask("_acphold/mark", sessionId=session, pinned=True)
        assert told == {"tags": [], "pinned": True}
        for tags in ([], ["x"]):
            with pytest.raises(RemoteError, match="scope 'manage'"):
                await reader.ask("_acphold/mark", sessionId=session, tags=tags)
    only = served.token("--session", session, "--scope", "watch")
    async with far_client(served.url, only, ALL_AGENTS) as guest:
        with pytest.raises(RemoteError, match="only somebody with a list can pin"):
            await guest.ask("_acphold/mark", sessionId=session, pinned=True)


@pytest.mark.parametrize("method", ["session/load", "session/resume"])
async def test_a_token_that_may_only_watch_starts_no_program(
    served: Served, log: Path, method: str
) -> None:
    session_id = await begin(served)
    token = served.token("--name", "screen", "--session", session_id, "--scope", "watch")
    restart(served, log)
    touched = served.folder / "touched"
    server = {"command": "/bin/touch", "args": [str(touched)]}
    async with acphold.connect(served.url, token=token) as watcher:
        await watcher.call(
            method,
            {
                "sessionId": session_id,
                "cwd": str(served.folder),
                "mcpServers": [{"name": "x", "env": [], **server}],
                "_meta": {"claudeCode": {"options": {"mcpServers": {"x": server}}}},
                "unknownMember": {"run": "me"},
            },
        )
        [info] = [info async for info in watcher.sessions()]
        assert info.session_id == session_id
    assert not is_started(touched)
    assert not is_started(log)
    stop(served)
    [deed] = [it["deed"] for it in audited(served) if it["deed"].startswith("refused")]
    for name in ("mcpServers", "_meta.claudeCode", "unknownMember"):
        assert name in deed
    assert "touch" not in deed


async def test_a_watcher_reads_the_conversation_and_follows_it_once_its_owner_continues(
    served: Served, log: Path
) -> None:
    session_id = await begin(served)
    token = served.token("--session", session_id, "--scope", "watch")
    restart(served, log)
    async with acphold.connect(served.url, token=token) as watcher:
        shown = await watcher.load_session(session_id, cwd="/somewhere/else")
        assert "heard: " in str(shown.state)
        assert not is_started(log)
        async with acphold.connect(served.url, token=served.token()) as owner:
            session = await owner.load_session(session_id, cwd=served.folder)
            await session.prompt("again")
        assert said(log, "session/prompt")
        deadline = time.monotonic() + DEADLINE
        async for _ in shown.updates():
            if "again" in str(shown.state):
                break
            assert time.monotonic() < deadline


async def test_each_prompt_names_the_user_whose_token_it_came_with_whatever_its_client_says(
    served: Served,
) -> None:
    session_id = await begin(served, "--user", "alice")
    served.run("access", "share", session_id, "--with", "bert", "--prompt")
    only_here = ("--session", session_id, "--scope", "watch", "--scope", "prompt")
    for token in (("--user", "bert"), (*only_here, "--name", "bert")):
        info = {"name": "zed", "version": "1", "user": "alice"}
        async with far_client(served.url, served.token(*token), clientInfo=info) as client:
            opening = {"sessionId": session_id, "cwd": str(served.folder), "mcpServers": []}
            await client.ask("session/load", **opening)
            await client.say(session_id, "go on")
    async with acphold.connect(served.url, token=served.token("--user", "alice")) as owner:
        shown = await owner.load_session(session_id, cwd=served.folder)
        prompts = [it for it in shown.replay if isinstance(it, UserMessageChunk)]
    clients: list[Any] = [(it.meta or {})["acphold/client"] for it in prompts]
    assert [client["user"] for client in clients] == ["alice", "bert", "bert (guest)"]
