"""Places of conversations on disk, and the facts known before they are read.

Some agents keep a conversation in the folder of its project, which may be anywhere. We search below
a home folder as deep as people put projects, level by level, up to a number of folders, on the same
disk only, and skip folders of programs: hidden folders, packages, symlinks. `--from` names another
folder to search.

A cloned repository contains files its authors checked in. So a file tracked by Git counts only in a
folder named with `--from`: its authors' words to an agent are not those of this user.
"""

from __future__ import annotations

import os
import re
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from errno import EILSEQ, ELOOP
from fnmatch import translate
from functools import lru_cache
from operator import attrgetter, methodcaller
from pathlib import Path, PureWindowsPath
from typing import Final, NamedTuple

from msgspec import Struct, field

from acp_wire.workspace.regular_files import contents, open_fd
from acphold.conversation.history.entries import Origin
from acphold.imports.values import Missed, digest_of

MARK: Final = " (imported)"
"""Added to the title of a session whose id belonged to another conversation here."""

DEEPEST: Final = 16
"""Folder levels searched below an agent's folder; Codex uses three."""

LONGEST_PATH: Final = 4096
"""Characters of a folder's path; source: PATH_MAX of Linux."""

MOST_OF_NAME: Final = 200
"""Characters of a path in the name of its folder; a digest may follow."""

MOST_FOLDERS: Final = 20
"""Folders of one conversation that are looked at, the newest."""

_BEFORE_SERVERS: Final = frozenset({"\\\\", "//", "\\/", "/\\"})
"""What a path of Windows on another machine begins with."""

_PASSING: Final = frozenset({"/tmp", "/private/tmp", "/var/tmp"})
"""Folders of files that pass; `tempfile`, which knows another one, would make each start slower."""

_HALF: Final = re.compile("[\ud800-\udfff]")
"""Stands for a byte of a name that is not UTF-8."""


class ExportedState(Struct, frozen=True):
    """A session's state in the journal that exported lines come from: see `SessionRow`."""

    session_id: str
    additional_directories: tuple[str, ...] = ()
    renamed: bool = False
    archived: bool = False
    origins: tuple[Origin, ...] = ()


class Facts(Struct):
    """The facts about a conversation; complete once it is read to its end.

    `agent` is the key that `wrap` would give the agent, `session_id` the agent's own id. `kept` is
    for sessions exported from a journal, `begun_as` the id of another conversation of the agent
    with which this one begins, `goes_on_as` those of its later parts, by which the program knows it
    once it has deleted the first. `by_program` is as in SessionRow; `removed` counts the secrets
    taken out; `hidden_title` is a digest of a title made of a turn that a person had taken out.
    `folders` are those that were entered, the last one last; `named_after` is a name that the
    program made of the path of the one in which it looks for the conversation.
    """

    agent: str = ""
    session_id: str = ""
    cwd: str = ""
    folders: list[str] = field(default_factory=list)
    named_after: str = ""
    title: str | None = None
    created_at: int | None = None
    updated_at: int | None = None
    kept: ExportedState | None = None
    begun_as: str = ""
    goes_on_as: list[str] = []
    by_program: bool = False
    hidden_title: str = ""
    missed: Missed = field(default_factory=Missed)
    removed: Counter[str] = field(default_factory=Counter)

    @property
    def named_folder(self) -> str:
        """The folder that a transcript names; of one of Windows, the path here if it exists.

        Empty where it names none that can be.
        """
        if len(self.cwd) > LONGEST_PATH or "\0" in self.cwd:
            return ""
        found = folder_here(self.cwd)
        return found if os.path.isabs(found) or is_of_windows(found) else ""

    @property
    def folder(self) -> str:
        """The conversation's folder; the home folder where a transcript names none."""
        return self.named_folder or os.path.expanduser("~")

    def enter(self, folder: str) -> None:
        """Note the folder of the next record."""
        self.cwd = self.cwd or folder
        if self.folders[-1:] != [folder] and 0 < len(folder) <= LONGEST_PATH:
            self.folders = [*(it for it in self.folders if it != folder), folder][-MOST_FOLDERS:]

    def settle(self) -> None:
        """Take the folder of a conversation that was moved: the newest project that exists, in
        which the program looks for it, if that is known. Agents go into folders below it, and come
        back."""
        newest = self.folders[::-1]
        there = [it for it in newest if os.path.isdir(folder_here(it))]
        its = [it for it in there or newest if self.named_after and _is_named(it, self.named_after)]
        if not its and (self.named_after or self.cwd not in there):
            there = [it for it in there if not _is_above_projects(folder_here(it))]
            its = [it for it in there if not any(it.startswith(f"{above}/") for above in there)]
        self.cwd = next(iter(its), self.cwd)

    @property
    def is_lost(self) -> bool:
        """True if its folder is not here: one of Windows, or gone."""
        return not (os.path.isabs(self.folder) and os.path.isdir(self.folder))


