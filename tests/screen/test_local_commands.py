"""A line at the screen is a prompt, a command of ours, or one for the shell."""

from __future__ import annotations

import pytest

from acphold.faces.screen.layout import GUTTER
from acphold.faces.screen.typed import (
    COMMANDS,
    Local,
    TypedCommand,
    TypedPrompt,
    help_page,
    interpret,
)


@pytest.mark.parametrize(
    ("line", "meaning"),
    [
        ("exit", Local("quit")),
        (" Quit ", Local("quit")),
        ("/quit", Local("quit")),
        ("?", Local("help")),
        ("/mode  plan first ", Local("mode", "plan first")),
        ("/export a file.md", Local("export", "a file.md")),
        ("!git status", TypedCommand("git status")),
        ("//mode plan", TypedPrompt("/mode plan")),
        ("/review this", TypedPrompt("/review this")),
        ("/etc/passwd is a file", TypedPrompt("/etc/passwd is a file")),
        ("exit the loop", TypedPrompt("exit the loop")),
        ("!", TypedPrompt("!")),
        ("what is /help?", TypedPrompt("what is /help?")),
    ],
)
def test_what_a_line_means(line: str, meaning: object) -> None:
    assert interpret(line) == meaning


def test_the_help_names_every_command_of_ours() -> None:
    told = "\n".join(line.plain for line in help_page().lines)
    assert [name for name in COMMANDS if f"/{name}" not in told] == []


def test_the_help_has_each_command_and_key_on_one_line_of_a_terminal() -> None:
    assert max(line.cell_len for line in help_page().lines) <= 80 - GUTTER
