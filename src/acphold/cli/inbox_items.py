"""Pending questions and past decisions, from the journal of this machine or from a server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final

import msgspec
from msgspec import Raw, Struct

from acphold.cli.journals import opened
from acphold.cli.servers import FarServer
from acphold.cli.settings import agent_name
from acphold.cli.terminal_text import folder, on_one_line, short_age
from acphold.history.times import now_ms
from acphold.hub.annotations import milliseconds

LOOK_SECONDS: Final = 1.0
"""Pause between two looks for new questions."""

NOTHING: Final = "Nothing waits for you."

SHORT_ID: Final = 6
"""Characters of a session's id that are shown to people."""


class Item(Struct, frozen=True, rename="camel"):
    """A question, or a decision, as `presentation.json_facts.question_json` writes it."""

    id: str
    session_id: str
    at: str
    agent: str
    cwd: str
    title: str | None
    asks: str
    method: str
    params: Raw = Raw(b"{}")
    tool_call: dict[str, Raw] | None = None
    answered_at: str = ""
    how: str = ""
    said: str = ""
    client: str | None = None

    @property
    def where(self) -> str:
        """The question's session, for people."""
        title = on_one_line(self.title or "(no title)")
        agent = on_one_line(agent_name(self.agent))
        return f"{title} · {agent} · {folder(self.cwd)} · {on_one_line(self.session_id)[:SHORT_ID]}"

    @property
    def age(self) -> str:
        """The time since the question was asked, for people."""
        age = short_age(milliseconds(self.at), now_ms())
        return "asked just now" if age == "now" else f"asked {age} ago"

    @property
    def call(self) -> dict[str, bytes]:
        """The fields of the question's tool call."""
        return {name: bytes(value) for name, value in (self.tool_call or {}).items()}


class Source(Struct, frozen=True):
    """The source of the questions: a server far away, or the journal of this machine."""

    server: FarServer | None
    journal: str | None

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[Reading]:
        """Open the source for reading, in this block."""
        if self.server is not None:
            from acphold.cli.remote import pages_of  # late: it brings HTTP

            async with await pages_of(self.server) as pages:
                yield Reading(pages.inbox, pages.decisions)
            return
        from acphold.presentation.json_facts import question_json
        from acphold.server.inbox import decisions, open_questions
        from acphold.server.neighbours import Live, live_at_nodes, live_sessions

        async with opened(self.journal) as kept:

            async def live() -> Live:
                return {**await live_at_nodes(kept), **await live_sessions()}

            async def waiting() -> list[str]:
                return [question_json(found) for found in await open_questions(kept, await live())]

            async def decided(limit: int) -> list[str]:
                return [
                    question_json(found)
                    for found in (await decisions(kept, await live(), limit))[0]
                ]

            yield Reading(waiting, decided)


class Reading(Struct, frozen=True):
    """`waiting` returns open questions, `decided` the last decisions, each as a line of JSON."""

    waiting: Callable[[], Awaitable[list[str]]]
    decided: Callable[[int], Awaitable[list[str]]]

    async def items(self) -> list[Item]:
        """Return the open questions."""
        return [item_of(line) for line in await self.waiting()]


def item_of(line: str) -> Item:
    """Decode a line."""
    return msgspec.json.decode(line, type=Item)
