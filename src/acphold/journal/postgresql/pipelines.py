"""Connections used by the event loop itself, for questions that an update or a prompt waits for.

Waking a thread, and being woken by it, takes longer than the server needs for an append. So a
question of one statement, which is a transaction by itself, is written to a connection directly
from the loop, behind those already on their way (libpq's pipeline mode); answers are read when they
arrive. Many such questions need few connections, and no commit waits for the answer to another.

Nothing is retried here, and no error is read. A question without an answer, whatever the reason, is
asked again in a thread (see `database`), which handles all of that. It may have been executed.
"""

# See docs/decisions.md, 14.

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from functools import lru_cache
from time import monotonic
from types import NoneType
from typing import Any, Final, TypeAlias, TypeVar

import psycopg
from msgspec import Struct, field
from psycopg import pq

from acphold.journal import bounds
from acphold.journal.postgresql.migrations import Line

T = TypeVar("T")

Value: TypeAlias = "str | bytes | int | bool | None"
"""A parameter of a question; an int is sent as `bigint`."""

Rows: TypeAlias = "list[list[bytes | None]]"
"""Rows in the binary format of the server."""

_OK: Final = (pq.ExecStatus.TUPLES_OK, pq.ExecStatus.COMMAND_OK)


ANNOUNCE: Final = "NOTIFY acphold"
LISTEN: Final = "LISTEN acphold"
"""The statement behind a commit that changed what other processes follow: within the transaction,
PostgreSQL would make commits wait for each other."""


class Answer(asyncio.Future[T]):
    """A value that is set later, on the thread of the event loop, and awaited to the end.

    A database executes what it was sent whether anybody waits or not, and the sender has to know
    the result. So a cancellation takes effect only after the answer.
    """

    def cancel(self, msg: Any = None) -> bool:
        """Refuse: whoever waits is cancelled with the answer."""
        return False

    async def wait(self) -> T:
        """Wait for the value and return it; a cancellation meanwhile takes effect afterwards."""
        try:
            # Not shielded: a future between two would take another pass of the loop.
            return await self
        except asyncio.CancelledError:
            task = asyncio.current_task()
            assert task is not None
            task.uncancel()
            task.cancel()  # raised at the task's next await
            return self.result()


class Pipelines:
    """The connections of one process; `connect` opens one, in a thread."""

    def __init__(self, connect: Callable[[], Line]) -> None:
        self._connect = connect
        self._bound = bounds.QUESTION_SECONDS
        self._open: list[_Pipeline] = []
        self._opening: asyncio.Future[Line] | None = None
        self._vain_at = -bounds.UNREACHED_SECONDS
        self._is_closed = False
        self._listens = False

    def listen(self) -> None:
        """Hear from now on, at one of the connections, of what others announce: see `heard`."""
        self._listens = True
        self.begin()
        if self.is_ready:
            self._open[0].listen()

    def heard(self) -> object:
        """Return a value that stays the same until something is announced; None if that would not
        be heard."""
        return self._open[0].heard if self.is_ready else None

    @property
    def is_ready(self) -> bool:
        """True if there is a connection."""
        return bool(self._open) and self._open[0].loop is asyncio.get_running_loop()

    def begin(self) -> None:
        """Start connecting, ahead of the first question."""
        loop = asyncio.get_running_loop()
        # A journal may be used by several event loops, one after the other.
        for line in [line for line in self._open if line.loop is not loop]:
            line.close()
        if self._opening is not None and self._opening.get_loop() is not loop:
            self._opening = None
        if not self._open:
            self._connect_more()

    async def ready(self) -> None:
        """Wait until there is a connection, or connecting has failed."""
        self.begin()
        if not self._open and (opening := self._opening) is not None:
            await asyncio.wait([opening])

    def ask(self, statement: str, values: Sequence[Value]) -> Answer[Rows | None]:
        """Send a statement, with `%s` for each of the values; the answer is None if there is none.

        Without a connection there is no answer either: see `ready`.
        """
        answer: Answer[Rows | None] = Answer()
        if not self.is_ready:
            answer.set_result(None)
            return answer
        line = self._open[0] if len(self._open) == 1 else min(self._open, key=_Pipeline.waiting)
        if line.waiting() >= bounds.PENDING_QUESTIONS and len(self._open) < bounds.PIPELINES:
            self._connect_more()
        line.ask(statement, values, answer)
        return answer

    async def aclose(self) -> None:
        """Close each connection once its questions are answered; open no more."""
        self._is_closed = True
        if (opening := self._opening) is not None:
            await asyncio.wait([opening])
        for line in [*self._open]:
            while line.waiting():
                await line.asked[-1].answer.wait()
            line.close()

    def _connect_more(self) -> None:
        """Start connecting once more, unless that has just failed."""
        if self._is_closed:
            return
        if self._opening is None and monotonic() - self._vain_at >= bounds.UNREACHED_SECONDS:
            loop = asyncio.get_running_loop()
            self._opening = loop.run_in_executor(None, self._connect)
            self._opening.add_done_callback(self._on_open)

    def _on_open(self, opening: asyncio.Future[Line]) -> None:
        self._opening = None
        if opening.cancelled() or opening.exception() is not None:
            # The reason is reported when the question is asked again in a thread.
            self._vain_at = monotonic()
        else:
            self._open.append(_Pipeline(opening.result(), self._bound, self._open.remove))
            if self._listens:
                self._open[0].listen()


