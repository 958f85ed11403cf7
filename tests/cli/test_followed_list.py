"""`acphold list --follow` prints changes as they happen, whichever process makes them."""

from __future__ import annotations

import asyncio
import io
import json
import subprocess
import sys
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from subprocess import PIPE
from typing import Final

import pytest
from msgspec.structs import replace

import acphold
from acphold.faces.cli.followed_list import AsJson, AsWords, follow_list
from acphold.journal.rows import ListFilter, SessionRow
from acphold.journal.stores import open_journal
from acphold.live.reading.listed_sessions import ListedSession, News, SessionPage, Wanted
from acphold.live.reading.local_reader import LocalReader, as_listed
from acphold.live.reading.processes import Live, LiveSession, Process
from tests.cli.conversation import remember
from tests.raw_entries import ended, prompt, update

ACPHOLD = (sys.executable, "-m", "acphold")
DEADLINE = 60
ENDED: Final = "completed"


@asynccontextmanager
async def following(journal: Path, *options: str) -> AsyncIterator[asyncio.StreamReader]:
    """Run `list --follow` for the block; yields its output."""
    words = (*ACPHOLD, "list", "--follow", *options, "--journal", str(journal))
    process = await asyncio.create_subprocess_exec(*words, stdout=PIPE)
    assert process.stdout is not None
    try:
        async with asyncio.timeout(DEADLINE):
            yield process.stdout
    finally:
        process.terminate()
        await process.wait()


async def test_each_change_is_a_line_until_its_process_is_gone(
    journal: Path, tmp_path: Path
) -> None:
    await asyncio.to_thread(remember, journal, "before", prompt("Before"), ended())
    async with following(journal, "--json") as lines:
        first = json.loads(await lines.readline())
        assert [row["sessionId"] for row in first["sessions"]] == ["before"]
        agent = (*ACPHOLD, "wrap", "--journal", str(journal), "--", *ACPHOLD, "agent", "demo")
        async with acphold.connect(*agent) as editor:
            session = await editor.new_session(cwd=tmp_path)
            await session.prompt("quick: hello")
            _turn = session.prompt("slow")
            while True:
                row = json.loads(await lines.readline())["session"]
                assert row["sessionId"] == session.id
                if (row["live"] or {}).get("state") == "running" and row["outcome"] is None:
                    break
            session.cancel()
        stopped = [*ACPHOLD, "agent", "stop", "--all", "--yes"]  # else it stays for the next editor
        await asyncio.to_thread(subprocess.run, stopped, check=True, capture_output=True)
        while (row := json.loads(await lines.readline())["session"])["live"] is not None:
            pass
        assert row["outcome"] == "cancelled"


async def test_people_are_told_in_words_behind_the_list_of_what_ends_with_the_words_too(
    journal: Path,
) -> None:
    said = update("agent_message_chunk", content={"type": "text", "text": "A needle, here."})
    await asyncio.to_thread(remember, journal, "aaaaaaaa-1", prompt("x"), said, title="Old")
    await asyncio.to_thread(remember, journal, "other", prompt("Other"), ended(), title="Other")
    async with following(journal, "needle") as lines:
        assert b"TITLE" in await lines.readline()
        assert b"Old" in await lines.readline()
        turn = prompt("New"), said, ended()
        await asyncio.to_thread(remember, journal, "bbbbbbbb-2", *turn, title="New")
        while b"completed" not in (line := await lines.readline()):
            assert b"Other" not in line
        assert line.split()[1:4] == [b"completed", b"bbbbbbbb", b"New"]


def a_row(title: str = "T", *, archived: bool = False) -> SessionRow:
    return SessionRow("s1", "agent", "/w", (), title, 0, 0, 1, True, 2, archived)


def live(*, running: bool = False, waiting: bool = False) -> Live:
    session = LiveSession("s1", 1, running, waiting)
    return {"s1": (session, Process(1, "agent", [session]))}


def said(out: io.StringIO) -> list[str]:
    """The lines printed since the last call, without their times."""
    lines = [line[10:] for line in out.getvalue().splitlines()]
    out.seek(0)
    out.truncate()
    return lines


def test_a_line_says_what_has_become_of_a_session_and_nothing_twice() -> None:
    out = io.StringIO()
    tell = AsWords(Wanted(), out)
    tell(News([as_listed(a_row(), {}, {"s1": ENDED})], is_all=True))
    assert said(out) == []
    tell(News([as_listed(a_row(), live(running=True), {"s1": None})]))
    tell(News([as_listed(a_row(), live(running=True), {"s1": None})]))
    tell(News([as_listed(a_row(), live(running=True, waiting=True), {"s1": None})]))
    tell(News([as_listed(a_row(), {}, {"s1": None})]))
    tell(News([as_listed(a_row(title="a\x1b[2J"), {}, {"s1": ENDED})]))
    tell(News([as_listed(a_row(archived=True), {}, {"s1": ENDED})]))
    tell(News([], ["s1", "never seen"]))
    assert [line.split()[0] for line in said(out)] == [
        "running",
        "waiting",
        "interrupted",
        "completed",
        "archived",
    ]


@pytest.mark.parametrize("columns", [80, 120])
def test_a_line_fits_a_terminal_and_its_title_has_most_of_it(
    columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = io.StringIO()
    monkeypatch.setattr(out, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", str(columns))
    tell = AsWords(Wanted(), out)
    tell(News([], is_all=True))
    row = replace(a_row("Long " * 40), cwd="/far/away/work/" + "deep/" * 20 + "project")
    tell(News([as_listed(row, {}, {"s1": ENDED})]))
    [line] = out.getvalue().splitlines()
    assert len(line) == columns - 1
    assert line.count("Long") >= columns // 16
    assert line.endswith("…  agent in project")


@pytest.mark.parametrize(
    "wanted",
    [
        Wanted(words=("apples",)),
        Wanted(ListFilter(agents=("other",))),
        Wanted(only_live=True),
    ],
)
def test_what_is_not_asked_for_is_not_told(wanted: Wanted) -> None:
    out = io.StringIO()
    tell = AsJson(wanted, out)
    tell(News([as_listed(a_row(), {}, {})], is_all=True))
    tell(News([as_listed(a_row(title="Other"), {}, {})], ["s9"]))
    assert out.getvalue() == '{"sessions":[]}\n'


def test_what_is_asked_for_no_longer_is_gone() -> None:
    out = io.StringIO()
    tell = AsJson(Wanted(only_live=True), out)
    tell(News([as_listed(a_row(), live(), {})], is_all=True))
    tell(News([as_listed(a_row(), {}, {})]))
    assert json.loads(out.getvalue().splitlines()[-1]) == {"gone": "s1"}


async def test_a_list_after_a_restart_asks_for_pages_until_all_that_it_lacks_is_found(
    journal: Path,
) -> None:
    def row(session_id: str) -> ListedSession:
        return as_listed(SessionRow(session_id, "agent", "/w", (), "T", 0, 0, 1, True, 2), {}, {})

    class Restarted(LocalReader):
        pages = 0

        async def changes(self, *_: object, **__: object) -> AsyncGenerator[News, None]:
            yield News([row("s1")], is_all=True)
            yield News([row("s2")], is_all=True)

        async def page(self, *_: object) -> SessionPage:
            self.pages += 1
            return SessionPage([row(f"s{3 - self.pages}")], "more" if self.pages < 9 else None)

    kept = open_journal(journal)
    told: list[News] = []
    try:
        reader = Restarted(kept)
        await follow_list(reader, told.append)
    finally:
        await kept.aclose()
    assert reader.pages == 2
    assert told[-1] == News([row("s1")], [])
