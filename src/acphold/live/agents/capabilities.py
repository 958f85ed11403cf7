"""The capabilities of client and agent in `initialize`, and what the other side is told of them.

    said by      capability                             the other one is told
    -----------  -------------------------------------  ------------------------------------------
    a client     with a name of version 2               the same under its name of version 1
                 `fs` and `terminal`, far away          nothing: they belong to another machine
                 `_meta` keys of ours                   nothing: they are for us
    acphold      with a session, the journal in which   the same, if it is an agent of the library
                 it keeps it, too
    a client     AIR's `loadReplayEnd`                  nothing: acphold tells it
    an agent     no `loadSession`, `list`, `resume`,    that it can: the journal does that
                 `close` or `delete`
                 no MCP servers behind a URL            that it can, if the extra `mcp` is there:
                                                        it is given a bridge
                 `fork`                                 that it can: it is done with ours
                 `title`, `archive`, `status`,          the same: the journal answers them in front
                 which are unstable                     of every agent, and says so with `unstable`
                 a session index, or none               that it has one, if the client is AIR with
                                                        a session index (`agents.air`)
                 `_meta` keys of ours                   nothing; `acphold/begun`, `acphold/queue`
                                                        and `acphold/positions` if it asked for them

Everything else is passed on unchanged. An agent gets the introduction of the first client; its
messages are fitted to what each client offered (`ClientOffer`).

Sources: spec v1, initialization; v2 draft, initialization; ACP v1 schema with its unstable parts.
"""

# See docs/decisions.md, 27.

from __future__ import annotations

import re
from collections.abc import Collection

from msgspec import Struct

from acp_wire import schema
from acp_wire.schema import splice
from acphold.conversation.history.display_terminals import PRINTED
from acphold.conversation.history.raw_update import (
    BEGUN,
    array,
    encode_object,
    items,
    kinds_to_withhold,
    members,
    meta_without_marks,
    string,
    with_meta,
)
from acphold.extras import is_installed
from acphold.live.agents import air
from acphold.live.agents.air import object_in, within
from acphold.version import __version__

POSITIONS = "acphold/positions"
"""The key of `clientCapabilities._meta` by which a client asks for the position of each update; its
value is true, or FOR_EVENTS."""

FOR_EVENTS = "events"
"""The value by which Streamable HTTP asks, for the ids of its events, if its client does not."""

QUEUE = "acphold/queue"
"""The key there by which a client asks to be told of the queued prompts in a session, and by
which `agentCapabilities._meta` says that they are kept."""

QUEUE_METHOD = "_acphold/queue"
"""The request that changes and reads them, and the notification of each change: see
docs/protocol.md."""

WATCHES = "acphold/watches"
"""The key there by which a client says that it only watches."""

AUTOMATIC = "acphold/automatic"
"""The key there by which a client says that a program answers in it, and no person."""

UNRULED = "acphold/unruled"
"""The key there by which a client says that no rule may answer in the turns of its prompts."""

ALL_AGENTS = "acphold/allAgents"
"""The key there by which a client of a server asks for the sessions of all agents, and by which
`agentCapabilities._meta` names them."""

FOLDER = "acphold/folder"
"""The key there of the folder for new sessions, until the client knows others."""

HOME = "acphold/home"
"""The key there of the home that a leading `~` of such a folder means."""

LINE = "acphold/line"
"""The key there by which a process of ours says that it is a line to the owner of sessions."""

TENANT = "acphold/tenant"
"""The key there by which it names the tenant that it has let in; null sees all sessions."""

SCOPES = "acphold/scopes"
"""The key there by which it names the scopes of that tenant, or guest; absent for all of them."""

GUEST = "acphold/guest"
"""The key there by which it says that the client is a guest in the one session that it sees."""

KEEPS_SESSIONS = "acphold/keepsSessions"
"""The key of `agentCapabilities._meta` by which an agent of the library says that it has a
journal."""

ELSEWHERE = "acphold/elsewhere"
"""The key there by which the near end of an ssh says what of WORKSPACE its client has offered: an
agent at the far end has it from acphold there."""

WORKSPACE = ("fs", "terminal")
"""Capabilities of a client for agents on its own machine alone."""

TERMINAL_AUTH = "terminal-auth"
"""The `_meta` key, of clients and of ways to sign in, of an older draft of `auth.terminal`."""

