"""Letting clients in: an agent may require each connection to sign in.

Two editors of one person, or a thousand clients of a service, share an agent, its hub and its
journal: a sign-in of one of them says nothing about the others. So it is kept for each connection,
and nothing is answered on a connection before its principal is known: see
`ClientConnection.on_request`.

A client that reaches a session in another process of ours has been let in by its own process, which
vouches for it on the Unix socket, where the kernel says that both belong to one user.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from msgspec import Struct
from msgspec.structs import replace

from acphold.errors import AuthRequiredError
from acphold.schema import AuthenticateRequest, Implementation, decode
from acphold.server.principals import Principal


class Visitor(Struct, frozen=True, kw_only=True):
    """A person or program at the other end of a connection.

    `principal` is its identity, as far as that is known already; `client` is the program's
    introduction. `headers` are those of its HTTP request, if any, by lower-case name. `meta` is the
    `_meta` of `authenticate`: what a client adds to the method.
    """

    principal: Principal
    client: Implementation | None = None
    headers: Mapping[str, str] = {}
    meta: Mapping[str, Any] = {}


class Door(Protocol):
    """Lets visitors in. A tenant says whose sessions a visitor sees; "" is for sessions of nobody
    in particular."""

    async def tenant(self, visitor: Visitor) -> str | None:
        """Return the tenant of a visitor who is signed in already; None if not signed in."""

    async def sign_in(self, visitor: Visitor, method_id: str) -> str:
        """Return the tenant of a visitor who signs in by this method; raises to refuse."""

    async def sign_out(self, visitor: Visitor) -> None:
        """Sign the visitor out."""


class Entrance:
    """See the module; one connection's. A principal with a tenant needs no door."""

    def __init__(self, door: Door | None, visitor: Visitor) -> None:
        principal = visitor.principal
        self.wants_sign_in = door is not None and principal.tenant is None
        if self.wants_sign_in:
            principal = replace(principal, sees_all=False)
        self.visitor = replace(visitor, principal=principal)
        self.is_in = not self.wants_sign_in and principal.is_known
        self._door = door
        self._came_as = principal

    @property
    def principal(self) -> Principal:
        """The principal, as far as it is known by now."""
        return self.visitor.principal

    @property
    def tenant(self) -> str | None:
        """The tenant whose sessions this client sees; None for all."""
        return self.visitor.principal.tenant

    async def require(self) -> None:
        """Require the client to be in; raises AuthRequiredError if it has to sign in first."""
        if self.is_in:
            return
        if self._door is None:
            raise AuthRequiredError("nobody has said which sessions there are for you")
        tenant = await self._door.tenant(self.visitor)
        if tenant is None:
            raise AuthRequiredError("sign in first: see authMethods")
        self.let_in(tenant)

    async def sign_in(self, params: bytes) -> None:
        """Answer `authenticate`; raises the door's refusal."""
        assert self._door is not None
        asked = decode(AuthenticateRequest, params).value
        visitor = replace(self.visitor, meta=asked.meta or {})
        self.let_in(await self._door.sign_in(visitor, asked.method_id))

    async def sign_out(self) -> None:
        """Answer `logout`."""
        assert self._door is not None
        await self._door.sign_out(self.visitor)
        self.visitor = replace(self.visitor, principal=self._came_as)
        self.is_in = False

    def let_in(self, tenant: str | None) -> None:
        """Let the client in as this tenant; None for all, if a process of ours says so."""
        sees_all = tenant is None and self.visitor.principal.session_id is None
        principal = replace(self.visitor.principal, tenant=tenant, sees_all=sees_all)
        self.visitor = replace(self.visitor, principal=principal)
        self.is_in = True
