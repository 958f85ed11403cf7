"""Ctrl-C in the middle of a step that may take long, as reading a transcript does."""

from __future__ import annotations

import signal
from asyncio import CancelledError
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from types import FrameType

_is_blocked = False


@contextmanager
def interruptible() -> Iterator[None]:
    """A step that may take long: a Ctrl-C within `ending_at_ctrl_c` cancels its task at once."""
    global _is_blocked
    try:
        _is_blocked = True
        yield
    except KeyboardInterrupt:
        raise CancelledError from None
    finally:
        _is_blocked = False


@asynccontextmanager
async def ending_at_ctrl_c() -> AsyncIterator[None]:
    """Let a Ctrl-C end an `interruptible` step in the middle; otherwise it does what it did."""
    before = signal.getsignal(signal.SIGINT)

    def interrupt(number: int, frame: FrameType | None) -> None:
        if _is_blocked:
            raise KeyboardInterrupt
        if callable(before):
            before(number, frame)

    if callable(before):
        signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
