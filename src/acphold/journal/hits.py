"""What a search shows of an entry that it found: whose words, a piece of the text, the marks."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from acphold.journal.entries import PARAMS, PROMPT, Entry
from acphold.journal.excerpts import excerpt
from acphold.journal.journal import Part, SearchHit, Speaker
from acphold.journal.raw_update import ROLES, members, string, update_kind
from acphold.journal.words import document


class Held(NamedTuple):
    """What a hit tells of the session that it is in."""

    session_id: str
    agent: str
    cwd: str
    title: str | None
    archived: bool


def hit(
    held: Held, entry: Entry, patterns: Sequence[re.Pattern[str]], part: Part | None
) -> SearchHit:
    """The hit for an entry: the text of it that has the most of what was sought."""
    excerpts = [(who, excerpt(text, patterns)) for who, text in _texts(entry, part)]
    who, (_, shown, marks) = max(excerpts, key=lambda told: told[1].terms)
    return SearchHit(
        *(held.session_id, entry.seq, entry.at, entry.kind, who, shown, marks),
        agent=held.agent,
        cwd=held.cwd,
        title=held.title,
        archived=held.archived,
        tool=tool_title(entry) if who in ("tool", "diff") else None,
    )


def _texts(entry: Entry, part: Part | None) -> Iterator[tuple[Speaker, str]]:
    said = document(entry)
    if said.messages and part in (None, "messages"):
        yield speaker(entry), said.messages
    if said.tools and part in (None, "tools"):
        yield "tool", said.tools
    if said.diffs and part in (None, "diffs"):
        yield "diff", said.diffs


def speaker(entry: Entry) -> Speaker:
    """Whose words an entry with a message has."""
    return "user" if entry.kind == PROMPT else ROLES[_kind(entry)]


def _kind(entry: Entry) -> str:
    return update_kind(_update(entry))


def _update(entry: Entry) -> bytes:
    return members(entry.raw).get("update", b"") if entry.kind == PARAMS else entry.raw


def tool_title(entry: Entry) -> str | None:
    """What a tool call is called, where this entry tells it."""
    return string(members(_update(entry)).get("title"))
