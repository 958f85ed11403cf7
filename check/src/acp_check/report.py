"""The report of `acphold check` for people: on the terminal, and as a page of HTML.

All of it may be written by a hostile agent: everything is escaped, and the page runs no script and
loads nothing.
"""

from __future__ import annotations

import io
import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from html import escape
from pathlib import Path
from typing import TypeVar

from msgspec import Struct
from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from acp_check import bounds
from acp_check.checks import CheckReport, record_of
from acp_check.console import plain_console
from acp_check.record import WireLine
from acp_check.verdicts import Finding, Level, Rule, Verdict
from acp_wire.visible_text import on_one_line, quantity, visible

T = TypeVar("T")

MARKS = {
    Verdict.PASS: ("✓", "good"),
    Verdict.FAIL: ("✗", "bad"),
    Verdict.NOT_ADVERTISED: ("-", "faint"),
    Verdict.BLOCKED: ("⚿", "busy"),
    Verdict.NOT_OBSERVABLE: ("?", "faint"),
    Verdict.NOT_APPLIED: (" ", "faint"),
}
"""Mark and style of each verdict; those that are shown have a legend below the groups."""


class Tier(Struct, frozen=True):
    """The counts of the rules of one level; `failed` has no expected failures."""

    level: Level
    passed: int
    failed: int
    unseen: int

    @property
    def sentence(self) -> str:
        """The counts in words."""
        parts = [f"{self.passed} passed"]
        if self.failed:
            parts.append(f"{self.failed} failed")
        return ", ".join([*parts, f"{self.unseen} not seen"])


class CheckOutcome:
    """A report, the ids of its expected failures, and the level from which a failure counts.

    `again` is the command that checks this agent, as the words before and after those that name
    the rules; None if only a person can do it again.
    """

    def __init__(
        self,
        report: CheckReport,
        expected: frozenset[str] = frozenset(),
        fail_on: Level = Level.MUST,
        again: tuple[Sequence[str], Sequence[str]] | None = None,
    ) -> None:
        self.report = report
        self.expected = expected
        self.fail_on = fail_on
        self._again = again
        failed = {finding.rule.id for finding in report.of(Verdict.FAIL)}
        passed = {finding.rule.id for finding in report.of(Verdict.PASS)}
        self.unexpected = [it for it in report.of(Verdict.FAIL) if it.rule.id not in expected]
        self.known = [it for it in report.of(Verdict.FAIL) if it.rule.id in expected]
        self.stale = sorted(expected & passed)
        self.strange = sorted(expected - passed - failed - {it.rule.id for it in report.findings})

    def counts(self, finding: Finding) -> bool:
        """Return True if this is a failure that makes the outcome bad."""
        return finding in self.unexpected and finding.rule.level.counts_for(self.fail_on)

    @property
    def is_good(self) -> bool:
        """True if no failure counts, and no expected one passes now."""
        return not any(map(self.counts, self.unexpected)) and not self.stale

    @property
    def name(self) -> str:
        """The agent's own name and version, otherwise its command."""
        agent = self.report.agent
        return self.report.subject if agent is None else f"{agent.name} {agent.version}".strip()

    def again(self, rule: Rule) -> str:
        """Return the command that checks this rule alone; "" if there is none."""
        if self._again is None:
            return ""
        before, after = self._again
        return shlex.join([*before, "--only", rule.id, *after])

    def tiers(self) -> list[Tier]:
        """Return the counts by level, the strongest first, without levels that have no rule."""
        found = []
        for level in Level:
            of_it = [it for it in self.report.findings if it.rule.level is level]
            passed = sum(1 for it in of_it if it.is_pass)
            unseen = sum(1 for it in of_it if it.verdict not in (Verdict.PASS, Verdict.FAIL))
            failed = sum(1 for it in self.unexpected if it.rule.level is level)
            if of_it:
                found.append(Tier(level, passed, failed, unseen))
        return found

    @property
    def sentence(self) -> str:
        """The counts of the verdicts, in words."""
        parts = [f"{len(self.report.of(Verdict.PASS))} passed"]
        if self.unexpected:
            parts.append(f"{len(self.unexpected)} failed")
        if self.known:
            parts.append(f"{len(self.known)} failed as expected")
        told = (Verdict.PASS, Verdict.FAIL)
        unseen = [verdict for verdict in Verdict if verdict not in told]
        counts = ((len(self.report.of(verdict)), verdict.value) for verdict in unseen)
        parts.extend(f"{count} {name}" for count, name in counts if count)
        return ", ".join(parts)

    @property
    def remarks(self) -> list[str]:
        """Sentences about the baseline, and about failures that do not count."""
        said = [f"{id} passes now: remove it from the baseline" for id in self.stale]
        said += [f"{id} is in the baseline but was not checked" for id in self.strange]
        mild = [it for it in self.unexpected if not self.counts(it)]
        if mild:
            weakest = max((it.rule.level for it in mild), key=list(Level).index)
            failures = quantity(len(mild), "failure")
            verb, them = ("does", "it") if len(mild) == 1 else ("do", "them")
            said.append(
                f"{failures} below {self.fail_on.value} {verb} not count; "
                f"--fail-on {weakest.value.lower()} counts {them}"
            )
        return said

    @property
    def failures(self) -> dict[str, list[Finding]]:
        """The failures below a heading, without headings for none."""
        all_of_them = {"Failed": self.unexpected, "Failed as expected": self.known}
        return {title: found for title, found in all_of_them.items() if found}

    def notes(self) -> list[Finding]:
        """Return the passes of which there is something to say."""
        return [it for it in self.report.of(Verdict.PASS) if it.why]

    def unseen(self) -> dict[tuple[Verdict, str], list[str]]:
        """Return the ids of the rules that were not seen, by verdict and reason."""
        found: dict[tuple[Verdict, str], list[str]] = {}
        for finding in self.report.findings:
            if finding.verdict not in (Verdict.PASS, Verdict.FAIL):
                found.setdefault((finding.verdict, finding.why), []).append(finding.rule.id)
        return found


