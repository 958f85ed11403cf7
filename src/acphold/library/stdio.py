"""An agent of the library on stdin and stdout.

An editor waits for the answer to `initialize`, which the declarations are enough for. So it is
given first, and what sessions need is loaded behind it: requests that follow wait in the pipe.
"""

# See docs/decisions.md, 25.

from __future__ import annotations

import asyncio
import gc
import logging
import os
import sys
from select import select

from msgspec import Struct

from acp_wire.rpc import Protocol, RequestReceived
from acp_wire.schema import INITIALIZE, InitializeRequest, decode
from acp_wire.transports.pipes import PipeTransport
from acp_wire.transports.stdio import claim_stdio
from acphold.errors import AcpError
from acphold.library import bounds
from acphold.library.definition import Definition, capabilities_of, introduction
from acphold.live.agents.capabilities import answer_for_client, in_version_1, offer_of
from acphold.serve_options import AgentOptions

log = logging.getLogger(__name__)

FIRST_BYTES = 64 * 1024
"""Most bytes of an `initialize` that is answered before the server is imported."""


def claim_stdio_as(name: str) -> tuple[int, int]:
    """Claim our stdin and stdout for the protocol; on a terminal, explain what `name` is."""
    if sys.stdin is not None and sys.stdin.isatty():
        print(  # noqa: T201 — to a person at a terminal
            f"{name}: this is an ACP agent and waits for an editor on stdin; "
            "name this command in your editor's settings",
            file=sys.stderr,
        )
    return claim_stdio()


def run_on(definition: Definition, streams: tuple[int, int], options: AgentOptions) -> None:
    """Serve on two descriptors, one to read and one to write; otherwise as `Agent.run`."""
    greeting = greet(definition, streams, options)
    was_on = gc.isenabled()
    gc.disable()  # as in `quick_start`
    from acphold.library.server import service_of
    from acphold.live.server.service import serve, stop_at_signals

    gc.freeze()  # what was imported stays, the author's modules too: see `cli.start`
    if was_on:
        gc.enable()
    if 0 < gc.get_threshold()[0] < bounds.GARBAGE_AFTER:
        gc.set_threshold(bounds.GARBAGE_AFTER)
    ready = asyncio.Event()

    async def serve_until_signal() -> None:
        stop = stop_at_signals()
        ready.set()
        transport = PipeTransport(*streams, greeting.rest)
        transport.send(greeting.unsent)
        service = service_of(definition, options)
        await serve(transport, service, stop=stop, introduction=greeting.introduction)

    with asyncio.Runner() as runner:
        loop = runner.get_loop()
        serving = loop.create_task(serve_until_signal(), name="serve")
        while not serving.done():
            try:
                loop.run_until_complete(serving)
            except (SystemExit, KeyboardInterrupt) as exc:
                # asyncio lets these two out of any task. From here on signals set `stop`, so this
                # one was raised by a task of the agent's code. Only that task ends.
                if serving.done() or not ready.is_set():
                    raise
                log.error("a task of the agent's code ended with %r", exc, exc_info=exc)


class Greeting(Struct, frozen=True):
    """The params of an `initialize` that is answered; how much of the answer could not be sent
    yet; and what else was read."""

    introduction: bytes | None = None
    unsent: bytes = b""
    rest: bytes = b""


def greet(definition: Definition, streams: tuple[int, int], options: AgentOptions) -> Greeting:
    """Answer `initialize` if it has arrived; waits for nothing.

    The answer is that of `ClientConnection`, which also reports what is wrong with a request.
    """
    reading, writing = streams
    try:
        data = os.read(reading, FIRST_BYTES) if select([reading], [], [], 0)[0] else b""
    except (OSError, ValueError):  # the transport meets it again, or `select` knows no such number
        return Greeting()
    line, end, rest = data.partition(b"\n")
    match Protocol(options.max_message).feed(line + end):
        case [RequestReceived(id=id_, method=INITIALIZE.name, params=params)]:
            pass
        case _:
            return Greeting(rest=data)
    try:
        params = in_version_1(params or b"{}")
        offer = offer_of(decode(InitializeRequest, params).value, params)
    except AcpError:
        return Greeting(rest=data)
    agent = introduction(definition, capabilities_of(definition))
    told = answer_for_client(agent, offer, unstable=options.unstable, keeps_sessions=True)
    answer = Protocol.result(id_, told)
    try:
        sent = os.write(writing, answer)
    except OSError:  # full, or lost
        sent = 0
    return Greeting(params, answer[sent:], rest)
