"""The rules on MCP servers: against real ones, on stdio and behind URLs."""

from __future__ import annotations

import pytest

from acp_check.checks import CheckReport, chosen, inspect
from acp_check.exemplar import Exemplar
from acp_check.rules import CHECKS
from acp_check.stage import CheckSettings
from acp_check.verdicts import Verdict
from tests.faulty_agent import FAULTS
from tests.memory_subject import MemorySubject
from tests.played_shell import PlayedShell

pytestmark = pytest.mark.slow

SERVER_FAULTS = [name for name in FAULTS if name.startswith("mcp.")]


async def checked(agent: type[Exemplar], rules: str, settings: CheckSettings) -> CheckReport:
    subject = MemorySubject.of(agent)
    return await inspect(subject, chosen(CHECKS, [rules]), settings, shell=PlayedShell)


def patient(agent: type[Exemplar]) -> type[Exemplar]:
    """The same, for a machine that takes its time to start a server."""
    return type("Patient", (agent,), {"connect_seconds": 30.0})


GENEROUS = CheckSettings(timeout=30.0, patience=0.5)
"""`patience` is short: correct agents contact their servers before they answer."""

BRIEF = CheckSettings(timeout=1.5)
"""For servers that stop the agent: the rest is in memory."""

STOPPING = {"mcp.missing", "mcp.silent"}


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
    else:
        report = await checked(patient(FAULTS[fault]), rule, GENEROUS)
    (finding,) = report.findings
    assert finding.verdict is Verdict.FAIL, finding


def test_every_rule_on_servers_is_broken_by_a_fault() -> None:
    assert {check.rule.id for check in chosen(CHECKS, ["mcp"])} == {
        fault.partition(":")[0] for fault in SERVER_FAULTS
    }
