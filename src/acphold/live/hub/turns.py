"""The turns of one session: one at a time at the agent, the others wait here.

Agents treat a second prompt differently while one runs (queue it, drop it, end both). So the queue
is ours, and no agent ever sees a second prompt. The stages of a turn are in `hub.prompt_turn`.

A prompt is committed before anything that takes time, so that a crash cannot lose it:

    the agent                            the prompt is committed
    -----------------------------------  ---------------------------------------------------------
    is ready for it                      while the agent thinks; its answer is handled after the
                                         commit: answers are taken in wire order, and
                                         `HubSession.hold` puts the prompt before them
    is a program, and the journal is     before it is sent: a commit also checks that the session
    a database                           is ours, and takes no longer than that check alone
    has to be started, or to open the    before that begins
    session again, or ended meanwhile
    runs in this process (library)       before it is sent if it has blocked; otherwise at the end
                                         of the step, with its first updates and other sessions

A client that asks for positions learns from the position of its prompt whether it may send the
prompt again (`server.positions`). A prompt of such a client is always committed before it is
sent, in the same step.
"""

# See docs/decisions.md, 4.

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from time import monotonic

from msgspec import Struct, field

from acp_wire.rpc.requests import Answer
from acp_wire.rpc.wire_errors import incident
from acp_wire.schema import CANCEL, splice
from acp_wire.tasks import TaskSet, timeout
from acphold import errors
from acphold.conversation.history.timeline import TurnOutcome, end_entry, turn_end
from acphold.conversation.history.titles import says_nothing, title_of_prompt
from acphold.journal.owners import clock
from acphold.journal.rows import RowChange
from acphold.live.hub import bounds
from acphold.live.hub.agent_session import AgentSession, Voice
from acphold.live.hub.alerts import SessionAlerts
from acphold.live.hub.annotations import title_update
from acphold.live.hub.attachment import Client
from acphold.live.hub.prompt_turn import CANCELLED, ENDED, PromptCall, PromptTurn, TurnStage
from acphold.live.hub.questions import Questions
from acphold.live.hub.restoration import Restoration
from acphold.live.hub.services import TerminalTexts
from acphold.live.hub.session import HubSession
from acphold.live.hub.shared_parts import SharedParts
from acphold.live.hub.tool_calls import close_open
from acphold.live.hub.turn_files import TurnFiles
from acphold.logs import NONE

log = logging.getLogger(__name__)


