"""The meaning of a line of input: a prompt, one of our commands, or a shell command."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from rich.text import Text

from acphold.screen.layout import Passage


class TypedPrompt(NamedTuple):
    """A prompt for the agent."""

    text: str


class Local(NamedTuple):
    """One of our commands, and its arguments."""

    name: str
    words: str = ""


class TypedCommand(NamedTuple):
    """A command for the shell."""

    command: str


COMMANDS: Final = {
    "help": ("", "this page"),
    "new": ("", "start a new session here"),
    "resume": ("[ID]", "continue another session"),
    "model": ("[NAME]", "the model"),
    "mode": ("[NAME]", "show or change the mode (F2: next)"),
    "options": ("", "all options (F3)"),
    "export": ("[FILE]", "export this session, by default as Markdown"),
    "fork": ("[before] [files]", "copy it; without its last turn, with its files"),
    "now": ("TEXT", "say it into the running turn, if the agent listens"),
    "later": ("[02:00] TEXT", "a prompt for when its turn comes, or not before a time"),
    "queue": ("[go|hold]", "what waits; also: drop N, move N M, back N"),
    "quit": ("", "leave (so do exit and Ctrl-D)"),
}
"""Our commands, each with its arguments and its description."""

ALIASES: Final = {"exit": "quit", "q": "quit", "?": "help"}

KEYS: Final = {
    "!COMMAND": "run it in your shell, in the session's folder; the agent does not see it",
    "//NAME": "the agent's own command of that name",
    "@FILE": "attach a file; type any part of its path",
    "Enter": "send; after a backslash, or with Alt: a new line",
    "Ctrl-V": "attach the picture in the clipboard",
    "Ctrl-X Ctrl-E": "write the prompt in $EDITOR",
    "Up": "take back what waits; earlier prompts (Ctrl-R: search them)",
    "Ctrl-O, F4": "whole tool calls; the agent's stderr",
    "Ctrl-T": "unfold or fold thoughts",
    "Ctrl-C": "cancel the turn, or clear the line",
    "Ctrl-D": "leave",
}


def meant(text: str) -> TypedPrompt | Local | TypedCommand:
    """Return the meaning of an entered line."""
    line = text.strip()
    if line.lower() in ("exit", "quit", "?"):
        return Local(ALIASES.get(line.lower(), "quit"))
    if line.startswith("!") and line.strip("! "):
        return TypedCommand(line[1:].strip())
    if line.startswith("//"):
        return TypedPrompt(line[1:])
    if found := re.fullmatch(r"/(\S+)(?:\s+(.*))?", line, re.DOTALL):
        name = ALIASES.get(found[1], found[1])
        if name in COMMANDS:
            return Local(name, (found[2] or "").strip())
    return TypedPrompt(text)


def help_page() -> Passage:
    """Return the page of commands and keys."""
    rows = [(f"/{name} {behind}".rstrip(), what) for name, (behind, what) in COMMANDS.items()]
    rows += KEYS.items()
    width = max(len(name) for name, _ in rows)
    lines = [Text.assemble((f"{name:<{width}}  ", "bold"), what) for name, what in rows]
    return Passage("help", "acphold", lines)
