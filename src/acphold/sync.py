"""The client in plain calls, for programs without asyncio.

    import acphold.sync

    with acphold.sync.connect("gemini", "--acp") as agent:
        session = agent.new_session()
        for update in session.prompt("hello"):
            ...

In a notebook, where a block is in the way, use `agent = acphold.sync.connect(…)` and
`agent.close()`.
Everything works as in `acphold.connect`, without `await`. One thread runs the event loop of all
connections; it starts with the first of them and ends with the last. It also calls callbacks, so
these must not call this module. Each object may be used from any thread.
"""

from __future__ import annotations

import asyncio
import atexit
import logging
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

import acphold.client
from acphold.client import Options
from acphold.client.remote_turn import Replay, as_update, take_all
from acphold.errors import ConnectionLostError

if TYPE_CHECKING:
    import os
    from datetime import datetime

    from acp_wire import schema
    from acp_wire.schema import AvailableCommand, Method, PlanEntry, UsageUpdate
    from acp_wire.schema.initialize import AuthMethod
    from acp_wire.transports.known_servers import Token
    from acphold.client.advertised import Content, Folder, OpenOptions
    from acphold.client.remote_session import ConfigOption
    from acphold.conversation.history.fold import SessionState
    from acphold.conversation.history.prompt_queue import PromptQueue
    from acphold.conversation.history.timeline import Item, ToolCall
    from acphold.live.agents.extensions import SessionCopy

__all__ = [
    "SyncAgent",
    "SyncQueue",
    "SyncSession",
    "SyncTurn",
    "connect",
]

T = TypeVar("T")
P = TypeVar("P")
R = TypeVar("R")

log = logging.getLogger(__name__)

CLOSE_SECONDS = 15.0
"""Closing a connection may take this long; the bounds of its parts are all lower."""


class _Background:
    """The thread with the event loop; it lives while there are connections."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None

    def enter(self) -> None:
        """Count one more connection; the first one starts the thread."""
        with self._lock:
            self._users += 1
            if self._users == 1:
                ready = threading.Event()

                async def until_stopped() -> None:
                    self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
                    ready.set()
                    await self._stop.wait()

                self._thread = threading.Thread(
                    target=lambda: asyncio.run(until_stopped()), name="acphold.sync", daemon=True
                )
                self._thread.start()
                ready.wait()

    def leave(self) -> None:
        """Count one connection less; the last one ends the thread."""
        with self._lock:
            self._users -= 1
            if self._users:
                return
            thread, loop, stop = self._thread, self._loop, self._stop
            self._thread = self._loop = self._stop = None
            if loop is not None and stop is not None and thread is not None:
                loop.call_soon_threadsafe(stop.set)
                thread.join(CLOSE_SECONDS)

    def run(self, work: Coroutine[Any, Any, T], seconds: float | None = None) -> T:
        """Run the coroutine; returns its result. ConnectionLostError without a connection."""
        loop = self._loop
        if loop is None:
            work.close()
            raise ConnectionLostError("the connection was closed")
        if threading.current_thread() is self._thread:
            work.close()
            raise RuntimeError("a callback must not call acphold.sync: it would wait for itself")
        ended = threading.Event()

        async def to_its_end() -> T:
            try:
                return await work
            finally:
                ended.set()

        future = asyncio.run_coroutine_threadsafe(to_its_end(), loop)
        try:
            return future.result(seconds)
        except CancelledError:
            raise ConnectionLostError("the connection was closed") from None
        except KeyboardInterrupt:  # the cancelled work still has to end: a turn, for example
            future.cancel()
            ended.wait(CLOSE_SECONDS)
            raise
        except BaseException:  # nobody waits for the result any more
            future.cancel()
            raise


_background = _Background()


def _read(read: Callable[[], T]) -> T:
    """Read a value of the client in the client's own thread."""

    async def value() -> T:
        return read()

    return _background.run(value())


