"""A session for people: scenes, made from journal entries one turn at a time.

`show`, the exports and the screen print these scenes, each in its own form.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Iterable, Sequence
from typing import Final, Literal

from msgspec import Struct
from msgspec.structs import replace

from acphold.conversation.history.clearings import clearing_words
from acphold.conversation.history.decisions import (
    AskedQuestion,
    Came,
    asked_question,
    closed_question,
)
from acphold.conversation.history.entries import (
    ANSWER,
    CHILD,
    CLEARED,
    ECHO,
    PROMPT,
    QUESTION,
    TURN_END,
    Entry,
)
from acphold.conversation.history.fold import Fold
from acphold.conversation.history.raw_update import (
    LONG,
    is_our_notice,
    members,
    string,
    update_kind,
)
from acphold.conversation.history.replay import named_user
from acphold.conversation.history.timeline import (
    ContextCompaction,
    Message,
    SubAgent,
    ToolCall,
    TurnEnd,
    with_those_inside,
)


class PlanStep(Struct, frozen=True):
    """One step of the agent's plan; `status` as in the protocol."""

    status: str
    text: str


class Planned(Struct, frozen=True):
    """The plan at the end of the turn."""

    steps: tuple[PlanStep, ...]


class Noticed(Struct, frozen=True):
    """A notice to the person, beside the conversation; from acphold, or from the agent."""

    severity: str
    title: str
    description: str
    is_ours: bool = False


class ModeChanged(Struct, frozen=True):
    """The session was switched to another mode."""

    mode: str


class DecidedQuestion(Struct, frozen=True):
    """A question to people, and its outcome; None while it is pending.

    `client` is the program that the person answered in, None if no person did; with `is_by_rule` it
    names the person's rules instead.
    """

    question: str
    came: Came | None = None
    client: str | None = None
    is_by_rule: bool = False


class TurnOpen(Struct, frozen=True):
    """The last turn has no end: it runs, waits for an answer, or a crash cut it off; "" if that is
    unknown."""

    state: Literal["running", "waiting", "interrupted", ""] = ""

    @property
    def words(self) -> str:
        """The state of the turn in words."""
        return {
            "running": "running",
            "waiting": "waiting for an answer",
            "interrupted": "interrupted; the session has not been opened since",
            "": "incomplete: still running, or interrupted",
        }[self.state]


Scene = (
    Message
    | ToolCall
    | ContextCompaction
    | SubAgent
    | TurnEnd
    | Planned
    | Noticed
    | ModeChanged
    | DecidedQuestion
    | TurnOpen
)


class ToldTurn(Struct, frozen=True):
    """The scenes of a turn; the entry of the first has the number `seq` and the time `at` (ms).

    `places` are the numbers of the entries that the scenes begin with.
    """

    seq: int
    at: int
    scenes: Sequence[Scene]
    places: Sequence[int]


async def turns(entries: AsyncIterable[Entry]) -> AsyncIterator[ToldTurn]:
    """Yield the turns of a whole session; only one of them is in memory at a time.

    Entries after the last turn that show nothing, such as a new title, are no turn.
    """
    known: dict[str, SubAgent] = {}
    transcript = _TurnTranscript()
    async for entry in entries:  # not gathered: many may repeat all output so far of one program
        transcript.add(entry)
        if entry.kind == TURN_END:
            if told := transcript.told(known):
                yield told
            transcript = _TurnTranscript()
    if told := transcript.told(known):
        yield told


async def scenes(entries: AsyncIterable[Entry]) -> AsyncIterator[Scene]:
    """Yield the scenes of a whole session; only one turn of it is in memory at a time."""
    async for turn in turns(entries):
        for scene in turn.scenes:
            yield scene


async def entries_by_turn(entries: AsyncIterable[Entry]) -> AsyncIterator[list[Entry]]:
    """Yield the entries of each turn, with those since the turn before.

    Entries after the last turn that show nothing, such as a new title, are yielded with it.
    """
    before, turn = list[Entry](), list[Entry]()
    async for entry in entries:
        turn.append(entry)
        if entry.kind == TURN_END:
            if before:
                yield before
            before, turn = turn, []
    if before and not turn_scenes(turn):
        before, turn = before + turn, []
    if before:
        yield before
    if turn:
        yield turn


def at_present(scene: Scene, live: str | None) -> Scene:
    """Return the scene; a turn without an end with the state of its session in its process, None if
    it has none."""
    if not isinstance(scene, TurnOpen):
        return scene
    if live is None:
        return TurnOpen("interrupted")
    return TurnOpen("waiting" if live == "waiting" else "running")


def turn_scenes(turn: Sequence[Entry]) -> list[Scene]:
    """Return the scenes of one turn's entries, and of those since the turn before."""
    transcript = _TurnTranscript()
    for entry in turn:
        transcript.add(entry)
    return [scene for _, scene in transcript.place_scenes({})]


def scene_at(turn: Sequence[Entry], seq: int) -> int:
    """Return the index of the scene of a turn that the entry `seq` belongs to.

    An entry that shows nothing, such as a list of commands, belongs to the scene before it.
    """
    earlier = sum(entry.seq < seq for entry in turn)
    before, with_it = turn_scenes(turn[:earlier]), turn_scenes(turn[: earlier + 1])
    shown = [scene for scene in with_it if not isinstance(scene, TurnOpen)]
    for index, scene in enumerate(shown):
        if index >= len(before) or before[index] != scene:
            return index
    return max(0, len(shown) - 1)


_BESIDE: Final = (b'"plan"', b'"notice"', b'"current_mode_update"')
"""Every update beside the timeline contains one of these, and few others do.

The others need not be decoded.
"""


