"""Standing rules, and their decision about one question: allow, or ask.

    run make check        exactly this command
    run pytest …          with any arguments that the row of the program covers
    ask run git push …    always asked, whatever allows it

`…` may be typed as three dots.

Ask wins, whatever else allows it. What cannot be read is asked, and so is what no rule covers:
each command of a line needs a rule of its own. `cd` into the folder, in front, counts as one.
"""

# See docs/decisions.md, 35.

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from typing import Final, Literal

from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import asdict, replace

from acphold.safety.errors import RuleError
from acphold.safety.standing.asked_actions import Action, RunAction
from acphold.safety.standing.folders import is_in, real
from acphold.safety.standing.moved_shells import PLAIN_FOLDER
from acphold.safety.standing.programs import (
    BARE,
    EXACT_AND_TYPED,
    MEANS,
    PlainCommand,
    UnreadableLine,
    read_line,
    row_of,
    why_more,
    why_uncovered,
)
from acphold.safety.standing.repositories import NO_SETTINGS, PersonalSettings

DAY: Final = 24 * 3600 * 1000
"""In milliseconds."""

USUAL: Final = 30 * DAY
"""A rule ends after this time (ms), unless its person says something else."""

ANY: Final = "…"


class StandingRule(Struct, frozen=True):
    """A standing answer of `person`: a user of `serve`, "" for nobody in particular.

    `number` is what people call it by. `argv` are the words of a command. It holds for sessions in
    `folder`, a real path, "" for everywhere; for the agent with that name of `known_agents`, "" for
    all; for the session with that id, "" for all. `places` are the machines and journals where its
    person has made or accepted it (`journal.lineage`): in others it waits, unless it asks.
    `expires_at` (ms since the epoch) is 0 if it does not. A rule that `watches` answers nothing and
    notes what it would have done. `made_with` is the device that made it, a terminal or a token;
    `is_seen` is False until another one has shown it to its person. `ended_at` is when it was
    revoked; its number is not used again. It has given `uses` answers, the last at `used_at`. Those
    of the kind `edit` were made by earlier releases, and count no more.
    """

    verdict: Literal["allow", "ask"]
    kind: Literal["run", "edit"]
    argv: tuple[str, ...]
    is_prefix: bool = False
    folder: str = ""
    agent: str = ""
    session: str = ""
    places: tuple[str, ...] = ()
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
        words = [*map(quote, self.argv), *([ANY] if self.is_prefix else [])]
        front = "ask " if self.verdict == "ask" else ""
        return f"{front}{self.kind} {' '.join(words)}"

    @property
    def deed(self) -> str:
        """The end of a sentence that begins with "allow the agent to"; without its folder."""
        if self.kind == "edit":
            return self.text
        # In marks: the words of an exact command may be "with any arguments".
        return f"run `{' '.join(map(quote, self.argv))}`{' with any arguments' * self.is_prefix}"

    @property
    def place(self) -> str:
        """The folder that it is for, as people name it; "" for all."""
        return os.path.basename(self.folder) or self.folder

    @property
    def why_over(self) -> str:
        """The reason why rules of its kind have ended; "" for one that counts."""
        if self.kind == "edit":
            return "acphold asks about every edit; let the agent's own mode accept them"
        if self.is_prefix and self.verdict == "allow" and row_of(self.argv) is None:
            return f"acphold no longer knows what the arguments of {self.argv[0]} do"
        return ""

    @property
    def words(self) -> str:
        """Its effect in a phrase, with its folder."""
        if self.is_rest:
            return self.text
        return f"ask before it may {self._reach}" if self.verdict == "ask" else self._reach

    @property
    def sentence(self) -> str:
        """Its effect in a sentence, with its agent and folder."""
        if self.is_rest:
            return "Always ask everything"
        if self.verdict == "ask":
            return f"Always ask before {self.agent or 'any agent'} may {self._reach}"
        return allowance(self.agent, self._reach)

    @property
    def _reach(self) -> str:
        return f"{self.deed} in {self.place}" if self.place else self.deed

    @property
    def meaning(self) -> str:
        """Its effect, in plain words."""
        if why := self.why_over:
            return f"ended by an upgrade: {why}"
        if self.verdict == "ask":
            return "your rules are paused in this session" if self.is_rest else "always asks"
        row = row_of(self.argv)
        if self.is_prefix and row is not None:
            return MEANS[row.means]
        return "exactly this command"

    def is_listed(self, now: int) -> bool:
        """True if it was not revoked and has not expired, at `now` (ms since the epoch)."""
        return not self.ended_at and (not self.expires_at or now < self.expires_at)

    def is_live(self, now: int) -> bool:
        """True if it has not ended, at `now`; it may be off."""
        return self.is_listed(now) and not self.why_over

    def is_unseen_at(self, device: str) -> bool:
        """True if showing it on this device shows its person a rule that they may not know."""
        return not self.is_seen and self.made_with != device

    def holds_at(self, place: str) -> bool:
        """True if it counts on the machine and in the journal of `place`, "" for an unknown one."""
        return self.verdict == "ask" or (place != "" and place in self.places)

    def is_for(
        self, agent: str, folder: str, session: str, person: str, now: int, place: str
    ) -> bool:
        """True if it counts for this session, at `now` (ms since the epoch).

        A rule that asks counts while it is off: others may have been added since.
        """
        return (
            self.person == person
            and self.is_live(now)
            and self.holds_at(place)
            and (not self.is_off or self.verdict == "ask")
            and self.agent in ("", agent)
            and self.session in ("", session)
            and (self.folder == folder or (not self.folder and self.verdict == "ask"))
        )


