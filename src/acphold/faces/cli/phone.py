"""`serve --phone`: an HTTPS address at which a phone reaches this machine.

Other programs provide it; the first of these on PATH is used.

    program      address                                who reaches it
    -----------  -------------------------------------  -----------------------
    tailscale    https://NAME.TAILNET.ts.net            your own devices
    cloudflared  https://WORDS.trycloudflare.com        everybody
    devtunnel    https://ID-PORT.REGION.devtunnels.ms   you, after signing in

Tailscale keeps serving a port once it is configured, so we show the person the command for that.
The others are tunnels that last as long as their program: we ask, start it, and end it when we
end.
"""

from __future__ import annotations

import json
import os
import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

from acp_wire.processes.program import launch, on_path
from acphold.errors import SettingsError
from acphold.faces.cli import bounds
from acphold.faces.cli.command_line import UsageError, is_confirmed
from acphold.faces.cli.terminal_text import tell, visible
from acphold.machine.program_group import read_within

PROXY: Final = "127.0.0.1"
"""The address from which each of these programs connects to us."""


NAME: Final = re.compile(r"[a-z0-9-]+(\.[a-z0-9-]+)+")
"""A name of a machine, as Tailscale gives them."""


class PhoneAddress(NamedTuple):
    """An https address for a phone, and the command that has to be run once for it, if any."""

    url: str
    missing: tuple[str, ...] = ()


class Tunnel(NamedTuple):
    """A program that makes a tunnel: its arguments, the form of its addresses, who reaches them."""

    arguments: tuple[str, ...]
    address: re.Pattern[bytes]
    who: str

    @contextmanager
    def open(self, name: str, port: int) -> Iterator[str]:
        """Make a tunnel to this port with the program `name`, after asking; provide its address.
        Raises SettingsError and UsageError."""
        command = [name, *(word.format(port=port) for word in self.arguments)]
        if not sys.stdin.isatty():
            raise UsageError(
                f"--phone asks before it starts `{' '.join(command)}`, and there is no terminal to "
                "ask on; start it yourself, and give its address with --url"
            )
        tell(f"{name} can make a tunnel to this machine. {self.who}")
        if not is_confirmed(f"Start `{' '.join(command)}`?"):
            raise SettingsError(f"{name} was not started, so a phone cannot reach this machine")
        program = launch(command, merged=True)
        (output,) = program.fds
        draining: threading.Thread | None = None
        is_over = threading.Event()

        def drain() -> None:
            """Read the rest of its output, so that it never waits for us; report its end."""
            last = b""
            while piece := os.read(output, 65536):
                last = last[-1000:] + piece
            if not is_over.is_set():
                said = f"{name} has ended, so a phone can no longer reach this server"
                message = f"acphold: {said}; its last output: {_last_line(last)!r}"
                print(message, file=sys.stderr, flush=True)

        try:
            printed = b""
            for piece in read_within(output, bounds.TUNNEL_SECONDS, bounds.TUNNEL_OUTPUT_BYTES):
                printed += piece
                # Only in whole lines: the next piece may continue the last one.
                if found := self.address.search(printed[: printed.rfind(b"\n") + 1]):
                    url = found[0].decode()
                    break
            else:
                last = f"its last output: {_last_line(printed)!r}"
                raise SettingsError(f"`{' '.join(command)}` printed no address; {last}")
            draining = threading.Thread(target=drain, daemon=True)
            draining.start()
            yield url
        finally:
            is_over.set()
            program.end()
            program.reap()
            if draining is not None:
                draining.join()  # nothing that could write is alive
            os.close(output)


TUNNELS: Final = {
    "cloudflared": Tunnel(
        ("tunnel", "--url", "http://127.0.0.1:{port}"),
        re.compile(rb"https://(?!api\.)[a-z0-9-]+\.trycloudflare\.com\b"),
        "Anybody with its address can reach this server; nobody gets in without a token.",
    ),
    "devtunnel": Tunnel(
        ("host", "--port-numbers", "{port}"),
        re.compile(rb"https://[a-z0-9]+-\d+\.[a-z0-9]+\.devtunnels\.ms\b"),
        "Anybody who signs in there as you can reach this server; nobody gets in without a token.",
    ),
}


@contextmanager
def way(port: int) -> Iterator[PhoneAddress]:
    """Provide a way for a phone to this port, in the block; raises SettingsError, UsageError."""
    if on_path("tailscale") is not None:
        yield _tailnet(port)
        return
    for name, tunnel in TUNNELS.items():
        if on_path(name) is not None:
            with tunnel.open(name, port) as url:
                yield PhoneAddress(url)
            return
    raise SettingsError(
        f"PATH has none of tailscale, {', '.join(TUNNELS)}, so a phone gets no HTTPS address. "
        "Install one (Tailscale on the phone, too: https://tailscale.com/download); or use "
        "--tls-cert and --tls-key, or --url with the address of your own proxy"
    )


def _tailnet(port: int) -> PhoneAddress:
    status = _json_of("tailscale", "status", "--json")
    own = status.get("Self")
    name = str(own.get("DNSName", "")).rstrip(".") if isinstance(own, dict) else ""
    if status.get("BackendState") != "Running" or not NAME.fullmatch(name):
        raise SettingsError("Tailscale is not connected; run `tailscale up`, then try again")
    if not status.get("CertDomains"):
        raise SettingsError(
            "your tailnet has no HTTPS yet; turn it on (https://login.tailscale.com/admin/dns), "
            "then try again"
        )
    found: object = _json_of("tailscale", "serve", "status", "--json")
    for key in ("Web", f"{name}:443", "Handlers", "/"):
        found = found.get(key) if isinstance(found, dict) else None
    if found is None:
        return PhoneAddress(f"https://{name}", ("tailscale", "serve", "--bg", str(port)))
    target = str(found.get("Proxy")) if isinstance(found, dict) else "something else"
    if not re.fullmatch(rf"https?://(127\.0\.0\.1|localhost):{port}/?", target):
        raise SettingsError(
            f"Tailscale already serves {visible(target)} at https://{name}; stop that with "
            f"`tailscale serve reset`, or run `tailscale serve --bg --https=8443 {port}` and use "
            f"--url https://{name}:8443 --proxy {PROXY} instead of --phone"
        )
    return PhoneAddress(f"https://{name}")


def _json_of(*command: str) -> dict[str, object]:
    """Return the JSON object that a command prints; raises SettingsError."""
    program = launch(command, merged=True)
    try:
        pieces = read_within(program.fds[0], bounds.TAILNET_SECONDS, bounds.TUNNEL_OUTPUT_BYTES)
        output = b"".join(pieces)
    finally:
        program.abandon()
    try:
        found = json.loads(output[max(0, output.find(b"{")) :])  # a warning may precede it
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        shown = " ".join(command)
        raise SettingsError(f"`{shown}` printed something unexpected: {_last_line(output)!r}")
    return found


def _last_line(output: bytes) -> str:
    return visible((output.decode(errors="replace").strip().splitlines() or [""])[-1])
