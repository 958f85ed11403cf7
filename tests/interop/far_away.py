"""Programs of others that speak ACP over a network: starting each, and its abilities there.

The official SDKs are clients of `acphold serve`, and servers for `acphold connect`; goose serves
with the Rust crate. The table of results is in check/docs/conformance.md, between two marks; `make
interop` checks each of its cells.
"""

from __future__ import annotations

import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from subprocess import PIPE, Popen
from typing import Literal, NamedTuple

from tests.interop.model_endpoint import running
from tests.interop.official_schema import PACKAGE, sdk_folder
from tests.interop.place import Place
from tests.interop.real_agents import GOOSE_VERSION, goose_home, goose_program, python_with
from tests.interop.wire import PROGRAMS
from tests.npm import NODE, installed
from tests.web.network import own_port

Transport = Literal["WebSocket", "HTTP"]

SCHEMES: dict[Transport, str] = {"WebSocket": "ws", "HTTP": "http"}

OPERATIONS = ("new", "prompt", "permission", "cancel", "load", "list")

WS = "ws@8.23.0"

SECONDS = 60.0
"""For a server to listen."""

TS = f"TypeScript SDK {PACKAGE.rpartition('@')[2]}"
PYTHON = "Python SDK 0.12.1"
PYTHON_NEXT = "Python SDK 1.0.0rc3"
GOOSE = f"goose {GOOSE_VERSION}"


def _ws_folder() -> str:
    return str(installed(WS) / "node_modules" / "ws")


def _this_python() -> str:
    return sys.executable


def _next_python() -> str:
    return str(python_with(f"agent-client-protocol[http]=={PYTHON_NEXT.split()[-1]}", "uvicorn"))


# --- their clients -------------------------------------------------------------------------------


class TheirClient(NamedTuple):
    """A client; `command` takes a URL and a token."""

    name: str
    command: Callable[[str, str], list[str]]


def _python_client(python: Callable[[], str], url: str, token: str) -> list[str]:
    return [python(), str(PROGRAMS / "python_client.py"), url, token]


def _ts_client(url: str, token: str) -> list[str]:
    return [NODE, str(PROGRAMS / "ts_client.mjs"), sdk_folder(), url, token, _ws_folder()]


CLIENTS = (
    TheirClient(TS, _ts_client),
    TheirClient(PYTHON, partial(_python_client, _this_python)),
    TheirClient(PYTHON_NEXT, partial(_python_client, _next_python)),
)


# --- their servers -------------------------------------------------------------------------------


class TheirServer(NamedTuple):
    """A server; `serving` runs one for the block, and gives its address without the scheme.

    `asks` is a prompt for which it asks for permission; `slow` one at which it says `tick0`,
    `tick1` and so on until it is cancelled.
    """

    name: str
    serving: Callable[[Place], AbstractContextManager[str]]
    asks: str = "first words"
    slow: str = "slow words"


@contextmanager
def _sdk_server(command: Callable[[], list[str]], place: Place) -> Iterator[str]:
    with Popen(command(), env=place.environment(), stdout=PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield f"127.0.0.1:{int(process.stdout.readline())}/acp"
        finally:
            process.kill()


def _ts_server() -> list[str]:
    return [NODE, str(PROGRAMS / "ts_server.mjs"), sdk_folder(), _ws_folder()]


def _python_server(python: Callable[[], str]) -> list[str]:
    return [python(), str(PROGRAMS / "python_server.py")]


@contextmanager
def _goose(place: Place) -> Iterator[str]:
    port = own_port()
    with running() as model:
        env = {
            **place.environment(),
            **goose_home(place.home, model.url),
            "GOOSE_SERVER__SECRET_KEY": "secret",
        }
        words = [goose_program(), "serve", "--port", str(port), "--with-builtin", "developer"]
        with place.stderr.open("ab") as stderr:
            process = Popen(words, env=env, cwd=place.work, stderr=stderr)
        try:
            _listens(port)
            yield f"127.0.0.1:{port}/acp?token=secret"
        finally:
            process.kill()
            process.wait()


def our_way(address: str, transport: Transport) -> str:
    """The URL by which our client goes there over this transport, and no other."""
    named = {"WebSocket": "websocket", "HTTP": "http"}[transport]
    return f"http://{address}{'&' if '?' in address else '?'}transport={named}"


def _listens(port: int) -> None:
    deadline = time.monotonic() + SECONDS
    while True:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
        except OSError:
            assert time.monotonic() < deadline, "it does not listen"
            time.sleep(0.05)
        else:
            return


SERVERS = (
    TheirServer(TS, partial(_sdk_server, _ts_server)),
    TheirServer(PYTHON, partial(_sdk_server, partial(_python_server, _this_python))),
    TheirServer(PYTHON_NEXT, partial(_sdk_server, partial(_python_server, _next_python))),
    TheirServer(GOOSE, _goose, asks="USE_TOOL:shell CMD=whoami", slow="SLOW words"),
)


# --- the expected results

OURS: tuple[Transport, ...] = ("WebSocket", "HTTP")
"""The transports of our client."""

UNATTACHED = (
    "The session is replayed, and cannot be prompted: over HTTP the SDK's server attaches a "
    "session only if the answer to `session/load` has a `sessionId`, which version 1 has not."
)

LACKS: dict[tuple[str, Transport, str], str] = {
    (PYTHON, "HTTP", "load"): UNATTACHED,
}
"""The operations that a server of others lacks, with the reason, by server and transport."""


def table() -> str:
    """The table in check/docs/conformance.md, between its marks."""
    lines = [
        f"| | {' | '.join(name if name in WORDS else f'`{name}`' for name in OPERATIONS)} |",
        f"|---|{'---|' * len(OPERATIONS)}",
    ]
    notes = list(dict.fromkeys(LACKS.values()))
    rows = [(f"{it.name} → `acphold serve`", it.name, False) for it in CLIENTS]
    rows += [(f"`acphold connect` → {it.name}", it.name, True) for it in SERVERS]
    alike: dict[tuple[str, ...], list[str]] = {}
    for told, name, is_server in rows:
        for transport in OURS if is_server else SCHEMES:
            lacks = [LACKS.get((name, transport, it)) if is_server else None for it in OPERATIONS]
            cells = tuple("✓" if why is None else f"no ({notes.index(why) + 1})" for why in lacks)
            alike.setdefault(cells, []).append(f"{told}, {transport}")
    for cells, names in alike.items():
        lines.append(f"| {'; '.join(names)} | {' | '.join(cells)} |")
    if notes:
        lines.append("")
        lines += [f"{number}. {why}" for number, why in enumerate(notes, 1)]
    return "\n".join(lines) + "\n"


BREAKS = {
    TS: {"http.batch", "http.unknown-session", "new.relative-folder"},
    PYTHON: {"http.response-header", "new.relative-folder"},
    PYTHON_NEXT: {"http.response-header", "new.relative-folder"},
    GOOSE: {
        *("http.batch", "http.load-answer", "http.session-header", "http.cancel-header"),
        *("http.unknown-session", "initialize.other-version"),
    },
}
"""Rules on transport and `initialize` that `acphold check --server` finds broken, by server."""


WORDS = ("permission", "cancel")
"""Operations that are no method of a client's; see OPERATIONS."""
