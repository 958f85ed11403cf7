"""The first exchange on a connection: version, capabilities, authentication."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, TypeAlias

from msgspec import field

from acphold.schema.capabilities import AgentCapabilities, ClientCapabilities
from acphold.schema.shapes import (
    Extensible,
    GoodItems,
    Nothing,
    NullIsDefault,
    OrDefault,
    Otherwise,
    UInt16,
)

PROTOCOL_VERSION = 1
"""The version of ACP these types describe."""


class Implementation(Extensible, frozen=True):
    """Name and version of a program; `title` is for people."""

    name: str
    version: str
    title: OrDefault[str | None] = None


class AuthMethodAgent(Extensible, frozen=True):
    """The agent signs the user in by itself when asked with `authenticate`."""

    id: str
    name: str
    description: OrDefault[str | None] = None


class AuthMethodTerminal(Extensible, frozen=True, tag="terminal", tag_field="type"):
    """The client runs the agent's program with `args` and `env` in a terminal to sign in."""

    id: str
    name: str
    description: OrDefault[str | None] = None
    args: NullIsDefault[tuple[str, ...]] = ()
    env: NullIsDefault[dict[str, str]] = field(default_factory=dict)


if TYPE_CHECKING:
    AuthMethod: TypeAlias = AuthMethodTerminal | AuthMethodAgent
else:
    AuthMethod = Annotated[AuthMethodTerminal | Nothing, Otherwise(untagged=AuthMethodAgent)]


class InitializeRequest(Extensible, frozen=True):
    """`initialize`: the newest version the client speaks, and what it can do."""

    protocol_version: UInt16
    client_capabilities: OrDefault[ClientCapabilities] = ClientCapabilities()
    client_info: OrDefault[Implementation | None] = None


class InitializeResponse(Extensible, frozen=True):
    """The version the agent chose, and what it can do."""

    protocol_version: UInt16
    agent_capabilities: OrDefault[AgentCapabilities] = AgentCapabilities()
    auth_methods: GoodItems[tuple[AuthMethod, ...]] = ()
    agent_info: OrDefault[Implementation | None] = None


class AuthenticateRequest(Extensible, frozen=True):
    """`authenticate`: sign in with one of the `authMethods` of `initialize`."""

    method_id: str


class AuthenticateResponse(Extensible, frozen=True):
    """Signed in."""


class LogoutRequest(Extensible, frozen=True):
    """`logout`: forget who signed in."""


class LogoutResponse(Extensible, frozen=True):
    """Signed out."""
