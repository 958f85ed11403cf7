"""The mark of a session that is another machine's; see `hub.moves` for how it gets there.

It is the field `moved` of the session's row. While it is set nobody continues the session here: the
hub does not open it, nothing is queued in it, no import adds to it. It can be read and copied.
"""

from __future__ import annotations

import msgspec
from msgspec import Struct

from acphold.errors import SessionMovedError
from acphold.journal.journal import Journal, Lease
from acphold.journal.rows import SessionRow


class MoveMark(Struct, frozen=True, omit_defaults=True):
    """`to` is the name of the machine that the session went to, in the move `id`. `taking` is the
    move by which it is coming from the machine `source`; both moves are set on its way back. `laid`
    is the folder in which its files were laid out for that. `journal` is the identity of the
    taker's journal: a copy of that does not go on with the move."""

    to: str = ""
    id: str = ""
    taking: str = ""
    source: str = ""
    laid: str = ""
    journal: str = ""


def mark_text(mark: MoveMark) -> str:
    """Return a mark as the row keeps it."""
    return msgspec.json.encode(mark).decode()


def mark_of(row: SessionRow) -> MoveMark:
    """Return the mark of a session; an empty one if it is here."""
    try:
        return msgspec.json.decode(row.moved, type=MoveMark) if row.moved else MoveMark()
    except msgspec.MsgspecError:  # of a later release: it is not here, whatever else is meant
        return MoveMark(to="another machine")


def destination(row: SessionRow) -> str:
    """Return the name of the machine that a session went to; "" if it is here, or coming."""
    return mark_of(row).to if row.moved else ""


async def row_here(journal: Journal, lease: Lease) -> SessionRow:
    """Return the row of a session that we own: nobody can move it now.

    If it is another machine's, release the session and raise SessionMovedError.
    """
    row = await journal.session(lease.session_id)
    if row.moved:
        await journal.release(lease)
        refuse_moved(row)
    return row


def refuse_moved(row: SessionRow) -> None:
    """Raise SessionMovedError if a session is another machine's."""
    if row.moved:
        mark = mark_of(row)
        where = mark.to or mark.source
        raise SessionMovedError(row.session_id, where, arrives=not mark.to)
