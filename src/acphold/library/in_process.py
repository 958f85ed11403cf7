"""An agent of the library as the hub sees it: the interface of `agents`, without a wire.

It has the same interface as a wrapped program, so the hub cannot tell the difference.
"""

# See docs/decisions.md, 27.

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable
from time import monotonic
from typing import TYPE_CHECKING

import msgspec

from acp_wire import schema
from acp_wire.rpc.eager_tasks import EagerTasks
from acp_wire.rpc.wire_errors import as_remote, incident
from acp_wire.schema import members, splice
from acp_wire.schema.splice import session_id_in
from acp_wire.surroundings import Surroundings
from acp_wire.tasks import TaskSet
from acphold import errors
from acphold.journal.journal import Journal, session_of
from acphold.library import bounds
from acphold.library.definition import Definition, SessionHook, capabilities_of, guard, introduction
from acphold.library.history import History
from acphold.library.outbox import Outbox, Post, fresh_id
from acphold.library.session import AuthorSession, Selection, SlashCommands
from acphold.library.turn_task import TurnTask, failure
from acphold.library.workspace import ClientSide
from acphold.live.agents.capabilities import opener
from acphold.live.agents.interface import AgentCall, AgentRequest, HubAgent, ListenerToMany
from acphold.live.hub.prompt_turn import PromptCall
from acphold.logs import about
from acphold.mcp_servers.servers import MCP_MESSAGE

if TYPE_CHECKING:
    from acp_wire.rpc.requests import Answer
    from acphold.library.session_servers import SessionServers
    from acphold.mcp_servers.transports import Channel

log = logging.getLogger(__name__)


