"""Standing answers as values: a rule, its text, and the reasons to refuse one.

    run make check        exactly this command
    run pytest …          with any arguments that the row of the program covers
    edit docs             ordinary files below a folder of the session; `.` is all of it
    ask run git push …    always asked, whatever allows it

`…` may be typed as three dots.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, Literal

from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import asdict, replace

from acphold.errors import RuleError
from acphold.standing.plain_commands import UnreadableLine, read_line
from acphold.standing.programs import EXACT_AND_TYPED, MEANS, row_of

DAY: Final = 24 * 3600 * 1000
"""In milliseconds."""

USUAL: Final = 30 * DAY
"""A rule ends after this time (ms), unless its person says something else."""

ANY: Final = "…"

_BARE: Final = re.compile(r"[A-Za-z0-9_./:@+,-][A-Za-z0-9_./:@%+,=-]*")


class StandingRule(Struct, frozen=True):
    """A standing answer of `person`: a user of `serve`, "" for nobody in particular.

    `number` is what people call it by. `argv` are the words of a command, or the folder of edits.
    It holds for sessions in `folder`, a real path, "" for everywhere; for the agent with that name
    of `known_agents`, "" for all; for the session with that id, "" for all. `expires_at` (ms since
    the epoch) is 0 if it does not. A rule that `watches` answers nothing and notes what it would
    have done. `made_with` is the device that made it, a terminal or a token; `is_seen` is False
    until another one has shown it to its person. `ended_at` is when it was revoked; its number is
    not used again. It has given `uses` answers, the last at `used_at`.
    """

    verdict: Literal["allow", "ask"]
    kind: Literal["run", "edit"]
    argv: tuple[str, ...]
    is_prefix: bool = False
    folder: str = ""
    agent: str = ""
    session: str = ""
    expires_at: int = 0
    person: str = ""
    watches: bool = False
    made_at: int = 0
    made_with: str = ""
    is_seen: bool = False
    is_off: bool = False
    ended_at: int = 0
    uses: int = 0
    used_at: int = 0
    number: int = 0

    @property
    def is_rest(self) -> bool:
        """True if it asks about everything: acphold made it to pause rules in a session."""
        return self.verdict == "ask" and not self.argv

    @property
    def text(self) -> str:
        """The rule as it is typed, without its scope."""
        if self.is_rest:
            return "ask everything"
        words = [*map(quoted, self.argv), *([ANY] if self.is_prefix else [])]
        front = "ask " if self.verdict == "ask" else ""
        return f"{front}{self.kind} {' '.join(words)}"

    @property
    def meaning(self) -> str:
        """Its effect, in plain words."""
        if self.verdict == "ask":
            return "your rules are paused in this session" if self.is_rest else "always asks"
        if self.kind == "edit":
            return "changes ordinary files there: no settings, hooks or CI, nothing through a link"
        row = row_of(self.argv)
        if self.is_prefix and row is not None:
            return MEANS[row.means]
        return "exactly this command"

    def is_live(self, now: int) -> bool:
        """True if it has not ended, at `now` (ms since the epoch); it may be off."""
        return not self.ended_at and (not self.expires_at or now < self.expires_at)

    def is_unseen_at(self, device: str) -> bool:
        """True if showing it on this device shows its person a rule that they may not know."""
        return not self.is_seen and self.made_with != device

    def is_for(self, agent: str, folder: str, session: str, person: str, now: int) -> bool:
        """True if it counts for this session, at `now` (ms since the epoch).

        A rule that asks counts while it is off: others may have been added since.
        """
        return (
            self.person == person
            and self.is_live(now)
            and (not self.is_off or self.verdict == "ask")
            and self.agent in ("", agent)
            and self.session in ("", session)
            and (self.folder == folder or (not self.folder and self.verdict == "ask"))
        )


def rest(session: str, person: str, now: int) -> StandingRule:
    """Return the rule by which all others of the person rest in a session, until it is revoked."""
    return StandingRule(
        "ask", "run", (), session=session, person=person, made_at=now, made_with="acphold"
    )


class RuleChange(Struct, frozen=True, omit_defaults=True):
    """New values of some fields of rules. A rule that has ended stays ended."""

    expires_at: int | UnsetType = UNSET
    watches: bool | UnsetType = UNSET
    is_seen: bool | UnsetType = UNSET
    is_off: bool | UnsetType = UNSET
    ended_at: int | UnsetType = UNSET
    used_at: int | UnsetType = UNSET
    """A use at this time; counted, unless the rule has ended or is off."""

    def made_to(self, rule: StandingRule) -> StandingRule:
        """Return the rule with this change."""
        change = {name: value for name, value in asdict(self).items() if value is not UNSET}
        if rule.ended_at:
            change.pop("ended_at", None)
        if rule.ended_at or rule.is_off:
            change.pop("used_at", None)
        elif "used_at" in change:
            change["uses"] = rule.uses + 1
        return replace(rule, **change)


def quoted(word: str) -> str:
    """The word as a person would type it in a shell."""
    if _BARE.fullmatch(word):
        return word
    return f'"{word}"' if "'" in word else f"'{word}'"


def revoke_words(numbers: Sequence[int], person: str) -> str:
    """The command that revokes these rules of a person; each person has their own numbers."""
    whose = f"--user {quoted(person)} " if person else ""
    return f"acphold rules rm {whose}{' '.join(map(str, numbers))}"


def typed_words(words: Sequence[str]) -> str:
    """The text of a rule from the words of a command line, of which one may hold all of it."""
    return (
        words[0]
        if len(words) == 1
        else " ".join(word if word == ANY else quoted(word) for word in words)
    )


def read_rule(text: str) -> StandingRule:
    """Return the rule that `text` says, without a scope; raises RuleError with the reason."""
    words = text.strip().split(" ", 1)
    verdict: Literal["allow", "ask"] = "allow"
    if words[0] in ("allow", "ask") and len(words) == 2:
        verdict = "ask" if words[0] == "ask" else "allow"
        words = words[1].strip().split(" ", 1)
    if len(words) != 2 or words[0] not in ("run", "edit"):
        raise RuleError("a rule begins with `run` and a command, or with `edit` and a folder")
    kind, body = words[0], words[1].strip()
    is_prefix = body.endswith((f" {ANY}", " ..."))
    if is_prefix:
        body = body.rsplit(" ", 1)[0].rstrip()
    if kind == "edit":
        is_quoted = len(body) > 2 and body[0] == body[-1] and body[0] in "'\""
        rule = StandingRule(verdict, "edit", (body[1:-1] if is_quoted else body,), is_prefix)
    else:
        line = read_line(body)
        if isinstance(line, UnreadableLine):
            raise RuleError(line.why)
        if len(line) > 1:
            raise RuleError("a rule is for one command; make one for each")
        rule = StandingRule(verdict, "run", line[0].argv, is_prefix)
    if why := flaw(rule):
        raise RuleError(why)
    return rule


def flaw(rule: StandingRule, *, is_typed: bool = True) -> str:
    """Return the reason to refuse this rule; "" if it is valid.

    A rule that was made from a question, and not typed by a person, must not be for a shell, an
    interpreter, or a program that runs others.
    """
    if rule.kind == "edit":
        if rule.is_prefix or len(rule.argv) != 1 or not rule.argv[0]:
            return "a rule for edits names one folder"
        path = rule.argv[0]
        if path.startswith(("/", "~")) or ".." in path.split("/") or not path.isprintable():
            return "the folder is named from the session's folder, without `..`"
        return ""
    if not rule.argv or not rule.argv[0]:
        return "a rule names a program"
    if rule.verdict == "ask":
        return ""
    program = rule.argv[0].rsplit("/", 1)[-1]
    if program == "cd":
        return "`cd` into the folder needs no rule"
    name = re.sub(r"[\d.]+$", "", program) or program
    is_runner = bool({program, name} & EXACT_AND_TYPED)
    if rule.is_prefix:
        if row_of(rule.argv) is not None:
            return ""
        return (
            f"acphold does not know what the arguments of {' '.join(rule.argv[:2])} do; "
            "leave out … for a rule that allows exactly one command"
        )
    if is_runner and not is_typed:
        return f"{program} runs other programs; type a rule for it with `acphold rules add`"
    if is_runner and any(re.fullmatch(r"-[A-Za-z]*[ceE]|--?(eval|exec)", w) for w in rule.argv[1:]):
        return f"{program} would run code from its arguments"
    return ""
