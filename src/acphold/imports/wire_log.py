"""Entries that are kept in the protocol's own words, byte for byte: acpx's journal and our own."""

from __future__ import annotations

from typing import Final

import msgspec

from acphold.imports.scribe import Scribe
from acphold.imports.values import UNREADABLE, Object, decoded
from acphold.journal.entries import PARAMS, PROMPT, TURN_END, UPDATE

_TELLING: Final = (b'"tool_call', b'"agent_message_chunk"', b'"session_info_update"')
"""What the scribe has to look into to know how a turn stands."""

_decode_blocks: Final = msgspec.json.Decoder(list[dict[str, object]]).decode


def relay(scribe: Scribe, kind: str, raw: bytes) -> None:
    """Hand on one entry of this kind, as the journal has it; what cannot be one is counted."""
    if kind == PROMPT:
        if _is_prompt(raw):
            scribe.relay_prompt(raw)
            return
    elif raw.startswith(b"{"):
        if kind == TURN_END:
            scribe.relay_end(raw)
        elif kind in (UPDATE, PARAMS):
            scribe.relay_update(raw, kind, _update(raw, kind))
        else:
            scribe.relay(kind, raw)
        return
    scribe.facts.missed[f"entries of kind {kind[:40]!r} that are none"] += 1


def _is_prompt(raw: bytes) -> bool:
    try:
        blocks = _decode_blocks(raw)
    except UNREADABLE:
        return False
    return bool(blocks)


def _update(raw: bytes, kind: str) -> Object:
    if not any(mark in raw for mark in _TELLING):
        return {}
    try:
        whole = decoded(raw)
    except UNREADABLE:
        return {}
    inner = whole.get("update") if kind == PARAMS else whole
    return inner if isinstance(inner, dict) else {}