def by_group(found: Iterable[T], group: Callable[[T], str]) -> dict[str, list[T]]:
    """Group items, in the order of each group's first item."""
    groups: dict[str, list[T]] = {}
    for one in found:
        groups.setdefault(group(one), []).append(one)
    return groups


def excerpt(lines: Sequence[WireLine], length: int = bounds.EXCERPT_CHARACTERS) -> list[str]:
    """Return lines for a report: `→` went to the agent, `←` came from it."""
    # A message on a WebSocket may have several lines; their ends are white space.
    texts = (line.text.replace("\n", " ") for line in lines)
    shown = [f"{it.arrow} {cut(text, length)}" for it, text in zip(lines, texts, strict=True)]
    if (most := bounds.EXCERPT_LINES) < len(shown):
        first, last = most - most // 2, most // 2
        left_out = f"… {len(shown) - most} more lines; --report FILE.html shows them"
        shown[first : len(shown) - last] = [left_out]
    return shown


def cut(text: str, length: int) -> str:
    """Return `text` without its end, if it is long."""
    if len(text) <= length:
        return text
    return f"{text[:length]}… ({len(text)} characters)"


FEW_REASONS = 3
"""Reasons why rules were not seen that are printed in any case: of a check of some rules."""


def print_report(outcome: CheckOutcome, console: Console, *, verbose: bool = False) -> None:
    """Print groups, then each failure with its lines; and with `verbose` each reason why something
    was not seen, otherwise those that a person can change, or a few."""
    report = outcome.report
    console.print(Text(visible(outcome.name), "heading"))
    console.print(Text(visible(report.subject), "faint"))
    console.print()
    for group, findings in by_group(report.findings, lambda it: it.rule.group).items():
        if not verbose and all(it.verdict is Verdict.NOT_APPLIED for it in findings):
            continue
        line = Text(f"{group:<16} ")
        for finding in findings:
            line.append(*MARKS[finding.verdict])
        console.print(line)
    used = {it.verdict for it in report.findings} - {Verdict.NOT_APPLIED}
    legend = "  ".join(f"{MARKS[it][0]} {it.value}" for it in Verdict if it in used)
    console.print(Text(f"\n{legend}", "faint"))
    for title, failures in outcome.failures.items():
        console.print()
        console.print(Text(title, "heading"))
        for finding in failures:
            _print_failure(outcome, finding, console)
    for finding in outcome.notes():
        console.print()
        console.print(Text(f"{finding.rule.id} passes: {on_one_line(finding.why)}", "busy"))
    unseen = outcome.unseen()
    is_whole = verbose or len(unseen) <= FEW_REASONS
    shown = {it: ids for it, ids in unseen.items() if is_whole or it[0] is Verdict.BLOCKED}
    if shown:
        console.print()
        console.print(Text("Not seen", "heading"))
    for (verdict, why), ids in shown.items():
        mark, style = MARKS[verdict]
        console.print(Text.assemble((f"  {mark} ", style), f"{verdict.value}: {on_one_line(why)}"))
        console.print(Padding(Text(", ".join(ids), "faint"), (0, 0, 0, 6), expand=False))
    console.print()
    for tier in outcome.tiers():
        style = "bad" if tier.failed else "good"
        console.print(Text.assemble(f"{tier.level.value:<9} ", (tier.sentence, style)))
    if len(shown) < len(unseen):
        console.print(Text("--verbose says why something was not seen", "faint"))
    for remark in outcome.remarks:
        console.print(Text(visible(remark), "busy"))
    style = "good" if outcome.is_good else "bad"
    seconds = f"{quantity(len(report.findings), 'check')} in {report.seconds:.1f} s"
    console.print(Text.assemble((f"{seconds}: ", ""), (outcome.sentence, style)))


