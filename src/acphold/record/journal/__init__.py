"""The journal of all sessions: its interface, and a folder for each store."""
