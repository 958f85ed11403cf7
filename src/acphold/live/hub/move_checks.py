"""Checks of what the machine at the other end of a move says; see `hub.moves`."""

from __future__ import annotations

from contextlib import suppress
from pathlib import PurePath
from typing import Final

import msgspec
from msgspec import Raw

from acphold.errors import MoveRefusedError
from acphold.live.hub import bounds
from acphold.live.hub.moves import SentEntry, SessionOffer, is_name
from acphold.record.history.entries import PastEntry
from acphold.record.history.raw_update import UNREADABLE
from acphold.record.journal.seams import TurnSnapshot
from acphold.record.snapshots.checkouts import COMMIT
from acphold.record.snapshots.packs import OBJECT

NUMBERS: Final = 1 << 31
"""Highest entry number that is accepted."""

NO_COMMIT: Final = "0" * 40


def past_entry(entry: SentEntry) -> PastEntry:
    """Return an entry as the journal takes it in; raises MoveRefusedError unless it is one."""
    kind, raw = entry.kind, entry.raw
    is_json = not raw
    with suppress(*UNREADABLE):
        raw.decode()
        is_json = is_json or (b"\n" not in raw and msgspec.json.decode(raw, type=Raw) is not None)
    if not is_json or not is_name(kind) or not 0 <= entry.at < 1 << 53:
        raise MoveRefusedError("the other machine sent an invalid entry")
    return PastEntry(kind, entry.at, raw, entry.seq)


def require_wanted(session_id: str, wanted: str) -> None:
    """Raise MoveRefusedError unless an id that another machine names begins with the one asked
    for."""
    if not session_id.startswith(wanted):
        raise MoveRefusedError(
            f"you asked for session {wanted!r}, but the other machine offers {session_id!r}"
        )


def require_fit(offer: SessionOffer) -> None:
    """Raise MoveRefusedError for an offer that no giver makes."""
    session, files = offer.session, offer.files
    names = [session.session_id, session.agent, *([offer.move] if offer.move else [])]
    times = (session.created_at, session.updated_at)
    below = PurePath(offer.below)
    if (
        not all(map(is_name, names))
        or not 0 < offer.last < NUMBERS
        or not all(0 <= time < 1 << 53 for time in times)
        or below.is_absolute()
        or ".." in below.parts
        or "\0" in offer.below + session.cwd
        or (files is not None and not 0 <= files.turn <= offer.last)
        or (files is not None and not 0 <= files.at < 1 << 53)
        or (files is not None and not 0 <= files.left_out_count < 1 << 53)
        or (files is not None and not COMMIT.fullmatch(files.commit or NO_COMMIT))
        or (offer.earlier and (files is None or len(offer.earlier) > bounds.EARLIER_SNAPSHOTS))
        or not all(_is_fit(it, offer.last) for it in offer.earlier)
    ):
        raise MoveRefusedError("the other machine offers an invalid session")


def _is_fit(snapshot: TurnSnapshot, last: int) -> bool:
    """True if a giver can offer this snapshot of an earlier turn."""
    counts = (snapshot.at, snapshot.left_out_count, snapshot.files, snapshot.size)
    below = PurePath(snapshot.cwd)
    ids = [it for it in (snapshot.commit, *snapshot.stashes) if it is not None]
    return (
        0 <= snapshot.turn <= last
        and all(0 <= count < 1 << 53 for count in counts)
        and (OBJECT.fullmatch(snapshot.tree) is not None or not snapshot.tree)
        and (snapshot.state == "refused") == (not snapshot.tree)
        and all(COMMIT.fullmatch(it) for it in ids)
        and not (below.is_absolute() or ".." in below.parts or "\0" in snapshot.cwd)
        and (is_name(snapshot.taken_for) or not snapshot.taken_for)
    )
