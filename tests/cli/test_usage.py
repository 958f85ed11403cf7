"""`acphold usage`: tokens and cost, as agents reported them."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from acphold.conversation.history.entries import PastEntry
from acphold.journal.rows import NewSession, RowChange
from acphold.journal.stores import open_journal
from tests.cli.command_line import CommandLine
from tests.raw_entries import Raw, ended, prompt, update

DAY = 24 * 3600 * 1000
YEAR_2026 = 1_767_225_600_000


def turn(total: int | None = None, cost: float | None = None) -> list[Raw]:
    """A turn, with its reported usage."""
    entries = [prompt("x")]
    if cost is not None:
        paid = {"amount": cost, "currency": "USD"}
        entries.append(update("usage_update", used=1, size=2, cost=paid))
    usage = {"totalTokens": total, "inputTokens": 3, "outputTokens": 2}
    entries.append(ended(stopReason="end_turn", **({} if total is None else {"usage": usage})))
    return entries


def remember(journal: Path, session_id: str, agent: str, cwd: str, *days: list[Raw]) -> None:
    """A session with entries of each of these days, from New Year's 2026 on."""
    asyncio.run(_remember(journal, NewSession(session_id, agent, cwd, title="A title"), days))


async def _remember(path: Path, new: NewSession, days: tuple[list[Raw], ...]) -> None:
    journal = open_journal(path)
    lease = await journal.create(new)
    for number, entries in enumerate(days):
        at = YEAR_2026 + number * DAY
        past = [PastEntry(kind, at, raw) for kind, raw in entries]
        await journal.take_in(lease, past, RowChange(updated_at=at, prompted=True))
    await journal.index.catch_up(20)
    await journal.aclose()


@pytest.fixture
def used(journal: Path) -> Path:
    remember(journal, "aaaa-1", "claude", "/w/web", turn(1000, 0.5), turn(500, 0.75))
    remember(journal, "bbbb-2", "claude", "/w/api", turn(200))
    remember(journal, "cccc-3", "codex", "/w/api", turn())
    return journal


def lines(acphold: CommandLine, *options: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in acphold.run("usage", "--json", *options).out.splitlines()]


@pytest.mark.usefixtures("used")
def test_tokens_and_cost_are_added_up_by_agent(acphold: CommandLine) -> None:
    claude, codex = lines(acphold)
    assert claude == {
        "agent": "claude",
        "agentName": "claude",
        "sessions": 2,
        "notReported": 0,
        "totalTokens": 1700,
        "inputTokens": 9,
        "outputTokens": 6,
        "thoughtTokens": None,
        "cachedReadTokens": None,
        "cachedWriteTokens": None,
        "cost": {"USD": 0.75},
    }
    assert (codex["agent"], codex["notReported"]) == ("codex", 1)
    assert (codex["totalTokens"], codex["cost"]) == (None, None)


@pytest.mark.usefixtures("used")
def test_they_are_added_up_by_day_folder_and_session_too(acphold: CommandLine) -> None:
    days = [datetime.fromtimestamp((YEAR_2026 + n * DAY) / 1000).date() for n in (1, 0)]
    assert [
        (line["day"], line["sessions"], line["totalTokens"], line["cost"])
        for line in lines(acphold, "--by", "day")
    ] == [
        (days[0].isoformat(), 1, 500, {"USD": 0.25}),
        (days[1].isoformat(), 3, 1200, {"USD": 0.5}),
    ]
    assert [(line["folder"], line["totalTokens"]) for line in lines(acphold, "--by", "folder")] == [
        ("/w/web", 1500),
        ("/w/api", 200),
    ]
    by_session = lines(acphold, "--by", "session")
    assert [(line["sessionId"], line["title"]) for line in by_session] == [
        ("aaaa-1", "A title"),
        ("cccc-3", "A title"),
        ("bbbb-2", "A title"),
    ]


@pytest.mark.usefixtures("used")
def test_filters_and_the_limit_narrow_it(acphold: CommandLine) -> None:
    assert [line["agent"] for line in lines(acphold, "--agent", "codex")] == ["codex"]
    (line,) = lines(acphold, "--cwd", "/w/web")
    assert line["totalTokens"] == 1500
    (line,) = lines(acphold, "--since", "2026-01-01T18:00+00:00")
    assert (line["sessions"], line["totalTokens"], line["cost"]) == (1, 500, {"USD": 0.25})
    assert len(lines(acphold, "--by", "session", "--limit", "2")) == 2


@pytest.mark.usefixtures("used")
def test_the_table_says_plainly_what_was_not_reported(acphold: CommandLine) -> None:
    table = acphold.run("usage").out.splitlines()
    assert [line.split("  ") and line.split() for line in table] == [
        ["AGENT", "SESSIONS", "NO", "DATA", "TOKENS", "INPUT", "OUTPUT", "CACHED", "COST"],
        ["claude", "2", "0", "1,700", "9", "6", "-", "0.75", "USD"],
        ["codex", "1", "1", "no", "data", "-", "-", "-", "no", "data"],
        ["total", "3", "1", "1,700", "9", "6", "-", "0.75", "USD"],
    ]
    days = acphold.run("usage", "--by", "day").out.splitlines()
    assert days[-1].split()[:2] == ["total", "3"], "no session is counted twice"


@pytest.mark.usefixtures("used")
def test_a_terminal_of_60_columns_has_room_for_it(acphold: CommandLine) -> None:
    shown = acphold.shown("usage", "--by", "session", columns=72).plain.splitlines()
    assert max(map(len, shown)) <= 72
    assert "aaaa-1 A" in shown[1]
    assert "1.5k" in shown[1]


def test_agents_that_tell_only_a_part_are_named(acphold: CommandLine, journal: Path) -> None:
    remember(journal, "s", "goose acp", "/w", turn(9))
    assert "goose reports only the last request" in acphold.run("usage").err


def test_where_nothing_fits_that_is_said(acphold: CommandLine, used: Path) -> None:
    done = acphold.run("usage", "--agent", "gemini")
    assert (done.code, done.out) == (0, "")
    assert "No matching sessions" in done.err
    database = sqlite3.connect(used)
    database.execute("UPDATE sessions SET indexed_through = 0")
    database.commit()
    lagging = "SELECT count(*) FROM sessions WHERE indexed_through < settled_through"
    assert database.execute(lagging).fetchone() == (3,)
    database.close()
    assert lines(acphold)[0]["totalTokens"] == 1700
