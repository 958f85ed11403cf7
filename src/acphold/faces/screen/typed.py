"""Typed input: the meaning of a line, completion, earlier prompts, and files named with `@`."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from itertools import groupby
from pathlib import Path
from shutil import get_terminal_size
from typing import Final, NamedTuple
from urllib.parse import urlsplit
from urllib.request import url2pathname

from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.history import FileHistory
from rich.text import Text

from acp_wire.schema import AvailableCommand, PromptCapabilities, ResourceLink
from acp_wire.state_folder import state_folder
from acphold.client.advertised import content_blocks
from acphold.conversation.presentation.visible_text import on_one_line
from acphold.errors import MissingFileError
from acphold.faces.screen import bounds
from acphold.faces.screen.layout import GUTTER, Passage


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
    "fork": ("[before] [files]", "a copy: before the last turn, or with files"),
    "now": ("TEXT", "send it into the running turn, if supported"),
    "later": ("[02:00] TEXT", "queue a prompt, to start no earlier than a time"),
    "queue": ("[resume|pause]", "the queue; also: drop N, next N, back N"),
    "quit": ("", "leave (so do exit and Ctrl-D)"),
}
"""Our commands, each with its arguments and its description."""

ALIASES: Final = {"exit": "quit", "q": "quit", "?": "help"}

KEYS: Final = {
    "!COMMAND": "run it in your shell; the agent does not see it",
    "//NAME": "the agent's command, if acphold has one, too",
    "@FILE": "attach a file; type any part of its path",
    "Enter": "send; after a backslash or with Alt: a new line",
    "Ctrl-V": "attach the picture in the clipboard",
    "Ctrl-X Ctrl-E": "write the prompt in $EDITOR",
    "Up": "the last queued prompt or earlier ones (Ctrl-R)",
    "Ctrl-O, F4": "whole tool calls; the agent's stderr",
    "Ctrl-T": "unfold or fold thoughts",
    "Ctrl-C": "cancel the turn, or clear the line",
    "Ctrl-D": "leave",
}


def interpret(text: str) -> TypedPrompt | Local | TypedCommand:
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
    """Return the page of commands and keys, in two columns if the terminal is wide enough."""
    rows = [(f"/{name} {arguments}".rstrip(), what) for name, (arguments, what) in COMMANDS.items()]
    rows += KEYS.items()
    width = max(len(name) for name, _ in rows)
    lines = [Text.assemble((f"{name:<{width}}  ", "bold"), what) for name, what in rows]
    if GUTTER + max(line.cell_len for line in lines) > get_terminal_size().columns:
        lines = [line for name, what in rows for line in (Text(name, "bold"), Text(f"  {what}"))]
    return Passage("help", "acphold", lines)


MENTION = re.compile(r'(?<!\S)@(?:"([^"\n]+)"|(\S+))')
"""A file in a prompt: `@src/a.py`, or `@"with a space.md"`."""

ABOUT = 200
"""Letters shown of a command's description, if there is room."""


def is_picture(link: ResourceLink) -> bool:
    """Return True if a link leads to a picture: agents that accept pictures get it whole."""
    return (link.mime_type or "").startswith("image/")


def path_of(link: ResourceLink) -> Path:
    """Return the file that a link leads to."""
    return Path(url2pathname(urlsplit(link.uri).path))


def links(text: str, cwd: str) -> list[ResourceLink]:
    """Return links to the files that `@` names in a prompt, sent beside its text."""
    found: dict[str, ResourceLink] = {}
    for match in MENTION.finditer(text):
        path = Path(os.path.join(cwd, os.path.expanduser(match[1] or match[2])))
        # Otherwise it is no file that we may read, or not even the name of one.
        with suppress(MissingFileError, ValueError):
            [link] = content_blocks([path], PromptCapabilities(), "")
            assert isinstance(link, ResourceLink), "the contents of files need a capability"
            found.setdefault(link.uri, link)
    return [*found.values()]


