"""A remote server as the endpoint of a client; a lost connection to it is replaced.

See `live.server.far_line`.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress

from acp_wire import schema
from acp_wire.rpc import MAX_MESSAGE, NotificationReceived, Peer, Transport, connected
from acp_wire.rpc.requests import Request
from acp_wire.tasks import beside, end, first
from acp_wire.transports.dial import Dial
from acp_wire.transports.known_servers import Token, origin_of
from acp_wire.transports.streams import memory_pair
from acphold import errors
from acphold.client import bounds
from acphold.client.uplink import Endpoint
from acphold.extras import require
from acphold.live.agents.capabilities import ClientOffer, offer_of
from acphold.live.agents.client_methods import Knows, Place, knows_none
from acphold.live.server.far_line import FarLine
from acphold.live.server.reconnection import OpenTransport

log = logging.getLogger(__name__)


class FarClient:
    """The client at the near end of a line: its messages come over a transport.

    `dial`, `name`, `limit`, `connection`, `place` and `knows` as in `FarLine`.
    """

    def __init__(
        self,
        client: Transport,
        dial: OpenTransport,
        name: str,
        limit: int,
        connection: Transport,
        place: Place = "network",
        knows: Knows = knows_none,
    ) -> None:
        self.offer = ClientOffer()
        self._peer = peer = Peer(client, self, name="client", limit=limit)
        self.send, self.drain, self.ask, self.tell = peer.send, peer.drain, peer.call_raw, peer.tell
        self._line = FarLine(self, dial, name, limit, connection, place, knows=knows)

    @property
    def is_lost(self) -> bool:
        """True once the client has gone."""
        return self._peer.is_lost

    @property
    def buffered(self) -> int:
        """Bytes not yet sent to the client."""
        return self._peer.buffered

    async def run(self) -> None:
        """Run until the client leaves; raises RemoteRefusalError if the server does not admit us
        any more."""
        async with (
            connected(self._peer) as pump,
            beside(self._line.run(), "far line") as serving,
        ):
            await first(pump, serving)
            if serving.done():
                serving.result()
            await self._peer.finish(bounds.LAST_ANSWERS_SECONDS, but=schema.PROMPT.name)

    def on_request(self, request: Request) -> None:
        if request.method == schema.INITIALIZE.name:
            with suppress(errors.AcpError):  # the server will report the problem
                introduction = schema.decode(schema.InitializeRequest, request.params).value
                self.offer = offer_of(introduction, request.params)
        self._line.ask(request)

    async def on_notifications(self, batch: list[NotificationReceived]) -> None:
        for notification in batch:
            try:
                self._line.tell(notification.method, notification.params)
            except errors.AcpError as exc:
                log.warning("ignored %s: %s", notification.method, exc)
        await self._line.drain()


class ServerEndpoint(Endpoint):
    """The server at a URL; a lost connection to it is replaced (`live.server.far_line`). `knows` as
    there.
    """

    is_acphold = True
    is_repeatable = True

    def __init__(
        self,
        url: str,
        token: Token | None,
        *,
        seconds: float,
        limit: int = MAX_MESSAGE,
        ca: str | None = None,
        knows: Knows = knows_none,
    ) -> None:
        require("serve", "a connection to a server")
        try:
            self.name = origin_of(url)
            self._dial = Dial(url, token, seconds=seconds, limit=limit, ca=ca)
        except ValueError as exc:
            raise errors.DeclarationError(str(exc)) from None
        self._limit = limit
        self._knows = knows
        self._line: asyncio.Task[None] | None = None

    async def open(self) -> Transport:
        await self.aclose()
        connection = await self._dial()
        ours, theirs = memory_pair()
        line = FarClient(theirs, self._dial, self.name, self._limit, connection, knows=self._knows)
        self._line = asyncio.create_task(line.run(), name="far line")
        return ours

    async def how_it_ended(self) -> errors.AcpError:
        if self._line is not None and self._line.done() and not self._line.cancelled():
            why = self._line.exception()
            if isinstance(why, errors.AcpError):
                return why
        return errors.ConnectionLostError(f"the connection to {self.name} is lost")

    async def aclose(self) -> None:
        await end(self._line)
        self._line = None
