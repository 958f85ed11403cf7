"""Makes docs/rules.md from the rules of `acphold check`: `make docs`. A test compares the two."""

from __future__ import annotations

from pathlib import Path

from acphold.cli.check_files import markdown_rules
from acphold.conformance.rules import CHECKS
from acphold.conformance.rules.clients import CHECKS as CLIENT_CHECKS
from docs.sentences import SENTENCES

PAGE = Path(__file__).with_name("rules.md")

HEAD = """\
# Rules

What [`acphold check`](conformance.md) looks at; `acphold check --list` prints it as well. MUST and
SHOULD are the words of the protocol; *expected* is what people rely on and no page says. The
sources are pages of the specification of ACP version 1, and the headings on them.

## Agents
"""

CLIENTS = """
## Clients

For `acphold check --client`.
"""

SENTENCES_HEAD = """
## Sentences

Each sentence of the pages with MUST or SHOULD, by its number below the heading, and the rules that
fail an agent or a client that does not keep it. {ruled} of {all} have rules; the others say why no
behaviour on the wire shows them. The pages on elicitation and on the schema are not in this table:
`elicitation.*` and `schema.*` are about them.

| page | heading | sentence | word | rules |
|---|---|---|---|---|
"""


def sentences() -> str:
    """The table of sentences."""
    ruled = sum(bool(it.rules) for it in SENTENCES)
    lines = [SENTENCES_HEAD.format(ruled=ruled, all=len(SENTENCES))]
    for it in SENTENCES:
        rules = ", ".join(f"`{id}`" for id in it.rules) or it.why
        lines.append(f"| {it.page} | {it.heading} | {it.number} | {it.words} | {rules} |\n")
    return "".join(lines)


def page() -> str:
    """All of it."""
    agents, clients = (
        markdown_rules(check.rule for check in checks) for checks in (CHECKS, CLIENT_CHECKS)
    )
    return f"{HEAD}\n{agents}{CLIENTS}\n{clients}{sentences()}"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
