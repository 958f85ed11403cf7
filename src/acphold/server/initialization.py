"""What `initialize` answers, the agent's own answer and what acphold adds to it; who asks."""

from __future__ import annotations

from acphold.errors import InvalidParamsError
from acphold.history.raw_update import BEGUN
from acphold.schema import PROTOCOL_VERSION, Implementation, encode
from acphold.schema.splice import members, splice

ADDED = ("list", "resume", "close", "delete")
"""Session capabilities that every wrapped agent has; loadSession stands beside them."""

UNSTABLE = ("fork", "title", "archive", "status")
"""Session capabilities that are no part of the protocol yet: ours, with `--unstable`, or nobody's.

An agent's own are not passed on, for the journal would not know what they do; but for its fork,
which is done with ours."""

NAME_LENGTH = 100
"""Characters of a client's name, and of its version, that stand with what is said in it."""


def in_version_1(params: bytes) -> bytes:
    """The params of `initialize` as version 1 has them, which is what is spoken here.

    A client that asks for version 2 says who it is, and what it can, under other names. Of what it
    can only that is taken over which means the same in both (v2 draft, initialization).
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


def client_info(client: Implementation | None) -> bytes:
    """What a client said of itself, as `hub.Client.info`."""
    if client is None:
        return b""
    return encode({"name": client.name[:NAME_LENGTH], "version": client.version[:NAME_LENGTH]})


def with_ours(answer: bytes, *, unstable: bool = False, begun: bool = False) -> bytes:
    """An `initialize` result with what acphold adds to the capabilities; the rest as it came.

    With `begun` the client is told when the turns of its prompts begin.
    """
    capabilities = _object(members(answer), "agentCapabilities")
    sessions = _object(members(capabilities), "sessionCapabilities")
    mine = members(sessions)
    changes: dict[str, bytes | None] = {
        name: b"{}" for name in ADDED if mine.get(name, b"null") == b"null"
    }
    changes |= dict.fromkeys(UNSTABLE, b"{}" if unstable else None)
    if mine.get("fork", b"null").startswith(b"{"):
        del changes["fork"]
    capabilities = splice(
        capabilities,
        {
            "loadSession": b"true",
            "sessionCapabilities": splice(sessions, changes),
            # What the agent cannot reach itself it is handed behind a bridge.
            "mcpCapabilities": splice(
                _object(members(capabilities), "mcpCapabilities"), {"http": b"true", "sse": b"true"}
            ),
        },
    )
    if begun:
        meta = splice(_object(members(capabilities), "_meta"), {BEGUN: b"true"})
        capabilities = splice(capabilities, {"_meta": meta})
    return splice(
        answer, {"protocolVersion": b"%d" % PROTOCOL_VERSION, "agentCapabilities": capabilities}
    )


def _object(parts: dict[str, bytes], name: str) -> bytes:
    """A member that is an object; an empty one when it is absent, null or something else."""
    raw = parts.get(name, b"{}")
    try:
        members(raw)
    except InvalidParamsError:
        return b"{}"
    return raw
