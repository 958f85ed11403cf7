"""The picture in the person's clipboard, read by the desktop's own programs."""

from __future__ import annotations

from contextlib import suppress

from acp_wire.processes.program import on_path
from acphold.machine.own_program import run_beside

COMMANDS = (
    ("wl-paste", "--no-newline", "--type", "image/png"),
    ("xclip", "-selection", "clipboard", "-target", "image/png", "-out"),
    ("pngpaste", "-"),
)
"""Commands for Wayland, X11 and macOS."""

SECONDS = 3.0
"""Seconds for such a program: the owner of the clipboard may hang."""

PNG = b"\x89PNG"


async def picture() -> bytes:
    """Return the picture as PNG; b"" if there is none, or no program to read it."""
    for name, *arguments in COMMANDS:
        if (path := on_path(name)) is None:
            continue
        with suppress(TimeoutError):
            _, found, _ = await run_beside((path, *arguments), SECONDS)
            if found.startswith(PNG):
                return found
    return b""
