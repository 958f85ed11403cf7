"""The news of a conversation: where they begin, and the pieces that are each taken in whole.

A source in the agent's own folder is identified by the agent's id, and compared by its prompts:
agents change their white space, add text before or after, and lose cancelled ones. A source in a
folder named with `--from` may have any id: it continues a session only if all the turns both have
are the same.

Each piece has the number of entries up to its end, and their digest. When a source has
changed, its reader reads all of it again. The news begin depending on what the journal knows:

- nothing is known: all of it is new;
- a digest is known: if the beginning of the source still has it, the rest is new; if not, there are
  no pieces;
- turns are known: see `KnownPart`.
"""

# See docs/decisions.md, 29.

from __future__ import annotations

import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from hashlib import blake2b
from itertools import chain
from pathlib import Path
from typing import Final, Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from acp_conversation.history.entries import PROMPT, Entry, PastEntry
from acp_conversation.history.fold import fold
from acp_conversation.history.message_chunks import Messages
from acp_conversation.history.timeline import Item, Message, TurnEnd
from acp_safety.errors import RedactionError
from acp_safety.redaction.redactor import UNREADABLE, Redactor
from acphold.errors import TranscriptError
from acphold.imports.entry_writer import EntryWriter
from acphold.imports.readers import Reader
from acphold.imports.sources import WHOLE, Facts, Manner, Source
from acphold.imports.values import squeeze, text

ENOUGH: Final = 50
"""After this many matching prompts, earlier ones are not compared."""

PIECE_BYTES: Final = 512 << 10
"""Approximate size taken in at once: the journal's other writers wait for it."""

TITLE_CHARACTERS: Final = 80
"""Characters of a first prompt used as the title of an untitled conversation."""


class PastTurn(Struct, frozen=True):
    """A person's text, and a digest of the agent's answer, both without white space.

    If sent into a running turn, or not answered to the end, it may be missing in a transcript.
    """

    prompt: str
    answer: str
    may_be_missing: bool = False


class KnownPart(Struct, frozen=True):
    """The journal's part of a conversation: the number of its entries and their digest, or its
    turns.

    `relation` says how a source's turns must be related to these for it to have news. With `same`
    and `alike` the news follow the common part; with `none` all of it is new.
    """

    taken: int = 0
    digest: str = ""
    turns: list[PastTurn] = []
    relation: Literal["same", "alike", "none"] = "alike"

    def count_known(self, transcript_turns: Sequence[PastTurn]) -> int | None:
        """Return how many of these turns the journal has; None if they are not so related."""
        if self.relation == "none":
            ours = {turn.prompt for turn in self.turns}
            return None if any(turn.prompt in ours for turn in transcript_turns) else 0
        both = list(zip(self.turns, transcript_turns, strict=False))
        if self.relation == "same":
            same = all((a.prompt, a.answer) == (b.prompt, b.answer) for a, b in both)
            return len(self.turns) if both and same else None
        if both and all(_is_like(one.prompt, other.prompt) for one, other in both):
            return len(self.turns)
        found = [
            (_agreement(self.turns, transcript_turns, count), count)
            for count in range(1, len(transcript_turns) + 1)
        ]
        agreement, count = max(found, default=(0, 0))
        return count if agreement else None


NOTHING: Final = KnownPart()


def _agreement(known: Sequence[PastTurn], transcript_turns: Sequence[PastTurn], place: int) -> int:
    """Return how many prompts match up to the last known one and `place`; 0 if inconclusive.

    It is conclusive if all match from the beginning of both; otherwise one has to be identical and,
    if both have earlier prompts, another one has to match.
    """
    left_here, left_there = len(known), place
    alike = same = 0
    while left_here and left_there and alike < ENOUGH:
        one, other = known[left_here - 1], transcript_turns[left_there - 1]
        if _is_like(one.prompt, other.prompt):
            alike += 1
            same += one.prompt == other.prompt
            left_there -= 1
        elif not one.may_be_missing:
            break
        left_here -= 1
    if not left_here and not left_there:
        return alike
    return alike if same and (alike > 1 or not left_here or not left_there) else 0


def _is_like(one: str, other: str) -> bool:
    """Return True if two texts are one prompt: agents add text before and after it."""
    return one == other or (bool(one) and bool(other) and (one in other or other in one))


