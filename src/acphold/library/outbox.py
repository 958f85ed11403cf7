"""Updates on their way from an author's code to the journal and the clients.

Each is committed before anybody sees it; those that are said in a row are committed together. An
author who says a thousand small things pays for a few commits, and nobody waits for more than the
end of the step of the event loop that said them.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal, NoReturn, TypeAlias

from acphold.agents.interface import Updates
from acphold.errors import AcpholdError, DeclarationError
from acphold.rpc.wire_errors import incident
from acphold.schema import encode

if TYPE_CHECKING:
    from acphold.agents.interface import Listener
    from acphold.schema import ContentBlock

BATCH_BYTES = 64 * 1024
"""Bytes that are held back at most, for the next ones to be committed with them."""

BATCH_UPDATES = 512
"""Updates that are held back at most: then an author who never waits lets the others run."""

UPDATE = "update"

Voice: TypeAlias = Literal["agent_message_chunk", "agent_thought_chunk"]

MESSAGE: Voice = "agent_message_chunk"
THOUGHT: Voice = "agent_thought_chunk"


class Outbox:
    """The updates of one session, in order.

    | state  | what is said       | until                                       |
    |--------|--------------------|---------------------------------------------|
    | held   | is kept            | `open`: the client knows the session        |
    | open   | leaves             | `close`: the session is open here no longer |
    | closed | is refused, raises |                                             |

    Commits run in a task of their own, so that what was said before a cancellation is delivered,
    whoever is cancelled.
    """

    def __init__(self, session_id: str, listener: Listener) -> None:
        self._session_id = session_id
        self._listener = listener
        self._updates: list[bytes] = []
        self._runs: list[tuple[str, list[bytes]]] = [(UPDATE, self._updates)]
        self._bytes = 0
        self._state: Literal["held", "open", "closed"] = "held"
        self._is_due = False
        self._due: asyncio.Handle | None = None
        self._committing: asyncio.Task[Any] | None = None
        self._failure: AcpholdError | None = None

    def open(self) -> None:
        """The client knows the session: what is held back may leave."""
        self._state = "open"
        self._wait_for_more()

    def close(self) -> None:
        """The session is open here no longer: what is said from now on is refused."""
        self._state = "closed"

    def add(self, raw: bytes) -> bool:
        """Say `raw`, an update object; True when it is time to `breathe`."""
        updates = self._updates
        if self._state == "closed":
            self._refuse()
        updates.append(raw)
        self._bytes += len(raw)
        if not self._is_due:
            self._wait_for_more()
        return self._bytes >= BATCH_BYTES or len(updates) >= BATCH_UPDATES

    async def put(self, *raws: bytes) -> None:
        """Say these update objects together; raises what an earlier commit failed with."""
        full = False
        for raw in raws:
            full = self.add(raw)
        if full:
            await self.breathe()
        self._raise()

    def keep(self, kind: str, raw: bytes) -> None:
        """Journal something that no client is shown, behind what was said before."""
        if self._state == "closed":
            self._refuse()
        if self._updates:
            self._updates = []
            self._runs += [(kind, [raw]), (UPDATE, self._updates)]
        else:
            self._runs.insert(-1, (kind, [raw]))
        if not self._is_due:
            self._wait_for_more()

    @contextmanager
    def one_step(self) -> Iterator[None]:
        """What is said in the block is due at its end, if it has not left by then.

        A short turn is over by then: nothing was put on the event loop for what it said.
        """
        self._is_due = True
        try:
            yield
        finally:
            if self._due is None:
                self._is_due = False
                self._wait_for_more()

    async def breathe(self) -> None:
        """Wait until there is room, and let others run; raises what a commit failed with."""
        await self.flush()
        await asyncio.sleep(0)

    async def flush(self) -> None:
        """Wait until all that was said is committed and delivered; raises what that failed with.

        Cancelling this cancels no commit.
        """
        self._begin()
        if self._committing is not None:
            await asyncio.wait([self._committing])
        self._raise()

    async def finish(self) -> None:
        """`flush` at the end of a turn, in a task that nobody cancels: its answer comes next.

        What was said last may be committed together with that.
        """
        if self._committing is None and self._state == "open":
            self._stop_waiting()
            if self._holds_any:
                self._committing = asyncio.current_task()
                await self._commit(at_end=True)
        if self._committing is not None or self._holds_any:
            await self.flush()
        else:
            self._raise()

    def _wait_for_more(self) -> None:
        """Commit at the end of this step of the event loop, unless somebody does before."""
        if self._state == "open" and self._committing is None and self._holds_any:
            self._is_due = True
            self._due = asyncio.get_running_loop().call_soon(self._begin)

    def _begin(self) -> None:
        self._stop_waiting()
        if self._state == "open" and self._committing is None and self._holds_any:
            self._committing = asyncio.create_task(self._commit(), name="commit updates")

    def _stop_waiting(self) -> None:
        self._is_due = False
        if self._due is not None:
            self._due.cancel()
            self._due = None

    async def _commit(self, *, at_end: bool = False) -> None:
        try:
            while self._holds_any:
                held, self._updates, self._bytes = self._runs, [], 0
                self._runs = [(UPDATE, self._updates)]
                runs = [run for run in held if run[1]]
                for kind, raws in runs:
                    are_last = at_end and raws is runs[-1][1]
                    await self._listener.hear(Updates(self._session_id, kind, raws, are_last))
        except AcpholdError as exc:
            self._failure = exc
        except Exception as exc:  # nobody awaits this task: who says something next is told
            self._failure = incident(exc)
        finally:
            self._committing = None

    @property
    def _holds_any(self) -> bool:
        return bool(self._updates) or len(self._runs) > 1

    def _refuse(self) -> NoReturn:
        raise DeclarationError(f"session {self._session_id!r} was closed here: nothing enters it")

    def _raise(self) -> None:
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure


class TurnOutbox:
    """The outbox of a session as one turn uses it: closed at its end, and nothing enters it then.

    So a tool call or a task that outlives its turn is refused; it cannot speak in a later one.
    """

    def __init__(self, outbox: Outbox) -> None:
        self.over = False
        self.add: Callable[[bytes], bool] = outbox.add
        self._outbox = outbox

    def check(self) -> None:
        """Raise DeclarationError when the turn is over."""
        if self.over:
            refuse()

    async def put(self, *raws: bytes) -> None:
        """As `Outbox.put`; DeclarationError when the turn is over."""
        self.check()
        await self._outbox.put(*raws)

    async def breathe(self) -> None:
        """As `Outbox.breathe`."""
        await self._outbox.breathe()

    async def flush(self) -> None:
        """As `Outbox.flush`."""
        await self._outbox.flush()

    def close(self) -> None:
        """The turn is over."""
        self.over, self.add = True, refuse


def refuse(raw: bytes = b"") -> NoReturn:
    """What is said or started behind the end of a turn."""
    raise DeclarationError("this turn is over: what it started has to end within it")


class Utterance:
    """One message or thought while it grows: its pieces in a row have one id.

    The bytes around a piece of text are made once, because models say a lot in small pieces.
    Source: spec v1, prompt turn, "Agent Reports Output"; RFD message ids.
    """

    __slots__ = ("_before", "_behind", "_text_before", "_text_behind", "voice")

    def __init__(self, voice: Voice) -> None:
        self.voice = voice
        self._before = b'{"sessionUpdate":"%b","content":' % voice.encode()
        self._behind = b',"messageId":"%b"}' % fresh_id("msg").encode()
        self._text_before = self._before + b'{"type":"text","text":'
        self._text_behind = b"}" + self._behind

    def text(self, text: str) -> bytes:
        """The update for a piece of text; TypeError for what is none."""
        return self._text_before + encode(text) + self._text_behind

    def block(self, block: ContentBlock) -> bytes:
        """The update for another content block."""
        return self._before + encode(block) + self._behind


def fresh_id(kind: str) -> str:
    """An id nobody has had before."""
    return f"{kind}_{os.urandom(12).hex()}"
