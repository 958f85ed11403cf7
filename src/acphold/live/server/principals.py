"""The identity at the other end of a connection, and its permissions: decided here alone.

A process of the user who runs us connects through a pipe or the Unix socket, and may do everything.
A client from the network has a token (`journal.access`), which names scopes:

| scope | what it permits |
|---|---|
| watch | to list, open, and read sessions |
| prompt | to prompt in them, also into a running turn, and to cancel and close |
| answer | to be asked what the agent asks, and to set modes and options, which answer, too |
| manage | to begin (with prompt), copy and delete sessions, to move them away, to sign in, and |
|        | to say to an agent what the protocol does not know |
| files | to copy sessions with kept files into folders of this machine, or to move these, too; |
|        | to begin sessions in new work trees, to merge these, and to remove them (with manage) |
| rules | to make standing answers for their own sessions; revoking one needs answer, or rules |

A token can be for one session alone; the others then do not exist for it. The same applies to
sessions of other tenants, except shared ones: in these a tenant may watch, or prompt and answer as
well, if the token permits it. `Principal.scopes_in` is the one rule for this. Queries over many
rows use its part `SessionRow.is_there_for`; each store has that in its own language.

Two editors of one person, or a thousand clients of a service, share an agent, its hub and its
journal, but not a sign-in. So that is kept for each connection, and nothing is answered on a
connection before its principal is known: see `ClientConnection.on_request`.

A client that reaches a session in another process of ours was admitted by its own process, which
vouches for it on the Unix socket, where the kernel guarantees that both belong to one user. It also
names the client's scopes.

The scopes of each method are in `server.methods`. A right belongs to a field, too:
`server.open_params` and `server.field_rights`.
"""

# See docs/decisions.md, 20.

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, Protocol

from msgspec import Struct
from msgspec.structs import replace

from acp_wire import schema
from acp_wire.schema.methods import REQUESTS
from acphold.errors import AuthRequiredError, ForbiddenError, UnknownSessionError
from acphold.journal.access import SCOPES, Scope
from acphold.journal.journal import row_of
from acphold.journal.rows import SessionRow
from acphold.live.agents import capabilities
from acphold.live.agents.air import within
from acphold.live.agents.capabilities import ASKED
from acphold.live.server.methods import Asked

if TYPE_CHECKING:  # only for types: a principal needs no hub
    from acphold.live.hub.hub import Hub

SHARED: Final[dict[bool, frozenset[Scope]]] = {
    False: frozenset({"watch"}),
    True: frozenset({"watch", "prompt", "answer"}),
}
"""The scopes in a shared session; True if it is shared to be continued."""

Note = Callable[[str, str | None], None]
"""Records an action of a principal, and its session."""


def note_nothing(deed: str, session_id: str | None) -> None:
    """Record nothing: a person's actions at their own machine are not recorded."""


