"""Full reading of a conversation that an import has only listed, once somebody needs it.

In a separate process: a transcript may be long, and a server has other clients to serve.
"""

from __future__ import annotations

import asyncio
import sys
from asyncio.subprocess import DEVNULL, PIPE
from contextlib import suppress
from typing import Final

from acphold.errors import AcpholdError, TranscriptError
from acphold.imports.heads import unread_in
from acphold.imports.intake import OUTCOMES, ImportSelection, Intake
from acphold.imports.readers import reader
from acphold.journal import Journal
from acphold.journal.stores import open_journal
from acphold.processes.own_program import own_python, start_own

_WORKER: Final = "from acphold.imports.listed import main; main()"


async def read_beside(path: str, session_id: str) -> None:
    """Read a session of the journal at `path` in a process; raises TranscriptError.

    Cancelling ends the process; the part it has read is kept.
    """
    process = await start_own(
        own_python("-c", _WORKER, path, session_id), stdin=DEVNULL, stdout=DEVNULL, stderr=PIPE
    )
    try:
        _, complaints = await process.communicate()
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
    if process.returncode:
        why = complaints.decode(errors="replace").strip()
        raise TranscriptError(why or f"the transcript of session {session_id!r} cannot be read")


async def read_listed(journal: Journal, session_id: str, *, redact: bool = False) -> None:
    """Read it here; does nothing if it is read already. Raises TranscriptError."""
    if (listed := (await journal.session(session_id)).unread) is None:
        return
    source, redact = unread_in(listed, redact=redact)
    try:
        taken = await Intake(journal, ImportSelection(redact=redact)).take(
            source, reader(source.reader)
        )
    except OSError as error:
        where, why = error.filename or source.paths[0], error.strerror or error
        raise TranscriptError(f"session {session_id!r} cannot be read: {where}: {why}") from error
    if taken.outcome not in ("new", "apart", "grown", "same"):
        why = OUTCOMES.get(taken.outcome, "nothing was said in it")
        raise TranscriptError(f"session {session_id!r} cannot be read: {why}")


def main() -> None:
    """Read the session named by the arguments; errors go to stderr."""

    async def read(path: str, session_id: str) -> None:
        journal = open_journal(path, create=False)
        try:
            await read_listed(journal, session_id)
        finally:
            await journal.aclose()

    try:
        asyncio.run(read(*sys.argv[1:]))
    except AcpholdError as error:
        sys.exit(str(error))
