"""Sessions to export, and the expected exports."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterable
from html.parser import HTMLParser

from acphold.conversation.exports.forms import FORMS, Head
from acphold.conversation.history.entries import Entry
from tests.raw_entries import Raw

AT = 1_767_323_045_000
"""2026-01-02, three in the morning (UTC)."""

HEAD = Head("s-1", "demo-agent", "/home/ada/project", AT, AT + 60_000, "Greeting", (), None, 2)

HOSTILE = "</script></details></main><script>alert(1)</script><img src=x onerror=alert(2)> \x1b[2J"
"""Text that would run a script, close an element, or clear a terminal."""


def author(user: str) -> Raw:
    """The entry before a named user's prompt."""
    return "author", json.dumps({"name": "zed", "version": "1", "user": user}).encode()


def exported(form: str, *raws: Raw, head: Head = HEAD) -> str:
    """The text of an export in that form."""

    async def entries() -> AsyncIterator[Entry]:
        for seq, (kind, raw) in enumerate(raws, 1):
            yield Entry(seq, kind, AT + seq, raw)

    async def text() -> str:
        return "".join([piece async for piece in FORMS[form].writer()(head, entries())])

    return asyncio.run(text())


class Parsed(HTMLParser):
    """A page as a parser of HTML sees it."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.open: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: Iterable[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in ("meta", "input", "img", "br", "hr"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: Iterable[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        # `li`, `dd` and `dt` need no end.
        while self.open and self.open[-1] != tag and self.open[-1] in ("li", "dd", "dt"):
            self.open.pop()
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    @property
    def text(self) -> str:
        """All text of the page."""
        return "".join(self.texts)

    def all(self, name: str) -> list[dict[str, str | None]]:
        """The attributes of all elements of this name."""
        return [attributes for tag, attributes in self.tags if tag == name]
