"""Turn an entry that a search found into a hit: its speaker, an excerpt and the marks in it.

The index only says which entry has the words. They are located again in its text by the same rules
as the index: ignoring case and accents, with `snake_case` as consecutive words.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Final, NamedTuple

from acphold.conversation.history.entries import PROMPT, Entry
from acphold.conversation.history.raw_update import (
    ROLES,
    is_the_persons,
    members,
    storable,
    string,
    update_kind,
)
from acphold.conversation.history.replay import named_user
from acphold.conversation.history.words import (
    Document,
    camel_parts,
    document,
    indexable,
    with_spaces,
)
from acphold.journal import bounds
from acphold.journal.seams import Part, SearchHit, Speaker


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
    before: Entry | None,
    patterns: Sequence[re.Pattern[str]],
    part: Part | None,
    length: int = bounds.EXCERPT_CHARACTERS,
) -> SearchHit:
    """Return the hit for an entry: the part of its text that has the most of the terms, with at
    most `length` characters. `before` is the entry before it, which a prompt's author needs."""
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
        *(held.session_id, entry.seq, entry.at, source, best.text, best.marks),
        agent=held.agent,
        cwd=held.cwd,
        title=held.title,
        archived=held.archived,
        tool=tool_title(entry) if source in ("tool", "diff") else None,
        user=named_user(entry, before),
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

    @property
    def ways(self) -> list[str]:
        """The texts that match it: as written, and for `camelCase` its parts in a row."""
        parts = camel_parts(self.text)
        return [with_spaces(self.text), *([parts] if parts else [])]


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


def as_beginnings(words: str) -> list[Term]:
    """Parse a query for what begins with its words, where these are long enough; empty if all are
    too short, or if it asks for a phrase or a beginning already."""
    if '"' in words or "*" in words:
        return []
    found = terms(words)
    each = [term._replace(is_prefix=len(term.text) >= bounds.LEAST_BEGINNING) for term in found]
    return each if any(term.is_prefix for term in each) else []


def stem(term: Term) -> Term | None:
    """Return the beginning of an English word without its ending: what else begins so may be the
    same word, as `restore` for `restoring`. None for other words, and for what is short."""
    found = _STEM.fullmatch(term.text.lower())
    return Term(found[1], is_prefix=True) if found and term.is_prefix else None


_STEM: Final = re.compile(r"([a-z]{3,}?)(?:ations?|ions?|ings?|ers?|ed|es|s|e|ly)")


def begins_in(text: str, pattern: re.Pattern[str]) -> bool:
    """True if a term, as one of `patterns_of`, is at the beginning of a word of the text."""
    plain = _plain(text)
    starts = (match.start() for match in pattern.finditer(plain))
    return any(not plain[at - 1 : at].isalnum() for at in starts)


STEPS: Final = 1_000_000
"""Steps to find the best part of a text, one for a character and a term: a few milliseconds. Of a
longer one the beginning is looked at."""


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
    line = " ".join(text[: STEPS // (1 + len(patterns))].split())
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


# -- words as SQLite's FTS5 sees them, for every store ---------------------------------------------

TOKENIZER: Final = "tokenize = 'unicode61 remove_diacritics 2'"
"""The definition of a word in the search index. A change needs a new index, so the
migration of each store has to begin one."""


LONGEST: Final = 500
"""Letters of a word that count, for a store that splits text with this tokenizer."""


class Tokenizer:
    """Splits texts into words as the index does. Use it from one thread at a time, and close it."""

    def __init__(self) -> None:
        self._index = sqlite3.connect(":memory:", isolation_level=None)
        self._index.execute(f"CREATE VIRTUAL TABLE texts USING fts5 (text, {TOKENIZER})")
        self._index.execute("CREATE VIRTUAL TABLE found USING fts5vocab (texts, 'instance')")

    def words(self, texts: Sequence[str]) -> list[list[str]]:
        """Return the words of each text, in order."""
        self._index.execute("DELETE FROM texts")
        self._index.executemany(
            "INSERT INTO texts (rowid, text) VALUES (?, ?)",
            [(number, storable(text)) for number, text in enumerate(texts)],
        )
        found: list[list[str]] = [[] for _ in texts]
        for number, word in self._index.execute("SELECT doc, term FROM found ORDER BY doc, offset"):
            found[number].append(word[:LONGEST])
        return found

    def close(self) -> None:
        self._index.close()


def columns(words: Document) -> tuple[str, str, str]:
    """The texts of a document by column, as the tokenizer gets them."""
    return (
        storable(indexable(words.messages)),
        storable(indexable(words.tools)),
        storable(indexable(words.diffs)),
    )


def fitting(entries: Sequence[Entry], asked: str) -> list[int]:
    """Return the places of the entries that match a query, in order."""
    if not entries:
        return []
    index = sqlite3.connect(":memory:")
    try:
        index.execute(
            f"CREATE VIRTUAL TABLE words USING fts5 (messages, tools, diffs, {TOKENIZER})"
        )
        index.executemany(
            "INSERT INTO words (rowid, messages, tools, diffs) VALUES (?, ?, ?, ?)",
            (
                (place, *columns(words))
                for place, entry in enumerate(entries)
                if (words := document(entry))
            ),
        )
        found = index.execute(
            "SELECT rowid FROM words WHERE words MATCH ? ORDER BY rowid", (storable(asked),)
        )
        return [place for (place,) in found]
    finally:
        index.close()


def query(found: Iterable[Term], part: str | None) -> str:
    """Return the FTS5 query for all of the terms; nothing in them is taken for an operator."""
    terms: list[str] = []
    for term in found:
        quoted = (way.replace('"', '""').strip() for way in term.ways)
        ways = (f'"{way}"{"*" * term.is_prefix}' for way in quoted)
        terms.append(f"({' OR '.join(ways)})")
    asked = " AND ".join(terms)
    return asked if part is None else f"{{{part}}} : ({asked})"
