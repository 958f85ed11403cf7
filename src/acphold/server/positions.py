"""Positions in params: behind which one a client goes on, and which one an update has.

A position is the number of an entry that a client has been sent. A client that kept it can come
back over a new connection and gets what is behind it, without the whole history: it names it in
`_meta` of `session/resume`, where the protocol has room for it (spec v1, extensibility).
"""

from __future__ import annotations

import re

import msgspec

from acphold.errors import InvalidParamsError
from acphold.history.raw_update import PROMPT_BEGUN
from acphold.hub.frames import NO_NEWS, POSITION
from acphold.schema.splice import members, splice

AFTER = "acphold/after"

BARE_BYTES = 1024
"""More than any of the params have that tell nothing but a position; ids are shorter than this."""


def position_in(params: bytes) -> int | None:
    """The position that the params of `session/resume` name; InvalidParamsError if it is none."""
    meta = members(params).get("_meta", b"")
    raw = members(meta).get(AFTER) if meta.startswith(b"{") else None
    if raw is None:
        return None
    try:
        position = msgspec.json.decode(raw, type=int)
    except msgspec.MsgspecError:
        position = -1
    if position < 0:
        raise InvalidParamsError(
            f"{AFTER}: the `acphold/seq` of an update is required, not {raw[:40]!r}",
            field=f"_meta.{AFTER}",
        )
    return position


def without_position(params: bytes) -> bytes:
    """The params as the agent may get them: it knows no positions of ours."""
    meta = splice(members(params)["_meta"], {AFTER: None})
    return splice(params, {"_meta": meta if members(meta) else None})


_TOLD = re.compile(rb'"%b":(\d+)\}\}$' % POSITION.encode())
"""How the params of an update end that carries its position."""


def told_position(params: bytes) -> int | None:
    """The position in the params of an update; None where there is none."""
    found = _TOLD.search(params, max(0, len(params) - 64))
    return None if found is None else int(found[1])


def is_bare(params: bytes) -> bool:
    """Whether params of an update tell nothing but its position."""
    return len(params) < BARE_BYTES and NO_NEWS in params


def tells_beginning(params: bytes) -> bool:
    """Whether params of an update tell that the turn of a prompt of this client's own begins."""
    return len(params) < BARE_BYTES and PROMPT_BEGUN in params


def behind(params: bytes, position: int) -> bytes:
    """The params of `session/resume`, going on behind a position."""
    meta = members(params).get("_meta", b"{}")
    meta = splice(meta if meta.startswith(b"{") else b"{}", {AFTER: b"%d" % position})
    return splice(params, {"_meta": meta})
