"""A conversation of ACP as values: recorded, folded, shown, and written to files."""

EXPORTS = """
    errors
    exports.forms exports.page exports.redacted
    history.attributes history.beginnings history.children history.clearings history.compaction
    history.compared_turns history.decisions
    history.display_terminals history.entries history.fold history.handovers history.message_chunks
    history.prompt_queue history.raw_update history.replay history.timeline history.titles
    history.words
    presentation.blocks presentation.long_output presentation.permissions
    presentation.present_diffs presentation.scenes presentation.visible_text
    reports.file_edits reports.session_diff reports.transcript
"""
"""The modules that other wings may import; nobody reaches past them."""
