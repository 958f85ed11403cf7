"""The scope of a rule (place, person, time), and the checks that come before all rules."""

from __future__ import annotations

import os
import timeit
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import msgspec
import pytest

from acphold.safety.errors import RuleError
from acphold.safety.standing.asked_actions import RunAction, Unclear
from acphold.safety.standing.decision import (
    Circumstances,
    RuleChange,
    RuleDecision,
    StandingRule,
    decide,
    pausing_rule,
    read_rule,
)
from acphold.safety.standing.programs import why_uncovered

Verdict = Literal["allow", "ask"]
Kind = Literal["run", "edit"]

NOW = 1_000_000
HERE = "machine journal"


def rule(text: str, folder: Path | str, number: int = 1, **scope: object) -> StandingRule:
    made = msgspec.structs.replace(
        read_rule(text), folder=str(folder), number=number, places=(HERE,)
    )
    return msgspec.structs.replace(made, **scope)


def at(folder: Path | str, **facts: object) -> Circumstances:
    here = Circumstances("claude", str(folder), "s", "ada", NOW, place=HERE)
    return msgspec.structs.replace(here, **facts)


def of_pytest(project: Path, made: StandingRule, **facts: object) -> RuleDecision:
    return decide(RunAction(("pytest -q",)), [made], msgspec.structs.replace(at(project), **facts))


def test_an_answer_names_the_rules_that_gave_it(project: Path) -> None:
    rules = [
        rule("run pytest …", project, 3, person="ada"),
        rule("run ls", project, 5, person="ada"),
    ]
    assert (
        decide(RunAction(("pytest && ls",)), rules, at(project)).why
        == "allowed by your rules 3 and 5"
    )
    verdict = decide(RunAction(("pytest",)), rules, at(project))
    assert (verdict.why, verdict.rules) == ("allowed by your rule 3", (rules[0],))


def test_a_rule_that_asks_does_so_while_it_is_off(project: Path) -> None:
    allows = rule("run pytest …", project, 2, person="ada")
    asks = rule("ask run pytest …", project, 1, person="ada", is_off=True)
    assert decide(RunAction(("pytest",)), [asks, allows], at(project)).rules == (asks,)
    off = msgspec.structs.replace(allows, is_off=True)
    assert not decide(RunAction(("pytest",)), [off], at(project)).allows


def test_a_folder_whose_name_begins_alike_is_another_folder(project: Path) -> None:
    (other := project.parent / "project2").mkdir()
    assert not of_pytest(
        project, rule("run pytest …", project, person="ada"), folder=str(other)
    ).allows


def test_a_folder_that_is_reached_through_a_link_is_the_real_one(project: Path) -> None:
    link = project.parent / "link"
    link.symlink_to(project)
    assert of_pytest(project, rule("run pytest …", project, person="ada"), folder=str(link)).allows


def test_a_rule_that_asks_stands_above_each_that_allows_in_either_order(project: Path) -> None:
    allows, asks = (
        rule("run pytest …", project, 1, person="ada"),
        rule("ask run pytest", "", 2, person="ada"),
    )
    for rules in ([allows, asks], [asks, allows]):
        verdict = decide(RunAction(("pytest",)), rules, at(project))
        assert not verdict.allows
        assert verdict.rules == (asks,)
        assert decide(RunAction(("pytest -q",)), rules, at(project)).allows


def test_only_what_can_be_read_is_allowed(project: Path) -> None:
    made = rule("run pytest …", project, person="ada")
    verdict = decide(Unclear("it is a form"), [made], at(project))
    assert (verdict.allows, verdict.why) == (False, "it is a form")


def test_a_shell_that_stays_is_asked_about_once_it_may_have_moved(project: Path) -> None:
    made = rule("run pytest", project, person="ada")
    moved = at(project, has_moved=True)
    verdict = decide(RunAction(("pytest",), stays=True), [made], moved)
    why = "an earlier command, such as cd, may have moved or changed the agent's shell"
    assert (verdict.allows, verdict.why) == (False, why)
    assert decide(RunAction(("pytest",), stays=True), [made], at(project)).allows
    assert decide(RunAction(("pytest",)), [made], moved).allows


def test_the_21st_answer_of_a_turn_is_asked(project: Path) -> None:
    made = rule("run pytest …", project, person="ada")
    assert of_pytest(project, made, answered=19).allows
    assert not of_pytest(project, made, answered=20).allows


def test_a_mode_that_plans_or_only_reads_is_asked(project: Path) -> None:
    made = rule("run pytest …", project, person="ada")
    assert not of_pytest(project, made, mode="plan Plan Mode").allows
    assert not of_pytest(project, made, mode="read-only").allows


