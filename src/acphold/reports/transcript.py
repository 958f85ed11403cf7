"""A session as a person reads it: scenes, made of journal entries one turn at a time.

`show`, the exports and the screen print these scenes, each in its own form.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Sequence
from typing import Final

from msgspec import Struct

from acphold.history.decisions import AskedQuestion, Came, asked_question, closed_question
from acphold.history.entries import ANSWER, CHILD, ECHO, QUESTION, TURN_END, Entry
from acphold.history.fold import Fold
from acphold.history.raw_update import members, string, update_kind
from acphold.history.speakers import is_our_notice
from acphold.history.timeline import (
    ContextCompaction,
    Message,
    SubAgent,
    ToolCall,
    TurnEnd,
    with_those_inside,
)


class PlanStep(Struct, frozen=True):
    """One thing the agent means to do; `status` as in the protocol."""

    status: str
    text: str


class Planned(Struct, frozen=True):
    """The plan as the turn left it."""

    steps: tuple[PlanStep, ...]


class Noticed(Struct, frozen=True):
    """What the person was told, beside the conversation; by acphold, or by the agent."""

    severity: str
    title: str
    description: str
    is_ours: bool = False


class ModeChanged(Struct, frozen=True):
    """The session was put into another mode."""

    mode: str


class Decision(Struct, frozen=True):
    """What people were asked, and what came of it; None while it waits.

    `client` is the program that the person answered in, None where no person did.
    """

    question: str
    came: Came | None = None
    client: str | None = None


class TurnOpen(Struct, frozen=True):
    """The last turn has no end: it `runs`, or a crash cut it off; None where that is not known."""

    runs: bool | None = None

    @property
    def words(self) -> str:
        """How the turn stands."""
        if self.runs is None:
            return "has no end: it still runs, or a crash or a kill cut it off"
        if self.runs:
            return "still runs"
        return "cut off by a crash or a kill, and nobody has opened the session since"


Scene = (
    Message
    | ToolCall
    | ContextCompaction
    | SubAgent
    | TurnEnd
    | Planned
    | Noticed
    | ModeChanged
    | Decision
    | TurnOpen
)


class ToldTurn(Struct, frozen=True):
    """The scenes of a turn; its first entry has the number `seq` and the time `at` (ms).

    `places` are the numbers of the entries that the scenes begin with.
    """

    seq: int
    at: int
    scenes: Sequence[Scene]
    places: Sequence[int]


async def turns(entries: AsyncIterable[Entry]) -> AsyncIterator[ToldTurn]:
    """The turns of a whole session; only one of them is in memory at a time."""
    async for turn in entries_by_turn(entries):
        told = _placed(turn)
        yield ToldTurn(
            turn[0].seq, turn[0].at, [scene for _, scene in told], [seq for seq, _ in told]
        )


async def scenes(entries: AsyncIterable[Entry]) -> AsyncIterator[Scene]:
    """The scenes of a whole session; only one turn of it is in memory at a time."""
    async for turn in entries_by_turn(entries):
        for scene in turn_scenes(turn):
            yield scene


async def entries_by_turn(entries: AsyncIterable[Entry]) -> AsyncIterator[list[Entry]]:
    """The entries of each turn, with what happened since the one before."""
    turn: list[Entry] = []
    async for entry in entries:
        turn.append(entry)
        if entry.kind == TURN_END:
            yield turn
            turn = []
    if turn:
        yield turn


def turn_scenes(turn: Sequence[Entry]) -> list[Scene]:
    """The scenes of the entries of one turn, and of what happened since the one before."""
    return [scene for _, scene in _placed(turn)]


def _placed(turn: Sequence[Entry]) -> list[tuple[int, Scene]]:
    """The same, each behind the number of the entry that it begins with."""
    telling = _Telling()
    for entry in turn:
        telling.add(entry)
    return telling.placed()


def scene_at(turn: Sequence[Entry], seq: int) -> int:
    """Which of the scenes of a turn the entry `seq` has a part in.

    An entry that shows nothing, such as a list of commands, stands by the scene before it.
    """
    with_it = sum(entry.seq < seq for entry in turn) + 1
    before, after = turn_scenes(turn[: with_it - 1]), turn_scenes(turn[:with_it])
    told = [scene for scene in after if not isinstance(scene, TurnOpen)]
    for place, scene in enumerate(told):
        if place >= len(before) or before[place] != scene:
            return place
    return max(0, len(told) - 1)


_BESIDE: Final = (b'"plan"', b'"notice"', b'"current_mode_update"')
"""One of these is in each update that stands beside the timeline, and in few others: those need not
be decoded."""


class _Telling:
    """Puts what the fold keeps aside (plan, notices, modes, questions) where it happened."""

    def __init__(self) -> None:
        self._fold = Fold()
        self._began: list[int] = []
        self._beside: list[tuple[int, int, Scene]] = []
        self._plan_place: tuple[int, int] | None = None
        self._questions: dict[str, tuple[int, AskedQuestion]] = {}
        self._last = TURN_END

    def add(self, entry: Entry) -> None:
        if entry.kind == ECHO:
            return
        self._last = entry.kind
        self._fold.add(entry)
        place = len(self._fold)
        self._began += [entry.seq] * (place - len(self._began))
        if entry.kind == QUESTION:
            question = asked_question(entry.raw)
            self._questions[question.id] = len(self._beside), question
            title = question.title
            if (about := question.untitled_call) is not None:
                # The tool call may have got its title before.
                for item in with_those_inside(self._fold.timeline()):
                    if isinstance(item, ToolCall) and item.tool_call_id == about and item.title:
                        title = item.title
                        break
            self._beside.append((place, entry.seq, Decision(title)))
        elif entry.kind == ANSWER:
            closed = closed_question(entry.raw)
            if asked := self._questions.get(closed.question):  # else of an earlier turn
                index, question = asked
                its_place, seq, before = self._beside[index]
                assert isinstance(before, Decision)
                decision = Decision(before.question, closed.came(question), closed.client)
                self._beside[index] = its_place, seq, decision
        raw = b"" if entry.kind == CHILD else entry.update
        kind = update_kind(raw) if any(name in raw for name in _BESIDE) else ""
        if kind == "plan":
            # Shown once, where it stood last: of a turn that is over no other one is kept.
            self._plan_place = place, entry.seq
        elif kind == "notice":
            parts = members(raw)
            severity, title, description = (
                string(parts.get(name)) or "" for name in ("severity", "title", "description")
            )
            noticed = Noticed(severity, title, description, is_our_notice(parts))
            self._beside.append((place, entry.seq, noticed))
        elif kind == "current_mode_update":
            mode = string(members(raw).get("currentModeId")) or ""
            self._beside.append((place, entry.seq, ModeChanged(mode)))

    def placed(self) -> list[tuple[int, Scene]]:
        state = self._fold.state()
        beside = [(place, 0, seq, scene) for place, seq, scene in self._beside]
        if self._plan_place is not None:
            place, seq = self._plan_place
            steps = tuple(PlanStep(entry.status, entry.content) for entry in state.plan)
            beside.append((place, 0, seq, Planned(steps)))
        if state.turns and self._last != TURN_END:
            last = self._began[-1] if self._began else 0
            beside.append((len(state.timeline), 2, last, TurnOpen()))
        calls: dict[str | None, int] = {
            item.tool_call_id: place
            for place, item in enumerate(state.timeline)
            if isinstance(item, ToolCall)
        }
        timeline = [
            # A sub-agent stands under the call that made it, where the agent tells which that was.
            (calls.get(item.caller, place) if isinstance(item, SubAgent) else place, 1, seq, item)
            for place, (seq, item) in enumerate(zip(self._began, state.timeline, strict=True))
        ]
        told = sorted([*beside, *timeline], key=lambda one: one[:2])
        return [(seq, scene) for *_, seq, scene in told]


def reason(end: TurnEnd) -> str:
    """Why a turn ended, as far as its outcome does not say that already."""
    if end.outcome == "failed":
        return end.message or ""
    usual = (None, "end_turn", "cancelled", "refusal")
    return "" if end.stop_reason in usual else str(end.stop_reason).replace("_", " ").strip()
