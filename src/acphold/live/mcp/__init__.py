"""Connections to the MCP servers a session names.

Begin with `Servers`, then `McpConnection`. Names are imported on demand: most sessions name no
server. The modules that need the SDK (`link`, `streams`, `messages`, `bridge_traffic`) are
imported when the first connection is made.
"""

from __future__ import annotations

from importlib import import_module

TYPE_CHECKING = False  # as typing has it; importing that would take longer than the rest
if TYPE_CHECKING:
    from acphold.live.mcp.connections import McpConnection, Servers
    from acphold.live.mcp.offers import CallResult, OurSide, Progress, Prompt, PromptArgument, Tool
    from acphold.live.mcp.servers import Server, parse_servers
    from acphold.live.mcp.transports import Channel

__all__ = [
    "CallResult",
    "Channel",
    "McpConnection",
    "OurSide",
    "Progress",
    "Prompt",
    "PromptArgument",
    "Server",
    "Servers",
    "Tool",
    "parse_servers",
]

_MODULES = {
    "Channel": "transports",
    "McpConnection": "connections",
    "Server": "servers",
    "Servers": "connections",
    "parse_servers": "servers",
}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES.get(name, 'offers')}"), name)
