"""The agent's side of a session: its id there, how it was opened, and whether its words count now.

Nobody else knows the agent's id of a session. It is opened (`session/new`, or adopted), lost with
the agent's process, and opened again when it is needed: see `hub.restoration`.

What the agent says of the session counts or not, by its `Voice`:

    what happened                                   voice
    ----------------------------------------------  -------
    a new or adopted session was opened             COUNTS
    it is being restored                            REPEATS
    it was restored by the agent's `session/resume` COUNTS
    it was restored by a replay, or anew            STALE
    a prompt was sent                               COUNTS
    a turn was cancelled and answered, or answered
    for by us                                       STALE

COUNTS: all of it is part of the session. REPEATS: it is in the journal already; what differs in the
settings is kept for the end of the restoring. STALE: only what says how the session stands counts;
some agents go on with a replay behind its answer, or with a turn behind its cancellation.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from enum import Enum

from msgspec import Struct

from acphold.agents import Agent, Exchange, Updates
from acphold.agents.capabilities import told_author
from acphold.agents.interface import ANSWER_SECONDS
from acphold.errors import INTERNAL_ERROR, InvalidParamsError, RemoteError
from acphold.history.attributes import Attributes, fold_update
from acphold.history.raw_update import update_kind
from acphold.hub.outside_turns import CAPTURED_BYTES
from acphold.hub.routes import Routes
from acphold.schema import encode
from acphold.schema.session_ids import session_id_in
from acphold.schema.splice import members, splice
from acphold.schema.update_kinds import ATTRIBUTE_KINDS, kinds_about

log = logging.getLogger(__name__)


class Setup(Struct, frozen=True):
    """What a client sends to open a session, checked: `params` as the agent is to get them.

    It holds the credentials of MCP servers: kept in memory only, for when the agent is restarted.
    `tenant` is whose a session will be that is made so, `introduction` how the client introduced
    itself. `is_listed_elsewhere` as of `Session`.
    """

    cwd: str
    additional_directories: tuple[str, ...]
    params: bytes
    tenant: str = ""
    introduction: bytes = b"{}"
    is_listed_elsewhere: bool = False

    def told(self, agent: Agent) -> bytes:
        """The params as this agent is to get them: one of the library is told by whom."""
        if not agent.reads_journal:
            return self.params
        return told_author(self.params, self.tenant, self.introduction)


class Voice(Enum):
    """Whether what the agent says now is part of the session; see the module."""

    COUNTS = "counts"
    REPEATS = "repeats"
    STALE = "stale"


WHOLE_KINDS = kinds_about("commands", "cost")
"""Of those that say how a session stands, the ones of which the last one says it all."""

CHOSEN_KINDS = kinds_about("choices")
"""What the person chose: a session that is restored is set as it was, not as the agent tells it."""


class AgentSession:
    """See the module.

    `answer` is what the agent answered last when it opened the session. While it is restored,
    `captured` takes the conversation of the agent's replay; None when nobody wants it.
    """

    def __init__(self, agent: Agent, routes: Routes, session_id: str, setup: Setup) -> None:
        self.agent = agent
        self.id: str | None = None
        self.setup = setup
        self.answer = b"{}"
        self.voice = Voice.COUNTS
        self.repeated: list[bytes] = []
        self.captured: list[bytes] | None = None
        self._captured_bytes = 0
        self._session_id = session_id
        self._routes = routes
        self._generation = 0

    @property
    def is_open(self) -> bool:
        """Whether the agent runs and has this session open."""
        return self.agent.alive and self._generation == self.agent.generation

    @property
    def is_at_work(self) -> bool:
        """Whether the agent is at a turn of this session."""
        return self._routes.unended_turn(self.id) is not None

    def knows_child(self, child: str) -> bool:
        """Whether the agent, as it runs, has told of the sub-agent that clients know as this."""
        children = self._routes.children_of(self._session_id)
        return any(known.id == child for known in children.values())

    # -- opened and closed ----------------------------------------------------------------

    def bind(self, agent_session: str) -> list[Updates]:
        """From now on the agent's words about this id are for this session; those that were early.

        It is not open before `opened`.
        """
        self.id = agent_session
        return self._routes.bind(agent_session, self._session_id)

    def opened(self, answer: bytes, setup: Setup) -> None:
        """The agent has it open with this, and answered so.

        That does not count if a client has opened it with something else meanwhile.
        """
        if _is_same(setup, self.setup):
            self._generation = self.agent.generation
        self.answer = splice(answer, {"sessionId": None}) if answer.startswith(b"{") else b"{}"

    def close(self) -> None:
        """Nothing the agent says is for this session any more."""
        self._routes.unbind(self._session_id)
        self._generation = 0

    def open_with(self, setup: Setup) -> None:
        """A client opens it with this: what the agent has it open with is no longer right."""
        if not _is_same(setup, self.setup):
            self._generation = 0
        self.setup = setup

    def distrust(self) -> None:
        """Have it opened again before it is used: who is signed in, or what it was opened with,
        has changed."""
        self._generation = 0

    # -- talked to ------------------------------------------------------------------------

    def exchange(
        self, method: str, params: bytes, seconds: float | None = ANSWER_SECONDS
    ) -> Exchange:
        """A request about this session; `params` may name it by any id."""
        return Exchange(self.agent, method, self.under_its_id(params), seconds)

    def under_its_id(self, params: bytes) -> bytes:
        """Params about this session as the agent knows it."""
        return splice(params, {"sessionId": encode(self.id)})

    def under_our_id(self, params: bytes) -> bytes:
        """Params about this session as clients know it."""
        if self.id == self._session_id:
            return params
        return splice(params, {"sessionId": encode(self._session_id)})

    # -- heard ----------------------------------------------------------------------------

    def counting(self, updates: Updates) -> Sequence[bytes]:
        """Those of the updates that are to be published now."""
        if self.voice is Voice.COUNTS or updates.kind not in ("update", "params"):
            return updates.raws
        whole = updates.kind == "params"
        kept = [
            raw
            for raw in updates.raws
            if update_kind(update_in(raw) if whole else raw) in ATTRIBUTE_KINDS
        ]
        if dropped := len(updates.raws) - len(kept):
            log.info("session %s: %d old updates were dropped", self._session_id, dropped)
        if self.voice is Voice.STALE:
            return kept
        for raw in map(update_in, kept) if whole else kept:  # for `differing`
            kind = update_kind(raw)
            if kind in WHOLE_KINDS:
                self.repeated = [each for each in self.repeated if update_kind(each) != kind]
            if kind not in CHOSEN_KINDS:
                self.repeated.append(raw)
        if self.captured is not None:
            raws = [*map(update_in, updates.raws)] if whole else updates.raws
            self._captured_bytes += sum(map(len, raws))
            self.captured += [raw for raw in raws if update_kind(raw) not in ATTRIBUTE_KINDS]
            if self._captured_bytes > CAPTURED_BYTES:
                self.captured = None
        return ()

    def begin_capture(self) -> None:
        """Take the conversation of the replay that is asked for next."""
        self.captured, self._captured_bytes = [], 0

    def differing(self, attributes: Attributes) -> list[bytes]:
        """What was kept aside and changes these attributes, in order; kept no longer."""
        found: list[bytes] = []
        for raw in self.repeated:
            changed = fold_update(attributes, update_kind(raw), raw)
            if changed != attributes:
                found.append(raw)
                attributes = changed
        self.repeated = []
        return found


def _is_same(one: Setup, other: Setup) -> bool:
    """Whether the agent has the session open in the same way with both."""
    if one is other:
        return True
    return splice(one.params, {"sessionId": None}) == splice(other.params, {"sessionId": None})


def update_in(params: bytes) -> bytes:
    """The update in the params of a `session/update`; b"" when there is none to be read."""
    try:
        return members(params).get("update", b"")
    except InvalidParamsError:
        return b""


def new_session_id(answer: bytes) -> str:
    """The id in the answer to `session/new`; RemoteError when there is none."""
    if (found := session_id_in(answer)) is None:
        raise RemoteError(INTERNAL_ERROR, "the agent made a session without an id")
    return found
