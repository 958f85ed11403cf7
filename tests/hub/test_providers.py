"""MCP over ACP (unstable) reaches the client that provides the server, of several."""

from __future__ import annotations

from typing import Any

import pytest

from acphold.errors import ConnectionLostError
from tests.hub.shared import Onlooker, Shared

MESSAGE = "mcp/message"


def provides(client: Onlooker, name: str) -> None:
    async def answer(_: dict[str, Any]) -> Any:
        return {"result": {"from": name}}

    client.answers[MESSAGE] = answer


def entry(server_id: str) -> dict[str, str]:
    return {"type": "acp", "name": "mine", "serverId": server_id}


async def test_each_client_is_asked_for_the_servers_it_named(house: Shared) -> None:
    for name in ("one", "two"):
        client = await house.client()
        provides(client, name)
        session = await client.new(mcpServers=[entry(f"of {name}")])
    for name in ("one", "two"):
        answer = await house.agent.ask_client(MESSAGE, serverId=f"of {name}")
        assert answer == {"result": {"from": name}}
        # The same when the agent says for which session, which the draft does not have.
        answer = await house.agent.ask_client(MESSAGE, serverId=f"of {name}", sessionId=session)
        assert answer == {"result": {"from": name}}


async def test_a_client_that_names_the_server_again_takes_it_over(house: Shared) -> None:
    one, two = await house.client(), await house.client()
    provides(one, "one")
    provides(two, "two")
    session = await one.new(mcpServers=[entry("x")])
    await two.load(session, mcpServers=[entry("x")])
    answer = await house.agent.ask_client(MESSAGE, serverId="x")
    assert answer == {"result": {"from": "two"}}


async def test_nobody_else_is_asked_when_the_provider_is_gone(house: Shared) -> None:
    one, two = await house.client(), await house.client()
    provides(two, "two")
    await one.new(mcpServers=[entry("x")])
    await one.leave()
    while one.connection in house.desk.router.clients:
        await two.call("session/list", {})
    with pytest.raises(ConnectionLostError, match="no connected client provides MCP server 'x'"):
        await house.agent.ask_client(MESSAGE, serverId="x")


async def test_a_message_of_another_draft_goes_to_a_client_that_is_here(house: Shared) -> None:
    client = await house.client()
    provides(client, "one")
    answer = await house.agent.ask_client(MESSAGE, connectionId="c")
    assert answer == {"result": {"from": "one"}}
