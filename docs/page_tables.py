"""Writes the tables that the page shares with the terminal: `make docs`. A test compares them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import acphold
from acp_wire.visible_text import TABLES
from acphold.conversation.history import children, prompt_queue, raw_update, timeline
from acphold.conversation.presentation import cuts, permissions, scenes

FILE: Final = Path(acphold.__file__).parent / "web" / "page" / "model" / "tables.js"


WORDS: Final[dict[str, Mapping[str, str]]] = {
    "STATUSES": scenes.STATUSES,
    "STEPS": scenes.STEPS,
    "KINDS": scenes.KINDS,
    "ENDINGS": scenes.SHORT_ENDINGS,
    "DECIDED": scenes.DECIDED,
    "COMPACTIONS": scenes.COMPACTIONS,
    "AT_WORK": scenes.AT_WORK,
    "DONE": {reason: words for reason, (words, _) in scenes.DONE.items() if reason},
    "SPEAKERS": scenes.SPEAKERS,
    "HELD": prompt_queue.HELD,
    "ROLES": raw_update.ROLES,
    "OUTCOMES": timeline.OUTCOMES,
    "ENDED": children.ENDED,
    "WRITTEN": permissions.WRITTEN,
}

VALUES: Final = {
    "ACCEPTS_EDITS": sorted(permissions.ACCEPTS_EDITS),
    "CUT": cuts.CUT,
    "SHOWN": cuts.SHOWN,
    "PATH": cuts.PATH,
    "SPEAKS_OF_CHILDREN": sorted(children.SPEAKS_OF_CHILDREN),
    "LASTING": sorted(children.LASTING),
    "PAGE": scenes.PAGE,
    "TOLD": scenes.TOLD,
}


def tables() -> str:
    """The module with the tables as they are now."""
    found = ["// Made by `make docs` of what the terminal shows with: change it there."]
    for name, pattern in TABLES.items():
        flags = "uy" if name == "IN_PLACE" else "gu"
        found.append(f"export const {name} = /{_escaped(pattern)}/{flags};")
    for name, rows in WORDS.items():
        found += [
            "/** @type {Record<string, string>} */",
            f"export const {name} = Object.assign(Object.create(null), {json.dumps(rows)});",
        ]
    found += [f"export const {name} = {json.dumps(value)};" for name, value in VALUES.items()]
    return "\n".join([*found, ""])


def _escaped(pattern: str) -> str:
    """A pattern in printable ASCII, as JavaScript writes one."""
    return "".join(it if " " <= it <= "~" else f"\\u{{{ord(it):x}}}" for it in pattern)


if __name__ == "__main__":
    FILE.write_text(tables(), encoding="utf-8")
