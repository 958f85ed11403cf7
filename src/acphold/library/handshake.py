"""The introduction of an agent, before any session: `initialize`, and signing in and out.

Source: spec v1, initialization; authentication.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from acphold.errors import InvalidParamsError, MethodNotFoundError
from acphold.extras import is_installed
from acphold.rpc.wire_errors import guarded
from acphold.schema import (
    LOGOUT,
    PROTOCOL_VERSION,
    AgentAuthCapabilities,
    AgentCapabilities,
    AuthMethodAgent,
    Implementation,
    InitializeResponse,
    LogoutCapabilities,
    McpCapabilities,
    PromptCapabilities,
    SessionAdditionalDirectoriesCapabilities,
    SessionCapabilities,
    SessionCloseCapabilities,
    SessionResumeCapabilities,
    encode,
)
from acphold.schema.splice import members, splice

if TYPE_CHECKING:
    from acphold.library.definition import Definition
    from acphold.server.entrance import Visitor


class SignIn:
    """The author's ways to sign in, as a `server.entrance.Door`."""

    def __init__(self, definition: Definition) -> None:
        self._definition = definition

    async def tenant(self, visitor: Visitor) -> str | None:
        asked = self._definition.signed_in
        said = False if asked is None else await guarded(asked(visitor))
        return said if isinstance(said, str) else "" if said is True else None

    async def sign_in(self, visitor: Visitor, method_id: str) -> str:
        for method in self._definition.auth_methods:
            if method.id == method_id:
                return await guarded(method.handler(visitor)) or ""
        raise InvalidParamsError(f"methodId: no way to sign in is {method_id!r}", field="methodId")

    async def sign_out(self, visitor: Visitor) -> None:
        if self._definition.logout is None:
            raise MethodNotFoundError(LOGOUT.name)
        await guarded(self._definition.logout(visitor))


def introduction(definition: Definition, capabilities: AgentCapabilities) -> bytes:
    """Return the answer to `initialize`."""
    answer = encode(
        InitializeResponse(
            protocol_version=PROTOCOL_VERSION,
            agent_capabilities=capabilities,
            auth_methods=tuple(
                AuthMethodAgent(id=method.id, name=method.name, description=method.description)
                for method in definition.auth_methods
            ),
            agent_info=Implementation(
                name=definition.name, version=definition.version, title=definition.title
            ),
        )
    )
    # `mcpCapabilities.acp` is in the unstable schema only.
    can = members(answer)["agentCapabilities"]
    acp = b"true" if capabilities.mcp_capabilities.http else None  # by the same package
    mcp = splice(members(can)["mcpCapabilities"], {"acp": acp})
    return splice(answer, {"agentCapabilities": splice(can, {"mcpCapabilities": mcp})})


def capabilities_of(definition: Definition) -> AgentCapabilities:
    """Return the capabilities that the agent advertises."""
    has_mcp = is_installed("mcp")
    logout = LogoutCapabilities() if definition.logout is not None else None
    return AgentCapabilities(
        prompt_capabilities=PromptCapabilities(
            image=definition.image,
            audio=definition.audio,
            embedded_context=definition.embedded_context,
        ),
        mcp_capabilities=McpCapabilities(http=has_mcp, sse=has_mcp),
        session_capabilities=SessionCapabilities(
            additional_directories=SessionAdditionalDirectoriesCapabilities(),
            resume=SessionResumeCapabilities(),
            close=SessionCloseCapabilities(),
        ),
        auth=AgentAuthCapabilities(logout=logout),
    )