def turns(timeline: Iterable[Item], read: Callable[[str], str] = str) -> list[PastTurn]:
    """Return the turns of a timeline: a user message begins one. `read` is applied to texts."""
    prompts: list[str] = []
    answers: list[list[str]] = []
    unsure: set[int] = set()
    is_over = True
    for item in timeline:
        if isinstance(item, Message) and item.role == "user":
            if not is_over:
                unsure.add(len(prompts))
            prompts.append(item.text)
            answers.append([])
            is_over = False
        elif isinstance(item, Message) and item.role == "agent" and prompts:
            answers[-1].append(item.text)
        elif isinstance(item, TurnEnd) and prompts:
            is_over = True
            if item.outcome != "completed":
                unsure.add(len(prompts) - 1)
    if not is_over:
        unsure.add(len(prompts) - 1)
    past_turns: list[PastTurn] = []
    for place, (prompt, answer_texts) in enumerate(zip(prompts, answers, strict=True)):
        answer = squeeze(read(" ".join(answer_texts))).encode(errors="replace")
        digest = blake2b(answer, digest_size=16).hexdigest()
        past_turns.append(PastTurn(squeeze(read(prompt)), digest, place in unsure))
    return past_turns


class SecretsOut:
    """Redacts one conversation, after reading all of it.

    Home paths and addresses stay, and so do pictures: the journal is the user's own.
    """

    def __init__(self, entries: Iterable[PastEntry]) -> None:
        """`entries` yields the whole conversation at each iteration; the last may be broken off."""
        self._redactor = Redactor("", Messages, only_secrets=True)
        with _searching():
            for place, entry in enumerate(entries):
                self._redactor.look(_number(place, entry))
            while not self._redactor.is_done():
                for place, entry in zip(range(self._redactor.count), entries, strict=False):
                    self._redactor.look(_number(place, entry))

    @property
    def count(self) -> int:
        """Number of entries searched."""
        return self._redactor.count

    def entry(self, place: int, original: PastEntry) -> PastEntry | None:
        """Return entry number `place`, from 0, redacted; None if it cannot be read.

        One after the last entry was not searched before, and is judged alone.
        """
        numbered = _number(place, original)
        with _searching():
            if place < self.count:
                left = self._redactor.redact(place, numbered)
            else:
                left = self._redactor.redact_last(numbered)
        return None if left is None else replace(original, raw=left)

    def text(self, text: str) -> str:
        """Return a redacted text; it repeats an entry's text, and is not counted."""
        counted = self._redactor.removed.copy()
        with _searching():
            (left,) = self._redactor.value([text])
        self._redactor.removed = counted
        return str(left)

    @property
    def removals(self) -> Counter[str]:
        """Counts of the removed secrets by kind; UNREADABLE counts entries left out."""
        removed: Counter[str] = Counter()
        for (_, kind), count in self._redactor.removed.items():
            removed[kind] += count
        return removed


def _number(place: int, entry: PastEntry) -> Entry:
    return Entry(place, entry.kind, entry.at, entry.raw)


@contextmanager
def _searching() -> Iterator[None]:
    """Turn any error of the search for secrets into a TranscriptError."""
    try:
        yield
    except (OSError, TranscriptError):
        raise
    except RedactionError as error:
        raise TranscriptError(f"it was not imported: {error}") from error
    except Exception as error:
        name = type(error).__name__
        raise TranscriptError(
            f"it cannot be searched for secrets, so it was not imported: {name}"
        ) from error


class NewsPiece(Struct):
    """A part of the news, in order.

    `taken` and `digest` cover everything up to its end. The last one has, as `closing`, the
    end of a turn, added because the source ends there, and the title: the digest leaves them out
    because they may differ the next time. With `is_all`, nothing was left for the next time.
    """

    entries: list[PastEntry]
    taken: int
    digest: str
    facts: Facts
    first_prompt: str | None
    closing: list[PastEntry] = []
    is_last: bool = False
    is_all: bool = False


def pieces(
    source: Source, reader: Reader, known: KnownPart, manner: Manner = WHOLE
) -> Iterator[NewsPiece]:
    """Yield the news; nothing if the source has nothing in common with what is known.

    The digest covers secrets, too. Raises OSError if the source cannot be read, and TranscriptError
    if its reader or the search for secrets fails.
    """
    transcript = _SourceEntries(source, reader, whole_turns=manner.whole_turns)
    out = SecretsOut(transcript) if manner.redact else None
    transcript.most = out.count if out else None
    if known.turns:
        known_count = known.count_known(_turns(transcript, known, out))
        if known_count is None:
            return
        news = _from_prompt(transcript, known_count)
    else:
        news = iter(transcript)
        while transcript.count < known.taken:
            if next(news, None) is None:
                return
        if known.taken and transcript.digest != known.digest:
            return
    entries: list[PastEntry] = []
    size = 0
    for entry in news:
        if shown := out.entry(transcript.count - 1, entry) if out else entry:
            entries.append(shown)
        size += len(entry.raw)
        if size >= PIECE_BYTES:
            piece = transcript.piece(entries)
            yield _without_secrets(piece, out) if out else piece
            entries, size = [], 0
    piece = transcript.piece(entries, is_last=True)
    yield _without_secrets(piece, out) if out else piece


