"""`acphold.connect`: a connection to an agent for a block, in every way that there is."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypedDict, Unpack

from acp_wire.rpc import MAX_MESSAGE, Transport
from acp_wire.schema import ClientCapabilities, Implementation
from acp_wire.transports.known_servers import Token, is_url
from acphold.client import bounds
from acphold.client.advertised import Folder, absolute, require_folder
from acphold.client.answers import Answers, AskForm, AskPage, AskPermission, Duties, Handler, Policy
from acphold.client.endpoints import ProgramEndpoint, ProgramStart, TransportEndpoint
from acphold.client.remote_agent import RemoteAgent
from acphold.client.uplink import Endpoint, Uplink, UplinkSettings
from acphold.errors import DeclarationError
from acphold.extras import require_loop
from acphold.live.agents.client_methods import Knows, client_row
from acphold.live.agents.wrapped import START_TIMEOUT
from acphold.serve_options import ServeOptions
from acphold.version import __version__


class Options(TypedDict, total=False):
    """See `connect`."""

    permission: Policy | None
    on_permission: AskPermission | None
    on_form: AskForm | None
    on_page: AskPage | None
    files: bool | Sequence[Folder]
    terminals: bool
    handlers: Mapping[str, Handler]
    on_update: Callable[[str, bytes], object] | None
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
) -> AsyncIterator[RemoteAgent]:
    """Start an agent, and talk to it in the block; afterwards it and its children have ended.

        async with acphold.connect("gemini", "--acp") as agent:
            session = await agent.new_session()
            turn = await session.prompt("hello")
            print(turn.text)

    A program starts in the folder `cwd`, by default ours, which is also the default for sessions.
    `env` is added to our environment. Its stderr goes to `log_file`, and with `show_stderr` to
    ours.

    With `durable` its conversations are kept in a `journal` under a `name`, as by `acphold wrap`.

    The address of an agent of `acphold serve` may stand in place of a command, as
    `https://host:port/acp/NAME`. It needs a `token`, unless this user has paired with it.
    Streamable HTTP is used if no WebSocket gets through, or with `?transport=http`; `ca` is a file
    of certificates to trust. Raises ConnectionLostError, RemoteRefusalError. Experimental: the
    remote transport is a draft.

    The agent's files and terminals are there: `files`, `terminals` raise DeclarationError.

    `session` in place of a command leads to the process that owns it; `load_session` or
    `resume_session` attaches to it. Raises UnknownSessionError, ConnectionLostError if none does,
    or it does not answer.

    `permission` is a `Policy` (`{"read": "allow", "*": "ask"}`); "ask" calls `on_permission`.
    Without it everything is asked, or rejected if there is no `on_permission`; requests in turns of
    other clients are left to those while they are attached. `on_form` and `on_page` show forms and
    pages; without them none are offered. `files` and `terminals` serve files and commands inside
    the folders of a session, and in further folders with `files=[…]`. `handlers` answer other
    methods, or these. `on_update` gets the session's id and each update as JSON, `on_notification`
    any other notification. `capabilities` replaces those offered.

    With `reconnect` the next request starts a lost agent again, and loads its sessions. A
    connection to a URL reconnects by itself, without end, but for `timeout` and `silence`.

    In seconds: `start_timeout` for `initialize`; `cancel_grace` to end a cancelled turn; `silence`
    of an agent that does not wait for us, after which a request is given up and a turn cancelled,
    by default 120 for requests and without end for turns.

    Raises AgentStartError.
    """
    if bool(command) is (session is not None):
        raise DeclarationError("connect needs either the command of an agent or a session")
    if (journal is not None or name is not None) and not durable and session is None:
        raise DeclarationError(
            "connect keeps nothing, in a journal or under a name, without durable"
        )
    try:
        words = tuple(os.fspath(word) for word in command)
    except TypeError as error:
        raise DeclarationError(
            'connect needs the words of a command one by one, as in connect("gemini", "--acp"): '
            f"{error}"
        ) from None
    start_timeout = options.get("start_timeout", START_TIMEOUT)
    max_message = options.get("max_message", MAX_MESSAGE)
    if session is not None:
        from acphold.client.journal_endpoints import OwnerEndpoint  # imports SQLite

        endpoint: Endpoint = OwnerEndpoint(session, journal)
    elif len(words) == 1 and is_url(words[0]):
        from acphold.client.far_line import ServerEndpoint  # imports TLS

        here = [it for it in options.get("handlers", {}) if client_row(it).by == "workspace"]
        if options.get("files") or options.get("terminals") or here:
            raise DeclarationError(
                "connect cannot offer files or terminals of this machine to a server: the agent "
                "works with those of its own machine"
            )
        endpoint = ServerEndpoint(
            words[0],
            token,
            seconds=start_timeout,
            limit=max_message,
            ca=None if ca is None else os.fspath(ca),
            knows=_extensions(options),
        )
    else:
        if token is not None or ca is not None:
            raise DeclarationError("a token and a ca are for an address, not for a command")
        program = ProgramStart(
            command=words,
            cwd=None if cwd is None else absolute(cwd),
            env=env,
            log_file=None if log_file is None else os.fspath(log_file),
            show_stderr=show_stderr,
        )
        if durable:
            from acphold.client.journal_endpoints import DurableEndpoint  # imports the server

            serve_options = ServeOptions(
                journal=journal,
                cancel_grace=options.get("cancel_grace", bounds.CANCEL_GRACE_SECONDS),
                max_message=max_message,
                snapshots=False,  # a program that wants the files kept serves the agent by `wrap`
            )
            endpoint = DurableEndpoint(
                program, serve_options, name=name, start_timeout=start_timeout
            )
        else:
            endpoint = ProgramEndpoint(program)
    async with connected_to(endpoint, **options) as agent:
        yield agent


def _extensions(options: Options) -> Knows:
    """Return True for what the program itself answers or hears, wherever it comes from."""
    if options.get("on_notification") is not None:
        return bool
    return options.get("handlers", {}).__contains__


@asynccontextmanager
async def connect_over(
    transport: Transport, **options: Unpack[Options]
) -> AsyncIterator[RemoteAgent]:
    """As `connect`, over a transport that is open."""
    async with connected_to(TransportEndpoint(transport), **options) as agent:
        yield agent


@asynccontextmanager
async def connected_to(
    endpoint: Endpoint, **options: Unpack[Options]
) -> AsyncIterator[RemoteAgent]:
    """Talk to any far end."""
    require_loop()
    if unknown := options.keys() - Options.__annotations__:
        raise TypeError(f"acphold.connect has no option {min(unknown)!r}")
    files = options.get("files", False)
    answers = Answers(
        permission=options.get("permission"),
        on_permission=options.get("on_permission"),
        on_form=options.get("on_form"),
        on_page=options.get("on_page"),
        files=files if isinstance(files, bool) else [require_folder(path) for path in files],
        terminals=options.get("terminals", False),
        handlers=options.get("handlers", {}),
    )
    settings = UplinkSettings(
        client_info=options.get("client_info")
        or Implementation(name="acphold", version=__version__),
        capabilities=options.get("capabilities") or answers.capabilities,
        on_update=options.get("on_update"),
        on_notification=options.get("on_notification"),
        reconnect=options.get("reconnect", False),
        start_timeout=options.get("start_timeout", START_TIMEOUT),
        silence=options.get("silence", bounds.SILENCE_SECONDS),
        turn_silence=options.get("silence"),
        cancel_grace=options.get("cancel_grace", bounds.CANCEL_GRACE_SECONDS),
        limit=options.get("max_message", MAX_MESSAGE),
        knows=_extensions(options),
    )
    uplink = Uplink(endpoint, Duties(answers), settings)
    try:
        await uplink.start()
        yield RemoteAgent(uplink, cwd=absolute(endpoint.cwd or "."))
    finally:
        await uplink.aclose()
