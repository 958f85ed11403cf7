"""Growth of the conversations on disk since they were last imported, found without reading them.

Importing an agent's conversations is the consent to read on: what was looked at is remembered in
a file, per journal, each file and folder with its size, time and inode. A look at
all of them is one `stat` each. What differs is listed at once, from the beginnings of transcripts,
by `enlist_growth`; reading it, by `take_growth`, is left to a process behind. Sessions that are
open are left alone for a while: their own process writes them down.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from acp_wire.state_folder import write_private
from acphold.conversation.history.entries import now_ms
from acphold.errors import AcpError
from acphold.imports.intake import Intake
from acphold.imports.readers import NAMES, WAVES, reader
from acphold.imports.sources import (
    MISSING,
    Home,
    ImportSelection,
    Search,
    Source,
    Stamp,
    is_text,
    searching,
    stamp,
)
from acphold.imports.values import digest_of
from acphold.journal.journal import Journal

log = logging.getLogger(__name__)

BUSY_MS: Final = 60_000
"""A source whose session somebody has open is left alone for this long."""

LISTED_AT_ONCE: Final = 20
"""Most new conversations that a command lists itself, the newest; reading the others lists them."""


class _Looked(Struct):
    """The last look at an agent's conversations, and how they are imported."""

    since: int = 0
    redact: bool = False
    stamps: dict[str, Stamp] = field(default_factory=dict)
    sources: list[Source] = field(default_factory=list)
    variables: dict[str, str] = field(default_factory=dict)
    """The variables that moved its folders: another process of ours may lack them."""
    named: dict[str, Stamp] = field(default_factory=dict)
    """What could not be read, and why, with the stamps of these files."""
    has_joined: bool = False
    """False if it was imported by a release that made two sessions of some conversations."""
    busy: dict[str, int] = field(default_factory=dict)
    """Until when (ms since the epoch) files of open sessions are left alone."""

    def differing(self) -> set[str]:
        """Return the files and folders that have changed since."""
        now = now_ms()
        return {
            path
            for path, known in self.stamps.items()
            if stamp(path) != known and self.busy.get(path, 0) <= now
        }


class _Memory(Struct):
    home: str
    agents: dict[str, _Looked] = field(default_factory=dict)


def _recall(file: str) -> _Memory | None:
    """Return the memory; None if nothing was imported from this home."""
    try:
        with open(file, "rb") as opened:
            found = msgspec.msgpack.decode(opened.read(), type=_Memory)
    except (OSError, msgspec.MsgspecError):  # imported by another release: import once more
        return None
    return found if found.home == str(Path.home()) else None


def was_named(file: str) -> Callable[[OSError], bool]:
    """Return a function that tells if an import into the journal with this memory has said that a
    file cannot be read, and why, and it is the same still."""
    agents = memory.agents.values() if (memory := _recall(file)) else ()
    named = {why: known for looked in agents for why, known in looked.named.items()}
    return lambda error: [named.get(str(error))] == [*_named([error]).values()]


def _named(errors: Iterable[OSError]) -> dict[str, Stamp]:
    return {str(error): stamp(error.filename) for error in errors if error.filename}


def _look(home: Home, name: str) -> tuple[dict[str, Stamp], list[Source], Search]:
    """Return the stamps of all that finding an agent's conversations depends on, these, and what
    was found besides."""
    with searching() as search:
        sources = [
            source
            for source in reader(name).find(home)
            if all(map(is_text, (source.session_id, source.item, *source.paths)))
        ]
    for error in search.unreadable:  # an import reports it
        log.info("conversations of %s cannot be found: %s", name, error)
    paths = {path for source in sources for path in source.paths}.union(search.looks)
    databases = {f"{path}-wal" for path in paths if path.endswith((".db", ".vscdb"))}
    stamps = {path: stamp(path) for path in paths | databases} | search.looks
    stamps = {path: known for path, known in stamps.items() if is_text(path)}
    return stamps, sources, search


def _noted(source: Source) -> Source:
    """Return a source as it is remembered: with a digest of its title, which may be forgotten."""
    return replace(source, title=digest_of(source.title)) if source.title else source


