"""HTTP/2 by nginx in front, set up as docs/operate.md says."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import Popen

import httpx2
import psutil
import pytest

import acphold
from acp_check.checks import choose, inspect
from acp_check.rules import CHECKS
from acp_check.stage import CheckSettings
from acp_check.subject import ServerSubject
from acp_check.verdicts import Verdict
from tests.web.certificates import Authority, new_authority
from tests.web.conftest import Served, serving
from tests.web.http2_flood import flood
from tests.web.network import own_port
from tests.web.test_checked_server import LENIENT
from tests.web.test_streams import HttpClient, opened, text, until

pytestmark = pytest.mark.interop

PAGE = Path(__file__).parents[2] / "docs" / "operate.md"
NGINX = shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin")

AROUND = """
{user}
daemon off;
pid {folder}/pid;
error_log stderr;
events {{}}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    include {folder}/acphold.conf;
}}
"""

SECONDS = 60.0


@contextmanager
def nginx(folder: Path, authority: Authority, port: int, behind: int) -> Iterator[None]:
    """The proxy of the page, on these ports."""
    assert NGINX, "the recipe is tried with Debian's `nginx`, which has to be installed"
    [recipe] = re.findall(r"```nginx\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    for written, here in (
        ("443 ssl", f"127.0.0.1:{port} ssl"),
        ("desk.example;", "localhost;"),
        ("/etc/ssl/desk.example.pem", str(authority.certificate)),
        ("/etc/ssl/desk.example.key", str(authority.key)),
        ("127.0.0.1:8260", f"127.0.0.1:{behind}"),
    ):
        assert written in recipe
        recipe = recipe.replace(written, here, 1)
    (folder / "acphold.conf").write_text(recipe)
    user = "user root;" if os.getuid() == 0 else ""
    (folder / "nginx.conf").write_text(AROUND.format(folder=folder, user=user))
    words = [NGINX, "-p", str(folder), "-c", str(folder / "nginx.conf")]
    with Popen([*words, "-e", "stderr"]) as process:
        try:
            deadline = time.monotonic() + SECONDS
            while process.poll() is None:
                try:
                    socket.create_connection(("127.0.0.1", port)).close()
                except ConnectionRefusedError:
                    assert time.monotonic() < deadline, "nginx does not listen"
                    time.sleep(0.05)
                else:
                    break
            assert process.poll() is None
            yield
        finally:
            process.terminate()


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return new_authority(tmp_path, "localhost")


@pytest.fixture
def served(tmp_path: Path, authority: Authority) -> Iterator[Served]:
    """A server that is reached by the proxy's address."""
    port, behind = own_port(), own_port()
    (folder := tmp_path / "nginx").mkdir()
    url = f"https://localhost:{port}"
    options = ("--listen", f"127.0.0.1:{behind}", "--url", url, "--proxy", "127.0.0.1")
    with serving(tmp_path, *options) as made, nginx(folder, authority, port, behind):
        assert made.url == url
        yield made


async def test_a_turn_goes_over_http2_a_websocket_stands_beside_it_and_the_page_is_there(
    served: Served, authority: Authority
) -> None:
    token = served.token()
    trusting = ssl.create_default_context(cafile=authority.ca)
    async with httpx2.AsyncClient(
        base_url=served.url,
        headers={"Authorization": f"Bearer {token}"},
        timeout=30,
        verify=trusting,
        http1=False,
        http2=True,
    ) as http:
        assert (await http.get("/health")).http_version == "HTTP/2"
        assert "<!doctype html>" in (await http.get("/")).text.lower()
        client = HttpClient(http)
        await client.initialize()
        session_id = await opened(client, served)
        # All of it on one connection: the stream, and the POSTs beside it.
        async with client.stream(Acp_Session_Id=session_id) as stream:
            prompt = {"sessionId": session_id, "prompt": text("quick: over two")}
            assert (await client.post("session/prompt", prompt)).status_code == 202
            await until(stream, "You said: quick: over two")
            await until(stream, "end_turn")
    for transport in ("websocket", "http"):
        url = f"{served.url}?transport={transport}"
        async with acphold.connect(url, token=token, ca=authority.ca) as agent:
            session = await agent.load_session(session_id, cwd=served.folder)
            assert "over two" in str(session.state.timeline)
            assert "again" in (await session.prompt("quick: again")).text


async def test_check_finds_the_same_over_http2_as_without_a_proxy(
    served: Served, authority: Authority
) -> None:
    subject = ServerSubject(served.url, served.token(), seconds=SECONDS, ca=str(authority.ca))
    checks = choose(CHECKS, ["http", "websocket"])
    report = await inspect(subject, checks, CheckSettings(timeout=20))
    assert {it.rule.id for it in report.of(Verdict.FAIL)} == LENIENT
    passed = {it.rule.id: it.why for it in report.of(Verdict.PASS)}
    assert {*passed} == {check.rule.id for check in checks} - LENIENT
    assert "http.http2" in passed


async def test_a_stranger_who_asks_for_the_page_by_the_thousand_takes_little_and_harms_nobody(
    served: Served, authority: Authority
) -> None:
    token = served.token()
    server = psutil.Process(served.process.pid)
    before = server.memory_info().rss
    host = served.url.removeprefix("https://")
    trusting = ssl.create_default_context(cafile=authority.ca)
    trusting.set_alpn_protocols(["h2"])
    writers = []
    sent = 0
    try:
        while sent < 345_000:
            _, writer = await asyncio.open_connection(
                "127.0.0.1",
                int(host.rpartition(":")[2]),
                ssl=trusting,
                server_hostname="localhost",
                local_addr=("127.0.0.2", 0),
            )
            writers.append(writer)
            words = flood(host, "https")
            writer.write(words)
            await writer.drain()
            sent += len(words)
        async with (
            asyncio.timeout(SECONDS),
            acphold.connect(served.url, token=token, ca=authority.ca) as agent,
        ):
            session = await agent.new_session(cwd=served.folder)
            assert "hello" in (await session.prompt("quick: hello")).text
        assert server.memory_info().rss - before < 100 << 20
    finally:
        for writer in writers:
            writer.transport.abort()
