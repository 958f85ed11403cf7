"""What a search shows of an entry that it found: whose words, a piece of the text, the marks.

The index tells only which entry has the words. They are looked for again in its text, as it would
have found them: without case and accents, `snake_case` as words in a row.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Final, NamedTuple

from acphold.history.entries import PROMPT, Entry
from acphold.history.raw_update import ROLES, members, storable, string, update_kind
from acphold.history.speakers import is_the_persons
from acphold.history.words import camel_parts, document, with_spaces
from acphold.journal.journal import Part, SearchHit, Speaker

EXCERPT: Final = 160
"""Characters of an excerpt, ellipses aside."""

BEFORE: Final = 40
"""How many of them stand before the first word found, if there are so many."""

TERMS_AT_MOST: Final = 64
"""Words of a query that count: FTS5 refuses some hundreds; who pastes a page means its start."""

MATCHES_AT_MOST: Final = 100
"""Places of one term in one text that are looked at, for the best excerpt."""


class Held(NamedTuple):
    """What a hit tells of the session that it is in."""

    session_id: str
    agent: str
    cwd: str
    title: str | None
    archived: bool


def hit(
    held: Held, entry: Entry, patterns: Sequence[re.Pattern[str]], part: Part | None
) -> SearchHit:
    """The hit for an entry: the text of it that has the most of what was sought."""
    said = document(entry)
    texts: list[tuple[Speaker, str]] = []
    if said.messages and part in (None, "messages"):
        texts.append((speaker(entry), said.messages))
    if said.tools and part in (None, "tools"):
        texts.append(("tool", said.tools))
    if said.diffs and part in (None, "diffs"):
        texts.append(("diff", said.diffs))
    excerpts = [(who, excerpt(text, patterns)) for who, text in texts]
    who, (_, shown, marks) = max(excerpts, key=lambda told: told[1].terms)
    return SearchHit(
        *(held.session_id, entry.seq, entry.at, entry.kind, who, shown, marks),
        agent=held.agent,
        cwd=held.cwd,
        title=held.title,
        archived=held.archived,
        tool=tool_title(entry) if who in ("tool", "diff") else None,
    )


def speaker(entry: Entry) -> Speaker:
    """Whose words an entry with a message has."""
    if entry.kind == PROMPT:
        return "user"
    role = ROLES.get(update_kind(entry.update), "agent")
    message_id = string(members(entry.update).get("messageId"))
    return "told" if role == "user" and not is_the_persons(message_id) else role


def tool_title(entry: Entry) -> str | None:
    """What a tool call is called, where this entry tells it."""
    return string(members(entry.update).get("title"))


# -- the piece that is shown -----------------------------------------------------------------


class Term(NamedTuple):
    """A word, or a phrase of several, that is sought; or the beginning of one."""

    text: str
    is_prefix: bool = False


_TERM: Final = re.compile(r'"([^"]*)"(\*?)|(\S+)')


def terms(words: str) -> list[Term]:
    """What is sought: words, "phrases in quotes", and beginnings of either with a `*` behind."""
    found = []
    # FTS5 reads a query up to its first NUL.
    for phrase, star, word in _TERM.findall(storable(words.replace("\0", " "))):
        term = Term(phrase, bool(star)) if not word else Term(word.rstrip("*"), word.endswith("*"))
        # What has no letter or digit is not in the index, and would match nothing.
        if any(map(str.isalnum, term.text)):
            found.append(term)
    return found[:TERMS_AT_MOST]


class Excerpt(NamedTuple):
    """A piece of a text on one line, how many of the terms are in it, and where."""

    terms: int
    text: str
    marks: tuple[tuple[int, int], ...]


def patterns_of(found: Iterable[Term]) -> list[re.Pattern[str]]:
    """What finds the terms in a text without capitals and accents, as the index may have it."""
    patterns = []
    for term in found:
        parts = re.findall(r"[^\W_]+", _plain(camel_parts(term.text) or with_spaces(term.text)))
        # A literal in front, and no option: then the search is as fast as one for a string.
        rest = r"[^\W_]*" if term.is_prefix else ""
        patterns.append(re.compile(r"[\W_]*".join(map(re.escape, parts)) + rest))
    return patterns


def excerpt(text: str, patterns: Sequence[re.Pattern[str]]) -> Excerpt:
    """The piece of the text that has the most of the terms; of such pieces the first."""
    line = " ".join(text.split())
    plain = _plain(line)
    places = sorted(
        (start, end, number)
        for number, pattern in enumerate(patterns)
        for start, end in _places(plain, pattern)
    )
    start, most = _best_start(places, len(patterns))
    start = max(0, min(start, len(line) - EXCERPT))
    piece = line[start : start + EXCERPT]
    before = "…" if start else ""
    shift = len(before) - start
    marks = [(b + shift, e + shift) for b, e, _ in places if start <= b and e <= start + EXCERPT]
    after = "…" if start + EXCERPT < len(line) else ""
    return Excerpt(most, f"{before}{piece}{after}", tuple(_apart(marks)))


def _best_start(places: Sequence[tuple[int, int, int]], terms: int) -> tuple[int, int]:
    """Where the excerpt begins, and how many of the terms are in it."""
    start, most = 0, 0
    for at, (begin, _, _) in enumerate(places):
        limit = begin + EXCERPT - BEFORE
        inside = {number for _, end, number in places[at : at + MATCHES_AT_MOST] if end <= limit}
        if len(inside) > most:
            start, most = max(0, begin - BEFORE), len(inside)
        if most == terms:
            break
    return start, most


def _apart(marks: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """The marks without those that begin inside another."""
    end = 0
    for mark in marks:
        if mark[0] >= end:
            yield mark
            end = mark[1]


def _places(plain: str, pattern: re.Pattern[str]) -> list[tuple[int, int]]:
    """Where the index may have found a term: where it is a whole word, else a part of one."""
    found = [match.span() for match in islice(pattern.finditer(plain), MATCHES_AT_MOST)]
    whole = [
        (start, end)
        for start, end in found
        if not plain[start - 1 : start].isalnum() and not plain[end : end + 1].isalnum()
    ]
    return whole or found


def _plain(text: str) -> str:
    """`text`, character by character, without what the index does not look at: case, accents."""
    return text.lower() if text.isascii() else text.translate(_PLAIN)


class _PlainCharacters(dict[int, str]):
    """The plain form of each character that was met; one character for one."""

    def __missing__(self, code: int) -> str:
        from unicodedata import combining, normalize

        decomposed = normalize("NFD", chr(code))
        base = decomposed[0] if all(map(combining, decomposed[1:])) else chr(code)
        lower = base.lower()
        self[code] = plain = lower if len(lower) == 1 else base
        return plain


_PLAIN: Final = _PlainCharacters()
