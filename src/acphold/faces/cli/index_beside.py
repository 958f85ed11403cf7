"""`acphold index-beside`: a process of `import` that indexes what others bring into the journal.

First it reads what agents' own programs have added to conversations that were imported, and what an
interrupted import has only listed. The next command that would have needed it starts the process.

        works ──its stdin ends──▶ works at low priority ──nothing is left, or time is over──▶ ends

A journal has at most one: another one ends at once. A killed one has released its lock.
"""

from __future__ import annotations

import asyncio
import logging
import os
import select
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Self

from acp_wire.tasks import timeout
from acphold.errors import AcpError, JournalUnavailableError, RuntimeFolderError
from acphold.faces.cli import bounds, options
from acphold.faces.cli.command_line import command
from acphold.faces.cli.journals import UNREAD, unread_remark
from acphold.faces.cli.settings import agents_without_import
from acphold.journal import stores
from acphold.journal.journal import Journal
from acphold.journal.seams import Index
from acphold.journal_location import belongings
from acphold.live.reading.local_reader import existing_journal
from acphold.machine.locked_file import LockedFile, hold
from acphold.machine.own_program import own_command, start_detached
from acphold.machine.runtime_folder import runtime_folder

if TYPE_CHECKING:
    from acphold.imports import Growth, Intake
    from acphold.live.reading.local_reader import LocalReader

log = logging.getLogger(__name__)


class Indexing:
    """Indexes what is imported: in the import itself, or in a process if it is much.

    The process starts with the import and outlives it, unless the import is cancelled.
    """

    def __init__(self, location: str) -> None:
        self._location = location
        self._beside: IndexBeside | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, failed: object, *_: object) -> None:
        if self._beside is not None and failed is not None:
            self._beside.end()
        elif self._beside is not None:
            self._beside.let_go()

    def end(self) -> None:
        """End the process, if there is one: the rest is done by the caller."""
        if self._beside is not None:
            self._beside.end()
            self._beside = None

    def begin(self, intake: Intake) -> None:
        """Start a process that indexes from now on, if there can be one."""
        if _obstacle() is None:
            self._beside = IndexBeside(self._location)
            intake.leave_index()

    async def lags(self, index: Index) -> bool:
        """Return True if something is left for another process; one is running then."""
        if self._beside is None or not self._beside.runs:
            if not await index.catch_up(bounds.INDEX_AT_ONCE_SECONDS):
                return False
            if (error := _obstacle()) is not None:
                log.warning(
                    "not everything is searchable yet; run `acphold import --wait`: %s", error
                )
                return False
            if self._beside is not None:
                self._beside.let_go()
            self._beside = IndexBeside(self._location)
            return True
        # If two index the same, one of them does it in vain.
        for _ in range(round(bounds.INDEX_AT_ONCE_SECONDS / bounds.INDEX_LOOK_SECONDS)):
            if not await index.catch_up(0):
                return False
            await asyncio.sleep(bounds.INDEX_LOOK_SECONDS)
        return True


# Indexing takes as long as reading, and one interpreter does not use a second core.
class IndexBeside:
    """The command in a process of its own; after `let_go` it runs until nothing is left.

    It ends by itself at once if there is another one for this journal.
    """

    def __init__(self, location: str) -> None:
        reading, writing = os.pipe()
        self._stdin = os.fdopen(writing, "wb", buffering=0)
        command = own_command("index-beside", "--journal", location)
        with open(reading, "rb"):
            self._pid = start_detached(command, {0: reading})
        self._has_ended = False

    @property
    def runs(self) -> bool:
        """True until it has ended."""
        if not self._has_ended:
            try:
                self._has_ended = bool(os.waitpid(self._pid, os.WNOHANG)[0])
            except ChildProcessError:  # SIGCHLD is ignored here: the system has reaped it
                self._has_ended = True
        return not self._has_ended

    def let_go(self) -> None:
        """Let it go on by itself: nothing more will come, and it ends when nothing is left."""
        self._stdin.close()

    def end(self) -> None:
        """End it; the work done so far stays."""
        if self.runs:
            os.kill(self._pid, signal.SIGKILL)
            with suppress(ChildProcessError):
                os.waitpid(self._pid, 0)
        self._stdin.close()


@command("index-beside", "[OPTIONS]", options.JOURNAL)
async def index_beside() -> None:
    """Index what an import brings, until stdin ends and nothing is left.

    Internal: `import` and `search` start it. A journal has at most one.
    """
    path = stores.journal_name()
    with suppress(TimeoutError):
        async with existing_journal() as found, timeout(bounds.INDEX_BESIDE_SECONDS):
            # A process that found another one at work relied on it, so look again after unlocking.
            while (lock_file := alone(path)) is not None:
                try:
                    await _index_until_released(found, path)
                finally:
                    lock_file.release()
                if not await found.index.catch_up(0) and not growth(path):
                    break


async def _index_until_released(journal: Journal, path: str) -> None:
    """Index until stdin has ended and nothing is left; from that end on at low priority."""
    is_released, step = False, bounds.INDEX_STEP_SECONDS
    while (lagging := await journal.index.catch_up(step)) or not is_released:
        # Nothing is ever written to stdin: it becomes readable when it ends.
        if not is_released and select.select([0], [], [], 0)[0]:
            is_released = True
            os.nice(bounds.NICENESS)
            if grown := growth(path):
                await grown.take(journal)
            async for _ in reading_on(journal):
                pass
        elif not lagging:
            await asyncio.sleep(bounds.INDEX_LOOK_SECONDS)
    while await journal.index.tidy(step):
        pass


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
    """Start a process that indexes what is there, unless one is at work."""
    if (lock_file := alone(path)) is not None:
        lock_file.release()
        IndexBeside(path).let_go()


def _obstacle() -> RuntimeFolderError | None:
    """Return why no process can index beside others: they find each other in the runtime folder."""
    try:
        runtime_folder()
    except RuntimeFolderError as error:
        return error
    return None


def alone(path: str) -> LockedFile | None:
    """Hold the index of this journal; None while another process does."""
    return hold(os.path.join(runtime_folder(), f"index-{_key(path)}"))
