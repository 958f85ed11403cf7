"""`acphold mcp-bridge`: an MCP server on stdio that speaks to one behind a URL."""

from __future__ import annotations

import os
import sys

import click

from acphold.mcp.bridge import run_bridge


@click.command("mcp-bridge")
def command() -> None:
    """Speak MCP on stdio for a server behind a URL.

    For agents that take MCP servers on stdio only: `acphold wrap` hands them this in place of a
    server over HTTP or SSE. The URL and the headers come in environment variables, because
    arguments can be read by everybody on the machine.
    """
    sys.exit(run_bridge(os.environ))
