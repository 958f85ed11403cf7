"""The rules, one module for each part of the protocol."""

from acp_check.checks import Check
from acp_check.rules import (
    beginnings,
    client_use,
    endings,
    independence,
    json_rpc,
    listings,
    loads,
    messages_fit,
    network,
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
    beginnings,
    prompt_turns,
    tool_reports,
    client_use,
    selections,
    listings,
    loads,
    working_hours,
    plans,
    endings,
    independence,
    tool_servers,
    messages_fit,
    json_rpc,
    network,
    streams,
    pressure,
)
"""The rules' modules in playing order: simplest first."""

CHECKS: tuple[Check, ...] = tuple(check for module in MODULES for check in module.RULES)
"""All checks."""