def connect(
    *command: str | os.PathLike[str],
    session: str | None = None,
    durable: bool = False,
    journal: str | os.PathLike[str] | None = None,
    token: Token | None = None,
    ca: str | os.PathLike[str] | None = None,
    name: str | None = None,
    cwd: Folder | None = None,
    env: Mapping[str, str] | None = None,
    log_file: str | os.PathLike[str] | None = None,
    show_stderr: bool = False,
    **options: Unpack[Options],
) -> SyncAgent:
    """Connect like `acphold.connect`, for a `with` block or until `close`; raises the same.

    Experimental: with a URL.
    """
    connection = acphold.client.connect(
        *command,
        session=session,
        durable=durable,
        journal=journal,
        token=token,
        ca=ca,
        name=name,
        cwd=cwd,
        env=env,
        log_file=log_file,
        show_stderr=show_stderr,
        **options,
    )
    _background.enter()
    try:
        agent = _background.run(connection.__aenter__())
    except BaseException:
        _background.leave()
        raise
    return SyncAgent(agent, connection)


class SyncAgent:
    """A connection to an agent: each call is that of an `acphold.RemoteAgent`."""

    def __init__(
        self,
        agent: acphold.client.RemoteAgent,
        connection: AbstractAsyncContextManager[acphold.client.RemoteAgent],
    ) -> None:
        self._agent = agent
        self._connection = connection
        self._is_closed = False
        atexit.register(self.close)

    def __enter__(self) -> SyncAgent:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return repr(self._agent)

    def close(self) -> None:
        """End the connection, and the agent if it was started; may be called again."""
        if self._is_closed:
            return
        self._is_closed = True
        atexit.unregister(self.close)
        try:
            _background.run(self._connection.__aexit__(None, None, None), CLOSE_SECONDS)
        except TimeoutError:
            log.error("the connection does not end within %g s; leaving it", CLOSE_SECONDS)
        finally:
            _background.leave()

    @property
    def name(self) -> str:
        """The agent's name for people."""
        return self._agent.name

    @property
    def initialized(self) -> schema.InitializeResponse:
        """Its answer to `initialize`."""
        return self._agent.initialized

    @property
    def info(self) -> schema.Implementation | None:
        """The agent's name and version, if it sends them."""
        return self._agent.info

    @property
    def capabilities(self) -> schema.AgentCapabilities:
        """The capabilities that the agent advertises."""
        return self._agent.capabilities

    @property
    def auth_methods(self) -> tuple[AuthMethod, ...]:
        """The ways to sign in that the agent offers."""
        return self._agent.auth_methods

    @property
    def is_lost(self) -> bool:
        """True if the connection is lost."""
        return self._agent.is_lost

    def new_session(
        self,
        cwd: Folder | None = None,
        *,
        mcp_servers: Sequence[schema.McpServer] = (),
        additional_directories: Sequence[Folder] = (),
    ) -> SyncSession:
        """Start a conversation."""
        made = self._agent.new_session(
            cwd, mcp_servers=mcp_servers, additional_directories=additional_directories
        )
        return SyncSession(_background.run(made))

    def load_session(
        self,
        session: str | schema.SessionInfo,
        cwd: Folder | None = None,
        **options: Unpack[OpenOptions],
    ) -> SyncSession:
        """Continue a conversation; the agent's replay of it is in `replay`."""
        return SyncSession(_background.run(self._agent.load_session(session, cwd, **options)))

    def resume_session(
        self,
        session: str | schema.SessionInfo,
        cwd: Folder | None = None,
        **options: Unpack[OpenOptions],
    ) -> SyncSession:
        """Continue a conversation without a replay."""
        return SyncSession(_background.run(self._agent.resume_session(session, cwd, **options)))

    def sessions(self, cwd: Folder | None = None) -> Iterator[schema.SessionInfo]:
        """Yield all sessions that the agent knows, page by page; with `cwd` only that folder's."""
        pages = self._agent.sessions(cwd)

        async def following() -> schema.SessionInfo | None:
            return await anext(pages, None)

        while (info := _background.run(following())) is not None:
            yield info

    def delete_session(self, session_id: str) -> None:
        """Delete a conversation for good."""
        _background.run(self._agent.delete_session(session_id))

    def authenticate(self, method_id: str) -> None:
        """Sign in with one of `auth_methods`."""
        _background.run(self._agent.authenticate(method_id))

    def logout(self) -> None:
        """Sign out."""
        _background.run(self._agent.logout())

    def call(self, method: str, params: Mapping[str, Any]) -> Any:
        """Send any request of an extension, with JSON values in and out."""
        return _background.run(self._agent.call(method, params))

    def ask(self, method: Method[P, R], params: P) -> R:
        """Send a request of the protocol, unchecked."""
        return _background.run(self._agent.ask(method, params))

    def notify(self, method: str, params: Mapping[str, Any]) -> None:
        """Send a notification of an extension."""
        _read(lambda: self._agent.notify(method, params))


