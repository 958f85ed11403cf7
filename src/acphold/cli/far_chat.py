"""A conversation in a session of a server far away: `attach --server`, `chat --server`."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from acphold.agents.capabilities import ALL_AGENTS
from acphold.cli.command_line import Exit, UsageError
from acphold.cli.list import SHORT_ID
from acphold.cli.places import NEWEST
from acphold.cli.remote import SECONDS, paired
from acphold.cli.screen_session import Seat
from acphold.cli.servers import FarServer
from acphold.cli.session_picker import chosen_of
from acphold.cli.session_setup import AS_IT_IS, SessionSetup
from acphold.cli.terminal_text import on_one_line, on_terminal
from acphold.client import connected_to
from acphold.client.server_endpoint import ServerEndpoint
from acphold.errors import AmbiguousIdError, UnknownSessionError
from acphold.rpc import MAX_MESSAGE
from acphold.schema import SessionInfo
from acphold.transports.urls import at_agent, names_no_agent, origin_of

if TYPE_CHECKING:
    from acphold.client import RemoteAgent, RemoteSession
    from acphold.client.policy import Rule

CHOOSE: Final = ""
"""A session that the person chooses from a list."""


class FarWanted(Struct, frozen=True):
    """Which session: that of this id, or one that the person is to CHOOSE, the `newest`, or else a
    new one; `cwd` is a folder over there, None for that of the session, or the last one that was
    worked in. `setup` is what it is opened with, and set to."""

    session_id: str | None = None
    newest: bool = False
    cwd: str | None = None
    setup: SessionSetup = AS_IT_IS


async def talk(
    server: FarServer,
    agent: str | None,
    wanted: FarWanted,
    permission: Rule | None = None,
    *,
    watch: bool = False,
) -> int:
    """Talk in the session that is wanted, and in each that the person goes to from there."""
    if wanted.session_id == CHOOSE and not on_terminal():
        raise UsageError(f"in a pipe ID is required; `acphold list{server.typed}` has them")
    url, token = server.url, await paired(server)
    seat = Seat(
        permission=permission,
        reads_only=watch,
        leaving="detaches",
        goes=() if watch else ("new", "resume"),
        is_far=True,
    )
    endpoint = ServerEndpoint(
        url if agent is None else at_agent(url, agent),
        token,
        seconds=SECONDS,
        limit=MAX_MESSAGE,
        on_away=seat.chat.away,
        ca=server.ca,
    )
    options = seat.options
    if agent is None and names_no_agent(url):  # the sessions of all of them, each with its own
        can = options["capabilities"]
        assert can is not None, "a screen says what it can"
        options["capabilities"] = replace(can, meta={**(can.meta or {}), ALL_AGENTS: True})
    async with connected_to(endpoint, **options) as there:
        while True:
            session = await _opened(there, wanted, url)
            if session is None:
                return Exit.OK
            await wanted.setup.apply(session)
            code = await seat.sit(there, session)
            if code == Exit.OK and on_terminal():
                again = f"acphold attach{server.typed} {on_one_line(session.id[:SHORT_ID])}"
                print(f"\nDetached; the session goes on: {again}")
            if seat.chat.goes_to is None:
                return code
            goes, words = seat.chat.goes_to
            if goes == "new":
                wanted = FarWanted(cwd=session.cwd, setup=wanted.setup)
            else:
                wanted = FarWanted(words or CHOOSE)
            await seat.rise(session)


async def _opened(agent: RemoteAgent, wanted: FarWanted, url: str) -> RemoteSession | None:
    """The session that is wanted, open; None when the person chose none."""
    info: SessionInfo | None
    servers = wanted.setup.servers
    if wanted.session_id == CHOOSE:
        info = await chosen_of(agent)
        return (
            None
            if info is None
            else await agent.load_session(info, wanted.cwd, mcp_servers=servers)
        )
    if wanted.session_id is not None:
        info = await _named(agent, wanted.session_id)
        return await agent.load_session(info, wanted.cwd, mcp_servers=servers)
    newest = await _first(agent.sessions(cwd=wanted.cwd))
    if wanted.newest and newest is not None:
        return await agent.load_session(newest, wanted.cwd, mcp_servers=servers)
    cwd = wanted.cwd
    if cwd is None:
        # Where a folder of ours is over there, too, it is likely to be meant.
        newest = await _first(agent.sessions(cwd=os.getcwd())) or newest
        if newest is None:
            raise UsageError("--cwd DIR is required: a folder over there, for the first session")
        cwd = newest.cwd
    if on_terminal():
        told = f"A new session in {on_one_line(cwd)} on {origin_of(url)} …"
        print(told, file=sys.stderr)
    return await agent.new_session(cwd, mcp_servers=servers)


async def _named(agent: RemoteAgent, given: str) -> SessionInfo:
    """The session of this id, or of which this is the beginning; UnknownSessionError,
    AmbiguousIdError."""
    found: list[SessionInfo] = []
    async for info in agent.sessions():
        if info.session_id == given or given in NEWEST:
            return info
        if info.session_id.startswith(given):
            found.append(info)
    if not found:
        raise UnknownSessionError(given)
    if len(found) > 1:
        raise AmbiguousIdError(given, tuple(info.session_id for info in found))
    return found[0]


async def _first(infos: AsyncIterator[SessionInfo]) -> SessionInfo | None:
    async for info in infos:
        return info
    return None
