"""The attributes of a session: modes, options, commands, plan, title and usage as they are now.

They are the small part of the state, beside the conversation, and are kept in memory while a
session is live.
"""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from acp_wire.schema.splice import json_value
from acp_wire.schema.updates import UPDATE_KINDS, UpdateForm
from acphold.conversation.history.raw_update import (
    ATTRIBUTE_KINDS,
    encode_object,
    items,
    members,
    meta_without_marks,
    string,
)


class Attributes(Struct, frozen=True):
    """The values set by the updates so far; raw JSON if acphold need not look inside.

    `available_modes`, `config_options`, `commands` and `plan` are arrays: `availableModes`,
    `configOptions`, `availableCommands` and the `entries` of the plan. `usage` is the whole last
    `usage_update`. `updated_at` is ISO 8601, as the agent wrote it. `meta` is an object, what the
    agent has said in the `_meta` of `session_info_update`, up to META_BYTES, without PASSING.
    """

    available_modes: bytes | None = None
    current_mode_id: str | None = None
    config_options: bytes | None = None
    commands: bytes | None = None
    plan: bytes | None = None
    usage: bytes | None = None
    title: str | None = None
    updated_at: str | None = None
    meta: bytes | None = None

    @property
    def mode_words(self) -> str:
        """The id of the agent's mode, and its name if it has one; "" without modes."""
        id_ = self.current_mode_id or ""
        for mode in map(members, items(self.available_modes or b"")):
            if string(mode.get("id")) == id_:
                return f"{id_} {string(mode.get('name')) or ''}"
        return id_


def used_tokens(usage: bytes | None) -> int:
    """Return the tokens in the agent's context, as a `usage_update` says; 0 if unknown."""
    return json_value(members(usage or b"").get("used"), int) or 0


META_BYTES: Final = 4096

PASSING: Final = ("jetbrains", "codex", "goose")
"""Members of a `_meta` that say what goes on in a session at the moment, which no list keeps."""

NO_ATTRIBUTES: Final = Attributes()

_ARRAYS: Final = {
    kind: (field, UPDATE_KINDS[kind].field)
    for kind, field in (
        ("plan", "plan"),
        ("available_commands_update", "commands"),
        ("config_option_update", "config_options"),
    )
}
"""The field that a kind of update replaces, and the member of the update that holds it."""

SNAPSHOTS: Final = frozenset(
    name for name in ATTRIBUTE_KINDS if UPDATE_KINDS[name].form is UpdateForm.SNAPSHOT
)
"""Kinds of updates that state everything: the next one makes the last one void."""


def is_snapshot(kind: str, raw: bytes) -> bool:
    """Return True if an update of this kind makes all earlier ones of its kind void."""
    return kind in SNAPSHOTS and fold_update(NO_ATTRIBUTES, kind, raw) != NO_ATTRIBUTES


def changes_meta(meta: bytes) -> bool:
    """Return True if this `_meta` of a `session_info_update` may change what is kept of it."""
    return meta == b"null" or bool(_lasting(meta))


def _lasting(meta: bytes) -> dict[str, bytes]:
    """Return the members of a `_meta` that are kept of a session: neither ours, nor PASSING."""
    try:
        msgspec.json.decode(meta)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):  # a number like 1e999
        return {}
    parts = members(meta_without_marks(meta))
    return {name: value for name, value in parts.items() if name not in PASSING}


def fold_update(attributes: Attributes, kind: str, raw: bytes) -> Attributes:
    """Return the attributes after one update of this kind; one of the conversation changes none.

    A part of an update that breaks the schema leaves its field alone.
    """
    if kind in _ARRAYS:
        field, member = _ARRAYS[kind]
        value = members(raw).get(member, b"")
        return replace(attributes, **{field: value}) if value.startswith(b"[") else attributes
    if kind == "current_mode_update":
        return _fold_mode(attributes, members(raw))
    if kind == "usage_update":
        return replace(attributes, usage=raw)
    if kind == "session_info_update":
        # null clears; a missing member, and by the schema one of a wrong type, changes nothing.
        parts = members(raw)
        title, updated_at = parts.get("title"), parts.get("updatedAt")
        if title == b"null" or string(title) is not None:
            attributes = replace(attributes, title=string(title))
        if updated_at == b"null" or string(updated_at) is not None:
            attributes = replace(attributes, updated_at=string(updated_at))
        if (meta := parts.get("_meta", b"")) == b"null":
            attributes = replace(attributes, meta=None)
        elif said := _lasting(meta):
            known = encode_object({**members(attributes.meta or b""), **said})
            if len(known) <= META_BYTES:
                attributes = replace(attributes, meta=known)
    return attributes


def fold_settings(attributes: Attributes, raw: bytes) -> Attributes:
    """Return the attributes after a `settings` entry: the modes and options a session begins with.

    With `anew` the former ones are dropped: another agent has opened the session.
    """
    parts = members(raw)
    if parts.get("anew") == b"true":
        attributes = replace(
            attributes, available_modes=None, current_mode_id=None, config_options=None
        )
    modes = members(parts.get("modes", b"null"))
    available = modes.get("availableModes", b"")
    if available.startswith(b"["):
        attributes = replace(_fold_mode(attributes, modes), available_modes=available)
    options = parts.get("configOptions", b"")
    return replace(attributes, config_options=options) if options.startswith(b"[") else attributes


def _fold_mode(attributes: Attributes, parts: dict[str, bytes]) -> Attributes:
    mode = string(parts.get("currentModeId"))
    return attributes if mode is None else replace(attributes, current_mode_id=mode)
