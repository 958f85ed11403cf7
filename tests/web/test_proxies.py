"""Behind a company's proxy, and at a server whose certificate is of an own authority."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

import acphold
from acp_wire.transports.route import Route
from acphold.errors import SettingsError
from tests.web.certificates import Authority, new_authority
from tests.web.conftest import ACPHOLD, Served, serving
from tests.web.network import Network, network, own_port

pytestmark = pytest.mark.slow

NAME = "desk.test"
"""A host name that only the proxy can resolve."""


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return new_authority(tmp_path_factory.mktemp("authority"), NAME)


@pytest.fixture
def far(tmp_path: Path, authority: Authority) -> Iterator[Served]:
    """A server that is reached by NAME, which nobody knows here, over TLS."""
    port = own_port()
    url = f"https://{NAME}:{port}"
    with serving(
        tmp_path, "--url", url, "--listen", f"127.0.0.1:{port}", *authority.options
    ) as served:
        yield served


@pytest_asyncio.fixture
async def proxy(monkeypatch: pytest.MonkeyPatch, far: Served) -> AsyncIterator[Network]:
    """A proxy that the environment names, and that knows the way to NAME."""
    for name in ("HTTP_PROXY", "ALL_PROXY", "NO_PROXY", "SSL_CERT_FILE"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    async with network() as made:
        made.to = int(far.url.rpartition(":")[2])
        made.tunnels = True
        monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{made.port}")
        yield made


async def test_the_proxy_that_the_environment_names_leads_there_for_both_transports(
    far: Served, proxy: Network, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = far.token()
    for query in ("", "?transport=http"):
        url = far.url + query
        async with acphold.connect(url, token=token, ca=authority.ca) as agent:
            session = await agent.new_session(cwd=far.folder)
            assert "hi" in (await session.prompt("quick: hi")).text
    before = proxy.connections
    assert before >= 2
    monkeypatch.delenv("HTTPS_PROXY")
    monkeypatch.setenv("ALL_PROXY", f"http://127.0.0.1:{proxy.port}")
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.ca))
    async with acphold.connect(far.url, token=token) as agent:
        assert [info.session_id async for info in agent.sessions()]
    assert proxy.connections > before


async def test_what_stands_in_the_way_behind_a_proxy_is_told(
    far: Served, proxy: Network, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refused(ca: Path | None) -> str:
        with pytest.raises(acphold.AcpError) as raised:
            async with acphold.connect(far.url, token="x", ca=ca):
                pass
        return str(raised.value)

    assert "is not trusted" in (told := await refused(None))
    assert "--ca FILE" in told
    assert "no certificates can be read" in await refused(authority.key)
    proxy.tunnel_refusal = b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n"
    assert "407" in await refused(authority.ca)
    monkeypatch.setenv("NO_PROXY", NAME)
    assert "no machine is known by that name" in await refused(authority.ca)


async def test_a_command_that_paired_with_an_authoritys_file_finds_it_again(
    far: Served, proxy: Network, authority: Authority, tmp_path: Path
) -> None:
    env = {
        **far.env,
        "XDG_STATE_HOME": str(tmp_path / "laptop"),
        "HTTPS_PROXY": f"http://127.0.0.1:{proxy.port}",
    }
    code = f"{far.url}#pair={far.pair}"
    for words in (("connect", "--ca", str(authority.ca), code), ("connect", far.url)):
        async with acphold.connect(*ACPHOLD, *words, env=env) as agent:
            await agent.new_session(cwd=far.folder)
    stranger = env | {
        "XDG_STATE_HOME": str(tmp_path / "other"),
        "ACPHOLD_TOKEN": far.token(),
        "SSL_CERT_FILE": str(authority.ca),
    }
    for server, known in (("desk", env), (far.url, stranger)):
        async with acphold.connect(*ACPHOLD, "connect", server, env=known) as agent:
            await agent.new_session(cwd=far.folder)


def test_this_machine_is_behind_no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://proxy.test:3128")
    monkeypatch.setenv("ALL_PROXY", "socks5h://proxy.test")
    monkeypatch.delenv("NO_PROXY", raising=False)

    def proxy_for(url: str) -> str | None:
        return Route(url, seconds=1, limit=1).proxy()

    for here in ("http://localhost:1", "http://127.0.0.1", "http://[::1]:8260"):
        assert proxy_for(here) is None
    assert proxy_for("http://desk.test") == "http://proxy.test:3128"
    with pytest.raises(SettingsError, match="python-socks"):
        proxy_for("https://desk.test")