def _print_failure(outcome: CheckOutcome, finding: Finding, console: Console) -> None:
    rule = finding.rule
    about = f"  {rule.level.value} · {rule.source}"
    console.print(Text.assemble((f"  ✗ {rule.id}", "bad"), (about, "faint")))
    console.print(Text(f"    {visible(rule.says)}"))
    console.print(Text(f"    {on_one_line(finding.why)}", "bad"))
    # Each of these on one line, however wide, so that it can be copied.
    for line in excerpt(finding.lines):
        console.print(Text(f"      {visible(line)}", "faint"), soft_wrap=True)
    for line in finding.stderr:
        text = f"      stderr: {visible(cut(line, bounds.EXCERPT_CHARACTERS))}"
        console.print(Text(text, "faint"), soft_wrap=True)
    console.print(Text(f"    {rule.source.url}", "faint"), soft_wrap=True)
    if again := outcome.again(rule):
        console.print(Text(f"    run again: {visible(again)}", "faint"), soft_wrap=True)


def text_report(outcome: CheckOutcome) -> str:
    """Return the report without colours."""
    page = io.StringIO()
    print_report(outcome, plain_console(page), verbose=True)
    return page.getvalue()


def print_rules(rules: Iterable[Rule], console: Console) -> None:
    """Print the checks, for `--list`."""
    for rule in rules:
        needs = f", needs {' and '.join(rule.needs)}" if rule.needs else ""
        only = f", of a {rule.only.value}" if rule.only is not None else ""
        about = f"  {rule.level.value}{needs}{only}"
        console.print(Text.assemble((rule.id, "id"), (about, "faint")))
        console.print(Text(f"    {rule.says}"))
        console.print(Text(f"    {rule.source}", "faint"))


POLICY = "default-src 'none'; style-src 'unsafe-inline'"

