"""Asking the user for input: a form to fill in, or a page to visit.

The schema merges mode and scope into one object, and so do we; what a mode needs is checked when
the object is made.
"""

from __future__ import annotations

from typing import Annotated, TypeAlias

from msgspec import UNSET, UnsetType

from acphold.schema.forms import ElicitationSchema
from acphold.schema.requests import RequestId
from acphold.schema.shapes import Extensible, Known, OrDefault

ElicitationContentValue: TypeAlias = str | int | float | bool | tuple[str, ...]

NEEDS = {"form": ("requested_schema",), "url": ("elicitation_id", "url")}
"""The fields each known mode must have; other modes may come."""


class CreateElicitationRequest(Extensible, frozen=True):
    """`elicitation/create`: `mode` is `form` or `url`, scope a session or a request."""

    message: str
    mode: Annotated[str, Known(("form", "url"))]
    session_id: str | UnsetType = UNSET
    tool_call_id: OrDefault[str | None] = None
    request_id: RequestId | UnsetType = UNSET
    requested_schema: ElicitationSchema | UnsetType = UNSET
    elicitation_id: str | UnsetType = UNSET
    url: str | UnsetType = UNSET

    def __post_init__(self) -> None:
        if self.session_id is UNSET and self.request_id is UNSET:
            raise ValueError("`sessionId` or `requestId` must be there")
        for name in NEEDS.get(self.mode, ()):
            if getattr(self, name) is UNSET:
                wire = {"requested_schema": "requestedSchema", "elicitation_id": "elicitationId"}
                raise ValueError(f"mode {self.mode!r} needs `{wire.get(name, name)}`")


class CreateElicitationResponse(Extensible, frozen=True):
    """`action` is `accept` (with `content` for a form), `decline` or `cancel`; others may come."""

    action: Annotated[str, Known(("accept", "decline", "cancel"))]
    content: dict[str, ElicitationContentValue] | None = None


class CompleteElicitationNotification(Extensible, frozen=True):
    """`elicitation/complete`: what the page was for is done."""

    elicitation_id: str
