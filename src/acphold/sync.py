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
from collections.abc import Callable, Coroutine, Iterator, Mapping
from concurrent.futures import CancelledError
from contextlib import AbstractAsyncContextManager
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from acphold import client
from acphold.client import Options
from acphold.client.turn_feed import typed
from acphold.errors import ConnectionLostError

if TYPE_CHECKING:
    import os
    from typing import Unpack

    from acphold.agents.copy_method import SessionCopy
    from acphold.client.advertised import Folder
    from acphold.client.prompt_content import Content
    from acphold.client.remote_session import ConfigOption
    from acphold.client.remote_turn import Replay
    from acphold.history.fold import SessionState
    from acphold.history.prompt_queue import PromptQueue
    from acphold.history.timeline import Item, ToolCall
    from acphold.schema import (
        AgentCapabilities,
        Implementation,
        InitializeResponse,
        SessionInfo,
        SessionModeState,
        Update,
    )
    from acphold.schema.initialize import AuthMethod
    from acphold.schema.updates import AvailableCommand, PlanEntry, UsageUpdate

__all__ = [
    "ConnectOptions",
    "RemoteAgent",
    "RemoteQueue",
    "RemoteSession",
    "RemoteTurn",
    "connect",
]

T = TypeVar("T")
A = ParamSpec("A")

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


def _look(read: Callable[[], T]) -> T:
    """Read a value of the client in the client's own thread."""

    async def value() -> T:
        return read()

    return _background.run(value())


def _waiting(
    method: Callable[Concatenate[Any, A], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Any, A], T]:
    """Return a method of a class here for one of the class that it calls: it waits for the end."""

    @wraps(method)
    def call(self: Any, /, *args: A.args, **kwargs: A.kwargs) -> T:
        return _background.run(method(self._inner, *args, **kwargs))

    return call


def _looking(
    method: Callable[Concatenate[Any, A], T],
) -> Callable[Concatenate[Any, A], T]:
    """The same for a method that waits for nothing."""

    @wraps(method)
    def call(self: Any, /, *args: A.args, **kwargs: A.kwargs) -> T:
        return _look(lambda: method(self._inner, *args, **kwargs))

    return call


def _opening(
    method: Callable[Concatenate[Any, A], Coroutine[Any, Any, client.RemoteSession]],
) -> Callable[Concatenate[Any, A], RemoteSession]:
    """The same for a method that opens a session."""

    @wraps(method)
    def call(self: Any, /, *args: A.args, **kwargs: A.kwargs) -> RemoteSession:
        return RemoteSession(_background.run(method(self._inner, *args, **kwargs)))

    return call


class ConnectOptions(Options, total=False):
    """The options of `connect`, the same as of `acphold.connect`."""

    session: str | None
    durable: bool
    journal: str | os.PathLike[str] | None
    token: str | None
    ca: str | os.PathLike[str] | None
    name: str | None
    cwd: Folder | None
    env: Mapping[str, str] | None
    log_file: str | os.PathLike[str] | None
    show_stderr: bool


def connect(*command: str | os.PathLike[str], **options: Unpack[ConnectOptions]) -> RemoteAgent:
    """Connect like `acphold.connect`, for a `with` block or until `close`; raises the same errors.

    Experimental: with a URL, as in `acphold.connect`.
    """
    connection = client.connect(*command, **options)
    _background.enter()
    try:
        agent = _background.run(connection.__aenter__())
    except BaseException:
        _background.leave()
        raise
    return RemoteAgent(agent, connection)


class RemoteAgent:
    """A connection to an agent: calls the `acphold.RemoteAgent` of the same name.

    It ends after the `with` block, when it is closed, or when the program ends.
    """

    def __init__(
        self,
        agent: client.RemoteAgent,
        connection: AbstractAsyncContextManager[client.RemoteAgent],
    ) -> None:
        self._inner = agent
        self._connection = connection
        self._is_closed = False
        atexit.register(self.close)

    def __enter__(self) -> RemoteAgent:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return repr(self._inner)

    def close(self) -> None:
        """End the connection, and the agent if it was started; may be called again."""
        if self._is_closed:
            return
        self._is_closed = True
        atexit.unregister(self.close)
        try:
            _background.run(self._connection.__aexit__(None, None, None), CLOSE_SECONDS)
        except TimeoutError:
            log.error("the connection does not end in %g s and is given up", CLOSE_SECONDS)
        finally:
            _background.leave()

    @property
    def name(self) -> str:
        """The agent's name for people."""
        return self._inner.name

    @property
    def initialized(self) -> InitializeResponse:
        """The agent's whole answer to `initialize`."""
        return self._inner.initialized

    @property
    def info(self) -> Implementation | None:
        """The agent's name and version, if it sends them."""
        return self._inner.info

    @property
    def capabilities(self) -> AgentCapabilities:
        """The capabilities that the agent advertises."""
        return self._inner.capabilities

    @property
    def auth_methods(self) -> tuple[AuthMethod, ...]:
        """The ways to sign in that the agent offers."""
        return self._inner.auth_methods

    @property
    def is_lost(self) -> bool:
        """True if the connection is lost."""
        return self._inner.is_lost

    new_session = _opening(client.RemoteAgent.new_session)
    load_session = _opening(client.RemoteAgent.load_session)
    resume_session = _opening(client.RemoteAgent.resume_session)

    def sessions(self, cwd: Folder | None = None) -> Iterator[SessionInfo]:
        """Yield all sessions that the agent knows, page by page; with `cwd` only that folder's."""
        pages = self._inner.sessions(cwd)

        async def following() -> SessionInfo | None:
            return await anext(pages, None)

        while (info := _background.run(following())) is not None:
            yield info

    delete_session = _waiting(client.RemoteAgent.delete_session)
    authenticate = _waiting(client.RemoteAgent.authenticate)
    logout = _waiting(client.RemoteAgent.logout)
    call = _waiting(client.RemoteAgent.call)
    ask = _waiting(client.RemoteAgent.ask)
    notify = _looking(client.RemoteAgent.notify)


