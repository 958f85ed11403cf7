"""Redaction of a session, of its secrets and personal data, and a list of what was removed.

A session is read several times: once to find what to remove; once more, if there are secrets, to
find them elsewhere without their names; and then to remove all of it. Nothing unsearched is
written: a record that has changed meanwhile is refused.

A record is decoded, changed and encoded again, so that no byte of it escapes. Unreadable records
and encoded data (pictures, recordings, archives) are left out. A text is searched as it is seen: a
program that highlights a match writes a colour into the middle of a word.
"""

# See docs/decisions.md, 30.

from __future__ import annotations

import json
import os
import re
from array import array
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from hashlib import blake2b
from ipaddress import ip_address
from typing import Any, Final, NamedTuple, Protocol

import msgspec

from acphold.safety.budget import Budget
from acphold.safety.errors import RedactionError
from acphold.safety.redaction.detector import is_certain, secret_by_name, secrets
from acphold.safety.redaction.known import KnownSecrets
from acphold.safety.redaction.rules import FoundSecret, by_form
from acphold.safety.redaction.texts import (
    PAYLOAD,
    UNSEEN,
    WINDOW,
    Chunk,
    Chunks,
    Placed,
    SeenText,
    Stretch,
    TextCut,
    apart,
    objects,
    seen_text,
    slots,
    without,
)

HOME: Final = "home path"
MAIL: Final = "mail address"
NETWORK: Final = "network address"

_NAME: Final = r"[^\\/\s\"'<>|:*?`,;()\[\]{}&%#$!]+"
_FOLDERS: Final = r"(?:home|Users)"

_PATHS: Final = (
    # macOS and Linux, WSL, and the Linux systems with home folders below /var.
    (rf"(?<![\w.-])/(?:var/|mnt/[a-z]/|private/)?{_FOLDERS}/{_NAME}", "~"),
    # Windows, where a name may have spaces, and a path its backslashes doubled.
    (rf"(?<!\w)[A-Za-z]:(?:\\+|/){_FOLDERS}(?:\\+|/){_NAME}(?: {_NAME})*(?=[\\/])", "~"),
    (rf"(?<!\w)[A-Za-z]:(?:\\+|/){_FOLDERS}(?:\\+|/){_NAME}", "~"),
    # In a URL, and in agents' names for project folders.
    (rf"(?i)%2F{_FOLDERS}%2F[^%/\s\"'&]+", "~"),
    (rf"(?<![A-Za-z0-9])-{_FOLDERS}-[A-Za-z0-9_]+", "-~"),
)

_MAIL: Final = re.compile(
    r"[\w.%+-]{1,64}@[A-Za-z0-9-]{1,63}(?:\.[A-Za-z0-9-]{1,63})*\.[A-Za-z]{2,}"
)
_V4: Final = re.compile(r"(?<![\w.])\d{1,3}(?:\.\d{1,3}){3}(?!\w|\.\d)")
_V6: Final = re.compile(r"(?<![\w:.])[0-9A-Fa-f]{0,4}(?::[0-9A-Fa-f]{0,4}){2,7}(?![\w:])")
_HARDWARE: Final = re.compile(
    r"(?<![\w:-])[0-9A-Fa-f]{2}([:-])[0-9A-Fa-f]{2}(?:\1[0-9A-Fa-f]{2}){4}(?![\w:-])"
)


class PersonalRule(NamedTuple):
    """A pattern to search for, and the note that replaces a text that `is_personal`."""

    kind: str
    pattern: re.Pattern[str]
    note: str
    is_personal: Callable[[str], bool] = bool


def personal_rules(home: str) -> list[PersonalRule]:
    """Return the rules for personal data of the person with this home folder, in the order in which
    they are applied."""
    paths = list(_PATHS)
    own = home.rstrip("/")
    if os.path.isabs(own):  # unless it is `/`
        paths.insert(0, (rf"(?<![\w.-]){re.escape(own)}(?![\w.-])", "~"))
    return [
        *(PersonalRule(HOME, re.compile(pattern), note) for pattern, note in paths),
        PersonalRule(MAIL, _MAIL, f"[removed: {MAIL}]"),
        PersonalRule(NETWORK, _HARDWARE, f"[removed: {NETWORK}]"),
        PersonalRule(NETWORK, _V4, f"[removed: {NETWORK}]", _is_address),
        PersonalRule(NETWORK, _V6, f"[removed: {NETWORK}]", _is_address),
    ]