class ImportMemory:
    """Remembers an import of all conversations of some agents, from the user's own home.

    The look precedes the import: what is added meanwhile has grown.
    """

    def __init__(self, home: Home, names: Iterable[str], *, since: int, redact: bool) -> None:
        self._looked: dict[str, _Looked] = {}
        for name in names:
            stamps, sources, search = _look(home, name)
            noted, named = [*map(_noted, sources)], _named(search.unreadable)
            self._looked[name] = looked = _Looked(since, redact, stamps, noted, search.variables)
            looked.named, looked.has_joined = named, True

    def keep(self, file: str) -> None:
        """Keep it in the file of a journal, beside that of other agents."""
        memory = _recall(file) or _Memory(str(Path.home()))
        for name, looked in self._looked.items():
            if (before := memory.agents.get(name)) is not None:
                looked.since = min(before.since, looked.since)
                looked.has_joined = before.has_joined
                looked.redact = before.redact or looked.redact
            memory.agents[name] = looked
        try:
            write_private(file, msgspec.msgpack.encode(memory))
        except OSError as error:
            log.warning("what is added to these conversations is not imported: %s", error)


class Growth:
    """The changes on disk since the imports into a journal; agents in `without` are left
    out."""

    def __init__(self, file: str, without: Collection[str] = ()) -> None:
        self._file = file
        self._memory = _recall(file)
        self._differing: dict[str, set[str]] = {}
        for name, looked in (self._memory.agents if self._memory else {}).items():
            paths = looked.differing() if name in NAMES and name not in without else set[str]()
            if paths or (name in NAMES and name not in without and not looked.has_joined):
                self._differing[name] = paths

    def __bool__(self) -> bool:
        return bool(self._differing)

    @property
    def stamps(self) -> dict[str, Stamp]:
        """All that was looked at."""
        agents = self._memory.agents.values() if self._memory else ()
        return {path: known for looked in agents for path, known in looked.stamps.items()}

    async def enlist(self, journal: Journal) -> None:
        """Show in the list what has grown: new conversations, and the time of others."""
        assert self._memory is not None
        for name, paths in self._differing.items():
            looked = self._memory.agents[name]
            grown = [source for source in looked.sources if not paths.isdisjoint(source.paths)]
            times: dict[str, dict[str, int]] = {}
            for source in grown:
                at = max(stamp(path)[1] for path in source.paths) // 1_000_000
                times.setdefault(source.agent or reader(name).key, {})[source.downstream_id] = at
            for agent, used in times.items():
                await journal.links.went_on(agent, used)
            known = {path for source in looked.sources for path in source.paths}
            if paths <= known:
                continue
            places = {source.place for source in looked.sources}
            _, found, _ = _look(_home(looked), name)
            new = [it for it in found if it.place not in places and _is_since(it, looked)]
            new.sort(key=lambda source: -source.changed_at)
            intake = Intake(journal, ImportSelection(redact=looked.redact))
            await intake.list_first(new[:LISTED_AT_ONCE])

    async def take(self, journal: Journal) -> None:
        """Read what has grown into the journal, and remember that."""
        memory = self._memory
        assert memory is not None
        for name in (name for wave in WAVES for name in NAMES if name in wave & {*self._differing}):
            looked = memory.agents[name]
            stamps, sources, _ = _look(_home(looked), name)
            before = {source.place: source for source in looked.sources}
            due = now_ms()
            left = {path: until for path, until in looked.busy.items() if until > due}
            busy = dict(left)
            intake = Intake(journal, ImportSelection(redact=looked.redact))
            for source in sorted(sources, key=lambda source: -source.changed_at):
                is_due = any(path in looked.busy and path not in left for path in source.paths)
                is_same = before.get(source.place) == _noted(source) and not is_due
                is_same &= looked.has_joined
                if is_same or not _is_since(source, looked):
                    continue
                if any(path in left for path in source.paths):
                    outcome = "busy"
                else:
                    try:
                        rejoin = is_due or not looked.has_joined
                        taken = await intake.take(source, reader(name), rejoin=rejoin)
                        outcome = "busy" if taken.waits else taken.outcome
                    except (OSError, AcpError) as error:  # an import reports it
                        log.info("%s", error)
                        continue
                if outcome == "busy":
                    for path in source.paths:
                        busy.setdefault(path, now_ms() + BUSY_MS)
                        stamps[path] = looked.stamps.get(path, MISSING)
            memory.agents[name] = replace(
                looked, stamps=stamps, sources=[*map(_noted, sources)], busy=busy, has_joined=True
            )
        write_private(self._file, msgspec.msgpack.encode(memory))


def _home(looked: _Looked) -> Home:
    home = Path.home()
    return Home(home, {"HOME": str(home)} | looked.variables)


def _is_since(source: Source, looked: _Looked) -> bool:
    return source.changed_at >= looked.since * 1_000_000
