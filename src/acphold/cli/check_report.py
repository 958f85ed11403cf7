"""The report of `acphold check`: for people, as JSON, as JUnit XML, and as Markdown."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterable
from enum import Enum
from typing import TypeVar
from xml.etree import ElementTree

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from acphold.cli.terminal_text import counted, on_one_line, plain_console, visible, visible_json
from acphold.conformance.inspection import Report
from acphold.conformance.verdicts import Rule, Verdict

T = TypeVar("T")

MARKS = {
    Verdict.PASS: ("✓", "good"),
    Verdict.FAIL: ("✗", "bad"),
    Verdict.NOT_ADVERTISED: ("-", "faint"),
    Verdict.BLOCKED: ("⚿", "busy"),
    Verdict.NOT_OBSERVABLE: ("?", "faint"),
    Verdict.NOT_APPLIED: (" ", "faint"),
}
"""Mark and style of each verdict."""


class Outcome:
    """A report and the ids of its expected failures."""

    def __init__(self, report: Report, expected: frozenset[str]) -> None:
        self.report = report
        self.expected = expected
        failed = {finding.rule.id for finding in report.of(Verdict.FAIL)}
        passed = {finding.rule.id for finding in report.of(Verdict.PASS)}
        self.unexpected = [it for it in report.of(Verdict.FAIL) if it.rule.id not in expected]
        self.known = [it for it in report.of(Verdict.FAIL) if it.rule.id in expected]
        self.stale = sorted(expected & passed)
        self.strange = sorted(expected - passed - failed - {it.rule.id for it in report.findings})

    @property
    def is_good(self) -> bool:
        """True if all failures were expected, and no expected one passes now."""
        return not self.unexpected and not self.stale

    @property
    def name(self) -> str:
        """The agent's own name and version, otherwise its command."""
        agent = self.report.agent
        return self.report.subject if agent is None else f"{agent.name} {agent.version}"

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


def grouped(found: Iterable[T], group: Callable[[T], str]) -> dict[str, list[T]]:
    """Group items, in the order of each group's first item."""
    groups: dict[str, list[T]] = {}
    for one in found:
        groups.setdefault(group(one), []).append(one)
    return groups


# -- for people -----------------------------------------------------------------------------


def print_report(outcome: Outcome, console: Console) -> None:
    """Print groups, then each failure with its lines, then what was not seen and why."""
    report = outcome.report
    console.print(Text(visible(outcome.name), "heading"))
    console.print(Text(visible(report.subject), "faint"))
    console.print()
    for group, findings in grouped(report.findings, lambda it: it.rule.group).items():
        line = Text(f"{group:<16} ")
        for finding in findings:
            line.append(*MARKS[finding.verdict])
        console.print(line)
    for title, failures in (
        ("Failed", outcome.unexpected),
        ("Failed as expected", outcome.known),
    ):
        if failures:
            console.print()
            console.print(Text(title, "heading"))
            for finding in failures:
                rule = finding.rule
                about = f"  {rule.level.value} · {rule.source}"
                console.print(Text.assemble((f"  ✗ {rule.id}", "bad"), (about, "faint")))
                console.print(Text(f"    {visible(rule.says)}"))
                console.print(Text(f"    {on_one_line(finding.why)}", "bad"))
                for excerpt in finding.excerpt:
                    # On one line, however wide, so that it can be copied.
                    console.print(Text(f"      {on_one_line(excerpt)}", "faint"), soft_wrap=True)
    unseen: dict[tuple[Verdict, str], list[str]] = {}
    for finding in report.findings:
        if finding.verdict not in (Verdict.PASS, Verdict.FAIL):
            unseen.setdefault((finding.verdict, finding.why), []).append(finding.rule.id)
    if unseen:
        console.print()
        console.print(Text("Not seen", "heading"))
    for (verdict, why), ids in unseen.items():
        mark, style = MARKS[verdict]
        console.print(Text.assemble((f"  {mark} ", style), f"{verdict.value}: {on_one_line(why)}"))
        console.print(Padding(Text(", ".join(ids), "faint"), (0, 0, 0, 6), expand=False))
    for id in outcome.stale:
        told = visible(f"{id} passes now: take it out of the baseline")
        console.print(Text(told, "bad"))
    for id in outcome.strange:
        console.print(Text(visible(f"{id} of the baseline was not checked"), "busy"))
    console.print()
    style = "good" if outcome.is_good else "bad"
    seconds = f"{counted(len(report.findings), 'check')} in {report.seconds:.1f} s"
    console.print(Text.assemble((f"{seconds}: ", ""), (outcome.sentence, style)))


def print_rules(rules: Iterable[Rule], console: Console) -> None:
    """Print the checks, for `--list`."""
    for rule in rules:
        needs = f", needs {' and '.join(rule.needs)}" if rule.needs else ""
        only = f", of a {rule.only.value}" if rule.only is not None else ""
        about = f"  {rule.level.value}{needs}{only}"
        console.print(Text.assemble((rule.id, "id"), (about, "faint")))
        console.print(Text(f"    {rule.says}"))
        console.print(Text(f"    {rule.source}", "faint"))


class Format(Enum):
    """The format of a report."""

    TEXT = "text"
    JSON = "json"
    MARKDOWN = "markdown"


