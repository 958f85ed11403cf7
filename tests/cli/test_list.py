"""`acphold list`: the sessions of the journal, newest first."""

from __future__ import annotations

import asyncio
import io
import json
import sys
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from subprocess import run

import pytest

from acphold.conversation.history.entries import now_ms
from acphold.faces.cli.list import print_list
from acphold.faces.cli.list_table import COLUMNS, IF_ANY, Table, fit_columns, style_cell
from acphold.faces.cli.terminal_text import STYLES, day
from acphold.journal.rows import NewSession, RowChange
from acphold.journal.stores import open_journal
from acphold.live.reading.bounds import SAME_WORDS
from acphold.live.reading.listed_sessions import Wanted
from acphold.live.reading.local_reader import LocalReader, session_pages
from tests.cli.command_line import CommandLine
from tests.cli.conversation import remember
from tests.raw_entries import CONVERSATION, ended, prompt, said

YEAR_2026 = 1_767_225_600_000
HOUR = 3_600_000


@pytest.fixture
def three(journal: Path) -> Path:
    """A journal with three sessions, of which the second is the newest by far."""
    remember(journal, "aaaaaaaa-1", *CONVERSATION, title="First", at=YEAR_2026)
    remember(journal, "aaaaaaaa-2", prompt("x"), title="Second", cwd="/else", at=YEAR_2026 + HOUR)
    remember(journal, "cccccccc-3", agent="other", at=YEAR_2026 + HOUR // 2)
    return journal


def listed(acphold: CommandLine, *options: str) -> list[str]:
    lines = acphold.run("list", "--json", *options).out.splitlines()
    return [json.loads(line)["sessionId"] for line in lines]


@pytest.mark.usefixtures("three")
def test_the_newest_comes_first_and_what_was_never_prompted_only_with_all(
    acphold: CommandLine,
) -> None:
    assert listed(acphold) == ["aaaaaaaa-2", "aaaaaaaa-1"]
    assert listed(acphold, "--all") == ["aaaaaaaa-2", "cccccccc-3", "aaaaaaaa-1"]


@pytest.mark.usefixtures("three")
def test_filters_and_the_limit_narrow_the_list(acphold: CommandLine) -> None:
    assert listed(acphold, "--cwd", "/else/") == ["aaaaaaaa-2"]
    assert listed(acphold, "--agent", "other", "--all") == ["cccccccc-3"]
    assert listed(acphold, "--limit", "1") == ["aaaaaaaa-2"]
    assert listed(acphold, "--since", "2025-12-01") == ["aaaaaaaa-2", "aaaaaaaa-1"]
    since = datetime.fromtimestamp((YEAR_2026 + HOUR // 2) / 1000).isoformat()
    assert listed(acphold, "--since", since) == ["aaaaaaaa-2"]
    assert listed(acphold, "--live") == []
    assert "No sessions that are running, waiting or idle" in acphold.run("list", "--live").err


@pytest.mark.usefixtures("three")
def test_words_narrow_the_list_by_title_agent_and_folder(acphold: CommandLine) -> None:
    assert listed(acphold, "FIR") == ["aaaaaaaa-1"]
    assert listed(acphold, "else") == ["aaaaaaaa-2"]
    assert listed(acphold, "scripted", "st") == listed(acphold, "st scripted") == ["aaaaaaaa-1"]
    assert listed(acphold, "scripted", "--limit", "1") == ["aaaaaaaa-2"]
    nothing = acphold.run("list", "quince", "quux")
    assert (nothing.code, nothing.out) == (0, "")
    assert "No sessions with quince quux." in nothing.err


@pytest.mark.usefixtures("three")
@pytest.mark.parametrize("words", [["list"], ["list", "--json"], ["search", "hello"], ["usage"]])
def test_the_name_of_no_agent_is_refused_with_those_that_are_here(
    acphold: CommandLine, words: list[str]
) -> None:
    done = acphold.run(*words, "--agent", "cluade")
    assert (done.code, done.out) == (2, "")
    told = "no agent 'cluade' (`claude`?); conversations here are with other, scripted"
    assert told in done.err
    assert acphold.run(*words, "--agent", "claude").code == 0  # nothing of it is here


def test_words_of_a_list_are_looked_for_in_the_last_words_then_in_the_text(
    acphold: CommandLine, journal: Path
) -> None:
    for name, words in (("first", "The parser works."), ("second", "It was the cache.")):
        asked = prompt(f"Find the {name} fault")
        remember(journal, f"{name}-1", asked, said(words), ended(), title=f"Title {name}")
    assert listed(acphold, "cache") == ["second-1"]
    assert listed(acphold, "title", "cach") == ["second-1"]
    done = acphold.run("list", "fault", "second")
    assert done.err == "No title or last words have all of these, but conversations do:\n"
    assert "Title second" in done.out
    assert "Title first" not in done.out
    done = acphold.run("list", "cache", "quux")
    assert done.err == "Nothing has “quux”; 1 conversation with the others:\n"
    assert "Title second" in done.out
    assert listed(acphold, "fault", "second") == []  # a program gets what it asked for
    done = acphold.run("list", "#fault")
    assert done.err == "No session has the tag #fault; found in conversations:\n"


def test_on_a_terminal_a_list_of_words_counts_the_conversations_that_only_say_them(
    acphold: CommandLine, journal: Path
) -> None:
    for name, words in (("first", "It was the parser."), ("second", "The parser, and latex.")):
        asked = prompt("Find the latex fault")
        remember(journal, f"{name}-1", asked, said(words), ended(), title=f"Title {name}")
    shown = acphold.shown("list", "latex").plain
    assert "Title second" in shown
    assert "Title first" not in shown
    assert "1 more conversation says this: acphold search latex" in shown
    assert "more" not in acphold.shown("list", "parser").plain


def test_on_a_terminal_the_days_stand_above_their_sessions(
    acphold: CommandLine, journal: Path
) -> None:
    now = now_ms()
    remember(journal, "a-1", prompt("x"), title="of now", at=now)
    assert acphold.shown("list", columns=80).plain.splitlines()[1].startswith("of now")
    remember(journal, "b-1", prompt("x"), title="of the year before", at=now - 400 * 24 * HOUR)
    shown = acphold.shown("list", columns=80).plain.splitlines()
    assert [line.split("  ")[0] for line in shown[1:3]] == ["today", "of now"]
    assert shown[4].strip() == day(now - 400 * 24 * HOUR, now)
    assert shown[5].startswith("of the year before")


def test_sessions_of_programs_are_counted_on_a_terminal_and_found_by_words(
    acphold: CommandLine, journal: Path
) -> None:
    at = now_ms() - HOUR
    remember(journal, "m-1", prompt("x"), title="Mine", at=at)
    for number in range(SAME_WORDS):  # of one prompt each
        remember(journal, f"s-{number}", prompt("Look"), title="Look at the log", at=at)
    for number in range(SAME_WORDS - 1):
        remember(journal, f"t-{number}", prompt("Twice"), title="Said three times", at=at)
    shown = acphold.shown("list").plain
    assert shown.count("Said three times") == SAME_WORDS - 1
    assert "Look" not in shown
    assert f"{SAME_WORDS} by programs; --all shows them, and words find them" in shown
    assert acphold.shown("list", "log").plain.count("Look at the log") == SAME_WORDS
    assert acphold.shown("list", "--all").plain.count("Look at the log") == SAME_WORDS
    lines = acphold.run("list", "--json").out.splitlines()
    by_program = {it["title"] for it in map(json.loads, lines) if it["byProgram"]}
    assert (len(lines), by_program) == (2 * SAME_WORDS, {"Look at the log"})
    copied = acphold.run("continue", "t-0", "--with", "demo").out.strip()
    lines = acphold.run("list", "--json").out.splitlines()
    listed = {it["sessionId"]: it["byProgram"] for it in map(json.loads, lines)}
    assert not listed[copied] | listed["t-1"]  # a person copied it
    acphold.run("session", "delete", "--yes", copied)
    acphold.run("session", "pin", "s-0")
    shown = acphold.shown("list").plain
    assert shown.count("Look at the log") == SAME_WORDS  # three have them now


def test_sessions_of_programs_are_listed_if_there_are_no_others(
    acphold: CommandLine, journal: Path
) -> None:
    for number in range(SAME_WORDS):
        remember(journal, f"s-{number}", prompt("Look"), title="Look at the log")
    shown = acphold.shown("list").plain
    assert shown.count("Look at the log") == SAME_WORDS
    assert "by programs" not in shown


@pytest.mark.usefixtures("three")
def test_that_nothing_is_archived_is_said_where_the_archive_is_asked_for(
    acphold: CommandLine,
) -> None:
    none = acphold.run("list", "--archived").err
    assert none.startswith("No sessions that are archived.")
    acphold.run("session", "archive", "aaaaaaaa-1")
    assert "First" in acphold.run("list", "--archived").out


def test_a_work_tree_is_no_project_of_its_own(
    acphold: CommandLine, journal: Path, tmp_path: Path
) -> None:
    shop, tree = tmp_path / "shop", tmp_path / "shop-copy"
    run(["git", "init", "-q", shop], check=True)
    author = ("-c", "user.name=Ada", "-c", "user.email=ada@example.com")
    run(["git", "-C", shop, *author, "commit", "-q", "--allow-empty", "-m", "x"], check=True)
    run(["git", "-C", shop, "worktree", "add", "-q", "--detach", tree], check=True)
    for folder in (shop, tree, tmp_path):
        remember(journal, folder.name, prompt("x"), title=folder.name, cwd=str(folder))
    lines = map(json.loads, acphold.run("list", "--json").out.splitlines())
    projects = {line["title"]: line.get("project") for line in lines}
    assert projects == {"shop": None, "shop-copy": str(shop), tmp_path.name: None}


def test_days_are_named_as_people_do() -> None:
    now = round(datetime(2026, 11, 21, 12).timestamp() * 1000)
    ages = [0, 1, 2, 6, 7, 300]
    names = ["today", "yesterday", "Thursday", "Sunday", "November 2026", "January 2026"]
    assert [day(now - age * 24 * HOUR, now) for age in ages] == names


@pytest.mark.usefixtures("three")
def test_json_has_exactly_the_documented_facts(acphold: CommandLine) -> None:
    line = acphold.run("list", "--json").out.splitlines()[1]
    assert json.loads(line) == {
        "sessionId": "aaaaaaaa-1",
        "agent": "scripted",
        "agentName": "scripted",
        "cwd": "/home/me",
        "title": "First",
        "createdAt": "2026-01-01T00:00:00.000Z",
        "updatedAt": "2026-01-01T00:00:00.000Z",
        "messageCount": 3,
        "outcome": "completed",
        "unseen": False,
        "unread": False,
        "archived": False,
        "tags": [],
        "byProgram": False,
        "origins": [],
        "unstarted": True,
        "movedTo": None,
        "queued": 0,
        "held": None,
        "heldUntil": None,
        "ruled": 0,
        "files": None,
        "live": None,
        "pinned": False,
    }


async def test_a_turn_that_was_cut_off_says_so_until_its_session_is_opened(
    acphold: CommandLine, journal: Path
) -> None:
    kept = open_journal(journal)
    lease = await kept.create(NewSession("a-1", "scripted", "/home/me"))
    kind, raw = prompt("x")
    await kept.append(lease, [(kind, [raw])])
    await kept.change(lease, RowChange(prompted=True))
    assert "interrupted" not in (await asyncio.to_thread(acphold.run_as_process, "list")).out
    await kept.aclose()  # as if it was killed: nothing has ended the turn
    assert "interrupted" in (await asyncio.to_thread(acphold.run, "list")).out
    kept = open_journal(journal)
    lease = await kept.acquire("a-1")
    kind, raw = ended(interrupted=True)
    await kept.append(lease, [(kind, [raw])])
    await kept.aclose()
    assert "interrupted" not in (await asyncio.to_thread(acphold.run, "list")).out


def test_a_turn_that_was_cancelled_says_so_until_somebody_has_seen_it(
    acphold: CommandLine, journal: Path
) -> None:
    remember(journal, "a-1", prompt("x"), ended(stopReason="cancelled"), title="Stopped")
    assert "cancelled" not in acphold.run("list").out
    mark_unseen(journal, "a-1")
    remember(journal, "a-2", prompt("x"), ended(), title="Completed")
    mark_unseen(journal, "a-2")
    _, completed, stopped = acphold.run("list").out.splitlines()
    assert "cancelled" in stopped
    assert "completed" not in completed


def mark_unseen(journal: Path, session_id: str) -> None:
    """Nobody had the session open when its last turn ended."""

    async def mark() -> None:
        kept = open_journal(journal)
        await kept.change(session_id, RowChange(unseen=True))
        await kept.aclose()

    asyncio.run(mark())


@pytest.mark.usefixtures("three")
def test_without_a_terminal_the_table_is_aligned_and_plain(acphold: CommandLine) -> None:
    heading, second, first = acphold.run("list").out.splitlines()
    assert heading.split() == [item.heading for item in COLUMNS if item.heading not in IF_ANY]
    assert second.index("Second") == first.index("First") == heading.index("TITLE") == 0
    assert second.index("/else") == first.index("/home/me") == heading.index("FOLDER")


@pytest.mark.usefixtures("three")
def test_the_ids_shown_are_the_shortest_that_fit_one_session_only(acphold: CommandLine) -> None:
    heading, *lines = acphold.run("list", "--all").out.splitlines()
    assert [line[heading.index("ID") :].split()[0] for line in lines] == [
        "aaaaaaaa-2",
        "cccccc",
        "aaaaaaaa-1",
    ]


@pytest.mark.usefixtures("three")
@pytest.mark.parametrize("columns", [40, 60, 80, 120])
def test_on_a_terminal_the_table_fits_and_begins_with_the_title(
    acphold: CommandLine, columns: int
) -> None:
    shown = acphold.shown("list", columns=columns)
    assert "\x1b[36maaaaaaaa-2" in shown.out
    heading, second, below, first, _ = shown.plain.splitlines()
    assert heading.split()[:4] == ["TITLE", "ID", "AGE", "FOLDER"]
    assert (second.split()[0], first.split()[0]) == ("Second", "First")
    assert below == "  x"
    assert max(map(len, shown.plain.splitlines())) <= columns


async def test_last_words_are_read_of_what_a_terminal_shows_and_of_nothing_else(
    acphold: CommandLine, journal: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(7):
        await asyncio.to_thread(remember, journal, f"s-{number}", *CONVERSATION, at=number)
    asked: list[str] = []

    class Counted(LocalReader):
        async def endings(self, session_ids: Sequence[str]) -> dict[str, str]:
            asked.extend(session_ids)
            return await super().endings(session_ids)

    class OnTerminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    kept = open_journal(journal)
    try:
        monkeypatch.setattr(sys, "stdout", io.StringIO())
        await print_list(Counted(kept), Wanted(), None)
        assert [len(page) async for page in session_pages(Counted(kept), Wanted())] == [7]
        assert asked == []
        monkeypatch.setattr(sys, "stdout", shown := OnTerminal())
        await print_list(Counted(kept), Wanted(), 3)
    finally:
        await kept.aclose()
    assert asked == ["s-6", "s-5", "s-4"]
    assert shown.getvalue().count("  Done.") == 3


@pytest.mark.usefixtures("three")
def test_a_list_that_was_cut_says_so(acphold: CommandLine) -> None:
    done = acphold.run("list", "--limit", "1")
    assert done.err == "1 of 2 shown; --all, or acphold to pick\n"
    told = acphold.shown("list", "--all").plain.splitlines()
    assert len([line for line in told if not line.startswith(" ")]) == 4


ROW = [
    "A title of some length",
    "3f9a",
    "",
    "3m",
    "acphold",
    "an-agent-of-some-length",
    "7",
    "",
    "",
]


def test_a_narrow_terminal_has_less_columns_and_then_shorter_titles() -> None:
    title, short, _, age, folder, *_ = ROW
    assert fit_columns([ROW], 100)[1] == [title, short, age, folder, "an-agent-of-some-…", "7"]
    assert fit_columns([ROW], 60) == [["TITLE", "ID", "AGE", "FOLDER"], [title, short, age, folder]]
    assert fit_columns([ROW], 40)[1] == ["A title of some le…", short, age, folder]
    assert fit_columns([ROW], 10)[1][0] == "A title of…"


def test_the_state_of_sessions_has_a_column_when_one_is_live() -> None:
    live = [*ROW[:2], "running (2)", *ROW[3:]]
    headings, *rows = fit_columns([ROW, live], 60)
    assert headings == ["TITLE", "ID", "STATE", "AGE", "FOLDER"]
    assert [row[2] for row in rows] == ["", "running (2)"]


def test_a_title_is_not_cut_for_a_long_folder_or_agent() -> None:
    long = ["Make the greeting friendlier, please", *ROW[1:4], "acphold-project-of-mine", *ROW[5:]]
    title, *_, folder, agent = fit_columns([long], 80)[1]
    assert title == "Make the greeting friendlier, p…"
    assert (folder, agent) == ("acphold-project…", "an-agent-of-som…")


def test_a_session_that_waits_is_told_from_one_that_runs_without_colours_too() -> None:
    state = next(column for column in COLUMNS if column.heading == "STATE")
    shown = {words: [*style_cell(f"{words}  ", state)] for words in ("waiting (2)", "running")}
    assert shown == {
        "waiting (2)": [("waiting (2)", "waits"), ("    ", "")],
        "running": [("running", "busy"), ("    ", "")],
    }
    assert "reverse" in STYLES["waits"]


def test_on_a_terminal_a_folder_is_its_last_name(acphold: CommandLine, journal: Path) -> None:
    remember(journal, "s", prompt("x"), cwd="/a/very/long/folder/name/project")
    assert acphold.shown("list", columns=60).plain.splitlines()[1].split()[-1] == "project"
    assert "/a/very/long/folder/name/project" in acphold.run("list").out


async def test_a_journal_without_sessions_says_how_to_begin(
    acphold: CommandLine, journal: Path
) -> None:
    kept = open_journal(journal)
    await kept.delete(await kept.create(NewSession("s", "scripted", "/")))
    await kept.aclose()
    done = await asyncio.to_thread(acphold.run, "list")
    assert done.err == "Nothing here yet: acphold import, or acphold setup.\n"


def test_a_long_list_is_written_in_large_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    # PYTHONUNBUFFERED, as in many images of containers, makes each a system call.
    class Counted(io.StringIO):
        pieces = 0

        def write(self, text: str) -> int:
            self.pieces += 1
            return super().write(text)

    monkeypatch.setattr(sys, "stdout", out := Counted())
    table = Table()
    table.add(*(["x", str(number), *("" for _ in COLUMNS[2:])] for number in range(2_000)))
    table.print()

    assert len(out.getvalue().splitlines()) == 2_001
    assert out.pieces < 10
