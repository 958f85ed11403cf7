"""A conversation in a session of a server far away: `chat --server`, `continue --server`."""

from __future__ import annotations

import os
from contextlib import suppress
from functools import partial
from urllib.parse import quote, urlsplit

import msgspec
from msgspec import Struct, field

from acp_wire.schema import SessionInfo
from acp_wire.transports.known_servers import ENDPOINT, names_no_agent, origin_of
from acphold import errors
from acphold.client import RemoteAgent, RemoteSession, connected_to
from acphold.client.far_line import ServerEndpoint
from acphold.faces.cli import bounds
from acphold.faces.cli.ask_person import person_here
from acphold.faces.cli.command_line import Exit, UsageError
from acphold.faces.cli.journals import reading
from acphold.faces.cli.places import NEWEST
from acphold.faces.cli.remote import obtain_token
from acphold.faces.cli.screen_session import ChatFrontend, WantedConversation
from acphold.faces.cli.servers import FarServer
from acphold.faces.cli.session_picker import choose_session
from acphold.faces.cli.terminal_text import on_one_line, on_terminal, tell
from acphold.faces.screen.panels import Key, KeyChoice
from acphold.known_agents import short_name
from acphold.live.agents.capabilities import ALL_AGENTS
from acphold.live.hub.annotations import AGENT


async def talk(server: FarServer, wanted: WantedConversation, *, watch: bool = False) -> int:
    """Talk in the wanted session, and in each that the person goes to from there."""
    if wanted.words == "" and not on_terminal():
        raise UsageError(f"in a pipe, an ID is required; see `acphold list{server.option}`")
    following: WantedConversation | None = wanted
    code: int = Exit.OK
    while following is not None:
        code, following = await _talk(server, following, watch=watch)
    return code


async def _talk(
    server: FarServer, wanted: WantedConversation, *, watch: bool
) -> tuple[int, WantedConversation | None]:
    """Talk in one session; returns the exit code, and what the person wants next."""
    url, token, agent = server.url, await obtain_token(server), wanted.agent
    names_session = wanted.session_id is not None or wanted.words is not None
    frontend = ChatFrontend(
        permission=wanted.permission,
        reads_only=watch,
        server=server,
        # AGENT is for a session whose own is not there.
        all_agents=names_no_agent(url) and (agent is None or names_session),
    )
    endpoint = ServerEndpoint(
        url if agent is None else _at_agent(url, agent),
        token,
        seconds=bounds.SERVER_SECONDS,
        on_away=frontend.chat.away,
        ca=server.ca,
    )
    async with connected_to(endpoint, **frontend.options) as there:
        session = await _open(there, wanted, server)
        if session is None:
            return Exit.OK, None
        await wanted.setup.apply(session)
        code = await frontend.run(there, session)
    if code == Exit.OK and on_terminal():
        again = f"acphold continue{server.option} {on_one_line(session.id)}"
        print(f"\nDetached; the session continues: {again}")
    following = WantedConversation(agent=agent, permission=wanted.permission)
    match frontend.chat.commands.goes_to:
        case ("new", _):
            return code, following._replace(cwd=session.cwd, setup=wanted.setup)
        case ("resume", words):
            return code, following._replace(words=words)
    return code, None


async def _open(
    agent: RemoteAgent, wanted: WantedConversation, server: FarServer
) -> RemoteSession | None:
    """Open the wanted session; None when the person chose none."""
    servers = wanted.setup.servers
    if wanted.words is not None or wanted.session_id is not None:
        if wanted.session_id is not None:
            info: SessionInfo | None = await _find_by_id(agent, wanted.session_id)
        else:
            info = await _find_or_choose(agent, wanted.words or "", server)
        if info is None:
            return None
        return await _load(agent, info, wanted, server)
    newest = await anext(agent.sessions(cwd=wanted.cwd), None)
    if wanted.newest and newest is not None:
        return await _load(agent, newest, wanted, server)
    cwd = wanted.cwd
    if cwd is None:
        # If our folder exists over there too, it is probably meant.
        newest = await anext(agent.sessions(cwd=os.getcwd()), None) or newest
        if newest is None:
            raise UsageError(
                "--cwd DIR is required for the first session: a folder on the server's machine"
            )
        cwd = newest.cwd
    if on_terminal():
        tell(f"Starting a session in {on_one_line(cwd)} on {origin_of(server.url)} …")
    return await agent.new_session(cwd, mcp_servers=servers)


