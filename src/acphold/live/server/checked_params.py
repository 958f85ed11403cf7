"""Params from a client, checked before they are used.

A refusal names the field, and the MCP server if it is about one. Sources: spec v1, session setup
("Working Directory", "MCP Servers", "Additional Workspace Roots"); prompt turn.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import TypeVar

import msgspec
from msgspec import Raw, Struct

from acp_wire import schema
from acp_wire.schema import (
    ListSessionsRequest,
    LoadSessionRequest,
    NewSessionRequest,
    ResumeSessionRequest,
    items,
    members,
)
from acp_wire.schema.splice import session_id_in
from acphold.conversation.history.raw_update import array
from acphold.errors import InvalidParamsError
from acphold.extras import require
from acphold.live.agents.capabilities import EVERY_TRANSPORT
from acphold.live.agents.extensions import QueueRequest
from acphold.live.hub.agent_session import Setup
from acphold.live.hub.waiting_prompts import SAYING
from acphold.live.server import bounds
from acphold.live.server.open_params import OpenParams
from acphold.mcp_servers.servers import ProvidedServers, check_server

T = TypeVar("T")

OpenRequest = NewSessionRequest | LoadSessionRequest | ResumeSessionRequest


def read_setup(
    kind: type[OpenRequest],
    asked: OpenParams,
    can: schema.AgentCapabilities,
    provided: ProvidedServers,
    path: str,
) -> Setup:
    """Return the setup in the params of session/new, load or resume; raises InvalidParamsError.

    No field is dropped. An MCP `command` that had to be looked up on `path` is made absolute, a
    server that the agent cannot reach is put behind a bridge, and a resume without servers gets an
    empty list. Raises MissingExtraError without the package of the bridge.
    """
    given = asked.servers
    # Servers are checked one by one, so that a refusal can name the server.
    bare = asked.having(mcpServers=b"[]") if given.startswith(b"[") else asked
    request = schema.decode(kind, bare.params).value
    require_absolute(request.cwd, "cwd")
    roots = request.additional_directories
    for index, root in enumerate(roots):
        require_absolute(root, f"additionalDirectories[{index}]")
    if roots and can.session_capabilities.additional_directories is None:
        raise InvalidParamsError(
            "additionalDirectories: this agent does not support additional workspace roots",
            field="additionalDirectories",
        )
    if given.startswith(b"["):
        servers, checked = items(given), list[bytes]()
        for index, raw in enumerate(servers):
            entry = check_server(raw, index, EVERY_TRANSPORT, path)
            type_: type[schema.McpServerHttp | schema.McpServerSse] | None = None
            match members(entry).get("type"):
                case b'"http"' if not can.mcp_capabilities.http:
                    type_ = schema.McpServerHttp
                case b'"sse"' if not can.mcp_capabilities.sse:
                    type_ = schema.McpServerSse
            if type_ is not None:
                require("mcp", f"mcpServers[{index}]: a bridge to a server behind a URL")
                from acphold.machine.own_program import own_command
                from acphold.mcp_servers.bridge import bridge_server  # late: few agents need one

                far = schema.decode(type_, entry).value
                entry = bridge_server(far, own_command("mcp-bridge"))
            checked.append(provided.for_agent(entry))
        if checked != servers:
            asked = asked.having(mcpServers=array(checked))
    elif kind is ResumeSessionRequest:
        # Only a resume may omit them, and it may become a load or a new session at the agent.
        asked = bare.having(mcpServers=b"[]")
    return Setup(request.cwd, roots, asked.params)


def list_request(params: bytes) -> ListSessionsRequest:
    """Return the params of session/list; raises InvalidParamsError."""
    asked = schema.decode(ListSessionsRequest, params).value
    if asked.cwd is not None:
        require_absolute(asked.cwd, "cwd")
    return asked


def require_absolute(path: str, field: str) -> None:
    """Raise InvalidParamsError for a path that is not absolute, or no path at all."""
    if "\0" in path:
        raise InvalidParamsError(f"{field}: {path!r} contains a NUL character", field=field)
    if not os.path.isabs(path):
        raise InvalidParamsError(f"{field}: {path!r} is not an absolute path", field=field)


def decode_params(params: bytes, kind: type[T], field: str | None = None) -> T:
    """Return params of this kind; raises InvalidParamsError, for the member `field` if only that
    can be wrong."""
    try:
        return msgspec.json.decode(params or b"{}", type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as exc:
        raise InvalidParamsError(str(exc) if field is None else f"{field}: {exc}", field) from None


class _PromptParams(Struct, gc=False):
    sessionId: str
    prompt: list[Raw]
    meta: Raw = msgspec.field(name="_meta", default=Raw())


class _Block(Struct, gc=False):
    """Any object."""


_prompt_params = msgspec.json.Decoder(_PromptParams).decode


BRACE = ord("{")


def prompt_in(params: bytes) -> tuple[str, bytes, bytes]:
    """Return the session, the content blocks and the `_meta` in the params of a prompt; raises
    InvalidParamsError.

    In one pass over the params, which may have many megabytes.
    """
    try:
        found = _prompt_params(params)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise _unfit_prompt(params) from None
    for block in found.prompt:
        if memoryview(block)[0] != BRACE:
            raise _unfit_prompt(params)
    _check_count(found.prompt)
    return found.sessionId, array(found.prompt), bytes(found.meta)


def queue_request(params: bytes) -> QueueRequest:
    """Return the params of a request about the queued prompts; raises InvalidParamsError."""
    asked = decode_params(params, QueueRequest, "change")
    if asked.change is not None and (prompt := bytes(asked.change.prompt)):
        _check_count(decode_params(prompt, list[_Block], "change"))
    if asked.change is not None and len(asked.change.id) > bounds.PROMPT_ID_CHARACTERS:
        raise InvalidParamsError(
            f"change.id: must have at most {bounds.PROMPT_ID_CHARACTERS} characters",
            field="change.id",
        )
    return asked


def check_words(method: str, params: bytes) -> None:
    """Raise InvalidParamsError for too many content blocks in an extension's words to the agent."""
    if re.search(SAYING, method):
        prompt = members(params).get("prompt", b"")
        _check_count(items(prompt) if prompt.startswith(b"[") else ())


def _check_count(blocks: Sequence[object]) -> None:
    """Raise InvalidParamsError for too many content blocks."""
    if len(blocks) > bounds.PROMPT_BLOCKS:
        problem = f"prompt: at most {bounds.PROMPT_BLOCKS:,} content blocks"
        raise InvalidParamsError(problem, "prompt")


def _unfit_prompt(params: bytes) -> InvalidParamsError:
    """Return the error for the params of a prompt."""
    prompt = members(params).get("prompt", b"")
    if not prompt.startswith(b"["):
        return InvalidParamsError("prompt: must be an array of content blocks", "prompt")
    for index, block in enumerate(items(prompt)):
        if not block.startswith(b"{"):
            field = f"prompt[{index}]"
            return InvalidParamsError(f"{field}: a content block must be an object", field)
    return InvalidParamsError("sessionId: a string is required", field="sessionId")


def session_id_of(params: bytes) -> str:
    """Return the session that params are about; InvalidParamsError if they name none."""
    if (found := session_id_in(params)) is None:
        raise InvalidParamsError("sessionId: a string is required", field="sessionId")
    return found
