"""Sessions and their entries, by the names that a person uses.

A session is named by its id; by any unique prefix; by `-` or `@last`, the newest of the folder;
or chosen from a list, if a person is there and named none, or an ambiguous prefix.
"""

from __future__ import annotations

import os
from typing import NamedTuple

from acphold.cli.command_line import NothingChosen, UsageError
from acphold.cli.journals import whole
from acphold.cli.terminal_text import on_terminal
from acphold.errors import AmbiguousIdError, UnknownSessionError
from acphold.journal import Journal, ListFilter, SessionRow
from acphold.presentation.json_facts import place_name

NEWEST = ("-", "@last")
"""Names of the newest session of the folder."""


class Place(NamedTuple):
    """A session, and the number of one of its entries if one is meant."""

    row: SessionRow
    seq: int | None = None

    def __str__(self) -> str:
        return place_name(self.row.session_id, self.seq)


async def named(
    journal: Journal, given: str | None, does: str = "", *, cwd: str | None = None
) -> SessionRow:
    """Return the session that is meant; with `cwd`, other folders' sessions do not count.

    With `does`, the words for what will be done ("shows it"), it may be chosen from a list. Raises
    UnknownSessionError, AmbiguousIdError, NothingChosen, and UsageError if it has to be named.
    """
    if given in NEWEST:
        here = cwd or os.getcwd()
        if newest := await journal.page(ListFilter(cwd=here), None, 1):
            return newest[0]
        raise UnknownSessionError("", reason=f"there is no session in {here} yet")
    among = None
    if given is not None:
        try:
            return await journal.resolve(given, cwd)
        except AmbiguousIdError as error:
            if not (does and on_terminal()) or error.is_cut:
                raise
            among = error.matches
    elif not on_terminal():
        raise UsageError("in a pipe ID is required; `acphold list` has them")
    from acphold.cli.session_picker import chosen  # late: next to nobody needs it

    if (found := await chosen(journal, does, among)) is None:
        raise NothingChosen
    return await journal.session(found)


async def place(
    journal: Journal, text: str | None, does: str = "", *, cwd: str | None = None
) -> Place:
    """Resolve `ID` or `ID@SEQ`; otherwise as `named`.

    A session that an import has only listed is read first. Raises the errors of `named`, UsageError
    for a missing entry, and TranscriptError. An id that contains an `@` is tried as an id first.
    """
    given, at, seq = (text or "").rpartition("@")
    try:
        return Place(await whole(journal, await named(journal, text, does, cwd=cwd)))
    except UnknownSessionError:
        if not (at and given and seq.isascii() and seq.isdecimal()):
            raise
    row = await whole(journal, await named(journal, given, does, cwd=cwd))
    # Longer numbers could not even be parsed: Python refuses thousands of digits.
    if len(seq) > 10 or not 0 < int(seq) <= row.last_seq:
        raise UsageError(
            f"{text}: the entries of this session have the numbers 1 to {row.last_seq}"
        )
    return Place(row, int(seq))
