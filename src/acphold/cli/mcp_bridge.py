"""`acphold mcp-bridge`: an MCP server on stdio that speaks to one behind a URL."""

from __future__ import annotations

import os

from acphold.cli.command_line import Parser
from acphold.mcp.bridge import run_bridge


def parser() -> Parser:
    """It takes no arguments."""
    return Parser(mcp_bridge, "mcp-bridge", "")


def mcp_bridge() -> int:
    """Speak MCP on stdio for a server behind a URL.

    For agents that take MCP servers on stdio only: `acphold wrap` hands them this in place of a
    server over HTTP or SSE. The URL and the headers come in environment variables, because
    arguments can be read by everybody on the machine.
    """
    return run_bridge(os.environ)
