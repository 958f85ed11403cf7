"""The rules for the MCP servers of a session, and the server with one tool that they are shown.

Sources: MCP 2025-06-18, transports, "Streamable HTTP"; MCP 2024-11-05, transports, "HTTP with SSE".
"""

from __future__ import annotations

import asyncio
import json
import os
import queue
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

from acp_check import bounds, tool_server
from acp_check.checks import EXPECTED, MUST, SHOULD, Rules
from acp_check.dialogue import Dialogue, Silence
from acp_check.errands import GREET, Errand
from acp_check.model_endpoint import StandInHandler, StandInServer, serving
from acp_check.record import Json
from acp_check.rules.beginnings import plain_session
from acp_check.rules.prompt_turns import plain_turn
from acp_check.stage import CheckedSession, Stage
from acp_check.tool_server import reply
from acp_check.verdicts import NotObservable, Reach, RuleSource, Signal, Violation
from acp_wire.processes.own_python import own_python

RULES = Rules()


class ToolEndpoint:
    """A running server. `calls` are the received methods, in order, with their path and which of
    `KEY_HEADERS` was missing, "" if none."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.calls: list[tuple[str, str, str]] = []
        self.closed = False
        self.streams: dict[str, queue.Queue[Json]] = {}

    def url(self, path: str) -> str:
        """Return the URL of `/mcp` or `/sse`."""
        return f"http://127.0.0.1:{self.port}{path}"

    def came(self, method: str, path: str) -> bool:
        """Return True if a message of this method was received on this path."""
        return (method, path) in [call[:2] for call in [*self.calls]]


@contextmanager
def served() -> Iterator[ToolEndpoint]:
    """Run an endpoint on a free port of this machine, for the block."""
    server = _ToolServer(("127.0.0.1", 0), _ToolHandler)
    server.endpoint = endpoint = ToolEndpoint(server.server_port)
    with serving(server, "tool endpoint"):
        try:
            yield endpoint
        finally:
            endpoint.closed = True


class _ToolServer(StandInServer):
    endpoint: ToolEndpoint


class _ToolHandler(StandInHandler):
    server: _ToolServer

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers.get("content-length", 0)))
        try:
            message = json.loads(raw)
        except ValueError:
            self._send(400, b"")
            return
        path, _, stream = self.path.partition("?")
        shown = "/sse" if path == "/messages" else path
        lost = [name for name in KEY_HEADERS if self.headers.get(name) != KEY]
        self.server.endpoint.calls.append((str(message.get("method")), shown, "".join(lost[:1])))
        answer = reply(message)
        if path == "/messages":
            waiting = self.server.endpoint.streams.get(stream)
            if waiting is not None and answer is not None:
                waiting.put(answer)
            self._send(202 if waiting is not None else 404, b"")
        elif path != "/mcp":
            self._send(404, b"")
        elif answer is None:
            self._send(202, b"")
        else:
            self._send(200, json.dumps(answer).encode())

    def do_GET(self) -> None:
        if self.path != "/sse":
            self._send(405, b"")
            return
        endpoint = self.server.endpoint
        stream = f"s{len(endpoint.streams) + 1}"
        messages = endpoint.streams[stream] = queue.Queue()
        self.begin_stream()
        with suppress(ConnectionError):  # the client has gone
            self.event(f"/messages?{stream}", "endpoint")
            while not endpoint.closed:
                with suppress(queue.Empty):
                    self.event(messages.get(timeout=bounds.STREAM_LOOK_SECONDS), "message")

    def do_DELETE(self) -> None:
        self._send(200, b"")

    def _send(self, status: int, body: bytes) -> None:
        with suppress(ConnectionError):  # the client has gone
            self.answer(body, status)


# -- the rules ------------------------------------------------------------------------------

PAGE = "Session Setup"
STDIO = RuleSource(PAGE, "Stdio Transport")
HTTP = RuleSource(PAGE, "HTTP Transport")
SSE = RuleSource(PAGE, "SSE Transport")
SERVERS = RuleSource(PAGE, "MCP Servers")

KEY = "check-key-93"
KEY_HEADERS = ("X-Check-Key", "X-Check-Word")
ODD_ARGUMENTS = ("two words", "it's", "$HOME", "", "-- *")
"""Arguments that a shell would interpret."""
CALL = Errand("call", tool_server.TOOL)


class Log:
    """The log of a stdio server: each message it received."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def entries(self) -> list[Json]:
        """Return every entry so far."""
        try:
            lines = self.path.read_text(encoding="utf-8").splitlines()
        except FileNotFoundError:
            return []
        return [json.loads(line) for line in lines]

    def of(self, method: str) -> list[Json]:
        """Return the entries of one method."""
        return [entry for entry in self.entries() if entry["method"] == method]


