"""The MCP servers a client names for a session. Values of `env` and `headers` are secrets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, TypeAlias

from acphold.schema.shapes import Extensible, NullIsDefault, Otherwise, UnknownVariant


class EnvVariable(Extensible, frozen=True):
    """One environment variable."""

    name: str
    value: str


class HttpHeader(Extensible, frozen=True):
    """One header of an HTTP request."""

    name: str
    value: str


class McpServerStdio(Extensible, frozen=True):
    """A program to run; `command` is an absolute path."""

    name: str
    command: str
    args: NullIsDefault[tuple[str, ...]]
    env: NullIsDefault[tuple[EnvVariable, ...]]


class McpServerHttp(Extensible, frozen=True, tag="http", tag_field="type"):
    """A server reached over streamable HTTP."""

    name: str
    url: str
    headers: NullIsDefault[tuple[HttpHeader, ...]]


class McpServerSse(Extensible, frozen=True, tag="sse", tag_field="type"):
    """A server reached over HTTP with server-sent events."""

    name: str
    url: str
    headers: NullIsDefault[tuple[HttpHeader, ...]]


class UnknownMcpServer(UnknownVariant):
    """A server reached in a way newer than this release, byte for byte."""


if TYPE_CHECKING:
    McpServer: TypeAlias = McpServerStdio | McpServerHttp | McpServerSse | UnknownMcpServer
else:
    McpServer = Annotated[
        McpServerHttp | McpServerSse,
        Otherwise(untagged=McpServerStdio, unknown=UnknownMcpServer),
    ]
