"""The columns of the table of sessions: reading and writing rows by the names of their fields.

A field of SessionRow, RowChange or NewSession is the column of the same name. Its type tells how
it is kept: tuples and dicts are JSON, and a truth value may be a number. So a new field takes a
line in these classes and a step in the migrations of each store. Some fields of a row are no
columns; each store has SQL for them: see `select`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias, get_origin

import msgspec
from msgspec import UNSET
from msgspec.structs import asdict, fields

from acphold.history.raw_update import storable
from acphold.journal import stored_history
from acphold.journal.journal import NewSession, RowChange, SessionRow
from acphold.journal.lineage import lineage_of
from acphold.journal.location import resolved_folder
from acphold.journal.stored_history import StoredSegments

SegmentsOf: TypeAlias = Callable[[str, int], StoredSegments]
"""Returns the rows of the entries of a session, by its id and its number."""

_FIELDS: Final = SessionRow.__struct_fields__
_FLAGS: Final = [place for place, it in enumerate(fields(SessionRow)) if it.type is bool]
_JSON: Final = [
    (place, kind, msgspec.json.Decoder(it.type, strict=False).decode)
    for place, it in enumerate(fields(SessionRow))
    if (kind := get_origin(it.type)) in (tuple, dict)
]
_LAST, _PROMPTED, _MESSAGES, _FOLLOWERS, _LINEAGE = map(
    _FIELDS.index, ("last_seq", "prompted", "message_count", "followers", "lineage")
)


def select(table: str, computed: Mapping[str, str]) -> str:
    """Return the statement that reads rows for `decoded`; append a condition.

    `computed` has the SQL of the fields that are no columns. That of `shared_with` returns a JSON
    object, that of `lineage` the era of the journal, or NULL before the first one.
    """
    names = (*_FIELDS, "settled_through", "number")
    columns = (computed.get(name, f"sessions.{name}") for name in names)
    return f"SELECT {', '.join(columns)} FROM {table}"


def decoded(rows: Iterable[Sequence[Any]], count_in: SegmentsOf | None) -> list[SessionRow]:
    """Decode rows of `select`; with `count_in`, count the messages of unsettled entries, too."""
    found: list[SessionRow] = []
    for row in rows:
        *values, settled, number = row
        for place in _FLAGS:
            values[place] = values[place] == 1
        for place, kind, decode in _JSON:
            text = values[place]
            values[place] = kind() if len(text) == 2 else decode(text)  # [] or {}
        if values[_LAST] <= settled:
            values[_FOLLOWERS] = 0
        elif count_in is not None and values[_PROMPTED]:
            segments = count_in(values[0], number)
            values[_MESSAGES] += stored_history.unsettled_messages(segments, settled)
        era = values[_LINEAGE]
        values[_LINEAGE] = "" if era is None else lineage_of(era, number)
        found.append(SessionRow(*values))
    return found


def new_row(new: NewSession, now: int | None) -> dict[str, Any]:
    """The columns of a new session, with their values; `now` is its time if it names none."""
    created = now if new.created_at is None else new.created_at
    return _columns(asdict(new) | {"created_at": created, "updated_at": created})


def assignments(change: RowChange | None, mark: str) -> tuple[list[str], list[Any]]:
    """The values set in `change`, as SQL assignments with this mark in the place of each value.

    A title is set only if no person gave one. Raises OverflowError for a number beyond 64 bits.
    """
    columns = {} if change is None else asdict(change)
    columns = {name: value for name, value in columns.items() if value is not UNSET}
    is_given = "given" in columns
    if is_given:
        columns["title"] = columns.pop("given")
        columns["renamed"] = columns["title"] is not None
    columns = _columns(columns)
    for value in columns.values():
        if isinstance(value, int) and not -1 << 63 <= value < 1 << 63:
            raise OverflowError(f"{value} is no time and no count")
    parts = [f"{name} = {mark}" for name in columns]
    if "title" in columns and not is_given:
        place = [*columns].index("title")
        parts[place] = f"title = CASE WHEN renamed THEN title ELSE {mark} END"
    return parts, [*columns.values()]


def _columns(values: dict[str, Any]) -> dict[str, Any]:
    """These values of fields as columns keep them."""
    columns = {
        name: msgspec.json.encode(value).decode() if isinstance(value, tuple) else value
        for name, value in values.items()
    }
    if columns.get("title") is not None:
        # PostgreSQL keeps no NUL in a text.
        columns["title"] = storable(columns["title"]).replace("\0", "\ufffd")
    if "cwd" in columns:
        columns["folder"] = resolved_folder(columns["cwd"])
    return columns