class RemoteSession:
    """A conversation: calls the `acphold.RemoteSession` of the same name."""

    def __init__(self, session: client.RemoteSession) -> None:
        self._inner = session

    def __repr__(self) -> str:
        return repr(self._inner)

    @property
    def id(self) -> str:
        """The agent's id for it."""
        return self._inner.id

    @property
    def agent_name(self) -> str:
        """The agent's name for people."""
        return self._inner.agent_name

    @property
    def cwd(self) -> str:
        """Its working directory, absolute."""
        return self._inner.cwd

    @property
    def additional_directories(self) -> tuple[str, ...]:
        """The other folders it may work in, absolute."""
        return self._inner.additional_directories

    @property
    def replay(self) -> Replay:
        """The replay of `load_session`, apart from live updates."""
        return self._inner.replay

    def prompt(self, *content: Content, timeout: float | None = None) -> RemoteTurn:
        """Start a turn: the prompt is on its way when this returns.

        A turn that is not over after `timeout` seconds is cancelled and ends with
        AgentTimeoutError.
        """
        return RemoteTurn(_look(lambda: self._inner.prompt(*content, timeout=timeout)))

    blocks = _looking(client.RemoteSession.blocks)

    @property
    def in_turn(self) -> bool:
        """True while a turn of ours runs."""
        return _look(lambda: self._inner.in_turn)

    @property
    def queue(self) -> RemoteQueue:
        """The prompts that wait in it, which acphold keeps and begins one after the other."""
        return RemoteQueue(self._inner.queue)

    @property
    def has_steering(self) -> bool:
        """True if its agent takes words into a running turn."""
        return _look(lambda: self._inner.has_steering)

    steer = _waiting(client.RemoteSession.steer)
    cancel = _looking(client.RemoteSession.cancel)

    def updates(self) -> Iterator[Update]:
        """Yield all updates from now on, in turns and between them."""
        stream = _look(self._inner.updates)
        return _typed(lambda: stream.take_all())

    set_mode = _waiting(client.RemoteSession.set_mode)
    set_option = _waiting(client.RemoteSession.set_option)
    fork = _waiting(client.RemoteSession.fork)
    close = _waiting(client.RemoteSession.close)

    @property
    def state(self) -> SessionState:
        """All that was received of the conversation so far, folded."""
        return _look(lambda: self._inner.state)

    @property
    def modes(self) -> SessionModeState | None:
        """The available modes and the current one; None if the agent has none."""
        return _look(lambda: self._inner.modes)

    @property
    def options(self) -> tuple[ConfigOption, ...]:
        """The config options with their current values."""
        return _look(lambda: self._inner.options)

    @property
    def commands(self) -> tuple[AvailableCommand, ...]:
        """The current slash commands."""
        return _look(lambda: self._inner.commands)

    @property
    def plan(self) -> tuple[PlanEntry, ...]:
        """The newest plan."""
        return _look(lambda: self._inner.plan)

    @property
    def usage(self) -> UsageUpdate | None:
        """The agent's last report of its context and of cost."""
        return _look(lambda: self._inner.usage)

    @property
    def title(self) -> str | None:
        """The session's title in lists."""
        return _look(lambda: self._inner.title)


class RemoteQueue:
    """The prompts that wait in a session: calls the `acphold.types.RemoteQueue`."""

    def __init__(self, queue: client.RemoteQueue) -> None:
        self._inner = queue

    def __repr__(self) -> str:
        return repr(self._inner)

    @property
    def is_kept(self) -> bool:
        """True if there is an acphold at the other end that keeps it."""
        return self._inner.is_kept

    @property
    def state(self) -> PromptQueue:
        """The queue now; empty if nobody keeps one."""
        return _look(lambda: self._inner.state)

    add = _waiting(client.RemoteQueue.add)
    edit = _waiting(client.RemoteQueue.edit)
    reschedule = _waiting(client.RemoteQueue.reschedule)
    move = _waiting(client.RemoteQueue.move)
    drop = _waiting(client.RemoteQueue.drop)
    hold = _waiting(client.RemoteQueue.hold)
    go = _waiting(client.RemoteQueue.go)
    set = _waiting(client.RemoteQueue.set)
    content = _waiting(client.RemoteQueue.content)


class RemoteTurn:
    """One turn: iterate over it for its updates, or `wait` for its end."""

    def __init__(self, turn: client.RemoteTurn) -> None:
        self._turn = turn
        self._updates = _typed(turn.take_all)

    def __repr__(self) -> str:
        try:
            return _look(lambda: repr(self._turn))
        except ConnectionLostError:
            return repr(self._turn)  # nothing changes it any more

    def __iter__(self) -> Iterator[Update]:
        return self._updates

    def wait(self) -> RemoteTurn:
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
        return _look(lambda: self._turn.items)

    @property
    def text(self) -> str:
        """All that the agent has said in the turn so far."""
        return _look(lambda: self._turn.text)

    @property
    def thoughts(self) -> str:
        """All that the agent has thought in the turn so far."""
        return _look(lambda: self._turn.thoughts)

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        """The turn's tool calls, each in its current state."""
        return _look(lambda: self._turn.tool_calls)


def _typed(take: Callable[[], Coroutine[Any, Any, list[bytes]]]) -> Iterator[Update]:
    """Yield updates as they come, in batches, because each call into the other thread costs."""
    while raws := _background.run(take()):
        yield from map(typed, raws)
