"""The report of `acphold check` in files, for programs and forges: the format is by the ending.

They quote the agent, so each format escapes its text.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from xml.etree import ElementTree

from acp_check import bounds
from acp_check.record import Record, trace
from acp_check.report import CheckOutcome, cut, excerpt, page_report, text_report
from acp_check.usage import CheckUsageError
from acp_check.verdicts import Finding, Level, Rule, Verdict
from acp_check.version import __version__
from acp_wire.errors import ExportError
from acp_wire.markdown_text import code, code_block, plain
from acp_wire.visible_text import on_one_line, quantity, visible, visible_json
from acp_wire.workspace.replacement import replace_file

ReportWriter = Callable[[CheckOutcome], str]

BADGE = "badge.json"
"""The end of the name of a file that gets a badge."""


def report_writer(path: str) -> ReportWriter:
    """Return the writer of a file's format; raises CheckUsageError for an unknown ending."""
    if path.endswith(BADGE):
        return badge_report
    suffix = os.path.splitext(path)[1].lower()
    if suffix not in WRITERS:
        known = ", ".join(filter(None, WRITERS))
        raise CheckUsageError(f"--report {path}: the ending must be one of {known}")
    return WRITERS[suffix]


class ReportFiles:
    """The files of a check: reports, and the trace of the wire.

    Raises CheckUsageError at once for a format that does not exist, or a folder.
    """

    def __init__(self, reports: Sequence[str], trace_file: str | None) -> None:
        self._writers = [(path, report_writer(path)) for path in reports]
        self._trace = trace_file
        for option, path in (*(("--report", it) for it in reports), ("--trace", trace_file)):
            if path is not None and not os.path.isdir(os.path.dirname(path) or "."):
                raise CheckUsageError(f"{option} {path}: there is no such folder")

    def __bool__(self) -> bool:
        return bool(self._writers)

    def write(self, outcome: CheckOutcome) -> None:
        """Write all of them."""
        for path, writer in self._writers:
            write_file("--report", path, [writer(outcome)])
        self.write_trace(outcome.report.records)

    def write_trace(self, records: Sequence[Record]) -> None:
        """Write the trace, also of a check that was interrupted."""
        if self._trace is not None:
            write_file("--trace", self._trace, map(visible_json, trace(records)))


def write_file(option: str, path: str, pieces: Iterable[str]) -> None:
    """Write the file of an option; raises CheckUsageError."""
    try:
        with replace_file(path) as file:
            file.writelines(pieces)
    except ExportError as error:
        raise CheckUsageError(f"{option}: {error}") from None


# -- JSON -----------------------------------------------------------------------------------


def json_report(outcome: CheckOutcome) -> str:
    """Return one object: the agent, the counts, and each check."""
    report = outcome.report
    agent = report.agent
    checks = [
        {
            **json_rule(it.rule),
            "verdict": it.verdict.value,
            "why": it.why,
            "excerpt": excerpt(it.lines),
            "stderr": list(it.stderr),
            "seconds": it.seconds,
            "expected": it.rule.id in outcome.expected,
            "again": outcome.again(it.rule),
        }
        for it in report.findings
    ]
    tiers = {
        tier.level.value: {"passed": tier.passed, "failed": tier.failed, "unseen": tier.unseen}
        for tier in outcome.tiers()
    }
    found = {
        "command": report.subject,
        "agent": None if agent is None else {"name": agent.name, "version": agent.version},
        "good": outcome.is_good,
        "seconds": round(report.seconds, 3),
        "counts": {verdict.value: len(report.of(verdict)) for verdict in Verdict},
        "tiers": tiers,
        "stale": outcome.stale,
        "checks": checks,
    }
    return _json(found)


def _json(found: object) -> str:
    text = visible_json(json.dumps(found, ensure_ascii=False, indent=2))
    # Half a pair of surrogates becomes its escape, which JSON has as well.
    return text.encode("utf-8", "backslashreplace").decode() + "\n"


def json_rule(rule: Rule) -> dict[str, object]:
    """Return a check's rule as a JSON object."""
    return {
        "id": rule.id,
        "rule": rule.says,
        "level": rule.level.value,
        "page": rule.source.page,
        "heading": rule.source.heading,
        "url": rule.source.url,
        "needs": list(rule.needs),
        "only": None if rule.only is None else rule.only.value,
    }


