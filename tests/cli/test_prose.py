"""Markdown on a terminal, with nothing of the text lost."""

from __future__ import annotations

import io

from rich.console import Console
from rich.theme import Theme

from acphold.cli.look import STYLES
from acphold.cli.prose import Prose


def laid_out(text: str) -> list[str]:
    console = Console(file=io.StringIO(), width=60, theme=Theme(STYLES))
    with console.capture() as capture:
        console.print(Prose(text))
    return [line.rstrip() for line in capture.get().splitlines() if line.strip()]


def test_tags_stay_to_be_read() -> None:
    assert laid_out("Use <div> here\n\n<p>and</p>") == ["Use <div> here", "<p>and</p>"]


def test_a_line_that_ends_stays_ended() -> None:
    assert laid_out("one\ntwo") == ["one", "two"]


def test_a_link_shows_where_it_leads() -> None:
    assert laid_out("[docs](https://example.org)") == ["docs (https://example.org)"]


def test_a_heading_stands_where_its_text_does() -> None:
    assert laid_out("# Title\n\ntext") == ["Title", "text"]
