"""The news of a conversation, in pieces that are each taken in whole.

A source that the journal does not know is read once, and all of it is new. Otherwise its turns are
compared with the journal's (see `turns`), and those that are new are read again.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import Final
from zlib import crc32

from msgspec import Struct
from msgspec.structs import replace

from acphold.conversation.exports.redacted import budget_of_session
from acphold.conversation.history.entries import (
    AUTHOR,
    PROMPT,
    SENT,
    TURN_END,
    Entry,
    PastEntry,
    Segment,
)
from acphold.conversation.history.message_chunks import Messages
from acphold.conversation.history.titles import (
    LOOKED_AT,
    is_own,
    says_nothing,
    title_of_prompt,
    title_of_words,
)
from acphold.errors import AcpError, TranscriptError
from acphold.imports.databases import DAMAGED_ROWS, MISSING_ROWS
from acphold.imports.entry_writer import EntryWriter, NotStraightError, prompt_text
from acphold.imports.readers import Reader, fault
from acphold.imports.records import DAMAGED, TOO_LONG, UNREAD
from acphold.imports.salvage import NOT_OBJECTS, ZEROS
from acphold.imports.sources import ALL, MARK, Facts, ImportSelection, Source, folder_here
from acphold.imports.turns import (
    NOTHING,
    Comparison,
    KnownPart,
    ReadTurn,
    ReadTurns,
    compare,
    squeeze,
)
from acphold.imports.values import Missed, digest_of
from acphold.journal.forgotten_texts import ArrivalBlanking
from acphold.safety.errors import OutOfStepsError, RedactionError
from acphold.safety.redaction.redactor import UNREADABLE, Redactor

PIECE_BYTES: Final = 512 << 10
"""Approximate size taken in at once: the journal's other writers wait for it."""


_LOSSES: Final = (DAMAGED, DAMAGED_ROWS, MISSING_ROWS, NOT_OBJECTS, TOO_LONG, UNREAD, ZEROS)
"""Reasons to leave out what another state of a source may have."""


class SecretsOut:
    """Redacts one conversation, after reading all of it.

    Home paths and addresses stay, and so do pictures: the journal is the user's own.
    """

    def __init__(self, entries: Iterable[PastEntry]) -> None:
        """`entries` yields the whole conversation at each iteration; the last may be broken off."""
        self._redactor = Redactor("", Messages, budget_of_session(), only_secrets=True)
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

    @property
    def unreadable(self) -> set[int]:
        """Numbers of the entries that are left out."""
        return self._redactor.unreadable

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
    except Exception as error:
        why = f"it was not imported: {error}"
        if not isinstance(error, (RedactionError, OutOfStepsError)):
            name = type(error).__name__
            why = f"it cannot be searched for secrets, so it was not imported: {name}"
        raise TranscriptError(why) from error


UNSEARCHED: Final = "entries that cannot be searched for secrets"


class NewsPiece(Struct, tag=True):
    """A part of the news, in order.

    `last` is the last turn as far as the source has it, its entries counted, with their digest;
    None if the session does not end with it. The last piece has, as `closing`, the end of a turn,
    added because the source ends there, and the title: they may differ the next time, so they are
    not counted. With `ends_anew`, the end tells more than the one here: a program may write down
    last what a turn has cost. With `is_all`, nothing was left for the next time. The first piece
    has, in `compared`, what follows for the journal's turns; an entry of the kind MOVED stands for
    one of them.
    """

    entries: list[PastEntry]
    last: ReadTurn | None
    facts: Facts
    first_prompt: str | None
    closing: list[PastEntry] = []
    is_last: bool = False
    is_all: bool = False
    compared: Comparison | None = None
    ends_anew: bool = False


MOVED: Final = "moved turn"
"""The kind of an entry that stands for a turn of the journal, its number as the raw."""


News = Callable[[Source, KnownPart], AsyncIterator[NewsPiece]]
"""Yields the pieces of a source that are new beside what is known."""