KEPT_IN_FRONT = "acphold/keptInFront"
"""The `_meta` key by which an acphold in front of it names the journal in which it keeps a session
too; if that is the same journal, the one in front is listed."""

INTRODUCTION = "acphold/introduction"
"""The `_meta` key of a session that is opened for a client of all agents: its agent's answer to
`initialize`."""

CLIENT = "acphold/client"
"""The `_meta` key by which an agent of the library is told of the client that opens a session."""

ADDED = ("list", "resume", "close", "delete")
"""Session capabilities that every wrapped agent has; loadSession stands beside them."""

UNSTABLE = ("fork", "title", "archive", "status")
"""Session capabilities that are not yet part of the protocol: said with `unstable`, or if the agent
says so itself."""

ASKED = ("clientCapabilities", "_meta")
"""The place in the params of `initialize` where a client asks for what is acphold's own."""

EVERY_TRANSPORT = schema.McpCapabilities(http=True, sse=True)
"""Ways to reach MCP servers: an agent that lacks one of these is given a bridge."""


class ClientOffer(Struct, frozen=True, kw_only=True):
    """The capabilities and wishes of a client, from its `initialize`.

    `withheld` are the kinds of updates that it does not offer to show. `booleans` says that it
    accepts config options that are true or false. `positions` says that it wants the position of
    each update, `for_events` that these are for its transport: then it does not use them to send a
    prompt without an id again. `begun` says that it wants to be told when the turns of its prompts
    begin, `queue` that it wants to be told of the queued prompts. It shows terminals of the
    agent's own if it is told of them by the name `shows_terminals`, "" for one that does not
    (`history.display_terminals`). A client that `watches` only looks on; one that `is_line` is
    another process of ours, which looks for the owners of its sessions itself. With `all_agents` it
    has sessions of several on one connection. In one that `is_automatic` no person answers, and
    one that `is_unruled` wants no rule to answer in its turns. One over a network gets messages
    `in_frames`, however many are written at once. `air` are AIR's capabilities, None for any other
    client.
    """

    capabilities: schema.ClientCapabilities = schema.ClientCapabilities()
    withheld: frozenset[str] = frozenset()
    booleans: bool = False
    positions: bool = False
    for_events: bool = False
    begun: bool = False
    queue: bool = False
    shows_terminals: str = ""
    watches: bool = False
    is_line: bool = False
    all_agents: bool = False
    is_automatic: bool = False
    is_unruled: bool = False
    in_frames: bool = False
    air: frozenset[str] | None = None

    @property
    def has_index(self) -> bool:
        """True if its lists are a session index, see `agents.air`."""
        return self.air is not None and air.INDEX in self.air


def offer_of(introduction: schema.InitializeRequest, params: bytes) -> ClientOffer:
    """Return the offer of a client with this introduction; `params` is the same as it came."""
    can = introduction.client_capabilities
    options = None if can.session is None else can.session.config_options
    asked, raw = can.meta or {}, object_in(params, "clientCapabilities")
    for_events = asked.get(POSITIONS) == FOR_EVENTS
    return ClientOffer(
        capabilities=can,
        withheld=kinds_to_withhold(raw),
        booleans=options is not None and options.boolean is not None,
        positions=asked.get(POSITIONS) is True or for_events,
        for_events=for_events,
        begun=asked.get(BEGUN) is True,
        queue=asked.get(QUEUE) is True,
        shows_terminals=next((name for name in PRINTED if asked.get(name) is True), ""),
        watches=asked.get(WATCHES) is True,
        is_line=asked.get(LINE) is True,
        all_agents=asked.get(ALL_AGENTS) is True,
        is_automatic=asked.get(AUTOMATIC) is True,
        is_unruled=asked.get(UNRULED) is True,
        air=air.capabilities_in(raw),
    )


_NUMBER_IN_QUOTES = re.compile(rb'"([1-9][0-9]{0,4})"')


# -- what a client says ----------------------------------------------------------------------


