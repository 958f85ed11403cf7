"""`acphold wrap` where click sees it: help, and a missing `--`."""

from __future__ import annotations

from acphold.cli.options import WRAP_OPTIONS
from tests.cli.command_line import CommandLine


def test_its_help_shows_every_option(acphold: CommandLine) -> None:
    for arguments in (("wrap", "--help"), ("wrap", "--help", "--", "agent")):
        done = acphold.run(*arguments)
        assert done.code == 0
        assert all(f"--{option.name} {option.metavar}" in done.out for option in WRAP_OPTIONS)


def test_a_command_without_dashes_before_it_is_a_usage_error_that_says_how(
    acphold: CommandLine,
) -> None:
    done = acphold.run("wrap", "gemini", "--acp")
    assert (done.code, done.out) == (2, "")
    assert "acphold wrap -- gemini --acp" in done.err


def test_no_command_at_all_is_a_usage_error(acphold: CommandLine) -> None:
    assert acphold.run("wrap").code == 2
    assert acphold.run("wrap", "--").code == 2
