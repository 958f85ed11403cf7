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
    pressure,
    prompt_turns,
    selections,
    tool_reports,
    tool_servers,
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
    endings,
    tool_servers,
    messages_fit,
    json_rpc,
    network,
    pressure,
)
"""In the order in which they are played: the simplest first, what may end the agent last.

The processes of
`past_sessions` are over with the module `tool_servers`."""

CHECKS: tuple[Check, ...] = tuple(check for module in MODULES for check in module.RULES)
"""Every check there is."""
