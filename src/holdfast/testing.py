"""A client in memory, for the tests of an agent.

    async with holdfast.testing.connect(agent) as client:
        session = await client.new_session()
        result = await session.prompt("hello")
        assert result.text == "hello"

Everything is real but the pipe: the same protocol, the same journal (in a folder that is deleted
afterwards), the same sessions. `client.restart()` shows what outlives the process.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import msgspec
from msgspec import Struct

from holdfast.agents.inprocess import InProcessAgent
from holdfast.errors import (
    DeclarationError,
    MethodNotFoundError,
    MissingFileError,
    UnknownSessionError,
)
from holdfast.journal.entries import UPDATE as UPDATE_ENTRY
from holdfast.journal.entries import Entry
from holdfast.journal.fold import SessionState, fold
from holdfast.journal.timeline import Message, ToolCall
from holdfast.rpc import NotificationReceived, Peer, RequestReceived, connected
from holdfast.schema import (
    CANCEL,
    CLOSE_SESSION,
    CREATE_ELICITATION,
    DELETE_SESSION,
    INITIALIZE,
    LIST_SESSIONS,
    LOAD_SESSION,
    NEW_SESSION,
    PROMPT,
    PROTOCOL_VERSION,
    READ_TEXT_FILE,
    REQUEST_PERMISSION,
    RESUME_SESSION,
    SET_SESSION_CONFIG_OPTION,
    SET_SESSION_MODE,
    WRITE_TEXT_FILE,
    BooleanConfigOptionCapabilities,
    CancelledPermissionOutcome,
    CancelNotification,
    ClientCapabilities,
    ClientSessionCapabilities,
    CloseSessionRequest,
    CreateElicitationRequest,
    CreateElicitationResponse,
    DeleteSessionRequest,
    ElicitationCapabilities,
    ElicitationFormCapabilities,
    FileSystemCapabilities,
    Implementation,
    InitializeRequest,
    InitializeResponse,
    ListSessionsRequest,
    LoadSessionRequest,
    NewSessionRequest,
    NoticeCapabilities,
    PromptRequest,
    ReadTextFileRequest,
    ReadTextFileResponse,
    RequestPermissionRequest,
    RequestPermissionResponse,
    ResumeSessionRequest,
    SelectedPermissionOutcome,
    SessionConfigOptionsCapabilities,
    SessionNotification,
    SetSessionConfigOptionRequest,
    SetSessionModeRequest,
    TextContent,
    WriteTextFileRequest,
    WriteTextFileResponse,
    decode,
    encode,
)
from holdfast.schema.splice import members
from holdfast.server.serving import serve
from holdfast.transports.memory import memory_pair

if TYPE_CHECKING:
    from holdfast.agents.definition import AgentDefinition
    from holdfast.schema import (
        ContentBlock,
        McpServer,
        PermissionOption,
        SessionConfigOption,
        SessionInfo,
        SessionModeState,
        Update,
    )
    from holdfast.schema.methods import Method

__all__ = ["Client", "ClientSession", "Result", "Told", "connect"]

P = TypeVar("P")
R = TypeVar("R")

DEADLINE = 30.0
"""Seconds any single wait may take: a test that hangs says so."""

Permission: TypeAlias = "Callable[[RequestPermissionRequest], str | None] | Sequence[str] | str"
"""The kind or id of the option to choose ("allow_once", …): always the same; one after the other;
or as a function says. A function that returns None leaves the question open."""

Answer: TypeAlias = "Callable[[dict[str, Any]], Awaitable[Any]]"
"""Answers one method of the client: JSON in, JSON out."""

Form: TypeAlias = "Callable[[CreateElicitationRequest], Mapping[str, Any] | None]"
"""Fills a form in; None declines."""


class Told(Struct, frozen=True):
    """What a client was told of a session, in order; `raws` are the updates as they came."""

    updates: tuple[Update, ...]
    raws: tuple[bytes, ...]

    @property
    def text(self) -> str:
        """All that was said."""
        return self._said("agent")

    @property
    def thoughts(self) -> str:
        """All that was thought."""
        return self._said("thought")

    @property
    def tool_calls(self) -> list[ToolCall]:
        """Each tool call as it stood at the end."""
        return [item for item in self.state.timeline if isinstance(item, ToolCall)]

    @property
    def state(self) -> SessionState:
        """All of it, folded."""
        return fold(Entry(seq, UPDATE_ENTRY, 0, raw) for seq, raw in enumerate(self.raws, 1))

    def of(self, kind: str) -> list[dict[str, Any]]:
        """The updates of a kind (`plan`, `notice`, `tool_call_update` …), as JSON."""
        found = [msgspec.json.decode(raw, type=dict[str, Any]) for raw in self.raws]
        return [update for update in found if update["sessionUpdate"] == kind]

    def _said(self, role: str) -> str:
        items = [item for item in self.state.timeline if isinstance(item, Message)]
        return "".join(item.text for item in items if item.role == role)


class Result(Told, frozen=True):
    """What came of a prompt. `stop_reason` is "end_turn", "cancelled", "refusal" …"""

    stop_reason: str = ""


class ClientSession:
    """A session as the client holds it.

    `modes` and `options` are what the agent answered when it was opened; `replayed` is what a load
    replayed.
    """

    def __init__(
        self,
        client: Client,
        session_id: str,
        cwd: str,
        *,
        modes: SessionModeState | None,
        options: tuple[SessionConfigOption, ...] | None,
    ) -> None:
        self.id = session_id
        self.cwd = cwd
        self.modes = modes
        self.options = options or ()
        self.replayed = client.told(session_id)
        self._client = client

    @property
    def told(self) -> Told:
        """All updates this client was sent of the session so far, replayed ones included."""
        return self._client.told(self.id)

    async def prompt(self, *content: str | ContentBlock) -> Result:
        """Run a turn to its end; RemoteError when it failed."""
        before = len(self.told.raws)
        blocks = tuple(TextContent(text=it) if isinstance(it, str) else it for it in content)
        answer = await self._client.ask(PROMPT, PromptRequest(session_id=self.id, prompt=blocks))
        told = self._client.told(self.id, since=before)
        return Result(told.updates, told.raws, answer.stop_reason)

    def begin(self, *content: str | ContentBlock) -> asyncio.Task[Result]:
        """Start a turn; `cancel` it, or await the task for its result."""
        return asyncio.create_task(self.prompt(*content), name="prompt")

    async def cancel(self) -> None:
        """Cancel the turn that runs."""
        await self._client.peer.notify(CANCEL, CancelNotification(session_id=self.id))

    async def until(self, holds: Callable[[Told], object]) -> Told:
        """Wait until what was told fits, looked at with each update."""
        return await self._client.until(lambda: self.told if holds(self.told) else None)

    async def until_said(self, text: str) -> None:
        """Wait until the agent has said this, in this session at any time."""
        await self.until(lambda told: text in told.text)

    async def set_mode(self, mode_id: str) -> None:
        """Change the mode; RemoteError for an unknown one."""
        request = SetSessionModeRequest(session_id=self.id, mode_id=mode_id)
        await self._client.ask(SET_SESSION_MODE, request)

    async def set_option(
        self, option_id: str, value: str | bool
    ) -> tuple[SessionConfigOption, ...]:
        """Change a config option; all of them as they stand then."""
        request = (
            SetSessionConfigOptionRequest(
                session_id=self.id, config_id=option_id, value=value, type="boolean"
            )
            if isinstance(value, bool)
            else SetSessionConfigOptionRequest(session_id=self.id, config_id=option_id, value=value)
        )
        answer = await self._client.ask(SET_SESSION_CONFIG_OPTION, request)
        return answer.config_options

    async def close(self) -> None:
        """Close it; it can be loaded again."""
        await self._client.ask(CLOSE_SESSION, CloseSessionRequest(session_id=self.id))

    async def delete(self) -> None:
        """Delete it for good."""
        await self._client.ask(DELETE_SESSION, DeleteSessionRequest(session_id=self.id))


class Client:
    """A client that is connected to an agent; made by `connect`.

    `agent` is what it answered to `initialize`. `permissions` has the permission requests so far,
    `asked` every request by method and params. `buffers` are files that are open in the client,
    path to text, with what is not saved yet.
    """

    def __init__(
        self,
        definition: AgentDefinition,
        journal: Path,
        capabilities: ClientCapabilities,
        *,
        permission: Permission,
        form: Form | None,
        buffers: dict[str, str] | None,
        answers: Mapping[str, Answer],
        mcp_timeout: float,
        cancel_grace: float,
    ) -> None:
        self.agent: InitializeResponse
        self.peer: Peer
        self.journal = journal
        self.permissions: list[RequestPermissionRequest] = []
        self.asked: list[tuple[str, Any]] = []
        self.notified: list[tuple[str, Any]] = []
        self.buffers = buffers
        self._definition = definition
        self._capabilities = capabilities
        self._permission = permission
        self._script = (
            iter(()) if callable(permission) or isinstance(permission, str) else iter(permission)
        )
        self._form = form
        self._answers = answers
        self._mcp_timeout = mcp_timeout
        self._cancel_grace = cancel_grace
        self._updates: dict[str, list[tuple[bytes, Update]]] = {}
        self._news = asyncio.Condition()
        self._running = AsyncExitStack()
        self._agent: asyncio.Task[None]
        self._kills = 0

    # -- sessions -------------------------------------------------------------------------

    async def new_session(
        self,
        cwd: str | os.PathLike[str] | None = None,
        *,
        additional_directories: Sequence[str | os.PathLike[str]] = (),
        mcp_servers: Sequence[McpServer] = (),
    ) -> ClientSession:
        """Begin a conversation, by default in the folder that the journal is in."""
        folder = os.fspath(cwd or self.journal.parent)
        request = NewSessionRequest(
            cwd=folder,
            mcp_servers=tuple(mcp_servers),
            additional_directories=tuple(os.fspath(path) for path in additional_directories),
        )
        made = await self.ask(NEW_SESSION, request)
        return ClientSession(
            self, made.session_id, folder, modes=made.modes, options=made.config_options
        )

    async def load_session(
        self, session_id: str, *, mcp_servers: Sequence[McpServer] = ()
    ) -> ClientSession:
        """Go on with a conversation after its replay, which is `replayed` in the result."""
        self._updates.pop(session_id, None)
        cwd = await self._folder(session_id)
        request = LoadSessionRequest(session_id=session_id, cwd=cwd, mcp_servers=tuple(mcp_servers))
        opened = await self.ask(LOAD_SESSION, request)
        return ClientSession(
            self, session_id, cwd, modes=opened.modes, options=opened.config_options
        )

    async def resume_session(
        self, session_id: str, *, mcp_servers: Sequence[McpServer] = ()
    ) -> ClientSession:
        """Go on with a conversation without a replay."""
        self._updates.pop(session_id, None)
        cwd = await self._folder(session_id)
        request = ResumeSessionRequest(
            session_id=session_id, cwd=cwd, mcp_servers=tuple(mcp_servers)
        )
        opened = await self.ask(RESUME_SESSION, request)
        return ClientSession(
            self, session_id, cwd, modes=opened.modes, options=opened.config_options
        )

    async def sessions(self, cwd: str | os.PathLike[str] | None = None) -> list[SessionInfo]:
        """All sessions, newest first; those of one folder with `cwd`."""
        found: list[SessionInfo] = []
        folder, cursor = None if cwd is None else os.fspath(cwd), None
        while True:
            page = await self.ask(LIST_SESSIONS, ListSessionsRequest(cwd=folder, cursor=cursor))
            found += page.sessions
            if page.next_cursor is None:
                return found
            cursor = page.next_cursor

    async def _folder(self, session_id: str) -> str:
        for info in await self.sessions():
            if info.session_id == session_id:
                return info.cwd
        raise UnknownSessionError(session_id)

    async def ask(self, method: Method[P, R], params: P) -> R:
        """Any request, typed; RemoteError when it is refused."""
        async with asyncio.timeout(DEADLINE):
            return await self.peer.call(method, params)

    async def call(self, method: str, params: Mapping[str, Any]) -> Any:
        """Any request, as JSON: an extension method for instance."""
        async with asyncio.timeout(DEADLINE):
            return msgspec.json.decode(await self.peer.call_raw(method, encode(dict(params))))

    # -- what came ------------------------------------------------------------------------

    def told(self, session_id: str, *, since: int = 0) -> Told:
        """The updates of a session from number `since` on."""
        known = self._updates.get(session_id, [])[since:]
        return Told(tuple(update for _, update in known), tuple(raw for raw, _ in known))

    async def until(self, found: Callable[[], R | None]) -> R:
        """Wait until `found()` is not None, asked again with everything that comes."""
        async with asyncio.timeout(DEADLINE), self._news:
            while (value := found()) is None:
                await self._news.wait()
            return value

    async def on_notifications(self, batch: list[NotificationReceived]) -> None:
        """Called by the Peer."""
        for notification in batch:
            if notification.method == "session/update":
                told = decode(SessionNotification, notification.params).value
                raw = members(notification.params)["update"]
                self._updates.setdefault(told.session_id, []).append((raw, told.update))
            else:
                params = msgspec.json.decode(notification.params or b"null")
                self.notified.append((notification.method, params))
        await self._tell_news()

    async def on_request(self, request: RequestReceived) -> bytes:
        """Called by the Peer."""
        self.asked.append((request.method, msgspec.json.decode(request.params or b"null")))
        await self._tell_news()
        match request.method:
            case REQUEST_PERMISSION.name:
                asked = decode(RequestPermissionRequest, request.params).value
                self.permissions.append(asked)
                await self._tell_news()
                return encode(RequestPermissionResponse(outcome=await self._decide(asked)))
            case CREATE_ELICITATION.name if self._form is not None:
                filled = self._form(decode(CreateElicitationRequest, request.params).value)
                if filled is None:
                    return encode(CreateElicitationResponse(action="decline"))
                return encode(CreateElicitationResponse(action="accept", content=dict(filled)))
            case READ_TEXT_FILE.name if self.buffers is not None:
                return encode(
                    _read(decode(ReadTextFileRequest, request.params).value, self.buffers)
                )
            case WRITE_TEXT_FILE.name if self.buffers is not None:
                write = decode(WriteTextFileRequest, request.params).value
                self.buffers[write.path] = write.content
                return encode(WriteTextFileResponse())
        answer = self._answers.get(request.method)
        if answer is None:
            raise MethodNotFoundError(request.method)
        return encode(await answer(msgspec.json.decode(request.params or b"{}")))

    async def _tell_news(self) -> None:
        async with self._news:
            self._news.notify_all()

    async def _decide(
        self, asked: RequestPermissionRequest
    ) -> SelectedPermissionOutcome | CancelledPermissionOutcome:
        wanted: str | None
        if isinstance(self._permission, str):
            wanted = self._permission
        elif callable(self._permission):
            wanted = self._permission(asked)
        else:
            wanted = next(self._script, None)
        if wanted is None:
            await asyncio.get_running_loop().create_future()  # a person who never answers
        if wanted == "cancelled":
            return CancelledPermissionOutcome()
        return SelectedPermissionOutcome(option_id=_option(asked.options, wanted or ""))

    # -- running --------------------------------------------------------------------------

    async def restart(self, *, kill: bool = False) -> None:
        """End the agent and start it again on the same journal; sessions have to be loaded.

        With `kill` it gets no chance to put anything in order, as with SIGKILL: what is found
        afterwards is what the journal had at this instant.
        """
        if kill:
            self._kills += 1
            copy = self.journal.with_name(f"journal-{self._kills}.db")
            _copy(self.journal, copy)
            self.journal = copy
        await self.stop()
        await self.start()

    async def start(self) -> None:
        """Start the agent and introduce this client."""
        theirs, ours = memory_pair()
        definition, timeout = self._definition, self._mcp_timeout
        self._agent = asyncio.create_task(
            serve(
                theirs,
                os.fspath(self.journal),
                lambda listener, journal: InProcessAgent(
                    definition, listener, journal, mcp_timeout=timeout
                ),
                stop=asyncio.Event(),
                cancel_grace=self._cancel_grace,
            ),
            name="agent",
        )
        self.peer = Peer(ours, self, name="agent")
        await self._running.enter_async_context(connected(self.peer))
        self.agent = await self.ask(
            INITIALIZE,
            InitializeRequest(
                protocol_version=PROTOCOL_VERSION,
                client_capabilities=self._capabilities,
                client_info=Implementation(name="holdfast.testing", version="1"),
            ),
        )

    async def stop(self) -> None:
        """Leave, and wait for the agent's end."""
        await self._running.aclose()
        async with asyncio.timeout(DEADLINE):
            await self._agent


