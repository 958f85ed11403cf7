"""What a person types: completion, the prompts of earlier runs, and files named with `@`."""

from __future__ import annotations

import mimetypes
import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.history import FileHistory

from acphold.presentation.visible_text import on_one_line
from acphold.schema import ResourceLink
from acphold.schema.updates import AvailableCommand
from acphold.screen.local_commands import COMMANDS

MENTION = re.compile(r'(?<!\S)@(?:"([^"\n]+)"|(\S+))')
"""A file in a prompt: `@src/a.py`, or `@"with a space.md"`."""

MOST_FILES = 200
"""Files offered at once: of a folder with more, those that begin with what was typed."""


ABOUT = 200
"""Letters that are shown of what a command is for, where there is room."""


def is_picture(link: ResourceLink) -> bool:
    """Whether a link leads to a picture: an agent that takes such gets it whole."""
    return (link.mime_type or "").startswith("image/")


def path_of(link: ResourceLink) -> Path:
    """The file that a link leads to."""
    return Path(url2pathname(urlsplit(link.uri).path))


def links(text: str, cwd: str) -> list[ResourceLink]:
    """To each file that `@` names in a prompt, which are sent beside its text."""
    found: dict[str, ResourceLink] = {}
    for match in MENTION.finditer(text):
        path = Path(os.path.join(cwd, os.path.expanduser(match[1] or match[2])))
        if (link := _link(path)) is not None:
            found.setdefault(link.uri, link)
    return [*found.values()]


def _link(path: Path) -> ResourceLink | None:
    """The link to a file; None where there is none that we may look at."""
    try:
        status = os.stat(path)
    except (OSError, ValueError):  # also a name that is too long, or has a NUL in it
        return None
    mime_type, _ = mimetypes.guess_type(path.name)
    size = status.st_size if stat.S_ISREG(status.st_mode) else None
    return ResourceLink(
        name=path.name or str(path), uri=path.as_uri(), mime_type=mime_type, size=size
    )


class PromptCompleter(Completer):
    """`/` at the beginning: the agent's commands. `@` before a word: files of the session."""

    def __init__(self, commands: Callable[[], Sequence[AvailableCommand]], cwd: str) -> None:
        self._commands = commands
        self._cwd = cwd

    def get_completions(self, document: Document, event: CompleteEvent) -> Iterable[Completion]:
        before = document.text_before_cursor
        if re.fullmatch(r"/\S*", before):
            yield from self._of_commands(before)
        elif match := re.search(r'(?:^|\s)@("?)([^\s"]*)$', before):
            yield from self._of_files(match[2], quoted=bool(match[1]))

    def _of_commands(self, begun: str) -> Iterator[Completion]:
        """Ours, and then the agent's: with a second slash, where we have one of that name."""
        known = [(f"/{name}", what) for name, (_, what) in COMMANDS.items()]
        for command in self._commands():
            name = on_one_line(command.name).removeprefix("/")
            slashes = "//" if name in COMMANDS else "/"
            known.append((f"{slashes}{name}", on_one_line(command.description or "")))
        for name, what in known:
            if name.startswith(begun):
                yield Completion(f"{name} ", -len(begun), display=name, display_meta=what[:ABOUT])

    def _of_files(self, begun: str, *, quoted: bool) -> Iterator[Completion]:
        known = file_names(begun, self._cwd)
        if begun:
            known += [path for path in fitting(begun, self._cwd) if path not in known]
        for name in known:
            if not name.isprintable() or '"' in name:
                continue  # what could not be typed
            behind = "" if name.endswith("/") else " "
            if " " in name and not quoted:
                yield Completion(f'"{name}"{behind}', -len(begun), display=name)
            else:
                mark = '"' if quoted and behind else ""
                yield Completion(f"{name}{mark}{behind}", -len(begun), display=name)


def file_names(begun: str, cwd: str) -> list[str]:
    """Files and folders (with a `/` behind) whose path begins so; hidden ones only if asked for."""
    folder, _, start = begun.rpartition("/")
    above = f"{folder}/" if "/" in begun else ""
    try:
        with os.scandir(os.path.join(cwd, os.path.expanduser(above or "."))) as entries:
            fitting = [
                entry
                for entry in entries
                if entry.name.startswith(start) and (start or not entry.name.startswith("."))
            ]
            names = [f"{above}{entry.name}{'/' * _is_folder(entry)}" for entry in fitting]
    except (OSError, ValueError):
        return []  # no such folder: nothing to offer
    return sorted(names)[:MOST_FILES]


MOST_WALKED = 20_000
"""Files that are looked at when a part of a path is searched: of more, the first."""

LEFT_OUT = ("node_modules", "__pycache__", "target", "venv")
"""Folders that are full of what nobody names; and hidden ones."""


def fitting(words: str, cwd: str) -> list[str]:
    """The files anywhere below whose path has these letters in this order, the closest first."""
    pattern = re.compile(".*?".join(map(re.escape, words)), re.IGNORECASE)
    found: list[tuple[int, int, str]] = []
    walked = 0
    for folder, folders, files in os.walk(cwd):
        folders[:] = sorted(it for it in folders if it[0] != "." and it not in LEFT_OUT)
        for name in files:
            path = os.path.relpath(os.path.join(folder, name), cwd)
            if match := pattern.search(path):
                found.append((match.end() - match.start(), len(path), path))
        walked += len(files)
        if walked > MOST_WALKED:
            break
    return [path for _, _, path in sorted(found)[:MOST_FILES]]


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link that leads to itself, or where we may not look
        return False


class PrivateHistory(FileHistory):
    """What was typed, in a file that only this user can read; several programs may add to it."""

    def __init__(self, path: str) -> None:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        os.close(os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600))
        super().__init__(path)


def continued(text: str) -> str | None:
    """The text with a line break in place of a backslash at its end; None without one."""
    return f"{text[:-1]}\n" if text.endswith("\\") else None
