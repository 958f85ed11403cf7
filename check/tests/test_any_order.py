"""No verdict depends on what else is checked: any rules, in any order, give each the same one."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings, strategies as st

from acp_check.checks import Check, checks_to_play, inspect
from acp_check.errands import Memory
from acp_check.exemplar import Exemplar
from acp_check.rules import CHECKS
from acp_check.stage import CheckSettings
from tests.faulty_agent import FAULTS
from tests.memory_subject import MemorySubject
from tests.oddities import ODDITIES
from tests.played_shell import PlayedShell
from tests.virtual_time import play

pytestmark = pytest.mark.slow

IN_MEMORY = [check for check in CHECKS if check.rule.group not in ("mcp", "pressure")]
"""Without MCP servers, which are programs, and without thousands of messages."""

AGENTS: dict[str, type[Exemplar]] = {"": Exemplar, **FAULTS, **ODDITIES}


def verdicts(agent: type[Exemplar], checks: list[Check]) -> dict[str, str]:
    subject = MemorySubject.of(agent, Memory())
    inspecting = inspect(subject, checks, CheckSettings(), catalogue=IN_MEMORY, shell=PlayedShell)
    return {it.rule.id: it.verdict.value for it in play(inspecting).findings}


@settings(deadline=None, max_examples=15)
@given(agent=st.sampled_from([*AGENTS]), seed=st.integers(0, 1 << 20))
def test_any_rules_in_any_order_get_the_verdicts_of_a_whole_check(agent: str, seed: int) -> None:
    chance = random.Random(seed)
    some = chance.sample(IN_MEMORY, chance.randrange(1, 12))
    whole = verdicts(AGENTS[agent], IN_MEMORY)
    assert verdicts(AGENTS[agent], some) == {it.rule.id: whole[it.rule.id] for it in some}


def test_a_rule_plays_the_cases_that_it_looks_at_and_what_they_need() -> None:
    [rule] = [check for check in IN_MEMORY if check.rule.id == "plan.complete"]
    checking = inspect(
        MemorySubject.of(Exemplar, Memory()),
        [rule],
        CheckSettings(),
        catalogue=IN_MEMORY,
        shell=PlayedShell,
    )
    lines = [line for record in play(checking).records for line in record.lines]
    assert {line.part for line in lines} - {""} == {
        "stage/first_process",
        "beginnings/plain_session",
        "prompt_turns/plain_turn",
        "listings/past",
    }


def test_a_rule_about_messages_takes_no_floods_and_no_servers() -> None:
    """Some are likely to be broken there, and take all."""
    whole = {"stdio.only-messages", "stdio.stays", "json-rpc.one-answer", "json-rpc.in-time"}
    observers = [check for check in CHECKS if check.is_observed_only]
    taking = {
        check.rule.id
        for check in observers
        if {"mcp", "pressure"} & {it.rule.group for it in checks_to_play([check], CHECKS)}
    }
    assert taking == whole


def test_a_rule_alone_gets_the_verdict_of_a_whole_check() -> None:
    whole = verdicts(Exemplar, IN_MEMORY)
    alone = [verdicts(Exemplar, [check]) for check in IN_MEMORY]
    assert {id: verdict for one in alone for id, verdict in one.items()} == whole
