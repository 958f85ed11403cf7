"""The agent's side of a session: its id there, its sub-agents, and whether its words count now.

Only this module and `hub.routes` know the agent's id of a session. The session is opened
(`session/new`, or adopted), lost with the agent's process, and opened again when needed: see
`hub.restoration`.

The `Voice` says whether the agent's words about the session count:

    what happened                                   voice
    ----------------------------------------------  -------
    a new or adopted session was opened             COUNTS
    it is being restored                            REPEATS
    it was restored by the agent's `session/resume` COUNTS
    it was restored by a replay                     REPLAYS
    it was restored anew                            STALE
    a prompt was sent                               COUNTS
    a turn was cancelled and answered, or answered
    for by us                                       STALE

COUNTS: everything is part of the session. REPEATS: it is in the journal already; settings that
differ are kept for the end of the restoring. STALE: only updates of the attributes count; some
agents go on with a turn after its cancellation. REPLAYS: the same until the agent was silent for a
second; some go on with a replay after its answer, or begin it then.

A child, that is a sub-agent, is known once it is announced, while the agent runs. Clients know it
by the agent's own id, as they know the session. The id is prefixed with the agent's id of the
session if clients know that by another id, or if a session of the journal has the child's id. So
ids stay distinct even if two agents, or two runs of one, use the same.

An agent cannot announce a session that it has open here, nor a child of another one. Beyond the
limits its announcements are dropped; only the first is logged as a warning.
"""

# See docs/decisions.md, 9.

from __future__ import annotations

import logging
from collections.abc import Sequence
from enum import Enum
from time import monotonic
from typing import TYPE_CHECKING

from msgspec import Struct

from acp_wire.schema import encode, splice
from acp_wire.schema.splice import session_id_in
from acphold.conversation.history import children
from acphold.conversation.history.attributes import Attributes, fold_update
from acphold.conversation.history.handovers import without_its_title
from acphold.conversation.history.raw_update import (
    ATTRIBUTE_KINDS,
    encode_text,
    kinds_about,
    members,
    meta_without_marks,
    string,
    update_kind,
    without_marks,
)
from acphold.errors import AcpError, RemoteError
from acphold.journal.journal import Sessions, row_of
from acphold.live.agents.capabilities import params_for_author
from acphold.live.agents.interface import (
    ANSWER_SECONDS,
    AgentExchange,
    AgentRequest,
    HubAgent,
    Updates,
    update_of,
)
from acphold.live.hub import bounds
from acphold.live.hub.routes import Child, Routes, is_usable_id
from acphold.live.hub.session import HubSession

if TYPE_CHECKING:
    from acphold.live.hub.agent_memory import Replay

log = logging.getLogger(__name__)


class Setup(Struct, frozen=True):
    """The request of a client that opens a session, checked: `params` as the agent is to get them.

    It holds the credentials of MCP servers: kept in memory only, to restart the agent with.
    `tenant` will own a session made with it; `introduction` is how the client introduced itself.
    `is_kept_in_front` as in `ListedRow`. `stays` refuses to continue the session with another
    agent than its own; with `moves` one that others only read comes to this one. A client that
    `joins` may not set the session up: it takes it as it is, and this is only for a session that is
    not live yet.
    """

    cwd: str
    additional_directories: tuple[str, ...]
    params: bytes
    tenant: str = ""
    introduction: bytes = b"{}"
    is_kept_in_front: bool = False
    stays: bool = False
    moves: bool = False
    joins: bool = False

    def params_for(self, agent: HubAgent) -> bytes:
        """Return the params for this agent; an agent of the library is also told who asks."""
        if not agent.reads_journal:
            return self.params
        return params_for_author(self.params, self.tenant, self.introduction)


class Voice(Enum):
    """Tells if the agent's words are part of the session now; see the module."""

    COUNTS = "counts"
    REPEATS = "repeats"
    REPLAYS = "replays"
    STALE = "stale"


WHOLE_KINDS = kinds_about("commands", "cost")
"""Kinds of attribute updates of which the last one says it all."""

CHOSEN_KINDS = kinds_about("choices")
"""The person's choices: a restored session is set as it was, not as the agent reports it."""


