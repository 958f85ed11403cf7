"""For all rules and all circumstances: what differs in one thing is never allowed."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any, Final

import pytest
from msgspec.structs import replace

from acphold.safety.standing.asked_actions import Action, RunAction
from acphold.safety.standing.decision import Circumstances, StandingRule, decide, read_rule

PEOPLE: Final = ("", "ada", "bob")
AGENTS: Final = ("claude", "codex", "cline")
PLACES: Final = ("m1 j1", "m1 j2", "m2 j1", "m2 j2", "")
CASES: Final = 3000

ASKED: Final[tuple[tuple[str, Action], ...]] = (
    ("run pytest …", RunAction(("pytest -q",))),
    ("run make check", RunAction(("make check",))),
    ("run make check", RunAction(("make check",), stays=True)),
)


def chosen(chance: random.Random, folder: Path, text: str) -> StandingRule:
    """A rule of somebody, somewhere, for some agent and session."""
    return replace(
        read_rule(text),
        number=chance.randrange(1, 9),
        person=chance.choice(PEOPLE),
        agent=chance.choice(("", *AGENTS)),
        session=chance.choice(("", "s1", "s2")),
        folder=str(chance.choice((folder, folder / "src"))),
        places=tuple(chance.sample(PLACES[:-1], chance.randrange(3))),
        expires_at=chance.choice((0, 5, 15)),
        is_off=chance.random() < 0.1,
        ended_at=chance.choice((0, 0, 0, 3)),
    )


def circumstances(chance: random.Random, folder: Path) -> Circumstances:
    return Circumstances(
        chance.choice(AGENTS),
        str(folder),
        chance.choice(("s1", "s2")),
        chance.choice(PEOPLE),
        10,
        has_guests=chance.random() < 0.1,
        has_moved=chance.random() < 0.1,
        place=chance.choice(PLACES),
        shell=chance.choice(("", "/bin/bash", "/bin/tcsh")),
    )


def fits(rule: StandingRule, at: Circumstances) -> bool:
    """Everything that a rule is bound to, said once more and by itself."""
    return (
        rule.person == at.person
        and rule.agent in ("", at.agent)
        and rule.session in ("", at.session)
        and rule.folder == at.folder
        and at.place in rule.places
        and rule.expires_at != 5
        and not rule.ended_at
        and not rule.is_off
        and not at.has_guests
    )


@pytest.mark.parametrize("seed", range(4))
def test_a_rule_allows_nothing_where_anything_that_it_is_bound_to_differs(
    seed: int, project: Path
) -> None:
    chance, allowed = random.Random(seed), 0
    for _ in range(CASES):
        text, action = chance.choice(ASKED)
        rules = [chosen(chance, project, text) for _ in range(chance.randrange(1, 4))]
        at = circumstances(chance, project)
        verdict = decide(action, rules, at)
        assert not verdict.allows or all(fits(rule, at) for rule in verdict.rules)
        allowed += verdict.allows
    assert allowed  # else nothing was seen


DIFFERENT: Final[tuple[dict[str, Any], ...]] = (
    {"person": "bob"},
    {"person": ""},
    {"agent": "codex"},
    {"agent": ""},
    {"session": "s2"},
    {"place": "m2 j1"},
    {"place": "m1 j2"},
    {"place": ""},
    {"has_guests": True},
    {"now": 15},
    {"shell": "/bin/tcsh"},
)


@pytest.mark.parametrize("change", DIFFERENT, ids=str)
@pytest.mark.parametrize(("text", "action"), ASKED[:2])
def test_each_thing_that_a_rule_is_bound_to_is_enough_to_ask(
    text: str, action: Action, change: dict[str, Any], project: Path
) -> None:
    rule = replace(
        read_rule(text),
        number=1,
        person="ada",
        agent="claude",
        session="s1",
        folder=str(project),
        places=("m1 j1",),
        expires_at=15,
    )
    at = Circumstances("claude", str(project), "s1", "ada", 10, place="m1 j1")
    assert decide(action, [rule], at).allows
    assert not decide(action, [rule], replace(at, **change)).allows
