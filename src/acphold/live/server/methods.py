"""The table of methods: what each needs, who answers, and when it may come. That of the other
direction is `agents.client_methods`.

A method that acphold answers for one client goes to the agent for none. A method that no row knows
is an extension's, or newer than this release: it needs `manage`, and goes to the agent.

    answered by     where
    --------------  ---------------------------------------------------------------------------
    introduction    `ClientConnection.introduce`
    process         `server.process_requests`, for this user's other processes
    entrance        a door's sign-in; without a door the agent
    opener          `server.session_opener`
    list, journal   `server.unstable`
    index           `server.session_index`, for JetBrains AIR; for others refused
    deletion        `SessionRequests.answer`, which for AIR without an index archives
    prompt          `SessionRequests.prompt`
    session         `SessionRequests.answer`
    agent           the same, which passes it on
"""

# See docs/decisions.md, 20.

from __future__ import annotations

from typing import Final, Literal

from msgspec import Struct

from acp_wire import schema
from acp_wire.schema import members
from acp_wire.schema.methods import ARCHIVE_SESSION, FORK_SESSION
from acp_wire.schema.splice import json_value, session_id_in
from acphold.journal.access import Scope
from acphold.live.agents import air, extensions
from acphold.live.agents.capabilities import QUEUE_METHOD
from acphold.live.reading.one_question import CHANGED, PRESENCE, SIGNED_IN, STOP

AnsweredBy = Literal[
    "introduction",
    "process",
    "entrance",
    "opener",
    "list",
    "journal",
    "index",
    "deletion",
    "prompt",
    "session",
    "agent",
]


class NoMembers(Struct, rename="camel"):
    """Params of which nothing but the session is known."""

    session_id: str = ""


class MethodRow(Struct, frozen=True):
    """A method: its wire name, the scopes that it needs, and who answers.

    The members of `params` need no more than that; all others need `manage`
    (`server.field_rights`). A request with the member `special[0]`, neither false nor null, needs
    the scopes `special[1]` instead. A notification gets no answer. It may come `before_initialize`,
    or `before_entry`: before it is known whose sessions the client may use. One that
    `changes_terms` changes for whom, or where, an agent works: its account or its endpoint.
    """

    name: str
    needs: tuple[Scope, ...] = ("manage",)
    by: AnsweredBy = "agent"
    params: type[Struct] = NoMembers
    special: tuple[str, tuple[Scope, ...]] | None = None
    is_notification: bool = False
    before_initialize: bool = False
    before_entry: bool = False
    changes_terms: bool = False


class Asked(Struct, frozen=True, gc=False):
    """A message of a client, read once for all rights: its wire name, the row of its method, the
    session that it names, if any, and the scopes that it needs.

    One of this user, who has all rights, is not read: a prompt may be long. It then names nothing.
    """

    name: str
    method: MethodRow
    session_id: str | None = None
    needs: tuple[Scope, ...] = ()

    @classmethod
    def read(cls, name: str, params: bytes = b"{}") -> Asked:
        """Read a message; raises InvalidParamsError if it cannot be read."""
        method = method_of(name)
        if method.special is None:
            return cls(name, method, session_id_in(params), method.needs)
        member, scopes = method.special
        parts = members(params or b"{}")
        is_plain = parts.get(member, b"null").strip() in (b"null", b"false")
        session_id = json_value(parts.get("sessionId"), str)
        return cls(name, method, session_id, method.needs if is_plain else scopes)


