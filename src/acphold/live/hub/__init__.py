"""The live sessions: publishing, attached clients, questions to people and clients.

Begin with `hub` (all sessions), `desk` (one agent), `conversation` (one session with all that
belongs to it), `session` (publishing) and `attachment` (one client).
"""
