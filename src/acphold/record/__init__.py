"""The record of sessions: their history as values, the journal that keeps it, the files beside it.

It stands on acp-wire alone, and starts nothing. Begin with `history/fold.py` and
`journal/journal.py`.
"""

EXPORTS = """
    history.attributes history.children history.decisions history.display_terminals
    history.entries history.fold history.prompt_queue history.raw_update
    history.replay history.timeline history.words
    journal.access journal.bounds journal.compression journal.copies journal.hits
    journal.intentions journal.journal journal.lineage journal.list_places
    journal.moves journal.owners journal.rows journal.seams
    journal.stored_journal journal.stores journal.token_reports
    redaction.detector redaction.redactor
    reports.file_edits reports.session_diff reports.transcript
    snapshots.bounds snapshots.checkouts snapshots.comparison snapshots.git snapshots.packs
    snapshots.secret_names snapshots.sieve snapshots.snapshot snapshots.store snapshots.worktree
    standing.asked_actions standing.decision standing.folders standing.programs
"""
"""The modules that other wings may import; nobody reaches past them."""
