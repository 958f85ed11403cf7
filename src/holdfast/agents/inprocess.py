"""An agent that is a coroutine in this process: ACP's agent side, spoken without a wire."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING
from uuid import uuid4

import msgspec

from holdfast.agents.authored import STORE, AuthoredSession
from holdfast.agents.turn import StopTurn, Turn
from holdfast.errors import (
    AuthRequiredError,
    DeclarationError,
    HoldfastError,
    IncidentError,
    InvalidParamsError,
    MethodNotFoundError,
    RemoteError,
)
from holdfast.journal.entries import PROMPT as PROMPT_ENTRY
from holdfast.journal.fold import fold
from holdfast.rpc import wire_error
from holdfast.schema import (
    AUTHENTICATE,
    CANCEL,
    CLOSE_SESSION,
    LOGOUT,
    NEW_SESSION,
    PROMPT,
    PROTOCOL_VERSION,
    RESUME_SESSION,
    SET_SESSION_CONFIG_OPTION,
    SET_SESSION_MODE,
    AgentAuthCapabilities,
    AgentCapabilities,
    AudioContent,
    AuthenticateRequest,
    AuthMethodAgent,
    AvailableCommandsUpdate,
    CloseSessionRequest,
    ContentBlock,
    EmbeddedResource,
    ImageContent,
    Implementation,
    InitializeRequest,
    InitializeResponse,
    LogoutCapabilities,
    McpCapabilities,
    NewSessionRequest,
    PromptCapabilities,
    PromptRequest,
    ResumeSessionRequest,
    SessionAdditionalDirectoriesCapabilities,
    SessionCapabilities,
    SessionCloseCapabilities,
    SessionModeState,
    SessionResumeCapabilities,
    SetSessionConfigOptionRequest,
    SetSessionModeRequest,
    TextContent,
    decode,
    encode,
)

if TYPE_CHECKING:
    from holdfast.agents.definition import AgentDefinition
    from holdfast.agents.interface import Listener
    from holdfast.journal import Journal
    from holdfast.rpc.peer import Answer, OnAnswer

log = logging.getLogger(__name__)

READ_PAGE = 4 * 1024 * 1024
"""Bytes of a session's history that are read at once."""


