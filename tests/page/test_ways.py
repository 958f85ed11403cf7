"""The ways to the page from another device, each by its recipe, as far as one machine allows.

The device looks up `desk.test`, and is led to this machine.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import ssl
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from pathlib import Path

import pytest
from playwright.async_api import Page, async_playwright, expect

from tests.editor import DEADLINE, scripted_agent
from tests.page.conftest import launched, steps, typed
from tests.web.certificates import new_authority
from tests.web.conftest import serving
from tests.web.network import own_port

pytestmark = [pytest.mark.interop, pytest.mark.asyncio(loop_scope="session")]

NAME = "desk.test"
AGENT = tuple(scripted_agent())


@asynccontextmanager
async def visitor(*flags: str) -> AsyncIterator[Page]:
    """A device elsewhere, in whose browser nothing is known yet."""
    async with async_playwright() as playwright:
        browser = await launched(playwright, *flags)
        page = await browser.new_page(viewport={"width": 360, "height": 760})
        yield page
        await browser.close()


async def visited(page: Page, url: str, code: str, folder: Path) -> None:
    """The page is there, and a session can be begun in it: its WebSocket comes through."""
    await page.goto(f"{url}/#pair={code}")
    await page.get_by_role("link", name="New", exact=True).click()
    await page.get_by_label("Folder on the server").fill(str(folder))
    await page.get_by_role("button", name="Start").click()
    await typed(page, steps({"say": "Here I am."}))
    await expect(page.locator(".said")).to_have_text("Here I am.")
    await page.goto(f"{url}/#/")


async def can_be_told(page: Page) -> None:
    """It is a secure context: the page is kept on the device, and offers notices."""
    assert await page.evaluate("isSecureContext")
    await page.evaluate("navigator.serviceWorker.ready.then(() => true)")
    await expect(page.get_by_role("button", name="Notify me on this device")).to_be_visible()


async def test_without_https_the_page_works_and_says_what_it_cannot(tmp_path: Path) -> None:
    url = f"http://{NAME}:{(port := own_port())}"
    with serving(tmp_path, "--listen", f"127.0.0.1:{port}", "--url", url, agent=AGENT) as served:
        async with visitor(f"--host-resolver-rules=MAP {NAME} 127.0.0.1") as page:
            await visited(page, url, served.pair, tmp_path)
            assert not await page.evaluate("isSecureContext")
            await expect(page.get_by_text("Notifications need HTTPS")).to_be_visible()
            await expect(page.get_by_text("Notifications need HTTPS")).to_contain_text(
                "acphold help serve"
            )


async def test_a_certificate_of_ones_own_makes_the_page_one_that_can_be_told(
    tmp_path: Path,
) -> None:
    authority = new_authority(tmp_path, NAME)
    url = f"https://{NAME}:{(port := own_port())}"
    options = ("--listen", f"127.0.0.1:{port}", "--url", url, *authority.options)
    with serving(tmp_path, *options, agent=AGENT) as served:
        trusting = "--ignore-certificate-errors"  # as a device does that has the authority
        async with visitor(f"--host-resolver-rules=MAP {NAME} 127.0.0.1", trusting) as page:
            await visited(page, url, served.pair, tmp_path)
            await can_be_told(page)


async def test_behind_a_proxy_that_has_the_certificate_it_is_the_same(tmp_path: Path) -> None:
    authority = new_authority(tmp_path, NAME)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(authority.certificate, authority.key)
    port = own_port()

    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        writer.close()

    async def attend(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.gather(carry(reader, back), carry(there, writer))

    proxy = await asyncio.start_server(attend, "127.0.0.1", 0, ssl=context)
    url = f"https://{NAME}:{proxy.sockets[0].getsockname()[1]}"
    options = ("--listen", f"127.0.0.1:{port}", "--url", url, "--proxy", "127.0.0.1")
    try:
        with serving(tmp_path, *options, agent=AGENT) as served:
            trusting = "--ignore-certificate-errors"
            async with visitor(f"--host-resolver-rules=MAP {NAME} 127.0.0.1", trusting) as page:
                await visited(page, url, served.pair, tmp_path)
                await can_be_told(page)
    finally:
        proxy.close()


SSHD = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin")


@contextmanager
def brought_over(folder: Path, port: int) -> Iterator[None]:
    """`ssh -L` brings a port of this machine to a laptop, which is at 127.0.0.2."""
    for key in ("host", "user"):
        make = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / key)]
        subprocess.run(make, check=True)
    settings = {
        "Port": own_port(),
        "ListenAddress": "127.0.0.1",
        "HostKey": folder / "host",
        "AuthorizedKeysFile": folder / "user.pub",
        "PidFile": folder / "pid",
        "StrictModes": "no",
        "UsePAM": "no",
    }
    (folder / "sshd").write_text("".join(f"{key} {value}\n" for key, value in settings.items()))
    Path("/run/sshd").mkdir(exist_ok=True)
    assert SSHD is not None, "install openssh-server"
    options = ("BatchMode=yes", "StrictHostKeyChecking=no", "UserKnownHostsFile=/dev/null")
    client = ["ssh", "-F", "none", "-N", "-L", f"127.0.0.2:{port}:localhost:{port}"]
    client += ["-p", str(settings["Port"]), "-i", str(folder / "user")]
    client += [word for each in options for word in ("-o", each)]
    with ExitStack() as running:
        for command, host, its in (
            ([SSHD, "-D", "-e", "-f", str(folder / "sshd")], "127.0.0.1", settings["Port"]),
            ([*client, "root@127.0.0.1"], "127.0.0.2", port),
        ):
            process = running.enter_context(subprocess.Popen(command))
            running.callback(process.terminate)
            reach(host, int(str(its)))
        yield


def reach(host: str, port: int) -> None:
    """Wait until somebody listens there."""
    deadline = time.monotonic() + DEADLINE
    while True:
        try:
            socket.create_connection((host, port)).close()
        except OSError:
            assert time.monotonic() < deadline, f"nobody listens at {host}:{port}"
            time.sleep(0.05)
        else:
            return


@pytest.mark.skipif(os.getuid() != 0, reason="it takes an sshd of root's")
async def test_a_port_that_ssh_brings_over_is_a_place_that_can_be_told(tmp_path: Path) -> None:
    with serving(tmp_path, agent=AGENT) as served:
        port = int(served.url.rpartition(":")[2])
        with brought_over(tmp_path, port):
            async with visitor("--host-resolver-rules=MAP localhost 127.0.0.2") as page:
                await visited(page, served.url, served.pair, tmp_path)
                await can_be_told(page)
