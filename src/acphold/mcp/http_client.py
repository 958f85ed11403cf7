"""The HTTP client for the SDK's transports: it turns every failure into an answer.

Left alone, the transports lose the status and WWW-Authenticate of a refusal, let one failed request
take the whole connection down, follow redirects for long, and read answers of any size. Here each
failure becomes a JSON-RPC error in plain words, which ends the one request it belongs to.

Needs the SDK: imported only after `reconnection.load_sdk`.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections.abc import Callable

import httpx2
import msgspec
from mcp_types import CONNECTION_CLOSED, METHOD_NOT_FOUND, JSONRPCError, JSONRPCResponse, RequestId

from acphold.mcp.faults import FaultRedaction
from acphold.mcp.messages import FORGOTTEN, MARK, REFUSED, UNSENT, UnreadableError, decoded, encoded
from acphold.rpc import MAX_MESSAGE
from acphold.schema import McpServerHttp, McpServerSse

MAX_REDIRECTS = 5

WRITE_SECONDS = 30.0
"""Seconds for the network to take another byte of a message."""

NOTICE_SECONDS = 10.0
"""Seconds for a server to accept a message that it does not answer.

The SDK sends nothing else meanwhile, so a server that leaves one open would block every call for
ever.
"""

MAX_ERROR_BODY = 64 * 1024
"""Bytes read of an error's body."""

LONGEST_SEGMENT = 24
"""Longest part of a path that is shown, in characters; a longer one may be a key."""


class GuardedClient(httpx2.AsyncClient):
    """Sends to the address of one server, with its headers, and to no other.

    `on_listening` is called when a stream for the server's own messages has begun.
    """

    def __init__(
        self,
        server: McpServerHttp | McpServerSse,
        *,
        connect: float,
        on_listening: Callable[[], None] | None = None,
    ) -> None:
        super().__init__(
            # As bytes: it accepts only ASCII strings.
            headers=[(one.name.encode(), one.value.encode()) for one in server.headers],
            # Any time may pass between two bytes of an answer: a working tool is silent.
            timeout=httpx2.Timeout(connect, read=None, write=WRITE_SECONDS, pool=None),
        )
        self._redact = FaultRedaction(server)
        self._on_listening = on_listening
        # With SSE the answers come on the event stream, and the body of a POST does not matter.
        self._answers = isinstance(server, McpServerHttp)

    async def send(
        self, request: httpx2.Request, *, stream: bool = False, **options: object
    ) -> httpx2.Response:
        """Return the answer to `request`, or one that we made up; never raises."""
        asked = None  # the id of the request it carries
        if request.method == "POST":
            ours = msgspec.json.decode(request.content, type=_Ours)
            asked = None if ours.method is None else ours.id
        wait = NOTICE_SECONDS if request.method == "POST" and asked is None else None
        try:
            async with asyncio.timeout(wait):
                return await self._judged(request, asked)
        except TimeoutError:
            return self._failure(request, f"it took no message for {wait:g} s", REFUSED)
        except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.ProxyError) as exc:
            return self._failure(request, f"cannot connect: {self._why(exc)}", UNSENT)
        except httpx2.HTTPError as exc:
            return self._failure(request, f"no answer: {self._why(exc)}", REFUSED)

    async def _judged(self, request: httpx2.Request, asked: RequestId | None) -> httpx2.Response:
        """Return the answer if the SDK can use it; otherwise one of ours.

        JSON that answers `asked` is accepted whatever its `id`: the call must not wait for ever.
        """
        sent = request
        for _ in range(MAX_REDIRECTS + 1):
            response = await super().send(sent, stream=True, follow_redirects=False)
            if (follow := response.next_request) is None:
                break
            await response.aclose()
            if not _same_place(sent, follow):  # our headers may not go there
                reason = f"it redirects to {shown(follow.url)}; give that address if it is right"
                return self._failure(sent, reason, REFUSED)
            sent = follow
        else:
            return self._failure(sent, "it redirects without end", REFUSED)

        kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        if request.method == "GET" and kind == "text/event-stream" and self._on_listening:
            self._on_listening()
        if response.is_success and kind != "application/json":
            return response

        body = bytearray()  # only the beginning of an error
        try:
            async for chunk in response.aiter_bytes():
                body += chunk
                if len(body) > (MAX_MESSAGE if response.is_success else MAX_ERROR_BODY):
                    break
        finally:
            await response.aclose()
        if response.is_success and len(body) > MAX_MESSAGE:
            reason = f"it answered with more than {MAX_MESSAGE // 1024} KiB"
            return self._failure(request, reason, REFUSED)
        whole = _rebuilt(response, bytes(body))

        if response.is_success:
            if asked is None or not self._answers:
                return whole
            try:
                answer = decoded(whole.content)
            except UnreadableError as exc:
                return self._failure(request, f"its answer cannot be read: {exc}", REFUSED)
            if not isinstance(answer.message, JSONRPCResponse | JSONRPCError):
                return self._failure(request, "its answer is a message of another kind", REFUSED)
            answer.message.id = asked
            return _rebuilt(whole, encoded(answer))

        code = _error_code(whole.content)
        if "mcp-session-id" in request.headers:
            # The specification says 404; the TypeScript examples answer 400 with these words.
            status = response.status_code
            is_gone = status == 404 and code != METHOD_NOT_FOUND
            if is_gone or (status == 400 and b"session id" in whole.content.lower()):
                return self._failure(request, "it has forgotten the session", FORGOTTEN)
        if code is not None:
            return whole
        words = f"it answered {response.status_code} {response.reason_phrase}".rstrip()
        if challenge := response.headers.get("www-authenticate"):
            words += f" (WWW-Authenticate: {self._redact.one_line(challenge)})"
        return self._failure(request, words, REFUSED)

    def _failure(self, request: httpx2.Request, reason: str, mark: str) -> httpx2.Response:
        message = self._redact(f"{shown(request.url)}: {reason}")
        error = {"code": CONNECTION_CLOSED, "message": message, "data": {MARK: mark}}
        return httpx2.Response(
            502,
            headers={"content-type": "application/json"},
            content=msgspec.json.encode({"jsonrpc": "2.0", "id": None, "error": error}),
            request=request,
            extensions={MARK: message},
        )

    def _why(self, error: BaseException) -> str:
        """Return the root cause of `error`, in words."""
        chain = [error]
        while (cause := chain[-1].__cause__ or chain[-1].__context__) and len(chain) < 20:
            chain.append(cause)
        for link in reversed(chain):
            match link:
                case socket.gaierror():
                    return "there is no such host"
                case ssl.SSLError():
                    return f"TLS: {link.reason or link}"
                case OSError(errno=int(number)):
                    return os.strerror(number).lower()
        if isinstance(error, httpx2.TimeoutException):
            return "it took too long"
        return self._redact.one_line(str(error)) or type(error).__name__


