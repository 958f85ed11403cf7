"""What client and agent say in `initialize` that they can, and what the other one is told of it.

    who said it  what                                   the other one is told
    -----------  -------------------------------------  ------------------------------------------
    a client     what has a name of version 2           the same under its name of version 1
                 `fs` and `terminal`, far away          nothing: they are of another machine
                 `_meta` keys of ours                   nothing: they are for us
    acphold      with a session, that it keeps it, too  the same, if it is an agent of the library
                                                        that keeps it in the same journal
    an agent     no `loadSession`, `list`, `resume`,    that it can: the journal does that
                 `close` or `delete`
                 no MCP servers behind a URL            that it can: it is handed a bridge
                 `fork`                                 that it can: it is done with ours
                 `title`, `archive`, `status`,          nothing, for the journal would not know what
                 which are unstable                     they do; with `--unstable` there are our own
                 `_meta` keys of ours                   nothing; `acphold/begun` and
                                                        `acphold/positions` if it asked for them

All else they are told as it was said. An agent is told what the first client said, and what comes
from it is fitted to what each client offered (`Offer`).

Sources: spec v1, initialization; v2 draft, initialization; ACP v1 schema with its unstable parts.
"""

from __future__ import annotations

from msgspec import Struct

from acphold.history.raw_update import BEGUN, members, string
from acphold.history.speakers import meta_without_marks
from acphold.schema import (
    PROTOCOL_VERSION,
    ClientCapabilities,
    InitializeRequest,
    McpCapabilities,
    encode,
)
from acphold.schema.splice import splice, with_meta
from acphold.schema.update_kinds import withheld

POSITIONS = "acphold/positions"
"""The key of `clientCapabilities._meta` by which a client asks for the position of each update; as
true, or as FOR_EVENTS."""

FOR_EVENTS = "events"
"""How Streamable HTTP asks in the place of a client that does not, for the ids of its events."""

WATCHES = "acphold/watches"
"""The key there by which a client says that it only looks on."""

ALL_AGENTS = "acphold/allAgents"
"""The key there by which a client of a server asks for the sessions of all agents."""

LINE = "acphold/line"
"""The key there by which a process of ours says that it is a line to the owner of sessions."""

TENANT = "acphold/tenant"
"""The key there by which it says whom it has let in; null for who may see all sessions."""

KEPT_IN = "acphold/keptIn"
"""The key of `agentCapabilities._meta` by which an agent of the library tells its journal."""

KEPT_IN_FRONT = "acphold/keptInFront"
"""The `_meta` key by which it is told, with a session, that who is in front of it keeps it there,
too: then that one lists it."""

CLIENT = "acphold/client"
"""The `_meta` key by which an agent of the library is told of the client that opens a session."""

ADDED = ("list", "resume", "close", "delete")
"""Session capabilities that every wrapped agent has; loadSession stands beside them."""

UNSTABLE = ("fork", "title", "archive", "status")
"""Session capabilities that are no part of the protocol yet: ours, with `--unstable`, or nobody's;
but for the fork."""

EVERY_TRANSPORT = McpCapabilities(http=True, sse=True)
"""How MCP servers may be reached: an agent that lacks one of these is handed a bridge."""


class Offer(Struct, frozen=True, kw_only=True):
    """What a client can do, and what it asks for, by its `initialize`.

    `withheld` are the kinds of updates that it does not offer to show. `booleans` says that it
    takes config options that are true or false, `positions` that it wants the position of each
    update, `for_events` that these are for its transport: it does not send a prompt again by them
    that has no id; `begun` that it is to be told when the turns of its prompts begin. One that
    `watches` only looks on; one that `is_line` is another process of ours, which looks for the
    owners of its sessions itself.
    """

    capabilities: ClientCapabilities = ClientCapabilities()
    withheld: frozenset[str] = frozenset()
    booleans: bool = False
    positions: bool = False
    for_events: bool = False
    begun: bool = False
    watches: bool = False
    is_line: bool = False