def in_version_1(params: bytes) -> bytes:
    """Return the params of `initialize` in version 1, the one that is spoken here.

    A client that asks for version 2 gives its name and capabilities under other names. Only
    capabilities that mean the same in both are kept. A version in quotes is its number.
    """
    theirs = members(params)
    if version := _NUMBER_IN_QUOTES.fullmatch(theirs.get("protocolVersion", b"")):
        theirs["protocolVersion"] = version[1]
        params = splice(params, {"protocolVersion": version[1]})
    if theirs.get("protocolVersion") == b"%d" % schema.PROTOCOL_VERSION:
        return params
    changes: dict[str, bytes | None] = {"info": None, "capabilities": None}
    if "clientInfo" not in theirs and "info" in theirs:
        changes["clientInfo"] = theirs["info"]
    if "clientCapabilities" not in theirs and "capabilities" in theirs:
        can = members(theirs["capabilities"])
        kept: dict[str, bytes | None] = {}
        kept |= {name: can[name] for name in ("elicitation", "_meta") if name in can}
        if members(can.get("auth", b"")).get("terminal", b"null").startswith(b"{"):
            kept["auth"] = b'{"terminal":true}'
        changes["clientCapabilities"] = splice(b"{}", kept)
    return splice(params, changes)


def introduction_for_agent(params: bytes) -> bytes:
    """Return the params of `initialize`, as version 1 has them, for the agent.

    The agent may be an acphold, too: a client's requests to us are not passed on to it.
    """
    told: dict[str, bytes | None] = {"protocolVersion": b"%d" % schema.PROTOCOL_VERSION}
    can = members(params).get("clientCapabilities", b"")
    if can.startswith(b"{") and (clean := air.without_replay_end(_without_ours(can))) != can:
        told["clientCapabilities"] = clean
    return splice(params, told)


def introduction_for_afar(params: bytes, *, over_ssh: bool = False) -> bytes:
    """Return the params of `initialize` for another machine: nothing in them is for agents on this
    one alone. `over_ssh`, the acphold there is told what it gives its agent instead."""
    can = object_in(params, "clientCapabilities")
    theirs = members(can)
    offered = {name: theirs[name] for name in WORKSPACE if name in theirs}
    marks = {TERMINAL_AUTH: None, ELSEWHERE: encode_object(offered) if over_ssh else None}
    changes: dict[str, bytes | None] = dict.fromkeys(WORKSPACE)
    if "auth" in theirs:
        changes["auth"] = splice(object_in(can, "auth"), {"terminal": None})
    if over_ssh or "_meta" in theirs:
        changes["_meta"] = splice(object_in(can, "_meta"), marks)
    return within(params, ("clientCapabilities",), changes)


def with_workspace_here(params: bytes) -> bytes:
    """Return the params of `initialize` for the agent of a client at the near end of an ssh: it
    has files and terminals of this machine."""
    said = members(object_in(params, *ASKED, ELSEWHERE))
    offered: dict[str, bytes | None] = {name: said[name] for name in WORKSPACE if name in said}
    return within(params, ("clientCapabilities",), offered) if offered else params


def answer_from_afar(answer: bytes) -> bytes:
    """Return another machine's answer to `initialize`, with those ways to sign in that run nothing
    on this one."""
    methods = []
    for raw in items(members(answer).get("authMethods", b"[]")):
        parts = members(raw)
        if "type" not in parts or string(parts["type"]) == "agent":
            known = ("id", "name", "description", "type")
            methods.append(encode_object({it: parts[it] for it in known if it in parts}))
    return (
        splice(answer, {"authMethods": array(methods)})
        if "authMethods" in members(answer)
        else answer
    )


def keeps_positions(answer: bytes) -> bool:
    """Return True if this answer to `initialize` is from an acphold that we asked for positions.

    It runs a prompt with an id once, however often it comes.
    """
    return members(object_in(answer, "agentCapabilities", "_meta")).get(POSITIONS) == b"true"


def asking_for_positions(params: bytes, *, for_events: bool = False) -> bytes:
    """Return the params of `initialize` with a request for the position of each update; with
    `for_events` only if the client makes none itself."""
    if for_events and members(object_in(params, *ASKED)).get(POSITIONS) == b"true":
        return params
    wish = schema.encode(FOR_EVENTS) if for_events else b"true"
    return within(params, ASKED, {POSITIONS: wish})


