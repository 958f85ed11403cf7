"""The texts in which words of a list are looked for, kept of many sessions together: so a word that
few have is found without a look at the rows of all.

They stand beside the blocks of sums, of the same sessions, and go with them: see `usage_blocks`.
Sessions whose rows have changed since, and those outside of the blocks, are looked at themselves.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from typing import Final

import msgspec
from msgspec import Struct

from acphold.journal import bounds
from acphold.journal.sql import usage_blocks
from acphold.journal.sql.list_filters import TEXT, Word, conditions_for, ways_of
from acphold.journal.sql.tables import Tables
from acphold.journal.sql.usage_sums import Span

HAS_WORD: Final = f"instr(casefolded({TEXT}), %s)"
"""A condition for a word; `casefolded` is a function of the connection."""

EFFECTIVE: Final = (
    "max(revision, coalesce((SELECT CAST(value AS INTEGER) FROM meta"
    " WHERE name = 'usage_blocks'), 0))"
)
"""Tells up to which change a block is known to hold, or its texts: see `usage_blocks.make_next`."""


class _Texts(Struct, array_like=True):
    """The numbers of sessions, their agents, and their texts, casefolded, each in a line."""

    numbers: list[int]
    agents: list[str]
    lines: str

    def having(self, words: Sequence[_Asked]) -> Iterator[int]:
        """Yield the numbers of those that have each of the words."""
        if not self.numbers or any(
            not _has(self.lines, ways)
            and ids.isdisjoint(self.numbers)
            and agents.isdisjoint(self.agents)
            for ways, agents, ids in words
        ):
            return
        for number, agent, line in zip(
            self.numbers, self.agents, self.lines.split("\n"), strict=True
        ):
            if all(
                _has(line, ways) or agent in agents or number in ids for ways, agents, ids in words
            ):
                yield number


_Asked = tuple[tuple[str, ...], frozenset[str], frozenset[int]]
"""The ways in which a text may have a word, or the agents or the numbers that do instead."""


def _has(text: str, ways: tuple[str, ...]) -> bool:
    return any(way in text for way in ways)


_decode: Final = msgspec.msgpack.Decoder(_Texts).decode


def of_span(tables: Tables, span: Span) -> bytes:
    """The texts of the sessions with these numbers, as they are kept."""
    rows = tables.execute(
        f"SELECT number, agent, {TEXT} FROM acphold.sessions WHERE number BETWEEN %s AND %s", span
    ).fetchall()
    lines = "\n".join(text.casefold().replace("\n", " ") for *_, text in rows)
    found = _Texts([number for number, *_ in rows], [agent for _, agent, _ in rows], lines)
    return msgspec.msgpack.encode(found)


def keep(tables: Tables, highest: int, texts: bytes) -> None:
    """Keep texts beside the block with this highest number."""
    tables.execute(
        "INSERT OR REPLACE INTO acphold.row_texts (highest, texts) VALUES (%s, %s)",
        (highest, texts),
    )


def drop(tables: Tables, number: int) -> None:
    """Drop the block with the text of a session; it is made again."""
    tables.execute(
        "DELETE FROM acphold.usage_blocks WHERE highest ="
        " (SELECT min(highest) FROM acphold.usage_blocks WHERE highest >= %s) AND lowest <= %s",
        (number, number),
    )


def having(tables: Tables, words: Sequence[Word]) -> set[int] | None:
    """The numbers of the sessions that have all of these words of a list, and maybe of some others;
    None if no texts are kept, or these are many."""
    asked = [
        (ways_of(word.replace("\n", " ")), frozenset(agents), _numbers(tables, ids))
        for word, agents, ids in words
    ]
    found = set[int]()
    spans: list[Span] = []
    revisions: list[int] = []
    blocks = tables.execute(
        f"SELECT lowest, highest, {EFFECTIVE}, texts FROM acphold.usage_blocks"
        " JOIN acphold.row_texts USING (highest) ORDER BY highest"
    )
    with closing(blocks):
        for lowest, highest, revision, kept in blocks:
            # A damaged one, too, has its sessions looked at themselves.
            with suppress(msgspec.DecodeError, ValueError):
                found.update(_decode(kept).having(asked))
                spans.append((lowest, highest))
                revisions.append(revision)
            if len(found) > bounds.FOUND_BY_WORDS:
                return None
    if not spans:
        return None
    condition, values = conditions_for(words, HAS_WORD)
    outside = f"SELECT number FROM acphold.sessions WHERE number BETWEEN %s AND %s{condition}"
    changed = (
        "SELECT number FROM acphold.changes CROSS JOIN acphold.sessions USING (session_id)"
        f" WHERE revision > %s{condition}"
    )
    asked_rows = [(outside, its) for its in usage_blocks.spans_outside(spans)]
    for statement, its in (*asked_rows, (changed, (min(revisions),))):
        found.update(number for (number,) in tables.execute(statement, (*its, *values)))
    return found if len(found) <= bounds.FOUND_BY_WORDS else None


def _numbers(tables: Tables, session_ids: Sequence[str]) -> frozenset[int]:
    if not session_ids:
        return frozenset()
    rows = tables.execute(
        f"SELECT number FROM acphold.sessions WHERE {tables.among('session_id', 'ids')}",
        {"ids": tables.array(session_ids)},
    )
    return frozenset(number for (number,) in rows)
