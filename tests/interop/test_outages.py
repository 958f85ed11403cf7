"""Real agents whose database goes away in the middle of a turn: they are stopped and go on, though
their connection to the model may have ended meanwhile."""

from __future__ import annotations

import asyncio
import re

import pytest

from tests.failures.outage import away
from tests.interop.conversation import text
from tests.interop.model_endpoint import SLOW_WORDS, ModelEndpoint
from tests.interop.place import Place
from tests.interop.real_agents import CODEX, OPENCODE, RealAgent
from tests.interop.test_real_agents import begin, reach_the_middle

pytestmark = [pytest.mark.interop, pytest.mark.postgresql, pytest.mark.timeout(600)]


@pytest.mark.parametrize("seconds", [8.0, 30.0])
@pytest.mark.parametrize("agent", [CODEX, OPENCODE], ids=lambda agent: agent.name)
async def test_a_turn_of_a_real_agent_goes_on_behind_an_outage(
    agent: RealAgent, seconds: float, place: Place, model: ModelEndpoint
) -> None:
    async with away("ended") as there:
        env = {**agent.prepare(place.home, model.url), "ACPHOLD_JOURNAL": there.url}
        async with place.client(place.wrapped(agent.command()), **env) as client:
            session_id = await begin(client, place)
            turn = await reach_the_middle(client, session_id)
            with there.outage():
                await asyncio.sleep(seconds)
            assert (await asyncio.wait_for(turn, 60.0))["stopReason"] == "end_turn"
            said = re.findall(r"tick(\d+) ", text(client.updates(session_id)))
            assert said == [str(number) for number in range(SLOW_WORDS)]
            await client.leave()
        await place.family.gone()
    assert client.odd == []
