"""The settings file: agents by name, unusable settings, and names that are taken."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from acphold.errors import SettingsError
from acphold.faces.cli.command_line import Exit
from acphold.faces.cli.completion import Candidate, candidates
from acphold.faces.cli.settings import (
    NamedAgent,
    agent_command,
    agent_name,
    enter_agent,
    settings_path,
    wrap_arguments,
)
from acphold.faces.cli.wrap import options_of, settings_parser, split_name
from tests.cli.command_line import CommandLine
from tests.editor import editor, introduced, scripted_agent, wrap_command

Write = Callable[[str], Path]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """`write(text)`: the settings file of the test, which is its path."""
    path = tmp_path / "settings.toml"
    monkeypatch.setenv("ACPHOLD_SETTINGS", str(path))

    def settings(text: str) -> Path:
        path.write_text(text, encoding="utf-8")
        return path

    return settings


def refusal(name: str) -> str:
    """The error for an agent that cannot be used."""
    with pytest.raises(SettingsError) as caught:
        wrap_arguments(agent_command(name), settings_parser())
    return str(caught.value)


def table(name: str, command: list[str], *lines: str) -> str:
    """An agent as the file has it."""
    return "\n".join([f"[agents.{name}]", f"command = {json.dumps(command)}", *lines, ""])


@pytest.mark.parametrize("command", ["5", "true", "'gemini --acp'", "[5]", "{}"])
def test_a_command_that_is_none_keeps_no_agent_from_having_a_name(
    write: Write, command: str
) -> None:
    write(f"[agents.mine]\ncommand = {command}\n")
    assert (agent_name("mine"), agent_name("gemini-cli")) == ("mine", "gemini")


# -- where it is ----------------------------------------------------------------------------


def test_the_variable_names_the_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("ACPHOLD_SETTINGS", "~/mine.toml")
    assert settings_path() == str(tmp_path / "mine.toml")


@pytest.mark.parametrize(
    ("platform", "config", "place"),
    [
        ("linux", "", ".config/acphold/settings.toml"),
        ("linux", "relative", ".config/acphold/settings.toml"),
        ("linux", "/elsewhere", "/elsewhere/acphold/settings.toml"),
        ("darwin", "", "Library/Application Support/acphold/settings.toml"),
        ("darwin", "/elsewhere", "/elsewhere/acphold/settings.toml"),
    ],
)
def test_it_is_in_the_folder_for_settings(
    monkeypatch: pytest.MonkeyPatch, platform: str, config: str, place: str
) -> None:
    monkeypatch.delenv("ACPHOLD_SETTINGS")
    monkeypatch.setenv("HOME", "/home/me")
    monkeypatch.setenv("XDG_CONFIG_HOME", config)
    monkeypatch.setattr(sys, "platform", platform)
    assert settings_path() == os.path.join("/home/me", place)


# -- the agents in it -----------------------------------------------------------------------


def test_an_agent_has_a_command_variables_and_options(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    write("""
        [defaults]
        log_level = "info"
        start_timeout = 120
        no_import = true
        env = { SHARED = "1", MODEL = "small" }

        [agents.claude]
        command = ["~/bin/claude", "~/x", "~", "--acp"]
        log_level = "debug"
        no_import = false
        name = "Claude"
        env = { MODEL = "large" }

        [agents.other]
        command = ["other"]
        """)
    found = agent_command("claude")
    assert found.command == ("/home/me/bin/claude", "/home/me/x", "~", "--acp")
    assert found.env == {"SHARED": "1", "MODEL": "large"}
    assert set(wrap_arguments(found, settings_parser())) == {
        "--log-level=debug",
        "--start-timeout=120",
        "--name=Claude",
    }
    assert "--no-import" in wrap_arguments(agent_command("other"), settings_parser())


def test_a_value_may_begin_like_an_option(write: Write) -> None:
    write(table("a", ["x"], 'name = "--name"'))
    read = settings_parser().read(
        [*wrap_arguments(agent_command("a"), settings_parser()), "--", "x"]
    )
    assert read["name"] == "--name"


def test_a_name_may_be_any_key(write: Write) -> None:
    write('[agents."my agent.2"]\ncommand = ["x"]')
    assert agent_command("my agent.2").command == ("x",)


# -- unusable settings ----------------------------------------------------------------------


def test_without_a_file_it_says_where_it_would_be(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("ACPHOLD_SETTINGS", str(tmp_path / "none.toml"))
    told = refusal("mine")
    assert f"add others to {tmp_path / 'none.toml'}, or give a command after `--`" in told


@pytest.mark.parametrize("words", [["setup", "zed"], ["doctor"], ["wrap", "--recall"]])
@pytest.mark.parametrize("name", ["claude", "mine"])
def test_words_behind_the_name_of_an_agent_are_refused_and_never_made_its_command(
    acphold: CommandLine, write: Write, words: list[str], name: str
) -> None:
    write(table("mine", ["x"]))
    done = acphold.run(*words, name, "please")
    assert done.code == 2
    as_in = " ".join(["acphold", *words, "-- CMD"])
    assert "unrecognized arguments: please; nothing can follow an agent's name" in done.err
    assert f"goes after `--`, as in `{as_in}`\n" in done.err
    assert f"-- {name}" not in done.err
    both = acphold.run(*words, name, "--", "gemini")
    assert f"either the agent {name} or a command after `--`, not both" in both.err


def test_a_name_that_it_has_not_is_told_with_one_like_it(write: Write) -> None:
    path = write(table("claude", ["x"]))
    told = refusal("claud")
    assert told.startswith(f"no agent 'claud' (`claude`?); add others to {path}, or ")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("agents = 3", ["[agents] must be a table"]),
        ("[agents]\na = 3", ["[agents.a] must be a table"]),
        ("[agents.a]", ["[agents.a]: `command` is missing: command = ["]),
        ('[agents.a]\ncomand = ["x"]', ["[agents.a]: `command` is missing (`comand`?)"]),
        ('[agents.a]\ncommand = "gemini --acp"', ['["gemini", "--acp"]']),
        ("[agents.a]\ncommand = []", ["[agents.a] command", "list of words"]),
        ("[agents.a]\ncommand = [1]", ["[agents.a] command", "list of words"]),
        (table("a", ["x"], "env = 3"), ["[agents.a] env", "a table"]),
        (table("a", ["x"], "env = { KEY = 3 }"), ["[agents.a] env", "'KEY'"]),
        (table("a", ["x"], 'env = { "A=B" = "c" }'), ["[agents.a] env", "'A=B'"]),
        (table("a", ["x"], "comand = 3"), ["[agents.a]", "'comand'", "`command`?"]),
        (table("a", ["x"], "log-level = 3"), ["[agents.a]", "'log-level'", "`log_level`?"]),
        (table("a", ["x"], "help = true"), ["[agents.a]", "'help'"]),
        (table("a", ["x"], "no_import = 1"), ["[agents.a] no_import", "true or false"]),
        (table("a", ["x"], "start_timeout = true"), ["start_timeout", "a string or a number"]),
        (table("a", ["x"], "start_timeout = 0"), ["[agents.a] start_timeout: '0'", "above 0"]),
        (table("a", ["x"], "start_timeout = 'soon'"), ["start_timeout: 'soon'", "above 0"]),
        (table("a", ["x"], "cancel_grace = inf"), ["cancel_grace: 'inf'", "above 0"]),
        (table("a", ["x"], "max_message = '64MB'"), ["max_message: '64MB'", "64M"]),
        (table("a", ["x"], "max_message = 12"), ["max_message: '12'", "1k at least"]),
        (table("a", ["x"], 'log_level = "loud"'), ["[agents.a] log_level: 'loud'", "warning"]),
        ("[defaults]\nlog_leve = 1\n" + table("a", ["x"]), ["[defaults]", "`log_level`?"]),
        ("[defaults]\nname = 'b'\n" + table("a", ["x"]), ["[defaults] name", "one agent"]),
        ("[defaults]\ncommand = ['b']\n" + table("a", ["x"]), ["[defaults] command"]),
        (
            "[defaults]\nrecall = 'yes'\n" + table("a", ["x"]),
            ["[defaults] recall: must be true or false"],
        ),
        (
            "[defaults]\nenv = { A = 1 }\n" + table("a", ["x"]),
            ["[defaults] env: 'A' must be a variable name"],
        ),
        ("defaults = 3\n" + table("a", ["x"]), ["[defaults] must be a table"]),
        ("[agnets.x]\n" + table("a", ["x"]), ["has an unknown table [agnets] (`agents`?)"]),
        ("a = 1\nb = \n", ["is not TOML", "line 2"]),
        ("a = " + "[" * 9000, ["is not TOML"]),
    ],
)
def test_a_mistake_is_told_with_the_file_and_the_line_or_the_key(
    write: Write, text: str, words: list[str]
) -> None:
    path = write(text)
    told = refusal("a")
    assert told.startswith(str(path))
    assert all(word in told for word in words), told
    assert "\n" not in told


def test_the_value_of_a_variable_is_never_quoted(write: Write) -> None:
    write(table("a", ["x"], 'env = { KEY = ["hush-hush"] }'))
    assert "hush" not in refusal("a")


def test_a_file_that_is_no_text_or_cannot_be_read_is_told(write: Write) -> None:
    path = write("")
    path.write_bytes(b"a = '\xff'")
    assert refusal("a") == f"{path} is not UTF-8 text: byte 5"
    path.unlink()
    path.mkdir()
    assert refusal("a").startswith(f"{path} cannot be read: ")


# -- a command without a name ---------------------------------------------------------------


def test_a_command_gets_the_defaults_that_cannot_be_typed_and_no_others(write: Write) -> None:
    write("[defaults]\nlinger = 5\nmax_message = '2k'\nall_agents = true\nlog_level = 'debug'")
    read = options_of(NamedAgent(("x",)))
    assert (read["linger"], read["max_message"]) == (5.0, 2048)
    assert (read["all_agents"], read["log_level"]) == (False, "WARNING")


def test_options_that_nobody_gives_are_those_that_the_parsers_would_read(write: Write) -> None:
    read = settings_parser().read(["--", "x"])
    del read["agent"], read["program"]
    assert options_of(NamedAgent(("x",))) == read
    assert options_of(NamedAgent(("x",)), ["--recall"]) == {**read, "recall": True}
    assert options_of(NamedAgent(("x",)), ["--journal", "j"]) == {**read, "journal": "j"}


def test_the_doctor_tells_a_mistake_in_the_defaults_where_no_agent_has_a_name(
    write: Write, acphold: CommandLine
) -> None:
    write("[defaults]\nmax_mesage = '2k'")
    shown = acphold.run("doctor")
    assert shown.code == 1
    assert "unknown key 'max_mesage' (`max_message`?)" in " ".join(shown.out.split())


async def test_a_mistake_in_the_file_is_told_to_the_editor_of_a_command(
    write: Write, journal: Path
) -> None:
    path = write("unstable = true")
    told = ": `unstable` is outside of every table; move it below [defaults]"
    async with editor(wrap_command(scripted_agent()), journal=journal) as client:
        error = await client.refused("initialize", {"protocolVersion": 1})
        assert error.message.startswith(f"{path}{told}")


# -- wrap -----------------------------------------------------------------------------------


def test_a_pipe_is_not_waited_for_and_a_huge_file_is_not_read(write: Write) -> None:
    path = write("")
    with path.open("wb") as file:
        file.truncate(64 << 30)
    assert refusal("a") == f"{path} cannot be read: it has more than 1,024 KiB"
    path.unlink()
    os.mkfifo(path)
    assert refusal("a") == f"{path} cannot be read: it is a pipe, not a file"
    done = subprocess.run(
        [sys.executable, "-m", "acphold", "wrap", "a"],
        input=b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}\n',
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert b"it is a pipe, not a file" in done.stdout


async def test_wrap_serves_an_agent_by_its_name_with_its_variables(
    write: Write, journal: Path, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    guarded = ["sh", "-c", '[ "$GREETING" = "from the file" ] && exec "$0" "$@"']
    write(
        table(
            "mine",
            [*guarded, *scripted_agent()],
            f"log_file = {json.dumps(str(log))}",
            "name = 'Mine'",
            "env = { GREETING = 'from the file' }",
        )
    )
    command = [sys.executable, "-m", "acphold", "wrap", "--log-level", "info", "mine"]
    async with introduced(command, journal=journal) as client:
        session = await client.talk({"say": "hi"}, {"stderr": "said the agent"})
        assert await client.leave() == 0
    assert "said the agent" in log.read_text()
    listed = CommandLine(journal).run("list", "--json", "--agent", "Mine")
    assert json.loads(listed.out)["sessionId"] == session


def test_an_option_of_the_command_line_goes_over_that_of_the_file(write: Write) -> None:
    write(table("mine", ["x"], "log_file = 'of-file'"))
    assert options_of(agent_command("mine"))["log_file"] == "of-file"
    assert options_of(agent_command("mine"), ["--log-file", "ours"])["log_file"] == "ours"


def test_what_cannot_be_used_is_one_sentence_and_leaves_no_agent(
    write: Write, acphold: CommandLine
) -> None:
    path = write(table("mine", scripted_agent(deaf=True), "log_level = 'loud'"))
    environment = {"ACPHOLD_SETTINGS": str(path)}
    done = acphold.run_as_process("wrap", "mine", **environment)
    assert (done.code, done.out) == (Exit.USAGE, "")
    assert done.err.startswith(f"acphold wrap: {path}: [agents.mine] log_level: 'loud'")
    assert done.err.count("\n") == 1
    done = acphold.run_as_process("wrap", "yours", "--log-level", "info", **environment)
    assert (done.code, "no agent 'yours'" in done.err) == (Exit.USAGE, True)


async def test_an_editor_is_told_why_its_agent_is_not_served_with_whatever_it_asks(
    write: Write, journal: Path
) -> None:
    path = write(table("mine", scripted_agent(), "log_level = 'loud'"))
    command = [sys.executable, "-m", "acphold", "wrap", "mine"]
    async with editor(command, journal=journal) as client:
        error = await client.refused("initialize", {"protocolVersion": 1})
        assert f"{path}: [agents.mine] log_level: 'loud'" in error.message
        assert await client.leave() == Exit.USAGE


@pytest.mark.parametrize(
    ("arguments", "name", "options"),
    [
        (["--recall", "a"], "a", ["--recall"]),
        (["--name", "n", "a", "--recall"], "a", ["--name", "n", "--recall"]),
        (["--name=n", "a"], "a", ["--name=n"]),
        (["--name", "n"], "", ["--name", "n"]),
        (["--help"], "", ["--help"]),
    ],
)
def test_the_name_may_stand_behind_options(
    arguments: list[str], name: str, options: list[str]
) -> None:
    assert split_name(arguments) == (name, options)


def test_on_a_terminal_the_agent_itself_runs_with_what_a_client_adds_for_signing_in(
    write: Write, acphold: CommandLine
) -> None:
    code = "import os, sys; print(sys.stdin.isatty(), os.environ['KEY'], sys.argv[1:])"
    lines = ("env = { KEY = 'k' }", "no_import = true")
    write(table("mine", [sys.executable, "-c", code], *lines))
    shown = acphold.on_terminal("wrap", "mine", "--login", "now")
    assert (shown.code, "True k ['--login', 'now']" in shown.out) == (0, True)


def test_wrap_of_a_command_without_a_file_of_settings_loads_nothing_to_read_one(
    journal: Path,
) -> None:
    code = (
        "import sys, atexit\n"
        "atexit.register(lambda: print('tomllib' in sys.modules, file=sys.stderr))\n"
        "sys.argv = ['acphold', 'wrap', '--', 'true']\n"
        "from acphold.__main__ import main\n"
        "main()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env={**os.environ, "ACPHOLD_JOURNAL": str(journal)},
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "False\n")


# -- other commands -------------------------------------------------------------------------


def test_a_command_takes_a_name_or_a_command_line(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(table("a", ["x", "y"], "env = { OF_THE_FILE = '1' }"))
    monkeypatch.setenv("OF_THE_FILE", "0")
    assert enter_agent(None, ["p", "q"]) == NamedAgent(("p", "q"))
    assert os.environ["OF_THE_FILE"] == "0"
    assert enter_agent("a", []).command == ("x", "y")
    assert os.environ["OF_THE_FILE"] == "1"


def test_doctor_says_what_is_wrong_with_the_file(write: Write, acphold: CommandLine) -> None:
    path = write(
        table("good", [sys.executable, "a b"])
        + table("gone", ["no-such-program"])
        + table("odd", ["true"], "nam = 'x'")
    )
    done = acphold.run("doctor")
    assert done.code == Exit.ERROR
    found = "".join(done.out.split())  # the report is wrapped at its width
    for words in (
        f"{path}, 3 agents",
        f"✓  good: {sys.executable} 'a b'",
        "✗  gone: the program 'no-such-program' was not found",
        f"✗  {path}: [agents.odd] has an unknown key 'nam' (`name`?)",
    ):
        assert "".join(words.split()) in found, words


@pytest.mark.parametrize(("mode", "lines"), [(0o644, 1), (0o600, 0)])
def test_doctor_says_that_others_can_read_variables(
    write: Write, acphold: CommandLine, mode: int, lines: int
) -> None:
    write(table("mine", ["true"], "env = { KEY = 'hush-hush' }")).chmod(mode)
    done = acphold.run("doctor")
    assert (done.code, done.out.count("other users can read it, with the variables of mine")) == (
        Exit.OK,
        lines,
    )
    assert "hush" not in done.out


def test_names_complete_where_a_command_takes_one(write: Write) -> None:
    write(table("clever", ["x"]) + '[agents."no shell takes this"]\ncommand = ["x"]')
    assert Candidate("clever") in candidates(["wrap", "cl"])
    assert Candidate("claude", "Claude Code") in candidates(["wrap", "cl"])
    assert all("shell" not in found.word for found in candidates(["wrap", ""]))
    write("broken")
    assert Candidate("clever") not in candidates(["wrap", "cl"])


def test_an_agent_whose_command_was_looked_up_before_is_started_by_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = tmp_path / "looked_up.toml"
    settings.write_text('[agents.mine]\ncommand = ["here", "--acp"]\nenv = { A = "1" }\n')
    monkeypatch.setenv("ACPHOLD_SETTINGS", str(settings))
    assert agent_command("mine").command == ("here", "--acp")
    found = agent_command("mine", ["/there/here", "--acp"])
    assert (found.command, found.env) == (("/there/here", "--acp"), {"A": "1"})
