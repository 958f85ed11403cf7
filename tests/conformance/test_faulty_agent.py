"""Each fault of the faulty agents is found by the check of its rule, and by no other."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from acphold.conformance.catalogue import Check
from acphold.conformance.exemplar import Exemplar
from acphold.conformance.exemplar_turns import Memory
from acphold.conformance.inspection import Report, inspect
from acphold.conformance.rules import CHECKS
from acphold.conformance.stage import Settings
from acphold.conformance.subject import MemorySubject
from acphold.conformance.verdicts import Reach, Verdict
from acphold.transports.memory import MemoryTransport
from tests.conformance.faulty_agent import FAULTS
from tests.conformance.played_shell import PlayedShell
from tests.conformance.virtual_time import play

pytestmark = pytest.mark.slow

PROCESSES_ONLY = {"stdio.leaves-nothing"}
"""What only a program can break; `test_program_subject` has it."""

IN_MEMORY = [check for check in CHECKS if check.rule.group != "mcp"]
"""MCP servers are programs and endpoints: `test_tool_servers` has those rules."""

QUICK = [check for check in IN_MEMORY if check.rule.group != "pressure"]
"""Without thousands of messages, where these are not the subject."""


NO_RESULT = ("initialize.answer", "new.answer", "prompt.answer", "list.answer", "delete.answer")
COMPANIONS = {
    # To close a session is to cancel its turn, and a turn may wait for a permission.
    "cancel.stop-reason": {"close.cancels", "cancel.permission"},
    "json-rpc.zero-id": {"json-rpc.string-id"},  # the empty id is none to it, either
    "list.no-match": {"list.filter"},
    "list.filter": {"list.no-match"},
    "list.answer": {"schema.results", "delete.gone"},
    "tool.folder:newest": {"load.folder", "tool.absolute"},
    # Each page has what the other rule wants.
    "session.unknown-id": {"list.pages"},
    "list.known-session": {"list.pages"},
    # A code of theirs, where a rule asks for another.
    "json-rpc.result-or-error:code": {"json-rpc.invalid-params-code"},
    "json-rpc.error-codes": {"json-rpc.invalid-params-code"},
    # Who is busy refuses, and what is refused is not cancelled.
    "new.two-at-once": {"cancel.at-once"},
    "prompt.two-sessions": {"cancel.at-once"},
    "cancel.at-once": {"cancel.permission"},
    "cancel.other-session": {"close.no-other"},
    "prompt.next": {"tool.turns", "tool.refused"},
    # What is late is late for every rule that waits.
    "prompt.updates-first": {"close.silent"},
    "cancel.updates-first": {"close.silent", "prompt.updates-first"},
    "close.cancels": {"close.silent"},
    "close.silent": {"prompt.own-session"},
    # What is replayed twice, or forgotten, is missed elsewhere.
    "load.user-messages:twice": {"load.grows"},
    "load.again": {"load.grows"},
    "resume.goes-on": {"resume.remembers"},
    "json-rpc.string-id:number": {"json-rpc.same-id"},
    "resume.no-history:late": {"tool.unique-ids"},
    "json-rpc.same-id:fractional": {"json-rpc.zero-id", "json-rpc.large-id"},
    # What is no answer does not fit the schema either.
    **{rule: {"schema.results"} for rule in NO_RESULT if rule != "list.answer"},
}
"""Rules that cannot be kept by an agent that breaks this one."""


def checked(
    agent: type[Exemplar], settings: Settings, checks: Sequence[Check] = IN_MEMORY
) -> Report:
    """A whole check of an agent in memory."""
    memory = Memory()

    async def serve(transport: MemoryTransport) -> None:
        await agent(transport, memory).serve()

    subject = MemorySubject("agent", serve)
    return play(inspect(subject, checks, settings, shell=PlayedShell))


def failed(report: Report) -> list[str]:
    return [finding.rule.id for finding in report.of(Verdict.FAIL)]


@pytest.mark.parametrize("fault", [it for it in FAULTS if not it.startswith("mcp.")])
def test_exactly_the_rule_that_is_broken_fails(fault: str) -> None:
    rule = fault.partition(":")[0]
    named = frozenset({rule})
    settings = Settings(named=named, sign_in="key" if rule == "auth.signed-in" else None)
    under_pressure = rule.startswith("pressure.")
    report = checked(FAULTS[fault], settings, IN_MEMORY if under_pressure else QUICK)
    assert set(failed(report)) - COMPANIONS.get(fault, COMPANIONS.get(rule, set())) == {rule}, (
        report.of(Verdict.FAIL)
    )
    assert all(finding.why for finding in report.of(Verdict.FAIL))


def test_the_agent_without_a_fault_breaks_no_rule() -> None:
    assert failed(checked(Exemplar, Settings())) == []


class Locked(Exemplar):
    """Wants a sign-in, and says how."""

    sign_in_wanted = True


def test_what_takes_a_sign_in_is_blocked_and_neither_passes_nor_fails() -> None:
    report = checked(Locked, Settings(), QUICK)
    assert failed(report) == []
    blocked = {finding.rule.id for finding in report.of(Verdict.BLOCKED)}
    assert {"new.answer", "prompt.answer", "cancel.stop-reason", "load.after-restart"} <= blocked
    passed = {finding.rule.id for finding in report.of(Verdict.PASS)}
    assert {"initialize.answer", "auth.methods-for-sign-in"} <= passed


def test_a_sign_in_that_was_asked_for_unblocks_the_rest() -> None:
    report = checked(Locked, Settings(sign_in="key"), QUICK)
    assert failed(report) == []
    assert not report.of(Verdict.BLOCKED)


def test_the_sessions_that_were_made_are_deleted_afterwards() -> None:
    memory = Memory()

    async def serve(transport: MemoryTransport) -> None:
        await Exemplar(transport, memory).serve()

    checks = [check for check in QUICK if check.rule.group in ("new", "prompt")]
    play(inspect(MemorySubject("agent", serve), checks, Settings(), shell=PlayedShell))
    # But for those of which nobody kept the id.
    assert len(memory.sessions) <= 2


def test_every_rule_that_can_be_seen_is_broken_by_a_fault() -> None:
    # Servers are broken in test_servers.py.
    of_agents = [check for check in CHECKS if check.rule.only is not Reach.SERVER]
    seen = {check.rule.id for check in of_agents if not check.unseen}
    assert seen - {fault.partition(":")[0] for fault in FAULTS} == PROCESSES_ONLY


def test_every_id_is_there_once() -> None:
    ids = [check.rule.id for check in CHECKS]
    assert len(ids) == len(set(ids))
