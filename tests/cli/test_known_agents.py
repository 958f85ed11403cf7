"""Agents that acphold knows by name are started without a settings file."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from acphold.cli.command_line import Exit
from acphold.known_agents import KNOWN_AGENTS, keys_of, short_name
from tests.cli.command_line import CommandLine
from tests.cli.test_ask import steps
from tests.editor import scripted_agent

SAYS = steps({"say": "It is me."})


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is all of PATH, on a machine without a settings file."""
    folder = tmp_path / "programs"
    folder.mkdir()
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
    done = acphold.run_as_process("ask", SAYS, "opencode")
    assert (done.code, done.out) == (0, "It is me.\n"), done.err
    assert (tmp_path / "log").read_text() == "acp\n"


def test_of_several_programs_the_first_that_is_there_is_taken(
    acphold: CommandLine, programs: Path, tmp_path: Path
) -> None:
    install(programs, "claude-code-acp", tmp_path / "log")
    assert acphold.run_as_process("ask", SAYS, "claude").out == "It is me.\n"


def test_an_agent_that_is_not_installed_is_told_with_how_to_install_it(
    acphold: CommandLine, programs: Path
) -> None:
    done = acphold.run_as_process("ask", SAYS, "codex")
    assert (done.code, done.out) == (Exit.USAGE, "")
    assert "PATH has no `codex-acp` for Codex" in done.err
    assert f"install it: `{KNOWN_AGENTS['codex'].install}`" in done.err


@pytest.mark.parametrize(("answer", "starts"), [(b"y\n", True), (b"n\n", False)])
def test_npm_fetches_an_agent_only_for_who_says_yes(
    acphold: CommandLine, programs: Path, tmp_path: Path, answer: bytes, starts: bool
) -> None:
    install(programs, "npx", tmp_path / "log")
    done = acphold.on_terminal("ask", SAYS, "codex", typed=answer)
    assert "Codex is not installed. Fetch and start `npx -y @agentclientprotocol/codex-acp`?" in (
        " ".join(done.plain.split())
    )
    assert ("It is me." in done.plain) is starts
    assert (tmp_path / "log").exists() is starts


def test_a_name_that_nobody_knows_is_told_with_one_like_it(
    acphold: CommandLine, programs: Path
) -> None:
    done = acphold.run_as_process("ask", SAYS, "claud")
    assert done.code == Exit.USAGE
    assert "no agent 'claud' (`claude`?)" in done.err


def test_an_agent_has_one_short_name_whatever_it_calls_itself() -> None:
    assert short_name("@zed-industries/claude-code-acp") == "claude"
    assert short_name("opencode") == short_name("OpenCode") == "opencode"
    assert short_name("my-agent 2") == "my-agent 2"
    assert set(keys_of("codex")) > {"codex", "codex-acp"}


def test_no_two_agents_call_themselves_the_same() -> None:
    keys = [key.casefold() for agent in KNOWN_AGENTS.values() for key in agent.keys]
    told_twice = {key for key in keys if keys.count(key) > 1}
    assert told_twice <= {"opencode", "copilot", "kilo"}, "the same in small letters"
    assert all(
        short_name(key) == agent.name for agent in KNOWN_AGENTS.values() for key in agent.keys
    )