def offer_of(introduction: InitializeRequest, params: bytes) -> Offer:
    """What a client offers that introduces itself so; `params` is the same as it came."""
    can = introduction.client_capabilities
    options = None if can.session is None else can.session.config_options
    asked = can.meta or {}
    for_events = asked.get(POSITIONS) == FOR_EVENTS
    return Offer(
        capabilities=can,
        withheld=withheld(members(params).get("clientCapabilities", b"null")),
        booleans=options is not None and options.boolean is not None,
        positions=asked.get(POSITIONS) is True or for_events,
        for_events=for_events,
        begun=asked.get(BEGUN) is True,
        watches=asked.get(WATCHES) is True,
        is_line=asked.get(LINE) is True,
    )


# -- what a client says ----------------------------------------------------------------------


def in_version_1(params: bytes) -> bytes:
    """The params of `initialize` as version 1 has them, which is what is spoken here.

    A client that asks for version 2 says who it is, and what it can, under other names. Of what it
    can only that is taken over which means the same in both.
    """
    theirs = members(params)
    if theirs.get("protocolVersion") == b"%d" % PROTOCOL_VERSION:
        return params
    changes: dict[str, bytes | None] = {"info": None, "capabilities": None}
    if "clientInfo" not in theirs and "info" in theirs:
        changes["clientInfo"] = theirs["info"]
    if "clientCapabilities" not in theirs and "capabilities" in theirs:
        can = members(_object(theirs, "capabilities"))
        kept: dict[str, bytes | None] = {}
        kept |= {name: can[name] for name in ("elicitation", "_meta") if name in can}
        if members(_object(can, "auth")).get("terminal", b"null").startswith(b"{"):
            kept["auth"] = b'{"terminal":true}'
        changes["clientCapabilities"] = splice(b"{}", kept)
    return splice(params, changes)


def permitted(params: bytes, *, is_here: bool, answers: bool, vouches: bool = False) -> bytes:
    """The params of `initialize` of a client that may not do all that it can.

    One that `is_here` is on this machine: another one's files and terminals are not those of a
    session of ours, and it is no process of ours, unless it vouches. One that does not answer only
    looks on.
    """
    if is_here and answers:
        return params
    can = _object(members(params), "clientCapabilities")
    asked = _object(members(can), "_meta")
    if not is_here:
        can = splice(can, {"fs": None, "terminal": None})
    if not (is_here or vouches):
        asked = splice(asked, {LINE: None, TENANT: None})
    if not answers:
        asked = splice(asked, {WATCHES: b"true"})
    return splice(params, {"clientCapabilities": splice(can, {"_meta": asked})})


def told_agent(params: bytes) -> bytes:
    """The params of `initialize`, as version 1 has them, for the agent.

    It may be an acphold, too: what the client asks of us is not asked of that one.
    """
    told: dict[str, bytes | None] = {"protocolVersion": b"%d" % PROTOCOL_VERSION}
    can = members(params).get("clientCapabilities", b"")
    if can.startswith(b"{") and (clean := _without_ours(can)) != can:
        told["clientCapabilities"] = clean
    return splice(params, told)


def keeps_positions(answer: bytes) -> bool:
    """Whether the server that answered `initialize` so is one of acphold, which we asked for them.

    Such a one takes a prompt with an id once, however often it comes.
    """
    can = _object(members(answer), "agentCapabilities")
    return members(_object(members(can), "_meta")).get(POSITIONS) == b"true"


def asking_for_positions(params: bytes, *, for_events: bool = False) -> bytes:
    """The params of `initialize` of a client that asks for the position of each update; unless it
    does so already, `for_events`."""
    can = _object(members(params), "clientCapabilities")
    meta = _object(members(can), "_meta")
    if for_events and members(meta).get(POSITIONS) == b"true":
        return params
    asked = splice(meta, {POSITIONS: encode(FOR_EVENTS) if for_events else b"true"})
    return splice(params, {"clientCapabilities": splice(can, {"_meta": asked})})


def told_owner(params: bytes, tenant: str | None) -> bytes:
    """The same for the owner of a session, over a line, which asks for positions.

    The owner lets in whom this process has let in, as that `tenant`.
    """
    params = asking_for_positions(params)
    can = _object(members(params), "clientCapabilities")
    asked = splice(_object(members(can), "_meta"), {LINE: b"true", TENANT: encode(tenant)})
    return splice(params, {"clientCapabilities": splice(can, {"_meta": asked})})