def _without_secrets(piece: NewsPiece, out: SecretsOut) -> NewsPiece:
    """Return a piece with redacted entries, and the counts of secrets so far."""
    closing = [*filter(None, (out.entry(out.count, entry) for entry in piece.closing))]
    facts = piece.facts
    title = facts.title and out.text(facts.title)
    first_prompt = piece.first_prompt and out.text(piece.first_prompt)
    removed, missed = out.removals, facts.missed + Counter()
    if unreadable := removed.pop(UNREADABLE, 0):
        missed["entries that cannot be searched for secrets"] = unreadable
    facts = replace(facts, title=title, missed=missed, removed=removed)
    return replace(piece, closing=closing, facts=facts, first_prompt=first_prompt)


def fault(error: Exception) -> OSError | TranscriptError:
    """Return the error for a source that cannot be read, or on which its reader fails."""
    if isinstance(error, OSError):
        return error
    *_, place = traceback.extract_tb(error.__traceback__)
    return TranscriptError(
        f"acphold's reader failed on it, please report this: {type(error).__name__}: {error}"
        f" ({Path(place.filename).name}:{place.lineno})"
    )


class _SourceEntries:
    """All entries of a source; each iteration reads the source again.

    At most `most` entries: later ones are left for the next time.
    """

    def __init__(self, source: Source, reader: Reader, *, whole_turns: bool) -> None:
        self.count = 0
        self.most: int | None = None
        self._source = source
        self._reader = reader
        self._whole_turns = whole_turns
        self._facts = Facts(source.agent or reader.key, source.session_id)
        self._digest = blake2b(digest_size=16)
        self._first_prompt: str | None = None
        self._closing: list[PastEntry] = []
        self._left = 0

    def __iter__(self) -> Iterator[PastEntry]:
        self.count, self._digest = 0, blake2b(digest_size=16)
        self._facts.updated_at = None  # some ids are made of the time so far
        self._facts.missed.clear()
        self._facts.missed_bytes.clear()
        writer = EntryWriter(self._facts)
        self._closing, self._left = [], 1
        for _ in chain(self._read(writer), [None]):
            for entry in writer.take(whole_turns=self._whole_turns):
                if self.count == self.most:
                    return  # it has grown since
                self.count += 1
                self._digest.update(entry.kind.encode() + entry.raw)
                if self._first_prompt is None and entry.kind == PROMPT:
                    self._first_prompt = first_line(entry.raw)
                yield entry
        self._left = len(writer.take())  # of an unfinished turn
        if not self._whole_turns:
            writer.end_turn()
        self._facts.title = self._source.list_title(self._facts.title)
        writer.title_update()
        self._closing = writer.take()

    def _read(self, writer: EntryWriter) -> Iterator[None]:
        try:
            yield from self._reader.read(self._source, writer)
        except Exception as error:
            raise fault(error) from error

    @property
    def digest(self) -> str:
        """The digest of all entries so far."""
        return self._digest.hexdigest()

    def piece(self, entries: list[PastEntry], *, is_last: bool = False) -> NewsPiece:
        """Return a piece of these entries, the last ones so far."""
        return NewsPiece(
            entries,
            self.count,
            self.digest,
            self._facts,
            self._first_prompt,
            self._closing if is_last else [],
            is_last,
            is_last and not self._left,
        )


def _turns(transcript: _SourceEntries, known: KnownPart, out: SecretsOut | None) -> list[PastTurn]:
    """Return the turns of a transcript, as many as needed to compare them with the known ones."""
    whole = known.relation == "same"
    entries: list[Entry] = []
    prompts = 0
    for number, entry in enumerate(transcript, 1):
        prompts += entry.kind == PROMPT
        if whole and prompts > len(known.turns):
            break
        if whole or entry.kind == PROMPT:
            entries.append(Entry(number, entry.kind, entry.at, entry.raw))
    # The journal's part was redacted, too.
    return turns(fold(entries).timeline, out.text if out else str)


def _from_prompt(entries: Iterable[PastEntry], number: int) -> Iterator[PastEntry]:
    """Yield the entries from the prompt with this number on; all for 0."""
    seen = 0
    for entry in entries:
        seen += entry.kind == PROMPT
        if seen > number or not number:
            yield entry


_decode_blocks: Final = msgspec.json.Decoder(list[dict[str, object]]).decode


def first_line(prompt: bytes) -> str | None:
    """Return the first nonempty line of a prompt, for a title, or None.

    The prompt is an array of content blocks that an entry writer wrote.
    """
    for line in "".join(text(block, "text") for block in _decode_blocks(prompt)).splitlines():
        if words := squeeze(line):
            cut = len(words) > TITLE_CHARACTERS
            return words[: TITLE_CHARACTERS - 1] + "…" if cut else words
    return None
