"""The client's end of a WebSocket, over `websockets`: a connection to a remote server.

Import it late, only for such an address.
"""

from __future__ import annotations

from typing import Final

from websockets.asyncio import client
from websockets.exceptions import InvalidHandshake, InvalidStatus, WebSocketException

from acp_wire.errors import AcpError, SilentPeerError
from acp_wire.transports.messages import (
    CLOSE_SECONDS,
    HEARTBEAT_SECONDS,
    MessageTransport,
    over_websocket,
)
from acp_wire.transports.route import Route

KNOWN_TO_US: Final = (401, 421)
"""Statuses that only the server itself sends: HTTP would get the same."""


class NoUpgradeError(Exception):
    """The server, or something between us, lets no WebSocket through; `error` is the refusal. It
    is worth another try in `again` seconds, if that is not 0."""

    def __init__(self, error: AcpError, again: int = 0) -> None:
        super().__init__(str(error))
        self.error = error
        self.again = again


class _ConnectThere(client.connect):
    """Connects to the server itself: a redirect could take our token and cookies to another, and
    `websockets` follows it; before its version 17 it even takes them along."""

    def process_redirect(self, exc: Exception) -> Exception | str:
        return exc


async def connect(route: Route) -> MessageTransport:
    """Connect to a server.

    Raises ConnectionLostError if nothing listens there, SilentPeerError without an answer in time,
    RemoteRefusalError if we are not let in, NoUpgradeError if HTTP may get through.
    """
    headers = route.headers()
    if (cookie := route.cookie()) is not None:
        headers["Cookie"] = cookie
    try:
        connection = await _ConnectThere(
            route.socket_url,
            additional_headers=headers,
            ssl=route.context(),
            proxy=route.proxy(),
            open_timeout=route.seconds,
            ping_interval=HEARTBEAT_SECONDS,
            ping_timeout=HEARTBEAT_SECONDS,
            close_timeout=CLOSE_SECONDS,
            max_size=route.limit,
            user_agent_header="acphold",
        )
    except InvalidStatus as exc:
        said = exc.response
        told = {name.lower(): value for name, value in said.headers.raw_items()}
        error = route.refusal_error(said.status_code, told, bytes(said.body or b""))
        if said.status_code in KNOWN_TO_US:
            raise error from None
        again = told.get("retry-after", "")[:4]  # or a date: RFC 9110, 10.2.3
        seconds = int(again) if said.status_code == 503 and again.isdecimal() else 0
        raise NoUpgradeError(error, seconds) from None
    except TimeoutError:
        raise SilentPeerError(f"{route.origin} does not answer") from None
    except (OSError, WebSocketException) as exc:
        lost = route.lost_error(exc)
        if isinstance(exc, InvalidHandshake | ConnectionResetError):
            raise NoUpgradeError(lost) from None
        raise lost from None
    if connection.response is not None:
        route.keep(connection.response.headers.get_all("Set-Cookie"))
    return over_websocket(connection)
