"""The client in plain calls, for programs without asyncio.

    import acphold.sync

    with acphold.sync.connect("gemini", "--acp") as agent:
        session = agent.new_session()
        for update in session.prompt("hello"):
            ...

In a notebook, where a block is in the way, `agent = acphold.sync.connect(…)`, and `agent.close()`.
Everything is as in `acphold.connect`, without `await`. One thread runs the event loop of all
connections; it begins with the first of them and ends with the last. Callbacks are called in it, so
they must not call what is in this module. Each object may be used from any thread.
"""

from __future__ import annotations

import asyncio
import atexit
import logging
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, TypeVar

import acphold.client
from acphold.client import Options
from acphold.client.turn_feed import typed
from acphold.errors import ConnectionLostError

if TYPE_CHECKING:
    import os
    from typing import Unpack

    from acphold.client.advertised import Folder
    from acphold.client.prompt_content import Content
    from acphold.client.remote_session import ConfigOption
    from acphold.client.remote_turn import Replay
    from acphold.history.fold import SessionState
    from acphold.history.timeline import Item, ToolCall
    from acphold.schema import (
        AgentCapabilities,
        ContentBlock,
        Implementation,
        InitializeResponse,
        McpServer,
        SessionInfo,
        SessionModeState,
        Update,
    )
    from acphold.schema.initialize import AuthMethod
    from acphold.schema.methods import Method
    from acphold.schema.updates import AvailableCommand, PlanEntry, UsageUpdate

__all__ = ["ConnectOptions", "RemoteAgent", "RemoteSession", "RemoteTurn", "connect"]

T = TypeVar("T")
P = TypeVar("P")
R = TypeVar("R")

log = logging.getLogger(__name__)

CLOSE_SECONDS = 15.0
"""What leaving a connection may take: each of its parts has a bound, and they are below this."""


