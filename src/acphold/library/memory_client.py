"""A test's client in memory: a record of its connection, its person, and the agent's restart."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

import msgspec
from msgspec import Struct
from msgspec.structs import asdict

from acp_wire.rpc.wire_errors import on_incident
from acp_wire.schema import (
    READ_TEXT_FILE,
    REQUEST_PERMISSION,
    WRITE_TEXT_FILE,
    McpServer,
    RequestPermissionRequest,
    SessionInfo,
    Update,
    decode,
)
from acp_wire.tasks import end, finish, timeout
from acp_wire.transports.streams import memory_pair
from acphold.client import PermissionQuestion, RemoteAgent, RemoteSession, RemoteTurn
from acphold.client.advertised import Content, Folder, OpenOptions, require_folder
from acphold.client.answers import (
    Answers,
    AskingSession,
    AskPermission,
    Duties,
    Handler,
    PermissionAnswer,
)
from acphold.client.endpoints import TransportEndpoint
from acphold.client.remote_turn import TurnFeed, as_update, said_by
from acphold.client.uplink import Uplink, UplinkSettings
from acphold.conversation.history.entries import UPDATE, Entry
from acphold.conversation.history.fold import SessionState, fold
from acphold.conversation.history.raw_update import PROMPT_BEGUN
from acphold.conversation.history.timeline import ToolCall, shorten
from acphold.errors import MissingFileError, RemoteError
from acphold.journal.lineage import identity
from acphold.journal.rows import ListFilter, RowChange
from acphold.journal.stores import journal_name, open_journal

if TYPE_CHECKING:
    from acphold.client.session_feed import SessionFeed
    from acphold.library.agent import Agent
    from acphold.serve_options import AgentOptions


T = TypeVar("T")


class Received(Struct, frozen=True):
    """The updates received; `raws` are their bytes."""

    updates: tuple[Update, ...]
    raws: tuple[bytes, ...]

    def __repr__(self) -> str:
        return f"<Received {len(self.raws)} updates: {shorten(self.text)!r}>"

    @property
    def text(self) -> str:
        """All text of the agent's messages."""
        return said_by("agent", self.state.timeline)

    @property
    def thoughts(self) -> str:
        """All text of the agent's thoughts."""
        return said_by("thought", self.state.timeline)

    @property
    def tool_calls(self) -> list[ToolCall]:
        """Each tool call in its final state."""
        return [item for item in self.state.timeline if isinstance(item, ToolCall)]

    @property
    def state(self) -> SessionState:
        """All of it, folded."""
        return fold(Entry(seq, UPDATE, 0, raw) for seq, raw in enumerate(self.raws, 1))

    def of(self, kind: str) -> list[dict[str, Any]]:
        """Return the updates of a kind (`plan`, `notice`, `tool_call_update` …), as JSON."""
        found = [msgspec.json.decode(raw, type=dict[str, Any]) for raw in self.raws]
        return [update for update in found if update["sessionUpdate"] == kind]


