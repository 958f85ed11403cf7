"""A session without what nobody else should read, and a list of what was taken out.

A session is read twice: first to learn its secrets, so that a secret is also found where it stands
without its name; then to take them out. What was changed is looked through again; if there is still
a secret in it, all of that text is left out.

Nothing is written that was not looked through. An entry is decoded, changed and encoded again, so
that no byte of it passes by. What cannot be decoded, and what is encoded once more (pictures,
recordings, archives), is left out.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import AsyncIterable, AsyncIterator, Iterator, Sequence
from hashlib import blake2b
from typing import Any, Final, NamedTuple

import msgspec

from acphold.journal import Entry
from acphold.journal.entries import PROMPT
from acphold.redaction import personal
from acphold.redaction.detector import Finding, assigned, secrets
from acphold.redaction.texts import Cut, Messages, Slot, apart, change, objects, slots

ENCODED: Final = "encoded data"
UNREADABLE: Final = "unreadable entry"
UNSAFE: Final = "text with a secret that could not be cut out"

_ENCODED: Final = re.compile(r"[A-Za-z0-9+/_-]{512,}={0,2}")
"""Base64, as far as that can be told: nobody can see what is in it."""

_CUT_SHORT: Final = re.compile(r"(?:…|\.{3})\s*\Z")
"""Behind a text of which only the beginning is there."""

LEAST_BEGINNING: Final = 4
"""Characters of a secret that tell something of it: its form has two or three before them."""

SHORT: Final = 100
"""Characters of a text that is kept in memory when there is nothing in it: names come often."""

_MEDIA: Final = ("data", "blob")


class Removal(NamedTuple):
    """Something that was taken out: of what kind, and in which entry; 0 is the session's head."""

    seq: int
    kind: str


