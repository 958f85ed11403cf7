"""The client of the official Python SDK, driven over stdin in the words of ACP itself.

    python python_client.py CMD…
    python python_client.py URL TOKEN

A request on stdin goes through the SDK to CMD, or to the server at a URL (`ws://` or `http://`),
and is answered on stdout. The other side's updates and requests arrive on stdout as notifications,
after the SDK has checked them: they are the SDK's own objects, serialised again. Permissions are
granted (`allow_once`).
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import acp
from acp.schema import AllowedOutcome, DeniedOutcome, RequestPermissionResponse
from pydantic import BaseModel, ValidationError

LIMIT = 64 << 20
"""Bytes of the longest line."""

METHODS = {
    "initialize": "initialize",
    "session/new": "new_session",
    "session/list": "list_sessions",
    "session/load": "load_session",
    "session/resume": "resume_session",
    "session/close": "close_session",
    "session/prompt": "prompt",
    "session/cancel": "cancel",
}


class Passing:
    """Passes all notifications on to stdout."""

    def on_connect(self, conn: acp.Agent) -> None:
        return None

    async def session_update(self, session_id: str, update: Any, **more: Any) -> None:
        params = {"sessionId": session_id, "update": _plain(update)}
        _out({"method": "session/update", "params": params})

    async def request_permission(
        self, session_id: str, tool_call: Any, options: list[Any], **more: Any
    ) -> RequestPermissionResponse:
        asked = {"toolCall": _plain(tool_call), "options": [_plain(option) for option in options]}
        params = {"sessionId": session_id, **asked}
        _out({"method": "session/request_permission", "params": params})
        for option in options:
            if option.kind == "allow_once":
                chosen = AllowedOutcome(outcome="selected", option_id=option.option_id)
                return RequestPermissionResponse(outcome=chosen)
        return RequestPermissionResponse(outcome=DeniedOutcome(outcome="cancelled"))


def _plain(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json", by_alias=True, exclude_unset=True)
    return value


def _out(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


async def _do(conn: Any, message: dict[str, Any]) -> None:
    arguments = {_snake(name): value for name, value in message.get("params", {}).items()}
    try:
        result = await getattr(conn, METHODS[message["method"]])(**arguments)
    except acp.RequestError as exc:
        answer: dict[str, Any] = {"error": {"code": exc.code, "message": str(exc)}}
    except ValidationError as exc:
        answer = {"error": {"code": 0, "message": f"the SDK refuses the answer: {exc}"}}
    else:
        answer = {"result": _plain(result)}
    if "id" in message:
        _out({"id": message["id"], **answer})


def _snake(name: str) -> str:
    return re.sub("[A-Z]", lambda found: f"_{found[0].lower()}", name)


async def _main() -> None:
    reader = asyncio.StreamReader(limit=LIMIT)
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    async with _connected(sys.argv[1:]) as conn, asyncio.TaskGroup() as calls:
        async for line in reader:
            calls.create_task(_do(conn, json.loads(line)))


@asynccontextmanager
async def _connected(words: list[str]) -> AsyncIterator[Any]:
    client = cast(acp.Client, Passing())
    if "://" in words[0]:
        url, token = words
        headers = {"Authorization": f"Bearer {token}"}
        if url.startswith("ws"):
            from acp.ws.client import create_websocket_stream

            stream: Any = await create_websocket_stream(url, headers=headers)
        else:
            from acp.http.client import create_http_stream

            stream = create_http_stream(url, headers=headers)
        conn = acp.connect_to_agent(client, stream)
        try:
            yield conn
        finally:
            await conn.close()
        return
    # Without `env` the SDK passes only a few variables on.
    async with acp.spawn_agent_process(
        client, *words, env=dict(os.environ), transport_kwargs={"limit": LIMIT}
    ) as (conn, _):
        yield conn


if __name__ == "__main__":
    asyncio.run(_main())