def pausing_rule(session: str, person: str, now: int) -> StandingRule:
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
    place: str | UnsetType = UNSET
    """A place where it holds from now on; those in other journals count no more."""

    used_at: int | UnsetType = UNSET
    """A use at this time; counted, unless the rule has ended or is off."""

    def apply_to(self, rule: StandingRule) -> StandingRule:
        """Return the rule with this change."""
        change = {name: value for name, value in asdict(self).items() if value is not UNSET}
        if (place := change.pop("place", None)) is not None:
            journal = place.rpartition(" ")[2]
            here = [it for it in rule.places if it != place and it.rpartition(" ")[2] == journal]
            change["places"] = (*here, place)
        if rule.ended_at:
            change.pop("ended_at", None)
        if rule.ended_at or rule.is_off:
            change.pop("used_at", None)
        elif "used_at" in change:
            change["uses"] = rule.uses + 1
        return replace(rule, **change)


def allowance(agent: str, words: str) -> str:
    """Return the sentence about rules that allow an agent, "" for every one, to do this."""
    return f"Always allow {agent or 'every agent'} to {words}"


def quote(word: str) -> str:
    """Return the word as a person would type it in a shell."""
    if re.fullmatch(BARE, word):
        return word
    return f'"{word}"' if "'" in word else f"'{word}'"


def revoke_words(numbers: Sequence[int], person: str) -> str:
    """Return the command that revokes these rules of a person; each has their own numbers."""
    whose = f"--user {quote(person)} " if person else ""
    return f"acphold rules rm {whose}{' '.join(map(str, numbers))}"


def rule_text(words: Sequence[str]) -> str:
    """Return the text of a rule from the words of a command line; one word may hold all of it."""
    if len(words) == 1:
        return words[0]
    return " ".join(word if word == ANY else quote(word) for word in words)


def read_rule(text: str) -> StandingRule:
    """Return the rule that `text` says, without a scope; raises RuleError with the reason."""
    words = text.strip().split(" ", 1)
    verdict: Literal["allow", "ask"] = "allow"
    if words[0] in ("allow", "ask") and len(words) == 2:
        verdict = "ask" if words[0] == "ask" else "allow"
        words = words[1].strip().split(" ", 1)
    if words[0] != "run":
        meant = f"{'ask ' if verdict == 'ask' else ''}run {' '.join(words)}"
        raise RuleError(f"did you mean: acphold rules add {quote(meant)}?")
    if len(words) != 2:
        raise RuleError("`run` needs a command")
    body = words[1].strip()
    is_prefix = body.endswith((f" {ANY}", " ..."))
    if is_prefix:
        body = body.rsplit(" ", 1)[0].rstrip()
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
            f"it is not known what the arguments of {' '.join(rule.argv[:2])} do; "
            "leave out … for a rule that allows exactly one command"
        )
    if is_runner and not is_typed:
        return f"{program} runs other programs; type a rule for it with `acphold rules add`"
    if is_runner and any(re.fullmatch(r"-[A-Za-z]*[ceE]|--?(eval|exec)", w) for w in rule.argv[1:]):
        return f"{program} would run code from its arguments"
    return ""


