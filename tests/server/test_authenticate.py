"""`authenticate` and `logout`, and an agent that wants the person to sign in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.editor import open_params, prompt_params, received
from tests.served import Guest, wrapped

AUTH_REQUIRED = {
    "code": -32000,
    "message": "Authentication required",
    "data": {"authMethods": ["key"], "more": [1, None]},
}


@pytest.mark.parametrize("method", ["authenticate", "logout"])
async def test_authenticate_and_logout_are_relayed(journal: Path, log: Path, method: str) -> None:
    replies = {method: [{"_meta": {"who": "me"}}]}
    async with wrapped(journal, log=str(log), replies=replies) as client:
        params = {"methodId": "key", "_meta": {"x": 1}}
        assert await client.call(method, params) == {"_meta": {"who": "me"}}
        assert received(log, method)[0]["params"] == params


@pytest.mark.parametrize("method", ["authenticate", "logout"])
async def test_a_session_is_opened_again_at_the_agent_after_who_is_signed_in_has_changed(
    journal: Path, log: Path, method: str
) -> None:
    agent: dict[str, Any] = {"capabilities": {"loadSession": True}, "replies": {method: [{}]}}
    async with wrapped(journal, log=str(log), **agent) as client:
        session = await client.talk({"say": "before"})
        await client.call(method, {"methodId": "key"})
        assert received(log, "session/load") == []
        await client.prompt(session, {"say": "after"})
        assert len(received(log, "session/load")) == 1


async def test_null_from_the_agent_is_an_object_for_the_client(journal: Path) -> None:
    async with wrapped(journal, replies={"authenticate": [None]}) as client:
        assert await client.call("authenticate", {"methodId": "key"}) == {}


async def test_auth_required_at_new_reaches_the_client_unchanged(journal: Path) -> None:
    replies: dict[str, Any] = {"session/new": [{"error": AUTH_REQUIRED}]}
    async with wrapped(journal, replies=replies) as client:
        error = await client.refused("session/new", {"cwd": "/", "mcpServers": []})
        assert (error.code, error.message, error.data) == tuple(AUTH_REQUIRED.values())
        assert await client.sessions() == []


async def test_auth_required_at_prompt_reaches_the_client_unchanged(client: Guest) -> None:
    session = await client.new()
    error = await client.refused("session/prompt", prompt_params(session, {"error": AUTH_REQUIRED}))
    assert (error.code, error.message, error.data) == tuple(AUTH_REQUIRED.values())
    assert await client.prompt(session, {"say": "now"}) == {"stopReason": "end_turn"}


@pytest.mark.parametrize("method", ["session/load", "session/resume"])
async def test_auth_required_at_load_reaches_the_client_unchanged_and_loading_later_works(
    journal: Path, method: str
) -> None:
    async with wrapped(journal) as client:
        session = await client.talk({"say": "before"})
    replies: dict[str, Any] = {
        "session/new": [{"error": AUTH_REQUIRED}, {"error": AUTH_REQUIRED}, {"sessionId": "n"}]
    }
    async with wrapped(journal, replies=replies) as client:
        error = await client.refused("session/new", {"cwd": "/", "mcpServers": []})
        assert error.code == -32000
        error = await client.refused(method, open_params(session, "/"))
        assert (error.code, error.message, error.data) == tuple(AUTH_REQUIRED.values())
        await client.call("authenticate", {"methodId": "key"})
        assert await client.call(method, open_params(session, "/")) == {}
        assert await client.prompt(session, {"say": "after"}) == {"stopReason": "end_turn"}
