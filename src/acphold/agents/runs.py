"""The notifications of an agent, sorted into runs: consecutive updates of one session.

A run is committed as a whole. So an agent that streams many small pieces costs one commit for each
read of its pipe, and not one for each piece.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence

import msgspec
from msgspec import Raw, Struct

from acphold.agents.interface import Notified, Updates
from acphold.errors import InvalidParamsError
from acphold.history.speakers import may_have_marks, params_without_marks, without_marks
from acphold.rpc import Cut, NotificationReceived
from acphold.schema import UPDATE
from acphold.schema.session_ids import session_id_in
from acphold.schema.splice import members

log = logging.getLogger(__name__)

EXCERPT = 200
"""Bytes of a dropped notification that are logged."""


class _UpdateParams(Struct, forbid_unknown_fields=True, gc=False, rename="camel"):
    """The params of nearly every `session/update`: only these two members."""

    session_id: str
    update: Raw


_decode = msgspec.json.Decoder(_UpdateParams).decode


def runs(
    batch: Sequence[NotificationReceived], *, unmarked: bool = False
) -> Iterator[Updates | Notified]:
    """Yield the batch in order: runs of updates, and notifications of other kinds.

    A `session/update` without an update is left out: no client could read it either. With
    `unmarked`, marks that only acphold may set are removed.
    """
    session_id, kind, raws = "", "", list[bytes]()
    # One look at all of a read takes a fifth of the time.
    looks = unmarked and may_have_marks(b"\n".join([it.params for it in batch]))
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
        if looks:
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
    """Return the session of an update that was over a limit; None if it was no update."""
    if cut.method != UPDATE.name:
        return None
    try:
        return msgspec.json.decode(cut.params.get("sessionId", b""), type=str)
    except msgspec.MsgspecError:
        return None


def _update(params: bytes) -> tuple[str, str, bytes] | None:
    """Return the session, the kind of run and the bytes of an update; None if there is none."""
    try:
        usual = _decode(params)
    except msgspec.MsgspecError:
        pass  # it has further members, or is no update
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
