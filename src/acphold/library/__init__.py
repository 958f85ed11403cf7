"""The library to write an agent with, and the code that serves it."""

EXPORTS = """
    agent definition memory_client questions server session session_servers stdio store tools turn
    workspace
"""
"""The modules that other wings may import; nobody reaches past them."""
