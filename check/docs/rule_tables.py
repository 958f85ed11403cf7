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

The rules of [`acphold check`](conformance.md), as `acphold check --list` prints them. Each id leads
to its source, a heading in the specification of ACP version 1. MUST and SHOULD are the words of the
protocol; people rely on what is *expected*, although no page says so.

## Agents
"""

CLIENTS = """
## Clients

For `acphold check --client`.
"""

ABOUT_SENTENCES = """
## Sentences

{ruled} of the {all} sentences with MUST or SHOULD on the protocol's pages have rules here;
[sentences.py](sentences.py) names them, and says of the others why no behaviour on the wire shows
them. `elicitation.*` and `schema.*` are about the pages on elicitation and on the schema.
"""


def markdown_rules(rules: Iterable[Rule]) -> str:
    """Return a list for each group."""
    lines: list[str] = []
    for group, members in by_group(rules, lambda it: it.group).items():
        lines += ["", f"### {group}"]
        for level, rules_of_it in by_group(members, lambda it: it.level.value).items():
            lines += ["", f"{level}:", "", *map(_line, rules_of_it)]
    return "\n".join(lines).strip() + "\n"


def _line(rule: Rule) -> str:
    needs = f" (needs `{'`, `'.join(rule.needs)}`)" if rule.needs else ""
    only = f" (a {rule.only.value})" if rule.only is not None else ""
    return f"- [`{rule.id}`]({rule.source.url}): {on_one_line(rule.says)}{needs}{only}"


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
