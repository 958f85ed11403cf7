"""The offer to import what agents left on disk: what is counted, and what is imported."""

from __future__ import annotations

from contextlib import aclosing
from pathlib import Path

import pytest

from acphold.faces.cli import importable
from acphold.faces.cli.importable import ImportOffer
from acphold.journal.stores import open_journal
from tests.cli.command_line import CommandLine
from tests.imports.claude_home import SESSION, Transcript

OTHER = "99999999-2222-4333-8444-555555555555"


@pytest.fixture
def offer(acphold: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ImportOffer:
    """That of a machine with a conversation of Claude Code, and a journal with nothing."""
    for name in ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "CLAUDE_CONFIG_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    Transcript("Where is the needle?").write(tmp_path / "home")
    return ImportOffer(str(acphold.journal))


async def test_what_is_offered_is_imported_once(offer: ImportOffer, acphold: CommandLine) -> None:
    assert await offer.find() == ({"claude": 1}, True)
    assert await offer.run() == ""
    assert "Where is the needle?" in acphold.run("list").out
    assert await offer.find() == ({}, True)
    assert await offer.left() == {}


async def test_what_an_import_did_not_take_in_is_told_with_the_reason(
    offer: ImportOffer, acphold: CommandLine, tmp_path: Path
) -> None:
    assert acphold.run("import").code == 0
    transcript = Transcript("Where is the needle?")
    transcript.assistant("In the haystack.")
    transcript.write(tmp_path / "home")
    transcript.write(tmp_path / "home", f"{SESSION} (copy)")
    other = Transcript("Another one.", count=10)
    other.records[0]["sessionId"] = OTHER
    other.write(tmp_path / "home", OTHER)
    assert await offer.find() == ({}, True)
    assert await offer.left() == {"claude": {"new": 1, "grown": 1}}
    assert await offer.run() == ""
    assert await offer.left() == {}


async def test_conversations_that_differ_are_told_after_the_import_too(
    offer: ImportOffer, acphold: CommandLine, tmp_path: Path
) -> None:
    assert acphold.run("import").code == 0
    async with aclosing(open_journal(str(acphold.journal))) as journal:
        lease = await journal.acquire(SESSION)
        await journal.append(lease, [("prompt", [b'[{"type":"text","text":"Said here."}]'])])
        await journal.append(lease, [("turn_end", [b'{"stopReason":"end_turn"}'])])
        await journal.release(lease)
    transcript = Transcript("Where is the needle?")
    transcript.assistant("In the haystack.")
    transcript.user("And the thread?")
    transcript.write(tmp_path / "home")
    assert await offer.run() == ""
    assert await offer.left() == {"claude": {"different here, left as they are": 1}}


async def test_where_somebody_else_was_first_nothing_is_imported_again(
    offer: ImportOffer, acphold: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert acphold.run("import").code == 0
    monkeypatch.delattr(importable, "run_beside")  # no process is started
    assert await offer.run() == ""


async def test_agents_that_the_settings_leave_out_are_not_offered(
    offer: ImportOffer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = tmp_path / "settings.toml"
    settings.write_text('[agents.claude]\ncommand = ["claude"]\nno_import = true\n')
    monkeypatch.setenv("ACPHOLD_SETTINGS", str(settings))
    assert await offer.find() == ({}, True)


async def test_an_import_that_fails_says_why(
    acphold: CommandLine, offer: ImportOffer, monkeypatch: pytest.MonkeyPatch
) -> None:
    acphold.journal.write_text("no journal")
    assert "journal" in await offer.run()
