"""`acphold mcp-bridge`: an MCP server on stdio that forwards to one at a URL."""

from __future__ import annotations

import os

from acphold.extras import require
from acphold.faces.cli.command_line import command
from acphold.mcp_servers.bridge import run_bridge


@command("mcp-bridge", "")
def mcp_bridge() -> int:
    """An MCP server on stdio that forwards to one at a URL.

    For agents that support MCP servers on stdio only: `acphold wrap` gives them this instead of a
    server over HTTP or SSE. The URL and the headers come in environment variables, because
    everybody on the machine can read command-line arguments.
    """
    require("mcp", "mcp-bridge")
    return run_bridge(os.environ)
