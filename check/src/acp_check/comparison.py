"""Several reports on one page: programs as columns, rules as rows.

Markdown has one row for all rules in which the programs are alike, those that some break first;
HTML has a row with its sentence for each rule. The reports are those of `--json`. They quote
programs, so each format escapes their text.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path

import msgspec
from msgspec import Struct

from acp_check.report import PAGE_MARKS, by_group, page_head
from acp_check.usage import CheckUsageError
from acp_check.verdicts import RuleSource, Verdict
from acp_wire.markdown_text import code, plain
from acp_wire.visible_text import on_one_line


class ReportedCheck(Struct, frozen=True):
    """A rule in a report, and its verdict."""

    id: str
    rule: str
    level: str
    page: str
    heading: str
    verdict: str
    why: str = ""

    @property
    def source(self) -> RuleSource:
        return RuleSource(self.page, self.heading)

    @property
    def group(self) -> str:
        return self.id.partition(".")[0]


class ReportedAgent(Struct, frozen=True):
    """The name that a program has for itself."""

    name: str
    version: str


class ReadReport(Struct, frozen=True):
    """A report of one program."""

    command: str
    checks: tuple[ReportedCheck, ...]
    agent: ReportedAgent | None = None

    @property
    def name(self) -> str:
        """The program's own name and version, otherwise the file that its command ends with."""
        named = self.agent and f"{self.agent.name} {self.agent.version}".strip()
        return on_one_line(named or self.command.rpartition("/")[2])

    @property
    def verdicts(self) -> dict[str, ReportedCheck]:
        return {check.id: check for check in self.checks}


def read_report(path: str) -> ReadReport:
    """Return the report in a file; raises CheckUsageError."""
    try:
        return msgspec.json.decode(Path(path).read_bytes(), type=ReadReport)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
        why = f"not a report of --json or --report FILE.json ({error})"
        raise CheckUsageError(f"--compare {path}: {why}") from None


def _rows(reports: Sequence[ReadReport]) -> dict[str, list[ReportedCheck]]:
    """Return each rule once, in the order of the first report that has it, by group."""
    rules: dict[str, ReportedCheck] = {}
    for report in reports:
        for check in report.checks:
            rules.setdefault(check.id, check)
    # What no program was seen to keep or break says nothing about any of them.
    told = (Verdict.PASS.value, Verdict.FAIL.value)
    seen = {check.id for report in reports for check in report.checks if check.verdict in told}
    return by_group((rule for id, rule in rules.items() if id in seen), lambda it: it.group)


def _mark(check: ReportedCheck | None) -> tuple[str, str]:
    """Return the class and the mark of a cell; that of a rule that was not seen is empty."""
    if check is None:
        return "", ""
    known = {verdict.value: mark for verdict, mark in PAGE_MARKS.items()}
    return known.get(check.verdict, ("", "-"))


def _counts(report: ReadReport) -> str:
    verdicts = [check.verdict for check in report.checks]
    passed, failed = (verdicts.count(it.value) for it in (Verdict.PASS, Verdict.FAIL))
    return f"{passed} ✓ {failed} ✗"


def markdown_comparison(reports: Sequence[ReadReport]) -> str:
    """Return the page as Markdown."""
    lines = [
        "||" + "|".join(plain(report.name) for report in reports) + "|",
        "|---|" + "---|" * len(reports),
        "|all|" + "|".join(map(_counts, reports)) + "|",
    ]
    verdicts = [report.verdicts for report in reports]
    alike: dict[tuple[str, ...], list[str]] = {}
    for rules in _rows(reports).values():
        for rule in rules:
            marks = tuple(_mark(found.get(rule.id))[1] for found in verdicts)
            alike.setdefault(marks, []).append(f"[{code(rule.id)}]({rule.source.url})")
    broken = PAGE_MARKS[Verdict.FAIL][1]
    for marks, links in sorted(alike.items(), key=lambda row: broken not in row[0]):
        lines.append(f"|{', '.join(links)}|{'|'.join(marks)}|")
    return "".join(f"{line}\n" for line in lines)


def page_comparison(reports: Sequence[ReadReport]) -> str:
    """Return the page as HTML: it runs no script and loads nothing."""
    page = [
        page_head(f"acp-check: {len(reports)} programs"),
        "<main>\n<table>\n<thead><tr><th>rule<th>level",
        *(f'<th title="{escape(it.command)}">{escape(it.name)}' for it in reports),
        "</tr></thead>\n<tbody>\n<tr><th>all<td>",
        *(f"<td>{_counts(report)}" for report in reports),
        "</tr>\n",
    ]
    verdicts = [report.verdicts for report in reports]
    for group, rules in _rows(reports).items():
        page.append(f'<tr><th colspan="{len(reports) + 2}">{escape(group)}</tr>\n')
        for rule in rules:
            source = f'<a href="{escape(rule.source.url)}" rel="noreferrer">'
            source += f"{escape(str(rule.source))}</a>"
            page.append(f'<tr id="{escape(rule.id)}"><td><code>{escape(rule.id)}</code> ')
            page.append(f"{escape(rule.rule)} {source}<td>{escape(rule.level)}")
            for found in verdicts:
                check = found.get(rule.id)
                kind, mark = _mark(check)
                why = "" if check is None else escape(on_one_line(check.why or check.verdict))
                page.append(f'<td class="{kind}" title="{why}">{mark}')
            page.append("</tr>\n")
    page.append("</tbody>\n</table>\n</main>\n</body>\n</html>\n")
    return "".join(page)
