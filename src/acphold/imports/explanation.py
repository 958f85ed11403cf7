"""The journal's turns of a conversation, and the sources that each of them comes from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from msgspec import Struct, field

from acphold.conversation.history.entries import PROMPT
from acphold.conversation.history.titles import title_of_prompt
from acphold.errors import TranscriptError
from acphold.imports.pieces import pieces
from acphold.imports.readers import Reader
from acphold.imports.session_writer import entries_of, forgotten_anywhere, read_known
from acphold.imports.sources import Source
from acphold.imports.turns import NOTHING, Comparison
from acphold.journal.journal import Journal


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


async def explain(
    journal: Journal, session_id: str, found: Iterable[tuple[Source, Reader]]
) -> Explanation:
    """Explain a session by its sources, which are read whole."""
    known = await read_known(journal, session_id)
    known.forgotten |= await forgotten_anywhere(journal)
    files: dict[int, list[str]] = {}
    sources: list[ExplainedSource] = []
    for source, reading in found:
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
