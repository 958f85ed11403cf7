"""The MCP servers that a client names for a session, all validated before use.

Sources: ACP v1, session setup, "MCP Servers"; RFC 9110, section 5, for headers; POSIX, section 8.1,
for environment variables. Each error names the server and the field, and never contains a value of
`env` or `headers`.
"""

from __future__ import annotations

import os
from typing import Final

import msgspec
from msgspec.json import encode

from acp_wire.errors import InvalidParamsError
from acp_wire.schema import (
    McpCapabilities,
    McpServerHttp,
    McpServerSse,
    McpServerStdio,
    decode,
    items,
    members,
    splice,
)
from acp_wire.schema.shapes import Extensible
from acp_wire.schema.splice import json_value

MCP_MESSAGE = "mcp/message"
"""The ACP method, in both directions, of MCP over ACP. UNSTABLE: not in the stable schema."""


class McpServerAcp(Extensible, frozen=True, tag="acp", tag_field="type"):
    """A server provided by the client itself, over ACP. UNSTABLE: not in the stable schema."""

    name: str
    server_id: str


Server = McpServerStdio | McpServerHttp | McpServerSse | McpServerAcp
"""An MCP server that can be connected to."""

KINDS: dict[str, type[Server]] = {
    "stdio": McpServerStdio,
    "http": McpServerHttp,
    "sse": McpServerSse,
}

