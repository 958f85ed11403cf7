"""`acphold doctor`: what is installed, is the journal whole, does the agent answer."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import click
from rich.text import Text

from acphold.cli.checkup import Finding, checked_installation, checked_journal
from acphold.cli.exits import Exit
from acphold.cli.introduction import checked_agent
from acphold.cli.journals import journal_option
from acphold.cli.layout import Beside
from acphold.cli.look import console, counted, visible

GUTTER = 5
"""Columns for the marks."""


@click.command(name="doctor", options_metavar="[OPTIONS]")
@click.option(
    "--start-timeout",
    metavar="SECONDS",
    type=click.FloatRange(min=0, min_open=True),
    default=60.0,
    show_default=True,
    help="For the agent to answer `initialize`.",
)
@journal_option
@click.argument("agent", metavar="[-- CMD...]", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def command(
    ctx: click.Context, /, start_timeout: float, journal: str, agent: tuple[str, ...]
) -> None:
    """Check this installation, the journal and an agent.

    With `-- CMD` the agent is started as `acphold wrap -- CMD` would start it, and asked what
    it can do. The exit code is 1 when something is wrong; each problem says what to do.
    """
    report = Report()
    report.section("Installation", checked_installation())
    report.section("Journal", checked_journal(journal))
    if agent:
        report.section("Agent", asyncio.run(checked_agent(agent, start_timeout)))
    report.sum_up()
    if report.problems:
        ctx.exit(Exit.ERROR)


class Report:
    """Prints findings, and counts what is wrong."""

    def __init__(self) -> None:
        self.problems = 0
        self._console = console()

    def section(self, title: str, findings: Iterable[Finding]) -> None:
        """All that was found about one thing."""
        self._console.print(Text(title, "heading"))
        for finding in findings:
            self._put("✗" if finding.advice else "✓", finding)
        self._console.print()

    def _put(self, mark: str, finding: Finding) -> None:
        style = "bad" if finding.advice else "good"
        text = Text(visible(finding.text), "bad" if finding.advice else "")
        self._console.print(Beside(mark, style, text, gutter=GUTTER))
        if finding.advice:
            self.problems += 1
            self._console.print(Beside("→", "faint", Text(visible(finding.advice)), gutter=GUTTER))

    def sum_up(self) -> None:
        """The last line."""
        if self.problems:
            self._console.print(Text(f"{counted(self.problems, 'problem')} found", "bad"))
        else:
            self._console.print(Text("All is well", "good"))
