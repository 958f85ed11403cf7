"""`serve --phone`: a program of others makes the address, after asking, and ends with us."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.request import Request, urlopen

import psutil
import pytest

from acphold.faces.cli.phone import way
from acphold.faces.cli.serve import print_code
from tests.cli.command_line import run_here
from tests.screen_terminal import Terminal, terminal
from tests.web.conftest import ACPHOLD, AGENT
from tests.web.network import own_port

pytestmark = pytest.mark.slow

RUNNING = {
    "BackendState": "Running",
    "Self": {"DNSName": "desk.tail1234.ts.net."},
    "CertDomains": ["desk.tail1234.ts.net"],
}


class Desk:
    """A machine with a free port, and the programs on its PATH that are put there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = own_port()
        (folder / "bin").mkdir()

    def has(self, name: str, *lines: str) -> None:
        file = self.folder / "bin" / name
        file.write_text("\n".join(("#!/bin/sh", *lines, "")))
        file.chmod(0o755)

    def has_tailscale(self, status: object, serving: object) -> None:
        told = (f"cat <<'end'\n{json.dumps(it)}\nend" for it in (serving, status))
        of_serve, of_all = told
        self.has("tailscale", 'if [ "$1" = serve ]; then', of_serve, "else", of_all, "fi")

    @property
    def env(self) -> dict[str, str]:
        return {
            **os.environ,
            "PATH": f"{self.folder / 'bin'}:/usr/bin:/bin",
            "ACPHOLD_SETTINGS": str(self.folder / "settings.toml"),
            "ACPHOLD_JOURNAL": str(self.folder / "journal.db"),
            "XDG_STATE_HOME": str(self.folder / "state"),
            "TERM": "xterm-256color",
        }

    def words(self, *given: str) -> tuple[str, ...]:
        agent = given or ("--phone", "--", *AGENT)
        return ("serve", "--listen", f"127.0.0.1:{self.port}", *agent)

    @contextmanager
    def serves(self, *words: str) -> Iterator[Terminal]:
        with terminal([*ACPHOLD, *self.words(*words)], self.env, 140) as screen:
            yield screen

    def refuses(self, *words: str) -> str:
        """Return the error of `serve`, which must refuse these words without asking anything."""
        done = run_here(self.words(*words), self.env)
        assert (done.code, done.out) == (2, "")
        return done.err

    def pair(self, shown: str, name: str) -> None:
        """Redeem the code that is on the screen."""
        code = re.findall(r"#pair=([A-Z0-9]+)", shown)[-1]
        head = {"Content-Type": "application/json"}
        body = json.dumps({"code": code, "name": name}).encode()
        request = Request(f"http://127.0.0.1:{self.port}/pair", body, head)
        with urlopen(request, timeout=30) as answer:
            assert answer.status == 200


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def proxied(port: int) -> object:
    handlers = {"/": {"Proxy": f"http://127.0.0.1:{port}"}}
    return {"Web": {"desk.tail1234.ts.net:443": {"Handlers": handlers}}}


def test_with_tailscale_the_address_is_that_of_the_tailnet_and_a_phone_is_announced(
    desk: Desk,
) -> None:
    desk.has_tailscale(RUNNING, proxied(desk.port))
    with desk.serves() as screen:
        shown = screen.until("https://desk.tail1234.ts.net/#pair=", "`acphold help each start`")
        assert "Run this once" not in shown
        desk.pair(shown, "A \x1b[31mphone")
        screen.until("Paired: A [31mphone")


