"""Makes docs/rules.md from the rules of `acphold check`: `make docs`. A test compares the two."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from acp_check.report import by_group
from acp_check.rules import CHECKS
from acp_check.rules.clients import CHECKS as CLIENT_CHECKS
from acp_check.verdicts import Rule
from acphold.faces.cli.terminal_text import on_one_line
from docs.sentences import SENTENCES

PAGE = Path(__file__).with_name("rules.md")

HEAD = """\
# Rules

The rules of [`acphold check`](conformance.md), which says what MUST, SHOULD and *expected* mean.
Each id links to its source in the specification of ACP version 1. Parentheses name the capability,
or kind of agent, that a rule is for.

## Agents
"""

CLIENTS = """
## Clients

For `acphold check --client`.
"""

ABOUT_SENTENCES = """
## Sentences

Of the {all} sentences with MUST or SHOULD on the protocol's pages, {ruled} have rules here.
[sentences.py](sentences.py) names them, and says why the wire does not show the others.
"""


def markdown_rules(rules: Iterable[Rule]) -> str:
    """Return a list for each group; what all of its rules need stands above it."""
    lines: list[str] = []
    for group, members in by_group(rules, lambda it: it.group).items():
        common = set.intersection(*(_conditions(rule) for rule in members))
        lines += ["", f"### {group}"]
        if common:
            lines += ["", f"All for {' and '.join(sorted(common))}."]
        for level, rules_of_it in by_group(members, lambda it: it.level.value).items():
            lines += ["", f"{level}:", "", *(_line(rule, common) for rule in rules_of_it)]
    return "\n".join(lines).strip() + "\n"


def _conditions(rule: Rule) -> set[str]:
    """What the rule is for: capabilities, and a kind of subject."""
    only = set() if rule.only is None else {f"a {rule.only.value}"}
    return {f"`{need}`" for need in rule.needs} | only


def _line(rule: Rule, common: set[str]) -> str:
    left = sorted(_conditions(rule) - common)
    conditions = f" ({', '.join(left)})" if left else ""
    return f"- [`{rule.id}`]({rule.source.url}): {on_one_line(rule.says)}{conditions}"


def sentences() -> str:
    """Where the rules of each sentence are."""
    ruled = sum(bool(it.rules) for it in SENTENCES)
    return ABOUT_SENTENCES.format(ruled=ruled, all=len(SENTENCES))


def page() -> str:
    """All of it."""
    agents, clients = (
        markdown_rules(check.rule for check in checks) for checks in (CHECKS, CLIENT_CHECKS)
    )
    return f"{HEAD}\n{agents}{CLIENTS}\n{clients}{sentences()}"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
