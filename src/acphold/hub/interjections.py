"""A person's words to an agent besides prompts: into a running turn, by an extension of the
agent's.

Known forms: `_session/steering` with a `prompt` (claude-agent-acp, codex-acp and others), the same
under a vendor's name (`_goose/unstable/session/steer`, `_lody/session/steer`), the drafted
`session/inject`, and a `message` or `text` in place of the blocks (`_session/steer` of kiro-cli).
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Sequence
from uuid import uuid4

import msgspec

from acphold.errors import InvalidParamsError
from acphold.history.raw_update import string, text_block
from acphold.history.replay import CLIENT_MARK
from acphold.history.speakers import MESSAGES, METHOD
from acphold.schema import encode
from acphold.schema.splice import items, members

SAYING = re.compile(r"(^|[/._])(steer|steering|inject)$")
"""Methods that say something, whatever the member is called."""

WORDS = ("message", "text", "content")
"""Members of such a method that may have the words, if not `prompt`."""

REFUSALS = frozenset({"promptRequired", "failed"})
"""Outcomes of `_session/steering` that mean that the agent has not accepted the words."""

REMEMBERED = 8
"""Newest interjections that are recognised when the agent sends them back."""


class Interjections:
    """The interjections of one session. An agent may send them back, before its answer or after."""

    def __init__(self) -> None:
        self._said: deque[bytes] = deque(maxlen=REMEMBERED)
        self._pending: list[bytes] = []

    def begin(self, prompt: bytes | None) -> None:
        """Note that words are sent to the agent, if there are any."""
        if prompt is not None:
            self._pending.append(prompt)

    def is_new(self, prompt: bytes, answer: bytes = b"") -> bool:
        """Return True if the agent's answer accepts words that are not journalled yet."""
        if prompt not in self._pending or not is_taken(answer):
            return False
        self._said.append(prompt)
        self.end(prompt)
        return True

    def end(self, prompt: bytes | None) -> None:
        """Note that it has been answered, or refused."""
        if prompt in self._pending:
            self._pending.remove(prompt)

    def is_echo(self, update: bytes) -> bool:
        """Return True if a user message from the agent repeats what is journalled.

        If the agent sends it back before its answer, that message is journalled instead.
        """
        for prompt in self._pending:
            if repeats(update, prompt):
                self._pending.remove(prompt)
                return False
        return any(repeats(update, prompt) for prompt in self._said)


def prompt_in(method: str, params: bytes) -> bytes | None:
    """Return the content blocks that a client's extension says to the agent; None if it says
    nothing."""
    try:
        parts = members(params)
        if _is_prompt(prompt := parts.get("prompt", b"")):
            return prompt
        if SAYING.search(method):
            for name in WORDS:
                if _is_prompt(said := parts.get(name, b"")):
                    return said
                if text := string(said):
                    return b"[%b]" % text_block(text)
    except InvalidParamsError:
        pass
    return None


def _is_prompt(raw: bytes) -> bool:
    """Return True if this is an array of content blocks, and not an empty one."""
    if not raw.startswith(b"["):
        return False
    blocks = items(raw)
    return bool(blocks) and all(
        block.startswith(b"{") and string(members(block).get("type")) for block in blocks
    )


def is_taken(answer: bytes) -> bool:
    """Return True if the agent's answer says that it has accepted the words."""
    if not answer.startswith(b"{"):
        return True
    parts = members(answer)
    return string(parts.get("outcome")) not in REFUSALS and parts.get("success") != b"false"


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
        said = _plain(members(update).get("content", b"null"))
        blocks = [_plain(block) for block in items(prompt)]
    except InvalidParamsError:
        return False
    texts = [block["text"] for block in blocks if isinstance(block.get("text"), str)]
    joined = "".join(map(str, texts))
    return said in blocks or (said.get("type") == "text" and said.get("text") == joined)


def _plain(block: bytes) -> dict[str, object]:
    """Return a content block without members that programs add or leave out freely."""
    try:
        found = msgspec.json.decode(block, type=dict[str, object])
    except msgspec.MsgspecError:
        return {"raw": block}
    return {name: value for name, value in found.items() if value is not None and name != "_meta"}
