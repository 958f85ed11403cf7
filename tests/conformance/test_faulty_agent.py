"""Each fault of the bundled agent is found by the check of its rule, and by no other."""

from __future__ import annotations

import pytest

from acphold.conformance import CHECKS, MemorySubject, Report, Settings, Verdict, inspect
from acphold.conformance.exemplar import Exemplar
from acphold.conformance.exemplar_turns import Memory
from acphold.conformance.faulty_agent import FAULTS
from acphold.transports import MemoryTransport
from tests.conformance.virtual_time import play

PROCESSES_ONLY = {"stdio.leaves-nothing"}
"""What only a program can break; `test_check` has them."""


def checked(agent: type[Exemplar], settings: Settings) -> Report:
    """A whole check of an agent in memory."""
    memory = Memory()

    async def serve(transport: MemoryTransport) -> None:
        await agent(transport, memory).serve()

    return play(inspect(MemorySubject("agent", serve), CHECKS, settings))


def failed(report: Report) -> list[str]:
    return [finding.rule.id for finding in report.of(Verdict.FAIL)]


@pytest.mark.parametrize("fault", FAULTS)
def test_exactly_the_rule_that_is_broken_fails(fault: str) -> None:
    rule = fault.partition(":")[0]
    named = frozenset({rule})
    settings = Settings(named=named, sign_in="key" if rule == "auth.signed-in" else None)
    report = checked(FAULTS[fault], settings)
    assert failed(report) == [rule], report.of(Verdict.FAIL)
    (finding,) = report.of(Verdict.FAIL)
    assert finding.why


def test_the_agent_without_a_fault_breaks_no_rule() -> None:
    assert failed(checked(Exemplar, Settings())) == []


def test_every_rule_that_can_be_seen_is_broken_by_a_fault() -> None:
    seen = {check.rule.id for check in CHECKS if not check.unseen}
    assert seen - {fault.partition(":")[0] for fault in FAULTS} == PROCESSES_ONLY


def test_every_id_is_there_once() -> None:
    ids = [check.rule.id for check in CHECKS]
    assert len(ids) == len(set(ids))
