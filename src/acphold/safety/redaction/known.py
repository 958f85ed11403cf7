"""Search for known secrets elsewhere, in any encoding."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections import defaultdict
from collections.abc import Iterator
from html import escape
from typing import Final
from urllib.parse import quote, quote_plus

from acphold.safety.redaction.detector import is_certain
from acphold.safety.redaction.rules import FoundSecret, spotter

SHORTEST: Final = 8
"""Shortest secret searched for, in characters: shorter ones occur by chance."""


class KnownSecrets:
    """The secrets of a session that are unlike words, and so are searched for everywhere."""

    def __init__(self) -> None:
        self._kinds: dict[str, str] = {}
        self._by_beginning: dict[str, dict[str, str]] = defaultdict(dict)
        self._spotter: re.Pattern[str] | None = None

    def __bool__(self) -> bool:
        return bool(self._kinds)

    def add(self, secret: str, kind: str) -> None:
        """Search for this secret from now on."""
        if secret in self._kinds or len(secret) < SHORTEST:
            return
        self._kinds[secret] = kind
        self._spotter = None
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
        for written in ways:
            self._by_beginning[written[:SHORTEST]].setdefault(written, kind)

    def find(self, text: str) -> Iterator[FoundSecret]:
        """Yield their places; and at the end of the text, the beginning of one that is cut off."""
        if not self._kinds:
            return
        if self._spotter is None:
            self._spotter = spotter(self._by_beginning)
        for hit in self._spotter.finditer(text):
            place = hit.start()
            for written, kind in self._by_beginning[text[place : place + SHORTEST]].items():
                if text.startswith(written, place):
                    yield FoundSecret(kind, place, place + len(written))
                elif written.startswith(text[place:]) and is_certain(text[place:]):
                    yield FoundSecret(kind, place, len(text))

    def beginnings(self, text: str, end: int, least: int) -> Iterator[FoundSecret]:
        """Yield the beginning of a secret right before `end`, if it has `least` characters."""
        for secret, kind in self._kinds.items():
            for length in range(min(len(secret) - 1, end), least - 1, -1):
                if text.endswith(secret[:length], 0, end):
                    yield FoundSecret(kind, end - length, end)
                    break
