"""Signing in to an agent, and out again. Source: spec v1, authentication."""

from __future__ import annotations

from typing import TYPE_CHECKING

from acphold.errors import AuthRequiredError, InvalidParamsError, MethodNotFoundError
from acphold.rpc.incidents import guarded
from acphold.schema import LOGOUT, AuthenticateRequest, decode

if TYPE_CHECKING:
    from acphold.library.definition import AgentDefinition


class SignIn:
    """Whether the person is signed in, as far as this process knows."""

    def __init__(self, definition: AgentDefinition) -> None:
        self._definition = definition
        self._done = False

    async def require(self) -> None:
        """Raise AuthRequiredError if a sign-in is wanted and there was none."""
        if self._done or not self._definition.auth_methods:
            return
        asked = self._definition.signed_in_handler
        self._done = asked is not None and await guarded(asked())
        if not self._done:
            raise AuthRequiredError("sign in first: see authMethods")

    def lost(self) -> None:
        """The sign-in is good for nothing any more."""
        self._done = False

    async def authenticate(self, params: bytes) -> bytes:
        """`authenticate`: raises what the author's handler refuses with."""
        method_id = decode(AuthenticateRequest, params).value.method_id
        for method in self._definition.auth_methods:
            if method.id == method_id:
                await guarded(method.handler())
                self._done = True
                return b"{}"
        raise InvalidParamsError(f"methodId: no way to sign in is {method_id!r}", field="methodId")

    async def log_out(self, params: bytes) -> bytes:
        """`logout`."""
        if self._definition.logout_handler is None:
            raise MethodNotFoundError(LOGOUT.name)
        await guarded(self._definition.logout_handler())
        self._done = False
        return b"{}"