def test_what_tailscale_lacks_is_one_command_to_run(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.has_tailscale(RUNNING, {})
    with desk.serves() as screen:
        shown = screen.until("Ctrl-C stops the server")
        assert f"tailscale serve --bg {desk.port}" in shown
        assert "https://desk.tail1234.ts.net/#pair=" in shown
    monkeypatch.setenv("PATH", desk.env["PATH"])
    other = {"Web": {"desk.tail1234.ts.net:8443": {"Handlers": {"/": 1}}}}
    for serving in ({"Web": None}, other):
        desk.has_tailscale(RUNNING, serving)
        with way(desk.port) as found:
            assert found.missing == ("tailscale", "serve", "--bg", str(desk.port))


@pytest.mark.parametrize(
    ("status", "told"),
    [
        ({"BackendState": "Stopped"}, "Tailscale is not connected; run `tailscale up`"),
        ({**RUNNING, "CertDomains": None}, "your tailnet has no HTTPS yet; turn it on"),
        ([], "`tailscale status --json` printed something unexpected"),
    ],
)
def test_a_tailnet_that_cannot_be_used_says_what_to_do(
    desk: Desk, status: object, told: str
) -> None:
    desk.has_tailscale(status, {})
    assert told in desk.refuses()


def test_what_tailscale_shows_at_that_address_already_is_left_alone(desk: Desk) -> None:
    desk.has_tailscale(RUNNING, proxied(desk.port + 1))
    there = f"http://127.0.0.1:{desk.port + 1}"
    assert f"Tailscale already serves {there} at https://desk.tail1234" in desk.refuses()


def test_no_way_is_made_to_a_port_that_another_program_has(desk: Desk) -> None:
    desk.has("cloudflared", "exit 1")
    with socket.create_server(("127.0.0.1", desk.port)), desk.serves() as screen:
        shown = screen.until(f"port {desk.port} is already in use")
        assert "[y/N]" not in shown
        assert screen.ended() == 2


def test_the_end_of_a_tunnel_is_told(desk: Desk) -> None:
    address = "https://some-words-here.trycloudflare.com"
    end = desk.folder / "end"
    desk.has(
        "cloudflared",
        f"echo {address}",
        f"until [ -e {end} ]; do sleep 0.1; done",
        "echo 'lost the edge'",
    )
    with desk.serves() as screen:
        screen.until("[y/N]")
        screen.type("y\n", f"{address}/#pair=", "Ctrl-C stops the server")
        end.touch()
        screen.until("cloudflared has ended, so a phone can no longer reach", "lost the edge")


def test_a_tunnel_is_started_after_a_yes_and_ends_with_the_server(desk: Desk) -> None:
    number = desk.folder / "number"
    desk.has(
        "cloudflared",
        f"echo $$ >{number}",
        "echo 'Post \"https://api.trycloudflare.com/tunnel\": try https://example.com' >&2",
        "echo '| https://some-words-here.trycloudflare.com |' >&2",
        "while :; do echo working; sleep 0.1; done",
    )
    with desk.serves() as screen:
        asked = screen.until("[y/N]")
        assert f"cloudflared tunnel --url http://127.0.0.1:{desk.port}" in asked
        assert "Anybody with its address can reach this server" in asked
        assert not number.exists()
        screen.type("y\n")
        screen.until("https://some-words-here.trycloudflare.com/#pair=", "Ctrl-C stops the server")
        screen.process.send_signal(signal.SIGINT)
        assert screen.ended() == 0
    assert not psutil.pid_exists(int(number.read_text()))


def test_a_tunnel_that_is_not_wanted_or_ends_is_told(desk: Desk) -> None:
    desk.has("devtunnel", "echo 'Unauthorized: run devtunnel user login'; exit 1")
    for typed, told in (
        ("n\n", "devtunnel was not started"),
        ("y\n", "its last output: 'Unauthorized: run"),
    ):
        with desk.serves() as screen:
            screen.until("[y/N]")
            screen.type(typed, told)
            assert screen.ended() == 2


def test_without_any_of_them_it_says_what_to_install(desk: Desk) -> None:
    told = desk.refuses()
    assert "PATH has none of tailscale, cloudflared, devtunnel" in told
    assert "tailscale.com/download" in told


def test_a_picture_is_shown_of_an_address_that_a_phone_reaches_only(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    print_code("http://localhost:8260", "CODE")
    shown = capsys.readouterr().out
    assert "▄" not in shown
    assert "Works on this machine only. For a phone, use `acphold serve --phone`." in shown
    print_code("https://desk.tail1234.ts.net", "CODE")
    assert "▄" in capsys.readouterr().out


def test_without_an_agent_it_serves_what_is_stored(desk: Desk) -> None:
    with desk.serves("--url", "https://desk.example") as screen:
        shown = screen.until("Ctrl-C stops the server")
        assert "No agent is here but the demo; `acphold serve claude` has npm fetch one." in shown
        desk.pair(shown, "phone")
        screen.until("Paired: phone")
        screen.process.send_signal(signal.SIGINT)
        assert screen.ended() == 0


@pytest.mark.parametrize("named", [False, True])
def test_an_agent_that_npm_fetches_is_served_after_a_yes(desk: Desk, *, named: bool) -> None:
    desk.has("npx", f"exec {' '.join(AGENT)}")
    words = ("codex",) if named else ()
    if not named:
        desk.has("codex")
    lacks = "is not installed" if named else "has no ACP adapter here"
    with desk.serves("--phone", *words) as screen:
        asked = screen.until("[y/N]")
        assert f"Codex {lacks}. Let `npx -y @agentclientprotocol/codex-acp` fetch it?" in asked
        assert screen.ended("n\n") == 2
    with desk.serves("--url", "https://desk.example", *words) as screen:
        screen.until("[y/N]")
        screen.type("y\n", "Ctrl-C stops the server")
        screen.process.send_signal(signal.SIGINT)
        assert screen.ended() == 0
