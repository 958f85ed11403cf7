"""The live sessions: publish, attach, replay, ask."""

from acphold.hub.attachment import Attachment, Client
from acphold.hub.hub import Hub
from acphold.hub.opening import Setup
from acphold.hub.session import Session
from acphold.hub.turns import CANCEL_GRACE, Ended

__all__ = ["CANCEL_GRACE", "Attachment", "Client", "Ended", "Hub", "Session", "Setup"]
