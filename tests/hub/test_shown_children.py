"""Sub-agents, for a client that shows only tool calls."""

from __future__ import annotations

import json

from acphold.live.hub.frames import ShownChildren


def test_words_are_sent_again_only_once_they_have_grown_by_half() -> None:
    text, pieces = "x" * 600, 60
    content = {"type": "text", "text": text}
    piece = {"sessionUpdate": "agent_message_chunk", "messageId": "m", "content": content}
    shown, raw = ShownChildren(), json.dumps(piece).encode()
    sent = b"".join(update for _ in range(pieces) for update in shown.show("child", raw))
    assert len(text) * pieces / 2 < len(sent) < 4 * len(text) * pieces
