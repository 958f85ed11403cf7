"""The rules on MCP servers: against real ones, on stdio and behind URLs."""

from __future__ import annotations

import asyncio

import pytest

from acp_check import bounds
from acp_check.checks import CheckReport, choose, inspect
from acp_check.errands import Memory
from acp_check.exemplar import Exemplar
from acp_check.exemplar_servers import INTRODUCTION, StdioLink, connect
from acp_check.record import Json
from acp_check.rules import CHECKS
from acp_check.stage import CheckSettings
from acp_check.verdicts import Level, Verdict
from acp_wire.rpc.transport import Transport
from tests.faulty_agent import FAULTS
from tests.memory_subject import MemorySubject
from tests.played_shell import PlayedShell

pytestmark = pytest.mark.slow

SERVER_FAULTS = [name for name in FAULTS if name.startswith("mcp.")]


async def checked(agent: type[Exemplar], rules: str, settings: CheckSettings) -> CheckReport:
    subject = MemorySubject.of(agent)
    return await inspect(subject, choose(CHECKS, [rules]), settings, shell=PlayedShell)


def patient(agent: type[Exemplar]) -> type[Exemplar]:
    """The same, for a machine that takes its time to start a server."""
    return type("Patient", (agent,), {"connect_seconds": 30.0})


GENEROUS = CheckSettings(timeout=30.0, patience=0.5)
"""`patience` is short: correct agents contact their servers before they answer."""

BRIEF = CheckSettings(timeout=1.5)
"""For servers that stop the agent: the rest is in memory."""

STOPPING = {"mcp.missing", "mcp.silent"}

ONE_KIND = CheckSettings(timeout=5.0)
"""For agents that connect to other servers: to this one the check waits three times as long."""


@pytest.mark.parametrize("rule", [it for it in SERVER_FAULTS if it != "mcp.silent"])
async def test_an_agent_that_uses_its_servers_keeps_the_rules(rule: str) -> None:
    rule = rule.partition(":")[0]
    (finding,) = (await checked(patient(Exemplar), rule, GENEROUS)).findings
    assert finding.verdict is Verdict.PASS, finding


async def test_a_silent_server_is_given_up() -> None:
    (finding,) = (await checked(Exemplar, "mcp.silent", CheckSettings(timeout=30.0))).findings
    assert finding.verdict is Verdict.PASS, finding


@pytest.mark.parametrize("fault", SERVER_FAULTS)
async def test_each_fault_with_servers_is_found(fault: str) -> None:
    rule = fault.partition(":")[0]
    if rule in STOPPING:
        report = await checked(FAULTS[fault], rule, BRIEF)
    elif fault in ("mcp.http", "mcp.sse"):
        report = await checked(patient(FAULTS[fault]), rule, ONE_KIND)
    else:
        report = await checked(patient(FAULTS[fault]), rule, GENEROUS)
    (finding,) = report.findings
    assert finding.verdict is Verdict.FAIL, finding


class ConnectsWhenCalled(Exemplar):
    """Connects the servers of a session when a tool of theirs is called."""

    def __init__(self, transport: Transport, memory: Memory) -> None:
        super().__init__(transport, memory)
        self.named: dict[str, list[Json]] = {}

    async def connect(self, session_id: str, servers: list[Json]) -> None:
        self.named[session_id] = servers

    async def call_tool(self, session_id: str, tool: str) -> str:
        if session_id not in self.links:
            await super().connect(session_id, self.named[session_id])
        return await super().call_tool(session_id, tool)


class ThinksFirst(ConnectsWhenCalled):
    """Thinks for longer than the check waits for a turn."""

    async def call_tool(self, session_id: str, tool: str) -> str:
        await asyncio.sleep(60)
        return await super().call_tool(session_id, tool)


class LoadsForLong(ConnectsWhenCalled):
    """Starts programs at once, and initializes servers when all turns that ask for a tool ended."""

    calls = 0

    async def connect(self, session_id: str, servers: list[Json]) -> None:
        self.named[session_id] = [it for it in servers if "url" in it]
        self.links[session_id] = [await StdioLink.to(it) for it in servers if "url" not in it]
        for link in self.links[session_id]:
            await link.call("ping", {})  # it runs

    async def call_tool(self, session_id: str, tool: str) -> str:
        self.calls += 1
        if self.calls == bounds.CALLING_TURNS:
            self.start(self.load(session_id))
        return "still loading"

    async def load(self, session_id: str) -> None:
        await asyncio.sleep(0.2)  # the answer to the prompt is sent first
        for link in self.links[session_id]:
            await link.call("initialize", INTRODUCTION)
        for server in self.named[session_id]:
            reached = await connect(server, 30.0)
            assert reached is not None
            self.links[session_id].append(reached)


MUSTS = [check.rule.id for check in choose(CHECKS, ["mcp"]) if check.rule.level is Level.MUST]


@pytest.mark.parametrize("rule", MUSTS)
async def test_an_agent_that_connects_when_a_tool_is_called_keeps_the_rules(rule: str) -> None:
    (finding,) = (await checked(patient(ConnectsWhenCalled), rule, GENEROUS)).findings
    assert finding.verdict is Verdict.PASS, finding


@pytest.mark.parametrize("rule", MUSTS)
async def test_an_agent_that_loads_its_client_for_longer_than_turns_take_keeps_the_rules(
    rule: str,
) -> None:
    at_once = CheckSettings(timeout=30.0, patience=0.0)
    (finding,) = (await checked(LoadsForLong, rule, at_once)).findings
    assert finding.verdict is Verdict.PASS, finding


@pytest.mark.parametrize("rule", MUSTS)
async def test_only_a_turn_that_ended_shows_that_a_server_was_not_connected(rule: str) -> None:
    settings = CheckSettings(timeout=0.4, patience=0.1, quiet=0.05, late=0.05)
    (finding,) = (await checked(ThinksFirst, rule, settings)).findings
    assert finding.verdict is Verdict.NOT_OBSERVABLE, finding


def test_every_rule_on_servers_is_broken_by_a_fault() -> None:
    assert {check.rule.id for check in choose(CHECKS, ["mcp"])} == {
        fault.partition(":")[0] for fault in SERVER_FAULTS
    }
