"""The live sessions: publishing, attached clients, questions to people and clients.

Begin with `hub` (all sessions), `desk` (one agent), `conversation` (one session with all that
belongs to it), `session` (publishing) and `attachment` (one client).
"""

from acphold.live.hub.agent_session import Setup
from acphold.live.hub.attachment import Attachment, Client
from acphold.live.hub.conversation import Conversation
from acphold.live.hub.desk import Desk
from acphold.live.hub.hub import Hub
from acphold.live.hub.session import HubSession

__all__ = ["Attachment", "Client", "Conversation", "Desk", "Hub", "HubSession", "Setup"]
