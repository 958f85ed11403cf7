"""Whether a client has been let in: an agent may want each connection to sign in.

Two editors of one person, or a thousand clients of a service, share an agent, its hub and its
journal: that one of them has signed in says nothing about the others. So it is kept for each
connection by itself, and nothing is answered on one before it is known who is there: see
`Connection.on_request`.

A client that reaches a session in another process of ours has been let in by its own process, which
vouches for it on the Unix socket, where the kernel says that both are of one user.
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
    """Somebody at the other end of a connection.

    `principal` is who came, as far as that is known already; `client` what the program says of
    itself. `headers` are those of the request by which it came over HTTP, by their names in small
    letters. `meta` is the `_meta` of `authenticate`: what a client has to say beside the way.
    """

    principal: Principal
    client: Implementation | None = None
    headers: Mapping[str, str] = {}
    meta: Mapping[str, Any] = {}


class Door(Protocol):
    """Who lets visitors in. A tenant is whose sessions there are for somebody; "" is nobody's."""

    async def tenant(self, visitor: Visitor) -> str | None:
        """That of a visitor who is signed in already; None for one who is not."""

    async def sign_in(self, visitor: Visitor, method_id: str) -> str:
        """That of a visitor who signs in by this method; raises to refuse."""

    async def sign_out(self, visitor: Visitor) -> None:
        """The visitor signs out."""


class Entrance:
    """See the module; that of one connection. Who has a tenant already needs no door."""

    def __init__(self, door: Door | None, visitor: Visitor) -> None:
        self.visitor = visitor
        self.wants_sign_in = door is not None and visitor.principal.tenant is None
        self.is_in = not self.wants_sign_in
        self._door = door
        self._came_as = visitor.principal

    @property
    def principal(self) -> Principal:
        """Who this is, as far as it is known by now."""
        return self.visitor.principal

    @property
    def tenant(self) -> str | None:
        """Whose sessions there are for this client; None for all."""
        return self.visitor.principal.tenant

    async def require(self) -> None:
        """Have the client be in; raises AuthRequiredError if it has to sign in first."""
        if self.is_in or self._door is None:
            return
        tenant = await self._door.tenant(self.visitor)
        if tenant is None:
            raise AuthRequiredError("sign in first: see authMethods")
        self.let_in(tenant)

    async def sign_in(self, params: bytes) -> None:
        """`authenticate`; raises what the door refuses with."""
        assert self._door is not None
        asked = decode(AuthenticateRequest, params).value
        visitor = replace(self.visitor, meta=asked.meta or {})
        self.let_in(await self._door.sign_in(visitor, asked.method_id))

    async def sign_out(self) -> None:
        """`logout`."""
        assert self._door is not None
        await self._door.sign_out(self.visitor)
        self.visitor = replace(self.visitor, principal=self._came_as)
        self.is_in = False

    def let_in(self, tenant: str | None) -> None:
        """The client is in, as this tenant."""
        principal = replace(self.visitor.principal, tenant=tenant)
        self.visitor = replace(self.visitor, principal=principal)
        self.is_in = True
