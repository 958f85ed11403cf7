"""Checks of advertised capabilities before a request, and its params.

Source: spec v1, initialization, session setup, session list, session delete, authentication.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

from msgspec.structs import replace

from acphold.agents.steer_method import has_steering
from acphold.errors import CapabilityError
from acphold.processes.program import on_path
from acphold.schema import McpServerHttp, McpServerSse, McpServerStdio

if TYPE_CHECKING:
    from acphold.schema import AgentCapabilities, McpServer

Folder: TypeAlias = str | os.PathLike[str]
"""A path; a relative one starts from the folder that this program is in."""


def absolute(path: Folder) -> str:
    """Return `path` as the protocol wants paths: absolute, from the folder that this program is
    in."""
    return os.path.abspath(os.fspath(path))


def served(path: Folder) -> str:
    """Return the same for a folder whose files are served; raises NotADirectoryError if it is
    none."""
    folder = absolute(path)
    if not os.path.isdir(folder):
        raise NotADirectoryError(f"files: there is no folder {folder!r}; make it first")
    return folder


class Advertised:
    """The capabilities of the agent called `name`, as a check before each use of one; `meta` is
    the `_meta` of its answer to `initialize`."""

    def __init__(
        self, capabilities: AgentCapabilities, name: str, meta: Mapping[str, object] | None = None
    ) -> None:
        self.capabilities = capabilities
        self.name = name
        self._meta = meta

    @property
    def has_steering(self) -> bool:
        """True if it takes words into a running turn."""
        return has_steering(self._meta)

    def to_steer(self) -> None:
        """Check that it takes words into a running turn; raises CapabilityError."""
        self._require(self.has_steering, "take words into a running turn", "_meta.steering")

    def to_load(self) -> None:
        """Check that it can load sessions; raises CapabilityError, as all methods here."""
        self._require(self.capabilities.load_session, "load sessions", "loadSession")

    def to_resume(self) -> None:
        self._require_method("resume", "resume sessions")

    def to_list(self) -> None:
        self._require_method("list", "list sessions")

    def to_close(self) -> None:
        self._require_method("close", "close sessions")

    def to_delete(self) -> None:
        self._require_method("delete", "delete sessions")

    def to_log_out(self) -> None:
        self._require(self.capabilities.auth.logout is not None, "log out", "auth.logout")

    def servers(self, servers: Sequence[McpServer]) -> tuple[McpServer, ...]:
        """Return MCP servers as they are sent: commands with absolute paths."""
        takes = self.capabilities.mcp_capabilities
        for server in servers:
            match server:
                case McpServerHttp():
                    self._require(takes.http, "take MCP servers over HTTP", "mcpCapabilities.http")
                case McpServerSse():
                    self._require(takes.sse, "take MCP servers over SSE", "mcpCapabilities.sse")
        return tuple(map(_with_absolute_command, servers))

    def directories(self, folders: Sequence[Folder]) -> tuple[str, ...]:
        """Return additional directories as they are sent: absolute."""
        if folders:
            has_them = self.capabilities.session_capabilities.additional_directories is not None
            capability = "sessionCapabilities.additionalDirectories"
            self._require(has_them, "take additional directories", capability)
        return tuple(map(absolute, folders))

    def _require_method(self, capability: str, what: str) -> None:
        has_it = getattr(self.capabilities.session_capabilities, capability) is not None
        self._require(has_it, what, f"sessionCapabilities.{capability}")

    def _require(self, has_it: bool, what: str, capability: str) -> None:
        if not has_it:
            raise CapabilityError(
                f"{self.name} cannot {what}: it does not advertise `{capability}`"
            )


def _with_absolute_command(server: McpServer) -> McpServer:
    """Return a stdio server with the absolute path of its program, as the protocol has it (session
    setup)."""
    if not isinstance(server, McpServerStdio) or os.path.isabs(server.command):
        return server
    found = on_path(server.command)
    if found is None and "/" not in server.command:
        return server  # the agent will say that there is no such program, and where it looked
    return replace(server, command=absolute(found or server.command))
