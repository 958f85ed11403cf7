"""Sessions over the network: an ASGI application and the server that runs it."""

from __future__ import annotations

from acphold.web.application import Application

__all__ = ["Application"]

EXPORTS = """
    application page_files relay running_servers server
"""
"""The modules that other wings may import; nobody reaches past them."""