def told_author(params: bytes, tenant: str, introduction: bytes) -> bytes:
    """The params that open a session, for an agent of the library: it is told whose that is, and
    of the client that opens it, whose params of `initialize` these are."""
    meta = splice(_object(members(params), "_meta"), {TENANT: encode(tenant), CLIENT: introduction})
    return splice(params, {"_meta": meta})


def opened_by(params: bytes) -> tuple[str, bytes]:
    """The tenant and the introduction in such params; "" and b"{}" for what is not there."""
    meta = members(_object(members(params), "_meta"))
    return string(meta.get(TENANT)) or "", _object(meta, CLIENT)


# -- what an agent says ----------------------------------------------------------------------


def told_client(
    answer: bytes,
    *,
    unstable: bool = False,
    begun: bool = False,
    positions: bool = False,
    kept_in: str | None = None,
) -> bytes:
    """The agent's answer to `initialize` as a client gets it, with what acphold can besides.

    With `begun` the client is told when the turns of its prompts begin; with `positions` it has
    asked for them, and may go on behind one, and send a prompt twice. `kept_in` is the journal.
    """
    can = _without_ours(_object(members(answer), "agentCapabilities"))
    parts = members(can)
    sessions = _object(parts, "sessionCapabilities")
    theirs = members(sessions)
    changes: dict[str, bytes | None] = {
        name: b"{}" for name in ADDED if theirs.get(name, b"null") == b"null"
    }
    changes |= dict.fromkeys(UNSTABLE, b"{}" if unstable else None)
    if forks(answer):
        del changes["fork"]
    told: dict[str, bytes | None] = {
        "loadSession": b"true",
        "sessionCapabilities": splice(sessions, changes),
        "mcpCapabilities": splice(
            _object(parts, "mcpCapabilities"), {"http": b"true", "sse": b"true"}
        ),
    }
    asked_for = [name for name, is_asked in ((BEGUN, begun), (POSITIONS, positions)) if is_asked]
    ours: dict[str, bytes | None] = dict.fromkeys(asked_for, b"true")
    if kept_in is not None:
        ours[KEPT_IN] = encode(kept_in)
    if ours:
        told["_meta"] = splice(_object(parts, "_meta"), ours)
    version = b"%d" % PROTOCOL_VERSION
    return splice(answer, {"protocolVersion": version, "agentCapabilities": splice(can, told)})


def forks(answer: bytes) -> bool:
    """Whether an agent that answers `initialize` so has `session/fork`, which is unstable."""
    can = members(_object(members(answer), "agentCapabilities"))
    return members(_object(can, "sessionCapabilities")).get("fork", b"").startswith(b"{")


def kept_in(answer: bytes) -> str | None:
    """The journal in which the agent that answers `initialize` so keeps its sessions itself; None
    for one that is not of the library."""
    can = members(_object(members(answer), "agentCapabilities"))
    return string(members(_object(can, "_meta")).get(KEPT_IN))


def kept_in_front(params: bytes) -> bytes:
    """The params that open a session, for such an agent, where we keep it in the same journal."""
    return with_meta(params, KEPT_IN_FRONT, b"true")


def is_kept_in_front(params: bytes) -> tuple[bool, bytes]:
    """Whether that is said in such params; and the params without it."""
    meta = _object(members(params), "_meta")
    if KEPT_IN_FRONT not in members(meta):
        return False, params
    left = splice(meta, {KEPT_IN_FRONT: None})
    return True, splice(params, {"_meta": left if members(left) else None})


# -- bytes -----------------------------------------------------------------------------------


def _without_ours(capabilities: bytes) -> bytes:
    """Capabilities without the `_meta` keys of ours; without a `_meta` that had no others."""
    meta = members(capabilities).get("_meta", b"")
    if not meta.startswith(b"{") or (kept := meta_without_marks(meta)) == meta:
        return capabilities
    return splice(capabilities, {"_meta": kept if members(kept) else None})


def _object(parts: dict[str, bytes], name: str) -> bytes:
    """A member that is an object; an empty one when it is absent, null or something else."""
    raw = parts.get(name, b"{}")
    return raw if members(raw) else b"{}"
