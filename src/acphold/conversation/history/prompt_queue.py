"""The queue of a session: prompts that wait their turn, and the words for people about them.

Each `queue` entry is one change. An agent gets a prompt only after its `begin` is journalled, in
one commit with the prompt itself: so each begins at most once, and none is lost.

a prompt    what it means                        next
----------  -----------------------------------  -----------------------------------------------
queued      it waits; a person may edit, move    begun, or taken back by a person
            and drop it
begun       its turn runs                        done, failed, refused, cancelled, limited or
                                                 interrupted, as its turn ended

the queue   since                                until
----------  -----------------------------------  -----------------------------------------------
goes on     the beginning                        it is held
is held     a person holds it, or stops the      a person says `go`; or the moment that came with
            session; a turn ended in another     the reason
            way than done while something
            waits; or the session was opened
            anew by another process

A queue that `restarts` is not held by the end of a process: a turn that a crash cut off does not
hold it, and an end in order holds it only until another process opens the session.
"""

from __future__ import annotations

import re
import time
from collections.abc import Collection, Iterable
from datetime import datetime, timedelta
from typing import Final, Literal

import msgspec
from msgspec import UNSET, Struct, UnsetType, field
from msgspec.structs import replace

from acp_wire.errors import InvalidParamsError
from acphold.conversation.history.entries import LATEST_MS, QUEUE, Segment, clamp_moment, in_utc
from acphold.conversation.history.raw_update import items, members, string
from acphold.conversation.history.timeline import turn_end
from acphold.conversation.history.titles import shorten

Deed = Literal["add", "take", "edit", "move", "drop", "hold", "go", "set", "begin"]
"""The kinds of changes. `begin` is never a client's; `take` is in no journal."""

REOPENED: Final = "reopened"
"""The reason for holding a queue whose session another process has opened anew."""

BY_PERSON: Final = "person"
"""The reason for holding a queue that somebody asked to hold."""

STOPPED: Final = "cancelled"
"""The reason for holding a queue in which somebody has cancelled the turn, or what was to come."""

ELSEWHERE: Final = "elsewhere"
"""The reason for holding a queue that was planned in another journal: in a copy of this one, in
what was restored, moved or imported. Nothing in it makes anything happen until a person says so."""

ENDED_IN_ORDER: Final = (STOPPED, REOPENED)
"""The outcome of a turn that ends with its process, and why the queue is held by then."""

ON_TERMS: Final = "terms"
"""The reason for holding a queue whose session stands on terms that its agent has no longer: a
sign-in, a provider or variables, which were in memory only."""

LIMITED: Final = "limited"
"""The reason for holding a queue after a turn that ended at a limit: its own, or the vendor's."""

WORDS: Final = 200
"""Most characters of a prompt that are kept with the state of the queue."""

LONGEST: Final = 1000
"""Most queued prompts in one session."""

ENDED: Final = 20
"""Most prompts that were begun, or taken back, and are still told of; besides those of a day by
which the session continued by itself, which are counted."""

GOING_ON: Final = "limit-"
"""The beginning of the ids of prompts by which a session continues by itself after a limit."""

DAY_MS: Final = 24 * 3600 * 1000


