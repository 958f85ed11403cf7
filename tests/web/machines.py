"""Several machines that serve one journal, each with a network of its own before it."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    AsyncExitStack,
    asynccontextmanager,
    contextmanager,
)
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import acphold
from tests.cli.command_line import run_here
from tests.web.certificates import Authority
from tests.web.conftest import AGENT, Served, serving
from tests.web.network import Network, network, own_port


@dataclass
class Node:
    """A machine: its server, and the network by which the others reach it."""

    served: Served
    net: Network

    def client(self) -> AbstractAsyncContextManager[acphold.RemoteAgent]:
        return acphold.connect(self.served.url, token=self.served.token())

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """Its server and its daemon stand still for the block."""
        self.served.signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self.served.signal(signal.SIGCONT)


@asynccontextmanager
async def machines(
    location: str,
    folder: Path,
    number: int = 2,
    *,
    of_each: Sequence[Mapping[str, str]] = (),
    agent: tuple[str, ...] = AGENT,
    authority: Authority | None = None,
) -> AsyncIterator[list[Node]]:
    """None of them sees the sockets of another. `of_each` are variables that only one has. They
    speak TLS if an `authority` has signed for them, which no machine trusts by itself."""
    made: list[Node] = []
    scheme, of_tls = ("http", ()) if authority is None else ("https", authority.options)
    trusted = {} if authority is None else {"SSL_CERT_FILE": str(authority.ca)}
    journal = {"ACPHOLD_JOURNAL": location}
    env = {**os.environ, **journal, "XDG_STATE_HOME": str(folder)}
    token = run_here(("access", "token", "--node"), env).out.strip()
    async with AsyncExitStack() as stack:
        for n in range(number):
            net = await stack.enter_async_context(network())
            net.to = own_port()
            own = of_each[n] if of_each else {}
            runtime = stack.enter_context(TemporaryDirectory(dir="/tmp"))
            served = await stack.enter_async_context(
                beside(
                    serving(
                        folder / f"node{n}",
                        *("--listen", f"127.0.0.1:{net.to}"),
                        *("--url", f"{scheme}://localhost:{net.to}"),
                        *("--node", f"{scheme}://localhost:{net.port}", *of_tls),
                        agent=agent,
                        variables={
                            **journal,
                            "XDG_RUNTIME_DIR": runtime,
                            "ACPHOLD_NODE_TOKEN": token,
                            **trusted,
                            **own,
                        },
                        inside=alone_with(runtime),
                    )
                )
            )
            made.append(Node(served, net))
        yield made


def alone_with(folder: str) -> tuple[str, ...]:
    """Words before a command that give it a folder of this name which nobody else sees: its own
    sockets, as on another machine."""
    script = f'mount -t tmpfs none {folder} && chmod 700 {folder} && exec "$@"'
    return ("unshare", "--mount", "--propagation", "private", "sh", "-c", script, "sh")


@asynccontextmanager
async def beside(serves: AbstractContextManager[Served]) -> AsyncIterator[Served]:
    """Begin and end it in a thread: the networks that it needs for that may be in this loop."""
    served = await asyncio.to_thread(serves.__enter__)
    try:
        yield served
    finally:
        await asyncio.to_thread(serves.__exit__, None, None, None)
