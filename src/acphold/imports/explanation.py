"""The sources of a session, and the turns here that each of them has."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from msgspec import Struct, field

from acphold.conversation.history.entries import PROMPT
from acphold.conversation.history.titles import title_of_prompt
from acphold.errors import TranscriptError
from acphold.imports.intake import Intake
from acphold.imports.pieces import failure, pieces
from acphold.imports.readers import Reader, reader
from acphold.imports.session_writer import entries_of, forgotten_anywhere, read_known
from acphold.imports.sources import Home, Source, searching
from acphold.imports.turns import NOTHING, Comparison
from acphold.journal.journal import Journal, row_of


class SourceSearch:
    """Finds the sources of sessions below a home folder; each reader looks once. `unread` are the
    files that may be of one of them, but cannot be read, with the reasons."""

    def __init__(self, journal: Journal, home: Home) -> None:
        self._journal, self._home = journal, home
        self._intake = Intake(journal)
        self._met: dict[str, list[Source]] = {}
        self.unread: list[str] = []

    def _find(self, reading: Reader) -> list[Source]:
        if reading.name not in self._met:
            with searching() as search:
                self._met[reading.name] = [*reading.find(self._home)]
            self.unread += (failure(error, str(self._home.path)) for error in search.unreadable)
        return self._met[reading.name]

    async def of(self, session_id: str, names: Iterable[str]) -> list[Source]:
        """Return the sources of a session, or of one that was deleted here; the newest first."""
        row = await row_of(self._journal, session_id)
        # Another agent that continues it here knows it by an id of its own.
        its_ids = () if row is None else (row.downstream_id or row.session_id, row.session_id)
        found: list[Source] = []
        for reading in map(reader, names):
            for source in self._find(reading):
                if row is None and session_id in (source.session_id, source.default_id):
                    found.append(source)
                elif row is not None and any(
                    it.startswith((source.session_id, source.default_id)) for it in its_ids
                ):
                    ways = [source]
                    if "~" in session_id and reading.branches is not None:
                        try:
                            ways += reading.branches(source)
                        except Exception as error:
                            self.unread.append(failure(error, source.paths[0]))
                    for its in ways:
                        _, its_row = await self._intake.find_session(its, reading)
                        if its_row is not None and its_row.session_id == row.session_id:
                            found.append(its)
        return sorted(found, key=lambda source: -source.changed_at)


class ExplainedTurn(Struct):
    """A turn here: its first words, and the files that have it; none if it was said here."""

    seq: int
    at: int
    words: str
    files: list[str] = []


class ExplainedSource(Struct, rename="camel"):
    """A source: its file, and what was left out of it.

    `is_current` is True if all of it was taken in; `left_out` are the first words of turns that are
    not here, `taken_out` the times of those that a person had taken out, in ms since the epoch;
    `problem` says why it cannot be read.
    """

    file: str
    reader: str
    size: int
    changed_at: int
    is_current: bool
    turns: int = 0
    left_out: list[str] = []
    taken_out: list[int] = []
    missed: Counter[str] = field(default_factory=Counter)
    problem: str = ""


class Explanation(Struct):
    """The sources of a session, and its turns."""

    sources: list[ExplainedSource]
    turns: list[ExplainedTurn]


async def explain(journal: Journal, session_id: str, found: Iterable[Source]) -> Explanation:
    """Explain a session by its sources, which are read whole."""
    known = await read_known(journal, session_id)
    known.forgotten |= await forgotten_anywhere(journal)
    files: dict[int, list[str]] = {}
    sources: list[ExplainedSource] = []
    for source in found:
        reading = reader(source.reader)
        is_current = known.marker is not None and known.marker.outcome(source) == "same"
        told = ExplainedSource(
            source.place, reading.name, source.size, source.changed_at // 1_000_000, is_current
        )
        sources.append(told)
        try:
            compared = next(pieces(source, reading, known.part(source))).compared or Comparison()
            here = {there: ours for ours, there in compared.known.items()}
            for piece in pieces(source, reading, NOTHING):
                for entry in piece.entries:
                    if entry.kind == PROMPT:
                        there = told.turns - len(told.taken_out)
                        if told.turns in compared.taken_out:
                            told.taken_out.append(entry.at)
                        elif there in here:
                            files.setdefault(here[there], []).append(source.place)
                        else:
                            told.left_out.append(title_of_prompt(entry.raw) or "")
                        told.turns += 1
                told.missed = piece.facts.missed.counts
        except (OSError, TranscriptError) as error:
            told.problem = str(error)
    words: dict[int, str] = {}
    async for ours, entry in entries_of(journal, session_id, known.turns):
        if entry.kind == PROMPT:
            words.setdefault(ours, title_of_prompt(entry.raw) or "")
    turns = [
        ExplainedTurn(turn.prompt, turn.at, words.get(ours, ""), files.get(ours, []))
        for ours, turn in enumerate(known.turns)
    ]
    return Explanation(sources, turns)
