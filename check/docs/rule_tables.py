"""Makes docs/rules.md from the rules of `acphold check`: `make docs`. A test compares the two."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from pathlib import Path

from acp_check.report import grouped
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

SENTENCES_HEAD = """
## Sentences

Each sentence of the pages with MUST or SHOULD, in order below its heading, and the rules that fail
an agent or a client that does not keep it. {ruled} of {all} have rules; the others say why no
behaviour on the wire shows them. The pages on elicitation and on the schema are not here:
`elicitation.*` and `schema.*` are about them.
"""


def markdown_rules(rules: Iterable[Rule]) -> str:
    """Return a list for each group."""
    lines: list[str] = []
    for group, members in grouped(rules, lambda it: it.group).items():
        lines += ["", f"### {group}", ""]
        for rule in members:
            needs = f" (needs `{'`, `'.join(rule.needs)}`)" if rule.needs else ""
            only = f" (a {rule.only.value})" if rule.only is not None else ""
            says = on_one_line(rule.says) + needs + only
            lines.append(f"- [`{rule.id}`]({rule.source.url}) {rule.level.value}: {says}")
    return "\n".join(lines).strip() + "\n"


def sentences() -> str:
    """The list of sentences, by page and heading."""
    ruled = sum(bool(it.rules) for it in SENTENCES)
    lines = [SENTENCES_HEAD.format(ruled=ruled, all=len(SENTENCES))]
    for page_name, on_page in groupby(SENTENCES, lambda it: it.page):
        lines.append(f"\n### {page_name}\n\n")
        for heading, members in groupby(on_page, lambda it: it.heading):
            told = (
                f"{it.words} {', '.join(f'`{id}`' for id in it.rules) or it.why}" for it in members
            )
            lines.append(f"- {heading or page_name}: {'; '.join(told)}\n")
    return "".join(lines)


def page() -> str:
    """All of it."""
    agents, clients = (
        markdown_rules(check.rule for check in checks) for checks in (CHECKS, CLIENT_CHECKS)
    )
    return f"{HEAD}\n{agents}{CLIENTS}\n{clients}{sentences()}"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
