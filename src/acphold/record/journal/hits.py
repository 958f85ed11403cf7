"""Turn an entry that a search found into a hit: its speaker, an excerpt and the marks in it.

The index only says which entry has the words. They are located again in its text by the same rules
as the index: ignoring case and accents, with `snake_case` as consecutive words.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Final, NamedTuple

from acphold.record.history.entries import PROMPT, Entry
from acphold.record.history.raw_update import (
    ROLES,
    is_the_persons,
    members,
    storable,
    string,
    update_kind,
)
from acphold.record.history.words import camel_parts, document, with_spaces
from acphold.record.journal import bounds
from acphold.record.journal.rows import ListFilter
from acphold.record.journal.seams import Part, SearchHit, Sought, Speaker


def sessions_to_search(sought: Sought, *, settled: bool) -> ListFilter:
    """Return the sessions to search: their settled entries, or their unsettled ends.

    Archived ones are among them. An agent's own copy of a session that `wrap` keeps in the same
    journal is never prompted and never settled here: its words are found in the other one.
    """
    return ListFilter(
        sought.agents,
        sought.cwd,
        include_unprompted=settled,
        archived="include",
        tenant=sought.tenant,
    )


class Held(NamedTuple):
    """The facts a hit gives about its session."""

    session_id: str
    agent: str
    cwd: str
    title: str | None
    archived: bool


def hit(
    held: Held,
    entry: Entry,
    patterns: Sequence[re.Pattern[str]],
    part: Part | None,
    length: int = bounds.EXCERPT_CHARACTERS,
) -> SearchHit:
    """Return the hit for an entry: the part of its text that has the most of the terms, with at
    most `length` characters."""
    words = document(entry)
    texts: list[tuple[Speaker, str]] = []
    if words.messages and part in (None, "messages"):
        texts.append((speaker(entry), words.messages))
    if words.tools and part in (None, "tools"):
        texts.append(("tool", words.tools))
    if words.diffs and part in (None, "diffs"):
        texts.append(("diff", words.diffs))
    excerpts = [(source, excerpt(text, patterns, length)) for source, text in texts]
    source, best = max(excerpts, key=lambda pair: pair[1].terms)
    return SearchHit(
        *(held.session_id, entry.seq, entry.at, entry.kind, source, best.text, best.marks),
        agent=held.agent,
        cwd=held.cwd,
        title=held.title,
        archived=held.archived,
        tool=tool_title(entry) if source in ("tool", "diff") else None,
    )


def speaker(entry: Entry) -> Speaker:
    """The speaker of an entry that holds a message."""
    if entry.kind == PROMPT:
        return "user"
    role = ROLES.get(update_kind(entry.update), "agent")
    message_id = string(members(entry.update).get("messageId"))
    return "told" if role == "user" and not is_the_persons(message_id) else role


def tool_title(entry: Entry) -> str | None:
    """The title of a tool call, if this entry has it."""
    return string(members(entry.update).get("title"))


# -- the piece that is shown -----------------------------------------------------------------


class Term(NamedTuple):
    """A word or a phrase to search for; with `is_prefix`, only its beginning."""

    text: str
    is_prefix: bool = False


_TERM: Final = re.compile(r'"([^"]*)"(\*?)|(\S+)')


def terms(words: str) -> list[Term]:
    """Parse a query: words, "phrases in quotes", and either with a trailing `*` as a prefix."""
    found = []
    # FTS5 reads a query up to its first NUL.
    for phrase, star, word in _TERM.findall(storable(words.replace("\0", " "))):
        term = Term(phrase, bool(star)) if not word else Term(word.rstrip("*"), word.endswith("*"))
        # A term without a letter or digit is not in the index, and would match nothing.
        if any(map(str.isalnum, term.text)):
            found.append(term)
    return found[: bounds.QUERY_TERMS]


class Excerpt(NamedTuple):
    """An excerpt of a text as one line, the number of terms in it, and their places."""

    terms: int
    text: str
    marks: tuple[tuple[int, int], ...]


def patterns_of(found: Iterable[Term]) -> list[re.Pattern[str]]:
    """Patterns that find the terms in text made plain by `_plain`."""
    patterns = []
    for term in found:
        parts = re.findall(r"[^\W_]+", _plain(camel_parts(term.text) or with_spaces(term.text)))
        # A pattern that starts with a literal and has no flags is as fast as a plain string search.
        rest = r"[^\W_]*" if term.is_prefix else ""
        patterns.append(re.compile(r"[\W_]*".join(map(re.escape, parts)) + rest))
    return patterns


def excerpt(
    text: str, patterns: Sequence[re.Pattern[str]], length: int = bounds.EXCERPT_CHARACTERS
) -> Excerpt:
    """Return the excerpt of the text that has the most terms; the first of several."""
    line = " ".join(text.split())
    plain = _plain(line)
    places: list[tuple[int, int, int]] = []
    for number, pattern in enumerate(patterns):
        found = [match.span() for match in islice(pattern.finditer(plain), bounds.PLACES_OF_A_TERM)]
        whole = [
            (start, end)
            for start, end in found
            if not plain[start - 1 : start].isalnum() and not plain[end : end + 1].isalnum()
        ]
        # The index may have found a term as a whole word, else inside a word.
        places += [(start, end, number) for start, end in whole or found]
    places.sort()
    start, most, before = 0, 0, length // 4
    for at, (begin, _, _) in enumerate(places):
        limit = begin + length - before
        inside = {
            number for _, end, number in places[at : at + bounds.PLACES_OF_A_TERM] if end <= limit
        }
        if len(inside) > most:
            start, most = max(0, begin - before), len(inside)
        if most == len(patterns):
            break
    start = max(0, min(start, len(line) - length))
    piece = line[start : start + length]
    left_out = "…" if start else ""
    after = "…" if start + length < len(line) else ""
    shift = len(left_out) - start
    marks: list[tuple[int, int]] = []
    for begin, end, _ in places:
        is_apart = not marks or begin + shift >= marks[-1][1]
        if is_apart and start <= begin and end <= start + length:
            marks.append((begin + shift, end + shift))
    return Excerpt(most, f"{left_out}{piece}{after}", tuple(marks))


def _plain(text: str) -> str:
    """`text` without case and accents, character for character, as the index sees it."""
    return text.lower() if text.isascii() else text.translate(_PLAIN)


class _PlainCharacters(dict[int, str]):
    """Maps each character to its plain form, one character for one; filled on demand."""

    def __missing__(self, code: int) -> str:
        from unicodedata import combining, normalize

        decomposed = normalize("NFD", chr(code))
        base = decomposed[0] if all(map(combining, decomposed[1:])) else chr(code)
        lower = base.lower()
        self[code] = plain = lower if len(lower) == 1 else base
        return plain


_PLAIN: Final = _PlainCharacters()