# -- the decision -----------------------------------------------------------------------------

MOST_ANSWERS: Final = 20
"""Answers that rules give in one turn; they rest after that."""


class Circumstances(Struct, frozen=True):
    """The place and the time of a question.

    `agent` is a name of `known_agents`, by which it was started, and `shell` the program that
    it runs commands with, "" for the usual one. `place` is this machine and journal. `folder`
    that of the session, `now` the time (ms since the epoch). `answered` counts the answers that
    rules have given in this turn. `mode` is the id and the name of the agent's mode. `kept` are
    paths that must not lie in the folder: the person's home, the journal. With `has_guests`
    somebody else may have prompted what runs there. With `has_moved` a shell of the agent that
    stays may be in another folder. A turn that `is_unruled` was begun by somebody who wants no rule
    to answer in it. `git_settings` are those beside the repository's.
    """

    agent: str
    folder: str
    session: str
    person: str
    now: int
    answered: int = 0
    mode: str = ""
    kept: tuple[str, ...] = ()
    has_guests: bool = False
    has_moved: bool = False
    place: str = ""
    shell: str = ""
    is_unruled: bool = False
    git_settings: PersonalSettings = NO_SETTINGS


_SHELLS: Final = frozenset(("bash", "zsh", "fish", "sh", "dash", "ash", "ksh", "mksh", "busybox"))


class RuleDecision(Struct, frozen=True):
    """The decision; `why` is for people. `rules` are those that allow it, each once, or the one
    that says to ask."""

    allows: bool
    why: str
    rules: tuple[StandingRule, ...] = ()


class _AskedError(Exception):
    """It is asked; the text is the reason."""

    def __init__(self, why: str, *rules: StandingRule) -> None:
        super().__init__(why)
        self.rules = rules


def decide(action: Action, rules: Iterable[StandingRule], at: Circumstances) -> RuleDecision:
    """Return the decision of the `rules` that count here, including those that only watch."""
    folder = real(at.folder)
    active = [
        rule
        for rule in rules
        if rule.is_for(at.agent, folder, at.session, at.person, at.now, at.place)
    ]
    try:
        if not any(rule.verdict == "allow" for rule in active):
            raise _AskedError("there is no rule for this agent and folder")
        # Where rules rest, whatever is asked.
        for rule in active:
            if rule.is_rest:
                raise _AskedError(
                    "rules are paused in this session: its agent did something that was not "
                    f"allowed; resume them with: {revoke_words([rule.number], rule.person)}",
                    rule,
                )
        if at.is_unruled:
            raise _AskedError("this turn was begun with --permission reject")
        if at.has_guests:
            raise _AskedError("other people can send prompts in this session")
        if at.answered >= MOST_ANSWERS:
            answers = f"rules have answered {MOST_ANSWERS} times in this turn"
            raise _AskedError(f"{answers} and are paused until the next")
        mode = at.mode.casefold()
        if "plan" in mode or "read" in mode:
            raise _AskedError("the agent is in a mode that only plans or reads")
        if folder == "/" or any(is_in(real(path), folder) for path in at.kept):
            raise _AskedError("the session's folder contains your home folder or the journal")
        if isinstance(action, RunAction):
            # Another shell may make other words of the same line.
            name = at.shell.rsplit("/", 1)[-1]
            if name and re.sub(r"[\d.-]+$", "", name) not in _SHELLS:
                raise _AskedError(f"{at.shell} may read the command in another way")
            if action.stays and at.has_moved:
                raise _AskedError(
                    "an earlier command, such as cd, may have moved or changed the agent's shell"
                )
            used = _rules_for_run(action, active, folder, at.git_settings)
        else:
            raise _AskedError(action.why)
    except _AskedError as asked:
        return RuleDecision(allows=False, why=str(asked), rules=asked.rules)
    numbers = " and ".join(str(rule.number) for rule in used)
    return RuleDecision(
        allows=True, why=f"allowed by your rule{'s' * (len(used) > 1)} {numbers}", rules=used
    )


