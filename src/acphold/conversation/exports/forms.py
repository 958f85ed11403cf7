"""The parts that every form of an export has: the head of a session, and the file it goes to."""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable
from hashlib import blake2b
from importlib import import_module
from types import ModuleType

from msgspec import Struct

from acp_wire.errors import ExportError
from acp_wire.workspace.replacement import replace_file as replace_file
from acphold.conversation.history.entries import Entry, Origin
from acphold.conversation.history.titles import UNTITLED
from acphold.conversation.presentation.visible_text import local, on_one_line, quantity

TITLE_CHARACTERS = 50
"""Longest part of a title in the name of a file; file systems allow 255 bytes."""

ID_CHARACTERS = 8
"""Characters of a session's id in the name of a file: about as many as lists show."""

INDEX = "index"
"""The name of a folder's index file, without its suffix."""


class Head(Struct, frozen=True, rename="camel", omit_defaults=True):
    """The facts about a session beside its entries; times are ms since the epoch.

    `agent_session_id` is the agent's id for it, if that differs, and `agent_name` a person's name
    for the agent; the rest is as a journal has it.
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
    agent_name: str = ""

    @property
    def name(self) -> str:
        """The title for people."""
        return on_one_line(self.title or "") or UNTITLED

    @property
    def file_name(self) -> str:
        """A name for a file, without a suffix: the title, the beginning of the id, and a digest
        of the id, since sessions of one minute may begin alike."""
        id_ = _words(self.session_id)[:ID_CHARACTERS].strip("-")
        digest = blake2b(self.session_id.encode(), digest_size=4).hexdigest()
        title = _words(self.title or "")
        if len(title) > TITLE_CHARACTERS:
            title = title[:TITLE_CHARACTERS].rpartition("-")[0] or title[:TITLE_CHARACTERS]
        return "-".join(filter(None, (title or "session", id_, digest)))

    def facts(self) -> list[tuple[str, str]]:
        """Return names and values for people, each on one line."""
        facts = [
            ("session", self.session_id),
            ("agent", self.agent_name or self.agent),
            ("folder", self.cwd),
            *(("other folder", folder) for folder in self.additional_directories),
            ("time", f"{local(self.created_at)} to {local(self.updated_at)}"),
            ("length", quantity(self.message_count, "message")),
        ]
        return [(name, on_one_line(value)) for name, value in facts]


Writer = Callable[[Head, AsyncIterable[Entry]], AsyncIterator[str]]
"""Makes the text of a file from a session: its head, and its entries, oldest first."""


class Form(Struct, frozen=True):
    """A form of an export: the suffix of its files, and the module that writes it.

    The module is imported on demand. Only a form with pages needs one file per session.
    """

    name: str
    suffix: str
    module: str
    has_pages: bool = False

    def writer(self) -> Writer:
        """Return the writer for sessions."""
        found: Writer = getattr(self._module(), self.module)
        return found

    def index(self, heads: Iterable[Head]) -> str | None:
        """Return the text of the index file for all of these; None if the form has none."""
        made = getattr(self._module(), "index", None)
        return None if made is None else str(made(heads, self.suffix))

    def _module(self) -> ModuleType:
        return import_module(f"acphold.conversation.exports.{self.module}")


FORMS = {
    "markdown": Form("markdown", ".md", "markdown"),
    "jsonl": Form("jsonl", ".jsonl", "json_lines"),
    "html": Form("html", ".html", "page", has_pages=True),
}


def _words(text: str) -> str:
    """Return the letters and digits of a text, in ASCII if it has such, with dashes between."""
    parts = unicodedata.normalize("NFKD", text).lower()
    plain = "".join(it for it in parts if it != "'" and not unicodedata.combining(it))
    found = re.findall(r"[a-z0-9]+", plain)
    return "-".join(found or re.findall(r"[^\W_]+", unicodedata.normalize("NFKC", text)))


def form_of(path: str) -> Form | None:
    """Return the form for a file's name; None if its suffix is unknown."""
    suffix = os.path.splitext(path)[1].lower()
    also = {".markdown": ".md", ".htm": ".html", ".ndjson": ".jsonl"}
    suffix = also.get(suffix, suffix)
    return next((form for form in FORMS.values() if form.suffix == suffix), None)


def folder(path: str) -> str:
    """Make a folder for exports unless it exists; only its owner can enter a new one."""
    try:
        os.makedirs(path, mode=0o700, exist_ok=True)
    except OSError as error:
        problem = f"cannot make {path}: {error.strerror or error}; choose another path"
        raise ExportError(problem) from error
    return path
