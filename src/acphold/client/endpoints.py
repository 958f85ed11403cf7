"""What a client connects to, and how: `connect`, and what stands behind it.

A far end is a program that is started, or a transport that somebody else has made.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, TypedDict

from acphold.agents.last_words import ended, hang_up_behind
from acphold.client.advertised import absolute
from acphold.client.duties import Answers, Duties
from acphold.client.remote_agent import RemoteAgent
from acphold.client.uplink import SILENCE, START_TIMEOUT, Endpoint, Settings, Uplink
from acphold.errors import AcpholdError, ConnectionLostError, DeclarationError
from acphold.processes.program import launch
from acphold.rpc import MAX_MESSAGE, Transport
from acphold.schema import ClientCapabilities, Implementation
from acphold.transports.child import ChildProcess

if TYPE_CHECKING:
    from typing import Unpack

    from acphold.client.advertised import Folder
    from acphold.client.duties import Handler
    from acphold.client.form_answers import AskForm, AskPage
    from acphold.client.policy import AskPermission, Policy

CANCEL_GRACE = 10.0
"""Seconds an agent gets to end a turn that was cancelled; then it is over without its answer."""


class ProgramEndpoint:
    """A program that we start and end."""

    is_repeatable = True

    def __init__(
        self,
        command: Sequence[str],
        *,
        cwd: str | None,
        env: Mapping[str, str] | None,
        log_file: str | None,
        show_stderr: bool,
    ) -> None:
        self.name = command[0]
        self._command = tuple(command)
        self._cwd = cwd
        self._env = None if env is None else {**os.environ, **env}
        self._log_file = log_file
        self._relay_fd = 2 if show_stderr else None
        self._process: ChildProcess | None = None

    async def open(self) -> Transport:
        program = launch(self._command, cwd=self._cwd, env=self._env)
        self._process = ChildProcess(program, log_path=self._log_file, relay_fd=self._relay_fd)
        return self._process.transport

    async def follow(self, pump: asyncio.Task[None]) -> None:
        assert self._process is not None
        await asyncio.wait(
            {pump, watch := asyncio.ensure_future(hang_up_behind(self._process, pump))},
            return_when=asyncio.FIRST_COMPLETED,
        )
        watch.cancel()

    async def how_it_ended(self) -> AcpholdError:
        return await ended(self.name, self._process)

    async def aclose(self) -> None:
        if self._process is not None:
            await self._process.aclose()


class TransportEndpoint:
    """A transport that is open already."""

    is_repeatable = False

    def __init__(self, transport: Transport, name: str) -> None:
        self.name = name
        self._transport = transport

    async def open(self) -> Transport:
        return self._transport

    async def follow(self, pump: asyncio.Task[None]) -> None:
        await asyncio.wait([pump])

    async def how_it_ended(self) -> AcpholdError:
        return ConnectionLostError(f"{self.name} has gone")

    async def aclose(self) -> None:
        await self._transport.aclose()


class Options(TypedDict, total=False):
    """How a client behaves; the same for all ways to connect. See `connect`."""

    permission: Policy | None
    on_permission: AskPermission | None
    on_form: AskForm | None
    on_page: AskPage | None
    files: bool | Sequence[Folder]
    terminals: bool
    handlers: Mapping[str, Handler]
    on_notification: Callable[[str, Any], object] | None
    client_info: Implementation | None
    capabilities: ClientCapabilities | None
    reconnect: bool
    start_timeout: float
    silence: float
    cancel_grace: float
    max_message: int


@asynccontextmanager
async def connect(
    *command: str | os.PathLike[str],
    cwd: Folder | None = None,
    env: Mapping[str, str] | None = None,
    log_file: str | os.PathLike[str] | None = None,
    show_stderr: bool = False,
    **options: Unpack[Options],
) -> AsyncIterator[RemoteAgent]:
    """Start an agent, and talk to it in the block; afterwards it and its children have ended.

        async with acphold.connect("gemini", "--acp") as agent:
            session = await agent.new_session()
            turn = await session.prompt("hello")
            print(turn.text)

    Of the program: `cwd` is the folder that it starts in, and that sessions are in if they are
    not given one; by default ours. `env` is added to our environment. What it writes to stderr is
    kept for error messages; all of it goes to `log_file` as well, and with `show_stderr` to our
    stderr.

    What the agent asks: `permission` is "allow", "reject" or "ask", or one of these by kind of
    tool (`{"read": "allow", "*": "ask"}`); "ask" calls `on_permission`. Without a policy
    everything is asked, or rejected if there is no `on_permission`. `on_form` and `on_page` show
    forms and pages; without them no such are offered. `files` and `terminals` serve files and
    commands inside the folders of a session, and in further folders with `files=[…]`. `handlers`
    answer other methods, or these in another way; `on_notification` hears those that are no
    updates. `capabilities` says instead what is offered.

    With `reconnect` an agent that is lost is started again by the next request, and its sessions
    are loaded. `start_timeout` is the time for `initialize`, `silence` the time without any word
    from the agent after which a request is given up, `cancel_grace` the time to end a turn that
    was cancelled, all in seconds.

    Raises AgentStartError.
    """
    if not command:
        raise DeclarationError("connect needs the command of an agent")
    folder = None if cwd is None else absolute(cwd)
    endpoint = ProgramEndpoint(
        [os.fspath(word) for word in command],
        cwd=folder,
        env=env,
        log_file=None if log_file is None else os.fspath(log_file),
        show_stderr=show_stderr,
    )
    async with connected_to(endpoint, cwd=folder, **options) as agent:
        yield agent


@asynccontextmanager
async def connect_over(
    transport: Transport, *, cwd: Folder | None = None, **options: Unpack[Options]
) -> AsyncIterator[RemoteAgent]:
    """Talk to an agent over a transport that is open; otherwise as `connect`."""
    endpoint = TransportEndpoint(transport, "the agent")
    async with connected_to(endpoint, cwd=cwd, **options) as agent:
        yield agent


@asynccontextmanager
async def connected_to(
    endpoint: Endpoint, *, cwd: Folder | None = None, **options: Unpack[Options]
) -> AsyncIterator[RemoteAgent]:
    """Talk to any far end."""
    answers = _answers(options)
    settings = Settings(
        client_info=options.get("client_info") or _ourselves(),
        capabilities=options.get("capabilities") or answers.capabilities,
        on_notification=options.get("on_notification"),
        reconnect=options.get("reconnect", False),
        start_timeout=options.get("start_timeout", START_TIMEOUT),
        silence=options.get("silence", SILENCE),
        limit=options.get("max_message", MAX_MESSAGE),
    )
    uplink = Uplink(endpoint, Duties(answers), settings)
    try:
        await uplink.start()
        yield RemoteAgent(
            uplink,
            cwd=absolute(cwd or "."),
            cancel_grace=options.get("cancel_grace", CANCEL_GRACE),
        )
    finally:
        await uplink.aclose()


def _answers(options: Options) -> Answers:
    files = options.get("files", False)
    return Answers(
        permission=options.get("permission"),
        on_permission=options.get("on_permission"),
        on_form=options.get("on_form"),
        on_page=options.get("on_page"),
        files=files if isinstance(files, bool) else [absolute(path) for path in files],
        terminals=options.get("terminals", False),
        handlers=options.get("handlers", {}),
    )


def _ourselves() -> Implementation:
    from acphold import __version__

    return Implementation(name="acphold", version=__version__)
