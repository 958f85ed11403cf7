"""The library for talking to agents: connect to one, open its sessions, prompt, read its updates.

Begin with `acphold.connect`.
"""

from acphold.client.answers import FormQuestion, PageQuestion, PermissionQuestion
from acphold.client.connectors import Options, connect, connect_over, connected_to
from acphold.client.remote_agent import RemoteAgent
from acphold.client.remote_session import RemoteQueue, RemoteSession
from acphold.client.remote_turn import RemoteTurn, Replay, UpdateStream

__all__ = [
    "FormQuestion",
    "Options",
    "PageQuestion",
    "PermissionQuestion",
    "RemoteAgent",
    "RemoteQueue",
    "RemoteSession",
    "RemoteTurn",
    "Replay",
    "UpdateStream",
    "connect",
    "connect_over",
    "connected_to",
]

EXPORTS = """
    advertised answers connectors endpoints far_line journal_endpoints remote_session
    remote_turn session_feed uplink
"""
"""The modules that other wings may import; nobody reaches past them."""
