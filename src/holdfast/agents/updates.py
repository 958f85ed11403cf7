"""Sorting the notifications an agent sends into runs of updates, one session each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec
from msgspec import Raw, Struct

from holdfast.errors import InvalidParamsError
from holdfast.rpc import NotificationReceived
from holdfast.schema import UPDATE
from holdfast.schema.splice import members


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
    """The batch in order: runs of updates, and the notifications that are something else."""
    run: Run | None = None
    for notification in batch:
        found = _update(notification)
        if found is None:
            if run is not None:
                yield run
                run = None
            yield notification
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


def _update(notification: NotificationReceived) -> tuple[str, str, bytes] | None:
    if notification.method != UPDATE.name:
        return None
    try:
        params = _decode(notification.params)
    except msgspec.MsgspecError:
        return _odd_update(notification.params)
    return params.session_id, "update", bytes(params.update)


def _odd_update(params: bytes) -> tuple[str, str, bytes] | None:
    """An update beside other fields, or with bytes that msgspec refuses (lone surrogates)."""
    try:
        parts = members(params)
        session_id = msgspec.json.decode(parts["sessionId"], type=str)
        update = parts["update"]
    except (InvalidParamsError, KeyError, msgspec.MsgspecError):
        return None
    if len(parts) == 2:
        return session_id, "update", update
    return session_id, "params", params
