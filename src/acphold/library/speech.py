"""What an agent says and thinks, as updates: pieces in a row are one message with one id.

The bytes around a piece of text are made once for a message, because models say a lot in small
pieces. Source: spec v1, prompt turn, "Agent Reports Output"; RFD message ids.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Literal, TypeAlias

from acphold.schema import encode

if TYPE_CHECKING:
    from acphold.schema import ContentBlock

Voice: TypeAlias = Literal["agent_message_chunk", "agent_thought_chunk"]

MESSAGE: Voice = "agent_message_chunk"
THOUGHT: Voice = "agent_thought_chunk"


class Message:
    """One message in one voice, while it grows."""

    __slots__ = ("_before", "_behind", "_text_before", "_text_behind", "voice")

    def __init__(self, voice: Voice) -> None:
        self.voice = voice
        self._before = b'{"sessionUpdate":"%b","content":' % voice.encode()
        self._behind = b',"messageId":"%b"}' % fresh_id("msg").encode()
        self._text_before = self._before + b'{"type":"text","text":'
        self._text_behind = b"}" + self._behind

    def text(self, text: str) -> bytes:
        """The update for a piece of text; TypeError for what is none."""
        return self._text_before + encode(text) + self._text_behind

    def block(self, block: ContentBlock) -> bytes:
        """The update for another content block."""
        return self._before + encode(block) + self._behind


def fresh_id(kind: str) -> str:
    """An id nobody has had before."""
    return f"{kind}_{os.urandom(12).hex()}"