class Recording:
    """Connects a client and `agent`, and records what arrives.

    `requests` has every request of the agent by method and params, `notifications` its
    notifications other than updates, `permissions` the requests for permission. No wait takes more
    than `deadline` seconds. With `raises`, exceptions of the agent's code are raised where its
    answer is waited for.
    """

    def __init__(
        self,
        agent: Agent,
        options: AgentOptions,
        settings: UplinkSettings,
        answers: Answers,
        *,
        deadline: float,
        raises: bool,
    ) -> None:
        self.uplink: Uplink
        self.deadline = deadline
        self.journal: str = journal_name(options.journal)
        self.asked: list[tuple[str, Any]] = []
        self.notified: list[tuple[str, Any]] = []
        self.permissions: list[RequestPermissionRequest] = []
        self._agent = agent
        self._options = options
        self._settings = msgspec.structs.replace(
            settings, on_update=self._hear_update, on_notification=self._hear_notification
        )
        self._answers = answers
        self._raises = raises
        self._incidents: dict[str, Exception] = {}
        self._updates: dict[str, list[tuple[bytes, Update]]] = {}
        self._news = asyncio.Event()
        self._serving: asyncio.Task[None] | None = None
        self._kills = 0

    def reader(self, session_id: str) -> Callable[[int], Received]:
        """Return a function for its updates from a number on, since it was last opened.

        See `WatchedAgent.received`.
        """
        told = self._updates.setdefault(session_id, [])

        def since(number: int) -> Received:
            known = told[number:]
            return Received(tuple(update for _, update in known), tuple(raw for raw, _ in known))

        return since

    def forget(self, session_id: str) -> None:
        """Drop the updates of a session, because it is opened again."""
        self._updates.pop(session_id, None)

    async def until(self, found: Callable[[], T | None]) -> T:
        """See `WatchedAgent.until`."""
        async with timeout(self.deadline):
            while (value := found()) is None:
                self._news.clear()
                await self._news.wait()
            return value

    # -- from the agent -------------------------------------------------------------------

    def _hear_update(self, session_id: str, raw: bytes) -> None:
        if raw == PROMPT_BEGUN:
            return  # acphold's own message to its client library, not the agent's
        self._updates.setdefault(session_id, []).append((raw, as_update(raw)))
        self._news.set()

    def _hear_notification(self, method: str, params: Any) -> None:
        self.notified.append((method, params))
        self._news.set()

    def _hear_request(self, method: str, params: bytes) -> None:
        self.asked.append((method, msgspec.json.decode(params or b"null")))
        if method == REQUEST_PERMISSION.name:
            self.permissions.append(decode(RequestPermissionRequest, params).value)
        self._news.set()

    # -- exceptions of its code, or of a callback of the test ----------------------------

    def _note(self, incident: str, raised: BaseException) -> None:
        if self._raises and isinstance(raised, Exception):  # others would end the test
            self._incidents[incident] = raised

    @contextmanager
    def raising(self) -> Iterator[None]:
        """Raise the original exception, for the block, instead of the error that reports it."""
        try:
            yield
        except RemoteError as error:
            data = msgspec.json.decode(error.raw or b"{}").get("data")
            incident = data.get("incident", "") if isinstance(data, dict) else ""
            raised = self._incidents.pop(incident, None)
            if raised is None:
                raise
            raise raised from None

    def raise_left(self) -> None:
        """Raise an exception that nobody waited for: from a hook, or a notification."""
        for raised in self._incidents.values():
            raise raised

    # -- start and end -------------------------------------------------------------------

    async def start(self) -> None:
        """Start the agent and initialize the connection."""
        theirs, ours = memory_pair()
        token = on_incident.set(self._note)  # for tasks that begin here
        try:
            self._serving = asyncio.create_task(
                self._agent.serve(theirs, **{**asdict(self._options), "journal": self.journal}),
                name="agent",
            )
            duties = _WatchedDuties(self._answers, self._hear_request)
            endpoint = TransportEndpoint(ours)
            self.uplink = uplink = _WatchedUplink(endpoint, duties, self._settings)
            uplink.raising = self.raising
            await uplink.start()
        finally:
            on_incident.reset(token)

    async def stop(self) -> None:
        """Disconnect, and wait for the agent's end."""
        await finish(self._stop)

    async def _stop(self) -> None:
        if self._serving is not None:
            await self.uplink.aclose()
            await asyncio.wait([self._serving], timeout=self.deadline)
            if not self._serving.done():
                await end(self._serving)
                raise TimeoutError(f"the agent has not ended within {self.deadline:g} s")
            if not self._serving.cancelled():
                self._serving.result()

    async def restart(self, *, kill: bool = False) -> None:
        """See `WatchedAgent.restart`."""
        if kill:
            self._kills += 1
            copy = Path(self.journal).with_name(f"journal-{self._kills}.db")
            opened = open_journal(self.journal, create=False)
            try:
                if opened.file is not None:
                    await opened.file.copy_to(str(copy))
                    await _continue_in(copy, of=await identity(opened))
            finally:
                await opened.aclose()
            self.journal = str(copy)
        await self.stop()
        await self.start()


