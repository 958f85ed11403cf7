"""The commands and screens of the terminal, and sessions as files. Begin with `cli/main.py`."""

EXPORTS = """
    cli.command_line cli.daemon cli.early_agent cli.front cli.main cli.packed_words cli.start
"""
"""The modules that other wings may import; nobody reaches past them."""
