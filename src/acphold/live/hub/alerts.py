"""Alerts about a session that a person may not be looking at, by a command of theirs.

    what happens                                         alert
    ---------------------------------------------------  ----------------------------------------
    a question to a person stays open for so many        `waiting`, once; further questions of the
    seconds                                              session are part of it while it is open
    a turn that took so many seconds ends                `turn_end`, unless a person ended it
    a turn's end holds the queued prompts, and they   `held`, once for each time that they are
    still wait so many seconds later                     held, unless a person held them, or
                                                         cancelled the turn and is still there
    the first turn ends, and the agent gave no title     `title`: the command prints one

Otherwise attached clients make no difference: an open window is not a person who looks. The rules
are read when needed, so they may change while a session is live. Nothing here waits: alerts are
handed to `tell`, which must not raise, with a function that looks up the words of the question in
the journal if they are not known at once.

`Activity` reports each question and each turn at once, for those that show what is going on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from acphold.conversation.history.decisions import AskedQuestion
from acphold.conversation.history.timeline import TurnOutcome
from acphold.conversation.history.titles import title_of_prompt
from acphold.errors import JournalError
from acphold.live.agents.interface import HubAgent
from acphold.live.hub.session import HubSession
from acphold.live.hub.tool_calls import calls_since

UNTOLD = frozenset({"cancelled", "interrupted"})
"""Outcomes of turns without an alert: a person who is there caused them, or it is told
elsewhere."""


HELD = frozenset({"failed", "refused", "cancelled", "limited"})
"""The reasons for holding a queue that come with the end of a turn."""


class AlertRules(Struct, frozen=True):
    """Commands for alerts, and the seconds until each; an empty command tells nothing.

    `on_waiting` is for questions and for prompts that are held; `title` makes titles.
    """

    on_waiting: tuple[str, ...] = ()
    waiting_seconds: float = 20.0
    on_turn_end: tuple[str, ...] = ()
    turn_seconds: float = 60.0
    title: tuple[str, ...] = ()


class Alert(Struct, frozen=True):
    """One alert.

    `seconds` is how long the question has been open, or the turn took. `question`, `options` and
    `seq`, the number of its entry, belong to `waiting`; `outcome` belongs to `turn_end`; `queued`
    prompts, the reason `held`, and `until` when (ms since the epoch) to `held`.
    """

    event: Literal["waiting", "turn_end", "held", "title"]
    session_id: str
    agent: str
    cwd: str
    title: str
    seconds: float
    question: str = ""
    options: tuple[str, ...] = ()
    outcome: str = ""
    seq: int = 0
    queued: int = 0
    held: str = ""
    until: int | None = None


LookUp = Callable[[], Awaitable[str]]
"""Returns the words of a question."""


class Alerts:
    """The alerts of a hub. These tell nobody."""

    def rules(self) -> AlertRules:
        """Return the rules as they are now."""
        return AlertRules()

    def tell(self, command: tuple[str, ...], alert: Alert, look_up: LookUp | None = None) -> None:
        """Run a command of the rules for an alert, in which the words of the question are those
        that `look_up` returns, if given."""

    def entitle(
        self,
        command: tuple[str, ...],
        alert: Alert,
        read: Callable[[], Awaitable[bytes]],
        take: Callable[[bytes], Awaitable[None]],
    ) -> None:
        """Run a command that gets what `read` returns, and have taken what it prints."""

    @property
    def clock(self) -> asyncio.AbstractEventLoop:
        """The event loop's clock."""
        return asyncio.get_running_loop()


NO_ALERTS = Alerts()


class Activity:
    """Wakes its listeners, in any thread, when something happens in this process: a turn, a
    question or a session begins or ends.

    It says no more: they request the state from this process as from any other
    (`reading.processes`). If a listener is awake already, this costs one look at a flag.
    """

    def __init__(self) -> None:
        self._heard: dict[asyncio.Event, asyncio.AbstractEventLoop] = {}

    def stir(self) -> None:
        """Note that something happens."""
        for event, loop in tuple(self._heard.items()):
            if not event.is_set():
                with suppress(RuntimeError):  # its loop has ended this moment
                    loop.call_soon_threadsafe(event.set)

    @contextmanager
    def listen(self) -> Iterator[asyncio.Event]:
        """Yield an event of this loop that is set when something happens; clear it before
        looking."""
        event = asyncio.Event()
        self._heard[event] = asyncio.get_running_loop()
        try:
            yield event
        finally:
            del self._heard[event]


