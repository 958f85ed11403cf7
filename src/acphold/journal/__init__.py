"""The journal that keeps sessions, on SQLite and PostgreSQL. It starts nothing.

Begin with `journal.py`.
"""

EXPORTS = """
    access bounds compression copies forgotten_texts hits
    intentions journal lineage list_places
    moves owners removal rows seams
    stored_journal stores token_reports
"""
"""The modules that other wings may import; nobody reaches past them."""
