"""`acphold completion`: candidates for the typed words, and the scripts that ask for them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from acphold.faces.cli.completion import candidates
from acphold.faces.cli.main import COMMANDS, LISTED, parser_of
from tests.cli.command_line import CommandLine
from tests.cli.conversation import remember
from tests.raw_entries import prompt
from tests.screen_terminal import terminal


def words(*typed: str) -> list[str]:
    return [candidate.word for candidate in candidates(typed)]


def test_at_first_there_are_commands() -> None:
    assert words("")[: len(LISTED)] == [*LISTED]
    assert words("journal", "") == ["backup", "restore", "copy", "compact"]
    assert words("de") == ["demo"]
    assert words("--v") == ["--version"]


def test_a_command_may_stand_behind_the_journal(acphold: CommandLine, journal: Path) -> None:
    remember(journal, "here", prompt("x"))
    assert "here" in acphold.run("completion", "--", "show", "").out
    for before in (["--journal", "/j.db"], ["--journal=/j.db"]):
        assert acphold.run("completion", "--", *before, "show", "").out == ""
        assert words(*before, "journal", "b") == ["backup"]
        assert words(*before, "doc") == ["doctor"]
        assert words(*before, "list", "--arch") == ["--archived"]
    assert words("--journal", "") == words("--journal=") == []


def test_every_option_of_a_command_is_a_candidate() -> None:
    for name in COMMANDS:
        flags = {
            action.option_strings[0] for action in parser_of(name).actions if action.option_strings
        }
        assert set(words(*name.split(), "-")) == flags, name


def test_a_value_is_completed_where_there_are_few_and_else_left_to_the_shell() -> None:
    assert words("wrap", "--log-level", "") == ["debug", "info", "warning", "error"]
    assert "codex" in words("import", "--agent", "")
    assert words("list", "--cwd", "") == []
    assert words("completion", "") == ["bash", "zsh", "fish"]
    assert words("no-such-command", "") == []


def test_among_the_words_of_a_command_stands_no_value_of_an_option() -> None:
    assert "claude" in words("wrap", "")
    assert not {"wait", "reject", "debug"} & {*words("wrap", ""), *words("agent", "run", "")}
    assert words("search", "") == words("search", "words", "") == []
    assert words("wrap", "--name", "") == words("wrap", "claude", "") == []
    assert words("ask", "") == []
    assert "codex" in words("ask", "what is this?", "")
    assert "zed" in words("setup", "")
    assert "codex" in words("setup", "--as", "x", "zed", "")


def test_agents_are_offered_by_their_short_names(acphold: CommandLine, journal: Path) -> None:
    remember(journal, "a", prompt("x"), agent="mine")
    remember(journal, "b", prompt("x"), agent="@agentclientprotocol/claude-agent-acp")
    for command in ("list", "search", "usage", "session prune", "export"):
        found = acphold.run("completion", "--", *command.split(), "--agent", "").out.splitlines()
        assert "claude\tClaude Code" in found
        assert "mine" in found
        assert not any(line.startswith("@") for line in found)


def test_stop_and_watching_are_offered_what_is_live(acphold: CommandLine, journal: Path) -> None:
    remember(journal, "not-live", prompt("x"))
    assert acphold.run("completion", "--", "continue", "--watch", "").out == ""
    assert acphold.run("completion", "--", "agent", "stop", "").out == ""
    for command in (
        ["show"],
        ["show", "--follow"],
        ["continue"],
        ["chat", "--resume"],
        ["ask", "--session"],
    ):
        done = acphold.run("completion", "--", *command, "")
        assert "not-live" in done.out, command
    assert acphold.run("completion", "--", "session", "rename", "not-live", "").out == ""


def test_no_session_of_this_machine_is_offered_where_another_one_is_meant(
    acphold: CommandLine, journal: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    remember(journal, "here", prompt("x"))
    for command in ("show", "continue", "export"):
        assert acphold.run("completion", "--", command, "--host", "desk", "").out == ""
    assert acphold.run("completion", "--", "session", "delete", "").out == "here\n"


def test_behind_the_dashes_there_are_programs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}:/no/such/folder")
    (tmp_path / "gemini").touch(mode=0o755)
    (tmp_path / "gemini.txt").touch(mode=0o644)
    assert words("wrap", "--log-level", "info", "--", "gem") == ["gemini"]
    assert words("wrap", "--", "./gem") == []
    assert words("wrap", "--", "gemini", "") == []


def test_ids_are_completed_but_for_those_that_a_shell_would_make_something_of(
    acphold: CommandLine, journal: Path
) -> None:
    remember(journal, "3f9a-1", prompt("x"), title="Greeting")
    remember(journal, "3f9a-$(echo 2)", prompt("x"))
    assert acphold.run("completion", "--", "show", "3f").out == "3f9a-1\tGreeting\n"
    assert acphold.run("completion", "--", "session", "delete", "").out == "3f9a-1\tGreeting\n"
    journal.write_text("shopping list")
    assert acphold.run("completion", "--", "show", "3f").out == ""


def test_without_a_shell_it_says_which_there_are(acphold: CommandLine) -> None:
    done = acphold.run("completion")
    assert (done.code, done.out) == (2, "")
    assert "bash, zsh, fish" in done.err


def test_bash_completes_with_the_script(acphold: CommandLine, journal: Path) -> None:
    remember(journal, "3f9a-1", prompt("x"), title="Greeting")
    line = """
    eval "$(acphold completion bash)"
    complete() { COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _acphold; echo "${COMPREPLY[@]}"; }
    complete acphold sho; complete acphold show ''; complete acphold list --cw
    """
    path = os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]])
    done = subprocess.run(
        ["bash", "-c", line],
        env={**acphold.environment, "PATH": path},
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
    )
    assert done.stdout.splitlines() == ["show", "3f9a-1", "--cwd"]


@pytest.mark.interop
def test_fish_completes_with_the_script(acphold: CommandLine, journal: Path) -> None:
    remember(journal, "3f9a-1", prompt("x"), title="Greeting")
    line = (
        "acphold completion fish | source;"
        "for typed in 'acphold sho' 'acphold show ' 'acphold list --agent clau';"
        " complete --do-complete $typed; end"
    )
    path = os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]])
    done = subprocess.run(
        ["fish", "--no-config", "-c", line],
        env={**acphold.environment, "PATH": path},
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
    )
    assert [line for line in done.stdout.splitlines() if "\t" in line] == [
        "show\tPrint a session's transcript.",
        "3f9a-1\tGreeting",
        "claude\tClaude Code",
    ]


@pytest.mark.interop
def test_zsh_completes_with_the_script(acphold: CommandLine, journal: Path, tmp_path: Path) -> None:
    remember(journal, "3f9a-1", prompt("x"), title="Greeting: a colon")
    (tmp_path / ".zshrc").write_text(
        "PS1='%% '; autoload -U compinit && compinit -u\n"
        'eval "$(acphold completion zsh)"; echo is ready\n'
    )
    path = os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]])
    env = {**acphold.environment, "PATH": path, "ZDOTDIR": str(tmp_path), "TERM": "xterm-256color"}
    with terminal(["zsh", "-i"], env) as one:
        one.until("is ready")
        one.type("acphold sho\t", "% acphold show")
        one.type("\t", "% acphold show 3f9a-1")
        one.type("\x15acphold list --agent clau\t", "% acphold list --agent claude")
        one.type("\x15acphold wrap -\t", "--all-agents  -- list the sessions of all agents")
