"""Whose word something is: ours, the person's, or the agent's.

It is told by marks: a `_meta` key that begins with `acphold/`, and a message id that begins with
`acphold-`. Only acphold sets them, for the updates of a wrapped agent lose them where they come in.
So what has no mark is the agent's word, also where it says that the person said it: a replay of a
session that was held without us, or a message that it puts into their mouth.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from acphold.history.raw_update import encode_object, encode_text, members, string, update_kind

KEYS: Final = "acphold/"
"""How each `_meta` key of ours begins."""

MESSAGES: Final = "acphold-"
"""How the id of each message begins that the person sent through us."""

NOTICE: Final = "acphold/notice"
"""The `_meta` key of a notice that is not a wrapped agent's own. Its value has `from` where an
agent of the library speaks, and not acphold."""

METHOD: Final = "acphold/method"
"""The `_meta` key of what the person said by an extension, into a turn: its value is the method."""


def without_marks(update: bytes) -> bytes:
    """An update of an agent, without what would make it our word or the person's.

    The keys go. A message id is changed and not taken away, for it tells messages apart.
    """
    # What stands in every update with a mark: its name, or an escape that a letter of it is
    # written with.
    if b"acphold" not in update and b"\\u00" not in update and b"\\/" not in update:
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
    """The params of an update of an agent, without the same."""
    parts = members(params)
    kept = {**parts, "update": without_marks(parts.get("update", b""))}
    if "_meta" in parts:
        kept["_meta"] = meta_without_marks(parts["_meta"])
    return params if kept == parts else encode_object(kept)


def meta_without_marks(meta: bytes) -> bytes:
    """A `_meta` of an agent without the keys that are ours; itself where it has none."""
    found = members(meta)
    kept = {name: value for name, value in found.items() if not name.startswith(KEYS)}
    return meta if len(kept) == len(found) else encode_object(kept)


def is_the_persons(message_id: str | None) -> bool:
    """Whether a message of the user with this id is what the person sent, through us."""
    return message_id is not None and message_id.startswith(MESSAGES)


def is_our_notice(parts: Mapping[str, bytes]) -> bool:
    """Whether acphold gives the notice with these members."""
    said = members(parts.get("_meta", b"")).get(NOTICE)
    return said is not None and "from" not in members(said)