def pieces(
    source: Source, reader: Reader, known: KnownPart, selection: ImportSelection = ALL
) -> Iterator[NewsPiece]:
    """Yield the news.

    One piece without entries if the source and the journal share no turn, or differ; none if the
    source was begun in the middle, and has to be read from its beginning. Raises OSError if
    the source cannot be read, and TranscriptError if its reader or the search for secrets fails.
    """
    if source.begin and selection.redact:
        return  # secrets are known from the whole conversation
    transcript = _SourceEntries(source, reader, selection.marks)
    out = SecretsOut(transcript) if selection.redact else None
    transcript.most = out.count if out else None
    compared: Comparison | None = None
    wanted: list[tuple[int, int]] = []
    places: list[int] = []
    ended = b""
    if known != NOTHING:
        try:
            theirs = _turns(transcript, known, out)
        except NotStraightError:
            return
        if source.begin and (
            transcript.missed
            or transcript.went_back
            or [turn.offset for turn in theirs[:1]] != [source.begin]
        ):
            return  # a result, say, of a call before that, or a copy of an earlier turn
        taken_out = known.taken_out(theirs)
        places = [
            n
            for n, turn in enumerate(theirs)
            if n not in taken_out and (not known.only or turn.identity in known.only)
        ]
        transcript.hidden_title = known.hidden_title
        transcript.leave_out({*range(len(theirs))} - {*places} if known.forgotten else set())
        theirs = [theirs[n] for n in places]
        has_lost = losses_in(transcript.missed) > known.losses
        compared = compare(known, theirs, has_lost=has_lost, left=transcript.left)
        transcript.compared = compared
        unread = Counter({UNSEARCHED: len(out.unreadable)} if out else {})
        compared.missed, compared.taken_out = transcript.missed | unread, taken_out
        compared.folders = transcript.folders if compared.is_anew else []
        if compared.verdict != "related":
            yield transcript.piece([], is_last=True)
            return
        wanted = [(places[n] if n >= 0 else n, 0) for n in compared.news]
        if compared.rest >= 0:
            end = next(n for n, there in compared.known.items() if there == compared.rest)
            wanted.insert(0, (places[compared.rest], known.turns[end].count))
            ended = known.turns[end].end
    news = enumerate(transcript) if compared is None else _of_turns(transcript, wanted)
    if compared is not None and not wanted and not known.forgotten:
        news = iter(())  # its facts are known from the comparison
    entries: list[PastEntry] = []
    size = 0
    for place, entry in news:
        if ended:
            was_ended, ended = entry.kind == TURN_END and entry.raw == ended, b""
            if was_ended:
                continue  # where the source ended before
        if entry.kind == MOVED:
            entries.append(entry)
        elif shown := out.entry(place, entry) if out else entry:
            entries.append(shown)
        size += len(entry.raw)
        if size >= PIECE_BYTES:
            yield _without_secrets(transcript.piece(entries), out)
            entries, size = [], 0
    piece = transcript.piece(entries, is_last=True)
    if compared is not None:
        # The session ends with the last turn of the transcript, as far as that goes; or not.
        end = len(known.turns) - 1
        is_end = (
            wanted[-1][0] == transcript.number
            if wanted
            else known.is_end
            and end in compared.known
            and end not in (*compared.void, *compared.left)
            and theirs[compared.known[end]].identity == transcript.turn.identity
            and (
                known.turns[end].answer == theirs[-1].answer
                or (known.turns[end].digest == theirs[-1].digest != "")
            )
        )
        if not is_end:
            piece.last = None
            piece.closing = [entry for entry in piece.closing if entry.kind != TURN_END]
        elif not wanted and not (known.turns[end].is_here or known.turns[end].was_here):
            closing = [entry.raw for entry in piece.closing if entry.kind == TURN_END]
            piece.ends_anew = any(_tells_more(raw, known.turns[end].end) for raw in closing)
            if source.begin and piece.ends_anew:
                return  # it may have been said here
    yield _without_secrets(piece, out)


def _tells_more(end: bytes, before: bytes) -> bool:
    """Return True if the end of a turn has larger sums than the one before, and no smaller ones."""
    from acphold.journal.token_reports import reports  # late: a process that reads has little room

    def sums(raw: bytes) -> tuple[float, float]:
        told = reports([Segment(1, 1, TURN_END, 0, raw)])
        tokens, cost = (told[0].tokens, told[0].cost) if told else (None, None)
        return (tokens.total or 0) if tokens else 0, cost or 0

    pairs = list(zip(sums(end), sums(before), strict=True))
    return any(now > then for now, then in pairs) and all(now >= then for now, then in pairs)


