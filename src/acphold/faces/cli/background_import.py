"""The import in the background: what agents add to imported conversations is here by itself.

Each command that lists looks at them, by one `stat` each; the daemon and `serve` watch their
folders (`agents_watch`), so that they are current within five seconds. What has grown is listed at
once; a process of its own, at low priority, reads it, and what an interrupted import has only
listed, and indexes it: `acphold background-import`. A journal has at most one: another one ends at
once. A killed one has released its lock, and the next command that needs it starts another.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import AsyncIterator
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING

from acp_wire.tasks import timeout
from acphold.errors import AcpError, JournalUnavailableError, RuntimeFolderError
from acphold.faces.cli import bounds, options
from acphold.faces.cli.command_line import command
from acphold.faces.cli.journals import UNREAD, unread_remark
from acphold.faces.cli.settings import agents_without_import
from acphold.journal import stores
from acphold.journal.journal import Journal
from acphold.journal_location import belongings
from acphold.live.reading.local_reader import existing_journal
from acphold.machine.locked_file import LockedFile, hold
from acphold.machine.own_program import own_command, start_detached
from acphold.machine.runtime_folder import runtime_folder

if TYPE_CHECKING:
    from acphold.imports import Growth
    from acphold.live.reading.local_reader import LocalReader

log = logging.getLogger(__name__)


@command("background-import", "[OPTIONS]", options.JOURNAL)
async def background_import() -> None:
    """Read what agents have added to imported conversations, and index it.

    Internal: the daemon, and commands that list or search, start it. A journal has at most one.
    """
    path = stores.journal_name()
    with suppress(TimeoutError):
        async with existing_journal() as found, timeout(bounds.BACKGROUND_IMPORT_SECONDS):
            # A process that found another one at work relied on it, so look again after unlocking.
            while (lock_file := alone(path)) is not None:
                try:
                    os.nice(bounds.NICENESS)
                    if grown := growth(path):
                        await grown.take(found)
                    async for _ in finish_index(found):
                        pass
                    while await found.index.tidy(bounds.INDEX_STEP_SECONDS):
                        pass
                finally:
                    lock_file.release()
                if not await found.index.catch_up(0) and not growth(path):
                    break


async def start_if_left(journal: Journal, path: str) -> bool:
    """Start a process if an import has left much to be indexed; True if one is at work then."""
    if not await journal.index.catch_up(bounds.INDEX_AT_ONCE_SECONDS):
        return False
    if (error := _obstacle()) is not None:
        log.warning("not everything is searchable yet; run `acphold import --wait`: %s", error)
        return False
    _start_if_alone(path)
    return True


async def reading_on(journal: Journal) -> AsyncIterator[int]:
    """Read what an import has only listed; yields the number left before each session."""
    from acphold.imports import give_up_lost, read_listed  # late: a search needs them next to never

    await give_up_lost(journal)
    listed = await journal.page(UNREAD, limit=sys.maxsize)
    for place, row in enumerate(listed):
        yield len(listed) - place
        try:
            await read_listed(journal, row.session_id)
        except AcpError as error:  # an import tells more; somebody may have it open
            log.info("%s", error)


async def finish_index(journal: Journal) -> AsyncIterator[int]:
    """Read what an import has only listed, and index all; yields the number of sessions to go."""
    async for left in reading_on(journal):
        yield left
    while left := await journal.index.catch_up(bounds.INDEX_STEP_SECONDS):
        yield left


async def unread_and_resumed(reader: LocalReader) -> str:
    """Start reading sessions that an import has only listed; return a remark about them, "" if
    there are none here."""
    journal = reader.journal
    if journal is None or not await journal.page(UNREAD, limit=1):
        return ""
    path = stores.journal_name()
    if journal.file is None or not os.access(path, os.W_OK) or _obstacle() is not None:
        return await unread_remark(journal)
    if journal.file.is_nearly_full:
        return await unread_remark(journal, "they are read once its disk has room again")
    _start_if_alone(path)
    return await unread_remark(journal, "they are being read in the background")


def growth(path: str) -> Growth | None:
    """Return what the agents' own programs have added since the imports into the journal of this
    name, false if nothing; None if nothing was imported, or the settings have `no_import`."""
    file = memory_file(path)
    if not os.path.exists(file) or (without := agents_without_import()) is None:
        return None
    from acphold.imports import Growth  # late: few journals have imports

    return Growth(file, without)


def memory_file(path: str) -> str:
    """Return the file that remembers the imports into the journal of this name."""
    return os.path.join(belongings(path), "imports", "memory")


def _key(path: str) -> str:
    # Python's own, by its name since 3.12 or before, if it has one: hashlib would bring OpenSSL,
    # an eighth of the daemon's memory.
    own = next(name for name in ("_sha2", "_sha256", "hashlib") if find_spec(name))
    hashed = import_module(own).sha256(os.fsencode(os.path.realpath(path)))
    return str(hashed.hexdigest()[:16])


async def list_growth(reader: LocalReader) -> None:
    """List what the agents' own programs have added, and start to read it in the background."""
    if reader.journal is None:
        return
    journal, path = reader.journal, stores.journal_name()
    if journal.file is not None and not os.access(path, os.W_OK):
        return
    if not (grown := growth(path)) or _obstacle() is not None:
        return
    try:
        await grown.enlist(journal)
    except JournalUnavailableError as error:  # busy: what is there can still be read
        log.info("%s", error)
        return
    _start_if_alone(path)


def _start_if_alone(path: str) -> None:
    """Start a process that reads and indexes what is there, unless one is at work."""
    if (lock_file := alone(path)) is not None:
        lock_file.release()
        start_detached(own_command("background-import", "--journal", path), {})


def _obstacle() -> RuntimeFolderError | None:
    """Return why no process can work beside others: they find each other in the runtime folder."""
    try:
        runtime_folder()
    except RuntimeFolderError as error:
        return error
    return None


def alone(path: str) -> LockedFile | None:
    """Hold the index of this journal; None while another process does."""
    return hold(os.path.join(runtime_folder(), f"index-{_key(path)}"))
