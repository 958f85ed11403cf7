"""The table of snapshots; see `journal.snapshots`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from acphold.journal.snapshots import TurnSnapshot
from acphold.journal.sql.tables import Tables, batches

_ENCODER: Final = msgspec.json.Encoder()
_DECODER: Final = msgspec.json.Decoder(TurnSnapshot)

_ORDER: Final = "turn, is_end, root"


def keep(tables: Tables, session_id: str, taken: Sequence[TurnSnapshot]) -> None:
    """Like `Snapshots.keep`."""
    key = tables.tell(session_id)
    drop(tables, session_id, taken)
    tables.executemany(
        f"INSERT INTO acphold.snapshots ({tables.KEY}, {_ORDER}, facts)"
        " VALUES (%s, %s, %s, %s, %s)",
        [(key, one.turn, int(one.edge == "end"), one.root, _ENCODER.encode(one)) for one in taken],
    )


def of(tables: Tables, session_id: str) -> list[TurnSnapshot]:
    """Like `Snapshots.of`."""
    rows = tables.execute(
        f"SELECT facts FROM acphold.snapshots WHERE {tables.KEY} ="
        f" (SELECT {tables.OWN_KEY} FROM acphold.sessions WHERE session_id = %s)"
        f" ORDER BY {_ORDER}",
        (session_id,),
    )
    return [_DECODER.decode(bytes(facts)) for (facts,) in rows.fetchall()]


def newest(tables: Tables, session_ids: Sequence[str]) -> dict[str, TurnSnapshot]:
    """Like `Snapshots.newest`."""
    found = {}
    for some in batches(session_ids):
        marks = ", ".join(["%s"] * len(some))
        rows = tables.execute(
            "SELECT sessions.session_id, (SELECT facts FROM acphold.snapshots"
            f" WHERE snapshots.{tables.KEY} = sessions.{tables.OWN_KEY}"
            " ORDER BY turn DESC, is_end DESC, root DESC LIMIT 1)"
            f" FROM acphold.sessions WHERE session_id IN ({marks})",
            some,
        )
        for session_id, facts in rows.fetchall():
            if facts is not None:
                found[session_id] = _DECODER.decode(bytes(facts))
    return found


def named(tables: Tables) -> list[tuple[str, TurnSnapshot]]:
    """Like `Snapshots.named`."""
    rows = tables.execute(
        "SELECT sessions.session_id, facts FROM acphold.snapshots JOIN acphold.sessions"
        f" ON snapshots.{tables.KEY} = sessions.{tables.OWN_KEY}"
        f" ORDER BY sessions.session_id, {_ORDER}"
    )
    return [(its, _DECODER.decode(bytes(facts))) for its, facts in rows.fetchall()]


def drop(tables: Tables, session_id: str, taken: Sequence[TurnSnapshot]) -> None:
    """Like `Snapshots.drop`."""
    tables.executemany(
        f"DELETE FROM acphold.snapshots WHERE {tables.KEY} ="
        f" (SELECT {tables.OWN_KEY} FROM acphold.sessions WHERE session_id = %s)"
        " AND turn = %s AND is_end = %s AND root = %s",
        [(session_id, one.turn, int(one.edge == "end"), one.root) for one in taken],
    )
