"""The group of all commands: help, errors, exit codes."""

from __future__ import annotations

import os
import subprocess
import sys
from inspect import Parameter, signature
from pathlib import Path

import pytest

from acphold import __version__
from acphold.errors import AcpError, AgentStartError, UnknownSessionError
from acphold.faces.cli import options
from acphold.faces.cli.command_line import Exit, UsageError
from acphold.faces.cli.main import (
    COMMANDS,
    FAMILIES,
    FIRST,
    INTERNAL,
    LISTED,
    TASKS,
    exit_code,
    main,
    parser_of,
    split_name,
)
from acphold.faces.cli.options import HOST, JOURNAL
from acphold.faces.cli.parser import Parser
from acphold.journal_location import VARIABLE
from tests.cli.command_line import CommandLine, run_here
from tests.cli.conversation import remember
from tests.raw_entries import prompt

WITHOUT_JOURNAL = {
    "access places",  # which are of all processes
    "check",
    "agent sign-in",
    "agent sign-out",
    "agent status",  # which tells of all processes
    "completion",
    "connect",
    "demo",
    "agent demo",
    "help",
    "journal copy",  # which names two of them
    "setup",
}


def flags(name: str) -> set[str]:
    """The options of a command."""
    actions = parser_of(name).actions
    return {flag for action in actions for flag in action.option_strings}


