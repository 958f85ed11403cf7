"""Sessions that an import has listed, without reading their transcripts to the end yet.

    no row ──listed──▶ unread ──its last piece is taken in──▶ read
                          └─given up─▶ no row; or read, where some of it is there

The row has the place of the transcript in a form that only the import knows; only the import gives
a session up.

If somebody needs such a session, it is read first: see `journal.transcripts`.
"""

from __future__ import annotations

from acphold.errors import SessionExistsError
from acphold.journal.journal import Listed
from acphold.journal.sql import link_rows
from acphold.journal.sql.tables import Tables


def enlist(tables: Tables, listed: Listed) -> None:
    """Add the row of a session, unless it is known or was deleted."""
    agent, downstream_id = listed.new.agent, listed.downstream_id
    if link_rows.linked(tables, agent, [downstream_id]):
        return
    try:
        key = tables.create(listed.new)
    except SessionExistsError:
        return
    parts = ("prompted = %s", "updated_at = %s", "unread = %s")
    tables.update(key, parts, (True, listed.updated_at, listed.source))
    tables.link(agent, downstream_id, key)
