"""What the demo prints: headings, the conversation as it comes in, and the claims it checks."""

from __future__ import annotations

import re

from rich.text import Text

from acphold.cli.demo_editor import open_tools
from acphold.cli.terminal_text import console, visible
from acphold.history import Entry
from acphold.history.fold import EMPTY, SessionState, fold
from acphold.history.timeline import Message, TurnEnd
from acphold.reports.transcript import turn_scenes
from acphold.screen.layout import GUTTER, LABELS, MAX_WIDTH, Beside, Passage, body, passage


class Stage:
    """Prints to stdout: in colour on a terminal, plain elsewhere."""

    def __init__(self) -> None:
        self.failures: list[str] = []
        self.claims = 0
        self._console = console()
        self._width = min(self._console.width, MAX_WIDTH) - GUTTER
        self._speaking: str | None = None
        self._column = 0
        self._breaks = 0
        self._state: SessionState = EMPTY

    @property
    def held(self) -> int:
        """How many claims hold."""
        return self.claims - len(self.failures)

    # -- the frame ------------------------------------------------------------------------

    def head(self, title: str, text: str) -> None:
        """What it is about."""
        self._console.print(Text(title, "heading"))
        self._console.print(Text(text, "faint"), width=min(self._console.width, MAX_WIDTH))

    def step(self, number: str, title: str) -> None:
        """A part of the story begins."""
        self.hush()
        self._console.print()
        heading = Text.assemble((f" {number} " if number else " ∎ ", "reverse"), f" {title}")
        heading.stylize("heading")
        self._console.print(heading)
        self._console.print()

    def gap(self) -> None:
        """A blank line; all there is has been written, so that somebody else may print."""
        self._console.print()
        self._console.file.flush()

    def run(self, command: str) -> None:
        """A command, as one would type it."""
        self._beside("$", "faint", Text(command, "command"))

    def say(self, text: str, style: str = "") -> None:
        """The narrator speaks."""
        self._beside("", "", Text(text, style))

    def claim(self, text: str, *, holds: bool) -> None:
        """Something was checked; `holds` says whether it is so."""
        self.claims += 1
        if not holds:
            self.failures.append(text)
        self._beside("✓" if holds else "✗", "good" if holds else "bad", Text(text))

    def _beside(self, label: str, style: str, text: Text) -> None:
        self.hush()
        self._console.print(Beside(label, style, text))

    # -- the conversation -----------------------------------------------------------------

    def hear(self, entry: Entry) -> None:
        """Show a prompt or an update as it comes in."""
        before, self._state = self._state, fold([entry], self._state)
        item = self._state.timeline[-1] if self._state.timeline else None
        if self._state.timeline == before.timeline:
            self._put_beside(entry)
        elif isinstance(item, Message) and item.role != "user":
            self._stream(item, before)
        else:
            self._put_changed(before)

    def permitted(self, name: str) -> None:
        """Show what was answered when the agent asked."""
        self._beside("you", "you", Text(f"[{name}]"))

    def _put_beside(self, entry: Entry) -> None:
        """Plans and notices; what changes only settings is not shown."""
        for scene in turn_scenes([entry]):
            self._put(passage(scene))

    def _put_changed(self, before: SessionState) -> None:
        for place, item in enumerate(self._state.timeline):
            old = before.timeline[place] if place < len(before.timeline) else None
            # Between its beginning and its end a tool call need not be shown again.
            if isinstance(item, TurnEnd) or item == old:
                continue
            if old is None or not open_tools([item]):
                self._put(passage(item))

    def _put(self, shown: Passage) -> None:
        self.hush()
        self._console.print(Beside(shown.label, shown.style, body(shown)))

    def _stream(self, message: Message, before: SessionState) -> None:
        """Print what is new of a message, word by word, wrapped."""
        old = before.timeline[-1] if len(before.timeline) == len(self._state.timeline) else None
        text = message.text[len(old.text) if isinstance(old, Message) else 0 :]
        label = LABELS[message.role]
        if self._speaking != message.role or old is None:
            self.hush()
            self._speaking = message.role
            self._print(f"{label:>{GUTTER - 2}}", label)
            self._print("  ")
        self._write(visible(text), "thought" if message.role == "thought" else "")

    def _write(self, text: str, style: str) -> None:
        for word in re.findall(r"\n|[^\s]+[^\S\n]*|[^\S\n]+", text):
            if word == "\n":
                self._breaks += 1
                continue
            if not self._breaks and self._column + len(word.rstrip()) > self._width:
                self._breaks = 1
            if self._breaks:  # written when something follows: a text's last one is not wanted
                self._print("\n" * self._breaks + " " * GUTTER)
                self._column = self._breaks = 0
            fits = self._column + len(word) <= self._width
            self._print(word if fits else word.rstrip(), style)
            self._column += len(word)

    def hush(self) -> None:
        """End the line of whoever was speaking."""
        if self._speaking is not None:
            self._print("\n")
        self._speaking = None
        self._column = self._breaks = 0

    def _print(self, text: str, style: str = "") -> None:
        self._console.print(Text(text, style), end="", soft_wrap=True)
        self._console.file.flush()
