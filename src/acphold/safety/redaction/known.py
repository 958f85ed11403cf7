"""Search for known secrets elsewhere, in any encoding.

Of a long secret the first characters are compared; a text with as many of them is taken for it.
"""

from __future__ import annotations

import json
import re
from base64 import b64encode
from bisect import bisect
from collections import defaultdict
from collections.abc import Iterator
from html import escape
from typing import Final
from urllib.parse import quote, quote_plus

from acphold.safety.budget import Budget
from acphold.safety.redaction.detector import is_certain
from acphold.safety.redaction.rules import FoundSecret, spotter

SHORTEST: Final = 8
"""Shortest secret searched for, in characters: shorter ones occur by chance."""

HEAD: Final = 64
"""Characters of a secret that nothing else has: also a text with no more of it is removed."""

COMPARED: Final = 1024
"""Characters of a secret that are compared."""


SPOTTED: Final = 500
"""Most different beginnings of secrets that are searched for as one pattern."""


def ways_to_write(secret: str) -> set[str]:
    """Return a secret as it stands in texts of any encoding."""
    in_url, in_json = quote(secret, safe=""), json.dumps(secret)[1:-1]
    ways = {
        *(secret, in_url, in_url.replace("%", "%25"), quote(secret), quote_plus(secret)),
        re.sub(r"%[0-9A-F]{2}", lambda sign: sign[0].lower(), in_url),
        *(in_json, json.dumps(in_json)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1]),
        *(escape(secret), escape(secret, quote=False)),
        # As shells need it: with each sign escaped, or with those that matter in quotes.
        re.sub(r"([^\w@%+=:,./-])", r"\\\1", secret),
        re.sub(r"([^\w])", r"\\\1", secret),
        re.sub(r"([\"$`\\])", r"\\\1", secret),
        secret.replace("'", "'\\''"),
        secret.replace("'", "'\"'\"'"),
    }
    raw = secret.encode(errors="surrogatepass")
    ways.add(raw.hex())
    for before in range(3):  # what base64 of a longer text shows, for each offset and alphabet
        encoded = b64encode(b"\0" * before + raw).decode()
        # The first and the last sign also depend on the text before and after it.
        whole = encoded[(0, 2, 3)[before] : (before + len(raw)) * 8 // 6]
        ways |= {whole, whole.translate({ord("+"): "-", ord("/"): "_"})}
    return ways


class KnownSecrets:
    """The secrets of a session that are unlike words, and so are searched for everywhere."""

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._kinds: dict[str, str] = {}
        self._forms: dict[str, tuple[str, int]] = {}
        """The compared part of each form, with its kind and its whole length."""
        self._lengths: dict[str, set[int]] = defaultdict(set)
        """The lengths of such parts, up to HEAD, by their beginnings."""
        self._sorted: list[str] = []
        self._spotter: re.Pattern[str] | None = None

    def __bool__(self) -> bool:
        return bool(self._kinds)

    def add(self, secret: str, kind: str) -> None:
        """Search for this secret from now on; raises OutOfStepsError."""
        begin = secret[:COMPARED]
        if len(secret) < SHORTEST or (begin in self._kinds and len(secret) <= COMPARED):
            return
        self._budget.spend(20 * len(begin))
        self._kinds[begin] = kind
        self._sorted, self._spotter = [], None
        for written in ways_to_write(begin):
            part, size = written[:COMPARED], len(written) * len(secret) // len(begin)
            known, longest = self._forms.get(part, (kind, 0))
            self._forms[part] = known, max(size, longest)
            self._lengths[part[:SHORTEST]].add(min(len(part), HEAD))

    def find(self, text: str) -> Iterator[FoundSecret]:
        """Yield their places; and at the end of the text, the beginning of one that is cut off.

        Raises OutOfStepsError.
        """
        if not self._kinds:
            return
        self._sorted = self._sorted or sorted(self._forms)
        for place in self._places(text):
            seen = text[place : place + COMPARED]
            lengths = self._lengths[seen[:SHORTEST]]
            self._budget.spend(len(lengths) * HEAD + len(seen))
            for length in lengths:
                if form := self._forms.get(seen[:length]):
                    yield FoundSecret(form[0], place, place + length)
            # No other has more of it than its neighbours in the order.
            at = bisect(self._sorted, seen)
            for part in self._sorted[max(0, at - 1) : at + 1]:
                kind, size = self._forms[part]
                same = _common(seen, part)
                is_end = same == len(text) - place and is_certain(seen)
                if same >= HEAD or is_end:
                    end = place + (size if same == COMPARED else same)
                    yield FoundSecret(kind, place, min(end, len(text)))

    def _places(self, text: str) -> Iterator[int]:
        """Yield the places where a secret may begin."""
        if len(self._lengths) > SPOTTED:
            self._budget.spend(2 * SHORTEST * len(text))
            for place in range(len(text) - SHORTEST + 1):
                if text[place : place + SHORTEST] in self._lengths:
                    yield place
            return
        self._budget.spend((1 + len(self._lengths) // 16) * len(text))
        self._spotter = self._spotter or spotter(self._lengths)
        for hit in self._spotter.finditer(text):
            yield hit.start()

    def beginnings(self, text: str, end: int, least: int) -> Iterator[FoundSecret]:
        """Yield the beginning of a secret right before `end`, if it has `least` characters.

        One as long as HEAD is found by itself. Raises OutOfStepsError.
        """
        self._budget.spend(len(self._kinds) * HEAD)
        for secret, kind in self._kinds.items():
            for length in range(min(len(secret) - 1, end, HEAD), least - 1, -1):
                if text.endswith(secret[:length], 0, end):
                    yield FoundSecret(kind, end - length, end)
                    break


def _common(one: str, other: str) -> int:
    """Return the number of characters with which both begin."""
    least, most = 0, min(len(one), len(other))
    while least < most:
        half = (least + most + 1) // 2
        if one[:half] == other[:half]:
            least = half
        else:
            most = half - 1
    return least