class InProcessAgent:
    """Fulfils `agents.Agent` for an `AgentDefinition`.

    Its sessions have the ids that clients see, and their history is the journal's: it can always
    resume.
    """

    def __init__(self, definition: AgentDefinition, listener: Listener, journal: Journal) -> None:
        self.definition = definition
        self.key = definition.name
        self.generation = 1
        self.capabilities = _capabilities(definition)
        self._listener = listener
        self._journal = journal
        self._client = InitializeRequest(protocol_version=PROTOCOL_VERSION)
        self._signed_in = not definition.auth_methods
        self._sessions: dict[str, AuthoredSession] = {}
        self._seen: dict[str, int] = {}
        self._turns: dict[str, asyncio.Task[None]] = {}
        self._cancelled: set[str] = set()
        self._methods: dict[str, Callable[[bytes], Awaitable[bytes]]] = {
            NEW_SESSION.name: self._new,
            RESUME_SESSION.name: self._resume,
            CLOSE_SESSION.name: self._close,
            SET_SESSION_MODE.name: self._set_mode,
            SET_SESSION_CONFIG_OPTION.name: self._set_option,
            AUTHENTICATE.name: self._authenticate,
            LOGOUT.name: self._logout,
        }

    # -- agents.Agent ---------------------------------------------------------------------

    @property
    def alive(self) -> bool:
        return True

    async def initialize(self, params: bytes) -> bytes:
        self._client = decode(InitializeRequest, params).value
        definition = self.definition
        return encode(
            InitializeResponse(
                protocol_version=PROTOCOL_VERSION,
                agent_capabilities=self.capabilities,
                auth_methods=tuple(
                    AuthMethodAgent(id=method.id, name=method.name, description=method.description)
                    for method in definition.auth_methods
                ),
                agent_info=Implementation(
                    name=definition.name, version=definition.version, title=definition.title
                ),
            )
        )

    async def ensure(self) -> None:
        """It runs as long as this process does."""

    async def restart(self) -> None:
        """Give up on turns that do not end; their sessions are resumed when they are needed."""
        for task in self._turns.values():
            task.cancel()
        self._turns.clear()
        self._sessions.clear()
        self.generation += 1

    async def ask(self, method: str, params: bytes, on_answer: OnAnswer | None = None) -> bytes:
        try:
            result = await self._answer(method, params)
        except HoldfastError as exc:
            error = _as_remote(exc)
            if on_answer is not None:
                await on_answer(error)
            raise error from exc
        if on_answer is not None:
            await on_answer(result)
        return result

    def begin(self, method: str, params: bytes, on_answer: OnAnswer) -> None:
        if method != PROMPT.name:
            raise MethodNotFoundError(method)
        request = decode(PromptRequest, params).value
        self._cancelled.discard(request.session_id)
        task = asyncio.create_task(self._prompt(request, on_answer), name="turn")
        self._turns[request.session_id] = task

    async def tell(self, method: str, params: bytes) -> None:
        if method == CANCEL.name:
            session_id = msgspec.json.decode(params, type=_SessionParams).session_id
            self._cancelled.add(session_id)
            if (task := self._turns.get(session_id)) is not None:
                task.cancel()
        elif (handler := self.definition.notifications.get(method)) is not None:
            await handler(msgspec.json.decode(params or b"{}"))

    async def aclose(self) -> None:
        tasks = list(self._turns.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=1.0)
        for session in tuple(self._sessions.values()):
            await self._end_session(session)

    # -- methods --------------------------------------------------------------------------

    async def _answer(self, method: str, params: bytes) -> bytes:
        known = self._methods.get(method)
        if known is not None:
            return await known(params)
        handler = self.definition.methods.get(method)
        if handler is None:
            raise MethodNotFoundError(method)
        return msgspec.json.encode(await _guarded(handler(msgspec.json.decode(params or b"{}"))))

    async def _new(self, params: bytes) -> bytes:
        self._require_sign_in()
        request = decode(NewSessionRequest, params).value
        session = self._enter(uuid4().hex, request.cwd, request.additional_directories)
        for hook in self.definition.new_hooks:
            await _guarded(hook(session))
        await self._announce(session)
        return self._opened(session, session_id=session.id)

    async def _resume(self, params: bytes) -> bytes:
        self._require_sign_in()
        request = decode(ResumeSessionRequest, params).value
        session = self._enter(request.session_id, request.cwd, request.additional_directories)
        await self._read_on(session)
        for hook in self.definition.load_hooks:
            await _guarded(hook(session))
        await self._announce(session)
        return self._opened(session)

    def _enter(self, session_id: str, cwd: str, roots: tuple[str, ...]) -> AuthoredSession:
        session = self._sessions[session_id] = AuthoredSession(
            session_id,
            cwd,
            roots,
            self.definition,
            self._listener,
            self._client.client_capabilities,
            self._client.client_info,
        )
        self._seen[session_id] = 0
        return session

    async def _announce(self, session: AuthoredSession) -> None:
        """The slash commands, if the session does not show these already."""
        commands = tuple(self.definition.commands.values())
        update = AvailableCommandsUpdate(available_commands=commands)
        known = session.state.settings.commands
        if commands and known != msgspec.json.encode(commands):
            await session.outbox.put(encode(update))
        await session.store.save()

    def _opened(self, session: AuthoredSession, **more: str) -> bytes:
        parts: dict[str, object] = {
            "sessionId" if key == "session_id" else key: value for key, value in more.items()
        }
        if self.definition.modes and session.mode is not None:
            parts["modes"] = SessionModeState(
                current_mode_id=session.mode, available_modes=tuple(self.definition.modes)
            )
        if self.definition.options:
            parts["configOptions"] = session.option_list()
        return msgspec.json.encode(parts)

    async def _close(self, params: bytes) -> bytes:
        session = self._held(decode(CloseSessionRequest, params).value.session_id)
        await self._end_session(session)
        return b"{}"

    async def _end_session(self, session: AuthoredSession) -> None:
        self._sessions.pop(session.id, None)
        for hook in self.definition.close_hooks:
            await _guarded(hook(session))
        await session.store.save()
        await session.outbox.flush()

    async def _set_mode(self, params: bytes) -> bytes:
        request = decode(SetSessionModeRequest, params).value
        try:
            self._held(request.session_id).choose_mode(request.mode_id)
        except DeclarationError as exc:
            raise InvalidParamsError(f"modeId: {exc}", field="modeId") from None
        return b"{}"

    async def _set_option(self, params: bytes) -> bytes:
        request = decode(SetSessionConfigOptionRequest, params).value
        session = self._held(request.session_id)
        try:
            session.choose_option(request.config_id, request.value)
        except DeclarationError as exc:
            raise InvalidParamsError(f"value: {exc}", field="value") from None
        return msgspec.json.encode({"configOptions": session.option_list()})

    async def _authenticate(self, params: bytes) -> bytes:
        method_id = decode(AuthenticateRequest, params).value.method_id
        for method in self.definition.auth_methods:
            if method.id == method_id:
                await _guarded(method.handler())
                self._signed_in = True
                return b"{}"
        raise InvalidParamsError(f"methodId: no way to sign in is {method_id!r}", field="methodId")

    async def _logout(self, params: bytes) -> bytes:
        if self.definition.logout_handler is None:
            raise MethodNotFoundError(LOGOUT.name)
        await _guarded(self.definition.logout_handler())
        self._signed_in = not self.definition.auth_methods
        return b"{}"

    def _require_sign_in(self) -> None:
        if not self._signed_in:
            raise AuthRequiredError("sign in first: see authMethods")

    def _held(self, session_id: str) -> AuthoredSession:
        try:
            return self._sessions[session_id]
        except KeyError:
            raise InvalidParamsError(
                f"sessionId: {session_id!r} is not open", field="sessionId"
            ) from None

    # -- turns ----------------------------------------------------------------------------

    async def _prompt(self, request: PromptRequest, on_answer: OnAnswer) -> None:
        session_id = request.session_id
        answer: Answer
        try:
            session = self._held(session_id)
            self._check_content(request.prompt)
            await self._read_on(session)
            answer = await self._run(session, request.prompt)
        except asyncio.CancelledError:
            answer = _stopped("cancelled")
        except HoldfastError as exc:
            answer = _as_remote(exc)
        if self._turns.get(session_id) is asyncio.current_task():
            del self._turns[session_id]
        await on_answer(answer)

    async def _run(self, session: AuthoredSession, prompt: tuple[ContentBlock, ...]) -> Answer:
        handler, turn = self._handler(session, prompt)
        try:
            await handler(turn)
            reason = "end_turn"
        except StopTurn as stop:
            reason = stop.reason
        except asyncio.CancelledError:
            reason = "cancelled"
        except Exception as exc:  # the author's own: told to nobody but the log
            # What a library raises because it was cancelled is a cancellation, whatever its name.
            if session.id not in self._cancelled:
                await turn.aclose()
                return _as_remote(exc if isinstance(exc, HoldfastError) else _incident(exc))
            reason = "cancelled"
        await turn.aclose()
        return _stopped("cancelled" if session.id in self._cancelled else reason)

    def _handler(
        self, session: AuthoredSession, prompt: tuple[ContentBlock, ...]
    ) -> tuple[Callable[[Turn], Awaitable[None]], Turn]:
        command = _slash_command(prompt)
        if command is None or command[0] not in self.definition.commands:
            return self.definition.prompt_handler, Turn(session, prompt, self._listener)
        turn = Turn(session, prompt, self._listener, command)
        handler = self.definition.command_handlers.get(command[0])
        if handler is None:
            return self.definition.prompt_handler, turn
        words = command[1]
        return (lambda turn: handler(turn, words)), turn

    def _check_content(self, prompt: tuple[ContentBlock, ...]) -> None:
        """Content that was not advertised is refused (spec v1, prompt turn, "User Message")."""
        takes = self.capabilities.prompt_capabilities
        for place, block in enumerate(prompt):
            for kind, allowed in (
                (ImageContent, takes.image),
                (AudioContent, takes.audio),
                (EmbeddedResource, takes.embedded_context),
            ):
                if isinstance(block, kind) and not allowed:
                    raise InvalidParamsError(
                        f"prompt[{place}]: this agent takes no {kind.__struct_config__.tag} content",
                        field=f"prompt[{place}]",
                    )

    async def _read_on(self, session: AuthoredSession) -> None:
        """Fold what was journalled since the last time, up to the prompt that is answered now."""
        entries = []
        after = self._seen[session.id]
        while page := await self._journal.read(session.id, after, READ_PAGE):
            entries += [entry for segment in page for entry in segment.entries()]
            after = page[-1].last_seq
        turn_runs = session.id in self._turns
        if turn_runs:
            prompts = [place for place, entry in enumerate(entries) if entry.kind == PROMPT_ENTRY]
            entries = entries[: prompts[-1]] if prompts else entries
        for entry in entries:
            if entry.kind == STORE:
                session.store.restore(entry.raw)
        session.state = fold(entries, session.state)
        if entries:
            self._seen[session.id] = entries[-1].seq