class Principal(Struct, frozen=True, kw_only=True):
    """Somebody who connects: their `name`, for lists and the log, and the sessions they may use.

    `tenant` is the user or customer whose sessions these are ("" for nobody in particular);
    `session_id` is for this session alone, `sees_all=True` for the sessions of all tenants. With
    none of the three they have to sign in (`Agent.auth`) before they see any.

    `scopes` are their permissions there. Their connections end at `expires_at`, which has a
    zone. `is_here` is False for somebody on another machine, whose files and terminals are not the
    session's. `note` is called with each action, `refused` with each refused request: the method,
    and the session's id or None.
    """

    name: str
    scopes: frozenset[Scope] = frozenset(SCOPES)
    tenant: str | None = None
    session_id: str | None = None
    sees_all: bool = False
    expires_at: datetime | None = None
    is_here: bool = True
    note: Callable[[str, str | None], None] = note_nothing
    refused: Callable[[str, str | None], None] = note_nothing
    vouches: bool = False  # a process of ours, which reports whom it has admitted
    place: str = ""  # the name of the other place that such a process runs in

    def __post_init__(self) -> None:
        if self.expires_at is not None and self.expires_at.tzinfo is None:
            raise ValueError("expires_at needs a zone, as datetime.now(UTC) has")
        if self.sees_all and (self.tenant is not None or self.session_id is not None):
            raise ValueError("sees_all cannot be combined with tenant or session_id")

    @property
    def ends_at(self) -> float | None:
        """The end of their connections, in seconds since 1970."""
        return None if self.expires_at is None else self.expires_at.timestamp()

    @property
    def person(self) -> str | None:
        """The person whose standing answers are theirs; None for one session's guest."""
        if not self.is_known or self.session_id is not None:
            return None
        return self.tenant or ""

    @property
    def is_known(self) -> bool:
        """True if it is known which sessions they may use."""
        return self.sees_all or self.tenant is not None or self.session_id is not None

    def does(self, asked: Asked) -> None:
        """Record an action, unless it only looks."""
        if self.note is note_nothing or REQUESTS[asked.name].makes:
            return
        if asked.needs != ("watch",):
            self.note(asked.name, asked.session_id)

    def check(self, asked: Asked) -> None:
        """Refuse a request that they may not make; raises ForbiddenError, UnknownSessionError."""
        if self is THIS_USER or (self.vouches and not self.place):
            return
        try:
            session_id = asked.session_id
            if self.session_id is not None and session_id not in (None, self.session_id):
                raise UnknownSessionError(session_id)
            for scope in asked.needs:
                if scope not in self.scopes:
                    raise ForbiddenError(asked.name, scope, place=self.place)
        except (ForbiddenError, UnknownSessionError):
            self.refused(asked.name, session_id)
            raise

    def leaves_out(self, method: str, session_id: str | None, names: Sequence[str]) -> None:
        """Record the names of members that they may not say there."""
        if names:
            self.refused(f"{', '.join(names)} in {method}", session_id)

    def owns(self, tenant: str) -> bool:
        """Return True if the sessions of a tenant are theirs."""
        return self.tenant == tenant or (self.tenant is None and self.is_known)

    def scopes_in(self, row: SessionRow) -> frozenset[Scope]:
        """Return their scopes in a session; none if they may not know of it."""
        if not self.is_known or self.session_id not in (None, row.session_id):
            return frozenset()
        if not row.is_there_for(self.tenant):
            return frozenset()
        if self.owns(row.tenant):
            return self.scopes
        return self.scopes & SHARED[row.shared_with[self.tenant or ""]]

    def check_in(self, row: SessionRow, asked: Asked) -> None:
        """Refuse a request that they may not make in a session; raises ForbiddenError, or
        UnknownSessionError, as for a session that does not exist."""
        scopes = self.scopes_in(row)
        if not scopes:
            self.refused(asked.name, row.session_id)
            raise UnknownSessionError(row.session_id)
        for scope in asked.needs:
            if scope not in scopes:
                self.refused(asked.name, row.session_id)
                raise ForbiddenError(asked.name, scope, is_shared=not self.owns(row.tenant))

    def restrict_introduction(self, params: bytes) -> bytes:
        """Return their `initialize`, without capabilities that do not fit a session of this
        machine; if they do not answer, they only watch."""
        answers = "answer" in self.scopes
        if not self.is_here:
            params = capabilities.introduction_for_afar(params)
        if not (self.is_here or self.vouches):  # its client is no process of ours
            ours = (capabilities.LINE, capabilities.TENANT, capabilities.SCOPES, capabilities.GUEST)
            params = within(params, ASKED, dict.fromkeys(ours))
        return params if answers else within(params, ASKED, {capabilities.WATCHES: b"true"})


THIS_USER: Final = Principal(name="this user", sees_all=True)
"""The editor that started us, or another program at the end of our pipe."""

LOCAL_PROCESS: Final = Principal(name="a process of this user", vouches=True, sees_all=True)
"""A peer on the Unix socket; the kernel guarantees that it is of our user. A process of ours may
report there whom it has admitted itself."""

OTHER_PLACE: Final = replace(
    LOCAL_PROCESS, name="a process of another place", scopes=frozenset({"watch"}), place="unknown"
)
"""The same in another place, such as a sandbox: see `server.places`."""

OTHER_NODE: Final = Principal(
    name="a process of another node", is_here=False, vouches=True, sees_all=True
)
"""The same on another machine, or reached that way, with a token of the nodes."""


