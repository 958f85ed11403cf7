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
from acphold.rpc import CutNotification, NotificationReceived
from acphold.schema import UPDATE
from acphold.schema.splice import members, session_id_in, splice

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
        try:
            usual = _decode(notification.params)
            its_session, its_kind, raw = usual.session_id, "update", bytes(usual.update)
        except msgspec.MsgspecError:  # it has further members, or is no update
            its_session, its_kind, raw = _in_params(notification.params)
        if raw[:1] != b"{":
            log.warning("no update: %r", notification.params[:EXCERPT])
            continue
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


def update_of(kind: str, raw: bytes) -> bytes:
    """Return the update in an item of a run of this kind; b"" if none can be read."""
    if kind != "params":
        return raw
    try:
        return members(raw).get("update", b"")
    except InvalidParamsError:
        return b""


def with_update(kind: str, raw: bytes, update: bytes) -> bytes:
    """Return an item of a run of this kind with this update in place of its own."""
    return splice(raw, {"update": update}) if kind == "params" else update


def session_of(cut: CutNotification) -> str | None:
    """Return the session of an update that was over a limit; None if it was no update."""
    if cut.method != UPDATE.name:
        return None
    try:
        return msgspec.json.decode(cut.params.get("sessionId", b""), type=str)
    except msgspec.MsgspecError:
        return None


def _in_params(params: bytes) -> tuple[str, str, bytes]:
    """Return the session, the kind of run and the bytes of an update that stays in its params; no
    bytes if there is none."""
    update = update_of("params", params)
    session_id = session_id_in(params) if update[:1] == b"{" else None
    return ("", "", b"") if session_id is None else (session_id, "params", params)
