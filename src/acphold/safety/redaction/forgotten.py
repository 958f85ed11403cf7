"""Texts that a person has removed for good, wherever they stand: `acphold forget`.

A text is known by a mark, which does not have it: for each way in which it may be written its
length, a salted digest, and two bits of each of its first bytes, also salted. These find the places
whose digest is worth computing.
"""

# See docs/decisions.md, 30.

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from hashlib import blake2b
from typing import Final

from acphold.safety.budget import Budget
from acphold.safety.redaction.known import COMPARED, SHORTEST, KnownSecrets, ways_to_write
from acphold.safety.redaction.redactor import Redactor, SessionRecord
from acphold.safety.redaction.rules import FoundSecret
from acphold.safety.redaction.texts import Chunks, TextCut, apart, seen_text, without

KIND: Final = "forgotten"
"""Stands in the note in the place of the text."""


LONGEST: Final = 4096
"""Longest text, in characters: a private key fits in."""

STEPS: Final = 16 << 20
STEPS_PER_BYTE: Final = 256
"""Steps for a text, and for each byte of it and each mark: ten times what a conversation needs."""


def mark_of(text: str) -> str:
    """Return a new mark of a text of SHORTEST characters or more."""
    salt = os.urandom(8)
    table = _table(salt)
    ways = sorted({way.encode(errors="surrogatepass") for way in ways_to_write(text)})
    its = [
        f"{len(way)}.{way[:SHORTEST].translate(table).decode()}.{_digest(salt, way)}"
        for way in ways
        if len(way) >= SHORTEST
    ]
    return " ".join([salt.hex(), *its])


def _table(salt: bytes) -> bytes:
    """Return what the bytes are translated to: four letters."""
    letters = (blake2b(bytes([it]), key=salt, digest_size=1).digest()[0] % 4 for it in range(256))
    return bytes(ord("a") + it for it in letters)


def _digest(salt: bytes, data: bytes) -> str:
    return blake2b(data[:COMPARED], key=salt, digest_size=16).hexdigest()


class ForgottenTexts(KnownSecrets):
    """The texts with these marks; a mark that cannot be read is none."""

    def __init__(self, marks: Iterable[str]) -> None:
        self.marks = frozenset(marks)
        self.budget = Budget(STEPS, STEPS_PER_BYTE * len(self.marks))
        super().__init__(self.budget)
        self._marked: list[tuple[bytes, bytes, dict[bytes, list[tuple[int, str]]]]] = []
        for mark in sorted(self.marks):
            salt, *ways = mark.split(" ")
            begins: dict[bytes, list[tuple[int, str]]] = {}
            for way in ways:
                size, begin, digest = way.split(".")
                begins.setdefault(begin.encode(), []).append((int(size), digest))
            self._marked.append((bytes.fromhex(salt), _table(bytes.fromhex(salt)), begins))

    def __bool__(self) -> bool:
        return bool(self._marked)

    def find(self, text: str) -> Iterator[FoundSecret]:
        """Yield the places of the texts; raises OutOfStepsError."""
        data = text.encode(errors="surrogatepass")
        self._budget.read(len(data))
        spans: list[tuple[int, int]] = []
        for salt, table, begins in self._marked:
            self._budget.spend(len(data) * (1 + len(begins)))
            letters = data.translate(table)
            for begin, ways in begins.items():
                at = letters.find(begin)
                while at >= 0:
                    self._budget.spend(COMPARED * len(ways))
                    spans += (
                        (at, at + size)
                        for size, digest in ways
                        if at + size <= len(data) and _digest(salt, data[at : at + size]) == digest
                    )
                    at = letters.find(begin, at + 1)
        place = seen = 0  # in bytes, and in characters
        for start, end in sorted(spans):
            seen += len(data[place:start].decode(errors="surrogatepass"))
            place = start
            length = len(data[start:end].decode(errors="surrogatepass"))
            yield FoundSecret(KIND, seen, seen + length)


class _NoMessages:
    """Texts that are complete: no other record continues one."""

    def chunk(self, kind: str, value: object, /) -> None:
        return None


class Blanking(Redactor):
    """Removes these texts, and nothing else, from the records of a session: see `Redactor`. All of
    it raises OutOfStepsError.

    `places` are the numbers of the records that have one, once all were searched.
    """

    def __init__(self, texts: ForgottenTexts, messages: Callable[[], Chunks] = _NoMessages) -> None:
        super().__init__("", messages, texts.budget, only_secrets=True)
        self._known = self.texts = texts
        self.places: set[int] = set()

    def look(self, record: SessionRecord) -> None:
        """Search the next record, also the names of its members."""
        if any(self._known.find(record.raw.decode(errors="replace"))):
            self.places.add(self._place)
        super().look(record)

    def is_done(self) -> bool:
        """Return True: nothing is learnt that other records may have."""
        super().is_done()
        self.places.update(self._cuts)
        return True

    def _search_known(self, text: str) -> list[TextCut]:
        # Most texts are seen as they are, have none, and are not cut.
        is_plain = seen_text(text).text is text
        if is_plain and not text.rstrip().endswith("...") and not any(self._known.find(text)):
            return []
        return super()._search_known(text)

    def _search(self, text: str, name: str = "") -> list[TextCut]:
        return self._search_known(text)

    def _search_joined(self, text: str) -> list[TextCut]:
        return self._search_known(text)

    def blank_file(self, content: bytes) -> bytes | None:
        """Return the content of a file without them; None if it has none of them."""
        text = content.decode(errors="surrogateescape")
        left = self.blank(text)
        return None if left == text else left.encode(errors="surrogateescape")

    def blank(self, text: str) -> str:
        """Return a text without them."""
        return without(text, apart(self._search_known(text)))

    def blank_record(self, record: SessionRecord) -> bytes | None:
        """Return the JSON of a record without them, judged alone; None if it has none of them."""
        raw = record.raw
        is_plain = raw.isascii() and b"\\u" not in raw and b"\\/" not in raw
        if is_plain and not any(self._known.find(raw.decode("ascii"))):
            return None
        removed = self.removed.total()
        left = self.redact_last(record)
        if left is None:  # it cannot be read
            return b"{}" if any(self._known.find(raw.decode(errors="replace"))) else None
        return None if self.removed.total() == removed else left