def test_a_folder_that_holds_the_home_or_the_journal_is_asked(project: Path) -> None:
    made = rule("run pytest …", project, person="ada")
    assert not of_pytest(project, made, kept=(str(project / "src"),)).allows
    assert not of_pytest(project, made, kept=(str(project),)).allows
    assert of_pytest(project, made, kept=(str(project.parent),)).allows
    assert not decide(RunAction(("ls",)), [rule("run ls", "/", person="ada")], at("/")).allows


def test_a_command_in_another_folder_than_the_sessions_is_asked(project: Path) -> None:
    rules = [
        rule("run pytest …", project, 1, person="ada"),
        rule("run make check", project, 2, person="ada"),
    ]
    assert decide(RunAction(("pytest",), str(project)), rules, at(project)).allows
    assert decide(RunAction(("pytest",), str(project / "src")), rules, at(project)).allows
    assert not decide(RunAction(("pytest",), str(project.parent)), rules, at(project)).allows
    assert not decide(RunAction(("pytest",), str(project / "out")), rules, at(project)).allows
    assert not decide(RunAction(("make check",), str(project / "src")), rules, at(project)).allows
    assert not decide(RunAction(("cd src && make check",)), rules, at(project)).allows


def test_a_shell_that_stays_where_it_was_led_is_not_led_away(project: Path) -> None:
    rules = [rule("run ls …", project, person="ada")]
    assert decide(RunAction(("cd src && ls",)), rules, at(project)).allows
    assert not decide(RunAction(("cd nest && ls",), stays=True), rules, at(project)).allows
    assert decide(RunAction((f"cd {project} && ls",), stays=True), rules, at(project)).allows


def test_what_runs_where_cd_failed_is_asked(project: Path) -> None:
    rules = [
        rule("run pwd …", project, 1, person="ada"),
        rule("run cat …", project, 2, person="ada"),
    ]
    assert decide(RunAction(("cd src && pwd && cat a.py",)), rules, at(project)).allows
    for line in ("cd nosuch && pwd ; cat ../secret", "cd src && pwd ; cat a.py"):
        assert not decide(RunAction((line,)), rules, at(project)).allows
    assert decide(RunAction((f"cd {project} && pwd ; cat src/a.py",)), rules, at(project)).allows


def test_a_format_that_has_git_check_signatures_is_asked(project: Path) -> None:
    rules = [rule("run git log …", project, person="ada")]
    for text in ("%G?", "%+GK", "%-GS", "% GF", "%h %GK"):
        assert not decide(RunAction((f"git log --format='{text}'",)), rules, at(project)).allows
    assert decide(RunAction(("git log --format='%h %s'",)), rules, at(project)).allows


@pytest.mark.parametrize("cwd", ["", ".", "src", "./", "~"])
def test_a_folder_that_is_not_named_in_full_is_asked(
    cwd: str, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project)  # acphold's own folder says nothing about the agent's
    assert not decide(
        RunAction(("ls",), cwd), [rule("run ls …", project, person="ada")], at(project)
    ).allows


def test_a_rule_accepted_in_another_place_holds_in_both_and_in_no_other_journal() -> None:
    made = read_rule("run ls")
    first = RuleChange(place="a j1").apply_to(made)
    second = RuleChange(place="b j1").apply_to(first)
    assert second.places == ("a j1", "b j1")
    assert RuleChange(place="a j1").apply_to(second).places == ("b j1", "a j1")
    restored = RuleChange(place="b j2").apply_to(second)
    assert restored.places == ("b j2",)
    assert not restored.holds_at("")
    assert read_rule("ask run ls").holds_at("anywhere")


def test_several_lines_of_one_question_each_need_a_rule(project: Path) -> None:
    rules = [
        rule("run pytest …", project, 1, person="ada"),
        rule("run ls …", project, 2, person="ada"),
    ]
    assert decide(RunAction(("pytest", "ls")), rules, at(project)).allows
    assert not decide(RunAction(("pytest", "id")), rules, at(project)).allows
    assert not decide(RunAction(("cd src && ls", "pytest")), rules, at(project)).allows


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("run npm …", "not known what the arguments of npm do"),
        ("run git …", "not known what"),
        ("run git push …", "not known what"),
        ("run python …", "not known what"),
        ("run sh …", "not known what"),
        ("run make …", "not known what"),
        ("run python -c 'import x'", "would run code"),
        ("run bash -lc pytest", "would run code"),
        ("run cd src", "needs no rule"),
        ("run chdir /tmp", "is a word of the shell"),
        ("run prevd", "is a word of the shell"),
        ("run pytest && ls", "one command"),
        ("run export A=1", "is a word of the shell"),
        ("run A=1 pytest", "sets a variable"),
        ("run pytest *.py", "cannot be understood"),
        ("run", "needs a command"),
        ("rm -rf", "did you mean: acphold rules add 'run rm -rf'"),
        ("ask rm it", "rules add 'ask run rm it'"),
        ("edit docs", "did you mean: acphold rules add 'run edit docs'"),
    ],
)
def test_a_rule_that_says_too_much_is_refused_with_the_reason(text: str, reason: str) -> None:
    with pytest.raises(RuleError, match=reason):
        read_rule(text)