def _rules_for_run(
    action: RunAction, rules: Sequence[StandingRule], folder: str, personal: PersonalSettings
) -> tuple[StandingRule, ...]:
    if action.cwd is not None and not os.path.isabs(action.cwd):
        raise _AskedError("the agent does not name the whole path of the folder it would run in")
    cwd = folder if action.cwd is None else real(action.cwd)
    if not is_in(cwd, folder):
        raise _AskedError("it would run outside the session's folder")
    used: list[StandingRule] = []
    for number, text in enumerate(action.lines, start=1):
        commands = read_line(text)
        if isinstance(commands, UnreadableLine):
            raise _AskedError(commands.why)
        place, rest = _follow_cd(commands, cwd, folder)
        if place != cwd and any(command.joined_by == ";" for command in rest):
            raise _AskedError("if cd fails, the commands after ; run in the wrong folder")
        if place != folder and action.stays:
            raise _AskedError("this agent's shell would stay in another folder")
        if place != cwd and number < len(action.lines):
            raise _AskedError("the request has several command lines and uses cd")
        used += _rules_for(rest, rules, place, folder, personal)
    return _each_once(used)


def _follow_cd(
    commands: Sequence[PlainCommand], cwd: str, folder: str
) -> tuple[str, Sequence[PlainCommand]]:
    """Follow `cd FOLDER &&` in front; return the folder, and the commands that run there."""
    while commands[0].argv[0] == "cd":
        match commands:
            case [PlainCommand(argv=("cd", target)), PlainCommand(joined_by="&&"), *_]:
                if not PLAIN_FOLDER.fullmatch(target) or ".." in target.split("/"):
                    raise _AskedError(f"cd {target} can lead anywhere")
                cwd = real(os.path.join(cwd, target))
                if not is_in(cwd, folder):
                    raise _AskedError(f"cd {target} leaves the session's folder")
                commands = commands[1:]
            case _:
                raise _AskedError("cd is only understood at the beginning, as `cd FOLDER && ...`")
    return cwd, commands


def _rules_for(
    commands: Sequence[PlainCommand],
    rules: Sequence[StandingRule],
    cwd: str,
    folder: str,
    personal: PersonalSettings,
) -> list[StandingRule]:
    """Return the rule of each command.

    What a program does with its input is known if it has a row. Any other command behind a pipe
    needs exact rules for all that stand in front: it may run what it reads.
    """
    used: list[StandingRule] = []
    pipeline_start = 0
    for at, command in enumerate(commands):
        pipeline_start = pipeline_start if command.joined_by == "|" else at
        rule = _rule_for(command.argv, rules, cwd, folder, personal)
        is_piped = at > pipeline_start and not rule.is_prefix
        if is_piped and why_uncovered(command.argv, cwd, folder, personal):
            for place in range(pipeline_start, at):
                wanted = ("allow", False, commands[place].argv)
                fitting = (r for r in rules if (r.verdict, r.is_prefix, r.argv) == wanted)
                if (exact := next(fitting, None)) is None:
                    raise _AskedError(f"{_brief(command.argv)} may run what is piped into it", rule)
                used[place] = exact
        used.append(rule)
    return used


def _rule_for(
    argv: tuple[str, ...],
    rules: Sequence[StandingRule],
    cwd: str,
    folder: str,
    personal: PersonalSettings,
) -> StandingRule:
    """Return the rule that allows this command; the oldest of several."""
    why = ""
    for rule in rules:
        if rule.verdict == "ask" and _begins(argv, rule):
            raise _AskedError(f"your rule {rule.number} says to ask", rule)
    for rule in rules:
        if rule.verdict == "ask" or not _begins(argv, rule):
            continue
        if not rule.is_prefix:
            if cwd != folder:
                why = "an exact rule counts only in the session's folder itself"
            elif not (why := why_more(argv, folder, personal)):
                return rule
        elif not (why := why_uncovered(argv, cwd, folder, personal)):
            return rule
    raise _AskedError(why or f"no rule covers {_brief(argv)}")


def _begins(argv: tuple[str, ...], rule: StandingRule) -> bool:
    return (argv[: len(rule.argv)] if rule.is_prefix else argv) == rule.argv


def _each_once(rules: Iterable[StandingRule]) -> tuple[StandingRule, ...]:
    return tuple({rule.number: rule for rule in rules}.values())


def _brief(argv: Sequence[str]) -> str:
    text = " ".join(map(quote, argv))
    return text if len(text) <= 80 else f"{text[:80]}…"
