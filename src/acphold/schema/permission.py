"""Asking the user whether a tool may run."""

from __future__ import annotations

from typing import Literal, TypeAlias

from acphold.schema.shapes import Extensible, Shape
from acphold.schema.tools import ToolCallPatch

PermissionOptionKind: TypeAlias = Literal[
    "allow_once", "allow_always", "reject_once", "reject_always"
]


class PermissionOption(Extensible, frozen=True):
    """An answer to choose; `name` is what the user sees."""

    option_id: str
    name: str
    kind: PermissionOptionKind


class RequestPermissionRequest(Extensible, frozen=True):
    """`session/request_permission`: may this tool call go on?"""

    session_id: str
    tool_call: ToolCallPatch
    options: tuple[PermissionOption, ...]


class CancelledPermissionOutcome(Shape, frozen=True, tag="cancelled", tag_field="outcome"):
    """The turn was cancelled before the user chose."""


class SelectedPermissionOutcome(Extensible, frozen=True, tag="selected", tag_field="outcome"):
    """The user chose."""

    option_id: str


# No catch-all: an answer that cannot be read permits nothing.
RequestPermissionOutcome: TypeAlias = CancelledPermissionOutcome | SelectedPermissionOutcome


class RequestPermissionResponse(Extensible, frozen=True):
    """What the user decided."""

    outcome: RequestPermissionOutcome
