"""The history of a session, as values: entries, their fold, their words. No files."""
