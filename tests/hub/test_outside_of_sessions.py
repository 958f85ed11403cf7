"""Messages about an unknown session reach only clients that may see every session."""

from __future__ import annotations

import pytest

from acphold.errors import MethodNotFoundError
from acphold.live.agents.interface import Notified
from acphold.live.server.principals import Principal
from tests.hub.shared import PERMISSION, Onlooker, Shared, methods

ANOTHER_TENANT = Principal(name="bob", tenant="bob")
ONE_SESSION = Principal(name="watcher", session_id="s0")


async def let_in(house: Shared, principal: Principal) -> Onlooker:
    client = house.stranger(principal)
    await client.introduce(None, {})
    client.answers["_vendor/ask"] = lambda _: "of a stranger"
    return client


@pytest.mark.parametrize("principal", [ANOTHER_TENANT, ONE_SESSION])
async def test_who_may_not_see_every_session_neither_hears_nor_answers_for_one_that_is_unknown(
    principal: Principal, house: Shared
) -> None:
    stranger = await let_in(house, principal)
    for method in (PERMISSION, "_vendor/ask"):
        with pytest.raises(MethodNotFoundError):
            await house.agent.ask_client(method, sessionId="unknown", options=[])
    await house.agent.listener.hear(Notified("_vendor/tell", b'{"sessionId":"unknown"}'))
    owner = await house.client()
    owner.answers["_vendor/ask"] = lambda _: "of the owner"
    assert await house.agent.ask_client("_vendor/ask", sessionId="unknown") == "of the owner"
    await stranger.call("session/list", {})  # any message to it would come before this answer
    assert methods(stranger) == []