class Visitor(Struct, frozen=True, kw_only=True):
    """A person or program at the other end of a connection.

    `client` is the program's introduction. `headers` are those of its HTTP request, by lower-case
    name. `meta` is the `_meta` of `authenticate`.
    """

    principal: Principal
    client: schema.Implementation | None = None
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
    """The sign-in of one connection: see the module. A principal with a tenant needs no door."""

    def __init__(self, door: Door | None, visitor: Visitor) -> None:
        principal = visitor.principal
        self.wants_sign_in = door is not None and principal.tenant is None
        if self.wants_sign_in:
            principal = replace(principal, sees_all=False)
        self.visitor = replace(visitor, principal=principal)
        self.is_in = not self.wants_sign_in and principal.is_known
        self.door = door
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
        if self.door is None:
            raise AuthRequiredError("this connection has no access to any sessions yet")
        tenant = await self.door.tenant(self.visitor)
        if tenant is None:
            raise AuthRequiredError("sign in first: see authMethods")
        self.let_in(tenant)

    async def sign_in(self, params: bytes) -> None:
        """Answer `authenticate`; raises the door's refusal."""
        assert self.door is not None
        asked = schema.decode(schema.AUTHENTICATE.params, params).value
        visitor = replace(self.visitor, meta=asked.meta or {})
        self.let_in(await self.door.sign_in(visitor, asked.method_id))

    def require_again(self) -> None:
        """Require a new sign-in, if each connection has to sign in itself."""
        if self.wants_sign_in:
            self.is_in = False

    async def sign_out(self) -> None:
        """Answer `logout`."""
        assert self.door is not None
        await self.door.sign_out(self.visitor)
        self.visitor = replace(self.visitor, principal=self._came_as)
        self.is_in = False

    def let_in(self, tenant: str | None, scopes: frozenset[Scope] | None = None) -> None:
        """Let the client in as this tenant; None for all, if a process of ours says so. `scopes`
        are those that it names, too."""
        sees_all = tenant is None and self.visitor.principal.session_id is None
        principal = replace(self.visitor.principal, tenant=tenant, sees_all=sees_all)
        if scopes is not None:
            principal = replace(principal, scopes=scopes & principal.scopes)
        self.visitor = replace(self.visitor, principal=principal)
        self.is_in = True


class OwnSessions:
    """The sessions that one client may use: those of its tenant, and those shared with it.

    Checked sessions of its tenant are remembered until `clear`; a share is checked each time.
    `is_open` says if the client has a session open anywhere, or is opening it. The journal's
    `are_all` if no agent has others."""

    def __init__(
        self, hub: Hub, entrance: Entrance, is_open: Callable[[str], bool], *, are_all: bool
    ) -> None:
        self._hub = hub
        self._entrance = entrance
        self._is_open = is_open
        self._are_all = are_all
        self._known: set[str] = set()  # sessions not held here
        self._shared: dict[str, frozenset[Scope]] = {}

    def scopes(self, session_id: str) -> frozenset[Scope]:
        """Return the client's scopes in a session that it was let into; "" for none.

        An id of no session is that of a sub-agent, which may be at work in any that is shared.
        """
        scopes = self._entrance.principal.scopes
        if session_id in self._shared:
            return self._shared[session_id]
        if not self._shared or session_id in ("", *self._known) or self._hub.holds(session_id):
            return scopes
        return scopes.intersection(*self._shared.values())

    @property
    def are_shared(self) -> bool:
        """True if any of them is shared with the client, by somebody else."""
        return bool(self._shared)

    def is_known(self, session_id: str | None) -> bool:
        """Return True if this client is known to have access to this session, or for none."""
        if self._entrance.tenant is None or session_id is None:
            return True
        if self._hub.holds(session_id):
            session = self._hub.conversation(session_id).session
            return self._entrance.principal.owns(session.tenant)
        # Checked when the client opened it.
        return session_id in self._known and self._is_open(session_id)

    async def require(self, asked: Asked) -> None:
        """Check that this client has access to the session that a message names, if any.

        Raises ForbiddenError, or UnknownSessionError: the same if no such session exists and if the
        client may not know of it.
        """
        session_id = asked.session_id
        if session_id is None or self.is_known(session_id):
            return
        principal = self._entrance.principal
        try:
            row = await self._hub.journal.session(session_id)
        except UnknownSessionError:
            if self._are_all or not principal.owns(""):
                raise
            return  # the agent's own
        principal.check_in(row, asked)
        if principal.owns(row.tenant):
            self._known.add(session_id)
            self._shared.pop(session_id, None)
        else:
            self._shared[session_id] = principal.scopes_in(row)

    async def has_less(self) -> bool:
        """Return True if less is shared with the client now than when it was let in."""
        for session_id, scopes in [*self._shared.items()]:
            row = await row_of(self._hub.journal, session_id)
            if row is None or not scopes <= self._entrance.principal.scopes_in(row):
                return True
        return False

    def clear(self) -> None:
        """Forget all checked sessions: the client has to be let in again."""
        self._known.clear()
        self._shared.clear()