BADGE_COLORS = {Level.MUST: "red", Level.SHOULD: "yellow"}
"""Colour for a failure of a level; other failures leave it green."""


def badge_report(outcome: CheckOutcome) -> str:
    """Return a badge's JSON, as shields.io reads it from an address (its "endpoint")."""
    tiers = [tier for tier in outcome.tiers() if tier.level in BADGE_COLORS]
    parts = [f"{it.passed}/{it.passed + it.failed} {it.level.value}" for it in tiers]
    failed = next((tier.level for tier in tiers if tier.failed), None)
    return _json(
        {
            "schemaVersion": 1,
            "label": "ACP",
            "message": ", ".join(parts) or "nothing checked",
            "color": "brightgreen" if failed is None else BADGE_COLORS[failed],
        }
    )


# -- JUnit ----------------------------------------------------------------------------------


def junit_report(outcome: CheckOutcome) -> str:
    """Return a test suite with a test case per check.

    Only failures that count are failures there, so that it says the same as the exit code.
    """
    report = outcome.report
    suite = ElementTree.Element("testsuite", name=_xml(f"acphold check: {outcome.name}"))
    counts = {"failure": 0, "skipped": 0}
    for finding in report.findings:
        rule = finding.rule
        case = ElementTree.SubElement(
            suite, "testcase", classname=rule.group, name=rule.id, time=f"{finding.seconds:.3f}"
        )
        kind, message, text = "skipped", f"{finding.verdict.value}: {finding.why}", ""
        if finding.verdict is Verdict.FAIL:
            facts = [f"{rule.level.value}, {rule.source}: {rule.says}", rule.source.url]
            facts += excerpt(finding.lines)
            facts += [f"stderr: {line}" for line in finding.stderr]
            if again := outcome.again(rule):
                facts.append(f"run again: {again}")
            text = "\n".join(facts)
            if outcome.counts(finding):
                kind, message = "failure", finding.why
            elif rule.id in outcome.expected:
                message = f"fails as expected: {finding.why}"
            else:
                message = f"fails, but level {rule.level.value} does not count: {finding.why}"
        elif rule.id in outcome.stale:
            kind, message = "failure", "it passes now: remove it from the baseline"
        elif finding.is_pass:
            continue
        counts[kind] += 1
        ElementTree.SubElement(case, kind, message=_xml(message)).text = _xml(text) or None
    suite.attrib |= {
        "tests": str(len(report.findings)),
        "failures": str(counts["failure"]),
        "errors": "0",
        "skipped": str(counts["skipped"]),
        "time": f"{report.seconds:.3f}",
    }
    suites = ElementTree.Element("testsuites")
    suites.append(suite)
    ElementTree.indent(suites)
    text = ElementTree.tostring(suites, encoding="unicode")
    return f'<?xml version="1.0" encoding="utf-8"?>\n{text}\n'


def _xml(text: str) -> str:
    """Return `text` without characters that XML 1.0 cannot hold; it allows fewer than Unicode."""
    return "".join(char if char in "\n\t" or char.isprintable() else "\ufffd" for char in text)


# -- SARIF ----------------------------------------------------------------------------------

SARIF_LEVELS = {Level.MUST: "error", Level.SHOULD: "warning", Level.EXPECTED: "note"}


def sarif_report(outcome: CheckOutcome) -> str:
    """Return a SARIF 2.1.0 log with a result for each failure that is not in the baseline.

    Forges show results in files, and an agent's behaviour is in none: they are put at the first
    line of the agent's program if it is a file below this folder, otherwise of README.md.
    """
    rules = [it.rule for it in outcome.report.findings]
    place = {rule.id: index for index, rule in enumerate(rules)}
    here, file = Path.cwd(), "README.md"
    for path in (here / word for word in outcome.report.subject.split()):
        if path.is_file() and path.is_relative_to(here):
            inside = path.relative_to(here)
            if not any(part.startswith(".") for part in inside.parts):  # an environment's
                file = inside.as_posix()
                break
    location = {"physicalLocation": {"artifactLocation": {"uri": file}, "region": {"startLine": 1}}}
    results = [
        {
            "ruleId": it.rule.id,
            "ruleIndex": place[it.rule.id],
            "level": SARIF_LEVELS[it.rule.level],
            "message": {"text": cut(f"{it.rule.says} {it.why}", bounds.SARIF_CHARACTERS)},
            "locations": [location],
            # One alert for each rule, however its lines differ from run to run.
            "partialFingerprints": {"primaryLocationLineHash": f"{it.rule.id}:1"},
        }
        for it in outcome.unexpected
    ]
    driver = {
        "name": "acphold check",
        "semanticVersion": __version__,
        "rules": [
            {
                "id": rule.id,
                "shortDescription": {"text": rule.says},
                "fullDescription": {"text": rule.says},
                "helpUri": rule.source.url,
                "help": {
                    "text": f"{rule.level.value} of {rule.source}: {rule.source.url}",
                    "markdown": f"{plain(f'{rule.level.value} of {rule.source}')}: "
                    f"[the page]({rule.source.url})",
                },
                "defaultConfiguration": {"level": SARIF_LEVELS[rule.level]},
                "properties": {"tags": ["acp", rule.group]},
            }
            for rule in rules
        ],
    }
    run = {"tool": {"driver": driver}, "columnKind": "unicodeCodePoints", "results": results}
    schema = "https://json.schemastore.org/sarif-2.1.0.json"
    return _json({"$schema": schema, "version": "2.1.0", "runs": [run]})


