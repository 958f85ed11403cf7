"""The connection to one MCP server of a session, as those who use the server see it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, NoReturn, TypeVar, assert_never

from msgspec import Struct

from holdfast.errors import McpAnswerError, McpConnectError, McpLostError
from holdfast.mcp.loading import load_sdk
from holdfast.mcp.program import FaultError, Program
from holdfast.mcp.redaction import Redaction
from holdfast.mcp.results import (
    BadResultError,
    CallResult,
    MadePrompt,
    Offer,
    Progress,
    Prompt,
    Resource,
    Tool,
    call_result,
    made_prompt,
    offers,
    refused_call,
    resource_contents,
)
from holdfast.schema import McpServerHttp, McpServerSse, McpServerStdio

if TYPE_CHECKING:
    from holdfast.mcp.linking import Facing, Link
    from holdfast.mcp.servers import Server
    from holdfast.mcp.streams import Wire
