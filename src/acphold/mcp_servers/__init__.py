"""The MCP servers that a client names for a session: checked, connected to, bridged.

Begin with `connections`: `Servers`, then `McpConnection`. Most sessions name no server. The modules
that need the SDK (`link`, `streams`, `messages`, `bridge_traffic`) are imported when the first
connection is made.
"""

EXPORTS = """
    bridge connections errors messages offers servers transports
"""
"""The modules that other wings may import; nobody reaches past them."""
