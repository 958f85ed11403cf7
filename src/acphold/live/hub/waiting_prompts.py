"""A person's words while a turn runs: queued prompts, and interjections.

Queued prompts are in the journal, and need no client. The next one begins while no turn runs, no
question is open and nothing holds the queue; `history.prompt_queue` has its states. It is taken out
of the queue by the commit that has its prompt, before the agent gets it.

An interjection says something to the agent while it works. Known forms: `_session/steering` with a
`prompt` (claude-agent-acp, codex-acp and others), the same under a vendor's name
(`_goose/unstable/session/steer`, `_lody/session/steer`), the drafted `session/inject`, and a
`message` or `text` in place of the blocks (`_session/steer` of kiro-cli).
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections import deque
from collections.abc import Set
from uuid import uuid4

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from acp_wire.rpc.requests import Answer
from acp_wire.schema import encode
from acp_wire.tasks import TaskSet
from acphold.conversation.history.entries import AUTHOR, QUEUE
from acphold.conversation.history.prompt_queue import (
    ON_TERMS,
    REOPENED,
    STOPPED,
    PromptQueue,
    QueueChange,
    WaitingPrompt,
    after_change,
    content_in,
    fitting,
)
from acphold.conversation.history.raw_update import items, members, string, text_block
from acphold.errors import InvalidParamsError, JournalError
from acphold.live.hub import bounds
from acphold.live.hub.agent_session import AgentSession
from acphold.live.hub.annotations import repeats
from acphold.live.hub.attachment import Client
from acphold.live.hub.prompt_turn import PromptTurn
from acphold.live.hub.questions import Questions
from acphold.live.hub.session import HubSession
from acphold.live.hub.turns import Turns

log = logging.getLogger(__name__)


class QueuedTurn(PromptTurn, kw_only=True):
    """The turn of a prompt from the queue; `info` is that of its client."""

    waits: WaitingPrompt
    info: bytes
    queue: WaitingQueue

    def is_by_owner(self, tenant: str) -> bool:
        return not self.waits.guest and super().is_by_owner(tenant)

    def may_begin(self) -> bool:
        return self.queue.is_free

    def preface(self) -> list[tuple[str, bytes]]:
        entries = [(QUEUE, encode(QueueChange("begin", self.waits.id)))]
        return [*entries, (AUTHOR, self.info)] if members(self.info) else entries


class WaitingQueue(Struct, eq=False):
    """The prompts of one session that wait, and their beginning.

    Once it `is_awake`: somebody who may prompt has the session open, or has had."""

    _session: HubSession
    _side: AgentSession
    _turns: Turns
    _questions: Questions
    _beginning: str | None = None  # the prompt that is no longer anybody's to change
    _tasks: TaskSet = field(default_factory=TaskSet)
    _keeping: asyncio.Task[None] | None = None
    _timer: asyncio.TimerHandle | None = None
    _has_stopped: bool = False
    _is_held_back: bool = False  # by a hold that the journal may not have yet
    _editors: dict[str, Client] = field(default_factory=dict)  # by the ids of the prompts
    is_awake: bool = False

    # -- changes --------------------------------------------------------------------------

    async def change(self, change: QueueChange, client: Client) -> str:
        """Change the queue for a client; return the id of the prompt concerned.

        Raises InvalidParamsError if the change does not fit, JournalError.
        """
        if change.do == "add" and not change.id:
            change = replace(change, id=uuid4().hex[:8])
        change = self._by(client, replace(change, why="", terms=msgspec.UNSET))
        if change.do == "go" and self._lacks_terms:
            raise InvalidParamsError(
                f"change: the session stands on {self._session.queue.terms}, which its agent has "
                "no longer; load it in a client that chooses that again",
                field="change",
            )

        def fit(queue: PromptQueue) -> bytes:
            if change.id and change.id == self._beginning:
                raise InvalidParamsError(
                    f"id: prompt {change.id!r} has already begun", field="change.id"
                )
            return fitting(queue, change)

        if change.do == "take":
            async with self._session.writing:
                fit(self._session.queue)
                self._editors[change.id] = client
                self._edit(after_change(self._session.queue, change, 0, 0))
            return change.id
        await self._session.change_queue(fit)
        self._is_held_back = False  # what a client's stop has held was committed before
        self.look()
        return change.id

    def left(self, client: Client) -> None:
        """Let the prompts that a client edits begin as they were, unless it comes back soon."""
        if client in self._editors.values():
            loop = asyncio.get_running_loop()
            loop.call_later(bounds.EDITOR_SECONDS, self._give_back, client)

    def _give_back(self, client: Client) -> None:
        if self._session.attachments.find(client) is None:
            left = {prompt_id for prompt_id, by in self._editors.items() if by is client}
            self._editors = {it: by for it, by in self._editors.items() if it not in left}
            self._tasks.start(self._stand(left), "give prompts back")

    async def _stand(self, prompt_ids: Set[str]) -> None:
        async with self._session.writing:
            self._edit(self._session.queue.without_edited(prompt_ids))
        self.look()

    def _edit(self, queue: PromptQueue) -> None:
        """Say which prompts are edited now, within `writing`."""
        self._session.queue = queue
        self._session.attachments.notify_queue()

    async def content(self, prompt_id: str) -> QueueChange:
        """Return the content of a queued prompt, and its client; InvalidParamsError."""
        waits = self._session.queue.find(prompt_id)
        if waits is None:
            raise InvalidParamsError(f"read: no prompt {prompt_id!r} is waiting", field="read")
        return await self._content(waits)

    async def _content(self, waits: WaitingPrompt) -> QueueChange:
        return content_in(await self._session.read(waits.seq - 1, 1), waits)

    def keep(self, client: Client) -> None:
        """Put the prompts of a client that goes after what waits, if their turns have not
        begun."""
        if not (turns := self._turns.withdraw(client)):
            return
        for turn in turns:
            add = self._by(client, QueueChange("add", uuid4().hex[:8], msgspec.Raw(turn.prompt)))
            # Held, not published: so they are there when the running turn ends, however it ends.
            self._session.hold(QUEUE, [encode(add)])

        async def commit() -> None:
            await self._flush("prompts are not in the queue yet")
            self.look()

        self._keeping = self._tasks.start(commit(), "keep prompts")

    def _by(self, client: Client, change: QueueChange) -> QueueChange:
        guest = not client.owns(self._session.tenant)
        return replace(change, client=msgspec.Raw(client.info or b"{}"), guest=guest)

    def hold_back(self) -> None:
        """Hold what waits: a client has stopped the session. Nothing begins from now on, whether a
        turn runs, has just ended, or is about to begin."""
        queue = self._session.queue
        if not queue.waiting or (queue.held and queue.until_ms is None):
            return
        self._is_held_back = True
        self._session.hold(QUEUE, [encode(QueueChange("hold", why=STOPPED))])

        async def commit() -> None:
            if await self._flush("the hold is not written yet"):  # else it stays held back here
                self._is_held_back = False

        self._tasks.start(commit(), "hold the queue")

    async def _flush(self, otherwise: str) -> bool:
        """Commit what is held; return False if the journal fails: the next commit has it."""
        try:
            await self._session.flush()
        except JournalError as exc:
            log.warning("session %s: %s: %s", self._session.id, otherwise, exc)
            return False
        return True

    @property
    def _lacks_terms(self) -> bool:
        """True if the session stands on terms that its agent has not."""
        its = self._session.queue.terms
        return bool(its) and not self._side.agent.terms.stand_for(its)

    async def note_terms(self, *, anew: bool = False) -> None:
        """Note what the session stands on, and begin what has waited for that. Raises JournalError.

        With `anew` its person has just chosen; else an agent that lacks terms changes nothing.
        """
        terms = self._side.agent.terms
        label = terms.lost_label
        if not anew and (not terms or self._lacks_terms):
            return
        if self._session.queue.terms != label:
            await self._session.publish(QUEUE, [encode(QueueChange("set", terms=label))])
        if self.is_awake and self._session.queue.held == ON_TERMS:
            await self._session.publish(QUEUE, [encode(QueueChange("go"))])
            self.look()

    async def wake(self) -> None:
        """Begin what waits from now on. What waited when this process opened the session is held,
        unless it is to go on; so is what stands on terms that the agent has not. Raises
        JournalError."""
        if self.is_awake:
            return
        queue = self._session.queue
        goes_by_itself = not queue.held or queue.until_ms is not None
        if queue.waiting and self._lacks_terms and (goes_by_itself or queue.restarts):
            if queue.held != ON_TERMS:
                await self._session.publish(QUEUE, [encode(QueueChange("hold", why=ON_TERMS))])
        elif queue.waiting and goes_by_itself and not queue.restarts:
            await self._session.publish(QUEUE, [encode(QueueChange("hold", why=REOPENED))])
        elif queue.waiting and queue.held == REOPENED and queue.restarts:
            await self._session.publish(QUEUE, [encode(QueueChange("go"))])
        self.is_awake = True
        self.look()

    def process_ends(self) -> None:
        """Hold what is to go on in the next process: the running turn, which ends with this one,
        then holds nothing."""
        queue, turn = self._session.queue, self._turns.running
        is_keeping = self._keeping is not None and not self._keeping.done()
        goes_on = (queue.waiting or is_keeping) and queue.restarts and not queue.held
        if goes_on and turn is not None and not turn.is_cancelled:
            self._session.hold(QUEUE, [encode(QueueChange("hold", why=REOPENED))])

    # -- beginning ------------------------------------------------------------------------

    def look(self) -> None:
        """Begin the next prompt, if it may begin, once what happens now is done."""
        if self.is_awake and self._session.queue.waiting and not self._has_stopped:
            asyncio.get_running_loop().call_soon(self._look)

    def _look(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        wakes_at = self._session.queue.wakes_at
        if wakes_at is None or self._has_stopped or self._session.is_lost:
            return
        seconds = (wakes_at - self._session.now_ms()) / 1000
        if seconds > 0:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(min(seconds, bounds.CLOCK_LOOK_SECONDS), self._look)
        elif self._beginning is None and self._turns.running is None and self.is_free:
            self._tasks.start(self._begin(), "begin queued prompt")

    def _look_later(self) -> None:
        """Look again in a while: the journal cannot be used."""
        if self._timer is None and not self._has_stopped:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(bounds.QUEUE_RETRY_SECONDS, self._look)

    @property
    def is_free(self) -> bool:
        """True if nothing holds a prompt up but perhaps a turn: a question, a hold, our end."""
        is_held = self._is_held_back or self._session.queue.is_held(self._session.now_ms())
        return not (is_held or self._lacks_terms or self._questions.waiting or self._has_stopped)

    async def _begin(self) -> None:
        """Begin the prompt that is next, if there still is one."""
        try:
            await self._turns.record_failure()  # which may hold the queue
        except JournalError as exc:
            log.info("session %s: queued prompts wait for the journal: %s", self._session.id, exc)
            self._look_later()
            return
        async with self._session.writing:  # after this no change of it can be under way
            waits = self._session.queue.next(self._session.now_ms())
            if waits is None or self._beginning is not None:
                return
            self._beginning = waits.id
        try:
            content = await self._content(waits)
        except (JournalError, ValueError) as exc:
            self._beginning = None
            log.error("session %s: cannot begin a queued prompt: %s", self._session.id, exc)
            if isinstance(exc, JournalError):
                self._look_later()
            return
        prompt, info = bytes(content.prompt), bytes(content.client)
        params = b'{"sessionId":%b,"prompt":%b}' % (encode(self._session.id), prompt)
        turn = QueuedTurn(params, prompt, None, self.over, waits=waits, info=info, queue=self)
        self._turns.begin(turn)

    def over(self, answer: Answer) -> None:
        """Note that the turn of a prompt from here is over."""
        self._beginning = None
        if not isinstance(answer, bytes):
            log.info("session %s: a queued prompt: %s", self._session.id, answer)
        self.look()

    def stop(self) -> None:
        """Begin nothing any more: the session is closed here."""
        self._has_stopped = True
        if self._timer is not None:
            self._timer.cancel()


SAYING = r"(^|[/._])(steer|steering|inject)$"
"""Methods that say something, whatever the member is called."""

WORDS = ("message", "text", "content")
"""Members of such a method that may have the words, if not `prompt`."""

REFUSALS = frozenset({"promptRequired", "failed"})
"""Outcomes of `_session/steering` that mean that the agent has not accepted the words."""


class Interjections:
    """The interjections of one session. An agent may send them back, before its answer or after."""

    def __init__(self) -> None:
        self._said: deque[bytes] = deque(maxlen=bounds.INTERJECTIONS)
        self._pending: list[bytes] = []

    def begin(self, prompt: bytes | None) -> None:
        """Note that words are sent to the agent, if there are any."""
        if prompt is not None:
            self._pending.append(prompt)

    def is_new(self, prompt: bytes, answer: bytes = b"") -> bool:
        """Return True if the agent's answer accepts words that are not journalled yet."""
        if prompt not in self._pending or not is_taken(answer):
            return False
        self._said.append(prompt)
        self.end(prompt)
        return True

    def end(self, prompt: bytes | None) -> None:
        """Note that it has been answered, or refused."""
        if prompt in self._pending:
            self._pending.remove(prompt)

    def is_echo(self, update: bytes) -> bool:
        """Return True if a user message from the agent repeats what is journalled.

        If the agent sends it back before its answer, that message is journalled instead.
        """
        for prompt in self._pending:
            if repeats(update, prompt):
                self._pending.remove(prompt)
                return False
        return any(repeats(update, prompt) for prompt in self._said)


def prompt_in(method: str, params: bytes) -> bytes | None:
    """Return the content blocks that a client's extension says to the agent; None if it says
    nothing."""
    parts = members(params)
    if _is_prompt(prompt := parts.get("prompt", b"")):
        return prompt
    if re.search(SAYING, method):
        for name in WORDS:
            if _is_prompt(raw := parts.get(name, b"")):
                return raw
            if text := string(raw):
                return b"[%b]" % text_block(text)
    return None


def _is_prompt(raw: bytes) -> bool:
    """Return True if this is an array of content blocks, and not an empty one."""
    blocks = items(raw)
    return bool(blocks) and all(
        block.startswith(b"{") and string(members(block).get("type")) for block in blocks
    )


def is_taken(answer: bytes) -> bool:
    """Return True if the agent's answer says that it has accepted the words."""
    if not answer.startswith(b"{"):
        return True
    parts = members(answer)
    return string(parts.get("outcome")) not in REFUSALS and parts.get("success") != b"false"
