"""Journals in files, and what they are asked for."""

from __future__ import annotations

import os
from typing import Any

from acphold.journal.sql import usage_sums
from acphold.journal.sql.store import SqlJournal
from acphold.journal.sql.tables import Tables
from acphold.journal.sqlite.store import SqliteJournal
from acphold.journal.token_reports import SessionUsage
from tests.journal.promises.promise import (
    Pieces as Pieces,
    append as append,
    begun as begun,
    cost as cost,
    past as past,
    turn as turn,
    used as used,
)


def open_file(location: str | os.PathLike[str], **options: Any) -> SqliteJournal:
    """The journal in a file, opened at once."""
    journal = SqliteJournal(location, **options)
    journal.connect()
    return journal


async def usage_reports(
    journal: SqlJournal[Any], *, cwd: str | None = None, since: int = 0
) -> list[SessionUsage]:
    """The reported tokens and cost of each session, newest session first."""

    def read(tables: Tables) -> list[SessionUsage]:
        asked = usage_sums.SumsQuery(tables, "agent", (), cwd, since)
        return [*usage_sums.sessions(tables, since, asked.wanted, asked.values)]

    return await journal._ask(read)
