"""Writes the tables that the page shares with the terminal: `make docs`. A test compares them."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import acphold
from acp_wire.visible_text import TABLES

FILE: Final = Path(acphold.__file__).parent / "web" / "page" / "model" / "tables.js"


def tables() -> str:
    """The module with the tables as they are now."""
    found = ["// Made by `make docs` of what the terminal shows with: change it there."]
    for name, pattern in TABLES.items():
        flags = "uy" if name == "IN_PLACE" else "gu"
        found.append(f"export const {name} = /{_escaped(pattern)}/{flags};")
    return "\n".join([*found, ""])


def _escaped(pattern: str) -> str:
    """A pattern in printable ASCII, as JavaScript writes one."""
    return "".join(it if " " <= it <= "~" else f"\\u{{{ord(it):x}}}" for it in pattern)


if __name__ == "__main__":
    FILE.write_text(tables(), encoding="utf-8")
