"""A phone is told of the turn of a real agent, through a push service of our own."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest

from tests.interop.model_endpoint import ModelEndpoint
from tests.interop.place import Place
from tests.interop.real_agents import WITH_SHELL, RealAgent
from tests.web.in_process import site
from tests.web.test_notices import NAME, Accepting, Browser, at_home

# The first run downloads the agents.
pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]


@pytest.mark.parametrize("agent", WITH_SHELL, ids=lambda it: it.name)
async def test_the_end_of_a_turn_of_a_real_agent_reaches_the_browser_that_asked_for_it(
    agent: RealAgent,
    place: Place,
    model: ModelEndpoint,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", at_home(socket.getaddrinfo, NAME))
    (tmp_path / "web").mkdir()
    async with (
        Accepting(tmp_path).open() as service,
        site(tmp_path / "web", send=service.send, turn_seconds=0.0) as web,
    ):
        browser = Browser(f"https://{NAME}/send/abc")
        assert (await web.post("/notices", **browser.json)).status == 200
        env = {**agent.prepare(place.home, model.url)}
        env["ACPHOLD_JOURNAL"] = str(tmp_path / "web" / "journal.db")
        words = "USE_TOOL:shell CMD=sleep 3"
        await place.acphold(env, "ask", "--permission", "allow", words, "--", *agent.command())
        await service.until(1)
        said = json.loads(browser.read(service.sent[0][1]))
        assert (said["done"], said["body"]) == (True, "done")
        assert service.sent[0][0]["topic"].startswith("done-")
