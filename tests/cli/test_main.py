"""The group of all commands: help, errors, exit codes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import click
import pytest

from acphold import __version__
from acphold.cli.exits import MEANINGS, Exit, exit_code
from acphold.cli.main import COMMANDS, cli
from acphold.errors import AcpholdError, AgentStartError, UnknownSessionError
from tests.cli.command_line import CommandLine


def command(name: str) -> click.Command:
    found = cli.get_command(click.Context(cli), name)
    assert found is not None
    return found


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_and_every_option_has_help(name: str) -> None:
    found = command(name)
    assert found.name == name
    assert found.help
    options = [param for param in found.params if isinstance(param, click.Option)]
    assert [option.name for option in options if not option.help] == []


@pytest.mark.parametrize("name", COMMANDS)
def test_the_line_in_the_list_of_commands_begins_the_help_of_the_command(name: str) -> None:
    help_text = command(name).help or ""
    summary = COMMANDS[name].summary
    assert help_text.startswith(summary.removesuffix("."))


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_that_uses_a_journal_takes_its_url(name: str) -> None:
    options = {param.name for param in command(name).params}
    assert "journal" in options or name in ("demo", "mcp-bridge")


def test_the_help_names_every_command_and_every_exit_code(acphold: CommandLine) -> None:
    done = acphold.run("--help")
    assert done.code == 0
    for name in COMMANDS:
        assert f"\n  {name} " in done.out
    for code, meaning in MEANINGS.items():
        assert f"{code.value}  {meaning}" in done.out


def test_every_exit_code_has_a_meaning() -> None:
    assert set(MEANINGS) == set(Exit)


def test_help_and_version_import_no_command() -> None:
    code = (
        "import sys; from acphold.cli.main import cli\n"
        "cli(['--help'], standalone_mode=False)\n"
        "heavy = {'rich', 'asyncio', 'msgspec', 'sqlite3', 'acphold.cli.list'}\n"
        "sys.exit(' '.join(heavy & set(sys.modules)) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_version_is_printed(acphold: CommandLine) -> None:
    assert acphold.run("--version").out == f"acphold {__version__}\n"


def test_an_unknown_command_is_a_usage_error(acphold: CommandLine) -> None:
    done = acphold.run("lst")
    assert (done.code, "No such command 'lst'" in done.err) == (2, True)


@pytest.mark.parametrize("name", ["list", "show", "delete"])
def test_a_file_that_is_no_journal_is_one_line_on_stderr(
    acphold: CommandLine, journal: Path, name: str
) -> None:
    journal.write_text("shopping list")
    arguments = {"list": (), "show": ("x",), "delete": ("x", "--yes")}[name]
    done = acphold.run(name, *arguments)
    assert (done.code, done.out) == (4, "")
    assert done.err.startswith(f"acphold: {journal} is not a acphold journal")
    assert done.err.count("\n") == 1


def test_the_option_names_the_journal_before_the_variable_does(
    acphold: CommandLine, tmp_path: Path
) -> None:
    done = acphold.run("show", "x", "--journal", str(tmp_path / "other.db"))
    assert (done.code, "other.db" in done.err) == (4, True)


def test_errors_have_the_exit_code_of_their_kind() -> None:
    assert exit_code(UnknownSessionError("x")) == Exit.NO_SESSION
    assert exit_code(AgentStartError("x")) == Exit.AGENT
    assert exit_code(AcpholdError("x")) == Exit.ERROR
