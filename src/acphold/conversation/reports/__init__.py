"""Reports on a session's history for people: transcripts, patches."""
