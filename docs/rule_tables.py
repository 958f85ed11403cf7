"""Makes docs/rules.md from the rules of `acphold check`: `make docs`. A test compares the two."""

from __future__ import annotations

from pathlib import Path

from acphold.cli.check_report import markdown_rules
from acphold.conformance.rules import CHECKS
from acphold.conformance.rules.clients import CHECKS as CLIENT_CHECKS

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


def page() -> str:
    """All of it."""
    agents, clients = (
        markdown_rules(check.rule for check in checks) for checks in (CHECKS, CLIENT_CHECKS)
    )
    return f"{HEAD}\n{agents}{CLIENTS}\n{clients}"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
