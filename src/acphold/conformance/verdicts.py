"""What a check can come to, and how a case says so.

A case returns when all was well. Otherwise it raises:

    =================  ==================  ==========================================
    signal             verdict             means
    =================  ==================  ==========================================
    `Violation`        FAIL                the agent broke the rule; the lines show it
    `NotAdvertised`    NOT_ADVERTISED      the agent never said that it can do this
    `SignInNeeded`     BLOCKED             the agent wants a person to sign in first
    `NotObservable`    NOT_OBSERVABLE      nothing happened that could show it; says why
    `NotApplied`       NOT_APPLIED         the rule is not about such an agent; says why
    =================  ==================  ==========================================

Only PASS means that the rule was seen to be kept.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Iterable

    from acphold.conformance.record import Line


class Verdict(Enum):
    """What a check came to."""

    PASS = "pass"
    FAIL = "fail"
    NOT_ADVERTISED = "not advertised"
    BLOCKED = "blocked by sign-in"
    NOT_OBSERVABLE = "not observable"
    NOT_APPLIED = "not applied"


class Level(Enum):
    """How much the protocol asks for it; EXPECTED is what people rely on and no page says."""

    MUST = "MUST"
    SHOULD = "SHOULD"
    EXPECTED = "expected"


class Reach(Enum):
    """How an agent is reached: it is started by the check, or a server far away."""

    PROGRAM = "program"
    SERVER = "server"


class Source(Struct, frozen=True):
    """Where a rule is written: a page and a heading on it."""

    page: str
    heading: str

    def __str__(self) -> str:
        return f"{self.page}, “{self.heading}”" if self.heading else self.page


class Rule(Struct, frozen=True):
    """What is checked: a stable id, the rule in our words, and where it comes from.

    The part of the id before the dot is its group. `needs` names the capabilities without which
    it is not looked at; `only` says that it is about programs, or about servers, alone.
    """

    id: str
    says: str
    level: Level
    source: Source
    needs: tuple[str, ...] = ()
    only: Reach | None = None

    @property
    def group(self) -> str:
        return self.id.partition(".")[0]


class Finding(Struct, frozen=True):
    """What a check came to; `why` is a sentence, `excerpt` lines of the wire as they went."""

    rule: Rule
    verdict: Verdict
    why: str = ""
    excerpt: tuple[str, ...] = ()
    seconds: float = 0.0

    @property
    def is_pass(self) -> bool:
        return self.verdict is Verdict.PASS


class Signal(Exception):
    """How a case ends that does not pass."""

    verdict = Verdict.NOT_OBSERVABLE

    def __init__(self, why: str, *lines: Line) -> None:
        super().__init__(why)
        self.why = why
        self.lines = lines


class Violation(Signal):
    """The agent broke the rule."""

    verdict = Verdict.FAIL


class NotAdvertised(Signal):
    """The agent never said that it can do this."""

    verdict = Verdict.NOT_ADVERTISED


class SignInNeeded(Signal):
    """The agent wants a person to sign in first."""

    verdict = Verdict.BLOCKED


class NotObservable(Signal):
    """Nothing happened that could show it."""


class NotApplied(Signal):
    """The rule is about other agents than this one."""

    verdict = Verdict.NOT_APPLIED


EXCERPT_LINES = 6
"""Lines of the wire that a finding shows: the request, and what came of it."""

EXCERPT_LENGTH = 600
"""Characters of each: enough for what is wrong, which mostly stands in front."""


def excerpt(lines: Iterable[Line]) -> tuple[str, ...]:
    """Lines for a report: `→` went to the agent, `←` came from it; long ones are cut."""
    shown = [f"{line.arrow} {cut(line.text)}" for line in lines]
    if len(shown) > EXCERPT_LINES:
        left_out = len(shown) - EXCERPT_LINES
        shown[EXCERPT_LINES - 1 : -1] = [f"… {left_out + 1} more lines"]
    return tuple(shown)


def cut(text: str) -> str:
    """`text` without its end, if it is long."""
    if len(text) <= EXCERPT_LENGTH:
        return text
    return f"{text[:EXCERPT_LENGTH]}… ({len(text)} characters)"