class Turns(Struct, eq=False):
    """The queue of prompts, and the running turn. `go_on` begins a queued prompt, if one waits."""

    _session: HubSession
    _side: AgentSession
    _restoration: Restoration
    _questions: Questions
    _terminals: TerminalTexts
    _alerts: SessionAlerts
    _shared: SharedParts
    files: TurnFiles
    _go_on: Callable[[], None]
    _queue: list[PromptTurn] = []
    _first: PromptTurn | None = None
    _last_sent: PromptTurn | None = None
    _runs: TaskSet = field(default_factory=TaskSet)
    _winding_down: TaskSet = field(default_factory=TaskSet)
    _unrecorded: errors.AcpError | None = None
    _recording: asyncio.Lock = field(default_factory=asyncio.Lock)
    _ends_with_process: bool = False
    _between: set[Client] = set()

    @property
    def running(self) -> PromptTurn | None:
        """The first turn that is not over; None between turns."""
        return self._queue[0] if self._queue else None

    @property
    def at_work(self) -> int | None:
        """The last entry before the turn that the agent works on; None if it works on none."""
        turn = self.running
        return turn.began if turn is not None and turn.stage is TurnStage.RUNNING else None

    @property
    def clients(self) -> list[Client]:
        """The clients whose turns are not over."""
        return [turn.client for turn in self._queue if turn.client is not None]

    @property
    def is_cancelling(self) -> bool:
        """True while the agent works on a turn that was cancelled."""
        turn = self._last_sent
        return turn is not None and turn.is_at_agent and turn.stage is not TurnStage.RUNNING

    def hear(self, client: Client) -> None:
        """Note that this client says something to the agent, in the running turn or before the
        next."""
        (self._between if self.running is None else self.running.speakers).add(client)

    @property
    def is_by_owner(self) -> bool:
        """False if a guest has said anything in the running turn; between turns, since the last
        one."""
        if self.running is None:
            return all(client.owns(self._session.tenant) for client in self._between)
        return self.running.is_by_owner(self._session.tenant)

    @property
    def is_unruled(self) -> bool:
        """True if a client that has spoken in the running turn wants no rule to answer in it."""
        turn = self.running
        return turn is not None and any(client.offer.is_unruled for client in turn.speakers)

    def begin(self, turn: PromptTurn, *, is_cancelled: bool = False) -> None:
        """Queue a turn and run it to its end; its `reply` answers the client. A cancelled turn
        never reaches the agent."""
        if is_cancelled:
            turn.stage = TurnStage.CANCELLED
        if self._ends_with_process:
            turn.conclude()
            if turn.client is not None:
                turn.client.part()
            turn.reply(errors.StoppedError())
            return
        if self._between:
            turn.speakers |= self._between
            self._between.clear()
        self._queue.append(turn)
        self.log_step("a prompt of %d bytes has arrived", len(turn.prompt), turn=turn)
        self._session.rest.end()
        self._begin_first()

    def log_step(self, words: str, *args: object, turn: PromptTurn | None = None) -> None:
        """Log a step of a turn, by default of the running one, at level DEBUG."""
        if log.isEnabledFor(logging.DEBUG):
            turn = turn or self.running
            number = NONE if turn is None else turn.number
            log.debug("session %s, turn %s: " + words, self._session.id, number, *args)

    def find(self, sent_id: str) -> PromptTurn | None:
        """Return the turn whose prompt its client sent under this id; None once it is over."""
        return next((turn for turn in self._queue if turn.sent_id == sent_id), None)

    def give_up(self, turn: PromptTurn) -> None:
        """Cancel one turn: it keeps its place in the queue, and its end is journalled."""
        self._winding_down.start(self._cancel(turn), "turn winds down")

    def _begin_first(self) -> None:
        if self._first is None and self._queue:
            turn = self._first = self._queue[0]
            running = self._shared.tasks.begin(self._run(turn), "turn")
            if running is not None:
                self._runs.add(running)

    # -- the beginning --------------------------------------------------------------------

    async def _run(self, turn: PromptTurn) -> None:
        """Get the prompt to the agent; the table of the module says when it is committed."""
        try:
            turn.began = self._session.last_seq
            if not turn.may_begin():
                turn.is_started = True
                self._conclude(turn, errors.AgentBusyError("it has to keep waiting"))
                return
            if turn.stage is TurnStage.QUEUED:
                turn.stage = TurnStage.STARTING
            try:
                if clock() > self._shared.journal.late_at:
                    await self._session.verify()
                await self._start(turn)
            except errors.AcpError as exc:
                await self._end(turn, exc)
            if turn.is_cancelled and not turn.is_at_agent:
                await self._end(turn, CANCELLED)
            if len(turn.prompt) >= bounds.LONG_PROMPT_BYTES:
                await asyncio.sleep(0)  # the commit takes as long as all before
            if self._side.agent.reads_journal and turn.is_at_agent:
                self._shared.release.add(self._session, partial(self._record, turn))
            else:
                await self._record(turn)
        except Exception as exc:  # whatever went wrong, a client that waits is answered
            self._conclude(turn, exc)
        turn.is_started = True
        self._begin_next(turn)

    async def _start(self, turn: PromptTurn) -> None:
        """Make the agent ready and send it the prompt, unless the turn is cancelled meanwhile."""
        is_begun = turn.stage is TurnStage.STARTING  # False if it was cancelled before
        is_ready = is_begun and not self._side.is_at_work and self._restoration.is_needless
        takes_a_moment = self._side.agent.takes_a_moment and self._unrecorded is None
        if not is_ready or not takes_a_moment:
            await self._record(turn)
        if not is_ready:
            await self._make_ready(turn)
        if turn.stage is not TurnStage.STARTING:
            return
        self.files.begin(turn.began, self._session.row.folders)
        try:
            await self._send(turn)
        except errors.AgentExitedError as exc:  # it is started again, once
            log.info("session %s: %s before it got a prompt", self._session.id, exc)
            await self._record(turn)
            await self._make_ready(turn)
            if turn.stage is TurnStage.STARTING:
                await self._send(turn)

    async def _make_ready(self, turn: PromptTurn) -> None:
        """Make the agent ready for the prompt; a cancellation ends the wait."""
        try:
            async with timeout(None) as turn.starting:
                if turn.stage is TurnStage.STARTING:
                    await self._agent_is_free()
                    await self._restoration.ready(turn.began)
                    await self._agent_is_free()  # opened under the id it was at work under
        except TimeoutError:
            pass  # cancelled: its stage says so
        finally:
            turn.starting = None

    async def _send(self, turn: PromptTurn) -> None:
        """Send the agent the prompt, if the session is still ours."""
        params = await self._restoration.outgoing(turn.params, turn.began)

        def send() -> None:
            if turn.stage is not TurnStage.STARTING:
                return  # it ended meanwhile
            side = self._side
            assert side.id is not None
            before = (self._last_sent, side.voice)
            turn.at_agent = self._shared.routes.begin_turn(side.id)
            turn.stage, self._last_sent, side.voice = TurnStage.RUNNING, turn, Voice.COUNTS
            turn.usage = self._session.attributes.usage
            self._alerts.turn_began(turn.prompt, turn.began)
            self._hold(turn)  # first: `send` may already publish, even the answer
            try:
                self.log_step("the agent is asked", turn=turn)
                side.agent.send(PromptCall(params, partial(self.on_answer, turn), turn.number))
            except errors.AcpError:
                turn.stage = TurnStage.STARTING
                self._last_sent, side.voice = before
                turn.at_agent.set()
                turn.at_agent = None
                raise

        is_of_a_program = not self._side.agent.reads_journal
        is_far = self._shared.journal.file is None  # a look at a database takes as long as a commit
        is_first = turn.may_come_again or (is_of_a_program and is_far)
        if is_first and not turn.is_recorded:
            await self._record(turn, send)  # looks at the lease, too
        else:
            await self._session.verify()
            send()

    async def _record(self, turn: PromptTurn, first: Callable[[], None] | None = None) -> None:
        """Commit the prompt, call `first`, then show the prompt to the other clients."""
        if turn.is_over:
            return
        try:
            if self._unrecorded is not None:
                await self.record_failure()
            self._hold(turn)
            await self._session.release(first)
        except errors.JournalError as exc:
            await self.fail(exc)

    def _hold(self, turn: PromptTurn) -> None:
        """Have the prompt committed before anything else of its turn."""
        if turn.is_recorded:
            return
        turn.is_recorded = True
        session = self._session
        title = self._title_of(turn) if session.row.untitled else None
        change = session.row.prompt_change(title, self._side.agent, turn)
        for kind, raw in turn.preface():
            session.hold(kind, [raw])
        session.hold("prompt", [turn.prompt], turn.author, change)

    async def _send_again(self, turn: PromptTurn) -> None:
        """Send the prompt once more: the agent has lost the session, and gets a new one."""
        try:
            await self._record(turn)
            await self._make_ready(turn)
            if turn.stage is TurnStage.STARTING:
                await self._send(turn)
            if turn.is_cancelled and not turn.is_at_agent:
                await self._end(turn, CANCELLED)
        except errors.AcpError as exc:
            await self._end(turn, exc)
        except Exception as exc:  # whatever went wrong, a client that waits is answered
            self._conclude(turn, exc)

    async def _agent_is_free(self) -> None:
        """Wait for the agent to end an earlier turn that was answered for; if it does not, restart
        it.

        Raises AgentBusyError if the agent also works for another session.
        """
        ended = self._shared.routes.turn_at_work(self._side.id)
        if ended is None:
            return
        try:
            async with timeout(self._shared.options.cancel_grace):
                await ended.wait()
        except TimeoutError:
            if self._shared.routes.is_at_work_in_another(self._side.id):
                raise errors.AgentBusyError(
                    "the agent is still working on a cancelled turn, and on another session; "
                    "try again later"
                ) from None
            log.warning(
                "session %s: the agent does not end its turn; restarting it", self._session.id
            )
            await self._side.agent.restart()

    # -- the end --------------------------------------------------------------------------

    async def on_answer(self, turn: PromptTurn, answer: Answer) -> None:
        """Take the agent's answer to the prompt; called in wire order."""
        if turn.at_agent is not None:
            turn.at_agent.set()
        if turn is self._last_sent:  # a session may rest for weeks: without its prompt and client
            self._last_sent = None
        if turn.stage is not TurnStage.RUNNING:
            self._side.voice = Voice.STALE
        try:
            if isinstance(answer, bytes):
                await self._restoration.on_understood()
            elif turn.stage is TurnStage.RUNNING and self._restoration.on_refusal(answer):
                turn.stage = TurnStage.STARTING
                self._runs.start(self._send_again(turn), "turn again")
                return
            await self._end(turn, answer)
            if self._session.holds_any:  # the turn was over already
                await self._session.release()
        except Exception as exc:  # whatever went wrong, a client that waits is answered
            self._conclude(turn, exc)

    async def _end(self, turn: PromptTurn, answer: Answer) -> None:
        """Journal how the turn ended, then let its client know; does nothing if it is over.

        Before that, close what is open in it and give the session a title: they are part of the
        turn.
        """
        session = self._session
        async with turn.ending:
            if turn.is_over:
                return
            try:
                if self._unrecorded is not None:
                    await self.record_failure()
                self._hold(turn)
                await self._terminals.turn_over()
                answer = await self._close_open(turn, answer)
                if self._questions.are_left:
                    await self._questions.turn_over(turn.began)
                entry = end_entry(answer)
                title = self._title_of(turn) if session.row.untitled else None
                if title is not None:
                    # The agent has given none: a session gets a title with its first turn, and
                    # another one with the first that says something.
                    change = RowChange(title=title)
                    session.hold("update", [title_update(title)], change=change)
                if (
                    not isinstance(answer, bytes) or b"sessionFailure" in answer
                ) and not turn.is_cancelled:
                    from acphold.live.hub.usage_limit import with_limit_reached  # few turns fail

                    agent, waits = self._side.agent, self._shared.options.when_limited == "wait"
                    entry = await with_limit_reached(
                        entry, turn, answer, session, agent, waits=waits
                    )
                if turn.is_over:
                    return
                if b'"/' in turn.prompt and b'"end_turn"' in entry:
                    self._restoration.on_command(turn.prompt, turn.usage)
                await session.publish(
                    "turn_end",
                    [entry],
                    turn.author,
                    then=partial(turn.reply, answer),
                    change=session.row.end_change(is_attached=bool(session.attachments)),
                )
                if title is not None:
                    session.row.untitled = says_nothing(title)
                    self._shared.follow_title(session.row.cwd)
                    self._alerts.entitle(turn.prompt, turn.began, self._shared.made_titles)
                self._settle(turn, lambda: turn_end(entry, 0).outcome)
            except errors.JournalError as exc:
                self._unrecorded = exc
                self._conclude(turn, exc)

    def _title_of(self, turn: PromptTurn) -> str | None:
        title = title_of_prompt(turn.prompt)
        return title if self._session.attributes.title is None or not says_nothing(title) else None

    async def _close_open(self, turn: PromptTurn, answer: Answer) -> Answer:
        """Journal the ends of what is open in a turn that failed or was cancelled; return the
        answer for its client."""
        if isinstance(answer, errors.AgentError):  # its questions and its work end with it
            at_agent = turn.at_agent
            if at_agent is not None and at_agent.is_set() and not self._restoration.doubt:
                self._restoration.doubt = "cut"
            self._questions.abandon(answer)
            await close_open(self._session, str(answer), turn.began)
        is_result = isinstance(answer, bytes) and answer.startswith(b"{")
        if not turn.is_cancelled:
            return ENDED if isinstance(answer, bytes) and not is_result else answer
        # An error counts as cancelled, too (spec v1, prompt turn, "Cancellation").
        if isinstance(answer, bytes) and is_result:
            answer = splice(answer, {"stopReason": b'"cancelled"'})
        else:
            log.info("session %s: cancelled: %r", self._session.id, answer)
            answer = CANCELLED
        await close_open(self._session, "cancelled", turn.began, cancelled=True)
        return answer

    def _conclude(self, turn: PromptTurn, error: Exception) -> None:
        """End the turn without an end in the journal."""
        outcome: TurnOutcome = "interrupted" if self._session.is_lost else "failed"
        self._settle(turn, lambda: outcome, error)

    def _settle(
        self,
        turn: PromptTurn,
        how: Callable[[], TurnOutcome],
        error: Exception | None = None,
    ) -> None:
        """End the turn here, unless it is over: the session may have been lost meanwhile."""
        if turn.is_over:
            return
        if error is not None:
            turn.reply(error if isinstance(error, errors.AcpError) else incident(error))
        turn.conclude()
        if log.isEnabledFor(logging.DEBUG):
            self.log_step("%s after %.3f s", how(), monotonic() - turn.arrived, turn=turn)
        self._alerts.turn_ended(how)
        self._go_on()
        self.files.end(turn.began)
        self._queue.remove(turn)
        if not self._queue:
            self._session.turn_over()
        self._begin_next(turn)

    def _begin_next(self, turn: PromptTurn) -> None:
        """Let the next turn begin once this one is over and no step of its start is under way."""
        if turn is self._first and turn.is_over and turn.is_started:
            self._first = None
            if self._queue:  # not nested: the ends of many cancelled turns would exhaust the stack
                asyncio.get_running_loop().call_soon(self._begin_first)

    # -- cut short ------------------------------------------------------------------------

    def withdraw(self, client: Client) -> list[PromptTurn]:
        """Take out and return the turns of a client that goes which have not begun, in order;
        without those that it sends again when it comes back."""
        withdrawn = [
            turn
            for turn in self._queue
            if turn.client is client
            and not turn.may_come_again
            and turn.stage is TurnStage.QUEUED
            and turn is not self._first
        ]
        for turn in withdrawn:
            turn.conclude()
            self._queue.remove(turn)
        if withdrawn and not self._queue:
            self._session.turn_over()
        return withdrawn

    async def cancel(self, client: Client | None = None) -> None:
        """Cancel the running turn, whoever prompted it, and the turns of `client` that wait after
        it; with None, all of them (`session/cancel`)."""
        self._questions.cancel()
        for turn in tuple(self._queue):
            if turn is self.running or client in (None, turn.client):
                await self._cancel(turn)

    async def cancel_sent(self, sent_id: str) -> None:
        """Cancel the turn whose prompt its client sent under this id, if it waits or runs."""
        if (turn := self.find(sent_id)) is not None:
            await self._cancel(turn)

    async def end_for(self, client: Client) -> None:
        """End the turns of a client that detaches; those of others go on."""
        turns = [turn for turn in self._queue if turn.client is client]
        for turn in turns:
            await self._cancel(turn)
        await self._ends(turns)
        for turn in turns:
            turn.reply(CANCELLED)  # a turn that waits for its place in the queue still ends there

    async def _cancel(self, turn: PromptTurn) -> None:
        if turn is self.running:
            self._questions.cancel()
        if turn.stage in (TurnStage.CANCELLED, TurnStage.OVER):
            return
        turn.stage = TurnStage.CANCELLED
        self.log_step("cancelled", turn=turn)
        if turn.is_at_agent:
            await self._stop_agent()
            self._winding_down.start(self._answer_for(turn), "turn winds down")
        turn.start_no_more()
        # Those in the queue end when they are first: the journal keeps the order of the prompts.

    async def fail(self, error: errors.AcpError) -> None:
        """End the running turn with this error, at once: its prompt or updates could not be
        journalled."""
        turn = self.running
        if turn is None:
            return
        self._unrecorded = error
        self._conclude(turn, error)
        self._questions.cancel()
        if turn.is_at_agent:
            self._side.voice = Voice.STALE
            await self._stop_agent()

    def lose(self, error: errors.AcpError) -> None:
        """End all turns here: the session is no longer ours."""
        for turn in tuple(self._queue):
            self._conclude(turn, error)
        if self._last_sent is not None and self._last_sent.is_at_agent:
            self._winding_down.start(self._stop_agent(), "turn winds down")

    async def record_failure(self) -> None:
        """Journal the end of a turn that failed while the journal could not be written."""
        async with self._recording:
            if (error := self._unrecorded) is None:
                return
            await close_open(self._session, str(error))
            await self._session.publish("turn_end", [end_entry(error)])
            self._unrecorded = None

    async def _stop_agent(self) -> None:
        await self._side.agent.tell(CANCEL.name, self._side.under_its_id(b"{}"))

    async def _answer_for(self, turn: PromptTurn) -> None:
        """Give the agent its grace, then end the turn, whatever the agent still does."""
        assert turn.at_agent is not None
        try:
            async with timeout(self._shared.options.cancel_grace):
                await turn.at_agent.wait()
        except TimeoutError:
            log.warning(
                "session %s: ended a cancelled turn without the agent's answer", self._session.id
            )
            self._side.voice = Voice.STALE
            await self._end(turn, CANCELLED)

    async def _ends(self, turns: Sequence[PromptTurn]) -> None:
        """Wait a moment for these turns to end."""
        with suppress(TimeoutError):
            async with timeout(min(self._shared.options.cancel_grace, bounds.TURNS_CLOSE_SECONDS)):
                for turn in tuple(turns):
                    await turn.over()

    async def aclose(self, *, with_process: bool = False) -> None:
        """End the turns within seconds; their clients are answered."""
        self._ends_with_process |= with_process
        self._session.wait_no_more()
        # Forget prompts that have not begun and that their clients will send again. Those clients
        # are cut off by our end, and find out from the journal (see server.positions). So tell
        # them nothing here, also not of prompts that have begun.
        for turn in tuple(self._queue):
            client = turn.client
            is_here = client is not None and self._session.attachments.find(client) is not None
            is_begun = turn.is_recorded or turn.stage is not TurnStage.QUEUED
            if turn.may_come_again and not is_here and not is_begun:
                self._conclude(turn, errors.LeaseLostError(self._session.id))
        await self.cancel()
        await self._ends(self._queue)
        for turn in tuple(self._queue):
            await self._end(turn, CANCELLED)
        await self._winding_down.aclose()
        if self._runs:
            await asyncio.wait(self._runs, timeout=bounds.TURNS_CLOSE_SECONDS)
