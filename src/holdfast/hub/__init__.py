"""The live sessions: publish, attach, replay, ask."""

from holdfast.hub.attachment import Attachment, Client
from holdfast.hub.hub import Hub
from holdfast.hub.opening import Setup
from holdfast.hub.session import Session
from holdfast.hub.turns import CANCEL_GRACE, Ended

__all__ = ["CANCEL_GRACE", "Attachment", "Client", "Ended", "Hub", "Session", "Setup"]