def introduction_for_owner(
    params: bytes, tenant: str | None, scopes: Collection[str], *, guest: bool = False
) -> bytes:
    """Return the same for the owner of a session, over a line, which asks for positions.

    The owner lets the client in as `tenant`, or as a `guest`, with these scopes, because this
    process has done so.
    """
    told = {
        LINE: b"true",
        TENANT: schema.encode(tenant),
        SCOPES: schema.encode(sorted(scopes)),
        GUEST: b"true" if guest else None,
    }
    return within(asking_for_positions(params), ASKED, told)


def params_for_author(params: bytes, tenant: str, introduction: bytes) -> bytes:
    """Return the params that open a session for an agent of the library, with its tenant and the
    client's params of `initialize`."""
    return within(params, ("_meta",), {TENANT: schema.encode(tenant), CLIENT: introduction})


def opener(params: bytes) -> tuple[str, bytes]:
    """Return the tenant and the introduction in such params; "" and b"{}" if absent."""
    meta = object_in(params, "_meta")
    return string(members(meta).get(TENANT)) or "", object_in(meta, CLIENT)


# -- what an agent says ----------------------------------------------------------------------


def answer_without_agent() -> bytes:
    """Return an answer to `initialize` while no agent has been started."""
    info = {"name": "acphold", "title": "acphold", "version": __version__}
    return schema.encode({"agentInfo": info, "authMethods": []})


def answer_for_client(
    answer: bytes,
    offer: ClientOffer,
    *,
    unstable: bool = False,
    keeps_sessions: bool = False,
) -> bytes:
    """Return the agent's answer to `initialize` for a client with this offer, with the capabilities
    that acphold adds.

    A client that asked for positions may resume after one, and send a prompt twice. The agent
    itself `keeps_sessions` in a journal if it is of the library.
    """
    can = _without_ours(object_in(answer, "agentCapabilities"))
    sessions = object_in(can, "sessionCapabilities")
    theirs = members(sessions)
    changes: dict[str, bytes | None] = {
        name: b"{}" for name in ADDED if theirs.get(name, b"null") == b"null"
    }
    offered = {name for name in UNSTABLE if theirs.get(name, b"").startswith(b"{")}
    changes |= dict.fromkeys({*UNSTABLE} - offered, b"{}" if unstable else None)
    told: dict[str, bytes | None] = {
        "loadSession": b"true",
        "sessionCapabilities": splice(sessions, changes),
    }
    if is_installed("mcp"):
        bridged: dict[str, bytes | None] = {"http": b"true", "sse": b"true"}
        told["mcpCapabilities"] = splice(object_in(can, "mcpCapabilities"), bridged)
    marks = {
        BEGUN: offer.begun,
        POSITIONS: offer.positions,
        QUEUE: offer.queue,
        KEEPS_SESSIONS: keeps_sessions,
    }
    ours: dict[str, bytes | None] = {name: b"true" for name, is_ in marks.items() if is_}
    if ours:
        told["_meta"] = splice(object_in(can, "_meta"), ours)
    version = b"%d" % schema.PROTOCOL_VERSION
    answer = splice(answer, {"protocolVersion": version, "agentCapabilities": splice(can, told)})
    return air.with_index(answer) if offer.has_index else answer


def forks(answer: bytes) -> bool:
    """Return True if an agent with this answer to `initialize` has `session/fork`, which is
    unstable."""
    can = members(object_in(answer, "agentCapabilities", "sessionCapabilities"))
    return can.get("fork", b"").startswith(b"{")


def keeps_sessions(answer: bytes) -> bool:
    """Return True if an agent with this answer to `initialize` keeps its sessions in a journal: it
    is of the library."""
    return members(object_in(answer, "agentCapabilities", "_meta")).get(KEEPS_SESSIONS) == b"true"


def with_front_journal(params: bytes, journal: str) -> bytes:
    """Return the params that open a session, for such an agent, if we keep it in this journal."""
    return with_meta(params, KEPT_IN_FRONT, schema.encode(journal))


# -- bytes -----------------------------------------------------------------------------------


def _without_ours(capabilities: bytes) -> bytes:
    """Return capabilities without our `_meta` keys; without `_meta` if it had no others."""
    meta = members(capabilities).get("_meta", b"")
    if not meta.startswith(b"{") or (kept := meta_without_marks(meta)) == meta:
        return capabilities
    return splice(capabilities, {"_meta": kept if members(kept) else None})