def _is_above_projects(folder: str) -> bool:
    """Return True for a folder into which no project is moved: the home folder, one above that, or
    one for what passes."""
    home = os.path.expanduser("~")
    return home == folder or home.startswith(folder.rstrip("/") + "/") or folder in _PASSING


def _is_named(folder: str, name: str) -> bool:
    """Return True if a name was made of a path, as Claude Code and Qwen Code do."""
    return re.sub(r"[^A-Za-z0-9]", "-", folder)[:MOST_OF_NAME] == name[:MOST_OF_NAME]


class Source(Struct, frozen=True, gc=False):
    """The place of a conversation.

    `paths` are its files, the one that names it first; `item` names one of several in a file (a row
    of a database, a branch). `size` and `changed_at` (ns) show changes, and so does `title` if that
    is kept elsewhere, for all at once (None if it was not looked up); `agent` is the key of its
    agent, if a reader knows several agents; `kept_as` is the session's id in the journal it comes
    from. `given`: somebody else may have written it (a folder named with `--from`, a folder of a
    project), so its id proves nothing.
    With `apart`, that id belongs to another conversation here: this one has its own session. The
    file is read from byte `begin` on, if its reader can do that.
    """

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
    begin: int = 0
    reader: str = ""

    @property
    def path(self) -> Path:
        """The file that names it."""
        return Path(self.paths[0])

    @property
    def downstream_id(self) -> str:
        """The id by which a journal knows it as a conversation of its agent."""
        return self._own(self.session_id)

    @property
    def default_id(self) -> str:
        """The id of its session here, if no other has it."""
        return self._own(self.kept_as or self.session_id)

    def _own(self, name: str) -> str:
        return f"{name}~{digest_of(self.place, 4)}" if self.apart else name

    @property
    def branch_of(self) -> str:
        """The id of the conversation that it is a branch of; "" if it is none."""
        whole, _, name = self.session_id.rpartition("~")
        return whole if name and name == self.item else ""

    def list_title(self, title: str | None) -> str | None:
        """Return the title for lists."""
        is_marked = not (self.apart and title) or title.endswith(MARK)
        return title if is_marked else f"{title}{MARK}"

    @property
    def place(self) -> str:
        """Its place as one string: equal for the same conversation, whatever its size."""
        return f"{self.paths[0]}#{self.item}" if self.item else self.paths[0]


class ImportSelection(Struct, frozen=True):
    """The conversations to take; with `redact`, without secrets; without the texts that have these
    marks (`journal.forgotten_texts`)."""

    cwd: str | None = None
    redact: bool = False
    marks: frozenset[str] = frozenset()


ALL: Final = ImportSelection()


