'''Declaring rules: by a case that plays something, or by an observer of the whole record.

    RULES = Rules()

    @RULES.case("list.no-match", MUST, SOURCE)
    async def no_match(stage: Stage) -> None:
        """A folder without sessions gives an empty list."""

    @RULES.also("list.no-match")
    @one_by_one
    def no_match_elsewhere(record: Record, witness: Witness) -> None: ...

    @RULES.observer("tool.absolute", MUST, SOURCE, unless="the agent made no tool call")
    def absolute(record: Record, witness: Witness) -> None:
        """Paths of tool calls are absolute."""

    @RULES.overview("list.titles", MUST, SOURCE, unless="the agent has no list")
    def titles(records: Sequence[Record], witness: Witness) -> None:
        """Titles in lists are the last ones."""

The docstring is the rule in words, as reports and docs/rules.md show it. A case raises a signal,
see `verdicts`. An observer looks at one connection, an overview at all of them together, as a
session outlives its connection. Both report to their witness each thing they looked at and each
that was wrong; they run when all cases are over. `RULES.unseen` declares a rule that no behaviour
can show.
'''

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import wraps
from typing import NotRequired, TypedDict, Unpack

from msgspec import Struct, structs

from acphold.conformance.record import Record, WireLine
from acphold.conformance.stage import Stage
from acphold.conformance.verdicts import (
    Level,
    NotObservable,
    Reach,
    Remarked,
    Rule,
    RuleSource,
    Violation,
)

MUST, SHOULD, EXPECTED = Level.MUST, Level.SHOULD, Level.EXPECTED

Case = Callable[[Stage], Awaitable[None]]
"""Plays something and judges it."""


class Witness:
    """Collects what an observer has seen."""

    def __init__(self) -> None:
        self.seen = 0
        self.wrong: list[tuple[str, tuple[WireLine, ...]]] = []
        self._remarks: dict[str, None] = {}

    def saw(self) -> None:
        """Count one thing that the rule is about."""
        self.seen += 1

    def check(self, is_kept: object, why: str, *lines: WireLine) -> None:
        """Count one thing that the rule is about, and accuse it unless the rule is kept."""
        self.saw()
        if not is_kept:
            self.accuse(why, *lines)

    def accuse(self, why: str, *lines: WireLine) -> None:
        """Report one thing that breaks the rule."""
        self.wrong.append((why, lines))

    def remark(self, what: str) -> None:
        """Tell something with the verdict that breaks no rule."""
        self._remarks[what] = None

    def judge(self, unless: str) -> None:
        """Raise the resulting signal; `unless` says why nothing may have been seen."""
        if self.wrong:
            why, lines = self.wrong[0]
            again = len(self.wrong) - 1
            raise Violation(f"{why} (and {again} more such)" if again else why, *lines)
        if not self.seen and unless:
            raise NotObservable(unless)
        if self._remarks:
            raise Remarked("; ".join(self._remarks))


Observer = Callable[[Record, Witness], None]
"""Looks at one connection."""

Overview = Callable[[Sequence[Record], Witness], None]
"""Looks at all connections."""


def one_by_one(observer: Observer) -> Overview:
    """Return the overview that looks at one connection after the other."""

    @wraps(observer)
    def overview(records: Sequence[Record], witness: Witness) -> None:
        for record in records:
            observer(record, witness)

    return overview


class Check(Struct, frozen=True):
    """A rule and its test: one of `case`, `overview` and `unseen`, or a case followed by an
    overview.

    `destructive`: only played when asked for by name. `beside`: the case has a process of its own
    and mostly waits, so the next ones are played meanwhile.
    """

    rule: Rule
    case: Case | None = None
    overview: Overview | None = None
    unseen: str = ""
    unless: str = ""
    destructive: bool = False
    beside: bool = False


class Observed(TypedDict):
    """Options of a rule that is observed: `unless` says why nothing may have been seen."""

    unless: str
    only: NotRequired[Reach | None]


def _sentence(judge: Callable[..., object]) -> str:
    """Return the rule in words, which is the docstring of the function that judges it."""
    # Python with -OO has no docstrings.
    return " ".join((judge.__doc__ or judge.__name__).split())


class Rules:
    """The rules of one module, in order; `only` is the reach of those that name none."""

    def __init__(self, only: Reach | None = None) -> None:
        self._checks: list[Check] = []
        self._only = only

    def __iter__(self) -> Iterator[Check]:
        return iter(self._checks)

    def case(
        self,
        id: str,
        level: Level,
        source: RuleSource,
        *needs: str,
        only: Reach | None = None,
        destructive: bool = False,
        beside: bool = False,
    ) -> Callable[[Case], Case]:
        """Register the decorated coroutine as a rule's case; `needs` are names of CAPABILITIES."""

        def declare(case: Case) -> Case:
            rule = Rule(id, _sentence(case), level, source, needs, only or self._only)
            self._checks.append(Check(rule, case, destructive=destructive, beside=beside))
            return case

        return declare

    def overview(
        self, id: str, level: Level, source: RuleSource, *needs: str, **seen: Unpack[Observed]
    ) -> Callable[[Overview], Overview]:
        """Register the decorated function as an overview."""

        def declare(overview: Overview) -> Overview:
            rule = Rule(id, _sentence(overview), level, source, needs, seen.get("only"))
            self._checks.append(Check(rule, overview=overview, unless=seen["unless"]))
            return overview

        return declare

    def observer(
        self, id: str, level: Level, source: RuleSource, *needs: str, **seen: Unpack[Observed]
    ) -> Callable[[Observer], Observer]:
        """Register the decorated function as an observer."""

        def declare(observer: Observer) -> Observer:
            self.overview(id, level, source, *needs, **seen)(one_by_one(observer))
            return observer

        return declare

    def also(self, id: str) -> Callable[[Overview], Overview]:
        """Register the decorated function as an overview beside the case of this rule."""

        def declare(overview: Overview) -> Overview:
            index = next(n for n, it in enumerate(self._checks) if it.rule.id == id)
            self._checks[index] = structs.replace(self._checks[index], overview=overview)
            return overview

        return declare

    def unseen(self, id: str, says: str, level: Level, source: RuleSource, why: str) -> None:
        """Register a rule that no behaviour can show; `why` is a sentence."""
        self._checks.append(Check(Rule(id, says, level, source), unseen=why))