class QueueChange(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """One change of a queue: the content of a `queue` entry.

    `id` names a prompt. `prompt` are its content blocks, as in `session/prompt`; `at` is the moment
    before which it does not begin, in ms since the epoch. `before` is the prompt in front of which
    it is put; without it, it comes last. `why` is the reason for holding, `until` the moment at
    which the queue continues by itself. `goes_on` says whether it continues after a turn that
    failed or was refused, `restarts` whether it continues when another process opens the session.
    `client` is the program that made the change. `guest` is True if it is that of a guest in the
    session: its owner's rules answer nothing in the turn of such a prompt. `terms` is what the
    session stands on from now on, never a client's.
    """

    do: Deed
    id: str = ""
    prompt: msgspec.Raw = msgspec.Raw()
    at: int | UnsetType | None = UNSET
    before: str = ""
    why: str = ""
    until: int | None = None
    goes_on: bool | UnsetType = UNSET
    restarts: bool | UnsetType = UNSET
    client: msgspec.Raw = msgspec.Raw()
    guest: bool = False
    terms: str | UnsetType = UNSET

    @property
    def takes_back(self) -> bool:
        """True if it keeps prompts from the agent, and brings none there."""
        return self.do in ("take", "drop", "hold")


class WaitingPrompt(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """A prompt in the queue. `seq` is the entry with its content, `words` its beginning, `client`
    the program that wrote it last. `guest` is True if a guest in the session wrote any of it."""

    id: str
    seq: int
    words: str
    at_ms: int | None = field(default=None, name="at")
    client: str = ""
    guest: bool = False
    terms: str = ""  # what the session stood on then, without its values

    def is_due(self, now: int) -> bool:
        """True if it may begin at `now`, ms since the epoch."""
        return self.at_ms is None or self.at_ms <= now

    @property
    def at(self) -> datetime | None:
        """It does not begin before this time, in UTC."""
        return None if self.at_ms is None else in_utc(self.at_ms)


class EndedPrompt(Struct, frozen=True, rename={"status": "state"}):
    """A prompt that has left the queue. `status` is `done`, `takenBack` or the outcome of its
    turn."""

    id: str
    words: str
    status: str
    at_ms: int = field(name="at")

    @property
    def at(self) -> datetime:
        """The time, in UTC."""
        return in_utc(self.at_ms)


class PromptQueue(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """A queue: `waiting` in order, `begun` whose turn runs, the last ones that `ended`, oldest
    first. `held` says why none begins, "" while they do. `goes_on` and `restarts` are as in
    `RemoteQueue.set`. Those in `edited`, by id, do not begin: a client edits them."""

    waiting: tuple[WaitingPrompt, ...] = ()
    begun: WaitingPrompt | None = None
    held: str = ""
    until_ms: int | None = field(default=None, name="until")
    ended: tuple[EndedPrompt, ...] = ()
    goes_on: bool = False
    restarts: bool = False
    terms: str = ""  # what the session stands on, without its values
    edited: tuple[str, ...] = ()

    @property
    def until(self) -> datetime | None:
        """It continues by itself at this time, in UTC."""
        return None if self.until_ms is None else in_utc(self.until_ms)

    def find(self, prompt_id: str) -> WaitingPrompt | None:
        """Return the queued prompt under this id; None if none does."""
        return next((it for it in self.waiting if it.id == prompt_id), None)

    def is_held(self, now: int) -> bool:
        """True if nothing may begin at `now`, ms since the epoch."""
        return bool(self.held) and (self.until_ms is None or now < self.until_ms)

    def next(self, now: int) -> WaitingPrompt | None:
        """Return the prompt to begin at `now`; None if none may."""
        if self.begun is not None or self.is_held(now):
            return None
        return next((it for it in self._ready if it.is_due(now)), None)

    @property
    def wakes_at(self) -> int | None:
        """The moment at which something may begin that may not yet: ms since the epoch, 0 for now;
        None if only a person can change that."""
        ready = self._ready
        if not ready or (self.held and self.until_ms is None):
            return None
        first = min(it.at_ms or 0 for it in ready)
        return max(first, self.until_ms or 0) if self.held else first

    @property
    def _ready(self) -> tuple[WaitingPrompt, ...]:
        """Those that nobody edits."""
        return tuple(it for it in self.waiting if it.id not in self.edited)

    def without_edited(self, prompt_ids: Collection[str]) -> PromptQueue:
        """Return the queue in which nobody edits these prompts."""
        return replace(self, edited=tuple(it for it in self.edited if it not in prompt_ids))


NO_QUEUE: Final = PromptQueue()


def after_change(queue: PromptQueue, change: QueueChange, seq: int, at: int) -> PromptQueue:
    """Return the queue after a change, which is entry `seq`; ValueError with the reason if it does
    not fit."""
    waiting = queue.waiting
    match change.do:
        case "hold":
            if change.why == ELSEWHERE:
                return plan_elsewhere(queue)
            until = None if change.until is None else clamp_moment(change.until)
            return replace(queue, held=change.why or BY_PERSON, until_ms=until)
        case "go":
            return replace(queue, held="", until_ms=None)
        case "set":
            goes_on = queue.goes_on if change.goes_on is UNSET else change.goes_on
            restarts = queue.restarts if change.restarts is UNSET else change.restarts
            terms = queue.terms if change.terms is UNSET else change.terms
            return replace(queue, goes_on=goes_on, restarts=restarts, terms=terms)
        case "add":
            known = {_id(queue.begun), *(it.id for it in waiting), *(it.id for it in queue.ended)}
            if change.id in known:
                raise ValueError(f"id: {change.id!r} is in use")
            when = _begins_at(change, None)
            words = words_of(bytes(change.prompt))
            by = _client(change), change.guest, queue.terms
            added = WaitingPrompt(change.id, seq, words, when, *by)
            return replace(queue, waiting=_place(waiting, added, change.before))
    if (prompt := queue.find(change.id)) is None:
        raise ValueError(f"id: {change.id!r} {_fate(queue, change.id)}")
    others = tuple(it for it in waiting if it is not prompt)
    if change.do in ("edit", "drop"):
        queue = queue.without_edited([change.id])
    match change.do:
        case "take":
            edited = queue.without_edited([change.id]).edited
            return replace(queue, edited=(*edited, change.id))
        case "edit":
            when = _begins_at(change, prompt.at_ms)
            by_guest = prompt.guest or change.guest
            new = replace(prompt, at_ms=when, client=_client(change), guest=by_guest)
            if bytes(change.prompt):
                new = replace(new, seq=seq, words=words_of(bytes(change.prompt)))
            return replace(queue, waiting=tuple(new if it is prompt else it for it in waiting))
        case "move":
            if change.before == prompt.id:
                return queue
            return replace(queue, waiting=_place(others, prompt, change.before))
        case "drop":
            ended = _with_ended(queue, prompt, "takenBack", at)
            return _relax(replace(queue, waiting=others, ended=ended))
        case "begin":
            # A person may have held the queue since this prompt was chosen: that holds the others.
            held = "" if queue.until_ms is not None else queue.held
            queue = replace(queue, waiting=others, begun=prompt, held=held, until_ms=None)
            return _relax(queue)


def plan_elsewhere(queue: PromptQueue) -> PromptQueue:
    """Return a queue in which nothing happens by itself any more."""
    held = ELSEWHERE if queue.waiting else ""
    return replace(queue, held=held, until_ms=None, goes_on=False, restarts=False)


def after_entry(queue: PromptQueue, raw: bytes, seq: int, at: int) -> PromptQueue:
    """Return the queue after a `queue` entry; one that does not fit, or cannot be read, changes
    nothing."""
    try:
        return after_change(queue, msgspec.json.decode(raw, type=QueueChange), seq, at)
    except (msgspec.MsgspecError, ValueError):
        return queue


def after_turn(queue: PromptQueue, raw: bytes, at: int) -> PromptQueue:
    """Return the queue after a `turn_end` entry: prompts are held after one that is not done."""
    if queue is NO_QUEUE or not (queue.waiting or queue.begun):
        return queue
    outcome = turn_end(raw, at).outcome
    if queue.begun is not None:
        state = "done" if outcome == "completed" else outcome
        ended = _with_ended(queue, queue.begun, state, at)
        queue = replace(queue, begun=None, ended=ended)
    if (
        outcome == "completed"
        or not queue.waiting
        or queue.held in (BY_PERSON, ELSEWHERE, ON_TERMS)
    ):
        return queue
    if queue.held == LIMITED and outcome in (LIMITED, "failed"):
        return queue  # this turn, or an earlier one, has already set `until`
    if queue.goes_on and outcome in ("failed", "refused"):
        return queue
    if queue.restarts and (outcome == "interrupted" or (outcome, queue.held) == ENDED_IN_ORDER):
        return queue
    return replace(queue, held=outcome, until_ms=None)


def fitting(queue: PromptQueue, change: QueueChange) -> bytes:
    """Return the entry of a change that a client wants; InvalidParamsError if it does not fit."""
    prompt = bytes(change.prompt)
    if change.do == "begin":
        raise InvalidParamsError(
            "change.do: acphold begins prompts by itself; clients cannot", field="change.do"
        )
    if (prompt or change.do == "add") and not items(prompt):
        raise InvalidParamsError(
            "change.prompt: an array of content blocks is required", field="change.prompt"
        )
    for name, at in (("at", change.at), ("until", change.until)):
        if isinstance(at, int) and at != clamp_moment(at):
            raise InvalidParamsError(
                f"change.{name}: must be in ms since the epoch, from 0 and below {LATEST_MS}",
                field=f"change.{name}",
            )
    if change.do == "add" and len(queue.waiting) >= LONGEST:
        raise InvalidParamsError(f"the queue is full: {LONGEST} prompts are waiting")
    try:
        after_change(queue, change, 0, 0)
    except ValueError as exc:
        raise InvalidParamsError(f"change.{exc}", field="change") from None
    return msgspec.json.encode(change)


def content_in(segments: Iterable[Segment], waits: WaitingPrompt) -> QueueChange:
    """Return the change that gave a prompt its content, from the segments that begin with its
    entry; ValueError if it is not there."""
    for segment in segments:
        for entry in segment.entries():
            if entry.seq == waits.seq and entry.kind == QUEUE:
                return msgspec.json.decode(entry.raw, type=QueueChange)
    raise ValueError(f"the prompt {waits.id!r} is not in entry {waits.seq}")


def words_of(prompt: bytes) -> str:
    """Return the beginning of a prompt's text on one line; a block without text is named."""
    parts: list[str] = []
    for block in items(prompt):
        fields = members(block)
        text = string(fields.get("text"))
        parts.append(f"[{string(fields.get('type')) or 'block'}]" if text is None else text)
    return shorten(" ".join(parts), WORDS)


def _begins_at(change: QueueChange, before: int | None) -> int | None:
    """Return the moment of a prompt after a change; `before` is what it was.

    A journal may have moments that cannot be written as a date, from elsewhere or an older release.
    """
    if change.at is UNSET:
        return before
    return None if change.at is None else clamp_moment(change.at)


def _place(
    waiting: tuple[WaitingPrompt, ...], prompt: WaitingPrompt, before: str
) -> tuple[WaitingPrompt, ...]:
    if not before:
        return (*waiting, prompt)
    for place, it in enumerate(waiting):
        if it.id == before:
            return (*waiting[:place], prompt, *waiting[place:])
    raise ValueError(f"before: {before!r} is not waiting in the queue")


def _fate(queue: PromptQueue, prompt_id: str) -> str:
    """Return why nothing waits under this id."""
    if prompt_id == _id(queue.begun):
        return "has begun"
    ended = next((it for it in queue.ended if it.id == prompt_id), None)
    if ended is None:
        return "is not in the queue"
    return "was taken back" if ended.status == "takenBack" else "has already run"


def _with_ended(
    queue: PromptQueue, prompt: WaitingPrompt, state: str, at: int
) -> tuple[EndedPrompt, ...]:
    if not prompt.words:  # a person had them taken out
        return queue.ended
    ended = (*queue.ended, EndedPrompt(prompt.id, prompt.words, state, at))
    since = at - DAY_MS
    older = [it for it in ended[:-ENDED] if it.id.startswith(GOING_ON) and it.at_ms > since]
    return (*older, *ended[-ENDED:])


def _relax(queue: PromptQueue) -> PromptQueue:
    """Return the queue without what held it, if nothing waits any more and no person holds it."""
    if queue.waiting or queue.held in ("", BY_PERSON):
        return queue
    return replace(queue, held="", until_ms=None)


def _client(change: QueueChange) -> str:
    return string(members(bytes(change.client)).get("name")) or ""


def _id(prompt: WaitingPrompt | None) -> str:
    return "" if prompt is None else prompt.id


# -- words for people ----------------------------------------------------------------------------

HELD: Final = {
    "person": "paused",
    "failed": "paused: the last turn failed",
    "refused": "paused: the agent refused the last prompt",
    "cancelled": "paused: stopped",
    "interrupted": "paused: the last turn was interrupted",
    "limited": "paused: a limit was reached",
    "reopened": "paused: the session was reopened",
    "elsewhere": "paused: planned elsewhere, not in this journal",
    "terms": "paused: load it in a client that chooses its provider or sign-in again",
}
"""Words for the reason why prompts are held."""

_HOUR: Final = r"([01]?\d|2[0-3]):([0-5]\d)"

_BEGINS: Final = rf"(?s)((?:\d{{4}}-\d\d-\d\d[T ])?{_HOUR})(?:\s+(.*))?"
"""A time, and the words after it."""


def prompt_quantity(count: int) -> str:
    """Say how many prompts are queued."""
    return f"{count or 'no'} queued prompt{'' if count == 1 else 's'}"


def why_held(reason: str, until: int | None) -> str:
    """Say why they are held, and until when (ms since the epoch); "" if they are not."""
    if not reason:
        return ""
    why = HELD.get(reason, f"paused: {reason}")
    return why if until is None else f"{why}, until {moment(until)}"


def describe_queue(count: int, reason: str, until: int | None) -> str:
    """Say how many prompts are queued, why they are held, and until when."""
    return ", ".join(filter(None, [prompt_quantity(count), why_held(reason, until)]))


def rules(*, goes_on: bool, restarts: bool) -> str:
    """Say when it continues by itself; "" if it holds in both cases, as it does by default."""
    cases = ["a failure"] * goes_on + ["a restart"] * restarts
    return f"continues after {' and '.join(cases)}" if cases else ""


def moment(at: int) -> str:
    """Say a moment (ms since the epoch) in this machine's zone: the hour, and the day if it is not
    today's."""
    then = datetime.fromtimestamp(clamp_moment(at) / 1000)
    is_today = then.date() == datetime.now().date()
    return f"{then:%H:%M}" if is_today else f"{then:%Y-%m-%d %H:%M}"


def moment_meant(text: str, now: float | None = None) -> int:
    """Return the moment (ms since the epoch) that a person means: an hour, the next one in this
    machine's zone, or a date and hour; ValueError for another text, or a moment in the past or
    beyond LATEST_MS.

    `now` is in seconds since the epoch, by default what the clock says. An hour that a change of
    the clocks leaves out is the moment as long after midnight.
    """
    now = time.time() if now is None else now
    if hour := re.fullmatch(_HOUR, text):
        today = datetime.fromtimestamp(now).replace(second=0, microsecond=0, fold=0)
        then = today.replace(hour=int(hour[1]), minute=int(hour[2]))
        # Where clocks are set back an hour comes twice in a night.
        following = (then, then.replace(fold=1), then + timedelta(days=1))
        return next(int(it.timestamp() * 1000) for it in following if it.timestamp() > now)
    then = datetime.fromisoformat(text)
    if then.timestamp() < now:
        raise ValueError("that time has passed")
    if then.timestamp() * 1000 >= LATEST_MS:
        raise ValueError("that time is too far away")
    return int(then.timestamp() * 1000)


def moment_first(text: str) -> tuple[int | None, str]:
    """Return the moment that a text begins with, as for `moment_meant`, and the words after it;
    None and the text if it begins with none. ValueError for a moment in the past."""
    found = re.fullmatch(_BEGINS, text)
    return (None, text) if found is None else (moment_meant(found[1]), found[4] or "")