class AgentSession(Struct, eq=False):
    """One session as its agent has it.

    `answer` is the agent's last answer to opening the session. `replay` gets the conversation that
    it replays; None if nobody asks. `heard_at` is when that went on (`monotonic`).
    """

    agent: HubAgent
    _routes: Routes
    _session_id: str
    setup: Setup
    id: str | None = None
    answer: bytes = b"{}"
    voice: Voice = Voice.COUNTS
    repeated: list[bytes] = []
    replay: Replay | None = None
    heard_at: float = 0.0
    _generation: int = 0

    @property
    def is_open(self) -> bool:
        """True if the agent runs and has this session open."""
        return self.agent.alive and self._generation == self.agent.generation

    @property
    def is_at_work(self) -> bool:
        """True while the agent works on a turn of this session."""
        return self._routes.turn_at_work(self.id) is not None

    def knows_child(self, child: str) -> bool:
        """Return True if the agent, since it was started, announced the sub-agent with this id for
        clients."""
        children = self._routes.children_of(self._session_id)
        return any(known.id == child for known in children.values())

    # -- opened and closed ----------------------------------------------------------------

    def bind(self, agent_session: str) -> list[Updates]:
        """Route the agent's words about this id to this session; return those that came early.

        The session does not count as open before `on_opened`.
        """
        self.id = agent_session
        return self._routes.bind(agent_session, self._session_id)

    def on_opened(self, answer: bytes, setup: Setup) -> None:
        """Note that the agent has opened it with this setup, and its answer.

        Has no effect on `is_open` if a client has opened it with another setup meanwhile.
        """
        if _is_same(setup, self.setup):
            self._generation = self.agent.generation
        self.answer = splice(answer, {"sessionId": None}) if answer.startswith(b"{") else b"{}"

    def close(self) -> None:
        """Route nothing the agent says to this session any more."""
        self._routes.unbind(self._session_id)
        self._generation = 0

    def open_with(self, setup: Setup) -> None:
        """Take the setup of a client; if it differs, the agent has to open the session again."""
        if not _is_same(setup, self.setup):
            self._generation = 0
        self.setup = setup

    def distrust(self) -> None:
        """Have it opened again before it is used: the sign-in, or its setup, has changed."""
        self._generation = 0

    # -- talked to ------------------------------------------------------------------------

    def exchange(
        self, method: str, params: bytes, seconds: float | None = ANSWER_SECONDS
    ) -> AgentExchange:
        """Return a request about this session; `params` may name it by any id."""
        return AgentExchange(self.agent, method, self.under_its_id(params), seconds)

    def under_its_id(self, params: bytes) -> bytes:
        """Return params about this session with the id that the agent knows."""
        return splice(params, {"sessionId": encode(self.id)})

    @property
    def params_to_close(self) -> bytes | None:
        """The params to close it at the agent; None if it is not open there."""
        return self.under_its_id(b"{}") if self.is_open else None

    def under_our_id(self, params: bytes) -> bytes:
        """Return params about this session with the id that clients know."""
        if self.id == self._session_id:
            return params
        return splice(params, {"sessionId": encode(self._session_id)})

    # -- heard ----------------------------------------------------------------------------

    def counting(self, updates: Updates) -> Sequence[bytes]:
        """Return those of the updates that are to be published now."""
        if self.voice is Voice.REPLAYS:
            if monotonic() > self.heard_at + bounds.QUIET_SECONDS:
                self.voice = Voice.COUNTS
            self.heard_at = monotonic()
        if self.voice is Voice.COUNTS or updates.kind not in ("update", "params"):
            return updates.raws
        pairs = [(raw, update_of(updates.kind, raw)) for raw in updates.raws]
        kept = [(raw, it) for raw, it in pairs if update_kind(it) in ATTRIBUTE_KINDS]
        if dropped := len(pairs) - len(kept):
            log.info("session %s: dropped %d old updates", self._session_id, dropped)
        if self.replay is not None and self.voice is not Voice.STALE:
            for _, update in pairs:
                self.replay.hear(update)
        if self.voice is not Voice.REPEATS:
            return [raw for raw, _ in kept]
        for _, update in kept:  # for `differing`
            kind = update_kind(update)
            if kind in WHOLE_KINDS:
                self.repeated = [each for each in self.repeated if update_kind(each) != kind]
            if kind not in CHOSEN_KINDS:
                self.repeated.append(update)
        return ()

    def differing(self, attributes: Attributes) -> list[bytes]:
        """Return, and forget, the updates kept aside that change these attributes, in order."""
        changing: list[bytes] = []
        for raw in map(without_its_title, self.repeated):
            changed = fold_update(attributes, update_kind(raw), raw)
            if changed != attributes:
                changing.append(raw)
                attributes = changed
        self.repeated = []
        return changing


def _is_same(left: Setup, right: Setup) -> bool:
    """Return True if the agent opens the session in the same way with both."""
    if left is right:
        return True
    return splice(left.params, {"sessionId": None}) == splice(right.params, {"sessionId": None})


def new_session_id(answer: bytes) -> str:
    """Return the id in the answer to `session/new`; RemoteError if there is none that can be
    used."""
    if not is_usable_id(found := session_id_in(answer) or ""):
        raise RemoteError(AcpError.code, "the agent made a session without an id")
    return found


