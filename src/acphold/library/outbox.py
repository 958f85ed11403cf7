"""Updates on their way from an author's code to the journal and the clients.

Each is committed before anybody sees it. Updates that follow each other directly are committed
together, also those of different sessions: an author who says a thousand small things pays for a
few commits, and nobody waits longer than until the end of the step of the event loop.

With hundreds of busy sessions, that common commit takes longer than a step, and every session in it
waits for all of it, however little it has said. So commits then pause after it: only a session
whose current turn has not been heard yet does not wait for the end of the pause.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from math import inf
from time import monotonic
from typing import Any, Literal, NoReturn, TypeAlias

from acp_wire.rpc.eager_tasks import EagerTasks, Turnstile
from acp_wire.rpc.wire_errors import incident
from acp_wire.schema import ContentBlock, encode
from acphold.errors import AcpError, DeclarationError
from acphold.library import bounds
from acphold.live.agents.interface import ListenerToMany, Updates

UPDATE = "update"

Runs: TypeAlias = list[tuple[str, list[bytes]]]
"""The kept bytes by kind, in order."""

Voice: TypeAlias = Literal["agent_message_chunk", "agent_thought_chunk"]

MESSAGE: Voice = "agent_message_chunk"
THOUGHT: Voice = "agent_thought_chunk"


class Post:
    """Commits together the updates that the sessions of one agent send in one step of the loop.

    At `breathe_at` (`monotonic`) the step has taken so long that other tasks should run.
    """

    def __init__(self, listener: ListenerToMany) -> None:
        self.listener = listener
        self.breathe_at: float = inf
        self.ending: Turnstile = Turnstile(bounds.ENDS_AT_ONCE)
        self._going_on: Turnstile = Turnstile(bounds.GO_ON_AT_ONCE)
        self._due: dict[Outbox, None] = {}
        self._is_called = False
        self._round: dict[Outbox, None] = {}  # the round leaves before anything else is due
        self._round_took: float = 0.0
        self._pause_ends: float = 0.0
        self._resuming: asyncio.TimerHandle | None = None
        self._tasks = EagerTasks()

    def step(self) -> None:
        """Begin a step, unless one is running: from now on its time counts."""
        if not self._is_called:
            self._is_called = True
            self.breathe_at = monotonic() + bounds.STEP_SECONDS
            asyncio.get_running_loop().call_soon(self._step_ends)

    def call_for(self, outbox: Outbox) -> None:
        """Commit what `outbox` holds after this step, or after the pause."""
        self._due[outbox] = None
        if not self._is_called:
            self.step()

    def forget(self, outbox: Outbox) -> None:
        """Commit nothing from `outbox`: its updates have already left."""
        self._due.pop(outbox, None)
        self._round.pop(outbox, None)

    def begin(self, committing: Coroutine[None, None, None], *outboxes: Outbox) -> None:
        """Start a commit of these outboxes; nearly always it is done when this returns."""
        task = self._tasks.begin(committing, "commit updates")
        for outbox in outboxes:
            outbox.committing = task

    async def breathe(self) -> None:
        """Let others run."""
        if len(self._due) > bounds.GO_ON_AT_ONCE or self._going_on.is_crowded:
            await self._going_on.wait()
        else:
            await asyncio.sleep(0)

    def close(self) -> None:
        """Stop: no more updates are sent."""
        if self._resuming is not None:
            self._resuming.cancel()
        self._tasks.close()

    def _step_ends(self) -> None:
        """Commit part of the round that is due, and outboxes whose turn has sent nothing yet."""
        self._is_called, self.breathe_at = False, inf
        began = monotonic()
        if not self._round and began >= self._pause_ends:
            if len(self._due) == 1:  # nearly always: no other waits for it
                outbox, _ = self._due.popitem()
                outbox.begin()
                return
            self._round, self._due = self._due, {}
        first = [outbox for outbox in self._due if not outbox.is_heard]
        leaving = [*first, *self._round][: bounds.LEAVE_AT_ONCE]
        for outbox in leaving:
            self.forget(outbox)
        several = [it for it in leaving if it.holds_updates_alone]
        if len(several) > 1:
            self.begin(self._commit([(each, each.take_all()) for each in several]), *several)
        if len(several) < max(2, len(leaving)):
            for outbox in leaving:
                outbox.begin()
        now = monotonic()
        self._round_took += now - began
        if self._round or len(first) > bounds.LEAVE_AT_ONCE:
            self.step()
            return
        if self._round_took > bounds.STEP_SECONDS and len(leaving) > 1:
            self._pause_ends = now + min(
                bounds.ROUND_PAUSES * self._round_took, bounds.ROUND_PAUSE_SECONDS
            )
        self._round_took = 0.0
        if self._due and self._resuming is None:
            pause = self._pause_ends - now
            self._resuming = asyncio.get_running_loop().call_later(pause, self._pause_ended)

    def _pause_ended(self) -> None:
        self._resuming = None
        self.step()

    async def _commit(self, taken: Sequence[tuple[Outbox, Runs]]) -> None:
        """Commit one run of updates of each of these outboxes."""
        updates = [Updates(outbox.session_id, *runs[0]) for outbox, runs in taken]
        try:
            heard = await self.listener.hear_together(updates)
        except Exception as exc:  # nobody awaits this task: the next update raises the error
            failure = exc if isinstance(exc, AcpError) else incident(exc)
            for outbox, _ in taken:
                outbox.failure = failure
            heard = [True] * len(taken)
        for (outbox, runs), is_heard in zip(taken, heard, strict=True):
            outbox.committing = None
            if not is_heard:
                outbox.begin(runs)
            elif outbox.holds_any:
                outbox.wait_for_more()


class Outbox:
    """The updates of one session, in order.

    | state  | an update          | until                                       |
    |--------|--------------------|---------------------------------------------|
    | held   | is held back       | `open`: the client knows the session        |
    | open   | is committed       | `close`: the session is no longer open here |
    | closed | is refused, raises |                                             |

    Commits run in a separate task, so that updates sent before a cancellation are delivered even
    if the author's code is cancelled. `committing` is that task while it runs; `failure` is the
    error of a commit until it is raised. `is_heard` is False from the beginning of a turn until
    its first update leaves.
    """

    def __init__(self, session_id: str, post: Post) -> None:
        self.session_id = session_id
        self.committing: asyncio.Task[Any] | None = None
        self.failure: AcpError | None = None
        self.is_heard: bool = False
        self._post = post
        self._updates: list[bytes] = []
        self._runs: Runs = [(UPDATE, self._updates)]
        self._bytes = 0
        self._state: Literal["held", "open", "closed"] = "held"
        self._is_due = False

    def open(self) -> None:
        """Commit held updates from now on: the client knows the session."""
        self._state = "open"
        self.wait_for_more()

    def close(self) -> None:
        """Refuse updates from now on: the session is no longer open here."""
        self._state = "closed"

    def add(self, raw: bytes) -> bool:
        """Add `raw`, an update object; returns True when it is time to `breathe`."""
        updates = self._updates
        if self._state == "closed":
            self._refuse()
        if len(raw) > bounds.UPDATE_BYTES:
            raise DeclarationError(
                f"an update of {len(raw) >> 20} MiB is longer than clients read; the most is "
                f"{bounds.UPDATE_BYTES >> 20} MiB"
            )
        updates.append(raw)
        self._bytes += len(raw)
        if not self._is_due:
            if self._state == "open" and self.committing is None:  # as `wait_for_more`, at once
                self._is_due = True
                self._post.call_for(self)
            else:
                self._post.step()
        if self._bytes >= bounds.BATCH_BYTES or len(updates) >= bounds.BATCH_UPDATES:
            return True
        # Most authors send one update and wait: only those that continue let others run.
        return len(updates) > 1 and monotonic() >= self._post.breathe_at

    async def put(self, *raws: bytes) -> None:
        """Add these update objects together; raises the error of an earlier commit."""
        full = False
        for raw in raws:
            full = self.add(raw)
        if full:
            await self.breathe()
        self._raise()

    def keep(self, kind: str, raw: bytes) -> None:
        """Journal an entry that no client is shown, after the earlier updates."""
        if self._state == "closed":
            self._refuse()
        if self._updates:
            self._updates = []
            self._runs += [(kind, [raw]), (UPDATE, self._updates)]
        else:
            self._runs.insert(-1, (kind, [raw]))
        if not self._is_due:
            self.wait_for_more()

    @contextmanager
    def one_step(self) -> Iterator[None]:
        """Hold back the block's updates until its end, unless they leave earlier.

        A short turn ends within the block, and its updates leave with its end.
        """
        self._is_due, self.is_heard = True, False
        self._post.step()
        try:
            yield
        finally:
            self._is_due = False
            self.wait_for_more()

    async def breathe(self) -> None:
        """Wait until there is room, and let others run; raises the error of a commit."""
        if self._bytes >= bounds.BATCH_BYTES or len(self._updates) >= bounds.BATCH_UPDATES:
            await self.flush()
        await self._post.breathe()
        self._raise()

    async def pause(self) -> None:
        """Let others run if this step has taken long; raises the error of a commit."""
        self._post.step()
        if monotonic() >= self._post.breathe_at:
            await self._post.breathe()
        self._raise()

    async def flush(self) -> None:
        """Wait until all updates are committed and delivered; raises the error if that failed.

        Cancelling this cancels no commit.
        """
        await self.leave()
        self._raise()

    async def leave(self) -> None:
        """`flush` without its error, which the next update raises."""
        self.begin()
        if self.committing is not None:
            await asyncio.wait([self.committing])

    async def finish(self) -> None:
        """`flush` at the end of a turn, in a task that nobody cancels: the answer comes next.

        The last updates may be committed together with the answer. When many turns end in one step,
        they end one after another.
        """
        post = self._post
        if self.committing is not None:  # a common commit: other turns continue after it, too
            await asyncio.wait([self.committing])
        post.step()
        if post.ending.is_crowded or monotonic() >= post.breathe_at:
            await post.ending.wait()
        if self.committing is None and self._state == "open" and self.holds_any:
            self.committing = asyncio.current_task()
            await self._commit(self.take_all(), at_end=True)
        if self.committing is not None or self.holds_any:
            await self.flush()
        else:
            self._raise()

    # -- on its way -----------------------------------------------------------------------

    def wait_for_more(self) -> None:
        """Commit at the end of this step of the event loop, unless that happens earlier."""
        if self._state == "open" and self.committing is None and self.holds_any:
            self._is_due = True
            self._post.call_for(self)
        else:
            self._post.step()

    @property
    def holds_updates_alone(self) -> bool:
        """True if there is something to commit, and it is a single run of updates."""
        is_free = self._state == "open" and self.committing is None
        return is_free and bool(self._updates) and len(self._runs) == 1

    def take_all(self) -> Runs:
        """Take all that it holds, to commit it."""
        self._is_due, self.is_heard = False, True
        self._post.forget(self)
        held, self._updates, self._bytes = self._runs, [], 0
        self._runs = [(UPDATE, self._updates)]
        return held

    def begin(self, runs: Runs | None = None) -> None:
        """Commit these runs, already `taken`, and all that it holds, unless a commit is running."""
        if self._state == "open" and self.committing is None and (runs or self.holds_any):
            self._post.begin(self._commit(runs or self.take_all()), self)

    async def _commit(self, held: Runs, *, at_end: bool = False) -> None:
        try:
            while True:
                runs = [run for run in held if run[1]]
                for kind, raws in runs:
                    are_last = at_end and raws is runs[-1][1]
                    updates = Updates(self.session_id, kind, raws, are_last)
                    await self._post.listener.hear(updates)
                if not self.holds_any:
                    return
                held = self.take_all()
        except AcpError as exc:
            self.failure = exc
        except Exception as exc:  # nobody awaits this task: the next update raises the error
            self.failure = incident(exc)
        finally:
            self.committing = None

    @property
    def holds_any(self) -> bool:
        """True if there is something to commit."""
        return bool(self._updates) or len(self._runs) > 1

    def _refuse(self) -> NoReturn:
        raise DeclarationError(f"session {self.session_id!r} is closed and accepts no more updates")

    def _raise(self) -> None:
        if self.failure is not None:
            failure, self.failure = self.failure, None
            raise failure


class TurnOutbox:
    """A session's outbox for one turn: closed at the turn's end, nothing enters it afterwards.

    So a tool call or a task that outlives its turn is refused; it cannot speak in a later turn.
    """

    def __init__(self, outbox: Outbox) -> None:
        self.over: bool = False
        self.add: Callable[[bytes], bool] = outbox.add
        self.breathe: Callable[[], Awaitable[None]] = outbox.breathe
        self.pause: Callable[[], Awaitable[None]] = outbox.pause
        self.flush: Callable[[], Awaitable[None]] = outbox.flush
        self._put = outbox.put

    def check(self) -> None:
        """Raise DeclarationError if the turn is over."""
        if self.over:
            refuse()

    async def put(self, *raws: bytes) -> None:
        """Like `Outbox.put`; DeclarationError if the turn is over."""
        self.check()
        await self._put(*raws)

    def close(self) -> None:
        """End the turn: refuse updates from now on."""
        self.over, self.add = True, refuse


def refuse(raw: bytes = b"") -> NoReturn:
    """Raise DeclarationError for an update or a start after the end of a turn."""
    raise DeclarationError("this turn is over: everything it starts must end before it does")


class Utterance:
    """One message or thought while it grows: all its pieces have one id.

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
        """Return the update for a piece of text; TypeError if `text` is no string."""
        return self._text_before + encode(text) + self._text_behind

    def block(self, block: ContentBlock) -> bytes:
        """Return the update for another content block."""
        return self._before + encode(block) + self._behind


def fresh_id(kind: str) -> str:
    """Return a new random id."""
    return f"{kind}_{os.urandom(12).hex()}"
