"""The standing of a session: what updates have set beside the conversation itself."""

from __future__ import annotations

from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from acphold.journal.raw_update import members, string


class Standing(Struct, frozen=True):
    """What the updates so far have set; raw JSON where nobody here needs to look inside.

    `available_modes`, `config_options`, `commands` and `plan` are arrays: `availableModes`,
    `configOptions`, `availableCommands` and the `entries` of the plan. `usage` is the whole last
    `usage_update`. `updated_at` is ISO 8601, as the agent wrote it.
    """

    available_modes: bytes | None = None
    current_mode_id: str | None = None
    config_options: bytes | None = None
    commands: bytes | None = None
    plan: bytes | None = None
    usage: bytes | None = None
    title: str | None = None
    updated_at: str | None = None


NO_STANDING: Final = Standing()

_ARRAYS: Final = {
    "plan": ("plan", "entries"),
    "available_commands_update": ("commands", "availableCommands"),
    "config_option_update": ("config_options", "configOptions"),
}
"""The field that a kind of update replaces, and the member of the update that holds it."""


def fold_update(standing: Standing, kind: str, raw: bytes) -> Standing:
    """The standing after one update of this kind; what belongs to the conversation changes none.

    Parts of an update that are not as the schema has them leave their field alone.
    """
    if kind in _ARRAYS:
        field, member = _ARRAYS[kind]
        value = members(raw).get(member, b"")
        return replace(standing, **{field: value}) if value.startswith(b"[") else standing
    if kind == "current_mode_update":
        return _fold_mode(standing, members(raw))
    if kind == "usage_update":
        return replace(standing, usage=raw)
    if kind == "session_info_update":
        return _fold_info(standing, members(raw))
    return standing


def fold_settings(standing: Standing, raw: bytes) -> Standing:
    """The standing after a `settings` entry: the modes and options a session begins with."""
    parts = members(raw)
    modes = members(parts.get("modes", b"null"))
    available = modes.get("availableModes", b"")
    if available.startswith(b"["):
        standing = replace(_fold_mode(standing, modes), available_modes=available)
    options = parts.get("configOptions", b"")
    return replace(standing, config_options=options) if options.startswith(b"[") else standing


def _fold_mode(standing: Standing, parts: dict[str, bytes]) -> Standing:
    mode = string(parts.get("currentModeId"))
    return standing if mode is None else replace(standing, current_mode_id=mode)


def _fold_info(standing: Standing, parts: dict[str, bytes]) -> Standing:
    # null clears; a missing member, and by the schema one of a wrong type, changes nothing.
    title, updated_at = parts.get("title"), parts.get("updatedAt")
    if title == b"null" or string(title) is not None:
        standing = replace(standing, title=string(title))
    if updated_at == b"null" or string(updated_at) is not None:
        standing = replace(standing, updated_at=string(updated_at))
    return standing
