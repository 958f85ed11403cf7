"""`acphold search`: finds words and actions of sessions."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import Callable
from contextlib import aclosing
from pathlib import Path

import pytest

from acphold.faces.cli import bounds
from acphold.faces.cli.session_picker import _ReadSessions
from acphold.journal import bounds as journal_bounds
from acphold.journal.sqlite import search_index
from acphold.journal.sqlite.connection import connect
from acphold.journal.stores import open_journal
from acphold.live.reading import bounds as reading_bounds
from acphold.live.reading.local_reader import LocalReader
from tests.cli.command_line import CommandLine
from tests.cli.conversation import remember
from tests.imports.claude_home import Transcript
from tests.raw_entries import CONVERSATION, ended, prompt, said, update

TOOL = update(
    "tool_call",
    toolCallId="t2",
    title="Run \x1b[31mtests",
    status="completed",
    rawOutput="2 flaky \x1b[0mtests",
)

LAGGING = "SELECT count(*) FROM sessions WHERE indexed_through < settled_through"


@pytest.fixture
def talked(journal: Path) -> Path:
    """A journal with two sessions in two folders, the later one with a tool call."""
    remember(journal, "aaaaaaaa-1", *CONVERSATION, title="Greeting", cwd="/home/me/web")
    remember(
        journal,
        "bbbbbbbb-2",
        *(prompt("Find the flaky tests"), TOOL, said("Done: it is the retry."), ended()),
        title="Tests",
        agent="other",
        cwd="/srv/api",
    )
    return journal


def places(acphold: CommandLine, *arguments: str) -> list[str]:
    lines = acphold.run("search", "--json", *arguments).out.splitlines()
    return [json.loads(line)["place"] for line in lines]


@pytest.mark.usefixtures("talked")
def test_hits_stand_under_the_title_of_their_session_with_their_place(acphold: CommandLine) -> None:
    done = acphold.run("search", "flaky", "tests")
    assert (done.code, done.err) == (0, "")
    assert done.out.replace("bbbbbbbb-2@", "bbbbbb@") == (  # that of a server is whole
        "Tests  other in /srv/api\n"
        "  bbbbbb@2  now  tool  Run \\x1b[31mtests\n"
        "    Run tests 2 flaky tests\n"
        "  bbbbbb@1  now  you\n"
        "    Find the flaky tests\n"
    )


@pytest.mark.usefixtures("talked")
def test_a_hits_place_is_what_show_takes(acphold: CommandLine) -> None:
    (place,) = places(acphold, "hello", "--in", "diffs")
    assert "▸ tool: ● Edit hello.py" in acphold.run("show", place).out


@pytest.mark.usefixtures("talked")
def test_json_has_exactly_the_documented_facts(acphold: CommandLine) -> None:
    facts = json.loads(acphold.run("search", "--json", "retry").out)
    assert facts.pop("at").endswith("Z")
    assert facts == {
        "sessionId": "bbbbbbbb-2",
        "seq": 3,
        "place": "bbbbbbbb-2@3",
        "speaker": "agent",
        "user": None,
        "agent": "other",
        "agentName": "other",
        "cwd": "/srv/api",
        "title": "Tests",
        "archived": False,
        "tool": None,
        "excerpt": "Done: it is the retry.",
        "marks": [[16, 21]],
        "missing": [],
        "nowhere": [],
    }


def test_the_prompt_of_a_named_user_is_not_yours(acphold: CommandLine, journal: Path) -> None:
    author = "author", b'{"name":"zed","version":"1","user":"bert"}'
    remember(journal, "s", author, prompt("hello"), ended(), prompt("hello again"), ended())
    found = acphold.run("search", "hello").out
    assert "  s@2  now  bert\n    hello\n" in found
    assert "  s@4  now  you\n    hello again\n" in found
    lines = map(json.loads, acphold.run("search", "--json", "hello").out.splitlines())
    assert [(hit["speaker"], hit["user"]) for hit in lines] == [("user", None), ("user", "bert")]


@pytest.mark.usefixtures("talked")
def test_what_is_archived_is_found_and_marked_so(acphold: CommandLine) -> None:
    acphold.run("session", "archive", "bbbbbb")
    assert acphold.run("search", "retry").out.startswith("(archived) Tests  ")
    assert json.loads(acphold.run("search", "--json", "retry").out)["archived"]


@pytest.mark.usefixtures("talked")
def test_filters_narrow_what_is_found(acphold: CommandLine) -> None:
    assert places(acphold, "done") == ["bbbbbbbb-2@3", "aaaaaaaa-1@9"]
    assert places(acphold, "done", "--cwd", "/srv/api/") == ["bbbbbbbb-2@3"]
    assert places(acphold, "done", "--agent", "scripted") == ["aaaaaaaa-1@9"]
    assert places(acphold, "done", "--limit", "1") == ["bbbbbbbb-2@3"]
    assert places(acphold, "tests", "--in", "tools") == ["bbbbbbbb-2@2"]
    assert places(acphold, "done", "--since", "1h") == ["bbbbbbbb-2@3", "aaaaaaaa-1@9"]
    assert places(acphold, "done", "--since", "9999-01-01") == []
    assert places(acphold, '"it is"') == ["bbbbbbbb-2@3"]
    assert places(acphold, "done", "--rank") == ["aaaaaaaa-1@9", "bbbbbbbb-2@3"]


@pytest.mark.usefixtures("talked")
def test_a_tag_is_told_with_the_command_that_lists_it(acphold: CommandLine) -> None:
    done = acphold.run("search", "#flaky")
    assert "`acphold list '#flaky'` lists by tag.\n" in done.err
    assert "Find the flaky tests" in done.out
    assert "by tag" not in acphold.run("search", "flaky").err


@pytest.mark.usefixtures("talked")
def test_words_that_are_nowhere_are_left_out_and_named(acphold: CommandLine) -> None:
    done = acphold.run("search", "retry", "quux")
    assert done.err == "Nothing has “quux”; 1 conversation with the others:\n"
    assert "  agent\n    Done: it is the retry.\n" in done.out
    facts = json.loads(acphold.run("search", "--json", "retry", "quux").out)
    assert (facts["missing"], facts["nowhere"]) == (["quux"], ["quux"])
    assert facts["marks"]
    none = acphold.run("search", "bar", "quux")
    assert (none.out, none.err) == ("", "No results for bar quux.\n")
    elsewhere = acphold.run("search", "greeting", "retry")
    assert elsewhere.err == "No conversation has all of these words; the best first:\n"
    fewer = acphold.run("search", "find", "flaky", "retry", "greeting").err
    told = "No conversation has all of these words; 1 conversation without “greeting”:\n"
    assert fewer == told
    assert "Greeting  scripted in /home/me/web  without retry\n" in elsewhere.out


def test_the_picker_shows_of_a_conversation_what_its_title_does_not_say(talked: Path) -> None:
    words = prompt("Find the leak"), said("It was a list.")
    remember(talked, "cccccccc-3", *words, title="Find the leak")

    async def search() -> None:
        async with aclosing(open_journal(talked)) as journal:
            source = _ReadSessions(LocalReader(journal))
            (line,), left_out = await source.search("find flaky quux")
            assert (line.session_id, line.excerpt) == ("bbbbbbbb-2", "Find the flaky tests")
            assert left_out == "Nothing has “quux”; 1 conversation with the others"
            (line,), _ = await source.search("find leak")
            assert (line.excerpt, line.seq, line.said) == ("", 0, None)

    asyncio.run(search())


@pytest.mark.usefixtures("talked")
def test_a_person_is_told_of_more_and_of_nothing(acphold: CommandLine) -> None:
    more = acphold.run("search", "done", "--limit", "1")
    assert more.err == "The newest 1 shown; --limit 4 shows more\n"
    none = acphold.run("search", "nowhere", "--in", "diffs", "--cwd", "/srv/api")
    assert (none.code, none.out) == (0, "")
    assert none.err == "No results for nowhere in diffs in /srv/api.\n"


@pytest.mark.usefixtures("talked")
def test_the_words_are_in_colour_on_a_terminal(acphold: CommandLine) -> None:
    shown = acphold.shown("search", "flaky", columns=60)
    assert "\x1b[1;33mflaky\x1b[0m" in shown.out
    assert "\x1b[31m" not in shown.out
    assert max(map(len, shown.plain.splitlines())) <= 60


@pytest.mark.usefixtures("talked")
def test_without_a_word_there_is_nothing_to_search_for(acphold: CommandLine) -> None:
    done = acphold.run("search", "--", "-- *")
    assert done.code == 2
    assert "has no word to search for" in done.err
    assert acphold.run("search").code == 2


# -- sessions that lag ----------------------------------------------------------------------


def forget_index(journal: Path) -> None:
    database = connect(str(journal), 60.0)
    assert sum(search_index.forget(database, search_index.volumes(database)))
    database.close()


def test_a_search_first_makes_searchable_what_is_not_yet(
    acphold: CommandLine, talked: Path
) -> None:
    forget_index(talked)
    assert {*places(acphold, "done")} == {"bbbbbbbb-2@3", "aaaaaaaa-1@9"}


def test_what_is_not_searchable_yet_is_told(
    acphold: CommandLine, talked: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading_bounds, "CATCH_UP_SECONDS", 1e-9)
    monkeypatch.setattr(journal_bounds, "INDEXED_SESSIONS", 1)
    forget_index(talked)
    done = acphold.run("search", "--json", "done")
    assert len(done.out.splitlines()) == 1
    forget_index(talked)
    assert "Not searchable yet: 1 older conversation." in acphold.run("search", "done").err


def test_an_import_that_waits_makes_all_of_it_searchable(
    acphold: CommandLine, talked: Path, tmp_path: Path
) -> None:
    forget_index(talked)
    (tmp_path / "nothing").mkdir()
    done = acphold.run("import", "--wait", "--from", str(tmp_path / "nothing"))
    assert done.out.endswith("\nEverything is searchable.\n")
    database = sqlite3.connect(talked)
    assert database.execute(LAGGING).fetchone() == (0,)
    database.close()


def test_an_import_leaves_what_is_old_to_the_background(
    acphold: CommandLine,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    until: Callable[..., None],
) -> None:
    monkeypatch.setattr(bounds, "INDEX_AT_ONCE_SECONDS", 0)
    monkeypatch.setattr(journal_bounds, "INDEXED_SESSIONS", 1)
    for number in range(3):
        session_id = f"1111111{number}-2222-4333-8444-555555555555"
        transcript = Transcript()
        for speak in (transcript.user, transcript.assistant):
            speak("needle", timestamp="2016-01-02T03:04:05.000Z", sessionId=session_id)
        transcript.write(tmp_path / "home", session_id)
    done = acphold.run("import", "--from", str(tmp_path / "home"))
    assert done.out.splitlines() == [
        f"{'claude':<10} {'3 conversations':>22}   new 3",
        "The last 30 days are searchable; the rest follows in the background …",
    ]
    database = sqlite3.connect(acphold.journal)
    until(lambda: database.execute(LAGGING).fetchone() == (0,), 30)
    database.close()
    assert len(places(acphold, "needle")) == 6
