"""Checking what a client sends to open a session.

Sources: spec v1, session setup ("Working Directory", "MCP Servers", "Additional Workspace
Roots"). Each refusal names the field, and the MCP server if it is about one.
"""

from __future__ import annotations

import os
import shutil

import msgspec
from msgspec import Struct

from holdfast.errors import InvalidParamsError
from holdfast.hub import Setup
from holdfast.schema import (
    AgentCapabilities,
    McpServerHttp,
    McpServerSse,
    McpServerStdio,
    decode,
)
from holdfast.schema.sessions import LoadSessionRequest, NewSessionRequest, ResumeSessionRequest
from holdfast.schema.splice import items, members, splice

OpenRequest = NewSessionRequest | LoadSessionRequest | ResumeSessionRequest

REMOTE_TRANSPORTS = ("http", "sse")


def checked_setup(kind: type[OpenRequest], params: bytes, can: AgentCapabilities) -> Setup:
    """The setup in the params of session/new, load or resume; raises InvalidParamsError.

    No field is invented or dropped; only an MCP `command` that had to be looked up on PATH is
    made absolute.
    """
    given = members(params).get("mcpServers", b"null")
    # The servers are looked at one by one, so that a refusal can say which it is about.
    rest = splice(params, {"mcpServers": b"[]"}) if given.startswith(b"[") else params
    request = decode(kind, rest).value
    _absolute(request.cwd, "cwd")
    roots = request.additional_directories
    for place, root in enumerate(roots):
        _absolute(root, f"additionalDirectories[{place}]")
    if roots and can.session_capabilities.additional_directories is None:
        raise InvalidParamsError(
            "additionalDirectories: this agent takes no additional workspace roots",
            field="additionalDirectories",
        )
    if given.startswith(b"["):
        params = _with_checked_servers(params, items(given), can)
    return Setup(request.cwd, roots, params)


def _absolute(path: str, field: str) -> None:
    if not os.path.isabs(path):
        raise InvalidParamsError(f"{field}: {path!r} is not an absolute path", field=field)


def _with_checked_servers(params: bytes, servers: list[bytes], can: AgentCapabilities) -> bytes:
    checked = [_checked_server(raw, place, can) for place, raw in enumerate(servers)]
    if checked == servers:
        return params
    return splice(params, {"mcpServers": b"[" + b",".join(checked) + b"]"})


def _checked_server(raw: bytes, place: int, can: AgentCapabilities) -> bytes:
    field = f"mcpServers[{place}]"
    if not raw.startswith(b"{"):
        raise InvalidParamsError(f"{field}: an object is required", field=field)
    parts = members(raw)
    name = _text(parts, "name", field, f"MCP server {place}")
    who = f"MCP server {name!r}"
    transport = _text(parts, "type", field, who) if "type" in parts else "stdio"
    if transport in REMOTE_TRANSPORTS:
        mcp = can.mcp_capabilities
        if not (mcp.http if transport == "http" else mcp.sse):
            raise InvalidParamsError(
                f"{field}: {who}: this agent does not take MCP servers over {transport}",
                field=f"{field}.type",
            )
        _decoded(McpServerHttp if transport == "http" else McpServerSse, raw, field, who)
        _text(parts, "url", field, who)
        return raw
    if transport != "stdio":
        return raw  # newer than this release: the agent may know it
    _decoded(McpServerStdio, raw, field, who)
    command = _text(parts, "command", field, who)
    if os.path.isabs(command):
        return raw
    found = None if os.sep in command else shutil.which(command)
    if found is None:
        raise InvalidParamsError(
            f"{field}.command: {who}: {command!r} is neither an absolute path nor on PATH",
            field=f"{field}.command",
        )
    return splice(raw, {"command": msgspec.json.encode(os.path.abspath(found))})


def _decoded(kind: type[Struct], raw: bytes, field: str, who: str) -> None:
    try:
        decode(kind, raw)
    except InvalidParamsError as exc:
        inner = field + (exc.field or "").removeprefix("$")
        raise InvalidParamsError(f"{field}: {who}: {exc}", field=inner) from None


def _text(parts: dict[str, bytes], member: str, field: str, who: str) -> str:
    try:
        value = msgspec.json.decode(parts[member], type=str)
    except (KeyError, msgspec.MsgspecError):
        value = ""
    if not value:
        raise InvalidParamsError(
            f"{field}.{member}: {who}: a non-empty string is required", field=f"{field}.{member}"
        )
    return value
