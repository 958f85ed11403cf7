"""The agent's side of a session: opened, lost with the agent's process, opened again.

A session is restored by the agent's own `session/resume`, else by its own `session/load` with that
replay kept from everybody, else by a new session at the agent that is handed the earlier
conversation with the next prompt.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

from holdfast.agents import Agent
from holdfast.errors import AUTH_REQUIRED, AgentExitedError, RemoteError
from holdfast.hub.context import earlier_conversation
from holdfast.hub.marks import notice
from holdfast.hub.options import array, current_values, is_boolean, option_list, with_mode
from holdfast.schema import (
    LOAD_SESSION,
    NEW_SESSION,
    RESUME_SESSION,
    SET_SESSION_CONFIG_OPTION,
    SET_SESSION_MODE,
)
from holdfast.schema.splice import items, members, splice

if TYPE_CHECKING:
    from holdfast.hub.routes import Routes
    from holdfast.hub.session import Session
    from holdfast.journal import Journal
    from holdfast.rpc.peer import Answer

log = logging.getLogger(__name__)

RESTORE_TIMEOUT = 60.0
"""Seconds for an agent to open a session again, before the next way is tried."""


class Backing:
    """See the module.

    `setup` is what the client sent to open the session (working directory, MCP servers with their
    credentials): kept in memory only, because a restarted agent needs it again.
    """

    def __init__(self, session: Session, agent: Agent, journal: Journal, routes: Routes) -> None:
        self.agent = agent
        self.agent_session: str | None = None
        self.setup = b'{"cwd":%b,"mcpServers":[]}' % msgspec.json.encode(session.cwd)
        self.replaying = False
        self._session = session
        self._journal = journal
        self._routes = routes
        self._generation = 0
        self._restoring = asyncio.Lock()
        self._owes_context = False

    @property
    def is_ready(self) -> bool:
        """Whether the agent runs and has this session open."""
        return self.agent.alive and self._generation == self.agent.generation

    def alone(self) -> bool:
        """Whether no other session has a turn at this agent."""
        others = self._routes.sessions() - {self._session}
        return all(other.turns.running is None for other in others)

    # -- opened ---------------------------------------------------------------------------

    async def bind(self, agent_session: str) -> None:
        """The agent has this session open, under this id of its own."""
        self.agent_session = agent_session
        self._generation = self.agent.generation
        for kind, raws in self._routes.bind(agent_session, self._session):
            await self._session.publish(kind, raws)

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
            if not self.is_ready:
                await self.agent.ensure()
                await self._restore()

    async def outgoing(self, params: bytes, before: int) -> bytes:
        """The params of a prompt as the agent gets them.

        A session the agent could not restore is handed the conversation up to entry `before`.
        """
        self.replaying = False
        changes: dict[str, bytes | None] = {
            "sessionId": msgspec.json.encode(self.agent_session),
        }
        if self._owes_context:
            state = await self._session.state(through=before)
            embedded = self.agent.capabilities.prompt_capabilities.embedded_context
            context = earlier_conversation(state, self._session.id, embedded=embedded)
            if context is not None:
                prompt = items(members(params).get("prompt", b"[]"))
                changes["prompt"] = array([context.block, *prompt])
                await self._session.publish("update", [notice(context.title, context.description)])
        return splice(params, changes)

    def sent(self) -> None:
        """The prompt that `outgoing` made has left: the agent has what it was owed."""
        self._owes_context = False

    # -- restored -------------------------------------------------------------------------

    async def _restore(self) -> None:
        known = await self._journal.downstream(self._session.id)
        if known and await self._journal.session_of(self.agent.key, known) != self._session.id:
            known = None  # another agent's id, or one that this agent has given away again
        opened = None if known is None else await self._reopen(known)
        if opened is None:
            opened = await self._open_new()
            # The conversation itself is looked at when it is needed: with the next prompt.
            self._owes_context = self._session.last_seq > 0
        await self._set_again(opened)

    async def _reopen(self, known: str) -> bytes | None:
        """By the agent's own means; None when it has none, or they failed."""
        can = self.agent.capabilities
        if can.session_capabilities.resume is not None:
            opened = await self._try(RESUME_SESSION.name, known)
            if opened is not None:
                return opened
        if can.load_session:
            self.replaying = True
            opened = await self._try(LOAD_SESSION.name, known)
            if opened is not None:
                return opened  # some replay on behind their answer: muted until the next prompt
            self.replaying = False
        return None

    async def _try(self, method: str, known: str) -> bytes | None:
        params = splice(self.setup, {"sessionId": msgspec.json.encode(known)})
        await self.bind(known)
        try:
            async with asyncio.timeout(RESTORE_TIMEOUT):
                return await self.agent.ask(method, params)
        except RemoteError as exc:
            if exc.code == AUTH_REQUIRED:
                self._generation = 0
                raise
            log.warning("session %s: the agent refused %s: %s", self._session.id, method, exc)
        except TimeoutError:
            log.warning("session %s: the agent never answered %s", self._session.id, method)
        except AgentExitedError as exc:
            log.warning("session %s: %s during %s", self._session.id, exc, method)
            await self.agent.ensure()
        self._routes.unbind(self._session)
        return None

    async def _open_new(self) -> bytes:
        opened = b"{}"

        async def answered(answer: Answer) -> None:
            nonlocal opened
            if isinstance(answer, bytes):
                opened = answer
                agent_session = msgspec.json.decode(members(answer)["sessionId"], type=str)
                await self._journal.link(self.agent.key, agent_session, self._session.id)
                await self.bind(agent_session)

        params = splice(self.setup, {"sessionId": None})
        await self.agent.ask(NEW_SESSION.name, params, answered)
        return opened

    # -- set as it was --------------------------------------------------------------------

    async def _set_again(self, opened: bytes) -> None:
        """Modes and options as the person left them; what became of them is journalled."""
        wanted = self._session.settings
        parts = members(opened) if opened.startswith(b"{") else {}
        modes = parts.get("modes", b"null")
        if modes != b"null" and wanted.current_mode_id is not None:
            modes = await self._set_mode(modes, wanted.current_mode_id)
        options = option_list(parts.get("configOptions", b"null"))
        for option_id, value in current_values(option_list(wanted.config_options or b"[]")).items():
            options = await self._set_option(options, option_id, value)
        now: dict[str, bytes] = {}
        if modes != b"null":
            now["modes"] = modes
        if options:
            now["configOptions"] = array(options)
        if now:
            entry = b"{%b}" % b",".join(b'"%b":%b' % (k.encode(), v) for k, v in now.items())
            await self._session.publish("opened", [entry])

    async def _set_mode(self, modes: bytes, wanted: str) -> bytes:
        have = members(modes).get("currentModeId")
        if have == msgspec.json.encode(wanted):
            return modes
        params = {"sessionId": self.agent_session, "modeId": wanted}
        if await self._set(SET_SESSION_MODE.name, params) is None:
            return modes
        return with_mode(modes, wanted)

    async def _set_option(self, options: list[bytes], option_id: str, value: bytes) -> list[bytes]:
        have = current_values(options)
        if have.get(option_id, value) == value:
            return options
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
            return await self.agent.ask(method, msgspec.json.encode(params))
        except RemoteError as exc:
            log.warning("session %s: %s after restoring: %s", self._session.id, method, exc)
            return None