class PromptCompleter(Completer):
    """Completes `/` at the beginning with commands, ours and those that the agent offers now, and
    `@` before a word with files."""

    def __init__(self, offered: Callable[[], Sequence[AvailableCommand]], cwd: str) -> None:
        self._offered = offered
        self._cwd = cwd

    def get_completions(self, document: Document, event: CompleteEvent) -> Iterable[Completion]:
        before = document.text_before_cursor
        if re.fullmatch(r"/\S*", before):
            # Ours, then the agent's; with a second slash if we have one of that name.
            known = [(f"/{name}", what) for name, (_, what) in COMMANDS.items()]
            for command in self._offered():
                name = on_one_line(command.name).removeprefix("/")
                slashes = "//" if name in COMMANDS else "/"
                known.append((f"{slashes}{name}", on_one_line(command.description or "")))
            for name, what in known:
                if name.startswith(before):
                    yield Completion(
                        f"{name} ", -len(before), display=name, display_meta=what[:ABOUT]
                    )
        elif match := re.search(r'(?:^|\s)@("?)([^\s"]*)$', before):
            begun, quoted = match[2], bool(match[1])
            paths = file_names(begun, self._cwd)
            if begun:
                paths += [path for path in fitting(begun, self._cwd) if path not in paths]
            for path in paths:
                if not path.isprintable() or '"' in path:
                    continue  # cannot be typed
                after = "" if path.endswith("/") else " "
                if " " in path and not quoted:
                    yield Completion(f'"{path}"{after}', -len(begun), display=path)
                else:
                    mark = '"' if quoted and after else ""
                    yield Completion(f"{path}{mark}{after}", -len(begun), display=path)


def file_names(begun: str, cwd: str) -> list[str]:
    """Return files and folders (ending in `/`) with this prefix; hidden ones if asked for."""
    folder, _, start = begun.rpartition("/")
    above = f"{folder}/" if "/" in begun else ""
    place = os.path.join(cwd, os.path.expanduser(above or "."))
    try:
        names = [it for it in os.listdir(place) if it.startswith(start) and (start or it[0] != ".")]
    except (OSError, ValueError):
        return []  # no such folder: nothing to offer
    offered = sorted(names)[: bounds.OFFERED_FILES]
    return [f"{above}{it}{'/' * os.path.isdir(os.path.join(place, it))}" for it in offered]


LEFT_OUT = ("node_modules", "__pycache__", "target", "venv")
"""Folders full of files that no prompt mentions, besides hidden ones."""


def fitting(words: str, cwd: str) -> list[str]:
    """Return files anywhere below whose path has these letters in this order, closest first."""
    found: list[tuple[int, int, str]] = []
    walked = 0
    for folder, folders, files in os.walk(cwd):
        below = os.path.relpath(folder, cwd)
        folders[:] = sorted(it for it in folders if it[0] != "." and it not in LEFT_OUT)
        if below.count("/") > bounds.WALKED_DEPTH:
            folders.clear()
        for name in files:
            path = os.path.normpath(os.path.join(below, name))
            places = [-1]
            for letter in words.lower():
                places.append(path.lower().find(letter, places[-1] + 1))
                if places[-1] < 0:
                    break
            else:
                found.append((places[-1] - places[:2][-1], len(path), path))
        walked += len(files) + len(folders)
        if walked > bounds.WALKED_FILES:
            break
    return [path for _, _, path in sorted(found)[: bounds.OFFERED_FILES]]


class PrivateHistory(FileHistory):
    """Typed prompts, in a file that only this user can read; several programs may append to it."""

    def __init__(self, path: str) -> None:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        os.close(os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600))
        super().__init__(path)

    def forget(self, is_meant: Callable[[str], bool]) -> None:
        """Overwrite prompts in their place, as others may append meanwhile; raises OSError."""
        with open(self.filename, "r+b") as file:
            lines, at = file.readlines(), 0
            for is_typed, group in groupby(lines, lambda line: line.startswith(b"+")):
                its = [*group]
                typed = b"".join(line[1:] for line in its).decode(errors="replace")
                if is_typed and is_meant(typed.removesuffix("\n")):
                    file.seek(at)
                    file.write(b"".join(b"#" * (len(line) - 1) + line[-1:] for line in its))
                at += sum(map(len, its))


def prompt_history() -> PrivateHistory:
    """Return the prompts that were typed in `chat` on this machine."""
    return PrivateHistory(os.path.join(state_folder(), "prompts"))


def continue_line(text: str) -> str | None:
    """Return the text with a line break for a backslash at its end; None without one."""
    return f"{text[:-1]}\n" if text.endswith("\\") else None