async def _load(
    agent: RemoteAgent, info: SessionInfo, wanted: WantedConversation, server: FarServer
) -> RemoteSession | None:
    """Load the session. If its own agent is not served, the person chooses another one: None when
    none is to continue it, UsageError if nobody can be asked."""
    load = partial(agent.load_session, info, wanted.cwd, mcp_servers=wanted.setup.servers)
    try:
        return await load()
    except errors.RemoteError as error:
        if error.code != errors.OTHER_AGENT:
            raise
        if wanted.agent:
            return await load(agent=wanted.agent)
        refusal = error.raw
    served: tuple[str, ...] = ()
    with suppress(msgspec.MsgspecError):  # the server names them in its refusal
        served = msgspec.json.decode(refusal, type=_RefusalData).data.served
    held_with = on_one_line(short_name(str((info.meta or {}).get(AGENT, "another agent"))))
    why = f"this session's agent is {held_with}, which {origin_of(server.url)} does not serve"
    names = [on_one_line(name) for name in served]
    person = person_here() if on_terminal() else None
    if person is None or not names:
        session_id = on_one_line(info.session_id)
        raise UsageError(
            f"{why}. To read it: `acphold show{server.option} {session_id}`. To have another agent "
            f"({', '.join(names)}) read and continue it: `acphold chat AGENT{server.option} "
            f"--resume {session_id}`"
        )
    tell(f"{why}. An agent that continues it reads the whole conversation.")
    keys = [
        Key(str(number), f"continue with {name}", given)
        for number, (name, given) in enumerate(zip(names, served, strict=True), 1)
    ]
    choice = KeyChoice("Which agent should continue it?", (*keys, Key("n", "none", "")))
    named = await person.choose(choice)
    return await load(agent=named) if named else None


class _Data(Struct):
    served: tuple[str, ...] = field(name=ALL_AGENTS, default=())


class _RefusalData(Struct):
    data: _Data


async def _find_or_choose(agent: RemoteAgent, words: str, server: FarServer) -> SessionInfo | None:
    """Return the session that the person means by words or chooses from a list; None for none."""
    with suppress(errors.UnknownSessionError, errors.AmbiguousIdError):
        if words:
            return await _find_by_id(agent, words)
    if not on_terminal():
        raise UsageError("in a pipe, the ID of one session is required")
    async with reading(server) as reader:
        among = None
        if not names_no_agent(server.url):
            among = {info.session_id async for info in agent.sessions()}
        found = await choose_session(reader, "continues it", words, among)
        return None if found is None else await _find_by_id(agent, found)


async def _find_by_id(agent: RemoteAgent, given: str) -> SessionInfo:
    """Return the session with this id, or whose id begins with it; UnknownSessionError,
    AmbiguousIdError."""
    found: list[SessionInfo] = []
    async for info in agent.sessions():
        if info.session_id == given or given in NEWEST:
            return info
        if info.session_id.startswith(given):
            found.append(info)
    if not found:
        raise errors.UnknownSessionError(given)
    if len(found) > 1:
        raise errors.AmbiguousIdError(given, tuple(info.session_id for info in found))
    return found[0]


def _at_agent(url: str, name: str) -> str:
    """Return the URL of the agent of this name, on the server at a URL; ValueError."""
    path = f"{ENDPOINT}/{quote(name, safe='')}"
    return urlsplit(url)._replace(path=path, fragment="").geturl()
