"""What agents' own programs add to conversations that were imported is here by itself."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sqlite3
import subprocess
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from acp_wire.tasks import beside
from acphold.faces.cli import agents_watch
from acphold.faces.cli.background_import import growth, memory_file
from acphold.imports import Home, ImportMemory
from acphold.imports.intake import Intake, TakenSource
from acphold.imports.readers import Reader
from acphold.imports.sources import Source
from acphold.journal.stores import journal_name, open_journal
from acphold.journal_location import VARIABLE
from tests.cli.command_line import ACPHOLD, CommandLine
from tests.imports.claude_home import Transcript
from tests.plugin import Until

pytestmark = pytest.mark.slow

SECONDS = 30.0

CURRENT_SECONDS = 5.0
"""What goes on elsewhere is current here within this time, while a daemon or a page runs."""


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's home, with nothing of ours in it."""
    (folder := tmp_path / "home").mkdir()
    monkeypatch.setenv("HOME", str(folder))
    for name in ("CLAUDE_CONFIG_DIR", "XDG_DATA_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    return folder


def conversation(number: int, words: str) -> Transcript:
    transcript = Transcript(words)
    transcript.assistant(f"The answer to {words}")
    for record in transcript.records:
        record["sessionId"] = named(number)
    return transcript


def named(number: int) -> str:
    return str(UUID(int=number << 96 | 0x4000 << 64 | 8 << 60))


def listed(acphold: CommandLine) -> dict[str, dict[str, object]]:
    lines = acphold.run("list", "--json").out.splitlines()
    assert len({json.loads(line)["sessionId"] for line in lines}) == len(lines)
    return {json.loads(line)["sessionId"]: json.loads(line) for line in lines}


def go_on(home: Path, transcript: Transcript, number: int, words: str) -> None:
    """Claude Code adds a turn to the end of the file."""
    transcript.user(words)
    transcript.assistant(f"The answer to {words}")
    for record in transcript.records:
        record["sessionId"] = named(number)
    transcript.write(home, named(number))


def test_a_command_lists_what_began_in_an_agents_own_program_and_has_it_read(
    acphold: CommandLine, home: Path, until: Until
) -> None:
    conversation(1, "Where is the needle?").write(home, named(1))
    assert "new 1" in acphold.run("import").out
    conversation(2, "And the thread?").write(home, named(2))
    assert listed(acphold)[named(2)]["title"] == "And the thread?"
    until(lambda: "The answer to And" in acphold.run("search", "thread").out, SECONDS)
    assert set(listed(acphold)) == {named(1), named(2)}


def test_a_conversation_that_goes_on_is_read_up_to_where_it_is_and_moves_up(
    acphold: CommandLine, home: Path, until: Until
) -> None:
    first = conversation(1, "Where is the needle?")
    first.write(home, named(1))
    conversation(2, "And the thread?").write(home, named(2))
    acphold.run("import")
    first.user("Is there an unfinished turn?")
    for record in first.records:
        record["sessionId"] = named(1)
    first.write(home, named(1))
    assert next(iter(listed(acphold))) == named(1)
    until(lambda: "unfinished" in acphold.run("show", named(1)).out, SECONDS)
    first.assistant("Now it is finished.")
    for record in first.records:
        record["sessionId"] = named(1)
    first.write(home, named(1))
    until(lambda: "Now it is finished" in acphold.run("show", named(1)).out, SECONDS)
    assert acphold.run("show", named(1)).out.count("unfinished") == 1


def test_nothing_is_read_before_an_import_or_with_no_import_in_the_settings(
    acphold: CommandLine, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    conversation(1, "Where is the needle?").write(home, named(1))
    acphold.run("import", "--from", str(home))
    conversation(2, "And the thread?").write(home, named(2))
    assert set(listed(acphold)) == {named(1)}
    acphold.run("import")
    conversation(3, "And the button?").write(home, named(3))
    settings = tmp_path / "settings.toml"
    monkeypatch.setenv("ACPHOLD_SETTINGS", str(settings))
    for text in ("[defaults]\nno_import = true\n", "[agents.claude]\nno_import = true\n"):
        settings.write_text(text)
        assert set(listed(acphold)) == {named(1), named(2)}
    settings.write_text("")
    assert set(listed(acphold)) == {named(1), named(2), named(3)}


def test_what_is_deleted_here_stays_deleted_when_it_goes_on(
    acphold: CommandLine, home: Path, until: Until
) -> None:
    first = conversation(1, "Where is the needle?")
    first.write(home, named(1))
    acphold.run("import")
    assert acphold.run("session", "delete", "--yes", named(1)).code == 0
    go_on(home, first, 1, "Still there?")
    conversation(2, "And the thread?").write(home, named(2))
    listed(acphold)
    until(lambda: "The answer to And" in acphold.run("search", "thread").out, SECONDS)
    assert set(listed(acphold)) == {named(2)}


def test_secrets_stay_out_if_the_import_left_them_out(
    acphold: CommandLine, home: Path, until: Until
) -> None:
    first = conversation(1, "Where is the needle?")
    first.write(home, named(1))
    acphold.run("import", "--redact")
    go_on(home, first, 1, "The key is AKIAIOSFODNN7ABCDEFG.")
    conversation(2, "Another is AKIAIOSFODNN7ABCDEFG.").write(home, named(2))
    assert "AKIA" not in acphold.run("list").out
    until(lambda: "removed: API key" in acphold.run("show", named(1)).out, SECONDS)
    until(lambda: "removed: API key" in acphold.run("show", named(2)).out, SECONDS)


def test_a_look_at_3000_unchanged_conversations_takes_little_and_starts_nothing(
    acphold: CommandLine, home: Path, tmp_path: Path
) -> None:
    folder = home / ".claude/projects"
    for number in range(3000):
        path = folder / f"p{number % 60}" / f"{named(number + 1)}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"{}\n")
    memory = ImportMemory(Home(home, dict(os.environ)), ["claude"], since=0, redact=False)
    memory.keep(memory_file(str(acphold.journal)))
    times = []
    for _ in range(5):
        began = time.process_time()
        assert not growth(str(acphold.journal))
        times.append(time.process_time() - began)
    assert min(times) < 0.2


def test_of_an_agents_conversations_only_those_that_have_grown_are_read_again(
    acphold: CommandLine, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    transcripts = [conversation(number, "Where is the needle?") for number in (1, 2)]
    for number, transcript in enumerate(transcripts, 1):
        transcript.write(home, named(number))
    acphold.run("import")
    go_on(home, transcripts[1], 2, "And the thread?")
    read: list[str] = []
    take = Intake.take

    async def noted(self: Intake, source: Source, reader: Reader, **how: Any) -> TakenSource:
        read.append(source.downstream_id)
        return await take(self, source, reader, **how)

    monkeypatch.setattr(Intake, "take", noted)

    async def grow() -> None:
        journal = open_journal(acphold.journal)
        found = growth(str(acphold.journal))
        assert found
        await found.take(journal)
        await journal.aclose()

    asyncio.run(grow())
    assert read == [named(2)]


@pytest.fixture
def serving(acphold: CommandLine, home: Path) -> Iterator[subprocess.Popen[bytes]]:
    conversation(1, "Where is the needle?").write(home, named(1))
    acphold.run("import")
    command = [*ACPHOLD, "serve", "--listen", "127.0.0.1:0", "--json", "--", "cat"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=acphold.environment) as process:
        try:
            assert process.stdout is not None
            assert b"url" in process.stdout.readline()
            yield process
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(SECONDS)


def test_a_server_reads_what_grows_while_nobody_asks(
    acphold: CommandLine,
    home: Path,
    serving: subprocess.Popen[bytes],
    until: Until,
) -> None:
    first = conversation(3, "Does it watch?")
    first.write(home, named(3))
    until(lambda: count(acphold.journal, named(3)) == 2, SECONDS)
    for messages, words in ((4, "Still?"), (6, "And once more?")):
        until(lambda: not growth(str(acphold.journal)), SECONDS)
        go_on(home, first, 3, words)
        until(partial(has, acphold.journal, named(3), messages), CURRENT_SECONDS)


async def test_the_watch_knows_a_database_by_the_name_that_an_import_knows_it_by(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PGPASSWORD", "")
    monkeypatch.setenv(VARIABLE, "postgresql://me:secret@127.0.0.1/acphold")
    looked_at = asyncio.get_running_loop().create_future()
    monkeypatch.setattr(agents_watch, "growth", looked_at.set_result)
    async with asyncio.timeout(SECONDS), beside(agents_watch.watch_agents(), "watch agents"):
        assert await looked_at == "postgresql://me@127.0.0.1/acphold" == journal_name()


def has(journal: Path, session_id: str, messages: int) -> bool:
    return count(journal, session_id) == messages


def count(journal: Path, session_id: str) -> int:
    """The messages that the journal has by itself, without a command that would look around."""
    with sqlite3.connect(f"file:{journal}?mode=ro", uri=True) as opened:
        rows = opened.execute(
            "SELECT message_count FROM sessions WHERE session_id = ?", (session_id,)
        ).fetchall()
    return rows[0][0] if rows else 0
