"""Where conversations lie on disk, and what is known of one before any journal knows of it."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from hashlib import blake2b
from pathlib import Path
from typing import Final

from msgspec import Struct, field

from acphold.journal.journal import Origin

MARK: Final = " (imported)"
"""What stands behind the title of a session whose id stood for another conversation here."""


class Kept(Struct, frozen=True):
    """How a session stood in the journal that our own lines come from: see `SessionRow`."""

    session_id: str
    additional_directories: tuple[str, ...] = ()
    renamed: bool = False
    archived: bool = False
    origins: tuple[Origin, ...] = ()


class Facts(Struct):
    """What is known of a conversation; complete once it is read to its end.

    `agent` is the key that `wrap` would give the agent, `session_id` the agent's own id.
    `kept` is for what comes from a journal. `missed` counts, by a few words, what the reader met
    and did not understand, and `removed` what was taken out of it, by kind.
    """

    agent: str
    session_id: str
    cwd: str = ""
    title: str | None = None
    created_at: int | None = None
    updated_at: int | None = None
    kept: Kept | None = None
    missed: Counter[str] = field(default_factory=Counter)
    removed: Counter[str] = field(default_factory=Counter)

    @property
    def folder(self) -> str:
        """The folder it was held in; the home folder where an old transcript does not name it."""
        return self.cwd if os.path.isabs(self.cwd) else os.path.expanduser("~")


class Manner(Struct, frozen=True):
    """How a conversation is told: only turns that are over; without the secrets in it."""

    whole_turns: bool = False
    redact: bool = False


class Source(Struct, frozen=True):
    """Where a conversation lies.

    `paths` are its files, the one that names it first; `item` names one of several in a file (a
    row of a database, a branch). `size` and `changed_at` (ns) tell whether it has changed, and
    `title` where that is kept elsewhere, for all at once (None where it was not looked up); `agent`
    is the key of its agent, where a reader knows several agents; `kept_as` is the session's id in
    the journal it comes from. `given` says that it lies in a folder that somebody named: whoever
    wrote it may have given it any id.
    With `apart`, that id stands for another conversation here: this one has a session of its own.
    """

    reader: str
    session_id: str
    paths: tuple[str, ...]
    size: int
    changed_at: int
    item: str = ""
    agent: str = ""
    title: str | None = ""
    kept_as: str = ""
    given: bool = False
    apart: bool = False

    @property
    def known_as(self) -> str:
        """The id by which a journal knows it as a conversation of its agent."""
        return self._own(self.session_id)

    @property
    def wanted(self) -> str:
        """The id that its session gets here where no other has it."""
        return self._own(self.kept_as or self.session_id)

    def _own(self, name: str) -> str:
        if not self.apart:
            return name
        return f"{name}~{blake2b(self.place.encode(errors='replace'), digest_size=4).hexdigest()}"

    def titled(self, title: str | None) -> str | None:
        """The title as it stands in lists."""
        is_marked = not (self.apart and title) or title.endswith(MARK)
        return title if is_marked else f"{title}{MARK}"

    @property
    def place(self) -> str:
        """Where it lies, in one string: equal for the same conversation, whatever its size."""
        return f"{self.paths[0]}#{self.item}" if self.item else self.paths[0]


class Home(Struct, frozen=True):
    """A home folder with the agents' folders in it.

    `environment` holds the variables that move those folders; empty for a home that is not the
    user's own.
    """

    path: Path
    environment: Mapping[str, str] = {}

    def folder(self, default: str, variable: str = "", below: str = "") -> Path:
        """`default` inside this home, or where `variable` says, with `below` behind it."""
        moved = self.environment.get(variable, "") if variable else ""
        return Path(moved, below) if moved else self.path / default

    @property
    def is_given(self) -> bool:
        """Whether somebody named this folder, and it is not just where the user is at home."""
        return not self.environment

    def data(self, name: str) -> Path:
        """The data folder of a program that follows the XDG rules, on macOS too."""
        return self.folder(f".local/share/{name}", "XDG_DATA_HOME", name)


def source_of(reader: str, session_id: str, paths: list[Path], item: str = "") -> Source | None:
    """The source these files are; None when the first has gone meanwhile."""
    size = changed = 0
    for path in paths:
        try:
            status = os.stat(path)
        except OSError:
            if path == paths[0]:
                return None
            continue
        size += status.st_size
        changed = max(changed, status.st_mtime_ns)
    return Source(reader, session_id, tuple(map(str, paths)), size, changed, item)


def files_below(folder: Path, pattern: str) -> list[Path]:
    """The regular files in `folder` that match; none that a link leads out of it.

    Sorted, so that two runs see them in one order. Folders that cannot be read are noted: see
    `noting_unreadable`.
    """
    try:
        root = Path(os.path.realpath(folder, strict=True))
        if not root.is_dir():
            return []
        _look_into(root, pattern)
        found = sorted(root.glob(pattern))
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        _note(error)
        return []
    # To resolve a path asks for each folder above it: once for all that lie in one is enough.
    inside = {parent: _leads_into(parent, root) for parent in {path.parent for path in found}}
    return [
        path
        for path in found
        if path.is_file()
        and (_leads_into(path, root) if path.is_symlink() else inside[path.parent])
    ]


_unreadable: ContextVar[list[OSError] | None] = ContextVar("unreadable", default=None)


@contextmanager
def noting_unreadable() -> Iterator[list[OSError]]:
    """Why folders could not be looked into that were asked for within the block."""
    found: list[OSError] = []
    before = _unreadable.set(found)
    try:
        yield found
    finally:
        _unreadable.reset(before)


def _note(error: OSError) -> None:
    if (found := _unreadable.get()) is not None:
        found.append(error)


def _look_into(root: Path, pattern: str) -> None:
    """Note the folders that a glob of this pattern would pass over, as they cannot be read."""
    if "**" in pattern:
        for _ in os.walk(root, onerror=_note):
            pass
        return
    with os.scandir(root) as entries:
        inner = list(entries) if "/" in pattern else []
    for entry in inner:
        try:
            if entry.is_dir():
                os.scandir(entry.path).close()
        except OSError as error:  # a link that leads to itself is one, too
            _note(error)


def _leads_into(path: Path, root: Path) -> bool:
    return path.resolve().is_relative_to(root)
