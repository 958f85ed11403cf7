"""Plain `acphold` without a journal: it looks around and suggests a next step."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.cli.command_line import CommandLine
from tests.imports.claude_home import Transcript

pytestmark = pytest.mark.slow


@pytest.fixture
def newcomer(acphold: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CommandLine:
    """`acphold` of a person with an empty home folder, and nothing but the system on PATH."""
    (home := tmp_path / "home").mkdir()
    for name in [name for name in os.environ if name.startswith(("XDG_CONFIG", "XDG_DATA"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    return acphold


def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """Put programs with these names on PATH."""
    (folder := tmp_path / "bin").mkdir()
    for name in names:
        (folder / name).write_text("#!/bin/sh\n")
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")


def test_on_an_empty_machine_it_offers_the_demo_and_enter_leaves(newcomer: CommandLine) -> None:
    done = newcomer.on_terminal(typed=b"\n")
    assert done.code == 0
    assert "  d  see the demo" in done.plain
    assert "  i  " not in done.plain
    assert "  e  " not in done.plain
    assert not newcomer.journal.exists()


def test_it_offers_what_is_on_the_machine_with_a_key_each(
    newcomer: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs(tmp_path, monkeypatch, "codex-acp")
    Transcript("Where is the needle?").write(tmp_path / "home")
    chats = tmp_path / "home" / ".gemini" / "tmp" / "project" / "chats"
    chats.mkdir(parents=True)  # as each start of the program leaves one
    begun = {"sessionId": "s", "projectHash": "p", "startTime": "2026-01-02T03:04:05.000Z"}
    (chats / "session-2026-01-02T03-04-s.jsonl").write_text(json.dumps(begun | {"kind": "main"}))
    settings = tmp_path / "home" / ".config" / "zed" / "settings.json"
    settings.parent.mkdir(parents=True)
    settings.write_text("{}")
    done = newcomer.on_terminal(typed=b"\n")
    assert "  i  import the conversations on this disk: 1 of claude\n" in done.plain
    assert "  e  set up Zed with codex\n" in done.plain
    assert "  t  talk to codex in this terminal\n" in done.plain
    assert "i import · e editor · t talk · d demo · q quit" in done.plain
    assert settings.read_text() == "{}"


def test_an_agent_without_its_adapter_is_offered_too(
    newcomer: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs(tmp_path, monkeypatch, "codex", "npx")
    settings = tmp_path / "home" / ".config" / "zed" / "settings.json"
    settings.parent.mkdir(parents=True)
    settings.write_text("{}")
    done = newcomer.on_terminal(typed=b"tn\n")
    assert "  e  set up Zed with codex\n" in done.plain
    assert (
        "  t  talk to Codex in this terminal; npm fetches its adapter, after asking" in done.plain
    )
    assert (
        "Codex has no ACP adapter here. Let `npx -y @agentclientprotocol/codex-acp`" in done.plain
    )


def test_a_long_offer_continues_below_its_words(newcomer: CommandLine, tmp_path: Path) -> None:
    Transcript("Where is the needle?").write(tmp_path / "home")
    done = newcomer.on_terminal(typed=b"\n", columns=50)
    assert "  i  import the conversations on this disk: 1 of\n     claude\n" in done.plain


def test_a_key_does_what_stands_beside_it(newcomer: CommandLine, tmp_path: Path) -> None:
    Transcript("Where is the needle?").write(tmp_path / "home")
    done = newcomer.on_terminal(typed=b"i\x1b")
    assert done.code == 0
    assert "new 1" in done.plain
    assert "`acphold` lists them" in done.plain
    assert "Enter continues" in done.plain  # there is the list
    assert "`acphold` lists them" not in newcomer.on_terminal("import").plain  # nothing is new
    assert "Where is the needle?" in newcomer.run("list").out


@pytest.mark.parametrize("typed", [b"q", b"\n", b"\x1b", b"xq"])
def test_q_leaves_without_enter_and_a_key_that_is_none_does_nothing(
    newcomer: CommandLine, typed: bytes
) -> None:
    done = newcomer.on_terminal(typed=typed)
    assert done.code == 0
    assert "`acphold --help` shows the commands." in done.plain
    assert not newcomer.journal.exists()