def _is_address(text: str) -> bool:
    """True for the address of a machine in a network."""
    try:
        address = ip_address(text)
    except ValueError:
        return False
    return not (address.is_loopback or address.is_unspecified)


ENCODED: Final = "encoded data"
UNREADABLE: Final = "unreadable entry"

_ENCODED: Final = re.compile(
    r"(?<![A-Za-z0-9+/_-])(?:[A-Za-z0-9+/_-]{512,}={0,2}"
    r"|[A-Za-z0-9+/]{76,511}\r?\n(?:[A-Za-z0-9+/]{76}\r?\n){5,}[A-Za-z0-9+/]*={0,2})"
)
"""Base64, as far as recognisable: its content cannot be searched."""

_CUT_SHORT: Final = re.compile(r"(?:…|\.{3})\s*\Z")
"""The end of a text of which only the beginning is there."""

LEAST_BEGINNING: Final = 4
"""Characters of a secret that reveal part of it: its form has two or three before them."""

OPEN: Final = 100
"""Unfinished messages kept open; a piece of an older one is searched by itself."""

SEEN: Final = 100_000
"""Cached texts without findings: agents read files often."""

_SEEN_STEPS: Final = 16
"""Steps for each character to see a text as a person does, and for what is personal in it."""

_MEDIA: Final = ("data", "blob")


class Removal(NamedTuple):
    """Something that was removed: its kind, and its record; 0 is the session's head."""

    seq: int
    kind: str


class SessionRecord(Protocol):
    """A piece of a session: its number, its kind, and its JSON."""

    @property
    def seq(self) -> int: ...
    @property
    def kind(self) -> str: ...
    @property
    def raw(self) -> bytes: ...


