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
        self._dropped = 0

    def feed(self, data: bytes, *, final: bool = False) -> None:
        """Take the next piece; a character that ends in a later piece waits for it."""
        self._kept += self._decoder.decode(data, final).encode()
        if len(self._kept) > 2 * self._limit + SLACK_BYTES:
            surplus = self._surplus(self._limit)
            del self._kept[:surplus]
            self._dropped += surplus

    @property
    def text(self) -> str:
        """At most `limit` bytes of UTF-8, the last ones, from a character's beginning."""
        return self.last(self._limit)

    @property
    def truncated(self) -> bool:
        """Whether something from before `text` is lost."""
        return self._dropped + len(self._kept) > self._limit

    def last(self, limit: int) -> str:
        """Like `text`, for a limit that is smaller."""
        return self._kept[self._surplus(limit) :].decode()

    def after(self, place: int) -> tuple[str, int]:
        """The text behind `place` as far as it is kept, and the place behind it; 0 is the first."""
        behind = self._kept[max(place - self._dropped, 0) :]
        return behind.decode(), self._dropped + len(self._kept)

    def _surplus(self, limit: int) -> int:
        """How many of the bytes that are kept come before the last `limit`."""
        surplus = max(len(self._kept) - limit, 0)
        while 0 < surplus < len(self._kept) and self._kept[surplus] & 0xC0 == 0x80:
            surplus += 1
        return surplus
