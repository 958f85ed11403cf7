"""The end of what a command prints: text, bounded in bytes, never half a character."""

from __future__ import annotations

from codecs import getincrementaldecoder

SLACK_BYTES = 64 * 1024
"""Kept beyond the limit, so that not each piece that comes moves all that is kept."""


class OutputTail:
    """Keeps the last `limit` bytes of a stream as text; what is not UTF-8 becomes U+FFFD."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._decoder = getincrementaldecoder("utf-8")("replace")
        self._kept = bytearray()
        self._dropped = False

    def feed(self, data: bytes, *, final: bool = False) -> None:
        """Take the next piece; a character that ends in a later piece waits for it."""
        self._kept += self._decoder.decode(data, final).encode()
        if len(self._kept) > 2 * self._limit + SLACK_BYTES:
            self._trim()

    @property
    def text(self) -> str:
        """At most `limit` bytes of UTF-8, the last ones, from a character's beginning."""
        self._trim()
        return self._kept.decode()

    @property
    def truncated(self) -> bool:
        """Whether something from before `text` is lost."""
        self._trim()
        return self._dropped

    def _trim(self) -> None:
        surplus = len(self._kept) - self._limit
        if surplus > 0:
            while surplus < len(self._kept) and self._kept[surplus] & 0xC0 == 0x80:
                surplus += 1
            del self._kept[:surplus]
            self._dropped = True
