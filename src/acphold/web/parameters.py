"""Query parameters of an address: each name once, none unknown, each checked."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import Final
from urllib.parse import parse_qsl

from acphold.web.gate import RefusedError

LONGEST: Final = 8192
"""Longest query, in bytes."""

PARAMETERS: Final = 20


class Parameters:
    """The query of one request. Every method raises RefusedError, which says what is wrong."""

    def __init__(self, query: bytes, known: Collection[str]) -> None:
        try:
            if len(query) > LONGEST:
                raise ValueError
            text = query.decode("ascii")
            pairs = parse_qsl(
                text, keep_blank_values=True, errors="strict", max_num_fields=PARAMETERS
            )
        except ValueError:  # of UTF-8, too
            raise RefusedError(400, "what stands behind the ? cannot be read") from None
        self._given = dict(pairs)
        if len(self._given) < len(pairs):
            raise RefusedError(400, "a parameter is given twice")
        if unknown := [name for name in self._given if name not in known]:
            raise RefusedError(400, f"{unknown[0][:40]!r} is none of {', '.join(known)}")

    def text(self, name: str) -> str | None:
        """Return the text; None if it is missing or empty."""
        return self._given.get(name) or None

    def number(self, name: str, least: int, most: int) -> int | None:
        """Return a whole number from `least` to `most`."""
        given = self.text(name)
        if given is None:
            return None
        # ASCII only, and no longer than the largest: int() would accept other digits too.
        if not (given.isascii() and given.isdecimal() and len(given) <= len(str(most))):
            raise RefusedError(400, f"{name} is a number from {least} to {most}")
        if not least <= (number := int(given)) <= most:
            raise RefusedError(400, f"{name} is a number from {least} to {most}")
        return number

    def one_of(self, name: str, words: Collection[str]) -> str | None:
        """Return one of these words."""
        given = self.text(name)
        if given is not None and given not in words:
            raise RefusedError(400, f"{name} is one of {', '.join(words)}")
        return given

    def is_true(self, name: str) -> bool:
        """Return `true` or `false` as a bool; False if it is missing."""
        return self.one_of(name, ("true", "false")) == "true"

    def moment(self, name: str) -> int:
        """Return a time in ISO 8601 as ms since the epoch; 0 if it is missing."""
        given = self.text(name)
        if given is None:
            return 0
        try:
            return max(0, round(datetime.fromisoformat(given).timestamp() * 1000))
        except (ValueError, OverflowError, OSError):
            raise RefusedError(400, f"{name} is a time such as 2026-01-31T12:00:00Z") from None