class Home(Struct, frozen=True):
    """A home folder with the agents' folders in it.

    `environment` holds the variables that move those folders; empty for a home that is not the
    user's own.
    """

    path: Path
    environment: Mapping[str, str] = {}

    def variable(self, name: str) -> str:
        """Return the value of a variable, or "", and note that the search depends on it."""
        if found := self.environment.get(name, ""):
            _findings().variables[name] = found
        return found

    def folder(self, default: str | Path, variable: str = "", below: str = "") -> Path:
        """Return the folder in `variable` with `below` appended, or else `default`: a Path as it
        is, a name inside this home."""
        if moved := self.variable(variable):
            return Path(moved, below).absolute()  # the next search may begin elsewhere
        return default if isinstance(default, Path) else self.path / default

    @property
    def is_given(self) -> bool:
        """True if the folder was named with `--from`, rather than being the user's home."""
        return not self.environment

    def editors(self, name: str = "*") -> Iterator[Path]:
        """Yield the data folders of VS Code and its forks, of the programs with this name."""
        for above in (".config", "Library/Application Support"):
            yield from sorted(self.path.glob(f"{above}/{name}/User"))
        yield from sorted(self.path.glob(f".{name.lower()}-server*/data/User"))

    def data(self, name: str) -> Path:
        """Return the data folder of a program that follows the XDG rules, on macOS too."""
        return self.folder(f".local/share/{name}", "XDG_DATA_HOME", name)


def source_of(session_id: str, paths: list[Path], item: str = "") -> Iterator[Source]:
    """Yield the source for these files; nothing if the first is gone by now.

    A copy that a person made beside it, as "ID (copy)", is of the same conversation.
    """
    size = changed = 0
    names = tuple(map(str, paths))
    for name in names:
        try:
            status = os.stat(name)
        except OSError as error:
            if name == names[0]:
                if not isinstance(error, FileNotFoundError):
                    note(error)
                return
            continue
        size += status.st_size
        changed = max(changed, status.st_mtime_ns)
    yield Source(without_copy_mark(session_id), names, size, changed, item)


_COPY_MARK: Final = re.compile(
    r"(?<=.)(?: \(\d+\)| ?\(copy.*\)|[ ._-]+(?:copy|backup|bak)[ ._\d-]*( \(\d+\))?|~)$",
    re.IGNORECASE,
)
"""Matches the end that people, and their file managers, add to the name of a copy."""


def without_copy_mark(name: str) -> str:
    """Return the name that a file had before somebody made a copy of it."""
    return _COPY_MARK.sub("", name)


def file_sources(paths: Iterable[Path]) -> Iterator[Source]:
    """Yield a source for each file that holds a conversation and is named by its id."""
    for path in paths:
        yield from source_of(path.stem, [path])


def files_below(folder: Path, pattern: str, within: Path | None = None) -> Iterator[Path]:
    """Yield the regular files in `folder` that match, without links out of it, or of `within`.

    The pattern is one of names, or `**/` before one: as deep as DEEPEST. Sorted by path, so that
    two runs agree; one folder is read at a time, as there may be a hundred thousand files.
    Unreadable folders are noted: see `Search`, and so is one that is itself a link out of `within`.
    """
    if not is_text(str(folder)):
        note(OSError(EILSEQ, "its name is not valid UTF-8", str(folder)))
        return
    levels = len(folder.relative_to(within).parts) if within is not None else 0
    on_the_way = [folder, *folder.parents][:levels]
    if within is not None and any(is_link_out(it, within) for it in on_the_way):
        note(link_out(folder))
        return
    *above, name = pattern.split("/")
    is_recursive = above == ["**"]
    matches = [re.compile(translate(part)).match for part in (*above, name)]
    waiting = [_Found(folder, "", 0)]
    while waiting:
        parent, its_name, depth = waiting.pop()
        place = parent / its_name
        if depth is None:
            yield place
            continue
        if depth > DEEPEST:
            note(OSError(ELOOP, "it is nested too deeply to be searched", str(place)))
            continue
        has_files = is_recursive or depth == len(above)
        is_wanted = matches[-1 if has_files else depth]
        is_other = _KEEPING.search if has_files else matches[-1]
        seen = _findings()
        inside: list[_Found] = []
        for entry in _entries(place):
            try:
                is_link = _leads_out(entry, within or folder)
                is_folders = is_recursive or (not has_files and is_wanted(entry.name))
                if is_recursive and entry.is_dir(follow_symlinks=False):
                    inside.append(_Found(place, entry.name, depth + 1))
                elif is_link and is_folders and entry.is_dir():
                    note(link_out(entry.path))
                elif is_link or not is_wanted(entry.name):
                    if is_other(entry.name):
                        seen.others.add(entry.path)
                    elif has_files and entry.is_dir(follow_symlinks=False):
                        seen.below.setdefault(entry.path, is_wanted)
                elif has_files and entry.is_file():
                    is_packed = _PACKED_OR_OLD.search(entry.name)
                    (seen.others if is_packed else seen.known).add(entry.path)
                    inside.append(_Found(place, entry.name, None))
                elif not has_files and entry.is_dir():
                    inside.append(_Found(place, entry.name, depth + 1))
                elif is_other(entry.name):
                    seen.others.add(entry.path)
            except OSError as error:  # including a link to itself
                note(error)
        waiting += sorted(inside, key=attrgetter("name"), reverse=True)


