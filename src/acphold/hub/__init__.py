"""The live sessions: what is published in them, who is attached, what is asked of whom.

Begin with `hub` (which sessions there are), `conversation` (one of them with all that belongs to
it), `session` (what is published) and `attachment` (one client).
"""

from acphold.hub.agent_session import Setup
from acphold.hub.attachment import Attachment, Client
from acphold.hub.conversation import Conversation
from acphold.hub.hub import Hub
from acphold.hub.session import Session

__all__ = ["Attachment", "Client", "Conversation", "Hub", "Session", "Setup"]
