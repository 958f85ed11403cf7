"""Modes and config options: set by a client, told to the others, kept in step.

Sources: spec v1, session modes; spec v1, session config options ("Boolean Config Options",
"Relationship to Session Modes"). If an agent has both, a mode and the option of category "mode" are
two views of one choice. These are the pure functions; `hub.conversation` asks the agent.
"""

from __future__ import annotations

import msgspec
from msgspec import Struct

from acp_wire.schema import encode, splice
from acp_wire.schema.splice import json_value
from acphold.conversation.history.attributes import Attributes
from acphold.conversation.history.raw_update import array, items, members
from acphold.live.hub.annotations import CHOICE


class _Option(Struct):
    id: str = ""
    type: str = ""
    category: str | None = None


def option_list(raw: bytes) -> list[bytes]:
    """Return the options in a `configOptions` array, byte for byte; empty for null or nonsense."""
    return [item for item in items(raw or b"[]") if item.startswith(b"{")]


def without_booleans(holder: bytes) -> bytes:
    """Return the object without boolean options in `configOptions`: for clients that did not opt
    in."""
    options = members(holder).get("configOptions", b"null")
    kept = [item for item in option_list(options) if _option(item).type != "boolean"]
    return holder if options == b"null" else splice(holder, {"configOptions": array(kept)})


def with_value(options: list[bytes], option_id: str, value: bytes) -> list[bytes]:
    """Return the options with this one's `currentValue` replaced."""
    return [
        splice(item, {"currentValue": value}) if _option(item).id == option_id else item
        for item in options
    ]


def current_values(options: list[bytes]) -> dict[str, bytes]:
    """Return the JSON of each option's current value, by its id."""
    return {_option(item).id: members(item).get("currentValue", b"null") for item in options}


def is_boolean(options: list[bytes], option_id: str) -> bool:
    """Return True if this option takes true and false."""
    return any(
        _option(item).id == option_id and _option(item).type == "boolean" for item in options
    )


def takes(options: list[bytes], option_id: str, value: bytes) -> bool:
    """Return True if `value` is among the values of this option, also in nested groups."""
    found = next((item for item in options if _option(item).id == option_id), b"{}")
    return value in _values(members(found).get("options", b"[]"))


def _values(choices: bytes) -> list[bytes]:
    found: list[bytes] = []
    for choice in option_list(choices):
        parts = members(choice)
        if "value" in parts:
            found.append(parts["value"])
        found += _values(parts.get("options", b"[]"))
    return found


def mode_option(options: list[bytes]) -> str | None:
    """Return the id of the option that stands for the session mode; None if there is none."""
    return next((_option(item).id for item in options if _option(item).category == "mode"), None)


def _option(raw: bytes) -> _Option:
    return json_value(raw, _Option) or _Option()


OURS = {CHOICE: True}
"""The `_meta` of an update that reports a choice, or a change that follows from it."""


def mode_update(mode_id: str) -> bytes:
    """Return the update that reports the chosen mode."""
    update = {"sessionUpdate": "current_mode_update", "currentModeId": mode_id, "_meta": OURS}
    return encode(update)


def options_update(options: list[bytes]) -> bytes:
    """Return the update that reports the present config options."""
    return b'{"sessionUpdate":"config_option_update","configOptions":%b,"_meta":%b}' % (
        array(options),
        encode(OURS),
    )


def option_behind_mode(attributes: Attributes, mode_id: str) -> bytes | None:
    """Return the update that puts the option of category "mode" in step with this mode; None if it
    is."""
    options = option_list(attributes.config_options or b"[]")
    option_id = mode_option(options)
    value = encode(mode_id)
    if option_id is None or current_values(options)[option_id] == value:
        return None
    if not takes(options, option_id, value):
        return None
    return options_update(with_value(options, option_id, value))


def mode_behind_option(attributes: Attributes, options: list[bytes]) -> bytes | None:
    """Return the update that puts the mode in step with the option of category "mode"; None if it
    is."""
    option_id = mode_option(options)
    if option_id is None or attributes.available_modes is None:
        return None
    value = current_values(options)[option_id]
    modes = [members(mode).get("id") for mode in option_list(attributes.available_modes)]
    if value not in modes or value == encode(attributes.current_mode_id):
        return None
    if not value.startswith(b'"'):
        return None  # the id of a mode is a string (v1 schema, `SessionModeId`)
    return mode_update(msgspec.json.decode(value, type=str))


def in_step(before: Attributes, now: Attributes) -> bytes | None:
    """Return the update that follows from one of the agent: a mode and its option are one
    choice."""
    if now.config_options != before.config_options:
        return mode_behind_option(now, option_list(now.config_options or b"[]"))
    if now.current_mode_id != before.current_mode_id and now.current_mode_id:
        return option_behind_mode(now, now.current_mode_id)
    return None


def settings_in(answer: bytes) -> bytes:
    """Return the modes and options in the answer that opened a session, as a "settings" entry."""
    parts = members(answer) if answer.startswith(b"{") else {}
    kept = [
        b"%b:%b" % (encode(name), parts[name])
        for name in ("modes", "configOptions")
        if parts.get(name, b"null") != b"null"
    ]
    return b"{%b}" % b",".join(kept)


def load_result(answer: bytes, attributes: Attributes) -> bytes:
    """Return the result of session/load and session/resume; `{}` at least.

    It is the agent's own answer, with the present modes and options.
    """
    now: dict[str, bytes] = {}
    if attributes.available_modes is not None and attributes.current_mode_id is not None:
        modes = members(answer).get("modes", b"null")
        now["modes"] = splice(
            modes if modes.startswith(b"{") else b"{}",
            {
                "currentModeId": encode(attributes.current_mode_id),
                "availableModes": attributes.available_modes,
            },
        )
    if attributes.config_options is not None:
        now["configOptions"] = attributes.config_options
    return splice(answer, now)


def with_all_options(answer: bytes, attributes: Attributes, option_id: str, value: bytes) -> bytes:
    """Return the answer to `session/set_config_option` with the complete list, whatever the agent
    sent."""
    if not answer.startswith(b"{"):
        answer = b"{}"
    if option_list(members(answer).get("configOptions", b"null")):
        return answer
    options = with_value(option_list(attributes.config_options or b"[]"), option_id, value)
    return splice(answer, {"configOptions": array(options)})