def test_every_command_and_argument_has_help_which_shows_every_option(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name in COMMANDS:
        found = parser_of(name)
        assert (found.description or "").startswith(COMMANDS[name].summary.removesuffix(".")), name
        assert ("--journal" in flags(name)) == (name not in WITHOUT_JOURNAL), name
        assert [action.dest for action in found.actions if not action.help] == [], name
        with pytest.raises(SystemExit):
            main([*name.split(), "--help"])
        shown = capsys.readouterr().out
        assert all(flag in shown for flag in flags(name)), name


def test_the_journal_is_named_before_or_behind_the_command(
    acphold: CommandLine, tmp_path: Path
) -> None:
    remember(other := tmp_path / "other.db", "elsewhere", prompt("x"))
    for given in (("--journal", str(other)), (f"--journal={other}",)):
        for line in ((*given, "list", "--json"), ("list", *given, "--json")):
            for run in (acphold.run, acphold.run_as_process):
                assert '"sessionId":"elsewhere"' in run(*line).out
        assert '"sessionId":"elsewhere"' in acphold.run("list", "--json", *given).out
    assert acphold.run("list").out == ""


def test_an_editor_starts_wrap_with_a_journal_before_it(
    acphold: CommandLine, tmp_path: Path
) -> None:
    agent = [sys.executable, "-c", "input()"]
    done = acphold.run_as_process("--journal", str(tmp_path / "a.db"), "wrap", "--", *agent)
    assert (done.code, done.out, done.err) == (0, "", "")


def test_the_help_stands_on_a_terminal_of_24_lines_but_for_its_first(acphold: CommandLine) -> None:
    assert len(acphold.shown("--help", columns=80).plain.splitlines()) <= 25


def test_the_help_says_once_what_a_journal_is(acphold: CommandLine) -> None:
    assert "--journal URL  path or URL of the journal" in acphold.run("--help").out
    told = acphold.run("list", "--help").out
    assert "\n--journal URL uses another journal: see `acphold --help`." in told
    assert told.count("--journal") == 1


@pytest.mark.parametrize("columns", [40, 60, 80])
@pytest.mark.parametrize("command", [(), ("list",)])
def test_help_fits_a_narrow_terminal(
    acphold: CommandLine, command: tuple[str, ...], columns: int
) -> None:
    shown = acphold.shown(*command, "--help", columns=columns)
    assert max(map(len, shown.plain.splitlines())) <= columns


def test_the_help_shows_the_nine_commands_to_begin_with(acphold: CommandLine) -> None:
    done = acphold.run("--help")
    assert done.code == 0
    shown = done.out.partition("\ncommands:\n")[2].partition("\n\n")[0]
    assert [line.split()[0] for line in shown.splitlines()] == [*FIRST]
    assert "`acphold help --all`" in done.out


def test_the_whole_help_names_every_command_and_every_exit_code(acphold: CommandLine) -> None:
    done = acphold.run("help", "--all")
    assert done.code == 0
    assert len(LISTED) <= 28
    for name in LISTED:
        assert f"\n  {name} " in done.out
    for first, task in TASKS.items():
        assert f"\n\n{task}:\n  {first} " in f"\n\n{done.out}"
    for code in Exit:
        assert f"{code.value}  {code.meaning}" in done.out


@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_lists_its_commands(acphold: CommandLine, journal: Path, family: str) -> None:
    done = acphold.run(family)
    assert (done.code, done.out) == (2, "")
    for words in ([family, "--help"], ["--journal", str(journal), family, "--help"]):
        assert acphold.run(*words).out == done.err
    those = [name.split()[1] for name in COMMANDS if name.startswith(f"{family} ")]
    shown = [line.split()[0] for line in done.err.split("\ncommands:\n")[1].splitlines()]
    assert shown == those


def test_a_command_of_a_family_is_meant_where_its_own_word_or_a_typo_stands(
    acphold: CommandLine,
) -> None:
    for words in (["backup"], ["journal", "bakup"]):
        assert "(`journal backup`?)" in acphold.run(*words).err


def test_without_a_command_the_help_goes_to_stderr(acphold: CommandLine) -> None:
    done = acphold.run()
    assert (done.code, done.out) == (2, "")
    assert done.err == acphold.run("--help").out


def test_help_and_version_import_no_command() -> None:
    code = (
        "import sys; from contextlib import suppress; from acphold.faces.cli.main import main\n"
        "with suppress(SystemExit): main(['--help'])\n"
        "heavy = {'click', 'rich', 'asyncio', 'msgspec', 'sqlite3', 'acphold.faces.cli.list'}\n"
        "sys.exit(' '.join(heavy & set(sys.modules)) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_command_imports_nothing_of_what_only_others_do() -> None:
    code = (
        "import sys, acphold.faces.cli.list, acphold.faces.cli.demo_agent\n"
        "sys.exit(' '.join({'acphold.live.hub', 'httpx2'} & set(sys.modules)) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_garbage_is_collected_once_a_command_runs() -> None:
    code = (
        "import gc; from acphold.faces.cli import main; from acphold.__main__ import _run\n"
        "class Parser:\n"
        "    def run(self, words): print(gc.isenabled(), gc.get_freeze_count() > 0)\n"
        "def parser_of(name): print(gc.isenabled()); return Parser()\n"
        "main.parser_of = parser_of; _run(['list'])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\nTrue True\n"


def test_the_version_is_printed(acphold: CommandLine) -> None:
    assert acphold.run("--version").out == f"acphold {__version__}\n"


def test_that_nobody_has_access_is_said(acphold: CommandLine) -> None:
    assert acphold.run("access", "list").err == "No tokens or paired devices.\n"
    assert acphold.run("access", "audit").err == "Nothing was done through `acphold serve`.\n"


@pytest.mark.parametrize(
    ("typed", "meant"), [("-c", "continue"), ("--resume", "continue"), ("-p", "ask")]
)
def test_an_option_that_starts_an_agents_program_is_told_with_the_command(
    acphold: CommandLine, typed: str, meant: str
) -> None:
    assert acphold.run(typed, "x").err == f"acphold: did you mean: acphold {meant}\n"


def test_a_limit_may_be_typed_as_for_head(acphold: CommandLine, journal: Path) -> None:
    for number in range(3):
        remember(journal, f"ab-{number}", prompt("x"), title="x")
    shown = acphold.run("list", "--limit", "2").all
    assert acphold.run("list", "-n", "2").all == acphold.run("list", "-2").all == shown
    assert len(shown.splitlines()) < len(acphold.run("list").all.splitlines()) + 1


def test_since_yesterday_is_since_its_midnight(
    acphold: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert options.a_moment("yesterday") < options.a_moment("today") <= options.a_moment("0h")
    assert options.a_moment("today") - options.a_moment("yesterday") >= 23 * 3600 * 1000


def test_an_unknown_command_is_a_usage_error(acphold: CommandLine) -> None:
    done = acphold.run("lst")
    assert (done.code, done.out) == (2, "")
    assert (
        done.err == "acphold: no command 'lst' (`list`?); `acphold help --all` lists all commands\n"
    )
    assert "no command ' '" in acphold.run(" ").err
    assert "no command 'jornal' (`journal`?)" in acphold.run("jornal").err


@pytest.mark.parametrize(
    ("typed", "meant"),
    [("delet", "(`session delete`?)"), ("prun", "(`session prune`?)"), ("foo", "searches your")],
)
def test_an_unknown_command_of_a_family_suggests_only_a_similar_one(
    acphold: CommandLine, typed: str, meant: str
) -> None:
    assert meant in (said := acphold.run("session", typed).err)
    assert said.endswith("; `acphold session --help` lists its commands\n")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["list", "--no-such"], "unrecognized arguments: --no-such; see `acphold list --help`"),
        (["list", "--limit", "0"], "--limit/-n: '0': a whole number above 0 is required; see"),
        (["list", "--lim", "1"], "unrecognized arguments: --lim (`--limit`?); see `acphold list"),
        (["list", "--last"], "unrecognized arguments: --last; see `acphold list --help`"),
        (["list", "--tag", "later"], "did you mean: acphold list '#later'"),
        (["list", "--since", "last week"], "give a date (2026-01-31, today, yesterday) or an age"),
        (["usage", "--today"], "unrecognized arguments: --today (`--since`?)"),
        (["continue", "--agent", "demo"], "unrecognized arguments: --agent (`--with`?)"),
        (["serve", "--port", "80"], "unrecognized arguments: --port (`--listen`?)"),
        (["chat", "demo", "-m", "hi"], "did you mean: acphold ask hi demo"),
        (["ask", "claude"], 'the prompt is missing: acphold ask "PROMPT" claude'),
        (["queue", "ab12", "go on"], "did you mean: acphold queue ab12 add 'go on'"),
        (["access", "share", "--stop", "ada", "11"], "acphold access share --with USER --stop ID"),
        (["queue", "add", "ab12", "go"], "did you mean: acphold queue ab12 add go"),
        (["import", "claude"], "did you mean: acphold import --agent claude?"),
        (["show", "--ful"], "unrecognized arguments: --ful (`--full`?); see `acphold show --help`"),
        (["session", "delete"], "are required: ID; see `acphold session delete --help`"),
        (["doctor", "gemini", "--acp"], "after `--`: acphold doctor -- gemini --acp"),
        (["wrap", "gemini", "--acp"], "after `--`: acphold wrap -- gemini --acp"),
        (["wrap", "gemini", "--", "x"], "give either the agent gemini or a command after `--`"),
        (["wrap", "./agent", "-v"], "after `--`: acphold wrap -- ./agent -v"),
        (["wrap"], "no agent command after `--`"),
        (["wrap", "--"], "no agent command after `--`"),
    ],
)
def test_a_command_line_that_cannot_be_used_is_one_line_on_stderr(
    acphold: CommandLine, arguments: list[str], sentence: str
) -> None:
    done = acphold.run(*arguments)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(f"acphold {split_name(arguments)[0]}: ")
    assert sentence in done.err
    assert done.err.count("\n") == 1


@pytest.mark.parametrize("name", ["list", "show", "session"])
def test_a_file_that_is_no_journal_is_one_line_on_stderr(
    acphold: CommandLine, journal: Path, name: str
) -> None:
    journal.write_text("shopping list")
    arguments = {"list": (), "show": ("x",), "session": ("delete", "x", "--yes")}[name]
    done = acphold.run(name, *arguments)
    assert (done.code, done.out) == (4, "")
    assert done.err.startswith(f"acphold: {journal} is not an acphold journal")
    assert done.err.count("\n") == 1


@pytest.mark.parametrize("words", [("list",), ("search", "x"), ("usage",)])
def test_where_there_is_no_journal_none_is_made(
    acphold: CommandLine, journal: Path, words: tuple[str, ...]
) -> None:
    done = acphold.run(*words)
    assert (done.code, done.out) == (0, "")
    why = f" (no journal at {journal})"
    assert done.err == f"Nothing here yet{why}: acphold import, or acphold setup.\n"
    usual = {"ACPHOLD_JOURNAL": "", "XDG_DATA_HOME": str(journal.parent)}
    done = run_here(words, acphold.environment | usual)
    assert done.err == "Nothing here yet: acphold import, or acphold setup.\n"
    assert not journal.exists()


def test_the_option_names_the_journal_before_the_variable_does(
    acphold: CommandLine, tmp_path: Path
) -> None:
    done = acphold.run("show", "x", "--journal", str(tmp_path / "other.db"))
    assert (done.code, "other.db" in done.err) == (4, True)


@pytest.mark.parametrize("line", ["queue x add", "rules add", "continue", "list", "search"])
def test_words_that_are_not_utf_8_are_text_in_every_command(line: str) -> None:
    name, *words = line.split()
    read = parser_of(name).read([*words, os.fsdecode(b"caf\xe9")])["words"]
    assert isinstance(read, list)
    assert read[-1] == "caf\N{REPLACEMENT CHARACTER}"


@pytest.mark.parametrize("name", ["list", "usage", "search", "export", "session prune"])
def test_a_name_that_is_empty_is_refused_by_every_command(name: str) -> None:
    with pytest.raises(UsageError, match="a name is required"):
        parser_of(name).read(["--agent", " ", *(["x"] if name == "search" else [])])


def test_a_command_takes_what_its_parser_reads() -> None:
    for name in (*COMMANDS, *INTERNAL):
        parser = parser_of(name)
        read = {action.dest for action in parser.actions}
        read -= {"help", "no_pager", "journal", HOST}  # what `run` and `main` do for all commands
        taken = {it.name: it.kind for it in signature(parser.execute).parameters.values()}
        named = {it for it, kind in taken.items() if kind is Parameter.KEYWORD_ONLY} - {"program"}
        assert set(taken.values()) <= {Parameter.KEYWORD_ONLY, Parameter.VAR_KEYWORD}, name
        assert named <= read, name
        assert Parameter.VAR_KEYWORD in taken.values() or named == read, name


def test_what_a_command_starts_uses_the_journal_that_was_typed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, "/another/journal.db")
    monkeypatch.chdir(tmp_path)
    inherited: dict[str, str] = {}
    made = Parser(lambda: inherited.update(os.environ), "look", "[OPTIONS]", JOURNAL)
    assert made.run(["--journal", "own.db"]) == Exit.OK
    assert inherited[VARIABLE] == str(tmp_path / "own.db")  # for any folder
    assert made.run(["--journal", "sqlite://bad"]) == Exit.OK  # said by what opens it
    monkeypatch.setenv(VARIABLE, "/another/journal.db")
    assert made.run(["--journal", ""]) == Exit.OK
    assert os.environ[VARIABLE] == "/another/journal.db"


def test_errors_have_the_exit_code_of_their_kind() -> None:
    assert exit_code(UnknownSessionError("x")) == Exit.NO_SESSION
    assert exit_code(AgentStartError("x")) == Exit.AGENT
    assert exit_code(AcpError("x")) == Exit.ERROR


def test_windows_is_refused_in_words_with_a_way() -> None:
    program = "import sys; sys.platform = 'win32'; from acphold.__main__ import main; main()"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.startswith("acphold: Windows is not supported; install acphold in WSL")
