"""Checks of entries from foreign files, before they are kept.

An agent's words are kept as they come, if they are an object: the agent answers for them. So an
imported file is only checked for what makes an entry one of its kind; an export of ours, with
anything an agent said in it, comes back whole.
"""

from __future__ import annotations

from acphold.errors import InvalidParamsError
from acphold.history.children import opencode_child, said
from acphold.history.entries import CHILD, ECHO, PARAMS, PROMPT, TERMINAL, UPDATE
from acphold.history.raw_update import ROLES, string, update_kind
from acphold.schema import items, members


def is_sound(kind: str, raw: bytes) -> bool:
    """Return True if an entry of this kind can have this content; an unknown kind can have any
    object."""
    try:
        if kind == PROMPT:
            return all(map(_is_block, items(raw)))
        parts = members(raw)
        if kind == CHILD:
            child = opencode_child(parts.get("params", b"")) or said(raw).child
            if not child:
                return False
            raw = said(raw).update
            parts = members(raw)
        if kind == PARAMS:
            raw = parts.get("update", b"")
            parts = members(raw)
    except InvalidParamsError:
        return False
    if kind not in (UPDATE, ECHO, TERMINAL, PARAMS, CHILD):
        return True
    told = update_kind(raw)
    return bool(told) and (told not in ROLES or _is_block(parts.get("content", b"")))


def _is_block(raw: bytes) -> bool:
    """Return True if this is a content block, known or not."""
    try:
        return string(members(raw).get("type")) is not None
    except InvalidParamsError:
        return False
