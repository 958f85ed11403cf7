"""The head of an exported session: id, agent, folder, title and times."""

from __future__ import annotations

import re
from collections.abc import AsyncIterable, AsyncIterator, Callable
from hashlib import blake2b

from msgspec import Struct

from acphold.history import Entry
from acphold.journal import SessionRow
from acphold.journal.journal import Origin
from acphold.presentation.visible_text import counted, local, on_one_line

FILE_NAME_CHARACTERS = 100
"""Longest name of a file, without its suffix; file systems allow 255 bytes."""

INDEX = "index"
"""The name of a folder's index file, without its suffix."""

_SAFE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


class Head(Struct, frozen=True, rename="camel", omit_defaults=True):
    """The facts about a session beside its entries; times are ms since the epoch.

    `agent_session_id` is the agent's id for it, if that differs; the rest is as in `SessionRow`.
    """

    session_id: str
    agent: str
    cwd: str
    created_at: int
    updated_at: int
    title: str | None = None
    additional_directories: tuple[str, ...] = ()
    agent_session_id: str | None = None
    message_count: int = 0
    renamed: bool = False
    archived: bool = False
    origins: tuple[Origin, ...] = ()

    @classmethod
    def of(cls, row: SessionRow) -> Head:
        """Return the head of a session of the journal."""
        return cls(
            row.session_id,
            row.agent,
            row.cwd,
            row.created_at,
            row.updated_at,
            row.title,
            row.additional_directories,
            None if row.downstream_id == row.session_id else row.downstream_id,
            row.message_count,
            row.renamed,
            row.archived,
            row.origins,
        )

    @property
    def name(self) -> str:
        """The title for people."""
        return on_one_line(self.title or "") or "(no title)"

    @property
    def file_name(self) -> str:
        """A name for a file, without a suffix: the id, or if that is not usable, a digest of it."""
        fits = len(self.session_id) <= FILE_NAME_CHARACTERS and self.session_id != INDEX
        if fits and _SAFE_NAME.fullmatch(self.session_id):
            return self.session_id
        return "session-" + blake2b(self.session_id.encode(), digest_size=12).hexdigest()

    def facts(self) -> list[tuple[str, str]]:
        """Return names and values for people, each on one line."""
        facts = [
            ("session", self.session_id),
            ("agent", self.agent),
            ("folder", self.cwd),
            *(("folder, too", folder) for folder in self.additional_directories),
            ("held", f"{local(self.created_at)} to {local(self.updated_at)}"),
            ("length", counted(self.message_count, "message")),
        ]
        return [(name, on_one_line(value)) for name, value in facts]


Writer = Callable[[Head, AsyncIterable[Entry]], AsyncIterator[str]]
"""Makes the text of a file from a session: its head, and its entries, oldest first."""
