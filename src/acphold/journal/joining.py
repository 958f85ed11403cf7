"""Many chunks of one message as one chunk that says the same."""

from __future__ import annotations

from typing import Final

from acphold.journal.updates import PlainChunk, encode_text

CHUNK_CHARACTERS: Final = 32 << 10
"""How much text one joined chunk holds at most, unless a single one came with more."""


class Run:
    """Plain chunks of one message in a row."""

    __slots__ = ("_kind", "_message_id", "_raw", "_size", "_texts")

    def __init__(self, chunk: PlainChunk, raw: bytes) -> None:
        self._kind = chunk.kind
        self._message_id = chunk.messageId
        self._raw = raw
        self._texts = [chunk.content.text]
        self._size = len(chunk.content.text)

    def take(self, chunk: PlainChunk) -> bool:
        """Take the next chunk in; False when it is of another message, or too much."""
        if chunk.kind != self._kind or chunk.messageId != self._message_id:
            return False
        text = chunk.content.text
        size = self._size + len(text)
        if size > CHUNK_CHARACTERS:
            return False
        self._size = size
        self._texts.append(text)
        return True

    def joined(self) -> bytes:
        """One chunk for all; a chunk that stayed alone is what it was, byte for byte."""
        if len(self._texts) == 1:
            return self._raw
        message_id = b""
        if self._message_id is not None:
            message_id = b'"messageId":%b,' % encode_text(self._message_id)
        return b'{"sessionUpdate":"%b",%b"content":{"type":"text","text":%b}}' % (
            self._kind.encode(),
            message_id,
            encode_text("".join(self._texts)),
        )