TOKEN = frozenset("!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
"""The characters of a header's name."""

URL_SCHEMES = ("http://", "https://")


def parse_servers(given: bytes, can: McpCapabilities, path: str) -> tuple[Server, ...]:
    """Return the servers in the `mcpServers` of session/new, load or resume, for us to connect to.

    `given` is that JSON array, or null; commands are searched on `path`. Raises InvalidParamsError,
    also for duplicate names or `serverId`s, and for a transport newer than this release.
    """
    if given.strip() in (b"", b"null"):
        return ()
    servers: list[Server] = []
    for place, raw in enumerate(items(given)):
        kind, field = _kind(raw, place)
        server: Server
        if kind == "acp":
            provided = _text(members(raw), "serverId", field)
            server = _decode(McpServerAcp, raw, field)
            if any(provided == getattr(other, "server_id", None) for other in servers):
                raise _refusal(field, "serverId", "another server has the same id")
        elif kind not in KINDS:
            raise _refusal(field, "type", f"this agent does not support MCP servers over {kind}")
        else:
            server = _check(kind, _with_env(kind, raw), field, can, path)
        if any(server.name == other.name for other in servers):
            raise _refusal(field, "name", "another server has the same name")
        servers.append(server)
    return tuple(servers)


def server_ids(given: bytes) -> tuple[str, ...]:
    """Return the `serverId` of each server over ACP in `mcpServers`, which is an array or null."""
    if b'"acp"' not in given:
        return ()
    servers = [members(raw) for raw in items(given)]
    found = [parts.get("serverId", b"0") for parts in servers if parts.get("type") == b'"acp"']
    # None: from an older draft, or invalid: for the agent to report.
    return tuple(json_value(b"[%b]" % b",".join(found), list[str]) or ())


def check_server(raw: bytes, place: int, can: McpCapabilities, path: str) -> bytes:
    """Return item `place` of `mcpServers`, `raw`, validated, for another agent to connect to.

    Its bytes are kept; only a `command` found on `path` is made absolute, and a missing `env` is
    added. A transport newer than this release is not examined. Raises InvalidParamsError.
    """
    kind, field = _kind(raw, place)
    if kind not in KINDS:
        return raw
    raw = _with_env(kind, raw)
    server = _check(kind, raw, field, can, path)
    found = server.command if isinstance(server, McpServerStdio) else None
    if found in (None, json_value(members(raw).get("command"), str)):
        return raw
    return splice(raw, {"command": encode(found)})


class _ServerField:
    """The place of a server in the request, for error messages."""

    def __init__(self, place: int, name: str) -> None:
        self.path = f"mcpServers[{place}]"
        self.who = f"MCP server {name!r}" if name else f"MCP server {place}"


def _refusal(field: _ServerField, member: str, reason: str) -> InvalidParamsError:
    path = f"{field.path}.{member}"
    return InvalidParamsError(f"{path}: {field.who}: {reason}", field=path)


def _kind(raw: bytes, place: int) -> tuple[str, _ServerField]:
    """Return the server's transport and its place; checks its name."""
    parts = members(raw)
    field = _ServerField(place, "")
    name = _text(parts, "name", field)
    field = _ServerField(place, name)
    return (_text(parts, "type", field) if "type" in parts else "stdio"), field


def _with_env(kind: str, raw: bytes) -> bytes:
    """Return a server with an `env`, if it runs on stdio: the schema requires it, the older of the
    protocol's pages does not."""
    if kind != "stdio" or "env" in members(raw):
        return raw
    return splice(raw, {"env": b"[]"})


def _check(kind: str, raw: bytes, field: _ServerField, can: McpCapabilities, path: str) -> Server:
    """Return a server that can be connected to; the command of a program is then absolute."""
    if (kind == "http" and not can.http) or (kind == "sse" and not can.sse):
        raise _refusal(field, "type", f"this agent does not support MCP servers over {kind}")
    parts = members(raw)
    _text(parts, "command" if kind == "stdio" else "url", field)
    if kind == "stdio" and "type" in parts:
        raw = splice(raw, {"type": None})
    server = _decode(KINDS[kind], raw, field)
    match server:
        case McpServerStdio():
            command = _check_program(server, field, path)
            return msgspec.structs.replace(server, command=command)
        case McpServerHttp() | McpServerSse():
            _check_address(server, field)
    return server


def _check_program(server: McpServerStdio, field: _ServerField, path: str) -> str:
    """Return the absolute path of its command, searched on its own PATH, or on `path`."""
    words = [("command", server.command)]
    words += [(f"args[{number}]", argument) for number, argument in enumerate(server.args)]
    for member, word in words:
        if "\0" in word:
            raise _refusal(field, member, "it contains a NUL character")
    for number, variable in enumerate(server.env):
        name, place = variable.name, f"env[{number}]"
        if not name or "=" in name or "\0" in name:
            reason = f"{name!r} is not a valid name of an environment variable"
            raise _refusal(field, f"{place}.name", reason)
        if "\0" in variable.value:
            reason = f"the value of {name!r} contains a NUL character"
            raise _refusal(field, f"{place}.value", reason)
    if os.path.isabs(server.command):
        return server.command
    if os.path.dirname(server.command):
        raise _refusal(field, "command", f"{server.command!r} is not an absolute path")
    from acp_wire.processes.program import on_path  # late: most sessions name no server

    given = [variable.value for variable in server.env if variable.name == "PATH"]
    found = on_path(server.command, given[-1] if given else path)
    if found is None:
        reason = f"{server.command!r} is neither an absolute path nor on PATH"
        raise _refusal(field, "command", reason)
    return found


def _check_address(server: McpServerHttp | McpServerSse, field: _ServerField) -> None:
    # The address may contain a key, such as in its query, so it is not repeated.
    from urllib.parse import urlsplit

    if not server.url.lower().startswith(URL_SCHEMES):
        reason = "an address that begins with http:// or https:// is required"
        raise _refusal(field, "url", reason)
    try:
        address = urlsplit(server.url)
        host, _ = address.hostname, address.port
    except ValueError:
        host = None
    if not host or any(char <= " " for char in server.url):
        raise _refusal(field, "url", "the address has no valid host and port")
    for number, header in enumerate(server.headers):
        if not header.name or not TOKEN.issuperset(header.name):
            reason = f"{header.name!r} is not a valid name of a header"
            raise _refusal(field, f"headers[{number}].name", reason)
        if any(char in "\0\r\n" for char in header.value):
            reason = f"the value of {header.name!r} contains a line break or a NUL character"
            raise _refusal(field, f"headers[{number}].value", reason)


def _decode(kind: type[Server], raw: bytes, field: _ServerField) -> Server:
    try:
        return decode(kind, raw).value
    except InvalidParamsError as exc:
        flaw = exc.field or ""  # a path like `$.env[0].value`, at the start of the message
        reason = str(exc).removeprefix(flaw).lstrip(": ")
        path = f"{field.path}{flaw.removeprefix('$')}"
        raise InvalidParamsError(f"{path}: {field.who}: {reason}", field=path) from None


def _text(parts: dict[str, bytes], member: str, field: _ServerField) -> str:
    if not (value := json_value(parts.get(member), str)):
        raise _refusal(field, member, "a non-empty string is required")
    return value


_KEY: Final = os.urandom(16)
"""A key of this process: no tenant can name a server as if it were another's."""

_SERVER_ID: Final = "serverId"


class ProvidedServers:
    """The servers that a client provides itself, under ids that only its tenant has.

    One agent works for all tenants, and names a server by its `serverId`. So the agent gets another
    id than the client's: two tenants may use one id for two servers, and neither hears of the
    other's. A client without a tenant shares the agent with nobody, and its ids are left as they
    are.
    """

    def __init__(self, tenant: str | None) -> None:
        self._mark = ""
        if tenant is not None:
            from hashlib import blake2b  # late, with OpenSSL: an editor has no tenant

            self._mark = f"{blake2b(tenant.encode(), key=_KEY, digest_size=8).hexdigest()}:"

    def for_agent(self, server: bytes) -> bytes:
        """Return one of `mcpServers` as the agent gets it."""
        if not self._mark or b'"acp"' not in server or members(server).get("type") != b'"acp"':
            return server
        return self.to_reference(server)

    def to_reference(self, params: bytes) -> bytes:
        """Return a reference to one of the client's servers, as the agent gets it."""
        server_id = json_value(members(params).get(_SERVER_ID), str)
        if not self._mark or server_id is None:  # of an older draft, or not valid: unchanged
            return params
        return splice(params, {_SERVER_ID: encode(f"{self._mark}{server_id}")})

    def for_client(self, params: bytes) -> bytes:
        """Return the agent's message about one of them, as the client gets it."""
        server_id = json_value(members(params).get(_SERVER_ID), str)
        if not self._mark or server_id is None or not server_id.startswith(self._mark):
            return params
        return splice(params, {_SERVER_ID: encode(server_id.removeprefix(self._mark))})
