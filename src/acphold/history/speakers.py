"""The speaker of an update: acphold, the person, or the agent.

Marks tell the speaker: a `_meta` key that begins with `acphold/`, and a message id that begins with
`acphold-`. Only acphold sets them; updates of a wrapped agent lose them on arrival. So an update
without a mark is the agent's word, even if it claims to quote the person: a replay of a session
held outside acphold, or a message that it puts into their mouth.
"""

# See docs/decisions.md, 8.

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from acphold.history.raw_update import encode_object, encode_text, members, string, update_kind

KEYS: Final = "acphold/"
"""The beginning of each `_meta` key of ours."""

MESSAGES: Final = "acphold-"
"""The beginning of the id of each message that the person sent through acphold."""

NOTICE: Final = "acphold/notice"
"""The `_meta` key of a notice that is not a wrapped agent's own. Its value has `from` if an agent
of the library speaks, and not acphold."""

METHOD: Final = "acphold/method"
"""The `_meta` key of a person's words sent by an extension, into a turn: its value is the
method."""


def may_have_marks(raw: bytes) -> bool:
    """Return False if there is certainly no mark, in one update or many: true for nearly all
    agents' words."""
    # A mark contains this name, or an escape for one of its letters.
    return b"acphold" in raw or (b"\\" in raw and (b"\\u00" in raw or b"\\/" in raw))


def without_marks(update: bytes) -> bytes:
    """Return an update of an agent, without marks that would make it our word or the person's.

    The keys are removed. A message id is changed and not removed, for it tells messages apart.
    """
    if not may_have_marks(update):
        return update
    parts = members(update)
    kept = dict(parts)
    if "_meta" in parts and (meta := meta_without_marks(parts["_meta"])) != parts["_meta"]:
        kept["_meta"] = meta
    message_id = string(parts.get("messageId")) or ""
    if message_id.startswith(MESSAGES) and update_kind(update) == "user_message_chunk":
        kept["messageId"] = encode_text(f"agent:{message_id}")
    return update if kept == parts else encode_object(kept)


def params_without_marks(params: bytes) -> bytes:
    """Return the params of an update of an agent, without the same marks."""
    parts = members(params)
    kept = {**parts, "update": without_marks(parts.get("update", b""))}
    if "_meta" in parts:
        kept["_meta"] = meta_without_marks(parts["_meta"])
    return params if kept == parts else encode_object(kept)


def request_without_marks(params: bytes) -> bytes:
    """Return the params of an agent's request, and a tool call in it, without the same marks."""
    if not may_have_marks(params):
        return params
    parts = members(params)
    kept = dict(parts)
    if "_meta" in parts:
        kept["_meta"] = meta_without_marks(parts["_meta"])
    if "toolCall" in parts:
        kept["toolCall"] = without_marks(parts["toolCall"])
    return params if kept == parts else encode_object(kept)


def meta_without_marks(meta: bytes) -> bytes:
    """Return a `_meta` of an agent without the keys that are ours; itself if it has none."""
    found = members(meta)
    kept = {name: value for name, value in found.items() if not name.startswith(KEYS)}
    return meta if len(kept) == len(found) else encode_object(kept)


def is_the_persons(message_id: str | None) -> bool:
    """Return True if a user message with this id was sent by the person through acphold."""
    return message_id is not None and message_id.startswith(MESSAGES)


def is_our_notice(parts: Mapping[str, bytes]) -> bool:
    """Return True if acphold itself gives the notice with these members."""
    said = members(parts.get("_meta", b"")).get(NOTICE)
    return said is not None and "from" not in members(said)