@asynccontextmanager
async def connect(
    agent: AgentDefinition,
    *,
    permission: Permission = "allow_once",
    form: Form | None = None,
    buffers: Mapping[str, str] | None = None,
    answers: Mapping[str, Answer] | None = None,
    capabilities: ClientCapabilities | None = None,
    journal: str | os.PathLike[str] | None = None,
    mcp_timeout: float = 10.0,
    cancel_grace: float = 10.0,
) -> AsyncIterator[Client]:
    """A client of `agent` for the block.

    It shows notices and boolean options, and offers what it is given: forms with `form`, files
    with `buffers` (open files by absolute path; others are read from the disk). `capabilities`
    says instead what it offers, and `answers` what it answers to other methods. `permission` is
    how the person answers. `journal` is a path, by default one in a folder of its own.
    """
    agent.prompt_handler  # noqa: B018 — an agent without one is refused before it is asked
    with tempfile.TemporaryDirectory(prefix="holdfast-test-") as folder:
        client = Client(
            agent,
            Path(folder, "journal.db") if journal is None else Path(journal),
            _offered(form, buffers) if capabilities is None else capabilities,
            permission=permission,
            form=form,
            buffers=None if buffers is None else dict(buffers),
            answers=answers or {},
            mcp_timeout=mcp_timeout,
            cancel_grace=cancel_grace,
        )
        try:
            await client.start()
            yield client
        finally:
            await client.stop()


