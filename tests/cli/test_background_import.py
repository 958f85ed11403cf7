"""The import beside `wrap`: however it goes, the agent is ended."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from acp_wire.surroundings import Surroundings
from acphold.faces.cli import wrap
from acphold.faces.cli.wrap import AgentWithImport
from acphold.live.agents.interface import AgentRequest, Event
from acphold.live.agents.wrapped import ProcessOptions
from tests.editor import scripted_agent
from tests.watched_processes import lives


class Nobody:
    """Hears an agent (agents.Listener)."""

    async def hear(self, event: Event) -> None:
        return None

    async def answer(self, asked: AgentRequest) -> bytes:
        return b"{}"


async def test_an_agent_is_ended_whatever_came_of_the_import_beside_it(
    journal: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fails(*_: object) -> None:
        raise RuntimeError("no import today")

    monkeypatch.setattr(wrap, "_import", fails)
    options = ProcessOptions(name="codex-acp")
    agent = AgentWithImport(scripted_agent(), Nobody(), Surroundings.here(), options)
    agent.import_into = str(journal)
    await agent.initialize(b'{"protocolVersion":1}')
    process, importing = agent._process, agent._importing
    assert process is not None
    assert importing is not None
    await asyncio.wait([importing])
    await agent.aclose()
    assert not lives(process.pid)