def rendered(outcome: Outcome, form: Format) -> str:
    """Return the report as text without colours."""
    match form:
        case Format.JSON:
            return visible_json(json_report(outcome)) + "\n"
        case Format.MARKDOWN:
            return visible(markdown_report(outcome))
        case Format.TEXT:
            page = io.StringIO()
            print_report(outcome, plain_console(page))
            return page.getvalue()


# -- for programs ---------------------------------------------------------------------------


def json_report(outcome: Outcome) -> str:
    """Return one object: the agent, the counts, and each check."""
    report = outcome.report
    agent = report.agent
    checks = [
        {
            **json_rule(it.rule),
            "verdict": it.verdict.value,
            "why": it.why,
            "excerpt": list(it.excerpt),
            "seconds": it.seconds,
            "expected": it.rule.id in outcome.expected,
        }
        for it in report.findings
    ]
    found = {
        "command": report.subject,
        "agent": None if agent is None else {"name": agent.name, "version": agent.version},
        "good": outcome.is_good,
        "seconds": round(report.seconds, 3),
        "counts": {verdict.value: len(report.of(verdict)) for verdict in Verdict},
        "stale": outcome.stale,
        "checks": checks,
    }
    return json.dumps(found, ensure_ascii=False, indent=2)


def json_rule(rule: Rule) -> dict[str, object]:
    """Return a check's rule as a JSON object."""
    return {
        "id": rule.id,
        "rule": rule.says,
        "level": rule.level.value,
        "page": rule.source.page,
        "heading": rule.source.heading,
        "needs": list(rule.needs),
        "only": None if rule.only is None else rule.only.value,
    }


def junit_report(outcome: Outcome) -> bytes:
    """Return a test suite with a test case per check; checks that saw nothing are skipped."""
    report = outcome.report
    suite = ElementTree.Element(
        "testsuite",
        name=_xml(f"acphold check: {outcome.name}"),
        tests=str(len(report.findings)),
        failures=str(len(outcome.unexpected) + len(outcome.stale)),
        errors="0",
        skipped=str(len(report.findings) - len(report.of(Verdict.PASS)) - len(outcome.unexpected)),
        time=f"{report.seconds:.3f}",
    )
    for finding in report.findings:
        rule = finding.rule
        case = ElementTree.SubElement(
            suite, "testcase", classname=rule.group, name=rule.id, time=f"{finding.seconds:.3f}"
        )
        is_expected = rule.id in outcome.expected
        if finding.verdict is Verdict.FAIL and not is_expected:
            text = "\n".join((f"{rule.level.value}, {rule.source}", rule.says, *finding.excerpt))
            ElementTree.SubElement(case, "failure", message=_xml(finding.why)).text = _xml(text)
        elif finding.verdict is Verdict.FAIL:
            ElementTree.SubElement(case, "skipped", message=_xml(f"as expected: {finding.why}"))
        elif finding.verdict is not Verdict.PASS:
            why = f"{finding.verdict.value}: {finding.why}"
            ElementTree.SubElement(case, "skipped", message=_xml(why))
        elif is_expected:
            ElementTree.SubElement(case, "failure", message="it passes now: the baseline is stale")
    suites = ElementTree.Element("testsuites")
    suites.append(suite)
    ElementTree.indent(suites)
    found: bytes = ElementTree.tostring(suites, encoding="utf-8", xml_declaration=True)
    return found


def _xml(text: str) -> str:
    """Return `text` without characters that XML 1.0 cannot hold; it allows fewer than Unicode."""
    return "".join(char if char in "\n\t" or char.isprintable() else "\ufffd" for char in text)


def markdown_report(outcome: Outcome) -> str:
    """Return a table of all checks, and the failures with their lines."""
    report = outcome.report
    lines = [
        f"# {_cell(outcome.name)}",
        "",
        f"`{report.subject}`: {outcome.sentence}, in {report.seconds:.1f} s.",
        "",
        "| check | level | verdict | why |",
        "|---|---|---|---|",
    ]
    for finding in report.findings:
        known = " (expected)" if finding in outcome.known else ""
        verdict = f"**{finding.verdict.value}**{known}" if finding.verdict is Verdict.FAIL else ""
        cells = (f"`{finding.rule.id}`", finding.rule.level.value)
        told = (verdict or finding.verdict.value, _cell(finding.why))
        lines.append(f"| {' | '.join((*cells, *told))} |")
    for finding in [*outcome.unexpected, *outcome.known]:
        rule = finding.rule
        says = f"{rule.says} ({rule.level.value}; {rule.source})"
        lines += ["", f"## {rule.id}", "", says, "", _cell(finding.why), ""]
        lines += (f"    {on_one_line(line)}" for line in finding.excerpt)
    return "\n".join(lines) + "\n"


def markdown_rules(rules: Iterable[Rule]) -> str:
    """Return a table for each group, for `--list --markdown`."""
    lines: list[str] = []
    for group, members in grouped(rules, lambda it: it.group).items():
        lines += ["", f"### {group}", "", "| id | level | rule | source |", "|---|---|---|---|"]
        for rule in members:
            needs = f" (needs `{'`, `'.join(rule.needs)}`)" if rule.needs else ""
            only = f" (a {rule.only.value})" if rule.only is not None else ""
            says = _cell(rule.says) + needs + only
            cells = (f"`{rule.id}`", rule.level.value, says, str(rule.source))
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines).strip() + "\n"


def _cell(text: str) -> str:
    return on_one_line(text).replace("|", "\\|")
