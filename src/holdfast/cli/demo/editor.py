"""A small editor: one `holdfast wrap` process, the session in it, and all that was seen of it."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

import msgspec
from msgspec import Struct

from holdfast import __version__
from holdfast.cli.demo.processes import family, running
from holdfast.errors import HoldfastError, MethodNotFoundError
from holdfast.journal import Entry
from holdfast.journal.entries import PROMPT, UPDATE
from holdfast.rpc import NotificationReceived, Peer, RequestReceived, connected
from holdfast.schema import (
    INITIALIZE,
    LIST_SESSIONS,
    LOAD_SESSION,
    NEW_SESSION,
    PROMPT as PROMPT_METHOD,
    REQUEST_PERMISSION,
    UPDATE as UPDATE_METHOD,
)
