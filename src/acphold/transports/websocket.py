"""The client's end of a WebSocket, over `websockets`: a connection to a server far away.

Imported late, by who has such an address.
"""

from __future__ import annotations

import ssl
from typing import Final

from websockets.asyncio import client
from websockets.exceptions import ConnectionClosed, InvalidStatus, WebSocketException

from acphold.errors import ConnectionLostError, RemoteRefusalError, SilentPeerError
from acphold.transports.messages import MessageTransport
from acphold.transports.obstacles import why
from acphold.transports.urls import endpoint_of, origin_of

HEARTBEAT_SECONDS: Final = 20.0
"""How often the other side is asked whether it is there; proxies end what is idle for a minute."""

CLOSE_SECONDS: Final = 2.0
"""How long closing waits for the other side's word."""


async def connect(
    url: str, token: str | None, *, seconds: float, limit: int, trusted: str | None = None
) -> MessageTransport:
    """A connection to the server at a URL; `trusted` is a file of certificates, beside the usual.
    Without a `token` none is sent.

    Raises ConnectionLostError when nobody is there, SilentPeerError when nobody answers in time,
    RemoteRefusalError when we are not let in.
    """
    address, origin = endpoint_of(url), origin_of(url)
    try:
        context = ssl.create_default_context(cafile=trusted) if address[:3] == "wss" else None
        connection = await client.connect(
            address,
            additional_headers={} if token is None else {"Authorization": f"Bearer {token}"},
            ssl=context,
            open_timeout=seconds,
            ping_interval=HEARTBEAT_SECONDS,
            ping_timeout=HEARTBEAT_SECONDS,
            close_timeout=CLOSE_SECONDS,
            max_size=limit,
            user_agent_header="acphold",
        )
    except InvalidStatus as exc:
        raise RemoteRefusalError(origin, exc.response.status_code, paired=bool(token)) from None
    except TimeoutError:
        raise SilentPeerError(f"{origin} does not answer") from None
    except (OSError, WebSocketException) as exc:
        raise ConnectionLostError(f"{origin} cannot be reached: {why(exc)}") from None
    return MessageTransport(_Socket(connection))


class _Socket:
    def __init__(self, connection: client.ClientConnection) -> None:
        self._connection = connection

    async def receive(self) -> str | None:
        try:
            while isinstance(message := await self._connection.recv(), bytes):
                pass  # the RFD passes over what is binary
        except ConnectionClosed:
            return None
        return message

    async def send(self, text: str) -> None:
        try:
            await self._connection.send(text)
        except ConnectionClosed as exc:
            raise ConnectionLostError("the connection to the server is closed") from exc

    async def aclose(self) -> None:
        await self._connection.close()