class _SessionParams(msgspec.Struct, rename="camel"):
    session_id: str


def _capabilities(definition: AgentDefinition) -> AgentCapabilities:
    logout = LogoutCapabilities() if definition.logout_handler is not None else None
    return AgentCapabilities(
        prompt_capabilities=PromptCapabilities(
            image=definition.image,
            audio=definition.audio,
            embedded_context=definition.embedded_context,
        ),
        mcp_capabilities=McpCapabilities(http=True, sse=True),
        session_capabilities=SessionCapabilities(
            additional_directories=SessionAdditionalDirectoriesCapabilities(),
            resume=SessionResumeCapabilities(),
            close=SessionCloseCapabilities(),
        ),
        auth=AgentAuthCapabilities(logout=logout),
    )


def _slash_command(prompt: tuple[ContentBlock, ...]) -> tuple[str, str] | None:
    """The name and the words of a prompt that begins with `/name`."""
    first = prompt[0] if prompt else None
    if not isinstance(first, TextContent) or not first.text.startswith("/"):
        return None
    name, _, words = first.text[1:].partition(" ")
    return name.strip(), words.strip()


def _stopped(reason: str) -> bytes:
    return msgspec.json.encode({"stopReason": reason})


def _as_remote(error: HoldfastError) -> RemoteError:
    """The error as it would have come over a wire."""
    if isinstance(error, RemoteError):
        return error
    wire = wire_error(error.code, str(error), error.data)
    return RemoteError(wire.code, wire.message, wire.raw)


async def _guarded(work: Awaitable[object]) -> object:
    """Run an author's hook: what it raises is an incident, unless it is an error of ours."""
    try:
        return await work
    except HoldfastError:
        raise
    except Exception as exc:
        raise _incident(exc) from exc


def _incident(error: Exception) -> IncidentError:
    incident = uuid4().hex[:8]
    log.error("the agent's code failed, incident %s", incident, exc_info=error)
    return IncidentError(incident)
