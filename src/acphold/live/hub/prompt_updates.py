"""A prompt as the updates that show it: those we make, and those of agents that send it back."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import uuid4

import msgspec

from acp_wire.schema import encode
from acp_wire.schema.splice import items
from acphold.errors import InvalidParamsError
from acphold.record.history.raw_update import MESSAGES, METHOD, members
from acphold.record.history.replay import CLIENT_MARK


def user_message(method: str, prompt: bytes, client: bytes = b"") -> Sequence[bytes]:
    """Return the updates that show it as said by the user, in this client (`Client.info`)."""
    message_id = f"{MESSAGES}{uuid4().hex}"
    meta: dict[str, object] = {METHOD: method}
    if client:
        meta[CLIENT_MARK] = msgspec.Raw(client)
    return [
        encode(
            {
                "sessionUpdate": "user_message_chunk",
                "messageId": message_id,
                "content": msgspec.Raw(block),
                "_meta": meta,
            }
        )
        for block in items(prompt)
    ]


def repeats(update: bytes, prompt: bytes) -> bool:
    """Return True if an update is one block of this prompt, or all of its text, sent back."""
    try:
        content = _plain(members(update).get("content", b"null"))
        blocks = [_plain(block) for block in items(prompt)]
    except InvalidParamsError:
        return False
    texts = [block["text"] for block in blocks if isinstance(block.get("text"), str)]
    joined = "".join(map(str, texts))
    return content in blocks or (content.get("type") == "text" and content.get("text") == joined)


def _plain(block: bytes) -> dict[str, object]:
    """Return a content block without members that programs add or leave out freely."""
    try:
        fields = msgspec.json.decode(block, type=dict[str, object])
    except msgspec.MsgspecError:
        return {"raw": block}
    return {name: value for name, value in fields.items() if value is not None and name != "_meta"}