class _Found(NamedTuple):
    """A file, or a folder with its depth. A name beside its parent takes less memory than a path of
    its own."""

    parent: Path
    name: str
    depth: int | None


def _leads_out(entry: os.DirEntry[str], folder: Path) -> bool:
    """Return True for a link to something outside of the folder."""
    return entry.is_symlink() and is_link_out(Path(entry.path), folder)


def is_link_out(path: Path, folder: Path) -> bool:
    """Return True if a path is a link to something outside of a folder."""
    return os.path.islink(path) and (
        not Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder))
    )


def link_out(path: str | Path) -> OSError:
    """Return the reason why such a link is not followed."""
    return OSError(ELOOP, "it is a link that leads out of its folder", str(path))


def beside(path: Path, name: str, missed: Missed) -> Path:
    """Return the path of a file beside, or below the folder of, another one. If a link leads out of
    that folder on the way, it is counted, and the path is one of no file."""
    found = path.parent / name
    if not Path(os.path.realpath(found)).is_relative_to(os.path.realpath(path.parent)):
        missed.add("links that lead out of a folder", 0)
        return Path(os.devnull)
    return found


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    """Return the entries of a folder whose names are valid text."""
    note_look(folder)
    try:
        with os.scandir(folder) as entries:
            named = list(entries)
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        note(error)
        return []
    for entry in named:
        if not is_text(entry.name):
            note(OSError(EILSEQ, "its name is not valid UTF-8", entry.path))
    return [entry for entry in named if is_text(entry.name)]


def is_text(name: str) -> bool:
    """Return True if a name is valid text: one with bytes that are not UTF-8 is skipped."""
    return name.isascii() or _HALF.search(name) is None


Stamp = tuple[int, int, int]
"""Size, time of change (ns) and inode of a file or folder; zeros if it is missing."""

MISSING: Final = (0, 0, 0)


def stamp(path: str) -> Stamp:
    """Return the present stamp of a file or folder."""
    try:
        found = os.stat(path)
    except OSError:
        return MISSING
    return found.st_size, found.st_mtime_ns, found.st_ino


class Search:
    """The findings of a search for conversations.

    `unreadable` are errors for files that cannot be read, `looks` the stamps of the folders and
    databases that it depends on, existing or not, as they were before, `variables` those that name
    some. `known` are the files there that a reader knows.
    """

    def __init__(self) -> None:
        self.unreadable: list[OSError] = []
        self.looks: dict[str, Stamp] = {}
        self.variables: dict[str, str] = {}
        self.known: set[str] = set()
        self.databases: set[Path] = set()
        self.others: set[str] = set()
        self.below: dict[str, Callable[[str], object]] = {}
        """Folders beside and above the files, and which names these have."""

    def unknown(self) -> list[str]:
        """Return the other files in these folders, and in those above and below, that look like a
        conversation."""
        beside: list[tuple[str, Callable[[str], object]]] = [
            (str(path.parent), methodcaller("endswith", path.suffix))
            for path in self.databases
            if _KEEPING.search(path.suffix)
        ]
        for folder, is_wanted in (*self.below.items(), *beside):
            with suppress(OSError), os.scandir(folder) as entries:
                self.others.update(it.path for it in entries if is_wanted(it.name))
        others = self.others - self.known - {*map(str, self.databases)}
        return sorted(path for path in others if _looks_like_one(path))


