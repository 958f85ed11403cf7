"""The turns of one session: one at a time at the agent, the others wait here.

Agents do different things with a second prompt while one runs (queue it, drop it, end both), so
the queue is ours and no agent ever sees a second one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import TYPE_CHECKING

from msgspec import Struct

from acphold.errors import AcpholdError, AgentBusyError, AgentError, JournalError
from acphold.hub.attachment import Attachment
from acphold.hub.marks import failed_tool, first_line, title_update
from acphold.rpc.incidents import incident
from acphold.rpc.peer import Answer
from acphold.schema import CANCEL, PROMPT, encode
from acphold.schema.splice import members, splice

if TYPE_CHECKING:
    from acphold.hub.backing import Backing
    from acphold.hub.session import Session

log = logging.getLogger(__name__)

CANCEL_GRACE = 10.0
"""Seconds an agent has to end a cancelled turn, before it is answered for."""

CLOSE_GRACE = 1.0
"""Seconds it has when the session is closed: whoever closes an editor does not wait longer."""

CANCELLED = b'{"stopReason":"cancelled"}'
ENDED = b'{"stopReason":"end_turn"}'


class Ended(Struct, frozen=True):
    """How a turn ended, which may be answered once entry `seq` has been delivered."""

    seq: int
    outcome: Answer

    def result(self) -> bytes:
        """The answer to the prompt; raises the error it ended with."""
        if isinstance(self.outcome, AcpholdError):
            raise self.outcome
        return self.outcome


class Turn:
    """One prompt from its arrival to its end.

    Its client waits for `ended`; `left_agent` is set once the agent has ended it too, which is
    later for an agent that does not heed a cancellation.
    """

    def __init__(self, author: Attachment, prompt: bytes) -> None:
        self.author = author
        self.prompt = prompt
        self.cancelled = False
        self.recorded = False
        self.left_agent = asyncio.Event()
        self._end: Ended | AcpholdError | None = None
        self._told = asyncio.Event()

    @property
    def over(self) -> bool:
        """Whether it has ended, for everybody but perhaps the agent."""
        return self._end is not None

    def end(self, end: Ended | AcpholdError) -> None:
        """It is over: so it ended, or this is why nobody can tell how."""
        self._end = end
        self._told.set()

    async def ended(self) -> Ended:
        """How it ended; cancelling this does not touch the turn."""
        await self._told.wait()
        if isinstance(self._end, Ended):
            return self._end
        assert self._end is not None
        raise self._end


class Turns:
    """The queue of prompts, and the turn that runs."""

    def __init__(self, session: Session, backing: Backing, cancel_grace: float) -> None:
        self._session = session
        self._backing = backing
        self._cancel_grace = cancel_grace
        self._queue: list[Turn] = []
        self._one_at_a_time = asyncio.Lock()
        self._at_agent: Turn | None = None
        self._hushed = False
        self._winding_down: set[asyncio.Task[None]] = set()
        self._failed: AcpholdError | None = None

    @property
    def running(self) -> Turn | None:
        """The first turn that is not over; None between turns."""
        return self._queue[0] if self._queue else None

    @property
    def overdue(self) -> bool:
        """Whether what the agent says now is of a turn that is over for everybody else.

        Also behind its answer, if the turn was cancelled, until the next prompt is sent (spec v1,
        prompt turn, "Cancellation": what it still has to say comes before the answer).
        """
        return self._hushed if self._at_agent is None else self._at_agent.over

    @property
    def cancelling(self) -> bool:
        """Whether the agent is at a turn that was cancelled."""
        return self._at_agent is not None and self._at_agent.cancelled

    async def prompt(self, params: bytes, author: Attachment) -> Ended:
        """Run one turn to its end; `params` hold a `prompt`.

        Raises JournalError when it cannot be kept. Cancelling this call cancels the turn; its end
        is journalled all the same.
        """
        turn = Turn(author, members(params)["prompt"])
        self._queue.append(turn)
        self._session.wake()
        try:
            async with self._one_at_a_time:
                await self._begin(turn, params)
                return await turn.ended()
        except asyncio.CancelledError:
            self._wind_down(self._abandon(turn))
            raise

    def _conclude(self, turn: Turn, end: Ended | AcpholdError) -> None:
        turn.end(end)
        self._queue.remove(turn)
        if not self._queue:
            self._session.turn_over()

    # -- the beginning --------------------------------------------------------------------

    async def _begin(self, turn: Turn, params: bytes) -> None:
        before = self._session.last_seq
        if turn.cancelled or self._at_agent is not None or not self._backing.is_at_once:
            await self._record(turn)  # what follows takes time: the prompt is safe meanwhile
        try:
            if not turn.cancelled:
                await self._agent_is_free()
                await self._backing.ready()
                params = await self._backing.outgoing(params, before)
        except AcpholdError as exc:
            await self._end(turn, exc)
        if turn.cancelled:
            await self._end(turn, CANCELLED)
        if turn.over:
            return
        try:
            self._send(turn, params)
        except AcpholdError as exc:
            await self._end(turn, exc)
            return
        # The agent thinks while the prompt is committed; nothing it answers is looked at before.
        await self._record(turn)

    def _send(self, turn: Turn, params: bytes) -> None:
        async def answered(answer: Answer) -> None:
            if self._at_agent is turn:
                self._at_agent = None
            turn.left_agent.set()
            self._hushed = turn.cancelled
            try:
                if isinstance(answer, bytes):
                    await self._backing.understood()
                await self._end(turn, answer)
            except Exception as exc:  # whatever went wrong, a client that waits is answered
                if not turn.over:
                    self._conclude(turn, exc if isinstance(exc, AcpholdError) else incident(exc))

        self._backing.agent.begin(PROMPT.name, params, answered)
        self._at_agent = turn
        self._hushed = False

    async def _record(self, turn: Turn) -> None:
        """Commit the prompt; show it to the other clients."""
        if turn.recorded:
            return
        turn.recorded = True
        try:
            await self.mend()
            await self._session.publish("prompt", [turn.prompt], turn.author)
            await self._session.prompted(title=first_line(turn.prompt))
        except JournalError as exc:
            await self.fail(exc)
        except asyncio.CancelledError:
            turn.recorded = False  # its end is recorded all the same, and the prompt before it
            raise

    async def _agent_is_free(self) -> None:
        """Wait for the end of an earlier turn that was answered for; else start the agent anew."""
        if self._at_agent is None:
            return
        try:
            async with asyncio.timeout(self._cancel_grace):
                await self._at_agent.left_agent.wait()
        except TimeoutError:
            if not self._backing.alone():
                raise AgentBusyError(
                    "the agent is still at work on a cancelled turn and serves another session; "
                    "try again later"
                ) from None
            log.warning("session %s: the agent does not end its turn; restarted", self._session.id)
            await self._backing.agent.restart()
        self._at_agent = None

    # -- the end --------------------------------------------------------------------------

    async def _end(self, turn: Turn, answer: Answer) -> None:
        """Journal how it ended, then let its client know; called in the order of the wire."""
        if turn.over:
            return  # answered for already
        await self._record(turn)
        if turn.over:
            return  # it could not even be recorded
        try:
            if isinstance(answer, bytes):
                await self._end_well(turn, answer)
            elif turn.cancelled:
                # An error after a cancellation is one (spec v1, prompt turn, "Cancellation").
                log.info("session %s: a cancelled turn failed: %s", self._session.id, answer)
                await self._gone(turn, answer)
                await self._end_well(turn, CANCELLED)
            else:
                await self._end_badly(turn, answer)
        except JournalError as exc:
            if not turn.over:
                self._conclude(turn, exc)

    async def _end_well(self, turn: Turn, result: bytes) -> None:
        if not result.startswith(b"{"):
            result = ENDED
        if turn.cancelled:
            result = splice(result, {"stopReason": b'"cancelled"'})
            await self._close_tools("cancelled")
        await self._give_title(turn)
        await self._finish(turn, result, result)

    async def _end_badly(self, turn: Turn, error: AcpholdError) -> None:
        await self._gone(turn, error)
        await self._give_title(turn)
        await self._finish(turn, _error_entry(error), error)

    async def _finish(self, turn: Turn, entry: bytes, outcome: Answer) -> None:
        segment = await self._session.publish("turn_end", [entry])
        if not turn.over:
            self._conclude(turn, Ended(segment.last_seq, outcome))

    async def _gone(self, turn: Turn, error: AcpholdError) -> None:
        """If the agent itself has ended, what it asked and what it worked at is over."""
        if isinstance(error, AgentError):
            self._backing.cut_off = turn.left_agent.is_set()
            self._session.questions.abandon(error)
            await self._close_tools(str(error))

    async def _close_tools(self, why: str) -> None:
        """Tool calls whose end nobody will report any more are closed as failed."""
        if tools := await self._session.open_tools():
            await self._session.publish("update", [failed_tool(tool, why) for tool in tools])

    async def _give_title(self, turn: Turn) -> None:
        """After its first turn a session has a title: the agent's own, else the first line."""
        session = self._session
        if session.untitled and (title := first_line(turn.prompt)) is not None:
            await session.publish("update", [title_update(title)])

    # -- cut short ------------------------------------------------------------------------

    async def cancel(self) -> None:
        """End the running turn and those that wait, as `session/cancel` asks."""
        self._session.questions.cancel()
        for turn in tuple(self._queue):
            await self._cancel(turn)

    async def _cancel(self, turn: Turn) -> None:
        if turn.over or turn.cancelled:
            return
        turn.cancelled = True
        if turn is self._at_agent:
            await self._stop_agent()
            self._wind_down(self._answer_for(turn))
        elif turn is self.running:
            await self._end(turn, CANCELLED)  # it has not reached the agent yet
        # Those that wait end when it is their turn: the journal keeps the order of the prompts.

    async def _abandon(self, turn: Turn) -> None:
        """Nobody waits for the answer any more."""
        await self._cancel(turn)
        if turn is not self._at_agent:
            async with self._one_at_a_time:
                await self._end(turn, CANCELLED)

    async def fail(self, error: AcpholdError) -> None:
        """The promise behind the running turn no longer holds: it ends with this, at once."""
        turn = self.running
        if turn is None or turn.over:
            return
        turn.cancelled = True
        self._failed = error
        self._conclude(turn, error)
        self._session.questions.cancel()
        await self._stop_agent()

    async def mend(self) -> None:
        """Journal the end of a turn that failed while the journal could not be written."""
        if (error := self._failed) is None:
            return
        await self._close_tools(str(error))
        await self._session.publish("turn_end", [_error_entry(error)])
        self._failed = None

    async def _stop_agent(self) -> None:
        params = encode({"sessionId": self._backing.agent_session})
        await self._backing.agent.tell(CANCEL.name, params)

    async def _answer_for(self, turn: Turn) -> None:
        """Give the agent its grace; then the turn is over, whatever it still does."""
        try:
            async with asyncio.timeout(self._cancel_grace):
                await turn.left_agent.wait()
        except TimeoutError:
            log.warning("session %s: a cancelled turn was answered for", self._session.id)
            await self._end(turn, CANCELLED)

    def _wind_down(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work, name="turn winds down")
        self._winding_down.add(task)
        task.add_done_callback(self._winding_down.discard)

    async def aclose(self) -> None:
        """End the turns within seconds; who waits for them is answered."""
        await self.cancel()
        if self._queue:
            grace = min(self._cancel_grace, CLOSE_GRACE)
            ends = [asyncio.ensure_future(turn.ended()) for turn in self._queue]
            await asyncio.wait(ends, timeout=grace)
            for end in ends:
                end.cancel()
            await asyncio.gather(*ends, return_exceptions=True)
        for turn in tuple(self._queue):
            await self._end(turn, CANCELLED)
        for task in tuple(self._winding_down):
            task.cancel()
            await asyncio.wait([task])


def _error_entry(error: AcpholdError) -> bytes:
    return encode({"error": {"code": error.code, "message": str(error)}})
