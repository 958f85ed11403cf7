"""What a client says about positions: that it wants them, and which one it goes on behind.

Both stand in `_meta`, where the protocol has room for it (spec v1, extensibility):
`clientCapabilities._meta` of `initialize` and `_meta` of `session/resume`.
"""

from __future__ import annotations

import msgspec

from acphold.errors import InvalidParamsError
from acphold.schema import ClientCapabilities
from acphold.schema.splice import members, splice

WANTED = "acphold/positions"
AFTER = "acphold/after"


def wants_positions(capabilities: ClientCapabilities) -> bool:
    """Whether each update is to carry its position."""
    return (capabilities.meta or {}).get(WANTED) is True


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
