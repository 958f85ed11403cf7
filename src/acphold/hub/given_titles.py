"""Titles given by persons: they win over the agent's own, whoever gave them, and wherever.

A title is given in the row of the session, which takes no lease: with the command line, say, while
the session is live in another process. Where it is live, the row is looked at

- when the session is opened from the journal,
- when the agent names it,
- with the renewal of its lease, if its row has changed since the last one, and
- when somebody says that it has changed (`Hub.look_at`).

A new title is published as an update, so that clients and replays have it. An agent's title is
removed from its updates before they are published.
"""

from __future__ import annotations

from msgspec import json

from acphold.errors import UnknownSessionError
from acphold.history.raw_update import storable, update_kind
from acphold.hub.session import HubSession
from acphold.journal import Sessions
from acphold.journal.copies import TITLE
from acphold.schema.splice import splice

GIVEN_LENGTH = 200
"""Most characters of a given title: one line wherever it is shown."""


def given_title(text: str) -> str | None:
    """Return `text` as a title, on one line and cut to GIVEN_LENGTH; None without a letter or
    digit."""
    line = " ".join(storable(text).split())
    if not any(map(str.isalnum, line)):
        return None
    return line if len(line) <= GIVEN_LENGTH else line[: GIVEN_LENGTH - 1].rstrip() + "…"


class GivenTitle:
    """The title that a person gave a live session, if any; see the module."""

    def __init__(self, session: HubSession, journal: Sessions) -> None:
        self._session = session
        self._journal = journal

    async def look(self) -> None:
        """Publish the given title, if clients do not have it; raises JournalError."""
        given = await self._given()
        if given is not None and given != self._session.attributes.title:
            meta = {TITLE: "person"}
            update = {"sessionUpdate": "session_info_update", "title": given, "_meta": meta}
            await self._session.publish("update", [json.encode(update)])

    async def wins_over(self, raw: bytes) -> bytes:
        """Return an update of the agent, without its title if a person has given one."""
        if b'"title"' not in raw or update_kind(raw) != "session_info_update":
            return raw
        given = await self._given()
        return raw if given is None else splice(raw, {"title": None})

    async def _given(self) -> str | None:
        try:
            row = await self._journal.session(self._session.id)
        except UnknownSessionError:  # deleted meanwhile
            return None
        return row.title if row.renamed else None