def _without_secrets(piece: NewsPiece, out: SecretsOut | None) -> NewsPiece:
    """Return a piece with redacted entries, and the counts of secrets so far."""
    if out is None:
        return piece
    closing = [*filter(None, (out.entry(out.count, entry) for entry in piece.closing))]
    facts = piece.facts
    title = facts.title and out.text(facts.title)
    first_prompt = piece.first_prompt and out.text(piece.first_prompt)
    removed, missed = out.removals, facts.missed
    if unreadable := removed.pop(UNREADABLE, 0):
        missed = replace(missed, counts=missed.counts | Counter({UNSEARCHED: unreadable}))
    facts = replace(facts, title=title, missed=missed, removed=removed)
    return replace(piece, closing=closing, facts=facts, first_prompt=first_prompt)


def losses_in(missed: Counter[str]) -> int:
    """Return how many damaged parts were met."""
    return sum(missed[why] for why in _LOSSES)


def failure(error: Exception, path: str) -> str:
    """Return which file cannot be read, that at `path` or the one that the error names, and why."""
    why = error if isinstance(error, AcpError) else fault(error)
    if isinstance(why, OSError):
        return f"{why.filename or path}: {why.strerror or why}"
    return f"{path}: {why}"


def _is_of(title: str, prompt: str) -> bool:
    """Return True if a title was made of a prompt that a person had taken out: by our rule, by its
    beginning, or by a program that put a word in that may be a secret."""
    title = title.removesuffix(MARK)
    rule = title_of_words(prompt) or ""
    if title == rule or (len(rule) >= SECRET_CHARACTERS and rule in title):  # "y" is in many
        return True
    begun = squeeze(title.removesuffix("…"))
    return (bool(begun) and squeeze(prompt).startswith(begun)) or any(
        len(word) >= SECRET_CHARACTERS and not word.isalpha() and word in title[:TITLE_CHARACTERS]
        for word in (it.strip(",;:.!?()'\"`") for it in prompt.split())
    )


SECRET_CHARACTERS: Final = 12
"""Characters of a word that may be a secret: shorter ones are in many texts."""

TITLE_CHARACTERS: Final = 1000
"""Characters of a title that are searched for them."""


