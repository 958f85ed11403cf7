"""The agents of a server in the daemon: who may have them once that server has gone."""

from __future__ import annotations

from pathlib import Path

from acphold.live.server.fronts import Fronted, FrontStderr
from acphold.live.server.served_agents import ServedAgents
from acphold.live.server.service import Service
from acphold.serve_options import ServeOptions
from tests.hub.shared import PuppetAgent, shared


async def test_agents_that_a_server_left_are_for_the_next_one_until_they_are_over(
    journal: Path,
) -> None:
    service = Service(make_agent=lambda listener, _: PuppetAgent(listener), options=ServeOptions())
    stderr = FrontStderr()
    async with shared(journal) as house:
        served = ServedAgents(house.hub, {"a": Fronted(service, 0)}, str, None, stderr)
        assert not served.are_free
        served.take_leave()
        assert served.are_free
        await served.wait_until_over()
        assert not served.are_free  # whoever comes now gets new ones
        await served.aclose()
    stderr.close()
