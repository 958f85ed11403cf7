"""What is computed from the history of a session for people: transcripts, patches."""
