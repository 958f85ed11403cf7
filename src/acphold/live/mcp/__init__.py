"""Connections to the MCP servers a session names.

Begin with `connections`: `Servers`, then `McpConnection`. Most sessions name no server. The modules
that need the SDK (`link`, `streams`, `messages`, `bridge_traffic`) are imported when the first
connection is made.
"""
