"""Sorting the notifications an agent sends into runs of updates, one session each."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence

import msgspec
from msgspec import Raw, Struct

from acphold.errors import InvalidParamsError
from acphold.rpc import NotificationReceived
from acphold.schema import UPDATE
from acphold.schema.splice import members

log = logging.getLogger(__name__)

EXCERPT = 200
"""Bytes of what is left out that are kept for the log."""


class _UpdateParams(Struct, forbid_unknown_fields=True, gc=False, rename="camel"):
    """The params of nearly every `session/update`: nothing beside the two."""

    session_id: str
    update: Raw


_decode = msgspec.json.Decoder(_UpdateParams).decode


class Run(Struct, frozen=True, gc=False):
    """Updates of one session in a row; `kind` as in Listener.on_updates."""

    session_id: str
    kind: str
    raws: list[bytes]


def runs(batch: Sequence[NotificationReceived]) -> Iterator[Run | NotificationReceived]:
    """The batch in order: runs of updates, and the notifications that are something else.

    A `session/update` without an update is left out: no client could read it either.
    """
    run: Run | None = None
    for notification in batch:
        if notification.method != UPDATE.name:
            if run is not None:
                yield run
                run = None
            yield notification
            continue
        found = _update(notification.params)
        if found is None:
            log.warning("no update: %r", notification.params[:EXCERPT])
            continue
        session_id, kind, raw = found
        if run is not None and run.session_id == session_id and run.kind == kind:
            run.raws.append(raw)
            continue
        if run is not None:
            yield run
        run = Run(session_id, kind, [raw])
    if run is not None:
        yield run


def _update(params: bytes) -> tuple[str, str, bytes] | None:
    try:
        usual = _decode(params)
    except msgspec.MsgspecError:
        return _odd_update(params)
    update = bytes(usual.update)
    return (usual.session_id, "update", update) if update[:1] == b"{" else None


def _odd_update(params: bytes) -> tuple[str, str, bytes] | None:
    """An update beside other fields, or with bytes that msgspec refuses (lone surrogates)."""
    try:
        parts = members(params)
        session_id = msgspec.json.decode(parts["sessionId"], type=str)
        update = parts["update"]
    except (InvalidParamsError, KeyError, msgspec.MsgspecError):
        return None
    if update[:1] != b"{":
        return None
    if len(parts) == 2:
        return session_id, "update", update
    return session_id, "params", params
