"""What a server lists, all pages of it, kept until the server tells that it changed."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Generic, TypeVar

from acphold.errors import McpAnswerError
from acphold.mcp.results import Prompt, Resource, Tool, offers

if TYPE_CHECKING:
    from acphold.mcp.linking import Link
    from acphold.mcp.reconnecting import Reconnecting

OfferT = TypeVar("OfferT", Tool, Resource, Prompt)

MAX_PAGES = 200

log = logging.getLogger(__name__)


class Listing(Generic[OfferT]):
    """The `what` of a server: `tools`, `resources` or `prompts`."""

    def __init__(self, what: str, kind: type[OfferT]) -> None:
        self.what = what
        self._kind: type[OfferT] = kind
        self._lock = asyncio.Lock()
        self._changes = 0
        self._link: Link | None = None
        self._known: tuple[OfferT, ...] = ()

    def forget(self) -> None:
        """What is known holds no more: the next `read` asks again."""
        self._changes += 1
        self._link = None

    async def read(self, way: Reconnecting, seconds: float) -> tuple[OfferT, ...]:
        """All of it; connects if need be, and asks within `seconds`. Raises McpError."""
        async with self._lock:  # those who ask meanwhile get the same answer
            link = await way.link()
            if self.what not in link.capabilities:
                return ()
            if link is not self._link:
                changes = self._changes
                self._known = await self._ask(way, seconds)
                self._link = link if changes == self._changes else None
            return self._known

    async def _ask(self, way: Reconnecting, seconds: float) -> tuple[OfferT, ...]:
        method = f"{self.what}/list"
        try:
            async with asyncio.timeout(seconds):
                found = await self._pages(way, method)
        except TimeoutError:
            reason = f"it did not list its {self.what} within {seconds:g} s"
            raise McpAnswerError(way.name, reason) from None
        known, bad = offers(self._kind, found, way.name)
        if bad:
            log.warning("MCP server %r: %d of its %s are not MCP", way.name, bad, self.what)
        return known

    async def _pages(self, way: Reconnecting, method: str) -> list[object]:
        found: list[object] = []
        seen: set[object] = set()
        cursor: object = None
        for _ in range(MAX_PAGES):
            result = await way.request(method, {} if cursor is None else {"cursor": cursor})
            page = result.get(self.what)
            if not isinstance(page, list):
                raise McpAnswerError(way.name, f"its answer to `{method}` is not MCP")
            found += page
            cursor = result.get("nextCursor")
            if not isinstance(cursor, str) or cursor in seen:
                return found  # some servers give the same cursor again and again
            seen.add(cursor)
        log.warning("MCP server %r lists more than %d pages of %s", way.name, MAX_PAGES, self.what)
        return found
