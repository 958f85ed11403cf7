"""A turn: the user's prompt, its end, and asking for an early one."""

from __future__ import annotations

from typing import Literal, TypeAlias

from acphold.schema.content import ContentBlock
from acphold.schema.shapes import Extensible

StopReason: TypeAlias = Literal[
    "end_turn", "max_tokens", "max_turn_requests", "refusal", "cancelled"
]


class PromptRequest(Extensible, frozen=True):
    """`session/prompt`: what the user says."""

    session_id: str
    prompt: tuple[ContentBlock, ...]


class PromptResponse(Extensible, frozen=True):
    """The turn is over, and why."""

    stop_reason: StopReason


class CancelNotification(Extensible, frozen=True):
    """`session/cancel`: end the running turn; its prompt is answered `cancelled`."""

    session_id: str
