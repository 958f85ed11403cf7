"""Connections to the MCP servers a session names.

Begin with `Servers`, then `Connection`. What needs the SDK (`linking`, `streams`, `guarding`) is
imported when the first connection is made; the rest costs little to import.
"""

from holdfast.mcp.bridge import bridge_server
from holdfast.mcp.connection import DEADLINE, Connection
from holdfast.mcp.facing import Answerer, Facing
from holdfast.mcp.pool import Servers
from holdfast.mcp.reconnecting import Closed, Connecting, Failed, Idle, Lost, Ready, State
from holdfast.mcp.results import (
    CallResult,
    MadePrompt,
    Progress,
    Prompt,
    PromptArgument,
    PromptMessage,
    Resource,
    Tool,
)
from holdfast.mcp.servers import Server, checked_server, named_servers

__all__ = [
    "DEADLINE",
    "Answerer",
    "CallResult",
    "Closed",
    "Connecting",
    "Connection",
    "Facing",
    "Failed",
    "Idle",
    "Lost",
    "MadePrompt",
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
