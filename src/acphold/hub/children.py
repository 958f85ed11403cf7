"""The sub-agents of one session: the agent's ids of them, and the ids that clients know.

A child is known once it is announced, while the agent runs. Clients know it by the agent's own id,
as they know the session. The id is prefixed with the agent's id of the session if clients know that
by another id, or if a session of the journal has the child's id. So two things that two agents, or
two runs of one, call the same stay two.

An agent cannot announce a session that it has open here, nor a child of another one. Beyond the
limits its announcements are dropped; only the first is logged as a warning.
"""

# See docs/decisions.md, 9.

from __future__ import annotations

import logging
from collections.abc import Sequence

from acphold.agents import AgentRequest, Updates
from acphold.agents.runs import update_of, with_update
from acphold.errors import UnknownSessionError
from acphold.history.children import (
    DEEPEST,
    LONGEST_ID,
    MOST_CHILDREN,
    SPEAKS_OF_CHILDREN,
    announced_child,
    child_entry,
    opencode_child,
    opencode_entry,
    with_ids,
)
from acphold.history.raw_update import encode_text, members, string, update_kind
from acphold.history.speakers import meta_without_marks, without_marks
from acphold.hub.agent_session import AgentSession
from acphold.hub.routes import Child, Routes
from acphold.hub.session import HubSession
from acphold.journal import Sessions
from acphold.schema.splice import splice

log = logging.getLogger(__name__)


class Children:
    """See the module."""

    def __init__(
        self, session: HubSession, side: AgentSession, routes: Routes, journal: Sessions
    ) -> None:
        self._session = session
        self._side = side
        self._routes = routes
        self._journal = journal
        self._early: list[Updates] = []
        self._has_refused = False

    def find(self, agent_session: str) -> Child | None:
        """Return the child of this session that the agent means by this id."""
        return self._routes.child(agent_session)

    def early(self) -> list[Updates]:
        """Return, once, the words of children that came before their announcement."""
        early, self._early = self._early, []
        return early

    # -- announced --------------------------------------------------------------------------

    async def look(self, updates: Updates) -> None:
        """Learn the children that these updates announce; the updates themselves do not count."""
        for raw in updates.raws:
            update = update_of(updates.kind, raw)
            await self.taken(update, self.find(updates.session_id))

    async def told(self, kind: str, raws: Sequence[bytes]) -> list[bytes]:
        """Return updates of the session itself, or params with more than them, as clients get
        them."""
        told = []
        for raw in raws:
            update = update_of(kind, raw)
            if (taken := await self.taken(update)) and taken is not update:
                raw = with_update(kind, raw, taken)
            if taken or not update:
                told.append(raw)
        return told

    async def taken(self, update: bytes, within: Child | None = None) -> bytes:
        """Return an update about children as clients are told it; b"" if it is refused.

        It was said in the session itself, or in the child `within`.
        """
        kind = update_kind(update)
        if kind not in SPEAKS_OF_CHILDREN:
            return update
        if agent_id := announced_child(kind, update):
            child = await self._known(agent_id, within)
            return b"" if child is None else with_ids(kind, update, {agent_id: child.id})
        ids = {
            child: known.id for child, known in self._routes.children_of(self._session.id).items()
        }
        return with_ids(kind, update, {(self._side.id or ""): self._session.id, **ids})

    async def _known(self, agent_id: str, within: Child | None) -> Child | None:
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
            or depth > DEEPEST
            or len(agent_id) > LONGEST_ID
            or len(self._routes.children_of(self._session.id)) >= MOST_CHILDREN
        ):
            self._refuse(agent_id)
            return None
        id_ = agent_id
        if self._side.id != self._session.id or await self._is_taken(agent_id):
            id_ = f"{self._side.id}:{agent_id}"
        child = Child(self._session.id, id_, depth)
        self._early += self._routes.bind_child(agent_id, child)
        return child

    async def _is_taken(self, id_: str) -> bool:
        """Return True if clients may know something else by this id."""
        try:
            await self._journal.session(id_)
        except UnknownSessionError:
            return False
        return True

    def _refuse(self, agent_id: str) -> None:
        level = logging.DEBUG if self._has_refused else logging.WARNING
        self._has_refused = True
        log.log(
            level,
            "session %s: sub-agent %.80r is refused: another session has this id, "
            "or there are too many, or they lie too deep in one another",
            self._session.id,
            agent_id,
        )

    # -- what they say ----------------------------------------------------------------------

    async def entries(self, child: Child, updates: Updates) -> Sequence[bytes]:
        """Return the entries for what was said in a child."""
        found = []
        for raw in updates.raws:
            said = update_of(updates.kind, raw)
            if not (update := await self.taken(said, child)):
                continue
            if updates.kind == "params":
                changes = {"sessionId": encode_text(child.id), "update": update}
                found.append(splice(raw, changes))
            else:
                found.append(child_entry(child.id, update))
        return found

    async def opencode(self, params: bytes) -> bytes:
        """Return the entry for opencode's notification about a child; b"" if it is refused."""
        parts = members(params)
        agent_id, parent = opencode_child(params), string(parts.get("parentSessionId")) or ""
        within = self._routes.child(parent)
        if within is not None and within.session_id != self._session.id:
            self._refuse(agent_id)
            return b""
        if not agent_id or (child := await self._known(agent_id, within)) is None:
            return b""
        changes = {
            "rootSessionId": encode_text(self._session.id),
            "childSessionId": encode_text(child.id),
            "parentSessionId": encode_text(self._session.id if within is None else within.id),
        }
        if "_meta" in parts:
            changes["_meta"] = meta_without_marks(parts["_meta"])
        if parts.get("update", b"").startswith(b"{"):
            changes["update"] = await self.taken(without_marks(parts["update"]), child) or b"{}"
        return opencode_entry(splice(params, changes))

    # -- what they ask ----------------------------------------------------------------------

    def asked(self, asked: AgentRequest) -> AgentRequest:
        """Return the agent's request under the id that clients know; `child` if a sub-agent
        asks."""
        child = self.find(string(members(asked.params).get("sessionId")) or "")
        if child is None:
            return AgentRequest(asked.method, self._side.under_our_id(asked.params))
        params = splice(asked.params, {"sessionId": encode_text(child.id)})
        return AgentRequest(asked.method, params, child.id)
