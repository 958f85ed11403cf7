"""The checker's end of a connection: its messages, and its services for the agent.

Only offered services are available; the rest is refused with -32601, as any client would.

It is not an `rpc.Peer`: a Peer tolerates and hides the faults that the checker looks for, such as
an id of another type, two answers, or a line that is not a message.
"""

# See docs/decisions.md, 34.

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Literal, Protocol, TypeVar

import msgspec

from acp_check import bounds
from acp_check.record import (
    Exchange,
    Json,
    Record,
    RefusalError,
    WireLine,
    id_of,
    loose_id,
    objects,
)
from acp_check.subject import RunningAgent
from acp_check.verdicts import NotObservable, SignInNeeded, Violation
from acp_wire import errors
from acp_wire.schema import decode
from acp_wire.schema.updates import has_capability
from acp_wire.surroundings import Surroundings
from acp_wire.tasks import TaskSet, beside, timeout
from acp_wire.workspace.roots import Roots
from acp_wire.workspace.workspace import Workspace

T = TypeVar("T")

BARE: Json = {}
"""Client capabilities of an editor that offers nothing."""

EQUIPPED: Json = {
    "fs": {"readTextFile": True, "writeTextFile": True},
    "terminal": True,
    "session": {"configOptions": {"boolean": {}}, "notices": {}, "compaction": {}},
    "elicitation": {"form": {}, "url": {}},
    "auth": {"terminal": True},
}
"""Client capabilities of an editor that offers everything."""

Decision = Literal["allow", "reject", "hold", "hold files", "fail"]
"""Answers of a host: `hold` answers no permission until the turn is over, `hold files` reads no
file until then, with `fail` files and terminals fail, as on a full disk."""


class Shell(Protocol):
    """Runs terminal commands; like `workspace.Terminals`, with a fake in tests."""

    async def call(self, method: str, params: Json) -> Json:
        """Return the result of a `terminal/…` method; raises AcpError if it is refused."""

    async def aclose(self) -> None:
        """End the running commands."""


class Host:
    """Answers an agent's requests; `on_hold` is called when one begins to wait, see `deciding`."""

    def __init__(self, offers: Json, shell: Callable[[], Shell]) -> None:
        self.decision: Decision = "allow"
        self.on_hold: Callable[[], None] = lambda: None
        self._offers = offers
        self._new_shell = shell
        self._shell: Shell | None = None
        self._held: list[asyncio.Event] = []

    async def answer(self, method: str, params: Json) -> Json:
        """Return the result; raises AcpError for an error."""
        match method:
            case "session/request_permission":
                if self.decision == "hold":
                    await self._hold()
                    return {"outcome": {"outcome": "cancelled"}}
                wanted = "reject_once" if self.decision == "reject" else "allow_once"
                for option in objects(params.get("options")):
                    if option.get("kind") == wanted:
                        chosen = {"outcome": "selected", "optionId": option.get("optionId")}
                        return {"outcome": chosen}
                return {"outcome": {"outcome": "cancelled"}}
            case _ if self.decision == "fail" and method.startswith(("fs/", "terminal/")):
                raise RefusalError(
                    errors.INTERNAL_ERROR, "this client cannot access files or terminals"
                )
            case "fs/read_text_file" if self.offers("fs", "readTextFile"):
                if self.decision == "hold files":
                    await self._hold()
                return read(params)
            case "fs/write_text_file" if self.offers("fs", "writeTextFile"):
                return write(params)
            case "elicitation/create" if self.offers("elicitation"):
                return {"action": "decline"}
            case _ if method.startswith("terminal/") and self.offers("terminal"):
                if self._shell is None:
                    self._shell = self._new_shell()
                return await self._shell.call(method, params)
        raise RefusalError(errors.METHOD_NOT_FOUND, f"this client has no {method}")

    async def _hold(self) -> None:
        """Wait until the turn is over."""
        held = asyncio.Event()
        self._held.append(held)
        self.on_hold()
        await held.wait()

    @contextmanager
    def deciding(self, decision: Decision) -> Iterator[None]:
        """Answer like this for the block."""
        self.decision = decision
        try:
            yield
        finally:
            self.decision = "allow"
            self.release()

    def offers(self, *path: str) -> bool:
        """Return True if this was offered: present, and neither null nor false."""
        return has_capability(self._offers, *path)

    def release(self) -> None:
        """Answer every held request: a permission as cancelled, because the turn is."""
        held, self._held = self._held, []
        for one in held:
            one.set()

    @property
    def holds(self) -> bool:
        """True if a request waits for an answer."""
        return bool(self._held)

    async def aclose(self) -> None:
        """End the commands that are still running."""
        self.release()
        if self._shell is not None:
            await self._shell.aclose()


