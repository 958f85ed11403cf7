"""The words between a server in front of a network and the daemon.

Over the streams of the server's front both speak JSON-RPC:

    REGISTER    request of the server: which agents it serves, and at which address other nodes
                reach it; the answer is the mark of its clients
    AGENT_OF    request of the server: the agent of a session
    APPENDS     request of the server: how long appends to the journal have taken
    STIRRED     notification: something has happened in the daemon (`hub.alerts.Activity`); what its
                clients have done meanwhile, or were refused, for the audit log

Each client of the network then has a connection of its own to the daemon's socket. Its first line,
RELAYED, says who the client is; the server has made sure of that, and the daemon enforces it. All
that follows is the client's own.
"""

# See docs/decisions.md, 20.

from __future__ import annotations

from typing import Final

from msgspec import Struct

from acp_wire.rpc import Transport
from acp_wire.schema import encode
from acphold.journal.access import Scope
from acphold.live.server import bounds
from acphold.live.server.checked_params import decode_params
from acphold.machine.reread import reread

REGISTER: Final = "_acphold/serve"
AGENT_OF: Final = "_acphold/agentOf"
APPENDS: Final = "_acphold/appends"
STIRRED: Final = "_acphold/stirred"
RELAYED: Final = "_acphold/relayed"


class AskedAgent(Struct, frozen=True):
    """An agent of a server: its name, the words of `wrap` that mean it, the command that they name,
    and its variables besides the server's."""

    name: str
    words: tuple[str, ...]
    command: tuple[str, ...]
    env: dict[str, str] = {}


class Registration(Struct, frozen=True):
    """The params of REGISTER: the agents, the default one first; the folder of the first new
    session; the address of this machine for other nodes."""

    agents: tuple[AskedAgent, ...]
    folder: str | None = None
    node: str | None = None


class Registered(Struct, frozen=True):
    """The result of REGISTER: the mark of the server's clients, and that of other nodes, which
    stays while the daemon runs."""

    mark: str
    node_mark: str


class SessionAsked(Struct, frozen=True):
    """The params of AGENT_OF."""

    session: str


class AgentTold(Struct, frozen=True):
    """Its result: the name of the agent; None if it is unknown or not served here."""

    agent: str | None


class DeedTold(Struct, frozen=True):
    """A deed in STIRRED: the number of the client, what it has done, or wanted and was refused, its
    session, and the time in ms since the epoch."""

    client: int
    deed: str
    session: str | None
    at: int
    is_refused: bool = False


class Stirred(Struct, frozen=True):
    """The params of STIRRED: the deeds since the last."""

    deeds: tuple[DeedTold, ...] = ()


class RelayedClient(Struct, frozen=True):
    """The params of RELAYED: the mark, the number of the client there, the agent, the longest
    message in bytes, and the principal. Another node is no client: it has no number, and joins what
    is live."""

    mark: str
    client: int | None
    agent: str = ""
    limit: int = 0
    name: str = ""
    scopes: tuple[Scope, ...] = ()
    tenant: str | None = None
    session: str | None = None
    sees_all: bool = False

    @property
    def line(self) -> bytes:
        """The line with which the client's connection begins."""
        return _LINE_BEGIN + encode(self) + b"}\n"


_LINE_BEGIN = b'{"jsonrpc":"2.0","method":"' + RELAYED.encode() + b'","params":'


async def read_relayed(transport: Transport) -> tuple[Transport, RelayedClient | None]:
    """Return the client that a server relays over a connection to our socket, and the transport of
    what follows; None if it is something else, with everything still to be read.

    Raises InvalidParamsError for a line that cannot be read.
    """
    data = b""
    while b"\n" not in data and len(data) <= bounds.RELAYED_BYTES:
        if not (chunk := await transport.receive()):
            break
        data += chunk
        if not data.startswith(_LINE_BEGIN[: len(data)]):
            return reread(transport, data), None
    line, _, rest = data.partition(b"\n")
    if not line.startswith(_LINE_BEGIN):
        return reread(transport, data), None
    params = line[len(_LINE_BEGIN) : -1]
    return reread(transport, rest), decode_params(params, RelayedClient)