class SyncSession:
    """A conversation: each call is that of an `acphold.RemoteSession`."""

    def __init__(self, session: acphold.client.RemoteSession) -> None:
        self._session = session

    def __repr__(self) -> str:
        return repr(self._session)

    @property
    def id(self) -> str:
        """The agent's id for it."""
        return self._session.id

    @property
    def agent_name(self) -> str:
        """The agent's name for people."""
        return self._session.agent_name

    @property
    def cwd(self) -> str:
        """Its working directory, absolute."""
        return self._session.cwd

    @property
    def additional_directories(self) -> tuple[str, ...]:
        """The other folders it may work in, absolute."""
        return self._session.additional_directories

    @property
    def replay(self) -> Replay:
        """The replay of `load_session`, apart from live updates."""
        return self._session.replay

    def prompt(self, *content: Content, timeout: float | None = None) -> SyncTurn:
        """Start a turn: the prompt is on its way when this returns.

        A turn that is not over after `timeout` seconds is cancelled and ends with
        AgentTimeoutError.
        """
        return SyncTurn(_read(lambda: self._session.prompt(*content, timeout=timeout)))

    def blocks(self, *content: Content) -> tuple[schema.ContentBlock, ...]:
        """Return the blocks that `prompt` would send for this; raises the same errors."""
        return _read(lambda: self._session.blocks(*content))

    @property
    def in_turn(self) -> bool:
        """True while a turn of ours runs."""
        return _read(lambda: self._session.in_turn)

    @property
    def queue(self) -> SyncQueue:
        """Its queued prompts."""
        return SyncQueue(self._session.queue)

    @property
    def has_steering(self) -> bool:
        """True if `steer` works."""
        return _read(lambda: self._session.has_steering)

    def steer(self, *content: Content) -> bool:
        """Send a message into the running turn; return False if the agent has not accepted it."""
        return _background.run(self._session.steer(*content))

    def cancel(self) -> None:
        """Cancel the running turn, from another thread or between two of its updates."""
        _read(self._session.cancel)

    def updates(self) -> Iterator[schema.Update]:
        """Yield all updates from now on."""
        stream = _read(self._session.updates)
        return _as_updates(lambda: take_all(stream))

    def set_mode(self, mode_id: str) -> None:
        """Change the mode."""
        _background.run(self._session.set_mode(mode_id))

    def set_option(self, option_id: str, value: str | bool) -> tuple[ConfigOption, ...]:
        """Change a config option; returns all options with their new values."""
        return _background.run(self._session.set_option(option_id, value))

    def fork(
        self,
        *,
        at: int | None = None,
        before: bool = False,
        files: bool | str = False,
        include: bool = False,
    ) -> SessionCopy:
        """Copy it into a new session, perhaps with its files; see `acphold.RemoteSession.fork`."""
        return _background.run(
            self._session.fork(at=at, before=before, files=files, include=include)
        )

    def close(self) -> None:
        """Close the session, which cancels its turn."""
        _background.run(self._session.close())

    @property
    def state(self) -> SessionState:
        """All that was received of the conversation so far, folded."""
        return _read(lambda: self._session.state)

    @property
    def mode(self) -> str | None:
        """The id of the current mode; None if the agent has no modes."""
        return _read(lambda: self._session.mode)

    @property
    def modes(self) -> tuple[schema.SessionMode, ...]:
        """The modes that it can be set to."""
        return _read(lambda: self._session.modes)

    @property
    def config_options(self) -> tuple[ConfigOption, ...]:
        """The config options with their current values."""
        return _read(lambda: self._session.config_options)

    @property
    def commands(self) -> tuple[AvailableCommand, ...]:
        """The current slash commands."""
        return _read(lambda: self._session.commands)

    @property
    def plan(self) -> tuple[PlanEntry, ...]:
        """The newest plan."""
        return _read(lambda: self._session.plan)

    @property
    def usage(self) -> UsageUpdate | None:
        """The last report of context and cost."""
        return _read(lambda: self._session.usage)

    @property
    def title(self) -> str | None:
        """The session's title in lists."""
        return _read(lambda: self._session.title)


