"""The setup of a session by `ask` and `chat`: its MCP servers, its mode, its options."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Struct

from acp_wire import schema
from acp_wire.processes.program import on_path
from acp_wire.workspace.regular_files import contents
from acphold.faces.cli import bounds
from acphold.faces.cli.command_line import UsageError
from acphold.faces.cli.jsonc import JsoncError, scan
from acphold.faces.cli.terminal_text import on_one_line

if TYPE_CHECKING:
    from acphold.client import RemoteSession

SessionServer = schema.McpServerStdio | schema.McpServerHttp | schema.McpServerSse

SWITCHED: Final = {"on": True, "true": True, "yes": True, "off": False, "false": False, "no": False}
"""The words for a boolean option."""

LIVE_SERVERS: Final = (
    "--mcp-config: this session is already open, with its own servers; stop it first with "
    "`acphold agent stop`"
)

_VARIABLE = re.compile(r"\$\{(\w+)(?::-([^}]*))?\}")


class SessionSetup(Struct, frozen=True):
    """The MCP servers to open a session with, and its mode and options, by name, to set first."""

    servers: tuple[SessionServer, ...] = ()
    mode: str | None = None
    options: tuple[tuple[str, str], ...] = ()

    async def apply(self, session: RemoteSession) -> None:
        """Set the session's mode and options; UsageError for unknown ones."""
        if self.mode is None and not self.options:
            return
        from acphold.faces.screen.session_options import (  # late: `ask` waits
            find_value,
            modes_of,
            values_of,
        )

        if self.mode is not None:
            _, modes = modes_of(session) or ("", [])
            if (mode := find_value(modes, self.mode)) is None:
                raise _lacks("--mode", self.mode, modes)
            await session.set_mode(mode)
        for name, words in self.options:
            known = [(option.id, option.name) for option in session.config_options]
            option = next(
                (it for it in session.config_options if it.id == find_value(known, name)), None
            )
            if option is None:
                raise _lacks("--option", name, known)
            if isinstance(option, schema.SessionConfigSelect):
                values = values_of(option)
                value: str | bool | None = find_value(values, words)
            else:
                values = [("on", "on"), ("off", "off")]
                value = SWITCHED.get(words.casefold())
            if value is None:
                raise _lacks(f"--option {name}", words, values)
            await session.set_option(option.id, value)


AS_IT_IS: Final = SessionSetup()
"""A setup that changes nothing."""


def _lacks(option: str, given: str, known: Sequence[tuple[str, str]]) -> UsageError:
    there = ", ".join(on_one_line(value) for value, _ in known) or "nothing to choose from"
    return UsageError(f"{option}: this session has no {given!r}; it has {there}")


def setup_of(mcp_config: Sequence[str], mode: str | None, option: Sequence[str]) -> SessionSetup:
    """Return the setup for these arguments; reads files. Raises UsageError."""
    servers: dict[str, SessionServer] = {}
    for given in mcp_config:
        text, origin = given, "--mcp-config"
        if not given.lstrip().startswith("{"):
            origin = f"--mcp-config {given}"
            try:
                text = contents(os.path.expanduser(given), bounds.MCP_SERVERS_BYTES).decode()
            except OSError as error:
                raise UsageError(f"{origin}: {error.strerror}") from None
            except UnicodeDecodeError:
                raise UsageError(f"{origin}: not a text file") from None
        try:
            node = scan(text)
            config = msgspec.convert(None if node is None else node.value, _Config)
        except (JsoncError, msgspec.ValidationError) as error:
            raise UsageError(f"{origin}: {error}") from None
        if not (found := {**config.servers, **config.mcpServers}):
            raise UsageError(f'{origin}: no servers found; list them in {{"mcpServers": {{…}}}}')
        for name, server in found.items():
            servers[name] = _server(name, server, f"{origin}: {name}")
    options: list[tuple[str, str]] = []
    for given in option:
        name, equals, value = given.partition("=")
        if not (name and equals):
            raise UsageError(f"--option {given!r}: expected NAME=VALUE, as in --option model=large")
        options.append((name, value))
    return SessionSetup(tuple(servers.values()), mode, tuple(options))


class _ServerEntry(Struct):
    """A server in the form of Claude Code, Cursor, VS Code and others."""

    type: str = ""
    command: str = ""
    args: list[str] = []
    env: dict[str, str] = {}
    url: str = ""
    headers: dict[str, str] = {}


class _Config(Struct):
    mcpServers: dict[str, _ServerEntry] = {}
    servers: dict[str, _ServerEntry] = {}


def _server(name: str, given: _ServerEntry, origin: str) -> SessionServer:
    """Return a server in the form of the protocol; UsageError if it cannot be reached."""

    def fill(text: str) -> str:
        def value(match: re.Match[str]) -> str:
            found = os.environ.get(match[1], match[2])
            if found is None:
                raise UsageError(f"{origin}: the environment variable {match[1]} is not set")
            return found

        return _VARIABLE.sub(value, text)

    if given.command:
        command = fill(os.path.expanduser(given.command))
        path = on_path(command)
        if path is None:
            raise UsageError(f"{origin}: the program {command!r} was not found")
        args = tuple(map(fill, given.args))
        env = tuple(
            schema.EnvVariable(name=key, value=fill(text)) for key, text in given.env.items()
        )
        return schema.McpServerStdio(name=name, command=os.path.abspath(path), args=args, env=env)
    if not given.url:
        raise UsageError(f"{origin}: a server needs a command or a url")
    made = schema.McpServerSse if given.type == "sse" else schema.McpServerHttp
    headers = tuple(
        schema.HttpHeader(name=key, value=fill(it)) for key, it in given.headers.items()
    )
    return made(name=name, url=fill(given.url), headers=headers)