_search: ContextVar[Search | None] = ContextVar("search", default=None)


@contextmanager
def searching() -> Iterator[Search]:
    """Yield what is met within the block."""
    before = _search.set(found := Search())
    try:
        yield found
    finally:
        _search.reset(before)


def _findings() -> Search:
    """Return the findings so far; outside of a search, some that nobody sees."""
    return _search.get() or Search()


def note(error: OSError) -> None:
    """Note that one of several things cannot be read; the others are still found."""
    _findings().unreadable.append(error)


def note_look(path: Path) -> None:
    """Note that this folder or database is searched for conversations."""
    _findings().looks[str(path)] = stamp(str(path))


def note_above(folder: Path) -> None:
    """Note that conversations may also lie one folder above this one, in their program's own."""
    _findings().below.setdefault(str(folder.parent), _KEEPING.search)


def note_database(path: Path) -> None:
    """Note that this database is searched, and no other one beside it."""
    note_look(path)
    _findings().databases.add(path)


# -- files that no reader takes ------------------------------------------------------------------

_KEEPING: Final = re.compile(
    r"\.(?:db|json5?|jsonl|ndjson|sqlite|zst)(?!.*-(?:wal|shm|journal)$)\b"
)
"""Matches names of files in which programs keep conversations, also of copies and packed ones."""

_PACKED_OR_OLD: Final = re.compile(r"\.jsonl?(?:\.(?!zst$)|~)")
"""Matches names of copies that a pattern with an open end takes, but no reader."""

_BESIDE: Final = frozenset({"api_conversation_history.json", "context_history.json"})
"""Files that repeat a conversation beside it."""

_PACKED: Final = (b"\x28\xb5\x2f\xfd", b"\x1f\x8b")
"""The first bytes of files that zstd or gzip made."""

_BEGINNING: Final = 64 << 10
"""Bytes of a file in which it looks like a conversation, or does not."""

_SPOKEN: Final = re.compile(
    rb'"(?:role|author|sender|speaker|from|type)"\s*:\s*"(?:user|human|assistant|user[._]message)"'
    rb'|"say"\s*:\s*"(?:text|user_feedback|api_req_started)"'
    rb'|"(?:acp_session_id|chatHistory)"\s*:|"requests"\s*:\s*\['
    rb"|CREATE TABLE [\"'`\[]?\w*(?:session|message|thread|conversation|chat)\w*",
    re.IGNORECASE,
)


def _looks_like_one(path: str) -> bool:
    name = os.path.basename(path)
    if name in _BESIDE or not os.path.isfile(path):
        return False
    try:
        with open(open_fd(Path(path)), "rb") as file:
            begun = file.read(_BEGINNING)
    except OSError as error:
        note(error)
        return False
    return begun.startswith(_PACKED) or _SPOKEN.search(begun) is not None


# -- files in the user's projects ----------------------------------------------------------------

DEEPEST_PROJECT: Final = 4
"""Folder levels searched above a project: `code/github.com/someone/project`."""

FOLDERS: Final = 5_000
"""Most folders searched in total, the shallow ones first."""

INDEX_BYTES: Final = 64 << 20
"""Largest repository index that is read."""

_PACKAGES: Final = frozenset({"Library", "__pycache__", "node_modules", "target", "venv"})


def files_of_projects(home: Home, name: str) -> Iterator[Path]:
    """Yield regular files of this name, or path below a project, in the user's projects."""
    for folder in _folders(home.path):
        path = folder / name
        try:
            # A link may lead to a file of somebody else.
            is_there = path.is_file() and not path.is_symlink() and not path.parent.is_symlink()
        except OSError as error:
            note(error)
            continue
        if is_there and (home.is_given or not _is_checked_in(folder, name)):
            yield path


