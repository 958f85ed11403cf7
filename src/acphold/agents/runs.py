"""The notifications that an agent sends, sorted into runs: updates in a row of one session.

A run is committed as a whole. So an agent that streams many small pieces pays for one commit for
each read of its pipe, and not for one a piece.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence

import msgspec
from msgspec import Raw, Struct

from acphold.agents.interface import Notified, Updates
from acphold.errors import InvalidParamsError
from acphold.history.speakers import params_without_marks, without_marks
from acphold.rpc import Cut, NotificationReceived
from acphold.schema import UPDATE
from acphold.schema.session_ids import session_id_in
from acphold.schema.splice import members

log = logging.getLogger(__name__)

EXCERPT = 200
"""Bytes of what is left out that are kept for the log."""


class _UpdateParams(Struct, forbid_unknown_fields=True, gc=False, rename="camel"):
    """The params of nearly every `session/update`: nothing beside the two."""

    session_id: str
    update: Raw


_decode = msgspec.json.Decoder(_UpdateParams).decode


def runs(
    batch: Sequence[NotificationReceived], *, unmarked: bool = False
) -> Iterator[Updates | Notified]:
    """The batch in order: runs of updates, and the notifications that are something else.

    A `session/update` without an update is left out: no client could read it either. `unmarked`:
    without what only acphold may say of itself.
    """
    session_id, kind, raws = "", "", list[bytes]()
    for notification in batch:
        if notification.method != UPDATE.name:
            if raws:
                yield Updates(session_id, kind, raws)
            session_id, kind, raws = "", "", []
            yield Notified(notification.method, notification.params)
            continue
        if (found := _update(notification.params)) is None:
            log.warning("no update: %r", notification.params[:EXCERPT])
            continue
        its_session, its_kind, raw = found
        if unmarked:
            raw = without_marks(raw) if its_kind == "update" else params_without_marks(raw)
        if its_session == session_id and its_kind == kind:
            raws.append(raw)
            continue
        if raws:
            yield Updates(session_id, kind, raws)
        session_id, kind, raws = its_session, its_kind, [raw]
    if raws:
        yield Updates(session_id, kind, raws)


def session_of(cut: Cut) -> str | None:
    """The session of an update that was over a limit; None for what was no update."""
    if cut.method != UPDATE.name:
        return None
    try:
        return msgspec.json.decode(cut.params.get("sessionId", b""), type=str)
    except msgspec.MsgspecError:
        return None


def _update(params: bytes) -> tuple[str, str, bytes] | None:
    """The session, the kind of run and the bytes of an update; None where there is none."""
    try:
        usual = _decode(params)
    except msgspec.MsgspecError:
        pass  # it stands beside other members, or is none
    else:
        update = bytes(usual.update)
        return (usual.session_id, "update", update) if update[:1] == b"{" else None
    try:
        parts = members(params)
    except InvalidParamsError:
        return None
    session_id = session_id_in(params)
    if session_id is None or parts.get("update", b"")[:1] != b"{":
        return None
    return session_id, "params", params