class SessionAlerts(Struct, eq=False):
    """The alerts of one session; see the module. `before_turn` is the last entry before the last
    turn."""

    _alerts: Alerts
    _session: HubSession
    _agent: HubAgent
    _activity: Activity
    _held: str  # as the queue was last
    _timers: dict[str, asyncio.TimerHandle] = {}
    _alerted: set[str] = set()
    _turn_began: float | None = None
    _held_timer: asyncio.TimerHandle | None = None
    _prompt: bytes = b"[]"
    before_turn: int = 0

    # -- questions ------------------------------------------------------------------------

    def on_question(self, question: AskedQuestion, seq: int) -> None:
        """Note that a question to a person is open; `seq` is its entry."""
        self._activity.stir()
        began = self._alerts.clock.time()

        def tell() -> None:
            del self._timers[question.id]
            rules = self._alerts.rules()
            if self._alerted or not rules.on_waiting:
                return
            self._alerted.add(question.id)
            alert = replace(
                self._alert("waiting", began),
                question=question.title,
                options=tuple(question.option_names),
                seq=seq,
            )
            untitled = question.untitled_call is not None
            look_up = partial(self.words_of, question) if untitled else None
            self._alerts.tell(rules.on_waiting, alert, look_up)

        rules = self._alerts.rules()
        if rules.on_waiting:
            self._timers[question.id] = self._alerts.clock.call_later(rules.waiting_seconds, tell)

    def on_closed(self, question_id: str) -> None:
        """Note that a question is closed, whatever its outcome."""
        self._activity.stir()
        timer = self._timers.pop(question_id, None)
        if timer is not None:
            timer.cancel()
        self._alerted.discard(question_id)

    async def words_of(self, question: AskedQuestion) -> str:
        """Return the text of a question; if it has only the id of a tool call, the title of
        that."""
        if (tool_call_id := question.untitled_call) is None:
            return question.title
        try:
            call = (await calls_since(self._session, self.before_turn)).get(tool_call_id)
        except JournalError:
            return question.title  # without its words: that it waits is what matters
        return (call and call.title) or question.title

    # -- turns ----------------------------------------------------------------------------

    def turn_began(self, prompt: bytes, before: int) -> None:
        """Note that the agent has this prompt; `before` is the last entry before it."""
        self._activity.stir()
        self._note_hold()
        self._turn_began = self._alerts.clock.time()
        self._prompt = prompt
        self.before_turn = before

    def turn_ended(self, how: Callable[[], TurnOutcome]) -> None:
        """Note the end of a turn, which may never have reached the agent. `how` is rarely
        called."""
        self._activity.stir()
        self._note_hold()
        began, self._turn_began = self._turn_began, None
        if began is None:
            return
        rules = self._alerts.rules()
        if not rules.on_turn_end or self._alerts.clock.time() - began < rules.turn_seconds:
            return
        if (outcome := how()) not in UNTOLD:
            alert = replace(self._alert("turn_end", began), outcome=outcome)
            self._alerts.tell(rules.on_turn_end, alert, None)

    def entitle(self, prompt: bytes, before: int, made: dict[str, str]) -> None:
        """Have the person's command make a better title of the first turn than the rule did, and
        note it as `made`; other tenants' turns are not given to it."""
        command = self._alerts.rules().title
        if not command or self._session.tenant:
            return
        from acphold.live.hub.made_titles import first_turn, take_title  # late: few have one

        session = self._session
        self._alerts.entitle(
            command,
            self._alert("title", self._alerts.clock.time()),
            partial(first_turn, session, prompt, before, self._agent.surroundings.home),
            partial(take_title, session, session.attributes.title, made),
        )

    def _note_hold(self) -> None:
        """Note that the queue is held, or that it goes on, at the beginning or end of a turn."""
        queue = self._session.queue
        if queue.held == self._held:
            return
        self._held = queue.held
        self.stop()
        rules = self._alerts.rules()
        began = self._alerts.clock.time()

        def tell() -> None:
            self._held_timer = None
            queue, rules = self._session.queue, self._alerts.rules()
            if queue.held != self._held or not queue.waiting or not rules.on_waiting:
                return
            if queue.held == "cancelled" and self._session.attachments:
                return
            alert = replace(
                self._alert("held", began),
                queued=len(queue.waiting),
                held=queue.held,
                until=queue.until_ms,
            )
            self._alerts.tell(rules.on_waiting, alert, None)

        if queue.held in HELD and rules.on_waiting:
            self._held_timer = self._alerts.clock.call_later(rules.waiting_seconds, tell)

    def stop(self) -> None:
        """Tell nothing more of the queue."""
        if self._held_timer is not None:
            self._held_timer.cancel()
            self._held_timer = None

    def _alert(self, event: Literal["waiting", "turn_end", "held", "title"], began: float) -> Alert:
        session = self._session
        return Alert(
            event,
            session.id,
            self._agent.key,
            session.row.cwd,
            session.attributes.title or title_of_prompt(self._prompt) or "",
            self._alerts.clock.time() - began,
        )
