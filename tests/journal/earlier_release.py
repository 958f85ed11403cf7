"""A journal as an earlier release would have it."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from acphold.journal.sqlite.file import APPLICATION_ID
from acphold.journal.sqlite.migrations import MIGRATIONS, take_step

LEFT_OUT = ("documents", "words", "volumes", "leases", "owners")
"""Tables of the search index, of whichever release, and of who owns what."""


def made_by(release: int, path: Path) -> sqlite3.Connection:
    """An empty journal of a release; whoever fills it commits and closes."""
    database = sqlite3.connect(path)
    database.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    for step in MIGRATIONS[:release]:
        take_step(database, step)
    database.execute(f"PRAGMA user_version = {release}")
    return database


def taken_back(path: Path, release: int) -> None:
    """Make a closed journal one of an earlier release, with as much as that could keep."""
    earlier = path.with_name("earlier.db")
    database = made_by(release, earlier)
    database.commit()
    database.execute("ATTACH ? AS later", (str(path),))
    tables = "SELECT name FROM {}.sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
    both = {*database.execute(tables.format("main"))} & {*database.execute(tables.format("later"))}
    for (table,) in both:
        if not table.startswith(LEFT_OUT):
            columns = "SELECT name FROM pragma_table_info(?, ?)"
            kept = {*database.execute(columns, (table, "main"))}
            kept &= {*database.execute(columns, (table, "later"))}
            names = ", ".join(name for (name,) in kept)
            database.execute(
                f"INSERT OR REPLACE INTO main.{table} ({names}) SELECT {names} FROM later.{table}"
            )
    database.commit()
    database.close()
    earlier.replace(path)
