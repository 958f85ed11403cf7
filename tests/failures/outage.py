"""Editors whose database is away for a while; run by itself, it prints what became of each.

python -m tests.failures.outage KIND SECONDS [TIMES]
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from shutil import rmtree
from typing import Any, NamedTuple

import psutil

from tests.editor import Editor, Refused, allow, introduced, wrapped
from tests.postgresql import Server, pooled
from tests.timelines import Database, database
from tests.web.network import Network, network, own_port

PIECES = 100
PACE = 0.1

PATIENCE = 60.0
"""Seconds after an outage in which all goes on: a pooler takes 15 to look again."""

LIBRARY = f"""
import asyncio, acphold

agent = acphold.Agent("paced", version="1")

@agent.prompt
async def pace(turn):
    for number in range({PIECES}):
        await turn.say(f"#{{number}} ")
        await asyncio.sleep({PACE})

agent.run()
"""
IN_OUR_PROCESS = (sys.executable, "-c", LIBRARY)

PERMISSION = "session/request_permission"
ASK: Any = {
    "toolCall": {"toolCallId": "c", "title": "Remove it"},
    "options": [{"optionId": "yes", "name": "Allow", "kind": "allow_once"}],
}


async def nothing() -> None:
    pass


class Away(NamedTuple):
    """A server, the URL by which editors reach it, and how it comes to be away for a block; it may
    have forgotten what came behind `remember`."""

    url: str
    outage: Callable[[], Any]
    remember: Callable[[], Awaitable[None]] = nothing
    direct: str = ""


@contextmanager
def own_server(**settings: str) -> Iterator[Server]:
    """A server that runs for the block."""
    server = Server(Path(tempfile.mkdtemp(prefix="acphold-pg-")), 18, **settings)
    server.make()
    server.start()
    try:
        yield server
    finally:
        server.stop()
        rmtree(server.folder)


@contextmanager
def ended(server: Server) -> Iterator[None]:
    """It has ended for the block, as in a restart or a failover."""
    server.stop()
    try:
        yield
    finally:
        server.start()


@contextmanager
def frozen(server: Server) -> Iterator[None]:
    """It answers nothing for the block, and its connections stand."""
    first = int((server.folder / "data" / "postmaster.pid").read_text().split()[0])
    found = [psutil.Process(first), *psutil.Process(first).children(recursive=True)]
    for process in found:
        process.suspend()
    try:
        yield
    finally:
        for process in found:
            process.resume()


@contextmanager
def failed_over(lagging: Database) -> Iterator[None]:
    """It crashes, and behind the block a standby takes its place that lacks the last writes."""
    lagging.crash()
    try:
        yield
    finally:
        lagging.promote()


@contextmanager
def cut(net: Network, fail: Callable[[], None]) -> Iterator[None]:
    """The way to it carries nothing for the block."""
    fail()
    try:
        yield
    finally:
        net.come_up()


@asynccontextmanager
async def away(kind: str) -> AsyncIterator[Away]:
    """A server that can be away in this way."""
    async with AsyncExitStack() as stack:
        if kind == "failed over":
            lagging = stack.enter_context(database())
            yield Away(lagging.url, lambda: failed_over(lagging), lagging.remember)
            return
        is_far = kind in ("severed", "stalled")
        settings = {"listen_addresses": "127.0.0.1", "port": str(own_port())} if is_far else {}
        server = stack.enter_context(own_server(**settings))
        url, way = server.url(), kind
        if kind.startswith("pooled "):
            url = stack.enter_context(pooled(server)).url("postgres")
            way = kind.removeprefix("pooled ")
        elif is_far:
            net = await stack.enter_async_context(network())
            net.to = int(server.port)
            url = f"postgresql://owner@127.0.0.1:{net.port}/postgres"
            fail = net.go_down if kind == "severed" else net.stall
            yield Away(url, lambda: cut(net, fail), direct=server.url())
            return
        yield Away(url, lambda: {"ended": ended, "frozen": frozen}[way](server))


KINDS = ("failed over", "ended", "frozen", "severed", "stalled", "pooled ended", "pooled frozen")


def numbers(text: str) -> list[int]:
    """The numbers that a paced agent has said, in order."""
    return [int(word) for word in re.findall(r"#(\d+) ", text)]


async def outcome(turn: Awaitable[Any], reason: str = "end_turn") -> str:
    """How a turn ended, in a word if for this reason; otherwise what was said."""
    try:
        async with asyncio.timeout(PATIENCE):
            ended = await turn
    except Refused as refused:
        return str(refused.error.get("message"))
    except TimeoutError:
        return "does not end"
    return "goes on" if ended == {"stopReason": reason} else str(ended)


def was_asked(one: Editor) -> bool:
    return any(it.get("method") == PERMISSION for it in one.messages)


async def live_through(kind: str, seconds: float, folder: Path) -> dict[str, str]:
    """What became of each state that an editor may be in when the database goes away for so many
    seconds: "goes on" where nobody would notice, but for a word about it."""
    go = folder / "go"
    asked = asyncio.Event()
    later = asyncio.Event()
    found: dict[str, str] = {}
    async with away(kind) as there, AsyncExitStack() as stack:

        async def editor() -> tuple[Editor, str]:
            made = await stack.enter_async_context(wrapped(there.url))
            return made, await made.new()

        streaming, session = await editor()
        turn = streaming.begin_prompt(session, {"paced": [PIECES, PACE]})
        queued = streaming.begin_prompt(session, {"say": "queued"})
        silent, in_silence = await editor()
        still = silent.begin_prompt(in_silence, {"until": str(go)}, {"say": "done"})
        asking = [await editor() for _ in range(2)]
        waiting = []
        for (one, where), when in zip(asking, (asked, later), strict=True):

            async def answer(params: Any, when: asyncio.Event = when) -> Any:
                await when.wait()
                return allow(params)

            one.answers[PERMISSION] = answer
            waiting.append(one.begin_prompt(where, {"ask": [PERMISSION, ASK]}))
        late, lately = await editor()
        late.answers[PERMISSION] = allow
        asks = late.begin_prompt(lately, {"until": str(go)}, {"ask": [PERMISSION, ASK]})
        stopping, in_vain = await editor()
        cancelled = stopping.begin_prompt(in_vain, {"until": "cancel"}, {"stop": "cancelled"})
        ours = await stack.enter_async_context(introduced(IN_OUR_PROCESS, journal=there.url))
        in_ours = await ours.new()
        by_library = ours.begin_prompt(in_ours, "begin")
        resting, at_rest = await editor()
        await resting.prompt(at_rest, {"say": "one"})
        await streaming.until_text("#5 ")
        await there.remember()
        await streaming.until_text("#20 ")
        for one, _ in asking:
            await one.until(partial(was_asked, one))
        with there.outage():
            asked.set()
            stopping.tell("session/cancel", {"sessionId": in_vain})
            go.touch()
            in_between = resting.begin_prompt(at_rest, {"say": "two"})
            await asyncio.sleep(seconds)
        later.set()
        found["streaming"] = await outcome(turn)
        found["streaming, a library"] = await outcome(by_library)
        found["queued behind it"] = await outcome(queued)
        found["silent, ends meanwhile"] = await outcome(still)
        found["question, answered meanwhile"] = await outcome(waiting[0])
        found["question, answered afterwards"] = await outcome(waiting[1])
        found["question, asked meanwhile"] = await outcome(asks)
        found["cancelled meanwhile"] = await outcome(cancelled, "cancelled")
        found["at rest, prompted meanwhile"] = await outcome(in_between)
        found["at rest, prompted afterwards"] = await outcome(
            resting.begin_prompt(at_rest, {"say": "three"})
        )
        again = await stack.enter_async_context(wrapped(there.url))
        shows: tuple[tuple[Editor, str, str, Any], ...] = (
            (streaming, session, "streaming", [*range(PIECES)]),
            (ours, in_ours, "streaming, a library", [*range(PIECES)]),
            (silent, in_silence, "silent, ends meanwhile", "done"),
            (resting, at_rest, "at rest, prompted meanwhile", "two"),
        )
        for one, where, key, said in shows:
            await again.load(where)
            for shown in (one.text(), again.text(session_id=where)):
                is_whole = numbers(shown) == said if "streaming" in key else shown.count(said) == 1
                if not is_whole and found[key] == "goes on":
                    found[key] = f"shows {shown!r}"
    return found


def main(kind: str, seconds: str, times: str = "1") -> None:
    """Print the table."""
    for _ in range(int(times)):
        with tempfile.TemporaryDirectory() as folder:
            os.environ["XDG_RUNTIME_DIR"] = folder
            found = asyncio.run(live_through(kind, float(seconds), Path(folder)))
        for state, became in found.items():
            sys.stdout.write(f"{kind:14} {seconds:>4} s  {state:32} {became[:110]}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
