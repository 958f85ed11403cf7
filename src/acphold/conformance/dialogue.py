"""The checker's end of one connection: asks, tells, waits for a bounded time, records all of it.

It is no `rpc.Peer`, for a Peer forgives and hides what is to be seen here: an id of another type,
two answers, a line that is no message.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

import msgspec

from acphold.conformance.host import Host, Refused
from acphold.conformance.record import Json, Line, Record, id_of, likeness, result_of
from acphold.conformance.subject import Running
from acphold.conformance.verdicts import NotObservable, SignInNeeded, Violation
from acphold.errors import AUTH_REQUIRED, ConnectionLostError, InvalidParamsError
from acphold.schema import decode

T = TypeVar("T")

MAX_LINE = 64 << 20
"""Bytes that are kept of a line which does not end."""


class Silence(Violation):
    """An answer that did not come in time."""


class Gone(Violation):
    """The agent ended while it was needed."""


class Answer:
    """How a request was answered: `asked` and `line` are the two lines."""

    def __init__(self, asked: Line, line: Line) -> None:
        self.asked = asked
        self.line = line
        error = line.message.get("error")
        self.error: Json | None = error if isinstance(error, dict) else None
        self.result = result_of(line)

    @property
    def lines(self) -> tuple[Line, Line]:
        return self.asked, self.line

    @property
    def code(self) -> object:
        """The code of the error; None for a result."""
        return None if self.error is None else self.error.get("code")

    @property
    def stop_reason(self) -> object:
        """How the turn ended, for a prompt; None for an error."""
        return self.result.get("stopReason")

    def refused(self, unless: str) -> None:
        """Raise Violation for a result; `unless` says what is wrong with it."""
        if self.error is None:
            raise Violation(unless, *self.lines)

    def fitting(self, kind: type[T]) -> T:
        """The result as its type; Violation for an error and for what does not fit it.

        SignInNeeded where the agent says so.
        """
        self.succeeded()
        try:
            return decode(kind, msgspec.json.encode(self.line.message.get("result"))).value
        except InvalidParamsError as error:
            raise Violation(f"the result of {self.asked.method}: {error}", *self.lines) from None

    def succeeded(self) -> None:
        """Raise Violation for an error, SignInNeeded if that is the reason."""
        if self.code == AUTH_REQUIRED:
            raise SignInNeeded(f"{self.asked.method} was answered: sign in first", *self.lines)
        if "error" in self.line.message:
            raise Violation(f"{self.asked.method} was answered with an error", *self.lines)


class Call:
    """A request that was sent; `answer` is set when it was answered."""

    def __init__(self, asked: Line) -> None:
        self.asked = asked
        self.answer: Answer | None = None


class Dialogue:
    """See the module. Run by `listening`; `timeout`, `quiet` and `late` are seconds."""

    def __init__(
        self,
        running: Running,
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
        self._answering: set[asyncio.Task[None]] = set()
        self._has_fences = True
        self._leaving = False

    # -- what is said -----------------------------------------------------------------------

    async def ask(
        self, method: str, params: object = msgspec.UNSET, *, seconds: float | None = None
    ) -> Answer:
        """Ask and wait; Silence when no answer comes within `seconds`, Gone when none can."""
        return await self.answered(self.begin(method, params), seconds)

    def begin(
        self, method: str, params: object = msgspec.UNSET, *, id: int | str | None = None
    ) -> Call:
        """Send a request; with `id`, under this one."""
        if id is None:
            self._last_id += 1
            id = self._last_id
        message = {"jsonrpc": "2.0", "id": id, "method": method}
        if params is not msgspec.UNSET:
            message["params"] = params  # type: ignore[assignment]
        return self.expect(self._say(message))

    async def answered(self, call: Call, seconds: float | None = None) -> Answer:
        """The answer to a request; Silence and Gone as with `ask`."""
        limit = self.timeout if seconds is None else seconds
        try:
            return await self.until(lambda: call.answer, limit)
        except Silence:
            why = f"{call.asked.method} was not answered within {limit:g} s"
            raise Silence(why, call.asked) from None
        except Gone as gone:
            raise Gone(f"{gone.why} before it answered {call.asked.method}", call.asked) from None

    def tell(self, method: str, params: object) -> Line:
        """Send a notification."""
        return self._say({"jsonrpc": "2.0", "method": method, "params": params})

    def write(self, raw: bytes) -> Line:
        """Send a line as it is; it need be no message."""
        self.record.broken = True
        self.running.transport.send(raw + b"\n")
        return self.record.add(self._now(), "client", raw)

    def send_pieces(self, *pieces: bytes) -> None:
        """Send bytes that are no line by themselves; unrecorded."""
        for piece in pieces:
            self.running.transport.send(piece)

    def note(self, raw: bytes) -> Line:
        """Record a line whose bytes go out by `send_pieces`."""
        return self.record.add(self._now(), "client", raw)

    def expect(self, asked: Line) -> Call:
        """Wait from now on for the answer to a request that was sent."""
        call = self._calls[likeness(asked)] = Call(asked)
        return call

    def _say(self, message: Json) -> Line:
        raw = msgspec.json.encode(message)
        self.running.transport.send(raw + b"\n")
        return self.record.add(self._now(), "client", raw)

    # -- waiting ----------------------------------------------------------------------------

    async def until(self, found: Callable[[], T | None], seconds: float | None = None) -> T:
        """Wait until `found()` is not None, looked at with each line, and with each permission
        that the host holds; Silence, Gone."""
        limit = self.timeout if seconds is None else seconds
        try:
            async with asyncio.timeout(limit):
                while (value := found()) is None:
                    if self.ended:
                        raise Gone(f"the agent ended ({await self._how()})")
                    self._news.clear()
                    await self._news.wait()
                return value
        except TimeoutError:
            raise Silence(f"nothing came within {limit:g} s") from None

    async def is_alive(self) -> bool:
        """Whether it answers anything: one that does not may be slow, which breaks no rule."""
        try:
            await self.ask("check/no_such_method", {})
        except (Silence, Gone):
            return False
        return True

    async def caught_up(self) -> None:
        """Return when the agent has read all that was said, and has been quiet for a moment.

        It answers a request that it cannot know, and by then it has read what stands before it.
        """
        if self._has_fences and not self.ended:
            try:
                await self.ask("_check/fence", {}, seconds=min(self.timeout, 4 * self.quiet))
            except (Silence, Gone):
                self._has_fences = False
        await self.hush()

    async def settled(self) -> None:
        """Return when the agent has caught up, and what it would say too late has had its time."""
        await self.caught_up()
        await asyncio.sleep(self.late)

    async def hush(self) -> None:
        """Wait until nothing has come for `quiet` seconds; for 8 times as long at most."""
        for _ in range(8):
            before = len(self.record.lines)
            await asyncio.sleep(self.quiet)
            if len(self.record.lines) == before:
                return

    async def hush_briefly(self) -> None:
        """Wait for `quiet` seconds: what was written before has been seen by itself."""
        await asyncio.sleep(self.quiet)

    def stop_reading(self) -> None:
        """Read nothing more: what the agent writes stays in the pipe."""
        self._may_read.clear()

    def go_on_reading(self) -> None:
        """Read again."""
        self._may_read.set()

    async def hang_up(self, seconds: float) -> str | None:
        """Close the agent's stdin; how it ended within so many seconds, None if it did not."""
        self._leaving = True
        await self.running.hang_up()
        return await self.running.ended(seconds)

    async def kill(self) -> None:
        """End it as `kill -9` does."""
        self._leaving = True
        await self.running.kill()

    async def _how(self) -> str:
        how = await self.running.ended(1.0) or "it closed its stdout and runs on"
        words = self.running.last_words()
        return f"{how}: {words}" if words else how

    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    # -- what comes -------------------------------------------------------------------------

    async def listen(self) -> None:
        """Take in what the agent writes, until it ends."""
        # Not `rpc.framing`, which forgives blank lines.
        held = bytearray()
        try:
            while True:
                await self._may_read.wait()
                chunk = await self.running.transport.receive()
                if not chunk:
                    return
                *ended, rest = chunk.split(b"\n")
                for piece in ended:
                    self._take(bytes(held + piece))
                    held.clear()
                held += rest
                del held[MAX_LINE:]
                self._news.set()
        except ConnectionLostError:
            return
        finally:
            self.ended = True
            self._news.set()
            if not self._leaving:
                self.record.ended = await self._how()

    def _take(self, raw: bytes) -> None:
        line = self.record.add(self._now(), "agent", raw)
        if line.is_request:
            task = asyncio.create_task(self._serve(line), name=f"serve {line.method}")
            self._answering.add(task)
            task.add_done_callback(self._answering.discard)
        elif line.is_response:
            # By what it looks like: an id of another type is judged elsewhere, and is an answer.
            call = self._calls.get(likeness(line))
            if call is not None and call.answer is None:
                call.answer = Answer(call.asked, line)

    async def _serve(self, line: Line) -> None:
        reply: Json = {"jsonrpc": "2.0", "id": msgspec.Raw(id_of(line))}
        try:
            reply["result"] = await self.host.answer(line.method or "", line.params)
        except Refused as refused:
            reply["error"] = {"code": refused.code, "message": str(refused)}
        if not self.ended:
            self._say(reply)

    async def aclose(self) -> None:
        """Stop serving, and end the agent."""
        self._leaving = True
        for task in [*self._answering]:
            task.cancel()
        if self._answering:
            await asyncio.wait([*self._answering])
        await self.host.aclose()
        await self.running.aclose()


@asynccontextmanager
async def listening(dialogue: Dialogue) -> AsyncIterator[Dialogue]:
    """Run `dialogue` for the block, at whose end the agent is ended."""
    task = asyncio.create_task(dialogue.listen(), name="checker listens")
    try:
        yield dialogue
    finally:
        await dialogue.aclose()
        task.cancel()
        await asyncio.wait([task])


def unobservable(signal: Violation) -> NotObservable:
    """What it means for other checks that something they need went wrong."""
    return NotObservable(signal.why, *signal.lines)
