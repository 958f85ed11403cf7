"""Agents that acphold knows by name are started without a settings file."""

from __future__ import annotations

import json
import shlex
import signal
import sys
from pathlib import Path

import pytest

from acp_wire.schema import Implementation, InitializeResponse
from acphold.client.advertised import Advertised
from acphold.faces.cli.command_line import Exit
from acphold.faces.cli.main import parser_of
from acphold.known_agents import KNOWN_AGENTS, keys_of, short_name
from tests.cli.command_line import CommandLine
from tests.cli.conversation import remember
from tests.cli.test_ask import steps
from tests.editor import scripted_agent
from tests.raw_entries import ended, prompt, update

SAYS = steps({"say": "It is me."})


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is all of PATH, on a machine without a settings file."""
    (folder := tmp_path / "programs").mkdir()
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setenv("ACPHOLD_SETTINGS", str(tmp_path / "none.toml"))
    return folder


def install(folder: Path, name: str, log: Path) -> None:
    """A program that notes how it was started, and is the scripted agent."""
    program = folder / name
    words = shlex.join(scripted_agent())
    program.write_text(f'#!/bin/sh\necho "$@" >> {shlex.quote(str(log))}\nexec {words}\n')
    program.chmod(0o755)


def test_an_agent_on_path_needs_its_name_only(
    acphold: CommandLine, programs: Path, tmp_path: Path
) -> None:
    install(programs, "opencode", tmp_path / "log")
    done = acphold.run("ask", SAYS, "opencode")
    assert (done.code, done.out) == (0, "It is me.\n"), done.err
    assert (tmp_path / "log").read_text() == "acp\n"


def test_of_several_programs_the_first_that_is_there_is_taken(
    acphold: CommandLine, programs: Path, tmp_path: Path
) -> None:
    install(programs, "claude-code-acp", tmp_path / "log")
    assert acphold.run("ask", SAYS, "claude").out == "It is me.\n"


def test_an_agent_that_is_not_installed_is_told_with_how_to_install_it(
    acphold: CommandLine, programs: Path
) -> None:
    done = acphold.run("ask", SAYS, "codex")
    assert (done.code, done.out) == (Exit.USAGE, "")
    assert "PATH has no `codex-acp` for Codex" in done.err
    assert f"install it with `{KNOWN_AGENTS['codex'].install}`" in done.err


@pytest.mark.parametrize(("answer", "starts"), [(b"y\n", True), (b"n\n", False)])
def test_npm_fetches_an_agent_only_for_who_says_yes(
    acphold: CommandLine, programs: Path, tmp_path: Path, answer: bytes, starts: bool
) -> None:
    install(programs, "npx", tmp_path / "log")
    done = acphold.on_terminal("ask", SAYS, "codex", typed=answer)
    told = "Codex is not installed. Let `npx -y @agentclientprotocol/codex-acp` fetch it?"
    assert told in " ".join(done.plain.split())
    assert ("It is me." in done.plain) is starts
    assert (tmp_path / "log").exists() is starts
    assert "let npm fetch it" not in done.plain  # they were asked


def test_a_conversation_whose_agent_is_gone_can_be_continued_with_one_that_is_here(
    acphold: CommandLine, programs: Path, tmp_path: Path
) -> None:
    install(programs, "codex-acp", tmp_path / "log")
    install(programs, "opencode", tmp_path / "log")
    assert acphold.run("ask", SAYS, "codex").code == Exit.OK
    (programs / "codex-acp").unlink()
    done = acphold.run("continue", "-")
    assert done.code == Exit.USAGE
    session = json.loads(acphold.run("list", "--json").out)
    again = f"acphold continue {session['sessionId']} --with opencode"
    assert f"`{again}` continues with an agent that is here" in done.err
    assert f"`acphold show {session['sessionId']}` reads the conversation" in done.err


@pytest.mark.parametrize("command", ["agent sign-in", "agent sign-out"])
def test_ctrl_c_at_the_question_ends_the_command_at_once(
    programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    class Typing:
        def isatty(self) -> bool:
            return True

        def readline(self) -> str:
            signal.raise_signal(signal.SIGINT)
            pytest.fail("it reads on")

    install(programs, "npx", tmp_path / "log")
    monkeypatch.setattr(sys, "stdin", Typing())
    with pytest.raises(KeyboardInterrupt):
        parser_of(command).run(["codex"])


@pytest.mark.parametrize("command", ["chat", "check", "doctor", "agent sign-in", "setup zed"])
def test_a_name_of_no_letters_is_no_name(acphold: CommandLine, command: str) -> None:
    done = acphold.run(*command.split(), " ")
    assert done.code == Exit.USAGE
    assert "AGENT: ' ': a name is required" in done.err


def test_a_name_that_nobody_knows_is_told_with_one_like_it(
    acphold: CommandLine, programs: Path
) -> None:
    done = acphold.run("ask", SAYS, "claud")
    assert done.code == Exit.USAGE
    assert done.err.startswith("acphold: no agent 'claud' (`claude`?); add others to ")
    assert "no agent 'dem' (`demo`?)" in acphold.run("ask", "dem", SAYS).err


def test_an_agent_of_the_settings_file_is_called_as_it_is_there(
    acphold: CommandLine, journal: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    claude = 'command = ["npx", "-y", "@agentclientprotocol/claude-agent-acp"]\n'
    (settings := tmp_path / "settings.toml").write_text(f"[agents.work]\n{claude}")
    monkeypatch.setenv("ACPHOLD_SETTINGS", str(settings))
    remember(journal, "s1", prompt("hello"), ended(), agent="@zed-industries/claude-code-acp")
    assert " work " in acphold.run("list", "--all").out
    assert "s1" in acphold.run("list", "--all", "--agent", "work").out
    (both := tmp_path / "both.toml").write_text(f"[agents.work]\n{claude}[agents.home]\n{claude}")
    monkeypatch.setenv("ACPHOLD_SETTINGS", str(both))
    assert " claude " in acphold.run("list", "--all").out


def test_an_agent_has_one_short_name_whatever_it_calls_itself() -> None:
    assert short_name("@zed-industries/claude-code-acp") == "claude"
    assert short_name("opencode") == short_name("OpenCode") == "opencode"
    assert short_name("Kimi Code CLI") == short_name("Kimi CLI") == "kimi"
    assert short_name("@factory/cli") == "droid"
    assert short_name("my-agent 2") == "my-agent 2"
    assert set(keys_of("codex")) > {"codex", "codex-acp"}


def test_no_two_agents_call_themselves_the_same() -> None:
    keys = [key.casefold() for agent in KNOWN_AGENTS.values() for key in agent.keys]
    told_twice = {key for key in keys if keys.count(key) > 1}
    assert told_twice <= {"opencode", "copilot", "kilo"}, "the same in small letters"
    assert all(
        short_name(key) == agent.name for agent in KNOWN_AGENTS.values() for key in agent.keys
    )


EARLIER, TODAY = "@zed-industries/claude-code-acp", "@agentclientprotocol/claude-agent-acp"


@pytest.fixture
def two_releases(journal: Path) -> None:
    """A journal with a session of each of two releases of one agent, and of another agent."""
    used = update("usage_update", used=5, size=9, cost={"amount": 2, "currency": "EUR"})
    for session, agent in (("a", EARLIER), ("b", TODAY), ("c", "other")):
        remember(journal, session, prompt(f"apples {session}"), used, ended(), agent=agent)


@pytest.mark.usefixtures("two_releases")
def test_one_name_stands_for_all_releases_of_an_agent(acphold: CommandLine) -> None:
    name = "Claude"

    def ids(*words: str) -> set[str]:
        lines = acphold.run(*words, "--json", "--agent", name).out.splitlines()
        return {json.loads(line)["sessionId"] for line in lines}

    assert ids("list") == ids("search", "apples") == ids("usage", "--by", "session") == {"a", "b"}
    assert "apples c" not in acphold.run("export", "--all", "--agent", name).out
    pruned = acphold.run(
        "session", "prune", "--older-than", "2100-01-01", "--agent", name, "--dry-run"
    )
    assert "2 sessions" in pruned.out + pruned.err
    [line] = acphold.run("list", "--json", "--agent", EARLIER).out.splitlines()
    assert json.loads(line)["agent"] == EARLIER


@pytest.mark.usefixtures("two_releases")
def test_usage_adds_up_the_releases_of_an_agent_under_its_name(acphold: CommandLine) -> None:
    lines = [line.split() for line in acphold.run("usage").out.splitlines()]
    assert {line[0]: line[1] for line in lines[1:3]} == {"claude": "2", "other": "1"}
    assert "4.00 EUR" in acphold.run("usage").out.splitlines()[1]
    names = [json.loads(line)["agent"] for line in acphold.run("usage", "--json").out.splitlines()]
    assert {*names} == {EARLIER, TODAY, "other"}


@pytest.mark.usefixtures("two_releases")
def test_a_name_of_the_settings_file_stands_for_what_its_command_starts(
    acphold: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = tmp_path / "settings.toml"
    monkeypatch.setenv("ACPHOLD_SETTINGS", str(settings))
    settings.write_text(
        f'[agents.work]\ncommand = ["npx", "-y", "{TODAY}"]\n'
        '[agents.mine]\nname = "other"\ncommand = ["./agent"]\n'
    )
    for name, count in (("work", 2), ("mine", 1), ("nobody", 0)):
        assert len(acphold.run("list", "--json", "--agent", name).out.splitlines()) == count


def test_import_takes_the_long_name_of_an_agent_too() -> None:
    assert parser_of("import").read(["--agent", TODAY])["agents"] == ["claude"]


@pytest.mark.usefixtures("two_releases")
def test_no_face_shows_the_package_of_an_agent(acphold: CommandLine) -> None:
    for words in ("list", "search apples", "show a", "export a", "export a --format html", "usage"):
        said = acphold.run(*words.split())
        assert EARLIER not in said.all
        assert "claude" in said.out


def test_a_chat_calls_an_agent_without_a_title_by_its_short_name() -> None:
    told = InitializeResponse(1, agent_info=Implementation(TODAY, "1"))
    assert Advertised(told, "agent").name == "claude"
