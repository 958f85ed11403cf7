"""The meaning of a line of input: a prompt, one of our commands, or a shell command."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from rich.text import Text

from acphold.screen.layout import Passage


class Prompt(NamedTuple):
    """A prompt for the agent."""

    text: str


class Local(NamedTuple):
    """One of our commands, and its arguments."""

    name: str
    words: str = ""


class Shell(NamedTuple):
    """A command for the shell."""

    command: str


COMMANDS: Final = {
    "help": ("", "this page"),
    "new": ("", "begin another session here"),
    "resume": ("[ID]", "go on with another session"),
    "model": ("[NAME]", "the model"),
    "mode": ("[NAME]", "the mode (F2: the next one)"),
    "options": ("", "all options (F3)"),
    "export": ("[FILE]", "write this session as Markdown, or as FILE is called"),
    "queue": ("", "the prompts that wait; take one back"),
    "quit": ("", "leave; so do exit and Ctrl-D"),
}
"""Our commands, each with its arguments and its description."""

ALIASES: Final = {"exit": "quit", "q": "quit", "?": "help"}

KEYS: Final = {
    "!COMMAND": "run it in your shell, in the session's folder; the agent does not see it",
    "//NAME": "the agent's command, where we have one of that name",
    "@FILE": "a file for the agent: any part of its path finds it",
    "Enter": "send; behind a backslash, or with Alt, a new line",
    "Ctrl-V": "the picture in the clipboard, for the agent",
    "Ctrl-X Ctrl-E": "write the prompt in $EDITOR",
    "Up, Ctrl-R": "earlier prompts; search them",
    "Ctrl-O, F4": "all of the tool calls; what the agent wrote to stderr",
    "Ctrl-T": "thoughts whole, or folded",
    "Ctrl-C": "cancel the turn; without one, empty the line",
    "Ctrl-D": "leave",
}


def meant(text: str) -> Prompt | Local | Shell:
    """Return the meaning of an entered line."""
    line = text.strip()
    if line.lower() in ("exit", "quit", "?"):
        return Local(ALIASES.get(line.lower(), "quit"))
    if line.startswith("!") and line.strip("! "):
        return Shell(line[1:].strip())
    if line.startswith("//"):
        return Prompt(line[1:])
    if found := re.fullmatch(r"/(\S+)(?:\s+(.*))?", line, re.DOTALL):
        name = ALIASES.get(found[1], found[1])
        if name in COMMANDS:
            return Local(name, (found[2] or "").strip())
    return Prompt(text)


def help_page() -> Passage:
    """Return the page of commands and keys."""
    rows = [(f"/{name} {behind}".rstrip(), what) for name, (behind, what) in COMMANDS.items()]
    rows += KEYS.items()
    width = max(len(name) for name, _ in rows)
    lines = [Text.assemble((f"{name:<{width}}  ", "bold"), what) for name, what in rows]
    return Passage("help", "acphold", lines)
