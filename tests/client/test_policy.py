"""Answers to an agent that asks for permission."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from acp_wire.schema import (
    CancelledPermissionOutcome,
    PermissionOption,
    SelectedPermissionOutcome,
)
from acp_wire.schema.updates import PermissionOptionKind
from acphold.client.answers import Policy, Rule, outcome, policy_to_follow, rule_for
from acphold.errors import DeclarationError

KINDS: tuple[PermissionOptionKind, ...] = (
    "allow_once",
    "allow_always",
    "reject_once",
    "reject_always",
)
ALL = tuple(PermissionOption(option_id=f"id-{kind}", name=kind, kind=kind) for kind in KINDS)
OFFERS = st.lists(st.sampled_from(ALL), unique_by=lambda option: option.option_id)


@given(OFFERS, st.booleans())
def test_a_policy_never_picks_what_holds_for_always(
    options: list[PermissionOption], allow: bool
) -> None:
    answer = outcome(allow, options)
    if isinstance(answer, SelectedPermissionOutcome):
        assert answer.option_id in ("id-allow_once", "id-reject_once")


@given(OFFERS, st.booleans())
def test_a_no_picks_a_reject_option_where_there_is_one(
    options: list[PermissionOption], allow: bool
) -> None:
    kinds = {option.kind for option in options}
    answer = outcome(allow, options)
    if allow and "allow_once" in kinds:
        assert answer == SelectedPermissionOutcome(option_id="id-allow_once")
    elif "reject_once" in kinds:
        assert answer == SelectedPermissionOutcome(option_id="id-reject_once")
    else:
        assert answer == CancelledPermissionOutcome()


def test_a_person_may_pick_any_option_or_none() -> None:
    for option in ALL:
        for answer in (option, option.option_id):
            expected = SelectedPermissionOutcome(option_id=option.option_id)
            assert outcome(answer, ALL) == expected
    assert outcome(None, ALL) == CancelledPermissionOutcome()
    with pytest.raises(DeclarationError, match="no option 'maybe', only id-allow_once"):
        outcome("maybe", ALL)


@pytest.mark.parametrize(
    ("policy", "kind", "rule"),
    [
        ("allow", "read", "allow"),
        ("allow", "other", "allow"),
        ("reject", "read", "reject"),
        ("ask", "switch_mode", "ask"),
        ({"read": "allow"}, "read", "allow"),
        ({"read": "allow"}, "edit", "reject"),
        ({"read": "allow", "*": "ask"}, "edit", "ask"),
        ({"read": "reject", "*": "allow"}, "edit", "allow"),
    ],
)
def test_a_rule_holds_for_all_kinds_or_for_each(policy: Policy, kind: str, rule: Rule) -> None:
    assert rule_for(policy, kind) == rule


def test_a_mode_is_switched_only_by_someone_who_names_it() -> None:
    assert rule_for("allow", "switch_mode") == "reject"
    assert rule_for({"*": "allow"}, "switch_mode") == "reject"
    assert rule_for({"switch_mode": "allow"}, "switch_mode") == "allow"


@pytest.mark.parametrize("policy", ["ask", {"edit": "ask"}])
def test_a_policy_that_asks_needs_somebody_to_ask(policy: Policy) -> None:
    assert policy_to_follow(policy, has_callback=True) == policy
    with pytest.raises(DeclarationError, match="needs `on_permission`"):
        policy_to_follow(policy, has_callback=False)


def test_an_unknown_rule_is_refused_where_it_is_given() -> None:
    for policy in ("always", {"read": "yes"}):
        with pytest.raises(DeclarationError, match="is not a rule for permissions"):
            policy_to_follow(policy, has_callback=True)  # type: ignore[arg-type]
    with pytest.raises(DeclarationError, match="pass a function as `on_permission`"):
        policy_to_follow(print, has_callback=True)  # type: ignore[arg-type]


def test_a_kind_of_tool_that_there_is_not_is_refused_where_it_is_given() -> None:
    with pytest.raises(
        DeclarationError, match="'raed' is not a kind of tool; the kinds are read, edit"
    ):
        policy_to_follow({"raed": "allow"}, has_callback=False)  # type: ignore[dict-item]
    with pytest.raises(DeclarationError, match="1 is not a kind"):
        policy_to_follow({1: "allow"}, has_callback=False)  # type: ignore[dict-item]
