"""The live sessions: publishing, attached clients, questions to people and clients.

Begin with `hub` (all sessions), `conversation` (one of them with all that belongs to it), `session`
(publishing) and `attachment` (one client).
"""

from acphold.hub.agent_session import Setup
from acphold.hub.attachment import Attachment, Client
from acphold.hub.conversation import Conversation
from acphold.hub.hub import Hub
from acphold.hub.session import HubSession

__all__ = ["Attachment", "Client", "Conversation", "Hub", "HubSession", "Setup"]
