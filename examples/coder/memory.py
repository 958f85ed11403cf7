"""What the model was told and said, kept in the session's store: it outlives the process.

The journal has the conversation as the person saw it. A model needs more to go on: its own tool
calls with their arguments and results, its signed thoughts. Each message is kept as soon as it is
whole, in pydantic-ai's own JSON, so that a conversation goes on also after `kill -9`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from pydantic_ai.messages import (
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    TextPart,
    repair_messages,
)

import acphold

KEY = "messages"
"""Where in the store they are: a list that grows."""

UNKEPT = {"instructions", "provider_url", "run_id", "conversation_id"}
"""Fields of a message that the next turn sets anew; and a URL can hold a password."""


class Memory:
    """The messages of one session; `earlier` are those before the turn that runs."""

    def __init__(self, session: acphold.Session, earlier: Sequence[ModelMessage]) -> None:
        # A call that was cut off has no result, which vendors refuse: it gets one that says so.
        self.earlier = repair_messages(earlier)
        self._store = session.store
        self._before = len(earlier)
        self._kept = 0

    @classmethod
    async def recall(cls, turn: acphold.Turn) -> Memory:
        """What the model knew before the prompt of `turn`; raises AcpError."""
        try:
            known = ModelMessagesTypeAdapter.validate_python(turn.session.store.get(KEY, []))
        except ValueError as error:
            raise acphold.AcpError(f"the memory is unreadable, /clear it: {error}") from None
        if known and isinstance(known[-1], ModelRequest):  # it was killed while it answered
            seen = (await turn.history()).timeline[-2:]  # and behind it the end of that turn
            if seen and isinstance(seen[0], acphold.Message) and seen[0].role == "agent":
                known.append(ModelResponse(parts=[TextPart(seen[0].text)], state="interrupted"))
                turn.session.store[KEY] = _dumped(known)
        return cls(turn.session, known)

    def keep(self, conversation: Sequence[ModelMessage]) -> None:
        """Keep what is new in `conversation`, which begins with the earlier ones."""
        new = conversation[len(self.earlier) + self._kept :]
        for message in _dumped(new):
            self._store.append(KEY, message)
        self._kept += len(new)

    def forget(self, *, last_only: bool = False) -> None:
        """Take back what this turn has kept, or only what was sent last and what came of it."""
        kept = self._store.get(KEY, [])
        while len(kept) > self._before and not (kept.pop()["kind"] == "request" and last_only):
            pass
        self._store[KEY] = kept


def _dumped(messages: Sequence[ModelMessage]) -> list[dict[str, object]]:
    dump = ModelMessagesTypeAdapter.dump_python
    dumped = dump([*messages], mode="json", exclude_none=True, exclude={"__all__": UNKEPT})
    # Some services cut between the two halves of a character: joined again, or replaced.
    text = json.dumps(dumped, ensure_ascii=False).encode("utf-16", "surrogatepass")
    return list(json.loads(text.decode("utf-16", "replace")))
