"""The record of sessions: their history as values, and the journal that keeps it.

It stands on acp-wire and acp-safety, and starts nothing. Begin with `history/fold.py` and
`journal/journal.py`.
"""

EXPORTS = """
    history.attributes history.children history.decisions history.display_terminals
    history.entries history.fold history.message_chunks history.prompt_queue history.raw_update
    history.replay history.timeline history.words
    journal.access journal.bounds journal.compression journal.copies journal.hits
    journal.intentions journal.journal journal.lineage journal.list_places
    journal.moves journal.owners journal.rows journal.seams
    journal.stored_journal journal.stores journal.token_reports
    reports.file_edits reports.session_diff reports.transcript
"""
"""The modules that other wings may import; nobody reaches past them."""