def server(stage: Stage, name: str, *more: str) -> tuple[Log, Json]:
    """Return our own stdio server: its log, and its description for `session/new`."""
    log = Log(stage.folder / f"{name}.log")
    program, *words = own_python("-I", tool_server.__file__, str(log.path), *more)
    named = {
        "name": name,
        "command": program,
        "args": words,
        "env": [{"name": name, "value": KEY} for name in tool_server.KEY_VARIABLES],
    }
    return log, named


async def wait_until(found: Callable[[], object], seconds: float) -> bool:
    """Wait until `found()` is true; return False after so many seconds."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    while not found():
        if loop.time() > deadline:
            return False
        await asyncio.sleep(bounds.LOG_LOOK_SECONDS)
    return True


async def _connects(
    stage: Stage, dialogue: Dialogue, session: CheckedSession, found: Callable[[], object]
) -> bool:
    """Return True if a server is connected: with the session, or in a turn that asks for its tool.

    Some agents connect only then. It is the end of such a turn, not a time limit, that shows that
    an agent does not connect; raises NotObservable if there is none.
    """
    patience = stage.settings.patience
    if await wait_until(found, patience):
        return True
    for _ in range(bounds.CALLING_TURNS):
        await stage.need_turn(dialogue, session, CALL)
        if await wait_until(found, patience):  # a busy machine takes long to start it
            return True
    return False


def _loading_seconds(stage: Stage) -> float:
    """Return the longest time in which an agent that connects loads its MCP client."""
    return bounds.START_TIMEOUTS * stage.settings.timeout


async def _initializes(stage: Stage, dialogue: Dialogue, session: CheckedSession, log: Log) -> bool:
    """Return True if a server on stdio is connected; one that was started may be so much later."""
    done = partial(log.of, "initialize")
    if await _connects(stage, dialogue, session, done):
        return True
    return bool(log.of("start")) and await wait_until(done, _loading_seconds(stage))


async def with_server(stage: Stage) -> tuple[Log, CheckedSession, Dialogue]:
    """Make a session with a stdio server, which the agent has connected."""
    await stage.need(plain_session)
    dialogue = await stage.meet("tools", stays=True)
    log, named = server(stage, "walnuts", *ODD_ARGUMENTS)
    session = await stage.new_session(dialogue, mcpServers=[named])
    if not await _initializes(stage, dialogue, session, log):
        why = "the agent never started the server"
        if log.of("start"):
            why = "the agent started the server, but never initialized it"
        raise Violation(why, *session.answer.lines)
    return log, session, dialogue


@RULES.case("mcp.stdio", MUST, STDIO)
async def stdio(stage: Stage) -> None:
    """The agent starts a server on stdio and talks to it."""
    await stage.judge(with_server)


@RULES.case("mcp.environment", MUST, STDIO)
async def environment(stage: Stage) -> None:
    """A server on stdio gets its arguments and environment variables."""
    log, session, _ = await stage.need(with_server)
    for entry in log.of("start"):
        for name, value in entry["keys"].items():
            if value != KEY:
                raise Violation(f"its environment lacks {name}", *session.answer.lines)
        if entry["arguments"] != [*ODD_ARGUMENTS]:
            why = f"its arguments are {entry['arguments']}"
            raise Violation(why, *session.answer.lines)


@RULES.case("mcp.all", SHOULD, SERVERS)
async def every_one(stage: Stage) -> None:
    """The agent connects to all servers of a session."""
    await stage.need(with_server)
    dialogue = await stage.meet("several tools")
    servers = [server(stage, name) for name in ("hazel", "pecan")]
    session = await stage.new_session(dialogue, mcpServers=[named for _, named in servers])
    for log, _ in servers:
        if not await _initializes(stage, dialogue, session, log):
            raise Violation(
                f"the agent never connected to the server {log.path.stem}", *session.answer.lines
            )


@RULES.case("mcp.tools-listed", SHOULD, SERVERS)
async def tools_listed(stage: Stage) -> None:
    """The agent asks a server for its tools."""
    log, session, dialogue = await stage.need(with_server)
    found = await _connects(stage, dialogue, session, lambda: log.of("tools/list"))
    if not found:
        raise Violation("the agent never asked the server for its tools", *session.answer.lines)


@RULES.case("mcp.tool-used", EXPECTED, SERVERS)
async def tool_used(stage: Stage) -> None:
    """The model can call a tool of a server."""
    await stage.need(plain_turn)
    await stage.need(with_server)
    dialogue = await stage.meet("a tool is called")
    [log], session = await _sessions_with_servers(stage, dialogue, "chestnut")
    turn = await stage.prompt(dialogue, session, CALL)
    if not log.of("tools/call"):
        raise NotObservable("the agent did not call the tool that it was asked to call")
    if tool_server.SECRET not in str([line.raw for line in turn.updates]):
        raise Violation("no update has the tool's answer", turn.asked, *turn.updates)


async def _sessions_with_servers(
    stage: Stage, dialogue: Dialogue, *names: str
) -> tuple[list[Log], CheckedSession]:
    """Make a session with a server for each name, and give the agent time to connect it.

    Return all logs, and the last session.
    """
    logs = []
    for name in names:
        log, named = server(stage, name)
        session = await stage.new_session(dialogue, mcpServers=[named])
        lists_tools = partial(log.of, "tools/list")
        if not await wait_until(lists_tools, stage.settings.patience):
            with suppress(Signal):  # some agents connect with the first prompt
                await stage.prompt(dialogue, session, GREET)
            await wait_until(lists_tools, stage.settings.patience)
        logs.append(log)
    return logs, session


@RULES.case("mcp.own-session", EXPECTED, RuleSource(PAGE, ""))
async def own_session(stage: Stage) -> None:
    """A session has only the tools of its own servers."""
    await stage.need(plain_turn)
    await stage.need(with_server)
    dialogue = await stage.meet("tools of two sessions")
    logs, session = await _sessions_with_servers(stage, dialogue, "almond", "macadamia")
    turn = await stage.prompt(dialogue, session, CALL)
    first, second = [log.of("tools/call") for log in logs]
    if not first and not second:
        raise NotObservable("the agent did not call the tool that it was asked to call")
    if first:
        raise Violation("the agent called the server of another session", turn.asked, *turn.updates)
    bare = await stage.prompt(dialogue, await stage.new_session(dialogue), CALL)
    if len(logs[0].of("tools/call")) + len(logs[1].of("tools/call")) > len(second):
        why = "a session without servers called the server of another session"
        raise Violation(why, bare.asked, *bare.updates)


@RULES.case("mcp.closed", EXPECTED, RuleSource(PAGE, "Closing a Session"), "close")
async def end_on_close(stage: Stage) -> None:
    """Closing a session ends its servers, and no others."""
    await stage.need(with_server)
    dialogue = await stage.meet("tools of a closed session")
    logs, session = await _sessions_with_servers(stage, dialogue, "pistachio", "cashew")
    others, pids = map(_pids, logs)
    if not pids or not all(map(_runs, pids | others)):
        raise NotObservable("no server was running")
    answer = await dialogue.ask("session/close", {"sessionId": session.id})
    answer.require_result()
    ended = await wait_until(lambda: not any(map(_runs, pids)), bounds.SERVER_END_SECONDS)
    if not all(map(_runs, others)):
        raise Violation("the server of another session has ended", *answer.lines)
    if not ended:
        raise Violation(
            f"a server of the session still runs {bounds.SERVER_END_SECONDS:g} s later",
            *answer.lines,
        )


@RULES.case("mcp.ended", EXPECTED, SERVERS, only=Reach.PROGRAM)
async def end_with_agent(stage: Stage) -> None:
    """The servers of an agent end with it."""
    await stage.need(with_server)
    dialogue = await stage.meet("tools at the end")
    [log], _ = await _sessions_with_servers(stage, dialogue, "brazil")
    pids = _pids(log)
    if not pids:
        raise NotObservable("no server was running")
    if await dialogue.hang_up(5.0) is None:
        raise NotObservable("the agent did not end by itself")
    if not await wait_until(lambda: not any(map(_runs, pids)), 2.0):
        raise Violation("a server still runs 2 s after the end of the agent")


def _pids(log: Log) -> set[int]:
    """Return the processes of a server."""
    return {int(entry["pid"]) for entry in log.entries()}


def _runs(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        if os.path.exists("/proc/self/stat"):
            return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


# -- behind a URL ---------------------------------------------------------------------------


async def _behind_url(stage: Stage, kind: str, path: str) -> None:
    await stage.need(plain_session)
    with served() as endpoint:
        dialogue = await stage.meet(f"tools over {kind}")
        headers = [{"name": name, "value": KEY} for name in KEY_HEADERS]
        named = {"type": kind, "name": "walnuts", "url": endpoint.url(path), "headers": headers}
        session = await stage.new_session(dialogue, mcpServers=[named])
        came = partial(endpoint.came, "initialize", path)
        if not await _connects(stage, dialogue, session, came):
            await stage.need(with_server)  # an agent that connects to no server fails only once
            if not await wait_until(came, _loading_seconds(stage)):
                raise Violation("the agent never connected to the server", *session.answer.lines)
        for method, where, lost in [*endpoint.calls]:
            if where == path and lost:
                why = f"the agent sent {method} without the header {lost}"
                raise Violation(why, *session.answer.lines)


@RULES.case("mcp.http", MUST, HTTP, "http")
async def http(stage: Stage) -> None:
    """The agent talks to a server over HTTP, with its headers."""
    await _behind_url(stage, "http", "/mcp")


@RULES.case("mcp.sse", MUST, SSE, "sse")
async def sse(stage: Stage) -> None:
    """The agent talks to a server over SSE, with its headers."""
    await _behind_url(stage, "sse", "/sse")


# -- opened again ---------------------------------------------------------------------------


async def _open_again(stage: Stage, how: str) -> None:
    await stage.need(with_server)
    # An open session may be shared between connections, and then keeps the servers it has.
    session = await stage.session_to_reopen(f"before session/{how}", GREET)
    dialogue = await stage.meet(f"tools of session/{how}", is_restart=True)
    log, named = server(stage, f"session-{how}")
    answer = await stage.reopen(dialogue, how, session, mcpServers=[named])
    answer.require_result()
    if not await _initializes(stage, dialogue, session, log):
        raise Violation("the agent never connected to the server", *answer.lines)


@RULES.case("mcp.on-load", SHOULD, RuleSource(PAGE, "Loading a Session"), "load")
async def on_load(stage: Stage) -> None:
    """A load connects to the servers that it names."""
    await _open_again(stage, "load")


@RULES.case("mcp.on-resume", SHOULD, RuleSource(PAGE, "Resuming a Session"), "resume")
async def on_resume(stage: Stage) -> None:
    """A resume connects to the servers that it names."""
    await _open_again(stage, "resume")


# -- broken ---------------------------------------------------------------------------------


async def _in_spite_of(stage: Stage, name: str, named: Json) -> None:
    """Make a session with a useless server: it may be refused, but must not hang."""
    await stage.need(plain_turn)
    dialogue = await stage.meet(name)
    try:
        answer = await dialogue.ask(
            "session/new", stage.params(mcpServers=[named]), seconds=2 * dialogue.timeout
        )
        if answer.is_refused:
            return  # refused with a reason, so the person knows what to do
        session = CheckedSession.of(answer, str(stage.work))
        await stage.prompt(dialogue, session, GREET)
    except Silence as silence:
        raise Violation(f"with a broken server, {silence.why}", *silence.lines) from None


@RULES.case("mcp.missing", EXPECTED, SERVERS)
async def missing(stage: Stage) -> None:
    """A server that does not start does not block the agent."""
    named: Json = {"name": "gone", "command": "/no/such/server", "args": [], "env": []}
    await _in_spite_of(stage, "missing server", named)


@RULES.case("mcp.silent", EXPECTED, SERVERS, beside=True)
async def silent(stage: Stage) -> None:
    """A server that never answers does not block the agent."""
    _, named = server(stage, "silent", "silent")
    await _in_spite_of(stage, "silent server", named)
