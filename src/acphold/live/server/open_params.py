"""The params of session/new, load, resume and fork, decoded once; each field with its scope.

    field                                               needs, in the session
    --------------------------------------------------  ---------------------
    sessionId                                           that of the method
    `acphold/` members of `_meta` by which clients      that of the method
    resume, or name the agent
    traceparent, tracestate, baggage, in `_meta`        that of the method
    cwd, additionalDirectories, mcpServers              manage
    any other member of `_meta`, any unknown member     manage

Whoever has no `manage` joins a session as it is set up: its folders are those of its row, its MCP
servers those that its agent has. Folders and servers are programs that are started and files that
are served, and agents take more of these from members of their own.
"""

# See docs/decisions.md, 20.

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import Struct
from msgspec.json import encode

from acp_wire.schema import members
from acp_wire.schema.splice import json_value
from acp_wire.surroundings import is_same_folder
from acphold.conversation.history.raw_update import encode_object, string
from acphold.errors import InvalidParamsError
from acphold.live.agents.capabilities import KEPT_IN_FRONT
from acphold.live.hub.annotations import AGENT
from acphold.live.hub.questions import SENT
from acphold.live.server.positions import AFTER, ANSWERED, LINEAGE

READS: Final = "acphold/reads"
"""The key by which a client opens a session only to read it, on a connection to all agents."""

WORKTREE: Final = "acphold/worktree"
"""The key by which a client begins a session in a new work tree of the repository: see
`WantedTree`."""

STAYS: Final = "acphold/stays"
"""The key in the answer to `session/delete`, in which the same key has the mark of a work tree that
was to go, too: what stays of it, in words."""

CWD: Final = "acphold/cwd"
"""The key in the answer to it: the session's folder there."""

RESUMING: Final = (AFTER, LINEAGE, SENT, ANSWERED, AGENT, READS)
"""Our members of `_meta` by which clients resume, or name the agent."""

TRACE: Final = ("traceparent", "tracestate", "baggage")
"""Members of `_meta` that name a trace; source: ACP v1, Extensibility."""

NOTHING: Final = (b"null", b"[]", b"{}")


class WantedTree(Struct, frozen=True):
    """A work tree for a new session; with `include`, with the ignored files that the project's
    `.worktreeinclude` names."""

    include: bool = False


class OpenParams(Struct, frozen=True):
    """The members of such params, and of their `_meta`, in order, as bytes.

    `raw` are the same bytes as they came, b"" once something has changed. `left_out` are the names
    of members that the sender may not say.
    """

    parts: Mapping[str, bytes]
    meta: Mapping[str, bytes]
    raw: bytes = b""
    left_out: tuple[str, ...] = ()

    @classmethod
    def decode(cls, raw: bytes) -> OpenParams:
        """Decode params; raises InvalidParamsError."""
        parts = members(raw)
        meta = parts.get("_meta", b"")
        return cls(parts, members(meta) if meta.startswith(b"{") else {}, raw)

    @property
    def params(self) -> bytes:
        """The params, in one piece; the bytes that came if nothing has changed."""
        return self.raw or encode_object(self.parts)

    # -- what it says -------------------------------------------------------------------------

    @property
    def session_id(self) -> str | None:
        """The session; None if it is none."""
        return string(self.parts.get("sessionId"))

    def require_session(self) -> str:
        """Return the session; InvalidParamsError if it is none."""
        if (found := self.session_id) is None:
            raise InvalidParamsError("sessionId: a string is required", field="sessionId")
        return found

    @property
    def cwd(self) -> str | None:
        """The working directory; None if it is no text."""
        return string(self.parts.get("cwd"))

    @property
    def agent(self) -> str | None:
        """The agent that is to continue the session; InvalidParamsError if it is not a name."""
        if (raw := self.meta.get(AGENT)) is None:
            return None
        if (name := string(raw)) is None:
            raise InvalidParamsError(f"{AGENT}: a string is required", f"_meta.{AGENT}")
        return name

    @property
    def worktree(self) -> WantedTree | None:
        """The work tree that the session is to begin in; InvalidParamsError if it is none."""
        if (raw := self.meta.get(WORKTREE)) is None:
            return None
        if (found := json_value(raw, WantedTree)) is None:
            raise InvalidParamsError(f"{WORKTREE}: an object is required", f"_meta.{WORKTREE}")
        return found

    @property
    def reads(self) -> bool:
        """True if the client opens the session only to read it."""
        return self.meta.get(READS) == b"true"

    @property
    def journal_in_front(self) -> str | None:
        """The journal in which an acphold in front of this one keeps the session, too."""
        return string(self.meta.get(KEPT_IN_FRONT))

    @property
    def servers(self) -> bytes:
        """The MCP servers, a JSON array or null."""
        return self.parts.get("mcpServers", b"null").strip()

    # -- changed ------------------------------------------------------------------------------

    def having(self, **parts: bytes) -> OpenParams:
        """Return the same with these members."""
        if all(self.parts.get(name) == value for name, value in parts.items()):
            return self
        return OpenParams({**self.parts, **parts}, self.meta)

    def naming(self, agent: str | None) -> OpenParams:
        """Return the same with this agent, or none."""
        left = self.without(AGENT)
        return left if agent is None else left._with({**left.meta, AGENT: encode(agent)})

    def without(self, *keys: str) -> OpenParams:
        """Return the same without these members of `_meta`, and without an empty one."""
        if not any(key in self.meta for key in keys):
            return self
        return self._with({name: raw for name, raw in self.meta.items() if name not in keys})

    def _with(self, meta: Mapping[str, bytes], left_out: tuple[str, ...] = ()) -> OpenParams:
        parts = {**self.parts, "_meta": encode_object(meta)}
        if not meta:
            del parts["_meta"]
        return OpenParams(parts, meta, left_out=left_out)

    def joining(self, cwd: str, additional_directories: Sequence[str]) -> OpenParams:
        """Return what counts of it for a client that may not set the session up, and only joins it:
        the session's own folders, and no MCP servers. Every client has to send a working directory,
        so that is told as left out only if it is another one."""
        meta = {
            key: raw for key, raw in self.meta.items() if key in RESUMING or names_trace(key, raw)
        }
        is_elsewhere = self.cwd is not None and not is_same_folder(cwd, self.cwd)
        left_out = ["cwd"] if is_elsewhere else []
        left_out += [f"_meta.{key}" for key in self.meta if key not in meta]
        for name, raw in self.parts.items():
            if name == "_meta" and not self.meta:
                left_out += [name] if raw not in NOTHING else []
            elif name not in ("sessionId", "cwd", "_meta") and raw.strip() not in NOTHING:
                left_out.append(name)
        parts = {"sessionId": self.parts["sessionId"], "cwd": encode(cwd), "mcpServers": b"[]"}
        if additional_directories:
            parts["additionalDirectories"] = encode(list(additional_directories))
        return OpenParams(parts, {})._with(meta, tuple(left_out))


def names_trace(key: str, raw: bytes) -> bool:
    """Return True if this member of `_meta` names a trace: it is text, and nothing else."""
    return key in TRACE and raw.startswith(b'"')
