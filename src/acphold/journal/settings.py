"""The settings of a session: everything about it that is not the conversation itself."""

from __future__ import annotations

from typing import Final, Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from acphold.journal.updates import UNREADABLE, members, string

FINAL_STATUSES: Final = frozenset({"completed", "failed"})
"""Statuses after which nothing more is expected of a tool call."""


Turn = Literal["idle", "running", "interrupted"]
"""How the last turn stands: over, not over, or cut off by a crash."""


class Settings(Struct, frozen=True):
    """What the updates so far have set; raw JSON where nobody here needs to look inside.

    `available_modes`, `config_options`, `commands` and `plan` are arrays: `availableModes`,
    `configOptions`, `availableCommands` and the `entries` of the plan. `usage` is the whole last
    `usage_update`. `updated_at` is ISO 8601, as the agent wrote it. `open_tools` are the ids, in
    alphabetical order, of tool calls that are neither completed nor failed.
    """

    available_modes: bytes | None = None
    current_mode_id: str | None = None
    config_options: bytes | None = None
    commands: bytes | None = None
    plan: bytes | None = None
    usage: bytes | None = None
    title: str | None = None
    updated_at: str | None = None
    open_tools: tuple[str, ...] = ()


NO_SETTINGS: Final = Settings()

_ARRAYS: Final = {
    "plan": ("plan", "entries"),
    "available_commands_update": ("commands", "availableCommands"),
    "config_option_update": ("config_options", "configOptions"),
}
"""The setting that a kind of update replaces, and the member of the update that holds it."""


def fold_setting(settings: Settings, kind: str, raw: bytes) -> Settings:
    """The settings after one update of this kind; chunks of messages and unknown kinds change none.

    Parts of an update that are not as the schema has them leave their setting alone.
    """
    if kind in ("tool_call", "tool_call_update"):
        return _tool_setting(settings, kind, raw)
    if kind in _ARRAYS:
        setting, member = _ARRAYS[kind]
        value = members(raw).get(member, b"")
        return replace(settings, **{setting: value}) if value.startswith(b"[") else settings
    if kind == "current_mode_update":
        return _mode_setting(settings, members(raw))
    if kind == "usage_update":
        return replace(settings, usage=raw)
    if kind == "session_info_update":
        return _info_setting(settings, members(raw))
    return settings


def opened_setting(settings: Settings, raw: bytes) -> Settings:
    """The settings after an `opened` entry: the modes and options a session begins with."""
    parts = members(raw)
    modes = members(parts.get("modes", b"null"))
    available = modes.get("availableModes", b"")
    if available.startswith(b"["):
        settings = replace(_mode_setting(settings, modes), available_modes=available)
    options = parts.get("configOptions", b"")
    return replace(settings, config_options=options) if options.startswith(b"[") else settings


def _mode_setting(settings: Settings, parts: dict[str, bytes]) -> Settings:
    mode = string(parts.get("currentModeId"))
    return settings if mode is None else replace(settings, current_mode_id=mode)


def _info_setting(settings: Settings, parts: dict[str, bytes]) -> Settings:
    # null clears; a missing member, and by the schema one of a wrong type, changes nothing.
    title, updated_at = parts.get("title"), parts.get("updatedAt")
    if title == b"null" or string(title) is not None:
        settings = replace(settings, title=string(title))
    if updated_at == b"null" or string(updated_at) is not None:
        settings = replace(settings, updated_at=string(updated_at))
    return settings


class _ToolHead(Struct, gc=False):
    toolCallId: str = ""
    status: str | None = None


_decode_tool_head = msgspec.json.Decoder(_ToolHead).decode


def tool_head(raw: bytes) -> tuple[str, str | None]:
    """Id and status of a `tool_call` or `tool_call_update`; the id is empty if there is none."""
    try:
        head = _decode_tool_head(raw)
    except UNREADABLE:
        parts = members(raw)
        return string(parts.get("toolCallId")) or "", string(parts.get("status"))
    return head.toolCallId, head.status


def opens_tool(kind: str, status: str | None) -> bool | None:
    """Whether an update of this kind and status leaves a call open; None if it does not say.

    A `tool_call` without a status is pending, by the schema's default.
    """
    if status is None:
        return True if kind == "tool_call" else None
    return status not in FINAL_STATUSES


def _tool_setting(settings: Settings, kind: str, raw: bytes) -> Settings:
    tool, status = tool_head(raw)
    opens = opens_tool(kind, status)
    if not tool or opens is None or opens == (tool in settings.open_tools):
        return settings
    tools = {*settings.open_tools, tool} if opens else {*settings.open_tools} - {tool}
    return replace(settings, open_tools=tuple(sorted(tools)))