class SyncQueue:
    """The queued prompts in a session: each call is that of an `acphold.types.RemoteQueue`."""

    def __init__(self, queue: acphold.client.RemoteQueue) -> None:
        self._queue = queue

    def __repr__(self) -> str:
        return repr(self._queue)

    @property
    def is_kept(self) -> bool:
        """True if there is an acphold at the other end that keeps it."""
        return self._queue.is_kept

    @property
    def state(self) -> PromptQueue:
        """The queue now; empty if nobody keeps one."""
        return _read(lambda: self._queue.state)

    def add(self, *content: Content, at: datetime | None = None, before: str = "") -> str:
        """Add a prompt; returns its id."""
        return _background.run(self._queue.add(*content, at=at, before=before))

    def take(self, prompt_id: str) -> tuple[schema.ContentBlock, ...]:
        """Return a prompt's content, to edit it: it does not begin until `edit` or `drop`, or this
        client has been gone for a minute."""
        return _background.run(self._queue.take(prompt_id))

    def edit(self, prompt_id: str, *content: Content) -> None:
        """Replace the content of a prompt; without any, it stands as before."""
        _background.run(self._queue.edit(prompt_id, *content))

    def reschedule(self, prompt_id: str, at: datetime | None) -> None:
        """Do not begin a prompt before this time, which has a zone; None removes the time."""
        _background.run(self._queue.reschedule(prompt_id, at))

    def move(self, prompt_id: str, before: str = "") -> None:
        """Put a prompt before the one with this id; by default, last."""
        _background.run(self._queue.move(prompt_id, before))

    def drop(self, prompt_id: str) -> None:
        """Take a prompt out of the queue."""
        _background.run(self._queue.drop(prompt_id))

    def hold(self) -> None:
        """Begin no more prompts until `go`."""
        _background.run(self._queue.hold())

    def go(self) -> None:
        """Continue with them, whatever held them."""
        _background.run(self._queue.go())

    def set(self, *, goes_on: bool | None = None, restarts: bool | None = None) -> None:
        """Say whether it continues after a turn that failed or was refused, and whether it does so
        when another process opens the session; None leaves that as it is."""
        _background.run(self._queue.set(goes_on=goes_on, restarts=restarts))

    def content(self, prompt_id: str) -> tuple[schema.ContentBlock, ...]:
        """Return a prompt's content."""
        return _background.run(self._queue.content(prompt_id))


class SyncTurn:
    """One turn: iterate over it for its updates, or `wait` for its end."""

    def __init__(self, turn: acphold.client.RemoteTurn) -> None:
        self._turn = turn
        self._updates = _as_updates(lambda: take_all(turn))

    def __repr__(self) -> str:
        try:
            return _read(lambda: repr(self._turn))
        except ConnectionLostError:
            return repr(self._turn)  # nothing changes it any more

    def __iter__(self) -> Iterator[schema.Update]:
        return self._updates

    def wait(self) -> SyncTurn:
        """Skip the updates until the turn ends; returns the turn. Raises the error that ended it.

        Ctrl-C cancels the turn and is raised once it is over.
        """

        async def over() -> None:
            await self._turn

        _background.run(over())
        return self

    @property
    def stop_reason(self) -> str | None:
        """The stop reason that the agent gave; None until then."""
        return self._turn.stop_reason

    @property
    def has_begun(self) -> bool:
        """True once the agent has started on it: turns of other clients may run before it."""
        return self._turn.has_begun

    @property
    def is_over(self) -> bool:
        """True once the turn has ended; some updates may not have been read yet."""
        return self._turn.is_over

    @property
    def items(self) -> tuple[Item, ...]:
        """The turn's part of the session's timeline so far."""
        return _read(lambda: self._turn.items)

    @property
    def text(self) -> str:
        """All that the agent has said in the turn so far."""
        return _read(lambda: self._turn.text)

    @property
    def thoughts(self) -> str:
        """All that the agent has thought in the turn so far."""
        return _read(lambda: self._turn.thoughts)

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        """The turn's tool calls, each in its current state."""
        return _read(lambda: self._turn.tool_calls)


def _as_updates(take: Callable[[], Coroutine[Any, Any, list[bytes]]]) -> Iterator[schema.Update]:
    """Yield updates as they come, in batches, because each call into the other thread costs."""
    while raws := _background.run(take()):
        yield from map(as_update, raws)
