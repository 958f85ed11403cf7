"""Sessions and their entries, by the names that a person uses.

A session is named by its id; by any unique prefix; by `-` or `@last`, the newest of the folder;
or chosen from a list on a terminal, if none was named, or an ambiguous prefix.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from typing import Final, Literal, NamedTuple, TypeAlias

from acphold.errors import AmbiguousIdError, UnknownSessionError
from acphold.faces.cli import bounds
from acphold.faces.cli.command_line import NothingChosen, UsageError
from acphold.faces.cli.terminal_text import cut, on_terminal, titled
from acphold.journal.rows import ListFilter, SessionRow
from acphold.live.reading.json_facts import place_name
from acphold.live.reading.listed_sessions import Wanted
from acphold.live.reading.local_reader import LocalReader, last_entries

NEWEST = ("-", "@last", "last")
"""Names of the newest session of the folder."""


class Place(NamedTuple):
    """A session, and the number of one of its entries if one is meant."""

    row: SessionRow
    seq: int | None = None

    def __str__(self) -> str:
        return place_name(self.row.session_id, self.seq)


ByWords: TypeAlias = Literal["never", "chosen", "found"]
"""How words may lead to a session: never to one that would be changed; chosen from a list to one
that a person continues; and at once to the only one that has them, if it is only read."""

NAMED: Final = 3
"""Sessions that an error names."""


async def find_session(
    reader: LocalReader,
    given: str | None,
    does: str = "",
    *,
    cwd: str | None = None,
    archived: bool = False,
    by_words: ByWords = "never",
) -> SessionRow:
    """Return the session that is meant; with `cwd`, other folders' sessions do not count. `-` is
    the newest that is not archived, or with `archived` the newest of all folders that is.

    With `does`, the words for what will be done ("shows it"), it may be chosen from a list, and
    words that a list finds lead there as `by_words` permits. Raises UnknownSessionError,
    AmbiguousIdError, NothingChosen, and UsageError if it has to be named.
    """
    if given in NEWEST:
        here = cwd or (None if archived else os.getcwd())
        wanted = Wanted(ListFilter(cwd=here, archived="only" if archived else "exclude"))
        if newest := (await reader.page(wanted, limit=1)).sessions:
            return newest[0].row
        where = f" in {here}" if here else ""
        what = "no archived session" if archived else "no session"
        raise UnknownSessionError("", reason=f"there is {what}{where} yet")
    among, words = None, ""
    if given is not None:
        try:
            return await reader.session(given, cwd)
        except AmbiguousIdError as error:
            if not does:
                raise  # an agent may read it: titles are others' words
            if not on_terminal() or error.is_cut:
                raise await _with_titles(reader, error, given) from None
            among = error.matches
        except UnknownSessionError:
            if not does or not (found := await _with_words(reader, given, cwd)):
                raise
            if not on_terminal() or by_words == "never":
                names = await _names(reader, found[:NAMED])
                named = ", ".join([*names, *(["…"] if len(found) > len(names) else [])])
                reason = f"no session id begins with {given!r}; sessions with these words: {named}"
                raise UnknownSessionError(given, reason) from None
            if len(found) == 1 and by_words == "found":
                return found[0]
            words = given
    elif not on_terminal():
        raise UsageError(
            "in a pipe, an ID is required: `acphold list` prints them, or type `-` for the newest "
            "session in this folder"
        )
    from acphold.faces.cli.session_picker import choose_session  # late: few commands need it

    if (chosen := await choose_session(reader, does, words, among)) is None:
        raise NothingChosen
    return await reader.session(chosen)


async def _with_titles(
    reader: LocalReader, error: AmbiguousIdError, given: str
) -> AmbiguousIdError:
    """Return the error with titles beside the ids."""
    rows = [await reader.session(it) for it in error.matches[: error.SHOWN]]
    names = await _names(reader, rows)
    return AmbiguousIdError(given, error.matches, more=error.is_cut, names=names)


async def _with_words(reader: LocalReader, given: str, cwd: str | None) -> list[SessionRow]:
    """Return the newest sessions that a list would find by these words, one more than are named."""
    words = tuple(given.casefold().split())
    if not words or "@" in given:  # of ID@SEQ the id is tried first
        return []
    found = await reader.page(Wanted(ListFilter(cwd=cwd), words), limit=NAMED + 1)
    return [it.row for it in found.sessions]


async def _names(reader: LocalReader, rows: Sequence[SessionRow]) -> list[str]:
    """Return ids as short as in a list, with titles."""
    short = await reader.short_ids(row.session_id for row in rows)
    return [
        f"{short[it.session_id]} {cut(title, bounds.NAMED_CHARACTERS)}"
        for it in rows
        for title in [titled(it.title)]
    ]


async def place(
    reader: LocalReader,
    text: str | None,
    does: str = "",
    *,
    cwd: str | None = None,
    by_words: ByWords = "never",
) -> Place:
    """Resolve `ID`, `ID@SEQ`, or `ID@last` for the last entry; otherwise as `find_session`.

    A session that an import has only listed is read first. Raises the errors of `find_session`,
    UsageError for a missing entry, and TranscriptError. An id that contains an `@` is tried as an
    id first.
    """
    given, at, seq = (text or "").rpartition("@")
    find = partial(find_session, reader, does=does, cwd=cwd, by_words=by_words)
    try:
        return Place(await reader.whole(await find(text)))
    except UnknownSessionError:
        if not (at and given and (seq == "last" or (seq.isascii() and seq.isdecimal()))):
            raise
    row = await reader.whole(await find(given))
    if seq == "last":
        seq = str(sum(it.seq for it in await last_entries(reader, row.session_id, 1)))
    require_entry(row, seq, text or "")
    return Place(row, int(seq))


def require_entry(row: SessionRow, seq: str, given: str) -> None:
    """Raise UsageError, about the `given` words, if the session has no entry of this number."""
    last = row.last_seq
    # Longer numbers could not even be parsed: Python refuses thousands of digits.
    if len(seq) > 10 or not 0 < int(seq) <= last:
        raise UsageError(f"{given}: the entries of this session are numbered from 1 to {last}")