async def _continue_in(copy: Path, *, of: str | None) -> None:
    """Let a copy stand for the journal of this identity: what was planned there goes on in it."""
    journal = open_journal(copy, create=False)
    try:
        home = await identity(journal) or ""
        wanted = ListFilter(include_unprompted=True, archived="include")
        for row in await journal.page(wanted, limit=await journal.count()):
            if row.home == of:
                await journal.change(row.session_id, RowChange(home=home))
    finally:
        await journal.aclose()


class _WatchedUplink(Uplink):
    """Raises exceptions of the agent's code in place of an answer."""

    raising: Callable[[], AbstractContextManager[None]]

    async def ask_raw(
        self,
        method: str,
        params: bytes,
        *,
        on_result: Callable[[bytes], object] = bool,
        again: bool = True,
    ) -> bytes:
        with self.raising():
            return await super().ask_raw(method, params, on_result=on_result, again=again)


class _WatchedDuties(Duties):
    """Answers the agent's requests, and reports them."""

    def __init__(self, answers: Answers, tell: Callable[[str, bytes], None]) -> None:
        super().__init__(answers)
        self._tell = tell

    async def answer(self, method: str, params: bytes, session: AskingSession | None) -> bytes:
        self._tell(method, params)
        return await super().answer(method, params, session)


def decides(answers: Sequence[PermissionAnswer]) -> AskPermission:
    """Return a person who gives these answers one after the other; a string is the answer to all.

    After the last one a question stays open, as with a person who went for coffee.
    """
    if isinstance(answers, str):
        return lambda question: answers
    script = iter(answers)

    async def decide(question: PermissionQuestion) -> PermissionAnswer:
        for answer in script:
            return answer
        await asyncio.get_running_loop().create_future()
        return None

    return decide


def handlers(files: dict[str, str]) -> dict[str, Handler]:
    """Return an editor with these unsaved files, by path; others are read from the disk."""

    def read(params: dict[str, Any]) -> object:
        path = params["path"]
        text = files.get(path)
        if text is None:
            try:
                text = Path(path).read_text(encoding="utf-8")
            except FileNotFoundError:
                raise MissingFileError(f"no file {path}") from None
        first = max(params.get("line") or 1, 1) - 1
        lines = text.splitlines(keepends=True)[first:]
        return {"content": "".join(lines[: params.get("limit")])}

    def write(params: dict[str, Any]) -> object:
        files[params["path"]] = params["content"]
        return {}

    return {READ_TEXT_FILE.name: read, WRITE_TEXT_FILE.name: write}


R = TypeVar("R")