class _SourceEntries:
    """All entries of a source; each iteration reads the source again.

    At most `most` entries: later ones are left for the next time.
    """

    def __init__(self, source: Source, reader: Reader, marks: frozenset[str]) -> None:
        self._blanking = ArrivalBlanking(marks)
        self.count = 0
        self.most: int | None = None
        self._source = source
        self._reader = reader
        self._facts = Facts(source.agent or reader.key, source.session_id)
        self.turn = ReadTurn()
        self.number = -1
        self.went_back = False
        self.compared: Comparison | None = None
        self._digest = 0
        self._first_prompt: str | None = None
        self._left_out: set[int] = set()
        self.hidden_title = ""
        """The digest of a title that was made of a turn that a person had taken out."""
        self._closing: list[PastEntry] = []
        self._is_through = True

    def __iter__(self) -> Iterator[PastEntry]:
        self.count, self.number, self.turn = 0, -1, ReadTurn()
        self._facts.updated_at = None  # some ids are made of the time so far
        self._facts.missed, self._facts.cwd, self._facts.folders = Missed(), "", []
        writer = EntryWriter(self._facts)
        turn = self.turn
        self._closing, self._is_through = [], False
        hidden: list[str] = []
        prompts: list[str] = []
        for _ in chain(self._reader.tell(self._source, writer), [None]):
            for entry in writer.take():
                if self.count == self.most:
                    return  # it has grown since
                self.count += 1
                with _searching():
                    raw, entry = entry.raw, self._blanking.entry(entry)
                if entry.kind == PROMPT:
                    self.number += 1
                    turn = ReadTurn(entry.turn, offset=writer.offsets.get(entry.turn, 0))
                    self.turn, self._digest = turn, 0
                    prompts.append(said := prompt_text(entry.raw)[:LOOKED_AT])
                    hidden += [said] if self.number in self._left_out else []
                    if says_nothing(self._first_prompt) and self.number not in self._left_out:
                        title = title_of_prompt(entry.raw)
                        if self._first_prompt is None or not says_nothing(title):
                            self._first_prompt = title
                turn.count += 1
                self._digest = crc32(raw, crc32(entry.kind.encode(), self._digest))
                yield entry
        self.went_back = writer.went_back
        self._is_through = True
        self._facts.settle()
        writer.end_turn()
        title = self._source.list_title(self._facts.title)
        if title and (blanked := self._blanking.text(title)) != title:
            self._facts.hidden_title, title = digest_of(title), blanked
        elif title and (
            digest_of(title) == self.hidden_title or any(_is_of(title, prompt) for prompt in hidden)
        ):
            self._facts.hidden_title, title = digest_of(title), None
        self._facts.title = title
        writer.title_update()
        if title and not is_own(
            title.removesuffix(MARK), prompts
        ):  # the rule's says more in a list
            self._facts.hidden_title, self._facts.title = digest_of(title), None
        self._closing = writer.take()

    @property
    def missed(self) -> Counter[str]:
        """Counts of what the reader could not interpret."""
        return self._facts.missed.counts.copy()

    @property
    def folders(self) -> list[str]:
        """The folders that the source names; the one of the conversation first."""
        named = self._facts.named_folder
        return [*dict.fromkeys([named, *map(folder_here, self._facts.folders)])] if named else []

    @property
    def left(self) -> set[str]:
        """The names of the turns that the person went back from."""
        return self._facts.missed.left

    def leave_out(self, numbers: set[int]) -> None:
        """Take no title from the turns with these numbers."""
        self._left_out, self._first_prompt = numbers, None

    @property
    def digest(self) -> str:
        """The digest of the entries of the turn so far."""
        return f"{self._digest:08x}"

    def piece(self, entries: list[PastEntry], *, is_last: bool = False) -> NewsPiece:
        """Return a piece of these entries, the last ones so far."""
        compared, self.compared = self.compared, None  # for the first one
        return NewsPiece(
            entries,
            replace(self.turn, digest=self.digest),
            self._facts,
            None if self._source.begin else self._first_prompt,
            self._closing if is_last else [],
            is_last,
            is_last and self._is_through,
            compared,
        )


def _turns(transcript: _SourceEntries, known: KnownPart, out: SecretsOut | None) -> list[ReadTurn]:
    """Return the turns of a transcript."""
    # The journal's part was redacted, too.
    kept = next((it.identity for it in known.turns[-1:] if it.count), "")  # it came from a source
    collecting = ReadTurns(out.text if out else str, known.own_words, replays=False, kept=kept)
    counts = {turn.identity: turn.count for turn in known.turns if turn.identity and turn.count}
    for place, entry in enumerate(transcript):
        is_kept = out is None or place not in out.unreadable
        collecting.add(0, entry.kind, entry.at, entry.raw, is_kept=is_kept)
        turn = transcript.turn
        if entry.kind == PROMPT:
            collecting.found[-1].identity = turn.identity
            collecting.found[-1].offset = turn.offset
        if turn.count and counts.get(turn.identity) == turn.count:
            collecting.found[-1].digest = transcript.digest
    return collecting.close()


def _of_turns(
    transcript: _SourceEntries, wanted: Sequence[tuple[int, int]]
) -> Iterator[tuple[int, PastEntry]]:
    """Yield the entries of the turns with these numbers, with their places; each without its first
    entries, that many. A negative number stands for a turn of the journal."""
    left = deque(wanted)
    before: list[tuple[int, PastEntry]] = []  # of a prompt

    def moved() -> Iterator[tuple[int, PastEntry]]:
        while left and left[0][0] < 0:
            yield 0, PastEntry(MOVED, 0, b"%d" % (-1 - left.popleft()[0]))

    yield from moved()
    for place, entry in enumerate(transcript):
        before.append((place, entry))
        if entry.kind in (AUTHOR, SENT):
            continue
        if left and left[0][0] < transcript.number:
            left.popleft()
            yield from moved()
        if left and left[0][0] == transcript.number and transcript.turn.count > left[0][1]:
            yield from before
        before.clear()
    if left:
        left.popleft()
        yield from moved()
