"""Live sessions: agents that run, the clients that share them, and what people see of both.

Begin with `hub/session.py` and `hub/attachment.py`.
"""

EXPORTS = """
    agents.capabilities agents.client_methods agents.extensions agents.identity
    agents.interface agents.wrapped
    hub.alerts hub.annotations hub.bounds hub.choices hub.forks hub.frames
    hub.kept_files hub.kept_stores hub.move_giver hub.move_taker hub.moves hub.session_trees
    hub.prompt_turn
    origins.kept_changes
    reading.bounds reading.inbox reading.json_facts reading.listed_sessions reading.local_reader
    reading.one_question reading.processes reading.requests reading.rule_offers
    server.alert_commands server.daemon server.directory server.far_line server.hung server.methods
    server.places server.pool server.positions server.principals server.reconnection
    server.relay_protocol server.service
"""
"""The modules that other wings may import; nobody reaches past them."""
