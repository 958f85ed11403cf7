"""A newer release beside processes of an older one: it waits for them, and takes nothing away."""

from __future__ import annotations

import asyncio
import sqlite3
import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest

from acphold.journal.sqlite.migrations import VERSION
from tests.cli.command_line import CommandLine, Finished
from tests.cli.test_import_command import home
from tests.editor import Refused, introduced, scripted_agent
from tests.owners import LONE_HUB, lone_command

AGENT = scripted_agent()

NEWER = """
from acphold.journal.sqlite import migrations
last = "meta BLOB NOT NULL DEFAULT x''"
tables = [it.replace(last, f"{last}, later TEXT NOT NULL DEFAULT 'x'") for it in migrations.TABLES]
migrations.TABLES = (*tables, "CREATE TABLE laters (session INTEGER PRIMARY KEY)")
migrations.VERSION += 1
"""
"""The release after this one, with one more table and column."""

NEWER_COMMAND = (sys.executable, "-c", f"{NEWER}\nfrom acphold.__main__ import main\nmain()")


async def newer(journal: Path, *words: str) -> Finished:
    """A command of the newer release."""
    line = CommandLine(journal, command=NEWER_COMMAND)
    return await asyncio.to_thread(line.run_as_process, *words)


def version(journal: Path) -> int:
    with closing(sqlite3.connect(journal)) as database:
        return int(database.execute("PRAGMA user_version").fetchone()[0])


def newer_owner(agent: Sequence[str]) -> list[str]:
    """An agent in a hub of its own, of the newer release."""
    run = f"import runpy; runpy.run_path({LONE_HUB!r}, run_name='__main__')"
    return [sys.executable, "-c", f"{NEWER}\n{run}", "--", *agent]


async def test_an_owner_goes_on_while_commands_of_a_newer_release_read_beside_it(
    journal: Path, tmp_path: Path
) -> None:
    goes_on = tmp_path / "goes on"
    async with introduced(lone_command(AGENT), journal=journal) as client:
        session = await client.new()
        await client.prompt(session, {"say": "an apple"})
        turn = client.begin_prompt(
            session, {"say": "a pear"}, {"until": str(goes_on)}, {"say": "a plum"}
        )
        await client.until_text("pear")
        listed = await newer(journal, "list")
        assert (listed.code, listed.err) == (0, "")
        assert session[:6] in listed.out
        shown = await newer(journal, "show", session)
        assert "an apple" in shown.out
        found = await newer(journal, "search", "apple")
        assert session[:6] in found.out
        told = f"(process {client.process.pid}) is using the journal {journal}"
        for words in (
            ("session", "rename", session, "Another"),
            ("session", "delete", "--yes", session),
            ("import", "--from", home(tmp_path)),
        ):
            done = await newer(journal, *words)
            assert done.code == 4
            assert told in done.err
            assert "once no turn runs there, restart the agent in your editor" in done.err
        assert version(journal) == VERSION
        goes_on.touch()
        assert (await turn)["stopReason"] == "end_turn"
        assert await client.prompt(session, {"say": "a fig"}) == {"stopReason": "end_turn"}
        assert client.text().endswith("a plum" + "a fig")
        assert await client.leave() == 0
    assert (await newer(journal, "session", "rename", session, "Another")).code == 0
    assert version(journal) == VERSION + 1


async def test_an_agent_of_a_newer_release_lists_and_refuses_to_own_until_the_older_has_ended(
    journal: Path,
) -> None:
    async with introduced(lone_command(AGENT), journal=journal) as client:
        session = await client.new()
        await client.prompt(session, {"say": "kept"})
        async with introduced(newer_owner(AGENT), journal=journal) as late:
            assert [it["sessionId"] for it in await late.sessions()] == [session]
            with pytest.raises(Refused, match="stop daemons with `acphold agent stop"):
                await late.new()
            assert await client.prompt(session, {"say": "on"}) == {"stopReason": "end_turn"}
            assert await client.leave() == 0
            await late.load(session)
            assert late.text() == "kepton"
            assert await late.prompt(session, {"say": "!"}) == {"stopReason": "end_turn"}
    assert version(journal) == VERSION + 1


async def test_a_wrap_without_a_session_yet_is_waited_for_as_well(journal: Path) -> None:
    async with introduced(lone_command(AGENT), journal=journal) as client:
        await client.prompt(first := await client.new(), {"say": "kept"})
        assert await client.leave() == 0
    async with introduced(lone_command(AGENT), journal=journal) as client:
        assert len(await client.sessions()) == 1
        done = await newer(journal, "session", "rename", first, "Another")
        assert "restart the agent in your editor" in done.err
        assert await client.prompt(await client.new(), {"say": "on"}) == {"stopReason": "end_turn"}
