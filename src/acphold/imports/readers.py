"""Which agents' conversations can be read, and what the reader of each has to have."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Final, NamedTuple

from acphold.imports.scribe import Scribe
from acphold.imports.sources import Home, Source

NAMES: Final = (
    "acpx",
    "claude",
    "codex",
    "gemini",
    "qwen",
    "opencode",
    "kilo",
    "cline",
    "roo",
    "copilot",
    "goose",
    "pi",
    "cursor",
    "vscode",
    "zed",
    "aider",
    "crush",
    "hermes",
    "auggie",
    "acphold",
)
"""One module each, imported when it is asked for."""

WAVES: Final = (
    frozenset({"acpx"}),
    frozenset(NAMES) - {"acpx", "acphold"},
    frozenset({"acphold"}),
)
"""In which order they are taken in: of those in one wave, no two know the same conversation.
acpx has heard what Claude only wrote down."""


class Reader(NamedTuple):
    """How the conversations of one agent are found and read.

    `read` tells the conversation to the scribe. Each `yield` of it is a place where what was told
    so far can be taken away, so that no conversation has to fit into memory. `branches` finds what
    a person went back from, where transcripts keep that.
    """

    name: str
    key: str
    find: Callable[[Home], Iterator[Source]]
    read: Callable[[Source, Scribe], Iterator[None]]
    branches: Callable[[Source], Iterator[Source]] | None = None


def reader(name: str) -> Reader:
    """The reader of this name; raises ModuleNotFoundError for none of NAMES."""
    found = import_module(f"acphold.imports.{name}").READER
    assert isinstance(found, Reader)
    return found
