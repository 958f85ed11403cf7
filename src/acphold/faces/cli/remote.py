"""Other machines, for the commands: pairing with a server, and connecting an editor."""

from __future__ import annotations

import json
import os
import shlex
import socket
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from acp_wire.processes.exit_status import describe
from acp_wire.rpc import MAX_MESSAGE, Transport
from acp_wire.tasks import beside, first, timeout
from acp_wire.transports.dial import Dial
from acp_wire.transports.known_servers import known_servers, origin_of
from acp_wire.transports.pipes import PipeTransport
from acp_wire.transports.route import TOKEN_VARIABLE, Route, explanation
from acp_wire.transports.stdio import claim_stdio
from acphold.client.far_line import FarClient
from acphold.errors import AcpError, AgentStartError, RemoteRefusalError
from acphold.extras import require
from acphold.faces.cli import bounds
from acphold.faces.cli.command_line import Exit
from acphold.faces.cli.servers import FarServer
from acphold.faces.cli.terminal_text import tell, visible
from acphold.live.agents.client_methods import Place
from acphold.live.server.reconnection import OpenTransport
from acphold.live.server.service import refuse, stop_at_signals

if TYPE_CHECKING:
    from asyncio.subprocess import Process

WRONG_CODE: Final = (
    "it does not accept this code: each code is for one device and ten minutes; "
    "`acphold access pair` there prints a new one"
)
NO_PAIRING: Final = "there is no `acphold serve` at this address"

Reached = tuple[OpenTransport, str, Transport]


async def serve_editor(server: FarServer) -> int:
    """Connect an editor on stdio to the server; pairs first if the URL has a code.

    On a terminal there is no editor: it pairs this machine and prints what to do next.
    """
    if not sys.stdin.isatty():
        return await _serve_editor(server, claim_stdio())
    dial = await _dial_to(server)
    await (await dial()).aclose()  # check that we are let in before reporting success
    connect = f"acphold connect {shlex.quote(visible(server.without_code))}"
    print(f"{visible(origin_of(server.url))} is paired with this machine.\n")
    print(f"In this terminal: acphold chat -- {connect}")
    print(f"As the agent command in an editor: {connect}")
    return Exit.OK


async def _serve_editor(server: FarServer, streams: tuple[int, int]) -> int:
    async def reach() -> Reached:
        dial = await _dial_to(server)
        return dial, origin_of(server.url), await dial()

    return await _serve_line(streams, reach, "network")


async def serve_over_ssh(
    host: str, ssh: Process, pipes: tuple[int, int], streams: tuple[int, int]
) -> int:
    """Connect an editor on these streams to the `wrap` at the far end of a running ssh, as far as
    that may; return the exit code of ssh."""

    async def end() -> int:
        with suppress(TimeoutError):
            async with timeout(bounds.SSH_END_SECONDS):
                return await ssh.wait()
        ssh.kill()
        return await ssh.wait()

    async def ended() -> Transport:
        """Raise AgentStartError once ssh has ended: it is not begun again."""
        raise AgentStartError(f"the connection to {host} has ended ({describe(await end())})")

    async def reach() -> Reached:
        return ended, host, PipeTransport(*pipes)

    with suppress(AgentStartError):
        await _serve_line(streams, reach, "ssh")
    return await end()


async def _serve_line(
    streams: tuple[int, int], reach: Callable[[], Awaitable[Reached]], place: Place
) -> int:
    """Connect an editor on these streams to what `reach` leads to: a way to connect again, a name,
    and the first connection."""
    editor = PipeTransport(*streams)
    stop = stop_at_signals()
    try:
        dial, name, connection = await reach()
        line = FarClient(editor, dial, name, MAX_MESSAGE, connection, place=place)
    except AcpError as exc:
        tell(f"acphold connect: {exc}")
        await refuse(editor, exc, stop)
        return Exit.ERROR
    async with beside(line.run(), "far line") as serving, beside(stop.wait(), "signal") as stopped:
        await first(serving, stopped)
    await editor.aclose()
    if not serving.cancelled():
        serving.result()
    return Exit.OK


async def _dial_to(server: FarServer) -> Dial:
    token = await obtain_token(server)
    return Dial(server.url, token, seconds=bounds.SERVER_SECONDS, limit=MAX_MESSAGE, ca=server.ca)


async def obtain_token(server: FarServer) -> str | None:
    """Return the token for a server, or None: from the environment, exchanged for a code in the
    URL, or stored earlier. The `ca` file to trust is stored with it.

    Raises RemoteRefusalError, ConnectionLostError, SettingsError.
    """
    require("serve", "a connection to a server")
    url, ca = server
    if given := os.environ.get(TOKEN_VARIABLE):
        return given
    servers, code = known_servers(), _code_in(url)
    known = servers.at(url)
    if code is None:
        if known.token is not None and ca not in (None, known.ca):
            servers.keep(url, known.token, ca)
        return known.token
    from acp_wire.transports.http_client import post  # late: needed only once for each server

    ca, origin = ca or known.ca, origin_of(url)
    route = Route(url, seconds=bounds.SERVER_SECONDS, trusted=ca)
    route.require_secrecy()
    said = json.dumps({"code": code, "name": socket.gethostname()})
    answer = await post(route, "/pair", said.encode())
    if answer.status_code == 403 and known.token is not None:
        return known.token  # it was paired with this very code at an earlier start
    try:
        token = answer.json()["token"] if answer.status_code == 200 else None
    except (ValueError, KeyError, TypeError, RecursionError):
        token = None
    if not isinstance(token, str):
        wrong = WRONG_CODE if answer.status_code == 403 else NO_PAIRING
        reason = explanation(answer.headers, answer.content)
        raise RemoteRefusalError(f"{origin}/pair", answer.status_code, wrong, reason)
    servers.keep(url, token, ca)
    return token


def _code_in(url: str) -> str | None:
    """Return the pairing code in the fragment, `#pair=CODE`; None for none."""
    name, _, code = urlsplit(url).fragment.partition("=")
    return code if name == "pair" and code else None
