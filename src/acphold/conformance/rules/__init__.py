"""The rules, one module for each part of the protocol."""

from acphold.conformance.catalogue import Check
from acphold.conformance.rules import (
    cancellations,
    client_use,
    endings,
    introductions,
    json_rpc,
    listings,
    loads,
    messages_fit,
    network,
    new_sessions,
    plans,
    pressure,
    prompt_turns,
    selections,
    streams,
    tool_reports,
    tool_servers,
    working_hours,
)

MODULES = (
    introductions,
    new_sessions,
    prompt_turns,
    cancellations,
    tool_reports,
    client_use,
    selections,
    listings,
    loads,
    working_hours,
    plans,
    endings,
    tool_servers,
    messages_fit,
    json_rpc,
    network,
    streams,
    pressure,
)
"""The rules' modules in playing order: simplest first, those that may end the agent last.

The processes of `past_sessions` end with the module `tool_servers`.
"""

CHECKS: tuple[Check, ...] = tuple(check for module in MODULES for check in module.RULES)
"""All checks."""
