"""The memory that an agent has of a session, as a value; what it lacks follows from that alone.

An agent shows what it remembers when it loads the session: its replay is compared with the journal,
turn by turn, as it streams. Each turn of ours is one of these:

    state      what it means
    ---------  ----------------------------------------------------------------------------------
    has        the replay has it, or a text that was handed over tells it
    summary    it stands before the first one that both have: a summary, or a cut, stands for it
    forgotten  it stands behind the last one that both have; or both share none, and nothing in the
               replay can stand for it
    revived    the replay has it, though it was cleared or left
    gone       it was cleared or left, and the replay does not have it

Forgotten turns are owed: the next prompt brings them. If there is a revived one the agent needs
another session, which is owed what is alive. Where the two go on in different ways after a common
beginning, and where there was no replay, the agent's memory is in doubt: then it is owed nothing
unless the person says so. A command, and a turn that was not answered, is never owed alone: agents
may not keep such.
"""

# See docs/decisions.md, 23.

from __future__ import annotations

import asyncio
from collections import deque
from time import monotonic
from typing import Final, Literal

from msgspec import Struct, field

from acp_wire.tasks import timeout
from acphold.conversation.history.clearings import GOING_BACK, Clearing, dead_through
from acphold.conversation.history.compared_turns import ComparedTurn, ComparedTurns, shared_run
from acphold.conversation.history.entries import BACK, CLEARED, HANDED_OVER, Entry
from acphold.conversation.history.handovers import handed_over_in
from acphold.conversation.history.timeline import left_by
from acphold.journal.journal import Readable, history
from acphold.live.hub import bounds

TurnMemory = Literal["has", "summary", "forgotten", "revived", "gone"]


class KeptTurns(Struct):
    """The journal's turns of a session.

    Those with prompts up to `cleared` are dead, as are those with prompts in one of the spans
    `left`. At `asked` the person asked the agent to forget, and nothing has shown that it did.
    `told` maps the digests of texts handed over to the last entries that they told; up to
    `declined` the person has gone on without a text.
    """

    turns: list[ComparedTurn] = []
    cleared: int = 0
    asked: int = 0
    claim: Clearing | None = None
    left: list[tuple[int, int]] = []
    told: dict[str, int] = {}
    declined: int = 0

    def was_left(self, turn: ComparedTurn) -> bool:
        """Return True for a turn that the person went back from."""
        return any(first <= turn.first <= last for first, last in self.left)

    def add(self, entry: Entry, agent: str) -> None:
        """Note what an entry says of the turns."""
        if entry.kind == BACK:
            self.left += left_by(entry.raw)
        elif entry.kind == HANDED_OVER and (told := handed_over_in(entry.raw)) is not None:
            if told.digest:
                self.told[told.digest] = told.last_seq
            elif told.agent == agent:
                self.declined = told.last_seq


async def kept_turns(journal: Readable, session_id: str, through: int, agent: str) -> KeptTurns:
    """Read the turns of a session up to entry `through`, for this agent."""
    kept, reading = KeptTurns(), ComparedTurns()
    clearings: list[Entry] = []
    async for segment in history(journal, session_id, through=through):
        for entry in segment.entries():
            reading.add_entry(entry)
            kept.add(entry, agent)
            if entry.kind == CLEARED:
                clearings.append(entry)
    kept.turns = reading.turns()
    kept.cleared, kept.asked, kept.claim = dead_through(clearings)
    return kept


class Replay(Struct, eq=False):
    """The conversation of an agent's replay, as it streams; its newest updates are kept."""

    turns: ComparedTurns = field(default_factory=ComparedTurns)
    _heard: asyncio.Event = field(default_factory=asyncio.Event)
    _number: int = 0
    _raws: deque[bytes] = field(default_factory=deque)
    _size: int = 0

    def hear(self, update: bytes) -> None:
        """Take the next update."""
        self._number += 1
        self.turns.add(update, self._number)
        self._raws.append(update)
        self._size += len(update)
        while self._size > bounds.CAPTURED_BYTES:
            self._size -= len(self._raws.popleft())
        self._heard.set()

    async def over(self) -> bool:
        """Wait until it is over; return False if it is not in time."""
        latest = monotonic() + bounds.REPLAY_SECONDS
        while (left := latest - monotonic()) > 0:
            self._heard.clear()
            try:
                async with timeout(min(bounds.QUIET_SECONDS, left)):
                    await self._heard.wait()
            except TimeoutError:
                return left >= bounds.QUIET_SECONDS
        return False

    def since(self, number: int) -> list[bytes] | None:
        """Return the updates from this one on; None if some are not kept."""
        skipped = number - 1 - (self._number - len(self._raws))
        return None if skipped < 0 else [*self._raws][skipped:]


