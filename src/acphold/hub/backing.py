"""The agent's side of a session: opened, lost with the agent's process, opened again.

A session is restored by the agent's own `session/resume`, else by its own `session/load` with that
replay kept from everybody, else by a new session at the agent that is handed the earlier
conversation with the next prompt.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

import msgspec

from acphold.agents import Agent
from acphold.errors import (
    AUTH_REQUIRED,
    INTERNAL_ERROR,
    AcpholdError,
    AgentExitedError,
    RemoteError,
)
from acphold.hub.context import cut_off_turn, earlier_conversation
from acphold.hub.marks import notice
from acphold.hub.options import array, current_values, is_boolean, option_list, with_mode
from acphold.hub.updates import Repeats, for_session
from acphold.journal.standing import fold_settings
from acphold.schema import (
    LOAD_SESSION,
    NEW_SESSION,
    RESUME_SESSION,
    SET_SESSION_CONFIG_OPTION,
    SET_SESSION_MODE,
    encode,
)
from acphold.schema.splice import items, members, splice

if TYPE_CHECKING:
    from acphold.hub.routes import Routes
    from acphold.hub.session import Session
    from acphold.journal import Journal
    from acphold.journal.standing import Standing
    from acphold.rpc.peer import Answer

log = logging.getLogger(__name__)

Owed = Literal["nothing", "last turn", "conversation"]
"""What the agent has to be told of the past with the next prompt."""

RESTORE_TIMEOUT = 60.0
"""Seconds for an agent to open a session again, before the next way is tried."""

ATTEMPTS = 2
"""How often a session is restored when the agent is started anew in the middle of it."""


class Backing:
    """See the module.

    `setup` is what the client sent to open the session (working directory, MCP servers with their
    credentials): kept in memory only, because a restarted agent needs it again. `answer` is what
    the agent answered last when it opened the session. While it opens one again, `repeats` takes
    what it tells of it; with `muted` only what is no part of the conversation passes. `cut_off`
    says that the last turn ended in a crash, of acphold or of the agent.
    """

    def __init__(self, session: Session, agent: Agent, journal: Journal, routes: Routes) -> None:
        self.agent = agent
        self.agent_session: str | None = None
        self.setup = b'{"cwd":%b,"mcpServers":[]}' % encode(session.cwd)
        self.answer = b"{}"
        self.repeats: Repeats | None = None
        self.muted = False
        self._session = session
        self._journal = journal
        self._routes = routes
        self._generation = 0
        self._restoring = asyncio.Lock()
        self.cut_off = False
        self._owes: Owed = "nothing"
        self._unlinked: str | None = None

    @property
    def is_ready(self) -> bool:
        """Whether the agent runs and has this session open."""
        return self.agent.alive and self._generation == self.agent.generation

    @property
    def is_at_once(self) -> bool:
        """Whether a prompt can be sent as it is: nothing has to be opened or written out first."""
        return self.is_ready and self._owes == "nothing"

    def alone(self) -> bool:
        """Whether no other session has a turn at this agent."""
        others = self._routes.sessions() - {self._session}
        return all(other.turns.running is None for other in others)

    # -- opened ---------------------------------------------------------------------------

    async def opened(self, agent_session: str, answer: bytes) -> None:
        """The agent has this session open, under this id of its own."""
        self._generation = self.agent.generation
        self.answer = splice(answer, {"sessionId": None}) if answer.startswith(b"{") else b"{}"
        await self.bind(agent_session)

    async def adopt(self, method: str, agent_session: str) -> bytes:
        """Have the agent open a session of its own for the first time; its answer.

        Raises as `ready`, and RemoteError when it knows no such session.
        """
        async with self._restoring:
            await self.bind(agent_session)
            params = splice(self.setup, {"sessionId": encode(agent_session)})
            answer = await self.agent.ask(method, params)
            await self.opened(agent_session, answer)
            return answer

    async def bind(self, agent_session: str) -> None:
        """From now on what the agent tells of this id is for this session."""
        self.agent_session = agent_session
        for kind, raws in self._routes.bind(agent_session, self._session):
            if passing := for_session(self._session, kind, raws):
                await self._session.publish(kind, passing)

    def close(self) -> None:
        """Nothing the agent sends is for this session any more."""
        self._routes.unbind(self._session)
        self._generation = 0

    async def ready(self) -> None:
        """Have the agent run with this session open.

        Raises AgentStartError, and RemoteError when the agent wants the person to sign in or
        refuses a new session.
        """
        if self.is_ready:
            return
        async with self._restoring:
            for _ in range(ATTEMPTS):
                if not self.is_ready:
                    await self.agent.ensure()
                    await self._restore()

    async def outgoing(self, params: bytes, before: int) -> bytes:
        """The params of a prompt as the agent gets them.

        An agent that could not restore the session is handed the conversation up to entry
        `before`; one that could, the turn that was cut off, of which none seen so far knows.
        """
        self.muted = False
        changes: dict[str, bytes | None] = {"sessionId": encode(self.agent_session)}
        if self._owes != "nothing":
            state = await self._session.state(through=before)
            embedded = self.agent.capabilities.prompt_capabilities.embedded_context
            write = earlier_conversation if self._owes == "conversation" else cut_off_turn
            context = write(state, self._session.id, embedded=embedded)
            if context is not None:
                prompt = items(members(params)["prompt"])
                changes["prompt"] = array([context.block, *prompt])
                await self._session.publish("update", [notice(context.title, context.description)])
        return splice(params, changes)

    async def understood(self) -> None:
        """The agent has answered a prompt: it has what it was owed, and knows the conversation."""
        self._owes, self.cut_off = "nothing", False
        if self._unlinked is not None:
            await self._session.link(self.agent.key, self._unlinked)
            self._unlinked = None

    # -- restored -------------------------------------------------------------------------

    async def known_as(self) -> str | None:
        """The id by which the agent has known the conversation; None when it never did."""
        if self.agent.reads_journal:
            return self._session.id
        known = await self._journal.downstream(self._session.id)
        if known and await self._journal.session_of(self.agent.key, known) == self._session.id:
            return known
        return None  # another agent's id, or one that this agent has given away again

    async def _restore(self) -> None:
        self._generation = 0
        self._owes, self._unlinked = "nothing", None
        wanted = self._session.settings
        known = await self.known_as()
        self.muted = True
        opened = None if known is None else await self._reopen(known)
        if opened is None:
            opened = await self._open_new()
        elif self.cut_off and not self.agent.reads_journal:
            self._owes = "last turn"
        await self._set_again(wanted, opened)

    async def _reopen(self, known: str) -> bytes | None:
        """By the agent's own means; None when it has none, or they failed."""
        can = self.agent.capabilities
        if can.session_capabilities.resume is not None:
            opened = await self._try(RESUME_SESSION.name, known)
            if opened is not None:
                self.muted = False
                return opened
        if can.load_session:
            # Some replay on behind their answer: muted until the next prompt.
            return await self._try(LOAD_SESSION.name, known)
        return None

    async def _try(self, method: str, known: str) -> bytes | None:
        params = splice(self.setup, {"sessionId": encode(known)})
        self.repeats = Repeats()
        try:
            await self.bind(known)
            async with asyncio.timeout(RESTORE_TIMEOUT):
                answer = await self.agent.ask(method, params)
            news, self.repeats = self.repeats.news(self._session.settings), None
            await self.opened(known, answer)
            if news:
                await self._session.publish("update", news)
            return answer
        except RemoteError as exc:
            if exc.code == AUTH_REQUIRED:
                raise
            log.warning("session %s: the agent refused %s: %s", self._session.id, method, exc)
        except TimeoutError:
            log.warning("session %s: the agent never answered %s", self._session.id, method)
        except AgentExitedError as exc:
            log.warning("session %s: %s during %s", self._session.id, exc, method)
            await self.agent.ensure()
        finally:
            self.repeats = None
        self._routes.unbind(self._session)
        return None

    async def _open_new(self) -> bytes:
        """A session at the agent that is handed the conversation with the next prompt.

        Until the agent has answered that prompt it does not know the conversation, and its
        session is neither to be restored nor listed: hence the tombstone.
        """

        async def answered(answer: Answer) -> None:
            if isinstance(answer, bytes):
                agent_session = new_session_id(answer)
                await self._journal.forget(self.agent.key, agent_session)
                self._unlinked = agent_session
                self._owes = "conversation"
                await self.opened(agent_session, answer)

        params = splice(self.setup, {"sessionId": None})
        return await self.agent.ask(NEW_SESSION.name, params, answered)

    # -- set as it was --------------------------------------------------------------------

    async def _set_again(self, wanted: Standing, opened: bytes) -> None:
        """Modes and options as the person left them; what became of them is journalled."""
        parts = members(opened) if opened.startswith(b"{") else {}
        modes = parts.get("modes", b"null")
        if wanted.current_mode_id is not None:
            modes = await self._set_mode(modes, wanted.current_mode_id)
        remembered = option_list(wanted.config_options or b"[]")
        # An agent that says nothing of its options here may have them all the same.
        options = option_list(parts.get("configOptions", b"null")) or remembered
        said = options is not remembered
        for option_id, value in current_values(remembered).items():
            if not said or current_values(options).get(option_id, value) != value:
                options = await self._set_option(options, option_id, value)
        now: dict[str, bytes] = {}
        if modes != b"null":
            now["modes"] = modes
        if options:
            now["configOptions"] = array(options)
        entry = splice(b"{}", now)
        if fold_settings(self._session.settings, entry) != self._session.settings:
            await self._session.publish("settings", [entry])

    async def _set_mode(self, modes: bytes, wanted: str) -> bytes:
        said = modes.startswith(b"{")
        if said and members(modes).get("currentModeId") == encode(wanted):
            return modes
        params = {"sessionId": self.agent_session, "modeId": wanted}
        if await self._set(SET_SESSION_MODE.name, params) is None or not said:
            return modes
        return with_mode(modes, wanted)

    async def _set_option(self, options: list[bytes], option_id: str, value: bytes) -> list[bytes]:
        params: dict[str, object] = {
            "sessionId": self.agent_session,
            "configId": option_id,
            "value": msgspec.Raw(value),
        }
        if is_boolean(options, option_id):
            params["type"] = "boolean"
        answer = await self._set(SET_SESSION_CONFIG_OPTION.name, params)
        if answer is None:
            return options
        return option_list(members(answer).get("configOptions", b"null")) or options

    async def _set(self, method: str, params: Mapping[str, object]) -> bytes | None:
        try:
            return await self.agent.ask(method, encode(params))
        except RemoteError as exc:
            log.warning("session %s: %s after restoring: %s", self._session.id, method, exc)
            return None


def new_session_id(answer: bytes) -> str:
    """The id in the answer to `session/new`; RemoteError when there is none."""
    try:
        return msgspec.json.decode(members(answer)["sessionId"], type=str)
    except (KeyError, AcpholdError, msgspec.MsgspecError):
        raise RemoteError(INTERNAL_ERROR, "the agent made a session without an id") from None