def shown(url: httpx2.URL) -> str:
    """Return `url` without the parts that may hold keys."""
    segments = [part if len(part) <= LONGEST_SEGMENT else "…" for part in url.path.split("/")]
    port = "" if url.port is None else f":{url.port}"
    host = f"[{url.host}]" if ":" in url.host else url.host
    return f"{url.scheme}://{host}{port}{'/'.join(segments)}"


def _same_place(sent: httpx2.Request, follow: httpx2.Request) -> bool:
    """Return True if `follow` is the same request to the same server, or to its HTTPS side."""
    old, new = sent.url, follow.url
    upgrade = (old.scheme, new.scheme) == ("http", "https") and old.port is new.port is None
    same_origin = old.host == new.host and (
        upgrade or (old.scheme, old.port) == (new.scheme, new.port)
    )
    strange_user = bool(new.userinfo) and new.userinfo != old.userinfo
    return same_origin and follow.method == sent.method and not strange_user


def _error_code(body: bytes) -> int | None:
    """Return the code if `body` is a JSON-RPC error, or None."""
    try:
        return msgspec.json.decode(body, type=_ErrorAnswer).error.code
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


class _Ours(msgspec.Struct):
    """A message of ours: without a method an answer, without an id a notification."""

    id: int | str | None = None
    method: str | None = None


class _ErrorBody(msgspec.Struct):
    code: int
    message: str


class _ErrorAnswer(msgspec.Struct):
    jsonrpc: str
    error: _ErrorBody


def _rebuilt(response: httpx2.Response, body: bytes) -> httpx2.Response:
    """Return the same answer with its body read and decoded."""
    gone = ("content-encoding", "content-length", "transfer-encoding")
    headers = [(name, value) for name, value in response.headers.multi_items() if name not in gone]
    return httpx2.Response(
        response.status_code, headers=headers, content=body, request=response.request
    )
