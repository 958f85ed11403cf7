"""The outcomes of a check, and the signals by which a case reports them.

A case that passes returns. Otherwise it raises:

    =================  ==================  ==========================================
    signal             verdict             means
    =================  ==================  ==========================================
    `Remarked`         PASS                the agent keeps the rule; has a remark on it
    `Violation`        FAIL                the agent broke the rule; the lines show it
    `NotAdvertised`    NOT_ADVERTISED      the agent does not advertise the capability
    `SignInNeeded`     BLOCKED             the agent requires a person to sign in first
    `NotObservable`    NOT_OBSERVABLE      nothing happened that could show it; has the reason
    `NotApplied`       NOT_APPLIED         the rule is for other agents; has the reason
    =================  ==================  ==========================================

Only PASS means that the rule was seen to be kept.
"""

# See docs/decisions.md, 34.

from __future__ import annotations

import re
from enum import Enum
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from acp_check.record import WireLine


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

    def counts_for(self, least: Level) -> bool:
        """Return True if this demand is at least as strong as `least`."""
        order = list(Level)
        return order.index(self) <= order.index(least)


class Reach(Enum):
    """The kind of agent: a program started by the check, or a remote server."""

    PROGRAM = "program"
    SERVER = "server"


class RuleSource(Struct, frozen=True):
    """The source of a rule: a page and a heading on it."""

    page: str
    heading: str

    @property
    def url(self) -> str:
        """The address of the page, at the heading."""
        if self.page == JSON_RPC:
            section = re.match(r"[\d.]*", self.heading)
            return f"{JSON_RPC_URL}{JSON_RPC_SECTIONS.get(section[0] if section else '', '')}"
        if self.page.startswith(RFD):
            page = f"{SITE}/rfds/{_slug(self.page.removeprefix(RFD))}"
        else:
            page = f"{SITE}/protocol/v1/{_slug(self.page)}"
        return f"{page}#{_slug(self.heading)}" if self.heading else page

    def __str__(self) -> str:
        return f"{self.page}, “{self.heading}”" if self.heading else self.page


SITE = "https://agentclientprotocol.com"
RFD = "RFD: "
"""The beginning of the names of proposals."""
JSON_RPC = "JSON-RPC 2.0"
JSON_RPC_URL = "https://www.jsonrpc.org/specification"
JSON_RPC_SECTIONS = {
    "4": "#request_object",
    "4.1": "#notification",
    "4.2": "#parameter_structures",
    "5": "#response_object",
    "5.1": "#error_object",
    "6": "#batch",
}


def _slug(words: str) -> str:
    """Return the part of an address that the site makes of a title or a heading."""
    kept = re.sub(r"[^\w\s-]", "", words.lower())
    return re.sub(r"[\s-]+", "-", kept).strip("-")


class Rule(Struct, frozen=True):
    """A rule: a stable id, our wording, and its source.

    The part of the id before the dot is its group. `needs` names capabilities without which it is
    not checked; `only` restricts it to programs, or to servers.
    """

    id: str
    says: str
    level: Level
    source: RuleSource
    needs: tuple[str, ...] = ()
    only: Reach | None = None

    @property
    def group(self) -> str:
        return self.id.partition(".")[0]


class Finding(Struct, frozen=True):
    """The outcome of a check; `why` is a sentence.

    `lines` of the wire show it; `stderr` is what the agent wrote there at that time.
    """

    rule: Rule
    verdict: Verdict
    why: str = ""
    lines: tuple[WireLine, ...] = ()
    seconds: float = 0.0
    stderr: tuple[str, ...] = ()

    @classmethod
    def of(cls, rule: Rule, signal: Signal) -> Finding:
        """Return the outcome that a signal stands for."""
        return cls(rule, signal.verdict, signal.why, signal.lines)

    @property
    def is_pass(self) -> bool:
        return self.verdict is Verdict.PASS


class Signal(Exception):
    """Ends a case that does not pass."""

    verdict = Verdict.NOT_OBSERVABLE

    def __init__(self, why: str, *lines: WireLine) -> None:
        super().__init__(why)
        self.why = why
        self.lines = lines


class Violation(Signal):
    """The agent broke the rule."""

    verdict = Verdict.FAIL


class Remarked(Signal):
    """The agent keeps the rule; `why` is a remark on it."""

    verdict = Verdict.PASS


class NotAdvertised(Signal):
    """The agent does not advertise the capability that the rule needs."""

    verdict = Verdict.NOT_ADVERTISED


class SignInNeeded(Signal):
    """The agent requires a person to sign in first."""

    verdict = Verdict.BLOCKED


class NotObservable(Signal):
    """Nothing happened that could show it."""


class NotApplied(Signal):
    """The rule is about other agents than this one."""

    verdict = Verdict.NOT_APPLIED
