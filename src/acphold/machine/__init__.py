"""The processes of this machine: how they start, hold a file, find each other and connect.

It knows nothing of sessions. A front imports from here before anything else: the modules that it
uses do without asyncio, `typing`, `signal` and `socket` at their head (see `acphold.quick_start`).
"""

EXPORTS = """
    addresses begun clipboard first_frame folder_watch foreground installation late_tls
    locked_file own_program place program_group reread runtime_folder
    transient_service unix
"""
"""The modules that other wings may import."""