def test_the_text_of_a_rule_reads_back_as_the_same_rule() -> None:
    for text in ("run pytest …", "ask run git push …", "run git commit -m 'a b'"):
        assert read_rule(text).text == text
        assert read_rule(read_rule(text).text) == read_rule(text)
    assert read_rule("run pytest ...") == read_rule("allow run pytest …")


def test_a_rule_says_in_plain_words_what_it_allows() -> None:
    assert "can run anything with it" in read_rule("run pytest …").meaning
    for text, words in (
        ("run git log …", "run `git log` with any arguments in shop"),
        ("ask run make 'all of it'", "ask before it may run `make 'all of it'` in shop"),
        ("run ls …", "run `ls` with any arguments in shop"),
        ("run ls with any arguments", "run `ls with any arguments` in shop"),
    ):
        assert msgspec.structs.replace(read_rule(text), folder="/home/ada/shop").words == words
    assert pausing_rule("s", "", 0).words == "ask everything"
    assert msgspec.structs.replace(read_rule("run ls"), folder="/").words == "run `ls` in /"
    assert read_rule("run git log …").meaning == "only reads"
    assert "can run anything with it" in read_rule("run cargo fmt …").meaning
    assert read_rule("run make check").meaning == "exactly this command"


def of_earlier(verdict: Verdict, kind: Kind, *argv: str, is_prefix: bool = False) -> StandingRule:
    """A rule of somebody who used a release before this one."""
    return StandingRule(verdict, kind, argv, is_prefix, person="ada", places=(HERE,), number=1)


@pytest.mark.parametrize(
    ("made", "why"),
    [
        (of_earlier("allow", "edit", "docs"), "acphold asks about every edit"),
        (of_earlier("ask", "edit", "docs"), "acphold asks about every edit"),
        (of_earlier("allow", "run", "oldtool", is_prefix=True), "the arguments of oldtool do"),
        (of_earlier("ask", "run", "oldtool", is_prefix=True), ""),
        (of_earlier("ask", "run", "git", "push", is_prefix=True), ""),
        (of_earlier("allow", "run", "oldtool", "-x"), ""),
        (pausing_rule("s", "ada", 0), ""),
    ],
)
def test_a_rule_of_a_kind_that_there_is_no_more_has_ended_with_the_reason_and_those_that_ask_stay(
    made: StandingRule, why: str, project: Path
) -> None:
    made = msgspec.json.decode(msgspec.json.encode(made), type=StandingRule)  # as it was kept
    made = msgspec.structs.replace(made, folder=str(project), session=made.session)
    assert made.is_listed(NOW)
    assert made.is_live(NOW) is not bool(why)
    assert why in made.meaning
    also = rule("run oldtool -x", project, 2, person="ada")
    action = RunAction(("oldtool -x",))
    verdict = decide(action, [made, also], at(project))
    asks = made.verdict == "ask" and not why and made.argv[:1] in ((), ("oldtool",))
    assert (verdict.allows, made in verdict.rules) == (not asks, asks or made.argv == also.argv)


def test_a_rule_is_new_on_other_devices_until_its_person_has_seen_it(project: Path) -> None:
    made = rule("run make", project, made_with="phone", is_seen=False)
    assert made.is_unseen_at("laptop")
    assert not made.is_unseen_at("phone")
    assert not msgspec.structs.replace(made, is_seen=True).is_unseen_at("laptop")


def test_a_decision_takes_as_long_as_a_few_paths_take_to_resolve(project: Path) -> None:
    rules = [rule("run pytest …", project, n, person="ada") for n in range(1, 9)]
    action, here = RunAction(("pytest -q tests/test_a.py 2>&1",)), at(project)
    deciding = _shortest(lambda: decide(action, rules, here))
    assert deciding < 20 * _shortest(lambda: os.path.realpath(project))


def _shortest(work: Callable[[], object]) -> float:
    return min(timeit.repeat(work, number=1, repeat=300))


@pytest.mark.parametrize("value", ["/etc/passwd", "~/x", "../outside/secret", "out/secret"])
def test_a_path_that_is_joined_to_its_option_leads_out_as_well(value: str, project: Path) -> None:
    for word in (f"-n{value}", f"-qn{value}", f"--lines={value}"):
        assert why_uncovered(("head", word), str(project), str(project)).startswith(word)
    assert why_uncovered(("head", "-n5", "names.txt"), str(project), str(project)) == ""


def test_an_option_whose_value_is_missing_is_not_covered(project: Path) -> None:
    why = why_uncovered(("head", "names.txt", "-n"), str(project), str(project))
    assert why == "the last option has no value"
