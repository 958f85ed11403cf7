"""What goes wrong in an author's code, as the client hears of it: an opaque id, and the log."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable
from typing import TypeVar

from acphold.errors import AcpholdError, IncidentError, RemoteError
from acphold.rpc import wire_error

T = TypeVar("T")

log = logging.getLogger(__name__)


async def guarded(work: Awaitable[T]) -> T:
    """Run an author's code: what it raises is an incident, unless it is an error of ours.

    That goes for any exception but a cancellation of the task that waits here.
    """
    try:
        return await work
    except AcpholdError:
        raise
    except BaseException as exc:
        task = asyncio.current_task()
        if isinstance(exc, asyncio.CancelledError) and task is not None and task.cancelling():
            raise
        raise incident(exc) from exc


def incident(error: BaseException) -> IncidentError:
    """The error that stands for `error`, which is told to the log alone."""
    made = IncidentError(os.urandom(4).hex())
    log.error("the agent's code failed, incident %s", made.incident, exc_info=error)
    return made


def as_remote(error: AcpholdError) -> RemoteError:
    """The error as it would have come over a wire."""
    if isinstance(error, RemoteError):
        return error
    wire = wire_error(error.code, str(error), error.data)
    return RemoteError(wire.code, wire.message, wire.raw)