PAGE_MARKS = {
    Verdict.PASS: ("pass", "✓"),
    Verdict.FAIL: ("fail", "✗"),
    Verdict.BLOCKED: ("blocked", "⚿"),
}
"""Class and mark of verdicts; all others were not seen."""


def page_head(title: str) -> str:
    """Return the beginning of a page of HTML, to its body."""
    style = Path(__file__).with_suffix(".css").read_text(encoding="utf-8")
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{title}</title>\n<style>{style}</style>\n</head>\n<body>\n"
    )


def page_report(outcome: CheckOutcome) -> str:
    """Return the page."""
    return "".join(_CheckPage(outcome).pieces())


class _CheckPage:
    def __init__(self, outcome: CheckOutcome) -> None:
        self._outcome = outcome
        self._left = bounds.PAGE_WIRE_CHARACTERS

    def pieces(self) -> Iterator[str]:
        outcome, report = self._outcome, self._outcome.report
        name = escape(on_one_line(outcome.name))
        yield page_head(f"acphold check: {name}")
        yield f"<header>\n<h1>{name}</h1>\n"
        yield f"<p><code>{escape(on_one_line(report.subject))}</code></p>\n"
        kind, word = ("pass", "Good") if outcome.is_good else ("fail", "Failed")
        yield f'<p class="verdict {kind}"><strong>{word}</strong>: {escape(outcome.sentence)}, '
        yield f"in {report.seconds:.1f} s</p>\n"
        yield "<table>\n<thead><tr><th>level<th>passed<th>failed<th>not seen</tr></thead>\n"
        yield "<tbody>\n"
        for tier in outcome.tiers():
            failed = f'<td class="{"fail" if tier.failed else ""}">{tier.failed}'
            yield f'<tr><th scope="row">{tier.level.value}<td>{tier.passed}{failed}'
            yield f"<td>{tier.unseen}</tr>\n"
        yield "</tbody>\n</table>\n"
        for remark in outcome.remarks:
            yield f"<p>{escape(remark)}</p>\n"
        for finding in outcome.notes():
            yield f"<p>{escape(f'{finding.rule.id} passes: {on_one_line(finding.why)}')}</p>\n"
        yield "</header>\n<main>\n"
        for title, failures in outcome.failures.items():
            yield f"<h2>{title}</h2>\n"
            for finding in failures:
                yield from self._failure(finding)
        unseen = self._outcome.unseen()
        if unseen:
            count = sum(map(len, unseen.values()))
            yield f"<details>\n<summary>Not seen: {quantity(count, 'rule')}</summary>\n<dl>\n"
            for (verdict, why), ids in unseen.items():
                reason = f"{verdict.value}: {on_one_line(why)}"
                yield f"<dt>{escape(reason)}\n<dd>{escape(', '.join(ids))}\n"
            yield "</dl>\n</details>\n"
        yield from self._all()
        yield "</main>\n</body>\n</html>\n"

    def _failure(self, finding: Finding) -> Iterator[str]:
        rule = finding.rule
        yield f'<article id="{escape(rule.id)}">\n<div class="facts">\n'
        yield f'<h3><a href="#{escape(rule.id)}">{escape(rule.id)}</a> '
        yield f"<small>{rule.level.value}</small></h3>\n"
        yield f'<p>{escape(rule.says)} <a href="{escape(rule.source.url)}" rel="noreferrer">'
        yield f"{escape(str(rule.source))}</a></p>\n"
        yield f'<p class="why">{escape(visible(finding.why))}</p>\n'
        if finding.stderr:
            lines = "\n".join(
                escape(visible(cut(line, bounds.LINE_CHARACTERS))) for line in finding.stderr
            )
            yield f'<h4>stderr</h4>\n<pre tabindex="0">{lines}</pre>\n'
        if again := self._outcome.again(rule):
            yield f'<h4>run again</h4>\n<pre tabindex="0">{escape(on_one_line(again))}</pre>\n'
        yield "</div>\n"
        if finding.lines:
            yield f'<div class="wire" tabindex="0" role="region" aria-label="wire of {rule.id}">\n'
            yield from self._wire(finding)
            yield "</div>\n"
        yield "</article>\n"

    def _wire(self, finding: Finding) -> Iterator[str]:
        """Yield the lines that show a failure among those around them, by connection."""
        shown = 0
        for stretch in _stretches(self._outcome, finding):
            if stretch.title:
                yield f"<h4>{escape(on_one_line(stretch.title))}</h4>\n"
            for part in stretch.parts:
                if isinstance(part, int):
                    yield f'<p class="gap">{quantity(part, "line")} left out</p>\n'
                    continue
                shown += 1
                if shown > bounds.WIRE_LINES:
                    yield '<p class="gap">more lines follow; --trace FILE writes all of them</p>\n'
                    return
                accuses = part.number in stretch.accused
                is_whole = accuses and self._left > 0
                most = bounds.LINE_CHARACTERS if is_whole else bounds.CONTEXT_CHARACTERS
                text = visible(cut(part.text, most))
                self._left -= len(text)
                side = "to" if part.by == "client" else "from"
                # The arrow is text, so that a copy has it; readers of screens get words.
                yield f'<p class="{side}{" shown" if accuses else ""}">'
                yield f"<time>{part.at - stretch.began:.3f}</time>"
                yield f'<b aria-label="{side} the agent">{part.arrow}</b> '
                yield f"<code>{escape(text)}</code></p>\n"

    def _all(self) -> Iterator[str]:
        findings = self._outcome.report.findings
        yield f"<details>\n<summary>All {quantity(len(findings), 'rule')}</summary>\n"
        for group, members in by_group(findings, lambda it: it.rule.group).items():
            yield f"<h3>{escape(group)}</h3>\n<ul>\n"
            for finding in members:
                rule = finding.rule
                kind, mark = PAGE_MARKS.get(finding.verdict, ("", "-"))
                yield f'<li><b class="{kind}" aria-label="{finding.verdict.value}">{mark}</b> '
                yield f"<span>{escape(rule.says)} <small>{escape(rule.id)}, {rule.level.value}, "
                yield f'<a href="{escape(rule.source.url)}" rel="noreferrer">'
                yield f"{escape(str(rule.source))}</a></small></span>\n"
            yield "</ul>\n"
        yield "</details>\n"


