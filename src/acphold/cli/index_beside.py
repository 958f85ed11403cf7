"""`acphold index --beside`: a process that makes searchable what others bring into the journal.

What an import has listed and not read, because it was interrupted, this reads first. The next
command that would have looked into it starts it.

    works ──its stdin ends──▶ works with the least claim ──nothing is left, or time is over──▶ ends

There is one at most for a journal: another one ends at once. Who was killed has let it go.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import select
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import TYPE_CHECKING, Self

from acphold.cli.journals import UNREAD, opened, path_of, unread_remark
from acphold.errors import AcpholdError, RuntimeFolderError
from acphold.journal import Index, Journal
from acphold.processes.own_program import own_command, start_detached
from acphold.transports.runtime_folder import lock, runtime_folder

if TYPE_CHECKING:
    from acphold.imports import Intake

log = logging.getLogger(__name__)

STEP_SECONDS = 0.5
"""Between two looks at whether somebody still brings more."""

AT_ONCE_SECONDS = 2.0
"""What is made searchable within this time is waited for; the rest is left to another process."""

NICENESS = 10
"""Beside other work: only time that nobody else wants."""

LOOK_SECONDS = 0.1
"""Between two looks for something to index, while an import goes on."""


BESIDE_SECONDS = 900.0
"""A bound for what nobody watches, several times what a gigabyte takes."""


class Indexing:
    """What makes searchable what is taken in: the import itself, or where it is much, a process.

    That one begins with the import and outlives it, unless the import is cancelled.
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

    def begin(self, intake: Intake) -> None:
        """Have a process make it searchable from now on, where there can be one."""
        if _obstacle() is None:
            self._beside = IndexBeside(self._location)
            intake.leave_index()

    async def lags(self, journal: Index) -> bool:
        """Whether something is left for a process in the background, which is there then."""
        if self._beside is None or not self._beside.runs:
            if not await journal.catch_up(AT_ONCE_SECONDS):
                return False
            if (error := _obstacle()) is not None:
                log.warning("the rest is not searchable before you run `acphold index`: %s", error)
                return False
            if self._beside is not None:
                self._beside.let_go()
            self._beside = IndexBeside(self._location)
            return True
        # Of two that index the same, one does it in vain.
        for _ in range(round(AT_ONCE_SECONDS / LOOK_SECONDS)):
            if not await journal.catch_up(0):
                return False
            await asyncio.sleep(LOOK_SECONDS)
        return True


# Indexing takes as long as reading, and one interpreter does not use a second core.
class IndexBeside:
    """The command in a process of its own, which goes on until it is let go, and then to its end.

    It ends by itself at once when there is another one for this journal.
    """

    def __init__(self, location: str) -> None:
        reading, writing = os.pipe()
        self._stdin = os.fdopen(writing, "wb", buffering=0)
        command = own_command("index", "--beside", "--journal", location)
        with open(reading, "rb"):
            self._pid = start_detached(command, {0: reading})
        self._has_ended = False

    @property
    def runs(self) -> bool:
        """Whether it has not ended yet."""
        if not self._has_ended:
            try:
                self._has_ended = bool(os.waitpid(self._pid, os.WNOHANG)[0])
            except ChildProcessError:  # SIGCHLD is ignored here: the system has taken it away
                self._has_ended = True
        return not self._has_ended

    def let_go(self) -> None:
        """Nothing more will come: it goes on by itself, and ends when nothing is left."""
        self._stdin.close()

    def end(self) -> None:
        """End it; what it has done stays."""
        if self.runs:
            os.kill(self._pid, signal.SIGKILL)
            with suppress(ChildProcessError):
                os.waitpid(self._pid, 0)
        self._stdin.close()


async def index_beside(path: str) -> None:
    """Index what lags until nobody brings more, if no other process does that already."""
    with suppress(TimeoutError):
        async with opened(path) as journal, asyncio.timeout(BESIDE_SECONDS):
            # Whoever found another at work relies on that one: it looks again once it has let go.
            while (held := alone(path)) is not None:
                try:
                    is_left = False
                    while (lagging := await journal.catch_up(STEP_SECONDS)) or not is_left:
                        if not is_left and (is_left := _has_ended()):
                            os.nice(NICENESS)
                            async for _ in reading_on(journal):
                                pass
                        elif not lagging:
                            await asyncio.sleep(LOOK_SECONDS)
                    while await journal.tidy(STEP_SECONDS):
                        pass
                finally:
                    os.close(held)
                if not await journal.catch_up(0):
                    return


async def reading_on(journal: Journal) -> AsyncIterator[int]:
    """Read what an import has listed and left; how many there still are, before each of them."""
    from acphold.imports import give_up_lost, read_listed  # late: a search needs them next to never

    await give_up_lost(journal)
    listed = await journal.page(UNREAD, limit=sys.maxsize)
    for place, row in enumerate(listed):
        yield len(listed) - place
        try:
            await read_listed(journal, row.session_id)
        except AcpholdError as error:  # an import says more of it, and somebody may have it open
            log.info("%s", error)


async def unread_and_resumed(journal: Journal, location: str | None) -> str:
    """What to say of what an import has listed and not read; from now on a process reads it."""
    if not await journal.page(UNREAD, limit=1):
        return ""
    path = path_of(location)
    if journal.file is None or not os.access(path, os.W_OK) or _obstacle() is not None:
        return await unread_remark(journal)
    if (held := alone(path)) is not None:
        os.close(held)
        IndexBeside(path).let_go()
    return await unread_remark(journal, "they are being read in the background")


def _has_ended() -> bool:
    """Whether whoever started us has let us go: nothing is ever written to our stdin."""
    return bool(select.select([0], [], [], 0)[0])


def _obstacle() -> RuntimeFolderError | None:
    """Why no process can index beside others: they tell each other by the runtime folder."""
    try:
        runtime_folder()
    except RuntimeFolderError as error:
        return error
    return None


def alone(path: str) -> int | None:
    """A descriptor that keeps others from indexing this journal; None while another has one."""
    key = hashlib.sha256(os.fsencode(os.path.realpath(path))).hexdigest()[:16]
    return lock(os.path.join(runtime_folder(), f"index-{key}"))
