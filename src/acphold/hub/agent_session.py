"""The agent's side of a session: its id there, how it was opened, and whether its words count now.

Only this module knows the agent's id of a session. The session is opened (`session/new`, or
adopted), lost with the agent's process, and opened again when needed: see `hub.restoration`.

The `Voice` says whether the agent's words about the session count:

    what happened                                   voice
    ----------------------------------------------  -------
    a new or adopted session was opened             COUNTS
    it is being restored                            REPEATS
    it was restored by the agent's `session/resume` COUNTS
    it was restored by a replay, or anew            STALE
    a prompt was sent                               COUNTS
    a turn was cancelled and answered, or answered
    for by us                                       STALE

COUNTS: everything is part of the session. REPEATS: it is in the journal already; settings that
differ are kept for the end of the restoring. STALE: only updates of the attributes count; some
agents go on with a replay behind its answer, or with a turn behind its cancellation.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from enum import Enum

from msgspec import Struct

from acphold.agents import AgentExchange, HubAgent, Updates
from acphold.agents.capabilities import told_author
from acphold.agents.interface import ANSWER_SECONDS
from acphold.agents.runs import update_of
from acphold.errors import INTERNAL_ERROR, RemoteError
from acphold.history.attributes import Attributes, fold_update
from acphold.history.raw_update import update_kind
from acphold.hub.handover import without_its_title
from acphold.hub.outside_turns import CAPTURED_BYTES
from acphold.hub.routes import Routes
from acphold.schema import encode
from acphold.schema.splice import session_id_in, splice
from acphold.schema.update_kinds import ATTRIBUTE_KINDS, kinds_about

log = logging.getLogger(__name__)


class Setup(Struct, frozen=True):
    """The request of a client that opens a session, checked: `params` as the agent is to get them.

    It holds the credentials of MCP servers: kept in memory only, to restart the agent with.
    `tenant` will own a session made with it; `introduction` is how the client introduced itself.
    `is_listed_elsewhere` as in `ListedRow`. `stays` refuses to continue the session with another
    agent than its own.
    """

    cwd: str
    additional_directories: tuple[str, ...]
    params: bytes
    tenant: str = ""
    introduction: bytes = b"{}"
    is_listed_elsewhere: bool = False
    stays: bool = False

    def told(self, agent: HubAgent) -> bytes:
        """Return the params for this agent; an agent of the library is also told who asks."""
        if not agent.reads_journal:
            return self.params
        return told_author(self.params, self.tenant, self.introduction)


class Voice(Enum):
    """Tells if the agent's words are part of the session now; see the module."""

    COUNTS = "counts"
    REPEATS = "repeats"
    STALE = "stale"


WHOLE_KINDS = kinds_about("commands", "cost")
"""Kinds of attribute updates of which the last one says it all."""

CHOSEN_KINDS = kinds_about("choices")
"""The person's choices: a restored session is set as it was, not as the agent reports it."""


class AgentSession:
    """See the module.

    `answer` is the agent's last answer to opening the session. While it is restored, `captured`
    collects the conversation of the agent's replay; None if not wanted.
    """

    def __init__(self, agent: HubAgent, routes: Routes, session_id: str, setup: Setup) -> None:
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
        """True if the agent runs and has this session open."""
        return self.agent.alive and self._generation == self.agent.generation

    @property
    def is_at_work(self) -> bool:
        """True while the agent works on a turn of this session."""
        return self._routes.unended_turn(self.id) is not None

    def knows_child(self, child: str) -> bool:
        """Return True if the agent, since it was started, announced the sub-agent with this id for
        clients."""
        children = self._routes.children_of(self._session_id)
        return any(known.id == child for known in children.values())

    # -- opened and closed ----------------------------------------------------------------

    def bind(self, agent_session: str) -> list[Updates]:
        """Route the agent's words about this id to this session; return those that came early.

        The session does not count as open before `opened`.
        """
        self.id = agent_session
        return self._routes.bind(agent_session, self._session_id)

    def opened(self, answer: bytes, setup: Setup) -> None:
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

    def under_our_id(self, params: bytes) -> bytes:
        """Return params about this session with the id that clients know."""
        if self.id == self._session_id:
            return params
        return splice(params, {"sessionId": encode(self._session_id)})

    # -- heard ----------------------------------------------------------------------------

    def counting(self, updates: Updates) -> Sequence[bytes]:
        """Return those of the updates that are to be published now."""
        if self.voice is Voice.COUNTS or updates.kind not in ("update", "params"):
            return updates.raws
        said = [(raw, update_of(updates.kind, raw)) for raw in updates.raws]
        kept = [(raw, it) for raw, it in said if update_kind(it) in ATTRIBUTE_KINDS]
        if dropped := len(said) - len(kept):
            log.info("session %s: %d old updates were dropped", self._session_id, dropped)
        if self.voice is Voice.STALE:
            return [raw for raw, _ in kept]
        for _, update in kept:  # for `differing`
            kind = update_kind(update)
            if kind in WHOLE_KINDS:
                self.repeated = [each for each in self.repeated if update_kind(each) != kind]
            if kind not in CHOSEN_KINDS:
                self.repeated.append(update)
        if self.captured is not None:
            self._captured_bytes += sum(len(it) for _, it in said)
            self.captured += [it for _, it in said if update_kind(it) not in ATTRIBUTE_KINDS]
            if self._captured_bytes > CAPTURED_BYTES:
                self.captured = None
        return ()

    def begin_capture(self) -> None:
        """Collect the conversation of the replay that is requested next."""
        self.captured, self._captured_bytes = [], 0

    def differing(self, attributes: Attributes) -> list[bytes]:
        """Return, and forget, the updates kept aside that change these attributes, in order."""
        found: list[bytes] = []
        for raw in map(without_its_title, self.repeated):
            changed = fold_update(attributes, update_kind(raw), raw)
            if changed != attributes:
                found.append(raw)
                attributes = changed
        self.repeated = []
        return found


def _is_same(one: Setup, other: Setup) -> bool:
    """Return True if the agent opens the session in the same way with both."""
    if one is other:
        return True
    return splice(one.params, {"sessionId": None}) == splice(other.params, {"sessionId": None})


def new_session_id(answer: bytes) -> str:
    """Return the id in the answer to `session/new`; RemoteError if there is none."""
    if (found := session_id_in(answer)) is None:
        raise RemoteError(INTERNAL_ERROR, "the agent made a session without an id")
    return found
