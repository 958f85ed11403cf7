"""The agents whose conversations can be read, and the interface of a reader."""

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
"""One module each, imported on demand."""

WAVES: Final = (
    frozenset({"acpx"}),
    frozenset(NAMES) - {"acpx", "acphold"},
    frozenset({"acphold"}),
)
"""The order of reading: no two readers of one wave know the same conversation.

acpx recorded live what Claude only wrote down.
"""


class Reader(NamedTuple):
    """Finds and reads the conversations of one agent.

    `read` tells the conversation to the scribe. At each `yield` the entries told so far can be
    taken away, so that no conversation has to fit into memory. `branches` finds parts that a person
    went back from, if transcripts keep them.
    """

    name: str
    key: str
    find: Callable[[Home], Iterator[Source]]
    read: Callable[[Source, Scribe], Iterator[None]]
    branches: Callable[[Source], Iterator[Source]] | None = None


def reader(name: str) -> Reader:
    """Return the reader of this name; raises ModuleNotFoundError if it is not in NAMES."""
    found = import_module(f"acphold.imports.{name}").READER
    assert isinstance(found, Reader)
    return found