class Redactor:
    """Takes things out of one session.

    With `only_secrets`, home paths, addresses and encoded data stay. `removed` counts what was
    taken out.
    """

    def __init__(self, *, only_secrets: bool = False) -> None:
        self.removed: Counter[Removal] = Counter()
        self._rules = [] if only_secrets else personal.rules()
        self._keeps_media = only_secrets
        self._known: dict[str, str] = {}
        self._known_pattern: re.Pattern[str] | None = None
        self._clean: set[bytes] = set()
        self._harmless: set[tuple[str, str]] = set()

    # -- a session --------------------------------------------------------------------------

    def learn(self, unit: Sequence[Entry]) -> None:
        """Look for secrets in entries that belong together."""
        for group in self._groups([(entry, _decoded(entry.raw)) for entry in unit]):
            self._learn_from(group)

    def learn_value(self, value: object) -> None:
        """Look for secrets in a JSON value."""
        for slot in slots([value], 0, set()):
            self._learn_from([slot])

    def entries(self, unit: Sequence[Entry]) -> list[Entry]:
        """These entries without what was found; those that cannot be read are left out."""
        readable = []
        for entry in unit:
            if (value := _decoded(entry.raw)) is None:
                self.removed[Removal(entry.seq, UNREADABLE)] += 1
            else:
                readable.append((entry, value))
        roots = [[value] for _, value in readable]
        if not self._keeps_media:
            for (entry, _), root in zip(readable, roots, strict=True):
                self._without_media(root, entry.seq)
        for group in self._groups(
            [(e, root[0]) for (e, _), root in zip(readable, roots, strict=True)]
        ):
            self._redact(group)
        return [
            Entry(entry.seq, entry.kind, entry.at, _encoded(self._renamed(root[0], entry.seq)))
            for (entry, _), root in zip(readable, roots, strict=True)
        ]

    def value(self, value: object) -> Any:
        """A JSON value without what was found; it counts as the head of the session."""
        root = [value]
        for slot in list(slots(root, 0, set())):
            self._redact([slot])
        return self._renamed(root[0], 0)

    def _groups(self, unit: Sequence[tuple[Entry, Any]]) -> Iterator[list[Slot]]:
        """The texts of entries, those together that are read as one."""
        messages = Messages()
        for entry, value in unit:
            claimed = messages.claim(entry.kind, value, entry.seq)
            for slot in list(slots([value], entry.seq, claimed)):
                yield [slot]
        yield from messages.groups.values()

    # -- a text -----------------------------------------------------------------------------

    def _learn_from(self, group: Sequence[Slot]) -> None:
        text = "".join(slot.text for slot in group)
        for finding in self._secrets(text, group[0].name if len(group) == 1 else ""):
            if finding.certain:
                self._known.setdefault(text[finding.start : finding.end], finding.kind)
                self._known_pattern = None
                self._harmless.clear()

    def _redact(self, group: Sequence[Slot]) -> None:
        text = "".join(slot.text for slot in group)
        name = group[0].name if len(group) == 1 else ""
        if (name, text) in self._harmless:
            return
        if not (cuts := self._cuts(text, name)):
            if len(text) <= SHORT:
                self._harmless.add((name, text))
            return
        self._count(group, cuts)
        change(group, cuts)
        left = "".join(slot.text for slot in group)
        if any(True for _ in self._secret_cuts(left, "")):
            whole = [Cut(0, len(left), UNSAFE, f"[removed: {UNSAFE}]")]
            self._count(group, whole)
            change(group, whole)

    def _cuts(self, text: str, name: str) -> list[Cut]:
        cuts = [*self._secret_cuts(text, name), *self._personal_cuts(text)]
        if not self._keeps_media:
            note = f"[removed: {ENCODED}]"
            cuts += [Cut(*found.span(), ENCODED, note) for found in _ENCODED.finditer(text)]
        return apart(cuts)

    def _secret_cuts(self, text: str, name: str) -> Iterator[Cut]:
        found = [(f.start, f.end, f.kind) for f in self._secrets(text, name)]
        if pattern := self._pattern_of_known():
            found += [(*m.span(), self._known[m[0]]) for m in pattern.finditer(text)]
            found += self._beginnings(text)
        for start, end, kind in found:
            yield Cut(start, end, kind, f"[removed: {kind}]")

    def _beginnings(self, text: str) -> Iterator[tuple[int, int, str]]:
        """What a text that was cut, a title most often, has of known secrets at its end."""
        if (cut := _CUT_SHORT.search(text)) is None:
            return
        for secret, kind in self._known.items():
            for length in range(min(len(secret) - 1, cut.start()), LEAST_BEGINNING - 1, -1):
                if text.endswith(secret[:length], 0, cut.start()):
                    yield cut.start() - length, cut.start(), kind
                    break

    def _personal_cuts(self, text: str) -> Iterator[Cut]:
        for rule in self._rules:
            for found in rule.pattern.finditer(text):
                if (replacement := rule.replacement(found[0])) is not None:
                    yield Cut(*found.span(), rule.kind, replacement)

    def _secrets(self, text: str, name: str) -> list[Finding]:
        """The secrets in a text. Those in which there are none are known when they come again."""
        digest = blake2b(f"{name}\0{text}".encode(errors="surrogatepass"), digest_size=12).digest()
        if digest in self._clean:
            return []
        found = list(secrets(text))
        if name and (by_name := assigned(name, text)):
            found.append(by_name)
        if not found:
            self._clean.add(digest)
        return found

    def _pattern_of_known(self) -> re.Pattern[str] | None:
        if self._known_pattern is None and self._known:
            longest_first = sorted(self._known, key=len, reverse=True)
            self._known_pattern = re.compile("|".join(map(re.escape, longest_first)))
        return self._known_pattern

    def _count(self, group: Sequence[Slot], cuts: Sequence[Cut]) -> None:
        for cut in cuts:
            place = 0
            for slot in group:
                place += len(slot.text)
                if cut.start < place:
                    self.removed[Removal(slot.seq, cut.kind)] += 1
                    break

    # -- what is no text --------------------------------------------------------------------

    def _renamed(self, root: Any, seq: int) -> Any:
        """A value whose members are called nothing that should not be read."""
        for found in objects(root):
            names = [[name] for name in found]
            for name in names:
                self._redact([Slot(name, 0, seq)])
            if [name[0] for name in names] != [*found]:
                values = [*found.values()]
                found.clear()
                found.update(zip((name[0] for name in names), values, strict=True))
        return root

    def _without_media(self, root: Any, seq: int) -> None:
        """Put a note in the place of pictures, recordings and files."""
        for found in objects(root):
            for name in _MEDIA:
                data = found.get(name)
                if not isinstance(data, str) or not ("mimeType" in found or name == "blob"):
                    continue
                self.removed[Removal(seq, ENCODED)] += 1
                note = f"[removed: {ENCODED}]"
                if name == "data":
                    found.clear()
                    found |= {"type": "text", "text": note}
                else:
                    del found["blob"]
                    found["text"] = note


async def units(entries: AsyncIterable[Entry]) -> AsyncIterator[list[Entry]]:
    """Entries that belong together: a prompt, and all until the next one."""
    unit: list[Entry] = []
    async for entry in entries:
        if entry.kind == PROMPT and unit:
            yield unit
            unit = []
        unit.append(entry)
    if unit:
        yield unit


def _decoded(raw: bytes) -> Any:
    """The value of JSON; None when it cannot be read."""
    try:
        return msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        try:  # half of a surrogate pair is no error here
            return json.loads(raw.decode(errors="replace"))
        except (ValueError, RecursionError):
            return None


def _encoded(value: object) -> bytes:
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        return json.dumps(value, separators=(",", ":")).encode()