_KNOWN: Final = (
    MethodRow(
        schema.INITIALIZE.name,
        (),
        "introduction",
        schema.INITIALIZE.params,
        before_initialize=True,
        before_entry=True,
    ),
    MethodRow(
        schema.AUTHENTICATE.name,
        by="entrance",
        params=schema.AUTHENTICATE.params,
        before_entry=True,
        changes_terms=True,
    ),
    MethodRow(schema.LOGOUT.name, by="entrance", params=schema.LOGOUT.params, changes_terms=True),
    MethodRow(extensions.SET_PROVIDER, changes_terms=True),
    MethodRow(extensions.DISABLE_PROVIDER, changes_terms=True),
    MethodRow(schema.NEW_SESSION.name, ("manage", "prompt"), "opener", schema.NEW_SESSION.params),
    MethodRow(schema.LOAD_SESSION.name, ("watch",), "opener", schema.LOAD_SESSION.params),
    MethodRow(schema.RESUME_SESSION.name, ("watch",), "opener", schema.RESUME_SESSION.params),
    MethodRow(FORK_SESSION.name, by="journal", params=FORK_SESSION.params),
    MethodRow(schema.LIST_SESSIONS.name, ("watch",), "list", air.ListRequest),
    MethodRow(schema.PROMPT.name, ("prompt",), "prompt", schema.PROMPT.params),
    MethodRow(
        schema.CANCEL.name, ("prompt",), "session", schema.CANCEL.params, is_notification=True
    ),
    MethodRow(schema.CLOSE_SESSION.name, ("prompt",), "session", schema.CLOSE_SESSION.params),
    MethodRow(schema.DELETE_SESSION.name, by="deletion", params=schema.DELETE_SESSION.params),
    MethodRow(schema.SET_SESSION_MODE.name, ("answer",), "session", schema.SET_SESSION_MODE.params),
    MethodRow(
        schema.SET_SESSION_CONFIG_OPTION.name,
        ("answer",),
        "session",
        schema.SET_SESSION_CONFIG_OPTION.params,
    ),
    MethodRow(
        QUEUE_METHOD,
        ("watch",),
        "session",
        extensions.QueueRequest,
        special=("change", ("watch", "prompt")),
    ),
    MethodRow(extensions.STEERING, ("prompt",), params=extensions.SteeringRequest),
    MethodRow(
        extensions.FORK_METHOD,
        by="journal",
        params=extensions.CopyRequest,
        special=("files", ("files",)),
    ),
    MethodRow(
        extensions.TREE_METHOD, ("manage", "files"), by="journal", params=extensions.TreeRequest
    ),
    # A pin is a person's own; tags are the session's, as its title is.
    MethodRow(
        extensions.MARK_METHOD,
        ("watch",),
        by="journal",
        params=extensions.MarkRequest,
        special=("tags", ("manage",)),
    ),
    MethodRow(air.SET_TITLE, by="journal", params=air.RenameRequest),
    MethodRow(air.RENAME, by="journal", params=air.RenameRequest),
    MethodRow(ARCHIVE_SESSION.name, by="journal"),
    MethodRow(air.DRAFT_UNARCHIVE, by="journal"),
    MethodRow(air.ARCHIVE, by="journal"),
    MethodRow(air.UNARCHIVE, by="journal"),
    MethodRow(air.STATUS, by="journal"),
    MethodRow(air.BATCH_GET, ("watch",), "index", air.BatchGetRequest),
    MethodRow(air.SUBSCRIBE, ("watch",), "index", air.SubscribeRequest),
    MethodRow(air.UNSUBSCRIBE, ("watch",), "index", air.UnsubscribeRequest),
    MethodRow(PRESENCE, ("watch",), "process", before_initialize=True, before_entry=True),
    MethodRow(CHANGED, by="process", before_initialize=True, before_entry=True),
    MethodRow(STOP, by="process", before_initialize=True, before_entry=True),
    MethodRow(SIGNED_IN, ("manage", "prompt"), "process", before_entry=True),
)

METHODS: Final = {it.name: it for it in _KNOWN}
"""The methods with a row, by wire name."""

UNKNOWN: Final = MethodRow("")
"""The row of any other."""


def method_of(name: str) -> MethodRow:
    """Return the row of a method."""
    return METHODS.get(name, UNKNOWN)
