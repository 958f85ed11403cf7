"""Who is at the other end of a connection, and what they may: decided here and nowhere else.

A process of the user who runs us comes by a pipe or the Unix socket, and may do everything. Who
comes over the network has a token (`journal.access`), which names scopes:

| scope | what it permits |
|---|---|
| watch | to list, open, and read sessions |
| prompt | to prompt in them, and to cancel and close |
| answer | to be asked what the agent asks, and to set modes and options, which answer, too |
| manage | to begin, copy and delete sessions, and to sign in |

A token may be for one session alone; the others are then as if they were not there. So it is with
the sessions of other tenants for who has one, but for those that are shared: in these they may
watch, or prompt and answer as well, where their token permits it. `Principal.scopes_in` is the one
rule of this; what asks for many rows at once has it as `SessionRow.is_there_for`, of which it is
made, and its store in its own language.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from msgspec import Struct

from acphold.agents.capabilities import permitted
from acphold.errors import ForbiddenError, UnknownSessionError
from acphold.hub.forks import FORK_SESSION
from acphold.journal import SessionRow
from acphold.journal.access import SCOPES, Scope
from acphold.schema import (
    CANCEL,
    CLOSE_SESSION,
    INITIALIZE,
    LIST_SESSIONS,
    LOAD_SESSION,
    NEW_SESSION,
    PROMPT,
    RESUME_SESSION,
    SET_SESSION_CONFIG_OPTION,
    SET_SESSION_MODE,
)
from acphold.schema.session_ids import session_id_in
from acphold.schema.splice import members

NEEDED: Final[dict[str, Scope]] = {
    LIST_SESSIONS.name: "watch",
    LOAD_SESSION.name: "watch",
    RESUME_SESSION.name: "watch",
    PROMPT.name: "prompt",
    CANCEL.name: "prompt",
    CLOSE_SESSION.name: "prompt",
    SET_SESSION_MODE.name: "answer",
    SET_SESSION_CONFIG_OPTION.name: "answer",
}
"""The scope that a method needs; one that is not here, an agent's own among them, needs manage."""

MAKE: Final = frozenset({NEW_SESSION.name, FORK_SESSION})
"""What makes a session: it is written down with the id of that one by who has made it."""

SHARED: Final[dict[bool, frozenset[Scope]]] = {
    False: frozenset({"watch"}),
    True: frozenset({"watch", "prompt", "answer"}),
}
"""What a session that is shared permits, by whether it is shared to be gone on with."""

STARTS = ("mcpServers", "additionalDirectories")
"""What a client may name when it opens a session that reaches beyond it: programs that are then
started, and folders whose files are then served."""


Note = Callable[[str, str | None], None]
"""Writes down what somebody does, and in which session."""


def unnoted(deed: str, session_id: str | None) -> None:
    """What a person does at their own machine is written down nowhere."""


class Principal(Struct, frozen=True, kw_only=True):
    """Somebody who is connected. `name` is for lists and the log.

    `session_id` is the only session that there is for them, None for all. Where they are on another
    machine, `is_here` is False: neither their files nor their terminals are those of the session.
    Who `vouches` is a process of ours, which says whom it has let in itself (`server.entrance`).
    `tenant` is whose sessions there are for them, "" for those that are nobody's; None for all.
    `note` writes down what they do, `refused` what they asked and may not.
    """

    name: str
    scopes: frozenset[Scope] = frozenset(SCOPES)
    session_id: str | None = None
    is_here: bool = True
    vouches: bool = False
    tenant: str | None = None
    note: Note = unnoted
    refused: Note = unnoted

    def does(self, method: str, params: bytes) -> None:
        """They do this, which they may: write it down, unless they only look."""
        if self.note is not unnoted and method not in MAKE and NEEDED.get(method) != "watch":
            self.note(method, session_id_in(params))

    def check(self, method: str, params: bytes) -> None:
        """Refuse what they may not ask; raises ForbiddenError, UnknownSessionError."""
        if self is THIS_USER or self.vouches or method == INITIALIZE.name:
            return
        try:
            if self.session_id is not None:
                session_id = session_id_in(params)
                if session_id not in (None, self.session_id):
                    raise UnknownSessionError(session_id)
            self._need(NEEDED.get(method, "manage"), method)
            if "manage" not in self.scopes and method in (LOAD_SESSION.name, RESUME_SESSION.name):
                named = members(params)
                for name in STARTS:
                    if named.get(name, b"null").strip() not in (b"null", b"[]"):
                        self._need("manage", f"{name} of {method}")
        except (ForbiddenError, UnknownSessionError):
            self.refused(method, session_id_in(params))
            raise

    def owns(self, tenant: str) -> bool:
        """Whether the sessions of a tenant are theirs."""
        return self.tenant in (None, tenant)

    def scopes_in(self, row: SessionRow) -> frozenset[Scope]:
        """What they may in a session; nothing in one that is not there for them."""
        if self.session_id not in (None, row.session_id) or not row.is_there_for(self.tenant):
            return frozenset()
        if self.owns(row.tenant):
            return self.scopes
        return self.scopes & SHARED[row.shared_with[self.tenant or ""]]

    def check_in(self, row: SessionRow, method: str) -> None:
        """Refuse what they may not ask in a session; ForbiddenError, and UnknownSessionError, the
        same as for one that there is not."""
        scopes = self.scopes_in(row)
        if not scopes:
            self.refused(method, row.session_id)
            raise UnknownSessionError(row.session_id)
        if (scope := NEEDED.get(method, "manage")) not in scopes:
            self.refused(method, row.session_id)
            raise ForbiddenError(method, scope, is_shared=not self.owns(row.tenant))

    @property
    def sees_all(self) -> bool:
        """Whether every session of everybody is there for them."""
        return self.tenant is None and self.session_id is None

    def introduced(self, params: bytes) -> bytes:
        """Their `initialize`, without what they cannot do for a session of this machine."""
        answers = "answer" in self.scopes
        return permitted(params, is_here=self.is_here, answers=answers, vouches=self.vouches)

    def _need(self, scope: Scope, wanted: str) -> None:
        if scope not in self.scopes:
            raise ForbiddenError(wanted, scope)


THIS_USER: Final = Principal(name="this user")
"""The editor that started us, or whoever else has the other end of our pipe."""

NEIGHBOUR: Final = Principal(name="a process of this user", vouches=True)
"""Whoever came over the Unix socket, and the kernel says is the user we run as. A process of ours
may say there whom it has let in itself (`server.entrance`)."""

FAR_NEIGHBOUR: Final = Principal(name="a process of another node", is_here=False, vouches=True)
"""The same on another machine, or by its way, with a token of the nodes."""
