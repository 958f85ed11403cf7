"""Names that cannot be kept, by every way in of `serve`, on each store: whoever sends one is told
so, and nothing else comes of it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlsplit

import pytest

from acp_wire.errors import INVALID_PARAMS, RESOURCE_NOT_FOUND
from acphold.errors import RemoteError
from tests.web.conftest import Served, serving
from tests.web.far_client import ALL_AGENTS, far_client

DATABASE = pytest.param("postgresql", marks=pytest.mark.postgresql)
pytestmark = [
    pytest.mark.slow,
    pytest.mark.parametrize("journal", ["sqlite", DATABASE], indirect=True),
]

NAMES: Final = ("a\0b", "half \ud83d")
"""PostgreSQL keeps no text with a NUL; half of a surrogate pair is no text anywhere."""

FACTS: Final = [
    f"acphold/{name}"
    for name in (
        *("after", "agent", "answered", "client", "later", "lineage", "origins", "parent"),
        *("question", "sent", "tenant", "turn"),
    )
]
"""The facts that are read from a `_meta`."""


@pytest.fixture
def served(journal: Path, tmp_path: Path) -> Iterator[Served]:
    """A server with a journal on each store."""
    with serving(tmp_path, variables={"ACPHOLD_JOURNAL": str(journal)}) as found:
        yield found


def pages(name: str) -> Iterator[str]:
    """The addresses that a name can stand in."""
    shown = quote(name.encode(errors="surrogatepass"))
    for address in ("/sessions/{}", "/sessions/{}/entries", "/sessions/{}/export", "/acp/{}"):
        yield address.format(shown)
    for address, parameters in {
        "/sessions": "q agent cwd archived cursor limit",
        "/search?q=word": "in agent cwd since cursor rank",
        "/search": "q",
        "/inbox/history": "session cursor",
        "/sessions/unknown/entries": "before lineage",
        "/usage": "by since",
        "/feed": "any",
    }.items():
        for parameter in parameters.split():
            yield f"{address}{'&' if '?' in address else '?'}{parameter}={shown}"


def posts(name: str) -> Iterator[tuple[str, Mapping[str, object]]]:
    """The JSON requests that can contain the name."""
    yield "/codes", {"user": name}
    yield "/codes", {"scopes": [name]}
    yield "/pair", {"code": name, "name": name}
    yield "/browser", {"code": name, "name": name}
    yield "/notices", {"endpoint": name, "keys": {"p256dh": name, "auth": name}}


def requests(name: str, session: str) -> Iterator[tuple[str, dict[str, object]]]:
    """The requests of ACP that it can stand in."""
    begin: dict[str, object] = {"cwd": "/", "mcpServers": []}
    prompt = [{"type": "text", "text": "hi"}]
    openings: list[dict[str, object]] = [
        {**begin, "sessionId": name},
        {**begin, "sessionId": session, "cwd": f"/{name}"},
        {**begin, "sessionId": session, "additionalDirectories": [f"/{name}"]},
    ]
    for verb in ("load", "resume", "fork"):
        for opening in openings:
            yield f"session/{verb}", opening
    asked: dict[str, dict[str, object]] = {
        "prompt": {"prompt": prompt},
        "close": {},
        "archive": {},
        "delete": {},
        "set_mode": {"modeId": "any"},
        "set_config_option": {"configId": "any", "value": "any"},
    }
    for verb, params in asked.items():
        yield f"session/{verb}", {"sessionId": name, **params}
    yield "session/set_mode", {"sessionId": session, "modeId": name}
    yield "session/set_config_option", {"sessionId": session, "configId": name, "value": name}
    yield "session/new", {**begin, "cwd": f"/{name}"}
    yield "session/new", {**begin, "additionalDirectories": [f"/{name}"]}
    yield "session/list", {"cwd": f"/{name}"}
    yield "session/list", {"cursor": name}
    yield "authenticate", {"methodId": name}
    yield "_acphold/changed", {"sessionId": name}
    yield "_any/method", {"sessionId": name}
    for fact in FACTS:
        facts: dict[str, object] = {"_meta": {fact: name}}
        yield "session/list", facts
        yield "session/new", {**begin, **facts}
        for verb in ("load", "resume", "fork"):
            yield f"session/{verb}", {**begin, "sessionId": session, **facts}
        yield "session/prompt", {"sessionId": session, "prompt": prompt, **facts}


def status(served: Served, token: str, method: str, path: str, said: object = None) -> int:
    """The status of an HTTP request."""
    connection = HTTPConnection(urlsplit(served.url).netloc, timeout=30)
    head = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    connection.request(method, path, None if said is None else json.dumps(said), head)
    found = connection.getresponse().status
    connection.close()
    return found


def test_who_names_it_at_an_address_is_told_so(served: Served) -> None:
    token = served.token()
    asked = [(path, status(served, token, "GET", path)) for it in NAMES for path in pages(it)]
    asked += [
        (f"{path} {said}", status(served, token, "POST", path, said))
        for it in NAMES
        for path, said in posts(it)
    ]
    assert [it for it in asked if it[1] >= 500] == []
    assert status(served, token, "GET", "/sessions") == 200


@pytest.mark.parametrize("way", ["one agent", "all agents", "streams"])
async def test_who_names_it_in_a_request_is_told_so(
    served: Served, tmp_path: Path, way: str
) -> None:
    can = ALL_AGENTS if way == "all agents" else {}
    streams = way == "streams"
    asked_by = far_client(served.url, served.token(), can, http=streams, says_yes=True)
    async with asked_by as client:
        session = (await client.new(tmp_path))["sessionId"]
        await client.say(session, "hello")
        wrong: list[Any] = []
        for name in NAMES:
            for method, params in requests(name, session):
                try:
                    await client.ask(method, **params)
                except RemoteError as exc:
                    if exc.code not in (INVALID_PARAMS, RESOURCE_NOT_FOUND, -32601):
                        wrong.append((method, params, str(exc)))
        assert wrong == []
        await client.say(session, "hello again")
    # Nor does it hold back the audit log of others.
    served.process.terminate()
    served.process.wait()
    assert "prompt" in served.run("access", "audit")