class _Asked(Struct):
    """A question on its way, and the rows that have arrived for it."""

    answer: Answer[Rows | None]
    statement: str
    at: float = field(default_factory=monotonic)
    rows: Rows = []
    failed: bool = False


class _Pipeline:
    """One connection, for the running loop."""

    def __init__(self, line: Line, bound: float, closed: Callable[[_Pipeline], None]) -> None:
        self.loop = asyncio.get_running_loop()
        self._line: Line | None = line
        self._bound = bound
        self._closed = closed
        self._pq = line.pgconn
        self._socket = self._pq.socket
        self.asked: deque[_Asked] = deque()
        self._is_watched = False
        self._is_full = False
        # Nothing is prepared behind a pooler: see `Database.connect`.
        self._prepares = line.prepare_threshold is not None
        self._names: dict[str, bytes] = {}
        self._named = 0
        self.heard: object = None
        """Another object after each announcement; None until it listens."""
        self._asks_to_listen = False
        self._pq.nonblocking = 1
        self._pq.enter_pipeline_mode()
        self.loop.add_reader(self._socket, self._read)

    def waiting(self) -> int:
        """The number of questions without an answer."""
        return len(self.asked)

    def ask(self, statement: str, values: Sequence[Value], answer: Answer[Rows | None]) -> None:
        """Send a question; its answer comes after those of all questions before it."""
        try:
            sent = [_BINARY[type(value)](value) for value in values]
            formats = [1] * len(sent)
            name = self._names.get(statement)
            if name is None and self._prepares and len(self._names) < bounds.PREPARED_STATEMENTS:
                self._named += 1
                name = self._names[statement] = b"acphold_%d" % self._named
                self._pq.send_prepare(name, _with_numbers(statement))
            if name is not None:
                self._pq.send_query_prepared(name, sent, formats, 1)
            else:
                self._pq.send_query_params(_with_numbers(statement), sent, None, formats, 1)
            self._pq.pipeline_sync()
            self.asked.append(_Asked(answer, statement))
            self._write()
        except (UnicodeError, OverflowError):  # nothing was sent
            answer.set_result(None)
        except psycopg.Error:
            answer.set_result(None)
            self.close()
        if not self._is_watched and self.asked:
            self._is_watched = True
            self.loop.call_later(self._bound, self._watch)

    def listen(self) -> None:
        """Hear what is announced, unless this is a pooler's: it hands its connections round."""
        if self._prepares and not self._asks_to_listen:
            self._asks_to_listen = True
            answer: Answer[Rows | None] = Answer()
            answer.add_done_callback(self._on_listening)
            self.ask(LISTEN, (), answer)

    def _on_listening(self, answer: Answer[Rows | None]) -> None:
        if answer.result() is not None:
            self.heard = object()

    def close(self) -> None:
        """Close the connection; pending questions get no answer."""
        if self._line is None:
            return
        self._closed(self)
        if not self.loop.is_closed():
            self.loop.remove_reader(self._socket)
            self.loop.remove_writer(self._socket)
        self._line.close()
        self._line = None
        while self.asked:
            self.asked.popleft().answer.set_result(None)

    def _write(self) -> None:
        """Write as much as the server accepts now, and the rest when it accepts more."""
        try:
            is_full = bool(self._pq.flush())
        except psycopg.Error:
            self.close()
            return
        if is_full != self._is_full:
            self._is_full = is_full
            if is_full:
                self.loop.add_writer(self._socket, self._write)
            else:
                self.loop.remove_writer(self._socket)

    def _read(self) -> None:
        """Read the results that have arrived: several for each question, the last being a sync
        mark."""
        try:
            self._pq.consume_input()
            while self._pq.notifies() is not None:
                self.heard = object()
            # One None ends the results of a statement. A second one means that there is nothing
            # more.
            nones = 0
            while self.asked and nones < 2 and not self._pq.is_busy():
                if (result := self._pq.get_result()) is None:
                    nones += 1
                    continue
                nones, asked = 0, self.asked[0]
                if result.status == pq.ExecStatus.PIPELINE_SYNC:
                    self.asked.popleft()
                    if asked.failed:  # maybe because the server has not prepared the statement
                        self._names.pop(asked.statement, None)
                    asked.answer.set_result(None if asked.failed else asked.rows)
                elif result.status not in _OK:
                    asked.failed = True
                elif result.ntuples:
                    asked.rows = [
                        [result.get_value(row, column) for column in range(result.nfields)]
                        for row in range(result.ntuples)
                    ]
        except psycopg.Error:
            self.close()

    def _watch(self) -> None:
        """Close the connection if the oldest question has waited too long."""
        self._is_watched = False
        if not self.asked:
            return
        left = self.asked[0].at + self._bound - monotonic()
        if left <= 0:
            self.close()
            return
        self._is_watched = True
        self.loop.call_later(left, self._watch)


@lru_cache(bounds.PREPARED_STATEMENTS)
def _with_numbers(statement: str) -> bytes:
    """The statement with `$1` and so on for its values, as the server expects it."""
    first, *others = statement.split("%s")
    return "".join([first, *(f"${n}{part}" for n, part in enumerate(others, 1))]).encode()


_BINARY: Final[dict[type, Callable[[Any], bytes | None]]] = {
    NoneType: lambda _: None,
    bytes: lambda value: value,
    bool: lambda value: b"\1" if value else b"\0",
    int: lambda value: value.to_bytes(8, "big", signed=True),
    str: str.encode,
}
"""Encoders of values in the binary format of the server."""