def _offered(form: Form | None, buffers: Mapping[str, str] | None) -> ClientCapabilities:
    files = buffers is not None
    shown = None if form is None else ElicitationCapabilities(form=ElicitationFormCapabilities())
    return ClientCapabilities(
        fs=FileSystemCapabilities(read_text_file=files, write_text_file=files),
        session=ClientSessionCapabilities(
            config_options=SessionConfigOptionsCapabilities(
                boolean=BooleanConfigOptionCapabilities()
            ),
            notices=NoticeCapabilities(),
        ),
        elicitation=shown,
    )


def _option(options: Sequence[PermissionOption], wanted: str) -> str:
    for option in options:
        if wanted in (option.kind, option.option_id):
            return option.option_id
    offered = ", ".join(option.kind for option in options)
    raise DeclarationError(f"the agent offers no {wanted!r}, but {offered}")


def _read(request: ReadTextFileRequest, buffers: Mapping[str, str]) -> ReadTextFileResponse:
    text = buffers.get(request.path)
    if text is None:
        try:
            text = Path(request.path).read_text(encoding="utf-8")
        except FileNotFoundError:
            raise MissingFileError(f"no file {request.path}") from None
    first = max(request.line or 1, 1) - 1
    lines = text.splitlines(keepends=True)[first:]
    return ReadTextFileResponse(content="".join(lines[: request.limit]))


def _copy(journal: Path, copy: Path) -> None:
    source, target = sqlite3.connect(journal), sqlite3.connect(copy)
    try:
        source.backup(target)
    finally:
        source.close()
        target.close()
