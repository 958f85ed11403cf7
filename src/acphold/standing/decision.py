"""The decision of the rules about one question: allow, or ask.

Ask wins, whatever else allows it. What cannot be read is asked, and so is what no rule covers:
each command of a line needs a rule of its own. `cd` into the folder, in front, counts as one.
"""

# See docs/decisions.md, 35.

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from typing import Final

from msgspec import Struct

from acphold.standing.asked_actions import Action, EditAction, RunAction
from acphold.standing.folders import is_in, no_edit, real
from acphold.standing.plain_commands import PlainCommand, UnreadableLine, read_line
from acphold.standing.programs import no_arguments, row_of
from acphold.standing.rules import StandingRule, quoted, revoke_words

MOST_ANSWERS: Final = 20
"""Answers that rules give in one turn; they rest after that."""

_FOLDER: Final = re.compile(r"[A-Za-z0-9_./][^~]*")


class Circumstances(Struct, frozen=True):
    """The place and the time of a question.

    `agent` is a name of `known_agents`, `folder` that of the session, `now` the time (ms since the
    epoch). `answered` counts the answers that rules have given in this turn. `mode` is the id and
    the name of the agent's mode. `kept` are paths that must not lie in the folder: the person's
    home, the journal. With `has_guests` somebody else may have prompted what runs there.
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


class Decision(Struct, frozen=True):
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


def decide(action: Action, rules: Iterable[StandingRule], at: Circumstances) -> Decision:
    """Return the decision of the `rules` that count here, including those that only watch."""
    folder = real(at.folder)
    here = [rule for rule in rules if rule.is_for(at.agent, folder, at.session, at.person, at.now)]
    try:
        if not any(rule.verdict == "allow" for rule in here):
            raise _AskedError("there is no rule for this agent and folder")
        _require_calm(at, folder, here)
        if isinstance(action, RunAction):
            used = _run(action, here, folder)
        elif isinstance(action, EditAction):
            used = _edit(action, here, folder)
        else:
            raise _AskedError(action.why)
    except _AskedError as asked:
        return Decision(allows=False, why=str(asked), rules=asked.rules)
    numbers = " and ".join(str(rule.number) for rule in used)
    return Decision(
        allows=True, why=f"allowed by your rule{'s' * (len(used) > 1)} {numbers}", rules=used
    )


def _require_calm(at: Circumstances, folder: str, here: Sequence[StandingRule]) -> None:
    """Raise if rules rest here, whatever is asked."""
    for rule in here:
        if rule.is_rest:
            raise _AskedError(
                "rules are paused in this session: its agent did something other than was allowed; "
                f"to use them again: {revoke_words([rule.number], rule.person)}",
                rule,
            )
    if at.has_guests:
        raise _AskedError("somebody else may prompt in this session")
    if at.answered >= MOST_ANSWERS:
        raise _AskedError(
            f"rules have answered {MOST_ANSWERS} times in this turn, and are paused until the next"
        )
    mode = at.mode.casefold()
    if "plan" in mode or "read" in mode:
        raise _AskedError("the agent is in a mode that should change nothing")
    if folder == "/" or any(is_in(real(path), folder) for path in at.kept):
        raise _AskedError("the session's folder holds your home or the journal")


def _run(action: RunAction, rules: Sequence[StandingRule], folder: str) -> tuple[StandingRule, ...]:
    cwd = folder if action.cwd is None else real(action.cwd)
    if not is_in(cwd, folder):
        raise _AskedError("it would run outside of the session's folder")
    used: list[StandingRule] = []
    for number, text in enumerate(action.lines, start=1):
        commands = read_line(text)
        if isinstance(commands, UnreadableLine):
            raise _AskedError(commands.why)
        place, rest = _entered(commands, cwd, folder)
        if place != cwd and any(command.joined_by == ";" for command in rest):
            raise _AskedError("cd may fail, and what stands behind ; runs where it was")
        if place != folder and action.stays:
            raise _AskedError("this agent's shell would stay in another folder")
        if place != cwd and number < len(action.lines):
            raise _AskedError("cd in a question with several command lines")
        used += _rules_for(rest, rules, place, folder)
    return _each_once(used)


def _entered(
    commands: Sequence[PlainCommand], cwd: str, folder: str
) -> tuple[str, Sequence[PlainCommand]]:
    """Follow `cd FOLDER &&` in front; return the folder, and the commands that run there."""
    while commands[0].argv[0] == "cd":
        match commands:
            case [PlainCommand(argv=("cd", target)), PlainCommand(joined_by="&&"), *_]:
                if not _FOLDER.fullmatch(target) or ".." in target.split("/"):
                    raise _AskedError(f"cd {target} may lead anywhere")
                cwd = real(os.path.join(cwd, target))
                if not is_in(cwd, folder):
                    raise _AskedError(f"cd {target} leads out of the folder")
                commands = commands[1:]
            case _:
                raise _AskedError("cd is only understood in front, as `cd FOLDER && ...`")
    return cwd, commands


def _rules_for(
    commands: Sequence[PlainCommand], rules: Sequence[StandingRule], cwd: str, folder: str
) -> list[StandingRule]:
    """Return the rule of each command.

    What a program does with its input is known if it has a row. Any other command behind a pipe
    needs exact rules for all that stand in front: it may run what it reads.
    """
    used: list[StandingRule] = []
    begun = 0
    for at, command in enumerate(commands):
        begun = begun if command.joined_by == "|" else at
        rule = _rule_for(command.argv, rules, cwd, folder)
        if at > begun and not rule.is_prefix and not _has_row(command.argv, cwd, folder):
            for place in range(begun, at):
                if (exact := _exact_rule(commands[place].argv, rules)) is None:
                    raise _AskedError(f"{_shown(command.argv)} may run what is piped into it", rule)
                used[place] = exact
        used.append(rule)
    return used


def _has_row(argv: Sequence[str], cwd: str, folder: str) -> bool:
    """True if a row covers the command."""
    row = row_of(argv)
    return row is not None and not no_arguments(row, argv[len(row.words) :], cwd, folder)


def _exact_rule(argv: tuple[str, ...], rules: Sequence[StandingRule]) -> StandingRule | None:
    """Return the oldest rule that allows exactly this command."""
    wanted = ("run", "allow", False, argv)
    return next((r for r in rules if (r.kind, r.verdict, r.is_prefix, r.argv) == wanted), None)


def _rule_for(
    argv: tuple[str, ...], rules: Sequence[StandingRule], cwd: str, folder: str
) -> StandingRule:
    """Return the rule that allows this command; the oldest of several."""
    why = ""
    for rule in rules:
        if rule.kind == "run" and rule.verdict == "ask" and _begins(argv, rule):
            raise _AskedError(f"your rule {rule.number} says to ask", rule)
    for rule in rules:
        if rule.kind != "run" or rule.verdict == "ask" or not _begins(argv, rule):
            continue
        if not rule.is_prefix:
            if cwd == folder:
                return rule
            why = "an exact rule counts only in the session's folder itself"
        elif (row := row_of(argv)) is not None:
            arguments = argv[len(row.words) :]
            if not (why := no_arguments(row, arguments, cwd, folder)):
                return rule
    raise _AskedError(why or f"no rule covers {_shown(argv)}")


def _begins(argv: tuple[str, ...], rule: StandingRule) -> bool:
    return (argv[: len(rule.argv)] if rule.is_prefix else argv) == rule.argv


def _edit(
    action: EditAction, rules: Sequence[StandingRule], folder: str
) -> tuple[StandingRule, ...]:
    edits = [rule for rule in rules if rule.kind == "edit"]
    used = []
    for path in action.paths:
        found, why = None, f"no rule covers edits of {path}"
        for rule in edits:
            below = real(os.path.join(folder, rule.argv[0]))
            if rule.verdict == "ask":
                # In any letters: some disks do not tell them apart.
                named = real(os.path.join(folder, path)).casefold()
                if is_in(named, below.casefold()):
                    raise _AskedError(f"your rule {rule.number} says to ask", rule)
            elif not is_in(below, folder):
                why = f"{rule.argv[0]} is outside of the folder"
            elif not (reason := no_edit(path, folder, below)):
                found = found or rule
            else:
                why = reason
        if found is None:
            raise _AskedError(why)
        used.append(found)
    return _each_once(used)


def _each_once(rules: Iterable[StandingRule]) -> tuple[StandingRule, ...]:
    return tuple({rule.number: rule for rule in rules}.values())


def _shown(argv: Sequence[str]) -> str:
    text = " ".join(map(quoted, argv))
    return text if len(text) <= 80 else f"{text[:80]}…"