def _folders(home: Path) -> Iterator[Path]:
    """Yield the home folder and those below it, level by level."""
    waiting = deque([(home, 0)])
    with suppress(OSError, IndexError):  # there is no home folder, or no other one
        disk = os.stat(home).st_dev
        for _ in range(FOLDERS):
            folder, depth = waiting.popleft()
            yield folder
            if depth < DEEPEST_PROJECT:
                waiting += ((it, depth + 1) for it in _below(folder, disk))


def _below(folder: Path, disk: int) -> list[Path]:
    """Return subfolders that may hold projects, ordered by name."""
    found: list[str] = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                is_hidden = entry.name.startswith(".") or entry.name in _PACKAGES
                if is_hidden or not is_text(entry.name):
                    continue
                is_folder = entry.is_dir(follow_symlinks=False)
                if is_folder and entry.stat(follow_symlinks=False).st_dev == disk:
                    found.append(entry.path)
    except OSError:  # many folders belong to other users
        return []
    return [Path(path) for path in sorted(found)]


def _is_checked_in(folder: Path, name: str) -> bool:
    """Return True if Git tracks the file, in this folder's repository or an enclosing one."""
    for above in (folder, *folder.parents):
        index = above / ".git/index"
        try:
            named = os.path.relpath(folder / name, above)
            return os.fsencode(named) + b"\x00" in contents(index, INDEX_BYTES)
        except FileNotFoundError:
            continue
        except OSError:  # too large or unreadable: assume it is
            return True
    return False


# -- folders of Windows --------------------------------------------------------------------------

# WSL mounts the drives of Windows below the `root` of `/etc/wsl.conf`, `/mnt/` by default; Windows
# sees the files of a distribution as `\\wsl.localhost\NAME` or, before, `\\wsl$\NAME`. Source:
# https://learn.microsoft.com/windows/wsl, "Advanced settings" and "File systems".

CONFIGURATION: Final = "/etc/wsl.conf"
MOUNTED: Final = "/mnt/"

_DRIVE: Final = re.compile(r"([A-Za-z]):[\\/](.*)", re.DOTALL)
_SHARE: Final = re.compile(r"[\\/]{2}wsl(?:\$|\.localhost)[\\/]([^\\/]+)(.*)", re.I | re.DOTALL)
_ROOT: Final = re.compile(r"(?ims)^\[automount\](?:(?!^\[).)*?^\s*root\s*=\s*[\"']?(/[^\n\"'#]*)")


def is_of_windows(folder: str) -> bool:
    """Return True for an absolute path of Windows."""
    # Asked of each path in a call, most of which are of here: those are told by two characters.
    may_be = folder[1:2] == ":" or folder[:2] in _BEFORE_SERVERS
    return may_be and PureWindowsPath(folder).is_absolute()


def path_in(folder: str, path: str) -> str:
    """Return a path in a folder as an absolute one, also of Windows; empty for none."""
    if is_of_windows(folder) or is_of_windows(path):
        return str(PureWindowsPath(folder, path)) if path else ""
    return os.path.join(folder, path) if path else ""


@lru_cache(maxsize=1024)
def folder_here(folder: str) -> str:
    """Return the path here of a folder of Windows if it exists, else the folder as it is."""
    if found := _DRIVE.fullmatch(folder):
        path = os.path.join(_root(), found[1].lower(), found[2].replace("\\", "/"))
    elif found := _SHARE.fullmatch(folder):
        if found[1].lower() != os.environ.get("WSL_DISTRO_NAME", "").lower():
            return folder
        path = found[2].replace("\\", "/") or "/"
    else:
        return folder
    return os.path.normpath(path) if os.path.isdir(path) else folder


def _root() -> str:
    """Return the folder in which the drives are."""
    try:
        with open(CONFIGURATION, encoding="utf-8", errors="replace") as file:
            found = _ROOT.search(file.read(64 << 10))
    except OSError:
        found = None
    return found[1].strip() if found else MOUNTED