class _WireStretch(Struct, frozen=True):
    """Lines of one connection: `parts` has lines, and the numbers of lines left out between."""

    title: str
    began: float
    accused: frozenset[int]
    parts: Sequence[WireLine | int]


def _stretches(outcome: CheckOutcome, finding: Finding) -> Iterator[_WireStretch]:
    left = list(finding.lines)
    while left:
        record = record_of(outcome.report.records, left[0])
        if record is None:  # said over HTTP, beside all connections
            alone = [it for it in left if record_of(outcome.report.records, it) is None]
            numbers = frozenset(it.number for it in alone)
            yield _WireStretch("", alone[0].at, numbers, alone)
        else:
            alone = [it for it in left if record_of([record], it) is not None]
            numbers = frozenset(it.number for it in alone)
            wanted = {
                number
                for accused in numbers
                for number in range(
                    accused - bounds.LINES_AROUND, accused + bounds.LINES_AROUND + 1
                )
                if 0 <= number < len(record.lines)
            }
            parts = list[WireLine | int]()
            next_one = 0
            for number in sorted(wanted):
                if number > next_one:
                    parts.append(number - next_one)
                parts.append(record.lines[number])
                next_one = number + 1
            if next_one < len(record.lines):
                parts.append(len(record.lines) - next_one)
            yield _WireStretch(f"connection: {record.name}", record.lines[0].at, numbers, parts)
        left = [it for it in left if not any(it is other for other in alone)]
