"""Connections to the MCP servers a session names.

Begin with `Servers`, then `Connection`. Names are imported when they are asked for: most sessions
name no server. What needs the SDK (`linking`, `streams`, `guarding`) is imported when the first
connection is made.
"""

from __future__ import annotations

from importlib import import_module

TYPE_CHECKING = False  # as typing has it; importing that would take longer than the rest
if TYPE_CHECKING:
    from acphold.mcp.bridge import bridge_server
    from acphold.mcp.channel import Channel
    from acphold.mcp.connection import DEADLINE, Connection
    from acphold.mcp.facing import Answerer, Facing
    from acphold.mcp.pool import Servers
    from acphold.mcp.reconnecting import Closed, Connecting, Failed, Idle, Lost, Ready, State
    from acphold.mcp.results import (
        CallResult,
        MadePrompt,
        Progress,
        Prompt,
        PromptArgument,
        PromptMessage,
        Resource,
        Tool,
    )
    from acphold.mcp.servers import McpServerAcp, Server, checked_server, named_servers

__all__ = [
    "DEADLINE",
    "Answerer",
    "CallResult",
    "Channel",
    "Closed",
    "Connecting",
    "Connection",
    "Facing",
    "Failed",
    "Idle",
    "Lost",
    "MadePrompt",
    "McpServerAcp",
    "Progress",
    "Prompt",
    "PromptArgument",
    "PromptMessage",
    "Ready",
    "Resource",
    "Server",
    "Servers",
    "State",
    "Tool",
    "bridge_server",
    "checked_server",
    "named_servers",
]

_MODULES = {
    "Answerer": "facing",
    "CallResult": "results",
    "Channel": "channel",
    "Closed": "reconnecting",
    "Connecting": "reconnecting",
    "Connection": "connection",
    "DEADLINE": "connection",
    "Facing": "facing",
    "Failed": "reconnecting",
    "Idle": "reconnecting",
    "Lost": "reconnecting",
    "MadePrompt": "results",
    "McpServerAcp": "servers",
    "Progress": "results",
    "Prompt": "results",
    "PromptArgument": "results",
    "PromptMessage": "results",
    "Ready": "reconnecting",
    "Resource": "results",
    "Server": "servers",
    "Servers": "pool",
    "State": "reconnecting",
    "Tool": "results",
    "bridge_server": "bridge",
    "checked_server": "servers",
    "named_servers": "servers",
}


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
