"""The outcomes of a check, and the signals by which a case reports them.

A case that passes returns. Otherwise it raises:

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

# See docs/decisions.md, 34.

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Iterable

    from acphold.conformance.record import Line


class Verdict(Enum):
    """The outcome of a check."""

    PASS = "pass"
    FAIL = "fail"
    NOT_ADVERTISED = "not advertised"
    BLOCKED = "blocked by sign-in"
    NOT_OBSERVABLE = "not observable"
    NOT_APPLIED = "not applied"


class Level(Enum):
    """Strength of the protocol's demand; EXPECTED is relied on, but stated on no page."""

    MUST = "MUST"
    SHOULD = "SHOULD"
    EXPECTED = "expected"


class Reach(Enum):
    """The kind of agent: a program started by the check, or a remote server."""

    PROGRAM = "program"
    SERVER = "server"


class Source(Struct, frozen=True):
    """The source of a rule: a page and a heading on it."""

    page: str
    heading: str

    def __str__(self) -> str:
        return f"{self.page}, “{self.heading}”" if self.heading else self.page


class Rule(Struct, frozen=True):
    """A rule: a stable id, our wording, and its source.

    The part of the id before the dot is its group. `needs` names capabilities without which it is
    not checked; `only` restricts it to programs, or to servers.
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
    """The outcome of a check; `why` is a sentence, `excerpt` lines of the wire, unchanged."""

    rule: Rule
    verdict: Verdict
    why: str = ""
    excerpt: tuple[str, ...] = ()
    seconds: float = 0.0

    @property
    def is_pass(self) -> bool:
        return self.verdict is Verdict.PASS


class Signal(Exception):
    """Ends a case that does not pass."""

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
"""Lines of the wire that a finding shows: the request, and what followed."""

EXCERPT_LENGTH = 600
"""Characters of each: enough for the fault, which is mostly near the start."""


def excerpt(lines: Iterable[Line]) -> tuple[str, ...]:
    """Return lines for a report: `→` went to the agent, `←` came from it; long ones are cut."""
    shown = [f"{line.arrow} {cut(line.text)}" for line in lines]
    if len(shown) > EXCERPT_LINES:
        left_out = len(shown) - EXCERPT_LINES
        shown[EXCERPT_LINES - 1 : -1] = [f"… {left_out + 1} more lines"]
    return tuple(shown)


def cut(text: str) -> str:
    """Return `text` without its end, if it is long."""
    if len(text) <= EXCERPT_LENGTH:
        return text
    return f"{text[:EXCERPT_LENGTH]}… ({len(text)} characters)"