def read(params: Json) -> Json:
    """Return the result of `fs/read_text_file`; raises RefusalError."""
    try:
        lines = _path(params).read_text(encoding="utf-8").splitlines(keepends=True)
    except FileNotFoundError as error:
        raise RefusalError(errors.RESOURCE_NOT_FOUND, f"no file {error.filename}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise RefusalError(errors.INTERNAL_ERROR, str(error)) from None
    first = max(_number(params.get("line"), 1), 1) - 1
    limit = _number(params.get("limit"), len(lines))
    return {"content": "".join(lines[first : first + limit])}


def write(params: Json) -> Json:
    """Return the result of `fs/write_text_file`; raises RefusalError."""
    path = _path(params)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(str(params.get("content", "")), encoding="utf-8")
    except OSError as error:
        raise RefusalError(errors.INTERNAL_ERROR, str(error)) from None
    return {}


def _path(params: Json) -> Path:
    path = params.get("path")
    if not isinstance(path, str) or not path.startswith("/"):
        raise RefusalError(errors.INVALID_PARAMS, f"path: {path!r} is not absolute")
    return Path(path)


def _number(value: object, default: int) -> int:
    return value if isinstance(value, int) else default


class RealShell:
    """Runs commands in `folder`."""

    def __init__(self, folder: Path) -> None:
        self._workspace = Workspace(Roots(str(folder)), Surroundings.here())

    async def call(self, method: str, params: Json) -> Json:
        """See `Shell`."""
        answer = await self._workspace.answer(method, msgspec.json.encode(params))
        found: Json = msgspec.json.decode(answer)
        return found

    async def aclose(self) -> None:
        """End the running commands."""
        await self._workspace.aclose()


class Silence(Violation):
    """An answer did not arrive in time."""


class AgentGone(Violation):
    """The agent ended while it was needed."""


class Call(Exchange):
    """A request of ours; its answer is here once it has arrived."""

    @property
    def line(self) -> WireLine:
        """The answer; only once it has arrived."""
        assert self.answer is not None
        return self.answer

    @property
    def code(self) -> object:
        """The code of the error; None for a result."""
        return self.error.get("code")

    @property
    def stop_reason(self) -> object:
        """The stop reason of a prompt's turn; None for an error."""
        return self.result.get("stopReason")

    def require_error(self, unless: str) -> None:
        """Raise Violation for a result; `unless` says what is wrong with it."""
        if not self.is_refused:
            raise Violation(unless, *self.lines)

    def require_cancelled(self, *lines: WireLine) -> None:
        """Raise Violation unless a prompt was answered `cancelled`; `lines` show it."""
        if self.stop_reason != "cancelled":
            found = "an error" if self.is_refused else f"the stop reason {self.stop_reason!r}"
            raise Violation(f"the prompt was answered with {found}", *lines)

    def fitting(self, kind: type[T]) -> T:
        """Return the result as its type; raises Violation for an error or a result that does not
        fit.

        Raises SignInNeeded if the error says so.
        """
        self.require_result()
        try:
            return decode(kind, msgspec.json.encode(self.line.message.get("result"))).value
        except errors.InvalidParamsError as error:
            raise Violation(f"the result of {self.asked.method}: {error}", *self.lines) from None

    def require_result(self) -> None:
        """Raise Violation for an error, SignInNeeded if that is the reason."""
        if self.code == errors.AUTH_REQUIRED:
            raise SignInNeeded(f"{self.asked.method} requires a sign-in", *self.lines)
        if self.is_refused:
            raise Violation(f"{self.asked.method} was answered with an error", *self.lines)


class Dialogue:
    """One connection; run it with `listening`. `timeout`, `quiet` and `late` are seconds."""

    def __init__(
        self,
        running: RunningAgent,
        host: Host,
        record: Record,
        *,
        timeout: float,
        quiet: float,
        late: float,
    ) -> None:
        self.running = running
        self.host = host
        self.record = record
        record.stderr = running.stderr
        self.timeout = timeout
        self.quiet = quiet
        self.late = late
        self.ended = False
        self._last_id = 0
        self._calls: dict[str, Call] = {}
        self._news = asyncio.Event()
        self._may_read = asyncio.Event()
        self._may_read.set()
        host.on_hold = self._news.set
        self._answering = TaskSet()
        self._has_fences = True
        self._leaving = False

    # -- sending --------------------------------------------------------------------------------

    async def ask(
        self, method: str, params: object = msgspec.UNSET, *, seconds: float | None = None
    ) -> Call:
        """Send a request and wait; Silence after `seconds`, AgentGone if the agent has ended."""
        return await self.answer_to(self.begin(method, params), seconds)

    def begin(
        self, method: str, params: object = msgspec.UNSET, *, id: int | str | None = None
    ) -> Call:
        """Send a request, with this `id` if one is given."""
        if id is None:
            self._last_id += 1
            id = self._last_id
        message = {"jsonrpc": "2.0", "id": id, "method": method}
        if params is not msgspec.UNSET:
            message["params"] = params  # type: ignore[assignment]
        return self.expect(self._send(message))

    async def answer_to(self, call: Call, seconds: float | None = None) -> Call:
        """Wait for the answer to a request; raises Silence or AgentGone, as `ask` does."""
        limit = self.timeout if seconds is None else seconds
        try:
            await self.until(lambda: call.answer, limit)
        except Silence:
            self.record.awaited.append(call.asked)
            why = f"{call.asked.method} was not answered within {limit:g} s"
            raise Silence(why, call.asked) from None
        except AgentGone as gone:
            raise AgentGone(
                f"{gone.why} before it answered {call.asked.method}", call.asked
            ) from None
        return call

    def notify(self, method: str, params: object) -> WireLine:
        """Send a notification."""
        return self._send({"jsonrpc": "2.0", "method": method, "params": params})

    def write(self, raw: bytes) -> WireLine:
        """Send a line unchanged; it need not be a message."""
        self.record.broken = True
        self.running.transport.send(raw + b"\n")
        return self.record.add(self._now(), "client", raw)

    def note(self, raw: bytes) -> WireLine:
        """Record a line whose bytes are sent to the transport in pieces."""
        return self.record.add(self._now(), "client", raw)

    def expect(self, asked: WireLine) -> Call:
        """Return a call that waits for the answer to a line already sent."""
        call = self._calls[loose_id(asked)] = Call(asked)
        return call

    def _send(self, message: Json) -> WireLine:
        raw = msgspec.json.encode(message)
        self.running.transport.send(raw + b"\n")
        return self.record.add(self._now(), "client", raw)

    @property
    def has_pending(self) -> bool:
        """True while a request waits for its answer; a fence that was given up does not."""
        return any(call.answer is None for call in self._calls.values())

    # -- waiting ----------------------------------------------------------------------------

    async def until(self, found: Callable[[], T | None], seconds: float | None = None) -> T:
        """Wait until `found()` is not None; raises Silence or AgentGone.

        It is checked with each line, and with each permission that the host holds.
        """
        limit = self.timeout if seconds is None else seconds
        try:
            async with timeout(limit):
                while (value := found()) is None:
                    if self.ended:
                        raise AgentGone(f"the agent ended ({await self._end_in_words()})")
                    self._news.clear()
                    await self._news.wait()
                return value
        except TimeoutError:
            raise Silence(f"nothing arrived within {limit:g} s") from None

    async def is_alive(self) -> bool:
        """Return True if the agent answers any request: being slow breaks no rule."""
        try:
            await self.ask("check/no_such_method", {})
        except (Silence, AgentGone):
            return False
        return True

    async def catch_up(self) -> None:
        """Return when the agent has read everything sent, and has been quiet for a moment.

        It answers an unknown request, by which time it has read everything before it.
        """
        if self._has_fences and not self.ended:
            self._has_fences = await self.fence_answer(self.begin_fence()) is not None
        await self.wait_until_quiet()

    def begin_fence(self) -> Call:
        """Send an unknown request, whose answer shows that all before it was read."""
        return self.begin("_check/fence", {})

    async def fence_answer(self, fence: Call) -> WireLine | None:
        """Return the answer to a fence; None if there is none, which breaks no rule here."""
        try:
            return (await self.answer_to(fence, min(self.timeout, 4 * self.quiet))).line
        except (Silence, AgentGone):
            self._calls.pop(loose_id(fence.asked))
            self.record.awaited = [it for it in self.record.awaited if it is not fence.asked]
            return None

    async def settle(self) -> None:
        """Return when the agent has caught up, and the time for late messages has passed."""
        await self.catch_up()
        await asyncio.sleep(self.late)

    async def wait_until_quiet(self) -> None:
        """Wait until nothing has arrived for `quiet` seconds; at most 8 times as long."""
        for _ in range(8):
            before = len(self.record.lines)
            await asyncio.sleep(self.quiet)
            if len(self.record.lines) == before:
                return

    async def pause_briefly(self) -> None:
        """Wait for `quiet` seconds: `listen` receives earlier output meanwhile."""
        await asyncio.sleep(self.quiet)

    def stop_reading(self) -> None:
        """Stop reading: the agent's output stays in the pipe."""
        self._may_read.clear()

    def resume_reading(self) -> None:
        """Read again."""
        self._may_read.set()

    async def hang_up(self, seconds: float) -> str | None:
        """Close the agent's stdin; return how it ended in time, None if it did not."""
        self._leaving = True
        await self.running.hang_up()
        return await self.running.wait(seconds)

    async def kill(self) -> None:
        """End the agent as `kill -9` does."""
        self._leaving = True
        await self.running.kill()

    async def _end_in_words(self) -> str:
        ended = await self.running.wait(1.0) or "it closed its stdout, but still runs"
        words = self.running.last_words()
        return f"{ended}: {words}" if words else ended

    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    # -- receiving ------------------------------------------------------------------------------

    async def listen(self) -> None:
        """Read the agent's output until it ends."""
        # Not `rpc.framing`, which forgives blank lines.
        unfinished = bytearray()
        try:
            while True:
                await self._may_read.wait()
                chunk = await self.running.transport.receive()
                if not chunk:
                    return
                *ended, rest = chunk.split(b"\n")
                for piece in ended:
                    self._handle(self.record.add(self._now(), "agent", bytes(unfinished + piece)))
                    unfinished.clear()
                unfinished += rest
                del unfinished[bounds.LINE_BYTES :]
                self._news.set()
        except errors.ConnectionLostError:
            return
        finally:
            self.ended = True
            self._news.set()
            if not self._leaving:
                self.record.ended = await self._end_in_words()

    def _handle(self, line: WireLine) -> None:
        """Answer a request of the agent; match a response with our request."""
        if line.is_request:
            self._answering.start(self._serve(line), f"serve {line.method}")
        elif line.is_response:
            # Loosely: an id of another type is judged by a rule of its own.
            call = self._calls.get(loose_id(line))
            if call is not None and call.answer is None:
                call.answer = line

    async def _serve(self, line: WireLine) -> None:
        reply: Json = {"jsonrpc": "2.0", "id": msgspec.Raw(id_of(line))}
        try:
            reply["result"] = await self.host.answer(line.method or "", line.params)
        except errors.AcpError as refused:
            reply["error"] = {"code": refused.code, "message": str(refused)}
        if not self.ended:
            self._send(reply)

    async def aclose(self) -> None:
        """Stop serving and end the agent."""
        self._leaving = True
        await self._answering.aclose()
        await self.host.aclose()
        await self.running.aclose()


@asynccontextmanager
async def listening(dialogue: Dialogue) -> AsyncIterator[Dialogue]:
    """Run `dialogue` for the block, then end the agent."""
    async with beside(dialogue.listen(), "checker listens"):
        try:
            yield dialogue
        finally:
            await dialogue.aclose()


def unobservable(signal: Violation) -> NotObservable:
    """Return the signal for checks that need something which went wrong."""
    return NotObservable(signal.why, *signal.lines)