class AgentMemory(Struct, frozen=True):
    """See the module. `states` are those of our turns; up to entry `cleared` they are dead. The
    replay goes on behind the last turn of ours with its update `outside`, 0 if it does not."""

    states: tuple[TurnMemory, ...] = ()
    cleared: int = 0
    is_in_doubt: bool = False
    outside: int = 0

    @property
    def is_revived(self) -> bool:
        """True if the agent has what was cleared or left."""
        return "revived" in self.states

    @property
    def has_all(self) -> bool:
        """True if the agent has all that is alive, and some of it as it was said."""
        return "has" in self.states and "forgotten" not in self.states and not self.is_in_doubt

    def owed(self, kept: KeptTurns) -> Owed | None:
        """Return what the next prompt brings; None for nothing."""
        lacks = [n for n, state in enumerate(self.states) if state == "forgotten"]
        if not lacks:
            return None
        is_part = not {"has", "summary"}.isdisjoint(self.states)
        return Owed(kept.turns[lacks[0]].first - 1 if is_part else self.cleared, is_part)


class Owed(Struct, frozen=True):
    """A conversation to be handed over: the entries above `after`; a part, of which the agent has
    the beginning, or all that is alive."""

    after: int
    is_part: bool = False


def compare(kept: KeptTurns, replay: ComparedTurns) -> AgentMemory:
    """Compare the journal's turns with those of a replay that is over.

    Where the person asked it to forget, all above is cleared if the replay has nothing of it.
    """
    theirs = replay.turns()
    ours = kept.turns
    shared = shared_run(ours, theirs)
    marks = (turn.mark.digest for turn in theirs if turn.mark is not None)
    told = max((kept.told.get(digest, 0) for digest in marks), default=0)
    told = max(told, kept.declined)
    has = {n for n, turn in enumerate(ours) if n in shared or turn.first <= told}
    cleared = kept.cleared
    before = {n for n in has if cleared < ours[n].first <= kept.asked}
    if kept.asked > cleared and not before:
        cleared = kept.asked
    is_alive = [turn.first > cleared and not kept.was_left(turn) for turn in ours]
    both = [n for n in sorted(has) if is_alive[n]]
    first, last = (both[0], both[-1]) if both else (len(ours), -1)
    stands_for_all = (
        replay.summarized
        or any(turn.words.startswith(SUMMARIES) for turn in theirs[:1])
        or any(turn.handed_over and turn.mark is None for turn in theirs)
    )
    states: list[TurnMemory] = []
    for n in range(len(ours)):
        if not is_alive[n]:
            states.append("revived" if n in shared and not is_weak(ours[n]) else "gone")
        elif n in has or first < n < last:
            states.append("has")
        elif n < first and (both or stands_for_all):
            states.append("summary")
        else:
            states.append("forgotten")
    was_undone = False
    for n in reversed(range(len(ours))):  # what the person went back from is not missing
        if ours[n].words.startswith(GOING_BACK):
            was_undone = bool(both)
        elif was_undone and states[n] == "forgotten":
            states[n] = "gone"
        else:
            was_undone = False
    lacks = [n for n, state in enumerate(states) if state == "forgotten"]
    behind = theirs[max(shared.values(), default=len(theirs) - 1) + 1 :]
    is_nothing = all(is_weak(ours[n]) for n in lacks)
    is_in_doubt = bool(both and behind and not is_nothing)
    if is_in_doubt or is_nothing:
        states = ["has" if state == "forgotten" else state for state in states]
    outside = behind[0].first if behind and max(shared) == len(ours) - 1 else 0
    return AgentMemory((*states,), cleared, is_in_doubt, outside)


def is_weak(turn: ComparedTurn) -> bool:
    """Return True for a command, and a turn that was cut before any answer: agents may not keep
    such."""
    return turn.words.startswith("/") or (turn.is_cut and not turn.answer_size)


SUMMARIES: Final = (
    "Thissessionisbeingcontinuedfromapreviousconversation",
    "Anotherlanguagemodelstartedtosolvethisproblem",
    "<state_snapshot>",
    "<summary>",
    "Summary",
    "#Summary",
)
"""The first words of summaries by Claude, Codex, Gemini, Qwen and others, without white space."""
