"""The output of the demo: headings, the conversation as it arrives, and the checked claims."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import msgspec
from rich.console import Group
from rich.live import Live
from rich.text import Text

from acphold.cli.terminal_text import console
from acphold.history.raw_update import text_block
from acphold.screen.flow import Flow
from acphold.screen.layout import MAX_WIDTH, Beside, Passage, body


class DemoStage:
    """Prints to stdout: in colour on a terminal, plain elsewhere."""

    def __init__(self) -> None:
        self.failures: list[str] = []
        self.claims = 0
        self._console = console()
        self._flow = Flow(thoughts="whole")  # nobody can press a key here
        self._live: Live | None = None

    @property
    def held(self) -> int:
        """The number of claims that hold."""
        return self.claims - len(self.failures)

    # -- the frame ------------------------------------------------------------------------

    def head(self, title: str, text: str) -> None:
        """Print the title and the introduction."""
        self._console.print(Text(title, "heading"))
        self._console.print(Text(text, "faint"), width=min(self._console.width, MAX_WIDTH))

    def step(self, number: str, title: str) -> None:
        """Print the heading of a part."""
        heading = Text.assemble((f" {number} " if number else " ∎ ", "reverse"), f" {title}")
        heading.stylize("heading")
        self._console.print("", heading, "", sep="\n")

    def gap(self) -> None:
        """Print a blank line and flush, so that another program may print."""
        self._console.print()
        self._console.file.flush()

    def run(self, command: str) -> None:
        """Print a command as one would type it."""
        self._console.print(Beside("$", "faint", Text(command, "command")))

    def say(self, text: str, style: str = "") -> None:
        """Print a sentence of the narrator."""
        self._console.print(Beside("", "", Text(text, style)))

    def claim(self, text: str, *, holds: bool) -> None:
        """Print a checked claim; `holds` says if it is true."""
        self.claims += 1
        if not holds:
            self.failures.append(text)
        mark, style = ("✓", "good") if holds else ("✗", "bad")
        self._console.print(Beside(mark, style, Text(text)))

    # -- the conversation -----------------------------------------------------------------

    @contextmanager
    def turn(self, words: str) -> Iterator[None]:
        """Show a turn with this prompt: what is heard in the block is shown as it comes."""
        self._flow.prompted(msgspec.json.encode([msgspec.Raw(text_block(words))]))
        try:
            with Live(console=self._console, auto_refresh=False, transient=True) as self._live:
                yield
        finally:
            self._live = None
            self._flow.turn_over()
            self._show()

    def hear(self, update: bytes) -> None:
        """Take an update in; it is shown during a turn."""
        if self._live is not None:
            self._flow.hear(update)
            self._show()

    def permitted(self, name: str) -> None:
        """Show that the agent asked for permission and got this option."""
        self._flow.put(Passage("you", "you", [Text(f"[{name}]")]))
        self._show()

    def _show(self) -> None:
        for shown in self._flow.take():
            if not shown.label and not shown.goes_on:
                self._console.print()  # a new paragraph
            self._console.print(_beside(shown))
        if self._live is not None:
            self._live.update(Group(*map(_beside, self._flow.live())), refresh=True)


def _beside(shown: Passage) -> Beside:
    return Beside(shown.label, shown.style, body(shown))
