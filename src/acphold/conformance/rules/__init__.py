"""The rules, one module for each part of the protocol."""

from acphold.conformance.catalogue import Check
from acphold.conformance.rules import (
    cancellations,
    introductions,
    json_rpc,
    new_sessions,
    prompt_turns,
)

MODULES = (
    introductions,
    new_sessions,
    prompt_turns,
    cancellations,
    json_rpc,
)
"""In the order in which they are played: the simplest first, what may end the agent last."""

CHECKS: tuple[Check, ...] = tuple(check for module in MODULES for check in module.RULES)
"""Every check there is."""
