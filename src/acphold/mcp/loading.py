"""The MCP SDK: imported when the first session names a server, beside the event loop.

The import takes half a second and 50 MB, which nobody pays who names no server.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from concurrent.futures import Future
from importlib import import_module

from acphold.mcp.faults import FaultError

NOISY = ("mcp", "client", "httpx2", "httpcore2")
"""Loggers of the SDK and of its HTTP client. They tell whole messages, addresses with the keys in
them, and a traceback for each line that is no JSON. What matters of it is told as an error."""

_import: Future[None] | None = None


async def load_sdk() -> None:
    """After this, importing `acphold.mcp.linking` costs nothing; FaultError without the SDK."""
    global _import
    if _import is None or (_import.done() and _import.exception() is not None):
        _import = Future()
        _import.set_running_or_notify_cancel()  # no waiter that is cancelled cancels it for all
        threading.Thread(target=_load, args=(_import,), name="import mcp").start()
    if not _import.done():
        await asyncio.wrap_future(_import)
    elif (error := _import.exception()) is not None:
        raise error


def _load(done: Future[None]) -> None:
    try:
        for name in NOISY:
            logger = logging.getLogger(name)
            if logger.level == logging.NOTSET:  # else somebody asked for it
                logger.setLevel(logging.CRITICAL)
        import_module("acphold.mcp.linking")
    except ImportError as exc:
        reason = f"MCP servers need the package `mcp`: pip install 'mcp>=2.3,<3' ({exc})"
        done.set_exception(FaultError(reason))
    except BaseException as exc:
        done.set_exception(exc)
    else:
        done.set_result(None)
