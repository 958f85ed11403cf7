"""Servers far away, for the commands: pairing with one, and standing between one and an editor."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
from typing import Final

from acphold.cli.command_line import Exit, UsageError
from acphold.cli.terminal_text import visible
from acphold.client.far_line import FarLine
from acphold.client.known_servers import ca_for, remember, token_for
from acphold.client.server_endpoint import Dial
from acphold.client.server_pages import ServerPages
from acphold.errors import AcpholdError, ConnectionLostError, RemoteRefusalError
from acphold.rpc import MAX_MESSAGE
from acphold.server.service import refuse, stop_at_signals
from acphold.transports.obstacles import why
from acphold.transports.pipes import PipeTransport
from acphold.transports.route import Route
from acphold.transports.stdio import claim_stdio
from acphold.transports.urls import code_in, origin_of, transport_of

SECONDS: Final = 15.0
"""How long a server is waited for."""


def serve_editor(url: str, ca: str | None) -> int:
    """Speak ACP on stdio, with what is served at a URL; pairs first where that has a code."""
    try:
        origin_of(url)
        transport_of(url)
    except ValueError as exc:
        raise UsageError(str(exc)) from None
    streams = claim_stdio()
    return asyncio.run(_serve_editor(url, ca, streams))


async def _serve_editor(url: str, ca: str | None, streams: tuple[int, int]) -> int:
    editor = PipeTransport(*streams)
    stop = stop_at_signals()
    try:
        dial = Dial(url, await paired(url, ca), seconds=SECONDS, limit=MAX_MESSAGE, ca=ca)
        line = FarLine(editor, dial, origin_of(url), MAX_MESSAGE, await dial())
    except AcpholdError as exc:
        print(visible(f"acphold connect: {exc}"), file=sys.stderr)
        await refuse(editor, exc, stop)
        return Exit.ERROR
    serving = asyncio.create_task(line.run(), name="far line")
    stopped = asyncio.create_task(stop.wait(), name="signal")
    await asyncio.wait({serving, stopped}, return_when=asyncio.FIRST_COMPLETED)
    stopped.cancel()
    serving.cancel()
    await asyncio.wait({serving, stopped})
    await editor.aclose()
    if not serving.cancelled():
        serving.result()
    return Exit.OK


async def pages_of(url: str) -> ServerPages:
    """What reads from the server at a URL, once we have paired with it; raises as `paired` does."""
    return ServerPages(url, await paired(url), seconds=SECONDS)


async def paired(url: str, ca: str | None = None) -> str | None:
    """The token for a server, which a code in the URL is exchanged for first; None for none.

    `ca` is a file of certificates to trust, which is remembered with the token.

    Raises RemoteRefusalError, ConnectionLostError, SettingsError.
    """
    code = code_in(url)
    if code is None:
        return token_for(url)
    import httpx2  # late: it is for the first time alone

    from acphold.transports.http_client import http_client

    ca = ca and os.path.abspath(ca)  # noqa: ASYNC240 - asks nothing of the disk but where we are
    route = Route(url, seconds=SECONDS, limit=MAX_MESSAGE, trusted=ca or ca_for(url))
    origin = origin_of(url)
    said = json.dumps({"code": code, "name": socket.gethostname()})
    try:
        async with http_client(route) as http:
            headers = {"Content-Type": "application/json"}
            answer = await http.post(f"{origin}/pair", content=said, headers=headers)
    except httpx2.HTTPError as exc:
        raise ConnectionLostError(f"{origin} cannot be reached: {why(exc)}") from None
    if answer.status_code == 403:
        return token_for(url)  # it was paired with by this very code, a start ago; or it was not
    try:
        token = answer.json()["token"] if answer.status_code == 200 else None
    except (ValueError, KeyError, TypeError):
        token = None
    if not isinstance(token, str):
        raise RemoteRefusalError(origin, answer.status_code)
    remember(url, token, ca or ca_for(url))
    return token
