"""Texts longer than the screen open in the person's own pager, whichever that is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.cli.command_line import ACPHOLD, CommandLine, several
from tests.cli.conversation import remember
from tests.cli.test_terminal_text import obeyed
from tests.raw_entries import prompt, said
from tests.screen_terminal import terminal

pytestmark = pytest.mark.slow

LONG = "\n\n".join(f"Line {number}." for number in range(200))


@pytest.fixture
def acphold(journal: Path) -> CommandLine:
    """With a conversation of many screens, and a short one."""
    remember(journal, "aaaaaaaa-1", prompt("Count"), said(LONG), title="Counting", cwd="/a")
    remember(journal, "bbbbbbbb-2", prompt("Hi"), said("Hello \x1b[2J\x1b]0;x\x07."), cwd="/b")
    return CommandLine(journal)


def environment(acphold: CommandLine, **changed: str) -> dict[str, str]:
    kept = {k: v for k, v in acphold.environment.items() if k not in ("PAGER", "LESS")}
    return {**kept, **changed}


@pytest.mark.parametrize("less", [{}, {"LESS": "-i"}])
def test_a_long_transcript_is_read_in_less_page_by_page_and_in_colour(
    acphold: CommandLine, less: dict[str, str]
) -> None:
    with terminal([*ACPHOLD, "show", "aaaa"], environment(acphold, **less)) as shown:
        assert "Line 1." in shown.until("Counting", "Line 1.", "\n:", but="Line 199.")
        assert "ESC" not in shown.text
        shown.type("G", "Line 199.")
        assert shown.ended("q") == 0


def test_a_pager_that_is_left_early_is_no_error(acphold: CommandLine) -> None:
    with terminal([*ACPHOLD, "show", "aaaa"], environment(acphold)) as shown:
        shown.until("Line 1.")
        assert shown.ended("q") == 0
    gone = environment(acphold, PAGER="true")
    with terminal([*ACPHOLD, "show", "aaaa"], gone) as shown:
        assert shown.ended() == 0
        assert "Traceback" not in shown.text


def test_what_fits_on_the_screen_is_not_turned_over(acphold: CommandLine) -> None:
    with terminal([*ACPHOLD, "list"], environment(acphold)) as shown:
        assert shown.ended() == 0
        assert "Counting" in shown.text


def test_without_a_pager_it_stands_on_the_terminal(acphold: CommandLine) -> None:
    show = ("show", "aaaa")
    tries = [
        *((show, {"PAGER": it}) for it in ("no-such-pager --really", "", "cat", "'", "/dev/null")),
        ((*show, "--no-pager"), {"PAGER": "no"}),
        (show, {"PAGER": "no", "TERM": "dumb"}),
    ]
    with terminal(several(*tries), environment(acphold)) as shown:
        assert shown.ended() == 0
        *told, _ = shown.raw.split(b"exit code 0")
        assert [it for it, out in zip(tries, told, strict=True) if b"Line 199." not in out] == []


def test_each_of_the_commands_that_are_read_goes_through_the_pager(
    acphold: CommandLine, tmp_path: Path
) -> None:
    pager = tmp_path / "pager"
    pager.write_text('#!/bin/sh\nexec cat > "$KEPT"\n')
    pager.chmod(0o755)
    commands = [("list",), ("show", "bbbb"), ("search", "hello"), ("diff", "bbbb"), ("usage",)]
    tries = [(words, {"KEPT": str(tmp_path / words[0])}) for words in commands]
    with terminal(several(*tries), environment(acphold, PAGER=f"{pager} -S")) as shown:
        assert shown.ended() == 0
        assert shown.text.splitlines() == ["exit code 0"] * len(tries)
    for name, *_ in commands:
        told = (tmp_path / name).read_text()
        assert told, name
        assert not obeyed(re.sub(r"\x1b\[[0-9;]*m", "", told)), name


def test_in_a_pipe_there_is_no_pager(acphold: CommandLine) -> None:
    done = acphold.run_as_process("show", "aaaa", PAGER="false")
    assert done.code == 0
    assert "Line 199." in done.out


def test_an_error_is_no_page(acphold: CommandLine) -> None:
    with terminal([*ACPHOLD, "show", "zzzz"], environment(acphold, PAGER="false")) as shown:
        assert shown.ended() == 3
        assert "zzzz" in shown.text


def test_ctrl_c_leaves_the_pager_open_until_the_person_has_read(acphold: CommandLine) -> None:
    with terminal([*ACPHOLD, "show", "aaaa"], environment(acphold)) as shown:
        shown.until("Line 1.", "\n:")
        shown.type("\x03")
        shown.type("\x03")
        shown.type("q")
        shown.ended()
        assert "Traceback" not in shown.text