class WatchedAgent(RemoteAgent):
    """The agent under test, as from `acphold.connect`, with a record of what came.

    Made by `acphold.testing.connect`.
    """

    def __init__(
        self, recording: Recording, files: Mapping[str, str] | None, *, serves_files: bool
    ) -> None:
        super().__init__(recording.uplink, cwd=str(Path(recording.journal).parent))
        self._recording = recording
        self._files = files
        self._serves_files = serves_files

    @property
    def journal(self) -> Path:
        """The path of the agent's journal."""
        return Path(self._recording.journal)

    @property
    def requests(self) -> list[tuple[str, Any]]:
        """Its requests, by method and params."""
        return self._recording.asked

    @property
    def notifications(self) -> list[tuple[str, Any]]:
        """Its other notifications, by method and params."""
        return self._recording.notified

    @property
    def permissions(self) -> list[RequestPermissionRequest]:
        """The permission requests so far."""
        return self._recording.permissions

    @property
    def files(self) -> Mapping[str, str]:
        """The files given to `connect`, as they are now."""
        return self._files or {}

    def received(self, session_id: str, *, since: int = 0) -> Received:
        """Return the updates of a session from number `since` on."""
        return self._recording.reader(session_id)(since)

    async def until(self, found: Callable[[], R | None]) -> R:
        """Wait until `found()` is not None."""
        return await self._recording.until(found)

    async def restart(self, *, kill: bool = False) -> None:
        """End the agent and start it again on the same journal; sessions have to be loaded again.

        With `kill` it gets no chance to clean up, as with SIGKILL.
        """
        await self._recording.restart(kill=kill)
        self._uplink = self._recording.uplink

    # -- sessions -------------------------------------------------------------------------

    async def new_session(
        self,
        cwd: Folder | None = None,
        *,
        mcp_servers: Sequence[McpServer] = (),
        additional_directories: Sequence[Folder] = (),
    ) -> WatchedSession:
        """Begin a conversation, by default in the folder that the journal is in."""
        if self._serves_files and cwd is not None:
            require_folder(cwd)
        made = await super().new_session(
            cwd, mcp_servers=mcp_servers, additional_directories=additional_directories
        )
        return self._as_watched(made)

    async def load_session(
        self,
        session: str | SessionInfo,
        cwd: Folder | None = None,
        **options: Unpack[OpenOptions],
    ) -> WatchedSession:
        """Continue a conversation, by default in its folder; see `RemoteAgent.load_session`."""
        known = await self._known(session)
        return self._as_watched(await super().load_session(known, cwd, **options))

    async def resume_session(
        self,
        session: str | SessionInfo,
        cwd: Folder | None = None,
        **options: Unpack[OpenOptions],
    ) -> WatchedSession:
        """Continue a conversation without a replay; otherwise as `load_session`."""
        known = await self._known(session)
        return self._as_watched(await super().resume_session(known, cwd, **options))

    async def _known(self, session: str | SessionInfo) -> str | SessionInfo:
        """Return a session with its folders, and forget what was received of it."""
        session_id = session if isinstance(session, str) else session.session_id
        self._recording.forget(session_id)
        if isinstance(session, str):
            async for info in self.sessions():
                if info.session_id == session_id:
                    return info
        return session  # the agent itself refuses one that it does not have

    def _session(self, feed: SessionFeed) -> WatchedSession:
        return WatchedSession(feed, self._uplink, self._recording)

    def _as_watched(self, session: RemoteSession) -> WatchedSession:
        assert isinstance(session, WatchedSession)  # `_session` makes only these
        return session


class WatchedSession(RemoteSession):
    """A session of the agent under test, with a record of it."""

    def __init__(self, feed: SessionFeed, uplink: Uplink, recording: Recording) -> None:
        super().__init__(feed, uplink)
        self._recording = recording

    @property
    def received(self) -> Received:
        """All updates of the session so far, including a load's replay."""
        return self._recording.reader(self.id)(0)

    def prompt(self, *content: Content, timeout: float | None = None) -> WatchedTurn:
        """Begin a turn: see `RemoteSession.prompt`. It ends within the deadline of the test."""
        since = len(self.received.raws)
        turn = self._begin(content, self._recording.deadline if timeout is None else timeout)
        received = partial(self._recording.reader(self.id), since)
        return WatchedTurn(turn, self._recording, received)

    async def until(self, holds: Callable[[Received], object]) -> Received:
        """Wait until the received updates satisfy `holds`."""
        return await self._recording.until(lambda: self.received if holds(self.received) else None)

    async def until_said(self, text: str) -> None:
        """Wait until the agent has said this."""
        try:
            await self.until(lambda received: text in received.text)
        except TimeoutError:
            said = shorten(self.received.text)
            raise TimeoutError(f"the agent has not said {text!r} in time, but {said!r}") from None


class WatchedTurn(RemoteTurn):
    """A turn of the agent under test, with a record of it.

    An exception of the agent's code is raised at its end.
    """

    def __init__(
        self, turn: TurnFeed, recording: Recording, received: Callable[[], Received]
    ) -> None:
        super().__init__(turn)
        self._recording = recording
        self._received = received

    @property
    def received(self) -> Received:
        """All updates of the session since the prompt."""
        return self._received()

    async def __anext__(self) -> Update:
        with self._recording.raising():
            return await super().__anext__()

    async def _take_all(self) -> list[bytes]:
        with self._recording.raising():
            return await super()._take_all()