class _Background:
    """The thread with the event loop; it lives while there is a connection."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None

    def enter(self) -> None:
        """One connection more."""
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
        """One connection less; behind the last one the thread ends."""
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
        """What the coroutine returns or raises; ConnectionLostError without a connection."""
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
        except KeyboardInterrupt:  # what is cancelled has an end, too: that of a turn, for one
            future.cancel()
            ended.wait(CLOSE_SECONDS)
            raise
        except BaseException:  # nobody waits for it any more
            future.cancel()
            raise


_background = _Background()


def _look(read: Callable[[], T]) -> T:
    """Something of the client, read in its own thread."""

    async def value() -> T:
        return read()

    return _background.run(value())


class ConnectOptions(Options, total=False):
    """What `connect` takes: all that `acphold.connect` does."""

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
    """As `acphold.connect`, for a `with` block, or until it is closed; raises what that raises.

    Experimental: with a URL, as there.
    """
    connection = acphold.client.connect(*command, **options)
    _background.enter()
    try:
        agent = _background.run(connection.__aenter__())
    except BaseException:
        _background.leave()
        raise
    return RemoteAgent(agent, connection)


class RemoteAgent:
    """An agent that we are connected to: see `acphold.RemoteAgent`, which this one calls.

    It ends behind the `with` block, or when it is closed, or when the program ends.
    """

    def __init__(
        self,
        agent: acphold.client.RemoteAgent,
        connection: AbstractAsyncContextManager[acphold.client.RemoteAgent],
    ) -> None:
        self._agent = agent
        self._connection = connection
        self._is_closed = False
        atexit.register(self.close)

    def __enter__(self) -> RemoteAgent:
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
            log.error("the connection does not end in %g s and is given up", CLOSE_SECONDS)
        finally:
            _background.leave()

    @property
    def name(self) -> str:
        """What people call it."""
        return self._agent.name

    @property
    def initialized(self) -> InitializeResponse:
        """All that the agent answered to `initialize`."""
        return self._agent.initialized

    @property
    def info(self) -> Implementation | None:
        """Its name and version, if it tells them."""
        return self._agent.info

    @property
    def capabilities(self) -> AgentCapabilities:
        """What it advertises."""
        return self._agent.capabilities

    @property
    def auth_methods(self) -> tuple[AuthMethod, ...]:
        """The ways to sign in that it offers."""
        return self._agent.auth_methods

    @property
    def is_lost(self) -> bool:
        """Whether it has gone."""
        return self._agent.is_lost

    def new_session(
        self,
        cwd: Folder | None = None,
        *,
        mcp_servers: Sequence[McpServer] = (),
        additional_directories: Sequence[Folder] = (),
    ) -> RemoteSession:
        """Begin a conversation."""
        made = self._agent.new_session(
            cwd, mcp_servers=mcp_servers, additional_directories=additional_directories
        )
        return RemoteSession(_background.run(made))

    def load_session(
        self,
        session: str | SessionInfo,
        cwd: Folder | None = None,
        *,
        mcp_servers: Sequence[McpServer] = (),
        additional_directories: Sequence[Folder] | None = None,
        agent: str | None = None,
    ) -> RemoteSession:
        """Go on with a conversation; what the agent replays of it is in `replay`."""
        opened = self._agent.load_session(
            session,
            cwd,
            mcp_servers=mcp_servers,
            additional_directories=additional_directories,
            agent=agent,
        )
        return RemoteSession(_background.run(opened))

    def resume_session(
        self,
        session: str | SessionInfo,
        cwd: Folder | None = None,
        *,
        mcp_servers: Sequence[McpServer] = (),
        additional_directories: Sequence[Folder] | None = None,
        agent: str | None = None,
    ) -> RemoteSession:
        """Go on with a conversation without a replay."""
        opened = self._agent.resume_session(
            session,
            cwd,
            mcp_servers=mcp_servers,
            additional_directories=additional_directories,
            agent=agent,
        )
        return RemoteSession(_background.run(opened))

    def sessions(self, cwd: Folder | None = None) -> Iterator[SessionInfo]:
        """The sessions that the agent knows, all pages; with `cwd` those of that folder."""
        pages = self._agent.sessions(cwd)

        async def following() -> SessionInfo | None:
            return await anext(pages, None)

        while (info := _background.run(following())) is not None:
            yield info

    def delete_session(self, session_id: str) -> None:
        """Have the agent delete a conversation for good."""
        _background.run(self._agent.delete_session(session_id))

    def authenticate(self, method_id: str) -> None:
        """Sign in by one of `auth_methods`."""
        _background.run(self._agent.authenticate(method_id))

    def logout(self) -> None:
        """Sign out."""
        _background.run(self._agent.logout())

    def call(self, method: str, params: Mapping[str, Any]) -> Any:
        """Any request of an extension, JSON in and out."""
        return _background.run(self._agent.call(method, params))

    def ask(self, method: Method[P, R], params: P) -> R:
        """Any request of the protocol, typed; nothing is checked before."""
        return _background.run(self._agent.ask(method, params))

    def notify(self, method: str, params: Mapping[str, Any]) -> None:
        """Any notification of an extension."""
        _look(lambda: self._agent.notify(method, params))


class RemoteSession:
    """A conversation: see `acphold.RemoteSession`, which this one calls."""

    def __init__(self, session: acphold.client.RemoteSession) -> None:
        self._session = session

    def __repr__(self) -> str:
        return repr(self._session)

    @property
    def id(self) -> str:
        """The id that the agent knows it by."""
        return self._session.id

    @property
    def agent_name(self) -> str:
        """What people call the agent that it is with."""
        return self._session.agent_name

    @property
    def cwd(self) -> str:
        """Its working directory, absolute."""
        return self._session.cwd

    @property
    def additional_directories(self) -> tuple[str, ...]:
        """The other folders that it may work in, absolute."""
        return self._session.additional_directories

    @property
    def replay(self) -> Replay:
        """What `load_session` replayed, apart from what comes live."""
        return self._session.replay

    def prompt(self, *content: Content, timeout: float | None = None) -> RemoteTurn:
        """Begin a turn: the prompt is on its way when this returns.

        One that is not over after `timeout` seconds is cancelled, and ends with AgentTimeoutError.
        """
        return RemoteTurn(_look(lambda: self._session.prompt(*content, timeout=timeout)))

    def blocks(self, *content: Content) -> tuple[ContentBlock, ...]:
        """What `prompt` would send for this, and raises as it does."""
        return _look(lambda: self._session.blocks(*content))

    @property
    def in_turn(self) -> bool:
        """Whether a turn of ours runs."""
        return _look(lambda: self._session.in_turn)

    def cancel(self) -> None:
        """Cancel the turn that runs; from another thread, or between two updates of it."""
        _look(self._session.cancel)

    def updates(self) -> Iterator[Update]:
        """All updates from now on, in turns and between them."""
        stream = _look(self._session.updates)
        return _typed(lambda: stream.take_all())

    def set_mode(self, mode_id: str) -> None:
        """Change the mode."""
        _background.run(self._session.set_mode(mode_id))

    def set_option(self, option_id: str, value: str | bool) -> tuple[ConfigOption, ...]:
        """Change a config option; all of them as they stand then."""
        return _background.run(self._session.set_option(option_id, value))

    def close(self) -> None:
        """Close it, which cancels what runs in it."""
        _background.run(self._session.close())

    @property
    def state(self) -> SessionState:
        """All that was said in it as far as it came, folded."""
        return _look(lambda: self._session.state)

    @property
    def modes(self) -> SessionModeState | None:
        """The modes that it has, and the one it is in; None when it has none."""
        return _look(lambda: self._session.modes)

    @property
    def options(self) -> tuple[ConfigOption, ...]:
        """Its config options as they stand."""
        return _look(lambda: self._session.options)

    @property
    def commands(self) -> tuple[AvailableCommand, ...]:
        """The slash commands that there are now."""
        return _look(lambda: self._session.commands)

    @property
    def plan(self) -> tuple[PlanEntry, ...]:
        """The newest plan."""
        return _look(lambda: self._session.plan)

    @property
    def usage(self) -> UsageUpdate | None:
        """What the agent last told of its context and of cost."""
        return _look(lambda: self._session.usage)

    @property
    def title(self) -> str | None:
        """What lists call it."""
        return _look(lambda: self._session.title)


class RemoteTurn:
    """One turn: iterate over it for its updates, or `wait` for its end."""

    def __init__(self, turn: acphold.client.RemoteTurn) -> None:
        self._turn = turn
        self._updates = _typed(turn.take_all)

    def __repr__(self) -> str:
        try:
            return _look(lambda: repr(self._turn))
        except ConnectionLostError:
            return repr(self._turn)  # which nothing changes any more

    def __iter__(self) -> Iterator[Update]:
        return self._updates

    def wait(self) -> RemoteTurn:
        """Pass the updates over until the turn ends; the turn itself. Raises what ended it.

        Ctrl-C cancels the turn, and is raised when it is over.
        """

        async def over() -> None:
            await self._turn

        _background.run(over())
        return self

    @property
    def stop_reason(self) -> str | None:
        """As the agent gave it; None until it has."""
        return self._turn.stop_reason

    @property
    def has_begun(self) -> bool:
        """Whether the agent is at it, or was: turns of other clients may run before."""
        return self._turn.has_begun

    @property
    def is_over(self) -> bool:
        """Whether the turn has ended; there may be updates that were not read yet."""
        return self._turn.is_over

    @property
    def items(self) -> tuple[Item, ...]:
        """Its part of the session's timeline so far."""
        return _look(lambda: self._turn.items)

    @property
    def text(self) -> str:
        """All that the agent has said in it so far."""
        return _look(lambda: self._turn.text)

    @property
    def thoughts(self) -> str:
        """All that the agent has thought in it so far."""
        return _look(lambda: self._turn.thoughts)

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        """The tool calls in it, each as it stands."""
        return _look(lambda: self._turn.tool_calls)


def _typed(take: Callable[[], Coroutine[Any, Any, list[bytes]]]) -> Iterator[Update]:
    """Updates as they come: fetched in batches, for each way into the other thread costs."""
    while raws := _background.run(take()):
        yield from map(typed, raws)
