"""Permission: a client's answers when an agent asks if it may use a tool.

Source: spec v1, tool calls, "Requesting Permission"; prompt turn, "Cancellation".
"""

# See docs/decisions.md, 6.

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Literal, TypeAlias, get_args

from msgspec import Struct

from acphold.errors import DeclarationError
from acphold.schema import (
    CancelledPermissionOutcome,
    PermissionOption,
    SelectedPermissionOutcome,
    ToolKind,
)

if TYPE_CHECKING:
    from acphold.history.timeline import ToolCall
    from acphold.schema import RequestPermissionRequest
    from acphold.schema.tool_calls import RequestPermissionOutcome

Rule: TypeAlias = Literal["allow", "reject", "ask"]
"""The handling of a request: allow it once, reject it, or ask the callback."""

Kind: TypeAlias = "ToolKind | Literal['*']"
"""A kind of tool that a policy names; `*` is the rest."""

Policy: TypeAlias = "Rule | Mapping[Kind, Rule]"
"""One rule for all, or one for each kind of tool (`read`, `edit`, `execute` …); `*` is the rest."""

KINDS = (*get_args(ToolKind), "*")

SWITCH_MODE = "switch_mode"
"""The kind of a tool that changes what the agent may do from then on."""


class PermissionQuestion(Struct, frozen=True):
    """An agent asks if it may go on with a tool call.

    `tool_call` is the call as it stands, with the fields of the request. `options` are the answers
    that the agent accepts, in the order in which it wants them shown. `request` is all of it, as it
    came.
    """

    session_id: str
    tool_call: ToolCall
    options: tuple[PermissionOption, ...]
    request: RequestPermissionRequest


PermissionAnswer: TypeAlias = PermissionOption | str | bool | None
"""An option or its id; True and False for the option that allows, or rejects, once; None if the
person did not choose, which ends the turn at some agents."""

AskPermission: TypeAlias = Callable[
    [PermissionQuestion], "PermissionAnswer | Awaitable[PermissionAnswer]"
]
"""Decides a permission request of an agent."""


def checked_policy(policy: Policy | None, *, has_callback: bool) -> Policy:
    """Return the policy to follow; DeclarationError if it cannot be followed.

    Without one, a callback is asked; without that, everything is rejected.
    """
    if policy is None:
        return "ask" if has_callback else "reject"
    if not isinstance(policy, (str, Mapping)):
        raise DeclarationError(
            "a policy is a rule, or rules by kind of tool; a function goes to `on_permission`"
        )
    for kind in () if isinstance(policy, str) else policy:
        if kind not in KINDS:
            raise DeclarationError(f"{kind!r} is no kind of tool: one is {', '.join(KINDS)}")
    for rule in {policy} if isinstance(policy, str) else {*policy.values()}:
        if rule not in get_args(Rule):
            raise DeclarationError(f"{rule!r} is no rule for permissions: allow, reject or ask")
        if rule == "ask" and not has_callback:
            raise DeclarationError("a policy that asks needs `on_permission`, which is asked")
    return policy


def rule_for(policy: Policy, kind: str) -> Rule:
    """Return the policy's rule for a kind of tool.

    A change of mode is allowed only by a policy that names that kind: the agent may then do things
    unasked that the policy was not meant for.
    """
    if isinstance(policy, str):
        return "reject" if kind == SWITCH_MODE and policy == "allow" else policy
    for known, rule in policy.items():  # not by the key: an agent may be newer than our kinds
        if known == kind:
            return rule
    return rule_for(policy.get("*", "reject"), kind)


def chosen(
    answer: PermissionAnswer, options: Sequence[PermissionOption]
) -> PermissionOption | None:
    """Return the option that an answer means; None if the agent offers none that does.

    True and False never stand for "always". DeclarationError for an option that is not offered.
    """
    if answer is None:
        return None
    if isinstance(answer, bool):
        kind = "allow_once" if answer else "reject_once"
        return next((option for option in options if option.kind == kind), None)
    wanted = answer if isinstance(answer, str) else answer.option_id
    for option in options:
        if option.option_id == wanted:
            return option
    offered = ", ".join(option.option_id for option in options)
    raise DeclarationError(f"the agent offers no option {wanted!r}, but {offered}")


def outcome(
    answer: PermissionAnswer, options: Sequence[PermissionOption]
) -> RequestPermissionOutcome:
    """Return the answer to the agent.

    A "yes" that can only be given for always becomes a "no". A "no" is a reject option if there is
    one, for "cancelled" ends the whole turn at some agents.
    """
    option = chosen(answer, options)
    if option is None and answer is True:
        option = chosen(False, options)
    if option is None:
        return CancelledPermissionOutcome()
    return SelectedPermissionOutcome(option_id=option.option_id)