class _TurnTranscript:
    """Inserts items outside the folded timeline (plan, notices, modes, questions) in place."""

    def __init__(self) -> None:
        self._fold = Fold()
        self._times: dict[int, int] = {}
        self._began: list[int] = []
        self._beside: list[tuple[int, int, Scene]] = []
        self._plan_place: tuple[int, int] | None = None
        self._questions: dict[str, tuple[int, AskedQuestion]] = {}
        self._users: dict[int, str] = {}  # of prompts, and of what they said in turns
        self._before: Entry | None = None
        self._is_open = False

    def add(self, entry: Entry) -> None:
        self._times[entry.seq] = entry.at
        if entry.kind == ECHO:
            return
        if user := named_user(entry, self._before):
            self._users[entry.seq] = user
        self._before = entry
        if entry.kind in (PROMPT, TURN_END):
            self._is_open = entry.kind == PROMPT
        self._fold.add(entry)
        self._began += [entry.seq] * (len(self._fold) - len(self._began))
        if entry.kind == QUESTION:
            question = asked_question(entry.raw)
            self._questions[question.id] = len(self._beside), question
            titles: Iterable[str] = ()
            if (call := question.untitled_call) is not None:  # then that of its tool call
                items = with_those_inside(self._fold.timeline())
                calls = (item for item in items if isinstance(item, ToolCall) and item.title)
                titles = (item.title for item in calls if item.tool_call_id == call)
            self._put(entry.seq, DecidedQuestion(next(iter(titles), question.title)))
        elif entry.kind == ANSWER:
            closed = closed_question(entry.raw)
            if closed.question not in self._questions:  # it is of an earlier turn
                return
            index, question = self._questions[closed.question]
            place, seq, asked = self._beside[index]
            assert isinstance(asked, DecidedQuestion)
            decision = DecidedQuestion(
                asked.question, closed.came(question), closed.client, bool(closed.rules)
            )
            self._beside[index] = place, seq, decision
        elif entry.kind == CLEARED and (words := clearing_words(entry.raw)):
            self._put(entry.seq, Noticed("info", words, "", is_ours=True))
        elif entry.kind != CHILD:
            seq, raw = entry.seq, entry.update
            may_be = len(raw) > LONG or any(name in raw for name in _BESIDE)
            match update_kind(raw) if may_be else "":
                case "plan":
                    # Shown once, at its last place: only the last plan of a finished turn is kept.
                    self._plan_place = len(self._fold), seq
                case "notice":
                    parts = members(raw)
                    severity, title, description = (
                        string(parts.get(name)) or ""
                        for name in ("severity", "title", "description")
                    )
                    self._put(seq, Noticed(severity, title, description, is_our_notice(parts)))
                case "current_mode_update":
                    mode = string(members(raw).get("currentModeId")) or ""
                    self._put(seq, ModeChanged(mode))

    def _put(self, seq: int, scene: Scene) -> None:
        """Put a scene after all items that the timeline has so far."""
        self._beside.append((len(self._fold), seq, scene))

    def told(self, known: dict[str, SubAgent]) -> ToldTurn | None:
        """Return the turn, None if nothing of it is shown; see `place_scenes`."""
        if not (placed := self.place_scenes(known)):
            return None
        seq = next(seq for seq in self._times if seq >= placed[0][0])
        scenes = [scene for _, scene in placed]
        return ToldTurn(seq, self._times[seq], scenes, [seq for seq, _ in placed])

    def place_scenes(self, known: dict[str, SubAgent]) -> list[tuple[int, Scene]]:
        """Return the scenes of the turn, each with the number of the entry that it begins with.

        `known` are the sub-agents of earlier turns by id; those of this turn are added to it. A
        continued one keeps its name, and one with only its end in this turn was shown already.
        """
        state = self._fold.state()
        beside = [(place, 0, seq, scene) for place, seq, scene in self._beside]
        if self._plan_place is not None:
            place, seq = self._plan_place
            steps = tuple(PlanStep(entry.status, entry.content) for entry in state.plan)
            beside.append((place, 0, seq, Planned(steps)))
        if self._is_open:
            last = self._began[-1] if self._began else 0
            beside.append((len(state.timeline), 2, last, TurnOpen()))
        calls: dict[str | None, int] = {
            item.tool_call_id: place
            for place, item in enumerate(state.timeline)
            if isinstance(item, ToolCall)
        }
        items = [
            replace(it, user=self._users.get(seq, "")) if isinstance(it, Message) else it
            for seq, it in zip(self._began, state.timeline, strict=True)
        ]
        timeline = [
            # A sub-agent is placed after the call that started it, if the agent names that.
            (calls.get(item.caller, place) if isinstance(item, SubAgent) else place, 1, seq, item)
            for place, (seq, item) in enumerate(zip(self._began, items, strict=True))
        ]
        placed: list[tuple[int, Scene]] = []
        for *_, seq, scene in sorted([*beside, *timeline], key=lambda row: row[:2]):
            if isinstance(scene, SubAgent):
                before = known.get(scene.session_id)
                if before is not None and not scene.timeline:
                    continue
                if before is not None and scene.title is None:
                    scene = replace(scene, title=before.title)
                known[scene.session_id] = scene
            placed.append((seq, scene))
        return placed


def reason(end: TurnEnd) -> str:
    """Return the reason for the end of a turn, unless its outcome says it already."""
    if end.outcome == "failed" or end.message:
        return end.message or ""
    usual = (None, "end_turn", "cancelled", "refusal")
    return "" if end.stop_reason in usual else str(end.stop_reason).replace("_", " ").strip()
