"""Updates on their way from an author's code to the journal and the clients.

Each is committed before anybody sees it. Those that are said in a row are committed together, and
so are those that many sessions say in one moment: who says a thousand small things pays for a few
commits, and nobody waits for more than the end of the step of the event loop that said them.

Where hundreds of sessions go on and on, that commit alone takes longer than a step, and it takes so
long for every session in it, however little that one has said. So it is paused behind it: only who
has not been heard in its turn yet does not wait for the end of the pause.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from math import inf
from time import monotonic
from typing import TYPE_CHECKING, Any, Literal, NoReturn, TypeAlias

from acphold.agents.interface import Updates
from acphold.errors import AcpholdError, DeclarationError
from acphold.rpc.eager_tasks import EagerTasks
from acphold.rpc.turnstile import Turnstile
from acphold.rpc.wire_errors import incident
from acphold.schema import encode

if TYPE_CHECKING:
    from acphold.agents.interface import ListenerToMany
    from acphold.schema import ContentBlock

BATCH_BYTES = 64 * 1024
"""Bytes that are held back at most, for the next ones to be committed with them."""

BATCH_UPDATES = 512
"""Updates that are held back at most."""

STEP_SECONDS = 0.002
"""How long one step of the event loop may take until each author who says something lets the others
run: one who never waits is not noticed by them."""

GO_ON_AT_ONCE = 8
"""Of the authors who never wait, so many go on in each step of the event loop."""

LEAVE_AT_ONCE = 128
"""Of the sessions in which something was said, so many are committed together."""

PAUSES, PAUSE_SECONDS = 3, 0.05
"""Where it took longer than a step until all that many had said was committed, the next commits are
made behind a pause: so many times as long, and no longer than a person sees."""

ENDS_AT_ONCE = 16
"""Of the turns that end in one step of the event loop beyond that, so many end in each of the next:
others may be at work in all of them."""

UPDATE = "update"

Runs: TypeAlias = list[tuple[str, list[bytes]]]
"""What was said, by its kind, in order."""

Voice: TypeAlias = Literal["agent_message_chunk", "agent_thought_chunk"]

MESSAGE: Voice = "agent_message_chunk"
THOUGHT: Voice = "agent_thought_chunk"


class Post:
    """What the sessions of one agent say in a step of the event loop: it leaves together.

    `breathe_at` is when (`monotonic`) the step has taken so long that others are to have the loop.
    """

    def __init__(self, listener: ListenerToMany) -> None:
        self.listener = listener
        self.breathe_at: float = inf
        self.ending: Turnstile = Turnstile(ENDS_AT_ONCE)
        self._going_on: Turnstile = Turnstile(GO_ON_AT_ONCE)
        self._due: dict[Outbox, None] = {}
        self._is_called = False
        self._round: dict[Outbox, None] = {}  # what was due then leaves before anything else is due
        self._round_took: float = 0.0
        self._pause_ends: float = 0.0
        self._resuming: asyncio.TimerHandle | None = None
        self._tasks = EagerTasks()

    def step(self) -> None:
        """Something begins or is said: the step may last so long from now on."""
        if not self._is_called:
            self._is_called = True
            self.breathe_at = monotonic() + STEP_SECONDS
            asyncio.get_running_loop().call_soon(self._step_ends)

    def call_for(self, outbox: Outbox) -> None:
        """Behind this step, or the pause, take what it holds then."""
        self._due[outbox] = None
        if not self._is_called:
            self.step()

    def forget(self, outbox: Outbox) -> None:
        """What it held has left by itself."""
        self._due.pop(outbox, None)
        self._round.pop(outbox, None)

    def begin(self, committing: Coroutine[None, None, None], *outboxes: Outbox) -> None:
        """Commit something of these; nearly always it is done when this returns."""
        task = self._tasks.begin(committing, "commit updates")
        for outbox in outboxes:
            outbox.committing = task

    async def breathe(self) -> None:
        """Let others run."""
        if len(self._due) > GO_ON_AT_ONCE or self._going_on.is_crowded:
            await self._going_on.wait()
        else:
            await asyncio.sleep(0)

    def close(self) -> None:
        """Nothing more is said."""
        if self._resuming is not None:
            self._resuming.cancel()
        self._tasks.close()

    def _step_ends(self) -> None:
        """Have some leave of what was due when there was no pause, and the first of each turn."""
        self._is_called, self.breathe_at = False, inf
        began = monotonic()
        if not self._round and began >= self._pause_ends:
            self._round, self._due = self._due, {}
        first = [outbox for outbox in self._due if not outbox.is_heard]
        leaving = [*first, *self._round][:LEAVE_AT_ONCE]
        self._leave(leaving)
        now = monotonic()
        self._round_took += now - began
        if self._round or len(first) > LEAVE_AT_ONCE:
            self.step()
            return
        if self._round_took > STEP_SECONDS and len(leaving) > 1:
            self._pause_ends = now + min(PAUSES * self._round_took, PAUSE_SECONDS)
        self._round_took = 0.0
        if self._due and self._resuming is None:
            pause = self._pause_ends - now
            self._resuming = asyncio.get_running_loop().call_later(pause, self._pause_ended)

    def _pause_ended(self) -> None:
        self._resuming = None
        self.step()

    def _leave(self, due: Sequence[Outbox]) -> None:
        for outbox in due:
            self.forget(outbox)
        several = [outbox for outbox in due if outbox.holds_updates_alone] if len(due) > 1 else ()
        if len(several) > 1:
            self.begin(self._commit([(each, each.taken()) for each in several]), *several)
            if len(several) == len(due):
                return
        for outbox in due:
            outbox.begin()

    async def _commit(self, said: Sequence[tuple[Outbox, Runs]]) -> None:
        """Commit what these have said: a run of updates each."""
        updates = [Updates(outbox.session_id, *runs[0]) for outbox, runs in said]
        try:
            heard = await self.listener.hear_together(updates)
        except Exception as exc:  # nobody awaits this task: who says something next is told
            failure = exc if isinstance(exc, AcpholdError) else incident(exc)
            for outbox, _ in said:
                outbox.failure = failure
            heard = [True] * len(said)
        for (outbox, runs), is_heard in zip(said, heard, strict=True):
            outbox.committing = None
            if not is_heard:
                outbox.begin(runs)
            elif outbox.holds_any:
                outbox.wait_for_more()


class Outbox:
    """The updates of one session, in order.

    | state  | what is said       | until                                       |
    |--------|--------------------|---------------------------------------------|
    | held   | is kept            | `open`: the client knows the session        |
    | open   | leaves             | `close`: the session is open here no longer |
    | closed | is refused, raises |                                             |

    Commits run in a task of their own, so that what was said before a cancellation is delivered,
    whoever is cancelled. `committing` is that task, while there is one; `failure` is what one
    failed with, until somebody was told. `is_heard` is False from the beginning of a turn until
    something of it leaves.
    """

    def __init__(self, session_id: str, post: Post) -> None:
        self.session_id = session_id
        self.committing: asyncio.Task[Any] | None = None
        self.failure: AcpholdError | None = None
        self.is_heard: bool = False
        self._post = post
        self._updates: list[bytes] = []
        self._runs: Runs = [(UPDATE, self._updates)]
        self._bytes = 0
        self._state: Literal["held", "open", "closed"] = "held"
        self._is_due = False

    def open(self) -> None:
        """The client knows the session: what is held back may leave."""
        self._state = "open"
        self.wait_for_more()

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
            if self._state == "open" and self.committing is None:  # as `wait_for_more`, at once
                self._is_due = True
                self._post.call_for(self)
            else:
                self._post.step()
        if self._bytes >= BATCH_BYTES or len(updates) >= BATCH_UPDATES:
            return True
        # Most say one thing and wait for the next: to let others run is for those that go on.
        return len(updates) > 1 and monotonic() >= self._post.breathe_at

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
            self.wait_for_more()

    @contextmanager
    def one_step(self) -> Iterator[None]:
        """What is said in the block is due at its end, if it has not left by then.

        A short turn is over by then, and what it said has left with its end.
        """
        self._is_due, self.is_heard = True, False
        self._post.step()
        try:
            yield
        finally:
            self._is_due = False
            self.wait_for_more()

    async def breathe(self) -> None:
        """Wait until there is room, and let others run; raises what a commit failed with."""
        if self._bytes >= BATCH_BYTES or len(self._updates) >= BATCH_UPDATES:
            await self.flush()
        await self._post.breathe()
        self._raise()

    async def flush(self) -> None:
        """Wait until all that was said is committed and delivered; raises what that failed with.

        Cancelling this cancels no commit.
        """
        await self.leave()
        self._raise()

    async def leave(self) -> None:
        """`flush` for who does not mind what came of it: whoever says something next is told."""
        self.begin()
        if self.committing is not None:
            await asyncio.wait([self.committing])

    async def finish(self) -> None:
        """`flush` at the end of a turn, in a task that nobody cancels: its answer comes next.

        What was said last may be committed together with that. Where many turns end in one step,
        they do so by and by.
        """
        post = self._post
        if self.committing is not None:  # of all that the others have said: they, too, go on then
            await asyncio.wait([self.committing])
        post.step()
        if post.ending.is_crowded or monotonic() >= post.breathe_at:
            await post.ending.wait()
        if self.committing is None and self._state == "open" and self.holds_any:
            self.committing = asyncio.current_task()
            await self._commit(self.taken(), at_end=True)
        if self.committing is not None or self.holds_any:
            await self.flush()
        else:
            self._raise()

    # -- on its way -----------------------------------------------------------------------

    def wait_for_more(self) -> None:
        """Commit at the end of this step of the event loop, unless somebody does before."""
        if self._state == "open" and self.committing is None and self.holds_any:
            self._is_due = True
            self._post.call_for(self)
        else:
            self._post.step()

    @property
    def holds_updates_alone(self) -> bool:
        """Whether there is something to commit, and nothing but a run of updates."""
        is_free = self._state == "open" and self.committing is None
        return is_free and bool(self._updates) and len(self._runs) == 1

    def taken(self) -> Runs:
        """All that it holds, to be committed."""
        self._is_due, self.is_heard = False, True
        self._post.forget(self)
        held, self._updates, self._bytes = self._runs, [], 0
        self._runs = [(UPDATE, self._updates)]
        return held

    def begin(self, runs: Runs | None = None) -> None:
        """Commit these runs that were `taken`, and all that it holds, unless that is under way."""
        if self._state == "open" and self.committing is None and (runs or self.holds_any):
            self._post.begin(self._commit(runs or self.taken()), self)

    async def _commit(self, held: Runs, *, at_end: bool = False) -> None:
        try:
            while True:
                runs = [run for run in held if run[1]]
                for kind, raws in runs:
                    are_last = at_end and raws is runs[-1][1]
                    said = Updates(self.session_id, kind, raws, are_last)
                    await self._post.listener.hear(said)
                if not self.holds_any:
                    return
                held = self.taken()
        except AcpholdError as exc:
            self.failure = exc
        except Exception as exc:  # nobody awaits this task: who says something next is told
            self.failure = incident(exc)
        finally:
            self.committing = None

    @property
    def holds_any(self) -> bool:
        """Whether there is something to commit."""
        return bool(self._updates) or len(self._runs) > 1

    def _refuse(self) -> NoReturn:
        raise DeclarationError(f"session {self.session_id!r} was closed here: nothing enters it")

    def _raise(self) -> None:
        if self.failure is not None:
            failure, self.failure = self.failure, None
            raise failure


class TurnOutbox:
    """The outbox of a session as one turn uses it: closed at its end, and nothing enters it then.

    So a tool call or a task that outlives its turn is refused; it cannot speak in a later one.
    """

    def __init__(self, outbox: Outbox) -> None:
        self.over: bool = False
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
