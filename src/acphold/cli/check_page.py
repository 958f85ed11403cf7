"""The report of `acphold check` as a page of HTML in one file, with the wire beside each failure.

All of it may be written by a hostile agent: everything is escaped, and the page runs no script and
loads nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path

from msgspec import Struct

from acphold.cli.check_report import CheckOutcome, cut, grouped
from acphold.cli.terminal_text import counted, on_one_line, visible
from acphold.conformance.inspection import record_of
from acphold.conformance.record import WireLine
from acphold.conformance.verdicts import Finding, Verdict

POLICY = "default-src 'none'; style-src 'unsafe-inline'"

MARKS = {
    Verdict.PASS: ("pass", "✓"),
    Verdict.FAIL: ("fail", "✗"),
    Verdict.BLOCKED: ("blocked", "⚿"),
}
"""Class and mark of verdicts; all others were not seen."""

AROUND = 6
"""Lines of the wire before and behind each that shows a failure."""

WIRE_LINES = 600
"""Lines of the wire beside one failure."""

WIRE_CHARS = 20_000
"""Characters of a line that shows a failure."""

CONTEXT_CHARS = 240
"""Characters of a line around it."""

PAGE_CHARS = 12 << 20
"""Characters of the wire on a page; after these, lines are cut short."""


def page_report(outcome: CheckOutcome) -> str:
    """Return the page."""
    return "".join(_CheckPage(outcome).pieces())


class _CheckPage:
    def __init__(self, outcome: CheckOutcome) -> None:
        self._outcome = outcome
        self._left = PAGE_CHARS

    def pieces(self) -> Iterator[str]:
        outcome, report = self._outcome, self._outcome.report
        style = Path(__file__).with_suffix(".css").read_text(encoding="utf-8")
        name = escape(on_one_line(outcome.name))
        yield '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        yield f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
        yield '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        yield f"<title>acphold check: {name}</title>\n<style>{style}</style>\n</head>\n<body>\n"
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
        for finding in outcome.noted():
            yield f"<p>{escape(f'{finding.rule.id} passes: {on_one_line(finding.why)}')}</p>\n"
        yield "</header>\n<main>\n"
        for title, failures in (
            ("Failed", outcome.unexpected),
            ("Failed as expected", outcome.known),
        ):
            if failures:
                yield f"<h2>{title}</h2>\n"
            for finding in failures:
                yield from self._failure(finding)
        yield from self._unseen()
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
            lines = "\n".join(escape(visible(cut(line, WIRE_CHARS))) for line in finding.stderr)
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
                    yield f'<p class="gap">{counted(part, "line")} left out</p>\n'
                    continue
                shown += 1
                if shown > WIRE_LINES:
                    yield '<p class="gap">more lines follow: --trace FILE has all</p>\n'
                    return
                yield self._line(stretch, part)

    def _line(self, stretch: _WireStretch, line: WireLine) -> str:
        is_shown = line.number in stretch.accused
        most = WIRE_CHARS if is_shown and self._left > 0 else CONTEXT_CHARS
        text = visible(cut(line.text, most))
        self._left -= len(text)
        side = "to" if line.by == "client" else "from"
        kind = f"{side} shown" if is_shown else side
        words = "to the agent" if side == "to" else "from the agent"
        # The arrow is text, so that a copy has it; readers of screens get words.
        return (
            f'<p class="{kind}"><time>{line.at - stretch.began:.3f}</time>'
            f'<b aria-label="{words}">{line.arrow}</b> <code>{escape(text)}</code></p>\n'
        )

    def _unseen(self) -> Iterator[str]:
        unseen = self._outcome.unseen()
        if not unseen:
            return
        count = sum(map(len, unseen.values()))
        yield f"<details>\n<summary>Not seen: {counted(count, 'rule')}</summary>\n<dl>\n"
        for (verdict, why), ids in unseen.items():
            reason = f"{verdict.value}: {on_one_line(why)}"
            yield f"<dt>{escape(reason)}\n<dd>{escape(', '.join(ids))}\n"
        yield "</dl>\n</details>\n"

    def _all(self) -> Iterator[str]:
        findings = self._outcome.report.findings
        yield f"<details>\n<summary>All {counted(len(findings), 'rule')}</summary>\n"
        for group, members in grouped(findings, lambda it: it.rule.group).items():
            yield f"<h3>{escape(group)}</h3>\n<ul>\n"
            for finding in members:
                rule = finding.rule
                kind, mark = MARKS.get(finding.verdict, ("", "-"))
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
                for number in range(accused - AROUND, accused + AROUND + 1)
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