class InProcessAgent(HubAgent):
    """An agent made from a `Definition`.

    Its sessions have the ids that clients see, and their history is the journal's, so it can always
    resume.
    """

    reads_journal = True

    def __init__(
        self,
        definition: Definition,
        listener: ListenerToMany,
        journal: Journal,
        *,
        surroundings: Surroundings,
        mcp_timeout: float,
    ) -> None:
        super().__init__(surroundings)
        self.definition = definition
        # Not only the name: under that, the journal has this agent's sessions behind `wrap`.
        self.key = f"{definition.name} (library)"
        self.has_sign_in = bool(definition.auth_methods)
        self.generation = 1
        self.capabilities = capabilities_of(definition)
        self._listener = listener
        self._post = Post(listener)
        self._journal = journal
        self._mcp_timeout = mcp_timeout
        self._sessions: dict[str, AuthorSession] = {}
        self._turns: dict[str, TurnTask] = {}
        self._notifying = TaskSet()
        self._tasks = EagerTasks()
        self._channel: Channel | None = None
        self._replying: dict[AgentCall, asyncio.Task[None]] = {}

    # -- agents.Agent ---------------------------------------------------------------------

    @property
    def alive(self) -> bool:
        return True

    async def initialize(self, params: bytes) -> bytes:
        return introduction(self.definition, self.capabilities)

    async def ensure(self) -> None:
        """Do nothing: it runs as long as this process does."""

    async def restart(self) -> None:
        """Give up on turns that do not end; their sessions are resumed when they are needed."""
        for opened in tuple(self._sessions.values()):
            await self._leave(opened)
        self.generation += 1

    async def stop(self) -> bool:
        return False  # its code runs in our process

    def send(self, call: AgentCall) -> None:
        if call.method == schema.PROMPT.name:
            request = schema.decode(schema.PromptRequest, call.params).value
            opened = self._look_up(request.session_id)
            number = call.turn if isinstance(call, PromptCall) else 0
            turn = TurnTask(self.definition, opened, request.prompt, number)

            async def run_and_report() -> None:
                answer = await turn.run()
                if self._turns.get(opened.id) is turn:
                    del self._turns[opened.id]
                await self._report(call, answer)

            if (earlier := self._turns.get(opened.id)) is not None:
                earlier.give_up()  # it was answered for: its updates belong to no later turn
            self._turns[opened.id] = turn
            began = monotonic()
            with opened.outbox.one_step():
                self._tasks.begin(run_and_report(), "turn")
            # Code that has blocked once is likely to block in the next turn, too.
            self.takes_a_moment = monotonic() - began < bounds.BLOCKING_SECONDS
            return
        task = self._replying[call] = asyncio.create_task(self._reply(call), name=call.method)
        task.add_done_callback(lambda _: self._replying.pop(call, None))

    def withdraw(self, call: AgentCall) -> None:
        if (task := self._replying.pop(call, None)) is not None:
            task.cancel()

    async def _reply(self, call: AgentCall) -> None:
        opened: AuthorSession | None = None
        answer: Answer
        try:
            if call.method in (schema.NEW_SESSION.name, schema.RESUME_SESSION.name):
                opened, answer = await self._open_session(call.method, call.params)
            else:
                answer = await self._answer(call.method, call.params)
        except errors.AcpError as exc:
            answer = as_remote(exc)
        except Exception as exc:  # the client gets an answer, whatever went wrong
            answer = as_remote(incident(exc))
        await self._report(call, answer)
        if opened is not None:  # the client now knows the session: held updates can follow
            opened.outbox.open()

    async def _report(self, call: AgentCall, answer: Answer) -> None:
        try:
            await call.take(answer)
        except Exception:  # nobody awaits the task that reports
            log.exception("the answer to %s could not be handled", call.method)

    async def tell(self, method: str, params: bytes) -> None:
        if method == schema.CANCEL.name:
            if (turn := self._turns.get(session_id_in(params) or "")) is not None:
                turn.cancel()
        elif method == MCP_MESSAGE and self._channel is not None and self._channel.hear(params):
            pass  # for a request of ours to a server of the client's
        elif (handler := self.definition.notifications.get(method)) is not None:
            heard = handler(msgspec.json.decode(params or b"{}"))
            # In its own task: the client's next messages must not wait for it.
            self._notifying.start(_log_errors(heard), method)

    async def aclose(self) -> None:
        turns = tuple(self._turns.values())
        for turn in turns:
            turn.cancel()
        if turns:
            await asyncio.wait([turn.task for turn in turns], timeout=bounds.TURNS_END_SECONDS)
        unended = [turn.task for turn in self._turns.values()]
        for task in (*unended, *self._notifying, *self._replying.values()):
            task.cancel()
        self._tasks.close()
        await asyncio.gather(*map(self._end_session, tuple(self._sessions.values())))
        self._post.close()

    # -- sessions -------------------------------------------------------------------------

    async def _answer(self, method: str, params: bytes) -> bytes:
        match method:
            case schema.CLOSE_SESSION.name:
                closing = schema.decode(schema.CLOSE_SESSION.params, params).value
                await self._end_session(self._look_up(closing.session_id))
                return b"{}"
            case schema.SET_SESSION_MODE.name:
                chosen = schema.decode(schema.SET_SESSION_MODE.params, params).value
                selection = self._look_up(chosen.session_id).selection
                try:
                    selection.choose_mode(chosen.mode_id)
                except errors.DeclarationError as exc:
                    raise errors.InvalidParamsError(f"modeId: {exc}", field="modeId") from None
                return b"{}"
            case schema.SET_SESSION_CONFIG_OPTION.name:
                option = schema.decode(schema.SET_SESSION_CONFIG_OPTION.params, params).value
                selection = self._look_up(option.session_id).selection
                field = "value" if option.config_id in selection.values else "configId"
                try:
                    selection.choose_option(option.config_id, option.value)
                except errors.DeclarationError as exc:
                    raise errors.InvalidParamsError(f"{field}: {exc}", field=field) from None
                return schema.encode({"configOptions": selection.options()})
        if (handler := self.definition.methods.get(method)) is None:
            raise errors.MethodNotFoundError(method)

        async def answer() -> bytes:
            return msgspec.json.encode(await handler(msgspec.json.decode(params or b"{}")))

        return await guard(answer())

    async def _open_session(self, method: str, params: bytes) -> tuple[AuthorSession, bytes]:
        """Open a session, a new one or an old one; returns it and the answer."""
        if method == schema.NEW_SESSION.name:
            opened = self._session(fresh_id("sess"), params)
            opened.session.tenant, _ = opener(params)
            answer = await self._open(opened, self.definition.new_hooks)
            return opened, splice(answer, {"sessionId": schema.encode(opened.id)})
        session_id = session_id_in(params) or ""
        if await session_of(self._journal, self.key, session_id) != session_id:
            raise errors.UnknownSessionError(session_id)  # the journal is all this agent remembers
        if (known := self._sessions.get(session_id)) is not None:
            await self._leave(known)
        opened = self._session(session_id, params)
        opened.session.tenant = (await self._journal.session(session_id)).tenant
        opened.slash.shown = await opened.history.restore(opened.store) or opened.slash.shown
        return opened, await self._open(opened, self.definition.load_hooks)

    def _session(self, session_id: str, params: bytes) -> AuthorSession:
        """Return a session as the params of session/new or resume describe it; not open yet."""
        # Its servers are decoded elsewhere, by the code that connects to them.
        setup = schema.decode(schema.NewSessionRequest, splice(params, {"mcpServers": b"[]"})).value
        definition = self.definition
        # The client that opens it: the client of another session may have other capabilities.
        _, introduction = opener(params)
        client = schema.decode(schema.InitializeRequest, introduction).value
        outbox = Outbox(session_id, self._post)
        opened = AuthorSession(
            ClientSide(session_id, self._listener, client, outbox),
            setup.cwd,
            setup.additional_directories,
            agent=definition.name,
            selection=Selection(definition.name, definition.modes, definition.options),
            slash=SlashCommands(definition.commands, outbox),
            outbox=outbox,
            history=History(self._journal, session_id),
            surroundings=self.surroundings,
        )
        opened.servers = self._servers(opened, members(params).get("mcpServers", b"[]"))
        return opened

    def _servers(self, opened: AuthorSession, given: bytes) -> SessionServers | None:
        if given.strip() in (b"[]", b"null"):
            return None
        from acphold.library.session_servers import SessionServers  # late: most name none
        from acphold.mcp_servers.offers import OurSide
        from acphold.mcp_servers.servers import parse_servers
        from acphold.mcp_servers.transports import Channel

        if self._channel is None:  # one for all sessions: its requests have unique ids

            async def ask_client(method: str, params: bytes) -> bytes:
                return await self._listener.answer(AgentRequest(method, params))

            self._channel = Channel(ask_client)

        our_side = OurSide(
            cwd=opened.cwd,
            surroundings=self.surroundings,
            roots=opened.roots,
            name=self.definition.name,
            version=self.definition.version,
            deadline=self._mcp_timeout,
            channel=self._channel,
        )
        can, path = self.capabilities.mcp_capabilities, self.surroundings.path
        return SessionServers(
            opened.client,
            parse_servers(given, can, path),
            our_side,
            offer=opened.slash.offer,
            notice=opened.notice,
        )

    async def _open(self, opened: AuthorSession, hooks: list[SessionHook]) -> bytes:
        """Open the session; its updates before the answer are sent after the answer."""
        self._sessions[opened.id] = opened
        self.definition.sessions[opened.id] = opened.session
        if opened.servers is not None:
            opened.servers.start()
        try:
            with about(opened.id):
                for hook in hooks:
                    await guard(hook(opened.session))
        except errors.AcpError as exc:
            await self._leave(opened)
            raise failure(exc) from exc
        except BaseException:
            await self._leave(opened)
            raise
        opened.slash.offer()
        return opened.selection.answer()

    async def _end_session(self, opened: AuthorSession) -> None:
        with about(opened.id):
            for hook in self.definition.close_hooks:
                await _log_errors(hook(opened.session))
        await self._leave(opened)

    async def _leave(self, opened: AuthorSession) -> None:
        """Forget the session, and end everything that it has open."""
        if self._sessions.get(opened.id) is opened:
            del self._sessions[opened.id]
            if (turn := self._turns.pop(opened.id, None)) is not None:
                turn.give_up()
        if self.definition.sessions.get(opened.id) is opened.session:
            del self.definition.sessions[opened.id]
        try:
            await opened.aclose()
        except errors.AcpError as exc:
            log.warning("closing session %s failed: %s", opened.id, exc)

    def _look_up(self, session_id: str) -> AuthorSession:
        try:
            return self._sessions[session_id]
        except KeyError:
            raise errors.InvalidParamsError(
                f"sessionId: {session_id!r} is not open", field="sessionId"
            ) from None


async def _log_errors(work: Awaitable[object]) -> None:
    """Run something that nobody waits for; errors go to the log."""
    try:
        await guard(work)
    except errors.IncidentError:
        pass  # in the log with its traceback
    except errors.AcpError as exc:
        log.warning("%s", exc)
