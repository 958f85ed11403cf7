"""Safety around an agent, without sessions: what it asks, what it gives away, what it changes."""

EXPORTS = """
    budget errors
    redaction.detector redaction.forgotten redaction.known redaction.redactor redaction.texts
    snapshots.bounds snapshots.branches snapshots.checkouts snapshots.comparison snapshots.git
    snapshots.packs snapshots.rewriting
    snapshots.secret_names snapshots.sieve snapshots.snapshot snapshots.store snapshots.worktree
    standing.asked_actions standing.decision standing.folders standing.moved_shells
    standing.programs standing.repositories
"""
"""The modules that other wings may import; nobody reaches past them."""
