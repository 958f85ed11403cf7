"""A session in the journal, seen by an observer with no part in it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from pathlib import Path

from acphold.conversation.history.entries import Entry
from acphold.conversation.history.fold import SessionState
from acphold.conversation.history.timeline import Message
from acphold.journal.journal import history, state_of
from acphold.journal.owners import At
from acphold.journal.stores import open_journal


class KeptSession:
    """See the module."""

    def __init__(self, journal: Path, session: str) -> None:
        self._path = journal
        self._session = session

    async def state(self) -> SessionState:
        """All of it, folded."""
        async with aclosing(open_journal(self._path)) as journal:
            return await state_of(journal, self._session)

    async def prompts(self) -> dict[int, bytes]:
        """All prompts, each as JSON of the list of its blocks, by their positions."""
        return {e.seq: e.raw for e in await self._entries() if e.kind == "prompt"}

    async def said(self) -> str:
        """All the agent's words."""
        return "".join(
            json.loads(block)["text"]
            for item in (await self.state()).timeline
            if isinstance(item, Message) and item.role == "agent"
            for block in item.content
        )

    async def owner(self) -> int | None:
        """The number of the process that has it, if one does that lives."""
        async with aclosing(open_journal(self._path)) as journal:
            match await journal.owner(self._session):
                case At(owner):
                    return owner.pid
        return None

    async def check(self, sent: Sequence[str], refused: Mapping[str, str]) -> None:
        """AssertionError for a turn without an end, or anything that is there twice.

        `sent` are the prompts that agents got; `refused` has prompts that must be here although
        they were answered with an error, each with that error.
        """
        entries = await self._entries()
        kinds = Counter(entry.kind for entry in entries)
        assert kinds["prompt"] == kinds["turn_end"], "a turn has no end, or two"
        asked = Counter(json.loads(e.raw)["id"] for e in entries if e.kind == "question")
        closed = Counter(json.loads(e.raw)["question"] for e in entries if e.kind == "answer")
        assert asked == closed, "a question is open, or was answered twice"
        prompts = Counter(json.loads(e.raw)[0]["text"] for e in entries if e.kind == "prompt")
        unbegun = {why for text, why in refused.items() if text not in prompts}
        assert not unbegun, f"a prompt was refused that had not begun: {unbegun}"
        for twice in (asked, prompts, Counter(sent)):
            assert max(twice.values(), default=1) == 1, f"twice: {twice.most_common(1)}"

    async def _entries(self) -> list[Entry]:
        async with aclosing(open_journal(self._path)) as journal:
            found = history(journal, self._session)
            return [entry async for segment in found for entry in segment.entries()]
