"""A notice: from the agent's question to the push service that has it, beyond the time it is held.

The server is as it is, but that the push service is one on this machine, which no address of the
public network leads to.
"""

from __future__ import annotations

import json
import os
import queue
import re
import socket
import ssl
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import httpx2

from acphold.web import bounds, push
from acphold.web.push import Order, PushOutcome
from bench.far_wire import FarSocket
from bench.run import Run
from bench.serve import Server, serving
from bench.table import Figure, Goal
from tests.web.certificates import new_authority
from tests.web.test_notices import Browser

HOST = "push.test"
PORT, CA = "BENCH_PUSH_PORT", "BENCH_PUSH_CA"
HOLD_SECONDS = 0.5
SECONDS = 60.0


def figures(run: Run) -> Iterator[Figure]:
    """One question after the other, each answered when its notice is there."""
    browser = Browser(f"https://{HOST}/send")
    with _push_service(run.fresh("ca").parent) as arrived:
        program = [sys.executable, "-m", "bench.notices"]
        with serving(run.fresh("journal.db"), program=program) as server:
            _subscribe(server, browser)
            client = FarSocket(server.url, server.token)
            client.initialize()
            client.new_session()
            client.prompt(f"ask {run.rounds + 1}")
            taken = [_noticed(client, browser, arrived) for _ in range(run.rounds + 1)]
            client.close()
    # With the first one the libraries are imported.
    told = "a question, until its notice is with the push service, beyond the time it is held"
    yield Figure(told, "ms", taken[1:], goals=(Goal(300),))


def _noticed(
    client: FarSocket, browser: Browser, arrived: queue.Queue[tuple[float, bytes]]
) -> float:
    """Of the question that comes next, in milliseconds."""
    asked: dict[str, Any] = {}
    while not asked:
        for line in client.lines():
            if b'"session/request_permission"' in line:
                asked = json.loads(line)
    began = asked["params"]["toolCall"]["title"]
    while True:
        at, body = arrived.get(timeout=SECONDS)
        if re.search(rb"\d{13}|$", browser.read(body))[0] == began.encode():  # type: ignore[index]
            break
    outcome = {"outcome": {"outcome": "selected", "optionId": "go"}}
    client.send(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": outcome}).encode())
    return at - int(began) - HOLD_SECONDS * 1000


def _subscribe(server: Server, browser: Browser) -> None:
    token = {"Authorization": f"Bearer {server.token}"}
    httpx2.post(f"{server.url}/notices", json=browser.json, headers=token).raise_for_status()


@contextmanager
def _push_service(folder: Path) -> Iterator[queue.Queue[tuple[float, bytes]]]:
    """One that takes everything: when it came, in ms, and what."""
    authority = new_authority(folder, HOST)
    arrived: queue.Queue[tuple[float, bytes]] = queue.Queue()

    class Taking(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            arrived.put((time.time() * 1000, body))
            self.send_response(201)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    service = ThreadingHTTPServer(("127.0.0.1", 0), Taking)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(authority.certificate, authority.key)
    service.socket = context.wrap_socket(service.socket, server_side=True)
    before = {**os.environ}
    os.environ |= {PORT: str(service.server_port), CA: str(authority.ca)}
    os.environ["XDG_STATE_HOME"] = str(folder)  # for what the server keeps of the browser
    Thread(target=service.serve_forever, daemon=True).start()
    try:
        yield arrived
    finally:
        service.shutdown()
        service.server_close()
        os.environ.clear()
        os.environ |= before


def _serve() -> None:
    """`acphold` itself, which has its messages sent to that one."""
    from acphold.__main__ import main

    found, send = socket.getaddrinfo, push.send
    context, port = ssl.create_default_context(cafile=os.environ[CA]), int(os.environ[PORT])

    def look_up(host: str, *rest: Any, **more: Any) -> Any:
        return found("127.0.0.1" if host == HOST else host, *rest, **more)

    async def send_here(order: Order) -> PushOutcome:
        return await send(order, lambda _: True, port, context)

    vars(socket).update(getaddrinfo=look_up)
    vars(push).update(send=send_here)
    vars(bounds).update(NOTICE_APART_SECONDS=0.0, NOTICE_HOLD_SECONDS=HOLD_SECONDS)
    main()


if __name__ == "__main__":
    _serve()