# -- Markdown -------------------------------------------------------------------------------


def markdown_report(outcome: CheckOutcome) -> str:
    """Return a summary that fits a comment on a pull request: counts, failures, what is unseen."""
    report = outcome.report
    mark = "✅" if outcome.is_good else "❌"
    seconds = f"{quantity(len(report.findings), 'check')} in {report.seconds:.1f} s"
    lines = [
        f"### {mark} {code(on_one_line(outcome.name))}",
        "",
        f"{code(on_one_line(cut(report.subject, 500)))}: {seconds}",
        "",
        "| level | passed | failed | not seen |",
        "|---|---|---|---|",
    ]
    for tier in outcome.tiers():
        counts = (tier.level.value, str(tier.passed), str(tier.failed), str(tier.unseen))
        lines.append(f"| {' | '.join(counts)} |")
    lines += [""] + [f"- {plain(remark)}" for remark in outcome.remarks]
    for finding in outcome.notes():
        why = code(on_one_line(cut(finding.why, bounds.COMMENT_LINE_CHARACTERS)))
        lines.append(f"- {code(finding.rule.id)} passes: {why}")
    end = "\n"
    if unseen := outcome.unseen():
        last = ["", "", "<details><summary>Not seen</summary>", ""]
        for (verdict, why), ids in unseen.items():
            reason = code(on_one_line(cut(why, 200)))
            last.append(f"- {verdict.value}, {reason}: {', '.join(map(code, ids))}")
        end = "\n".join([*last, "", "</details>", ""])
    left = bounds.COMMENT_CHARACTERS - sum(map(len, lines)) - len(end)
    failures = [*outcome.unexpected, *outcome.known]
    for index, finding in enumerate(failures):
        said = _failure(outcome, finding)
        left -= len(said)
        if left < 0:
            rest = ", ".join(code(it.rule.id) for it in failures[index:])
            lines.append(f"\nNot shown, because the comment would be too long: {rest}")
            break
        lines.append(said)
    return "\n".join(lines).rstrip() + end


def _failure(outcome: CheckOutcome, finding: Finding) -> str:
    rule, most = finding.rule, bounds.COMMENT_LINE_CHARACTERS
    known = ", expected" if finding in outcome.known else ""
    lines = [cut(finding.why, most), "", *excerpt(finding.lines, length=most)]
    lines += [f"stderr: {cut(it, most)}" for it in finding.stderr]
    shown = visible("\n".join(lines))
    again = outcome.again(rule)
    return "\n".join(
        [
            "",
            f"<details><summary><code>{rule.id}</code> {rule.level.value}{known}</summary>",
            "",
            f"{plain(rule.says)} ([{plain(str(rule.source))}]({rule.source.url}))",
            "",
            code_block(cut(shown, bounds.COMMENT_FAILURE_CHARACTERS)),
            *(["", "Run again:", "", code_block(on_one_line(cut(again, most)))] if again else []),
            "",
            "</details>",
        ]
    )


WRITERS: dict[str, ReportWriter] = {
    "": text_report,
    ".txt": text_report,
    ".json": json_report,
    ".xml": junit_report,
    ".sarif": sarif_report,
    ".md": markdown_report,
    ".html": page_report,
}
"""The writer of each ending."""
