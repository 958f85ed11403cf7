"""The table of what others may ask or tell us, as agents do a client; `server.methods` is that of
the other direction.

By the place of the peer:

    agent      an agent: its program here, or in this process
    process    an acphold of this user on this machine, also one that a program has started
    ssh        an acphold on another machine, over this user's ssh
    network    a server, or a node of the same database, on another machine; also a process of
               another place here (`machine.place`), whose files are not ours

    answered by    where
    -----------    ---------------------------------------------------------------------------
    session        `hub.conversation`; at a client its session
    person         `hub.questions`; at a client the person, or its policy
    workspace      `hub.services`: a client, or acphold, in the session's folders
    provider       the client that has named this MCP server for a session
    client         passed on to the client: it only shows it
    peer           `rpc.peer`, for the sender's own requests
    extension      passed on to the client, which knows the agent; never to another machine's

The near end decides. What no row names is refused with -32601, or dropped if it is a notification:
the files, the terminals and the extensions of this machine are for nobody on another one. A
database asks nothing: what it notifies makes us read rows. A page asks by `server.methods`.
"""

# See docs/decisions.md, 7.

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal

from msgspec import Struct

from acp_wire import schema
from acp_wire.schema.methods import CANCEL_REQUEST
from acphold.conversation.history.raw_update import OPENCODE_CHILD, OUR_METHODS
from acphold.live.agents import air
from acphold.live.agents.capabilities import QUEUE_METHOD
from acphold.mcp_servers.servers import MCP_MESSAGE

Place = Literal["agent", "process", "ssh", "network"]

HERE: Final[frozenset[Place]] = frozenset({"agent", "process"})
FAR: Final[frozenset[Place]] = frozenset({"ssh", "network"})
"""The places on this machine, and those on others."""

REQUEST: Final = "request"
NOTICE: Final = "notification"


class ClientMethodRow(Struct, frozen=True):
    """A method: its wire name, who answers, the places that it may come from, and its kinds."""

    name: str
    by: Literal["session", "person", "workspace", "provider", "client", "peer", "extension"]
    places: frozenset[Place] = HERE | FAR
    kinds: tuple[str, ...] = (REQUEST,)


_WORKSPACE: Final = (
    schema.READ_TEXT_FILE,
    schema.WRITE_TEXT_FILE,
    schema.CREATE_TERMINAL,
    schema.TERMINAL_OUTPUT,
    schema.RELEASE_TERMINAL,
    schema.WAIT_FOR_TERMINAL_EXIT,
    schema.KILL_TERMINAL,
)

CLIENT_ROWS: Final = {
    it.name: it
    for it in (
        ClientMethodRow(schema.UPDATE.name, "session", kinds=(NOTICE,)),
        ClientMethodRow(schema.REQUEST_PERMISSION.name, "person"),
        ClientMethodRow(schema.CREATE_ELICITATION.name, "person"),
        ClientMethodRow(schema.COMPLETE_ELICITATION.name, "client", kinds=(NOTICE,)),
        *(ClientMethodRow(it.name, "workspace", HERE) for it in _WORKSPACE),
        ClientMethodRow(MCP_MESSAGE, "provider", kinds=(REQUEST, NOTICE)),
        ClientMethodRow(CANCEL_REQUEST.name, "peer", kinds=(NOTICE,)),
        ClientMethodRow(QUEUE_METHOD, "client", FAR | {"process"}, (NOTICE,)),
        ClientMethodRow(air.CHANGES, "client", kinds=(NOTICE,)),
        ClientMethodRow(OPENCODE_CHILD, "client", kinds=(NOTICE,)),
    )
}
"""The methods with a row, by wire name."""

EXTENSION: Final = ClientMethodRow("", "extension", HERE, (REQUEST, NOTICE))
"""The row of any other, but of those that begin like ours."""

_NOBODY: Final = ClientMethodRow(OUR_METHODS, "extension", frozenset())


def client_row(name: str) -> ClientMethodRow:
    """Return the row of a method."""
    row = CLIENT_ROWS.get(name, EXTENSION)
    return _NOBODY if row is EXTENSION and name.startswith(OUR_METHODS) else row


Knows = Callable[[str], bool]
"""Returns True for an extension that the program itself answers to everybody."""


def knows_none(name: str) -> bool:
    """Return False: an editor's extensions are for agents on its machine."""
    return False


def may_ask(place: Place, name: str, knows: Knows = knows_none) -> bool:
    """Return True if a peer at this place may send us this request."""
    return _may(place, name, REQUEST, knows)


def may_tell(place: Place, name: str, knows: Knows = knows_none) -> bool:
    """Return True if a peer at this place may send us this notification."""
    return _may(place, name, NOTICE, knows)


def _may(place: Place, name: str, kind: str, knows: Knows) -> bool:
    row = client_row(name)
    return kind in row.kinds and (place in row.places or (row is EXTENSION and knows(name)))
