"""Machines in network namespaces of their own (network_namespaces(7)), with switches between them.

A machine is unplugged, or its switch drops all packets for it. Unlike with a cut connection, no end
learns of that. A user without permission to make such namespaces may make them within a user
namespace (user_namespaces(7)), where the machine permits that.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

INSIDE: Final = "ACPHOLD_NAMESPACE"
"""Set inside of such a namespace of our own."""


def go_inside() -> str:
    """Start this program again in a namespace of its own; return the reason if that is impossible.

    On success this does not return; in the restarted program it returns "".
    """
    if INSIDE in os.environ:
        _run("ip", "link", "set", "lo", "up")
        return ""
    words = ["unshare", "--net"]
    if os.getuid() != 0:
        words += ["--user", "--map-current-user", "--keep-caps"]
    try:
        _run(*words, "bridge", "link")
    except OSError as exc:
        return str(exc)
    except subprocess.CalledProcessError as exc:
        return exc.stderr.strip() or f"{words[0]} ends with {exc.returncode}"
    os.environ[INSIDE] = "1"
    os.execvp(words[0], [*words, sys.executable, *sys.orig_argv[1:]])


class Plug:
    """The cable between a machine and a switch: a `tests.web.network.Way`."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._is_stalled = False

    def cut(self) -> None:
        self.go_down()
        self.come_up()

    def go_down(self) -> None:
        _run("ip", "link", "set", self._name, "down")
        self._is_stalled = False  # the switch starts over when a machine is plugged in

    def stall(self) -> None:
        _run("bridge", "link", "set", "dev", self._name, "state", "0")
        self._is_stalled = True

    def come_up(self) -> None:
        _run("ip", "link", "set", self._name, "up")
        if self._is_stalled:
            _run("bridge", "link", "set", "dev", self._name, "state", "3")
            self._is_stalled = False


def switches(networks: Mapping[str, str]) -> None:
    """Make switches of these names, into which we are plugged with these addresses."""
    for name, address in networks.items():
        _run("ip", "link", "add", name, "type", "bridge")
        _run("ip", "address", "add", f"{address}/24", "dev", name)
        _run("ip", "link", "set", name, "up")


@contextmanager
def namespace(
    number: int, addresses: Mapping[str, str]
) -> Iterator[tuple[list[str], dict[str, Plug]]]:
    """One that has these addresses at these switches, until the end of the block.

    The words with which a command begins that goes on inside, and its plugs.
    """
    holder = subprocess.Popen(
        ["unshare", "--net", "sh", "-c", "echo; exec sleep infinity"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline(), "it has ended"
        inside = ["nsenter", f"--net=/proc/{holder.pid}/ns/net"]
        _run(*inside, "ip", "link", "set", "lo", "up")
        plugs = {name: Plug(f"{name}{number}") for name in addresses}
        for name, address in addresses.items():
            plug, ours = f"{name}{number}", ("peer", "name", name, "netns", str(holder.pid))
            _run("ip", "link", "add", plug, "type", "veth", *ours)
            _run("ip", "link", "set", plug, "master", name, "up")
            _run(*inside, "ip", "address", "add", f"{address}/24", "dev", name)
            _run(*inside, "ip", "link", "set", name, "up")
        yield inside, plugs
    finally:
        holder.kill()
        holder.communicate()


def _run(*words: str) -> None:
    subprocess.run(words, check=True, capture_output=True, text=True, stdin=subprocess.DEVNULL)