class Children(Struct, eq=False):
    """The sub-agents of one session."""

    _session: HubSession
    _side: AgentSession
    _routes: Routes
    _journal: Sessions
    _early: list[Updates] = []
    _has_refused: bool = False

    def early(self) -> list[Updates]:
        """Return, once, the words of children that came before their announcement."""
        early, self._early = self._early, []
        return early

    # -- announced --------------------------------------------------------------------------

    async def look(self, updates: Updates) -> None:
        """Learn the children that these updates announce; the updates themselves do not count."""
        for raw in updates.raws:
            update = update_of(updates.kind, raw)
            await self.translate(update, self._routes.child(updates.session_id))

    async def translate(self, update: bytes, within: Child | None = None) -> bytes:
        """Return an update about children with the ids that clients know; b"" if it is refused.

        It arrived for the session itself, or for the child `within`.
        """
        kind = update_kind(update)
        if kind not in children.SPEAKS_OF_CHILDREN:
            return update
        if agent_id := children.child_of_update(kind, update):
            child = await self._find_or_bind(agent_id, within)
            return b"" if child is None else children.with_ids(kind, update, {agent_id: child.id})
        ids = {
            child: known.id for child, known in self._routes.children_of(self._session.id).items()
        }
        return children.with_ids(kind, update, {(self._side.id or ""): self._session.id, **ids})

    async def _find_or_bind(self, agent_id: str, within: Child | None) -> Child | None:
        """Return the child with this id of the agent, binding it if it is new; None if it is
        refused."""
        if (known := self._routes.child(agent_id)) is not None:
            if known.session_id == self._session.id:
                return known
            self._refuse(agent_id)
            return None
        depth = 1 if within is None else within.depth + 1
        if (
            self._routes.find(agent_id) is not None
            or depth > children.DEEPEST
            or len(agent_id) > children.LONGEST_ID
            or not is_usable_id(agent_id)
            or len(self._routes.children_of(self._session.id)) >= children.MOST_CHILDREN
        ):
            self._refuse(agent_id)
            return None
        is_taken = self._side.id != self._session.id
        if not is_taken:  # clients may know something else by this id
            is_taken = await row_of(self._journal, agent_id) is not None
        id_ = f"{self._side.id}:{agent_id}" if is_taken else agent_id
        child = Child(self._session.id, id_, depth)
        self._early += self._routes.bind_child(agent_id, child)
        return child

    def _refuse(self, agent_id: str) -> None:
        level = logging.DEBUG if self._has_refused else logging.WARNING
        self._has_refused = True
        log.log(
            level,
            "session %s: refused sub-agent %.80r: its id cannot be used, or is another session's, "
            "or there are too many, or they are nested too deeply",
            self._session.id,
            agent_id,
        )

    # -- what they say ----------------------------------------------------------------------

    async def entries(self, child: Child, updates: Updates) -> Sequence[bytes]:
        """Return the entries for what was said in a child."""
        entries = []
        for raw in updates.raws:
            update = await self.translate(update_of(updates.kind, raw), child)
            if not update:
                continue
            if updates.kind == "params":
                changes = {"sessionId": encode_text(child.id), "update": update}
                entries.append(splice(raw, changes))
            else:
                entries.append(children.child_entry(child.id, update))
        return entries

    async def opencode(self, params: bytes) -> bytes:
        """Return the entry for opencode's notification about a child; b"" if it is refused."""
        parts = members(params)
        agent_id, parent = (
            children.opencode_child(params),
            string(parts.get("parentSessionId")) or "",
        )
        within = self._routes.child(parent)
        if within is not None and within.session_id != self._session.id:
            self._refuse(agent_id)
            return b""
        if not agent_id or (child := await self._find_or_bind(agent_id, within)) is None:
            return b""
        changes = {
            "rootSessionId": encode_text(self._session.id),
            "childSessionId": encode_text(child.id),
            "parentSessionId": encode_text(self._session.id if within is None else within.id),
        }
        if "_meta" in parts:
            changes["_meta"] = meta_without_marks(parts["_meta"])
        if parts.get("update", b"").startswith(b"{"):
            changes["update"] = await self.translate(without_marks(parts["update"]), child) or b"{}"
        return children.opencode_entry(splice(params, changes))

    # -- what they ask ----------------------------------------------------------------------

    def translate_request(self, asked: AgentRequest) -> AgentRequest:
        """Return the agent's request under the id that clients know; `child` if a sub-agent
        asks."""
        child = self._routes.child(string(members(asked.params).get("sessionId")) or "")
        if child is None:
            return AgentRequest(asked.method, self._side.under_our_id(asked.params))
        params = splice(asked.params, {"sessionId": encode_text(child.id)})
        return AgentRequest(asked.method, params, child.id)
