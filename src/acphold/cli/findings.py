"""The findings of `doctor`, and how they are printed."""

from __future__ import annotations

import sys
from collections.abc import Iterable

from msgspec import Struct
from rich.text import Text

from acphold.cli.terminal_text import console, counted, visible
from acphold.screen.layout import Beside

GUTTER = 5
"""Columns for the marks."""


class Diagnosis(Struct, frozen=True):
    """One thing that was checked; with `advice` it is wrong, and the advice says what to do.

    With `is_past` it was wrong before, or is another program's way: good to know.
    """

    text: str
    advice: str = ""
    is_past: bool = False


class DiagnosisReport:
    """Prints findings, and counts the problems."""

    def __init__(self) -> None:
        self.problems = 0
        self._console = console()

    def section(self, title: str, findings: Iterable[Diagnosis]) -> None:
        """Print all findings about one subject."""
        self._console.print(Text(title, "heading"))
        for finding in findings:
            mark, style = ("!", "busy") if finding.is_past else ("✓", "good")
            if finding.advice:
                mark, style = "✗", "bad"
            text = Text(visible(finding.text), "bad" if finding.advice else "")
            self._console.print(Beside(mark, style, text, gutter=GUTTER))
            if finding.advice:
                self.problems += 1
                advice = Text(visible(finding.advice))
                self._console.print(Beside("→", "faint", advice, gutter=GUTTER))
        self._console.print()

    def wait(self, what: str) -> None:
        """Tell the person what takes a while."""
        words = visible(f"{what}; Ctrl-C leaves")
        if self._console.is_terminal:
            self._console.print(Text(words, "faint"))
        elif sys.stderr.isatty():
            print(words, file=sys.stderr)

    def sum_up(self) -> None:
        """Print the last line."""
        if self.problems:
            self._console.print(Text(f"{counted(self.problems, 'problem')} found", "bad"))
        else:
            self._console.print(Text("All is well", "good"))
