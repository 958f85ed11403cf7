"""The ASGI application: `/acp` for clients, `/pair` for new devices, `/health` for who watches.

    /acp, /acp/NAME   ACP over a WebSocket, in front of the default agent, or the one of that name
                      (ACP RFD, Streamable HTTP & WebSocket transport)
    POST /pair        {"code", "name"} → {"token", "scopes"}, and a cookie for a page of ours
    GET /health       {"status": "ok"}; the one thing that needs no token

Each request passes the gate (`web.gate`) first.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final

from msgspec import MsgspecError, Struct
from msgspec.json import Decoder, encode

from acphold.transports.messages import MessageTransport
from acphold.web.endpoints import Endpoints
from acphold.web.gate import COOKIE, SUBPROTOCOL, Gate, Headers, RefusedError
from acphold.web.pairing import Pairing
from acphold.web.sockets import POLICY, AsgiSocket, Receive, Send

log = logging.getLogger(__name__)

Scope = MutableMapping[str, Any]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

ENDPOINT: Final = "/acp"

CONNECTION_ID: Final = b"acp-connection-id"

LARGEST_PAIRING: Final = 4096
"""Bytes of a request to pair."""

NAME_LENGTH: Final = 60
"""Characters of the name of a device."""


class PairRequest(Struct, frozen=True):
    """What a new device sends."""

    code: str
    name: str = ""


def application(endpoints: Endpoints, gate: Gate, pairing: Pairing) -> Application:
    """What an ASGI server serves, or another application mounts; ASGI 3.0."""

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        headers: Headers = {
            name.decode("latin-1").lower(): value.decode("latin-1")
            for name, value in scope.get("headers", ())
        }
        path = scope.get("path", "").removeprefix(scope.get("root_path", ""))
        try:
            match scope["type"]:
                case "websocket":
                    await _client(endpoints, gate, headers, path, scope, receive, send)
                case "http":
                    await _request(gate, pairing, headers, path, scope, receive, send)
        except RefusedError as exc:
            log.info("%s: %d %s", path, exc.status, exc)
            await _answer(scope, send, exc.status, {"error": str(exc)})

    return serve


async def _client(
    endpoints: Endpoints,
    gate: Gate,
    headers: Headers,
    path: str,
    scope: Scope,
    receive: Receive,
    send: Send,
) -> None:
    """One client, from its upgrade to its end."""
    subprotocols: list[str] = scope.get("subprotocols", [])
    admitted = await gate.admit(headers, subprotocols)
    name = endpoints.name_of(path.removeprefix(ENDPOINT).strip("/"))
    if not path.startswith(ENDPOINT) or name is None:
        raise RefusedError(404, "no agent is served there")
    await receive()  # websocket.connect
    await send(
        {
            "type": "websocket.accept",
            "subprotocol": SUBPROTOCOL if SUBPROTOCOL in subprotocols else None,
            "headers": [(CONNECTION_ID, str(uuid.uuid4()).encode())],
        }
    )
    socket = AsgiSocket(receive, send)
    transport = MessageTransport(socket)
    attending = asyncio.create_task(
        endpoints.attend(name, transport, admitted.principal), name="attend"
    )
    closing: list[asyncio.Task[None]] = []
    key = gate.connected(
        admitted, lambda: closing.append(asyncio.create_task(socket.aclose(POLICY)))
    )
    log.info("%s has come for %s", admitted.principal.name, name)
    try:
        await asyncio.wait({attending})
    finally:
        gate.disconnected(key)
        attending.cancel()
        await asyncio.wait({attending, *closing})
        await transport.aclose()
    attending.result()


async def _request(
    gate: Gate,
    pairing: Pairing,
    headers: Headers,
    path: str,
    scope: Scope,
    receive: Receive,
    send: Send,
) -> None:
    """One request that is no upgrade."""
    gate.check_place(headers)
    match scope["method"], path:
        case "GET", "/health":
            await _answer(scope, send, 200, {"status": "ok"})
        case "POST", "/pair":
            await _pair(gate, pairing, headers, scope, receive, send)
        case _:
            raise RefusedError(404, "there is nothing at this address")


async def _pair(
    gate: Gate, pairing: Pairing, headers: Headers, scope: Scope, receive: Receive, send: Send
) -> None:
    # A form of another page cannot send this type without being asked for leave first.
    if headers.get("content-type", "").partition(";")[0].strip() != "application/json":
        raise RefusedError(415, "application/json is wanted")
    body = await _body(receive, LARGEST_PAIRING)
    try:
        asked = Decoder(PairRequest).decode(body)
    except (MsgspecError, UnicodeDecodeError, RecursionError):
        raise RefusedError(400, 'a code is wanted, as {"code": "…", "name": "…"}') from None
    scopes = pairing.redeem(asked.code)
    if scopes is None:
        raise RefusedError(403, "this code is wrong, used, or too old; `acphold serve` has another")
    name = "".join(each for each in asked.name if each.isprintable())[:NAME_LENGTH] or "a device"
    token = await gate.grant(name, scopes)
    secure = "; Secure" if scope.get("scheme") == "https" else ""
    cookie = f"{COOKIE}={token}; HttpOnly; SameSite=Strict; Path=/{secure}"
    await _answer(
        scope,
        send,
        200,
        {"token": token, "scopes": scopes},
        [(b"set-cookie", cookie.encode())],
    )


async def _body(receive: Receive, limit: int) -> bytes:
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] != "http.request":
            raise RefusedError(400, "the request has ended too early")
        body += message.get("body", b"")
        if len(body) > limit:
            raise RefusedError(413, f"more than {limit} bytes")
        if not message.get("more_body", False):
            return bytes(body)


async def _answer(
    scope: Scope,
    send: Send,
    status: int,
    body: object,
    headers: list[tuple[bytes, bytes]] | None = None,
) -> None:
    kind = "websocket.http.response" if scope["type"] == "websocket" else "http.response"
    head = [
        (b"content-type", b"application/json"),
        (b"cache-control", b"no-store"),
        (b"x-content-type-options", b"nosniff"),
        *(headers or ()),
    ]
    if status == 401:
        head.append((b"www-authenticate", b"Bearer"))
    await send({"type": f"{kind}.start", "status": status, "headers": head})
    await send({"type": f"{kind}.body", "body": encode(body)})
