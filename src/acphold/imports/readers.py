"""Which agents' conversations can be read."""

from __future__ import annotations

from importlib import import_module
from typing import Final

from acphold.imports.sources import Reader

NAMES: Final = (
    "acpx",
    "claude",
    "codex",
    "gemini",
    "qwen",
    "opencode",
    "cline",
    "copilot",
    "goose",
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


def reader(name: str) -> Reader:
    """The reader of this name; raises ModuleNotFoundError for none of NAMES."""
    found = import_module(f"acphold.imports.{name}").READER
    assert isinstance(found, Reader)
    return found