class Redactor:
    """Redacts one session.

    Call `look` with all records, repeatedly until `is_done` returns True; then `redact` returns
    their JSON redacted. `home` is this person's home folder. `messages` makes what knows which
    records continue a message. All that is called raises OutOfStepsError beyond the `budget`:
    a text that was not searched may name a secret that stands elsewhere. With `only_secrets`, home
    paths, addresses and encoded data stay. `removed` counts the removed parts.
    """

    def __init__(
        self,
        home: str,
        messages: Callable[[], Chunks],
        budget: Budget,
        *,
        only_secrets: bool = False,
    ) -> None:
        self._budget = budget
        self.removed: Counter[Removal] = Counter()
        self._rules = [] if only_secrets else personal_rules(home)
        self._keeps_media = only_secrets
        self._known = KnownSecrets(budget)
        self._is_first = True
        self._digests = array("Q")
        self._place = 0
        self.unreadable = set[int]()
        self._new_messages = messages
        self._messages = messages()
        self._stretches: OrderedDict[tuple[str, ...], Stretch] = OrderedDict()
        self._cuts: dict[int, list[tuple[int, TextCut]]] = defaultdict(list)
        self._clean: set[int] = set()

    # -- finding ----------------------------------------------------------------------------

    def learn_value(self, value: object) -> None:
        """Learn the secrets in a JSON value."""
        for slot in slots([value]):
            self._search(slot.text, slot.name)

    def look(self, record: SessionRecord) -> None:
        """Search the next record; raises RedactionError if it has changed since the first pass."""
        place = self._place
        self._place += 1
        self._budget.read(len(record.raw))
        if self._is_first:
            self._digests.append(_digest(record))
        else:
            self._require_same(place, record)
        if (value := _decode(record.raw)) is None:
            self.unreadable.add(place)
            return
        root = [value]
        self._media(root)
        chunk = self._messages.chunk(record.kind, root[0])
        for number, slot in enumerate(slots(root)):
            if chunk and slot.key in ("text", "data") and id(slot.holder) in chunk.holders:
                for stretch in self._stretches_of(chunk):
                    self._record(stretch.add(slot.text, place, number, chunk.message))
            elif len(slot.text) > WINDOW:
                stretch = Stretch(self._search_text)
                self._record(stretch.add(slot.text, place, number, ("", "")))
                self._record(stretch.findings())
            else:
                found = self._search_text(slot.text, slot.name)
                self._record(Placed(place, number, cut) for cut in found)

    def look_through(self, records: Sequence[SessionRecord]) -> None:
        """Search all records, as often as it takes."""
        while True:
            for record in records:
                self.look(record)
            if self.is_done():
                return

    def is_done(self) -> bool:
        """Return True if everything was found; call it once every record was searched."""
        for stretch in self._stretches.values():
            self._record(stretch.findings())
        self._stretches.clear()
        self._clean.clear()
        self._messages = self._new_messages()
        self._place = 0
        was_first, self._is_first = self._is_first, False
        return not (was_first and self._known)

    def _stretches_of(self, chunk: Chunk) -> Iterator[Stretch]:
        """Yield the message that a chunk belongs to, and the speaker's messages joined."""
        role, message = chunk.role, chunk.message
        if message not in self._stretches:
            self._stretches[message] = Stretch(self._search_text)
        yield self._stretches[message]
        self._stretches.move_to_end(message)
        if not chunk.is_whole:
            if (role,) not in self._stretches:
                self._stretches[role,] = Stretch(self._search_joined, across=True)
            yield self._stretches[role,]
            self._stretches.move_to_end((role,))
        while len(self._stretches) > OPEN:
            _, oldest = self._stretches.popitem(last=False)
            self._record(oldest.findings())

    def _record(self, found: Iterator[Placed]) -> None:
        for place, slot, cut in found:
            self._cuts[place].append((slot, cut))

    def _require_same(self, place: int, record: SessionRecord) -> None:
        if place >= len(self._digests) or self._digests[place] != _digest(record):
            raise RedactionError("it changed while it was being searched for secrets; try again")

    # -- removing --------------------------------------------------------------------------

    @property
    def count(self) -> int:
        """Number of records searched."""
        return len(self._digests)

    def redact(self, place: int, record: SessionRecord) -> bytes | None:
        """Return the redacted JSON of a record; None if it cannot be read.

        `place` is the number of records before it. Raises RedactionError if it has changed since it
        was searched.
        """
        self._require_same(place, record)
        cuts: dict[int, list[TextCut]] = defaultdict(list)
        for number, cut in self._cuts.get(place, ()):
            cuts[number].append(cut)
        return self._change_record(record, cuts)

    def redact_last(self, record: SessionRecord) -> bytes | None:
        """Return the redacted JSON of one that was not searched before: it is judged alone."""
        return self._change_record(record, None)

    def value(self, value: object) -> Any:
        """Return a redacted JSON value, which counts as the head of the session."""
        root = [value]
        self._change(root, 0, None)
        return self._redact_names(root[0], 0)

    def _change_record(
        self, record: SessionRecord, cuts: dict[int, list[TextCut]] | None
    ) -> bytes | None:
        if (value := _decode(record.raw)) is None:
            self.removed[Removal(record.seq, UNREADABLE)] += 1
            return None
        root = [value]
        if count := self._media(root):
            self.removed[Removal(record.seq, ENCODED)] += count
        self._change(root, record.seq, cuts)
        shown = self._redact_names(root[0], record.seq)
        try:
            return msgspec.json.encode(shown)
        except UnicodeEncodeError:  # half of a surrogate pair
            return json.dumps(shown, separators=(",", ":")).encode()

    def _change(self, root: list[Any], seq: int, cuts: dict[int, list[TextCut]] | None) -> None:
        """Remove these cuts from the texts of a value, or else all findings in each."""
        for number, slot in enumerate([*slots(root)]):
            found = (
                self._search_alone(slot.text, slot.name) if cuts is None else cuts.get(number, [])
            )
            if found:
                slot.holder[slot.key] = self._without(slot.text, found, seq)

    def _without(self, text: str, cuts: list[TextCut], seq: int) -> str:
        separate = apart(cuts)
        for cut in separate:
            if cut.kind:
                self.removed[Removal(seq, cut.kind)] += 1
        return without(text, separate)

    # -- a text -----------------------------------------------------------------------------

    def _search_text(self, text: str, name: str = "") -> list[TextCut]:
        return self._search(text, name) if self._is_first else self._search_known(text)

    def _search_joined(self, text: str) -> list[TextCut]:
        """Return findings in a joined text, which may not have been meant to be read as one."""
        seen = seen_text(text)
        return (
            _cuts(seen, by_form(seen.text, self._budget))
            if self._is_first
            else self._search_known(text)
        )

    def _search_alone(self, text: str, name: str) -> list[TextCut]:
        return [*self._search(text, name), *self._search_known(text)]

    def _search(self, text: str, name: str = "") -> list[TextCut]:
        """Return findings by form, name or place; certain ones are searched for elsewhere, too."""
        if (key := hash((name, text))) in self._clean:
            return []
        sequences = text.count("b]") + text.count("B]") + text.count("3]") if "\\" in text else 0
        self._budget.spend(_SEEN_STEPS * len(text) + PAYLOAD * sequences)
        seen = seen_text(text)
        found = secrets(seen.text, self._budget)
        if name and (by_name := secret_by_name(name, seen.text)):
            found.append(by_name)
        for kind, start, end in found:
            if is_certain(secret := seen.text[start:end]):
                self._known.add(secret, kind)
        cuts = _cuts(seen, found)
        for rule in self._rules:
            for match in rule.pattern.finditer(seen.text):
                if rule.is_personal(match[0]):
                    cuts.append(TextCut(*seen.original_span(*match.span()), rule.kind, rule.note))
        if not self._keeps_media:
            encoded = [
                FoundSecret(ENCODED, *match.span()) for match in _ENCODED.finditer(seen.text)
            ]
            cuts += _cuts(seen, encoded)
        if seen.text is not text:
            cuts += _in_payloads(text, self._search)
        if not cuts:
            if len(self._clean) >= SEEN:
                self._clean.clear()
            self._clean.add(key)
        return cuts

    def _search_known(self, text: str) -> list[TextCut]:
        """Return known secrets in a text, and their beginnings if it was cut, such as a title."""
        if not self._known:
            return []
        seen = seen_text(text)
        found = [*self._known.find(seen.text)]
        if cut := _CUT_SHORT.search(seen.text):
            found += self._known.beginnings(seen.text, cut.start(), LEAST_BEGINNING)
        cuts = _cuts(seen, found)
        if seen.text is not text:
            cuts += _in_payloads(text, self._search_known)
        return cuts

    # -- other values ----------------------------------------------------------------------

    def _redact_names(self, root: Any, seq: int) -> Any:
        """Return a value with the names of its members redacted."""
        for found in objects(root):
            names = {name: self._search_alone(name, "") for name in found}
            if any(names.values()):
                values = [*found.items()]
                found.clear()
                for name, value in values:
                    shown = self._without(name, names[name], seq)
                    found[shown if shown not in found else f"{shown} {len(found)}"] = value
        return root

    def _media(self, root: Any) -> int:
        """Replace pictures, recordings and files by a note; return their number."""
        if self._keeps_media:
            return 0
        count = 0
        for found in objects(root):
            for name in _MEDIA:
                data = found.get(name)
                if not isinstance(data, str) or not ("mimeType" in found or name == "blob"):
                    continue
                count += 1
                note = f"[removed: {ENCODED}]"
                if name == "data":
                    found.clear()
                    found |= {"type": "text", "text": note}
                else:
                    del found["blob"]
                    found["text"] = note
        return count


def _cuts(seen: SeenText, found: Iterable[FoundSecret]) -> list[TextCut]:
    return [TextCut(*seen.original_span(s, e), kind, f"[removed: {kind}]") for kind, s, e in found]


def _in_payloads(text: str, search: Callable[[str], list[TextCut]]) -> Iterator[TextCut]:
    """Yield what is found in texts that a terminal does not print: window titles, links."""
    for hidden in UNSEEN.finditer(text):
        if not hidden["payload"]:
            continue
        start = hidden.start("payload")
        for cut in search(hidden["payload"]):
            yield cut._replace(start=cut.start + start, end=cut.end + start)


def _digest(record: SessionRecord) -> int:
    digest = blake2b(f"{record.seq} {record.kind} ".encode(errors="replace"), digest_size=8)
    digest.update(record.raw)
    return int.from_bytes(digest.digest(), "big")


def _decode(raw: bytes) -> Any:
    """Return a decoded JSON value; None if it cannot be read."""
    try:
        return msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        try:  # half of a surrogate pair is accepted here
            return json.loads(raw.decode(errors="replace"))
        except (ValueError, RecursionError):
            return None
