"""The commands on a journal in a database work as on a file, or name another way."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import psycopg
import pytest

from acphold.journal import bounds as journal_bounds
from acphold.journal.postgresql import database
from tests.cli.command_line import CommandLine, Finished, run_here
from tests.cli.conversation import remember
from tests.cli.test_library_agent import AGENT
from tests.postgresql import Databases
from tests.raw_entries import CONVERSATION

pytestmark = pytest.mark.postgresql

PASSWORD = "geheim"


class OnDatabase:
    """Runs `acphold` with the journal at a URL that has a password in it."""

    def __init__(self, url: str) -> None:
        self.url = url.replace("owner@", f"owner:{PASSWORD}@")

    def run(self, *arguments: str) -> Finished:
        """Run it in this process; nothing that it says has the password."""
        done = run_here(arguments, {**os.environ, "ACPHOLD_JOURNAL": self.url})
        assert PASSWORD not in done.all
        return done


@pytest.fixture
def acphold(
    databases: Databases, journal: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[OnDatabase]:
    """`acphold` with two sessions in a database."""
    monkeypatch.setenv("PGPASSWORD", "")  # which it takes out of the URL into the environment
    for name in ("aa-1", "bb-2"):
        remember(journal, name, *CONVERSATION, title=f"Title {name}", at=1_767_225_600_000)
    with databases.new() as url:
        found = OnDatabase(url)
        assert found.run("journal", "copy", str(journal), found.url).code == 0
        yield found


@pytest.mark.parametrize("ahead", [-3600, 3600])
def test_days_count_by_the_clock_of_the_database(
    ahead: int, acphold: OnDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, two_days = time.time_ns, 2 * 24 * 3600
    with psycopg.connect(acphold.url, autocommit=True) as line:
        for name, minutes in (("aa-1", 30), ("bb-2", -30)):
            at = clock() // 10**6 - (two_days + minutes * 60) * 1000
            change = "UPDATE acphold.sessions SET updated_at = %s WHERE session_id = %s"
            line.execute(change, (at, name))
    with monkeypatch.context() as apart:
        apart.setattr(time, "time_ns", lambda: clock() + ahead * 10**9)
        apart.setattr(time, "time", lambda: clock() / 10**9 + ahead)
        assert acphold.run("rules", "add", "--days", "2", "run make check").code == 0
        assert acphold.run("access", "token", "--days", "2").code == 0
        pruned = acphold.run("session", "prune", "--older-than", "2d", "--dry-run").out
        assert "aa-1" in pruned
        assert "bb-2" not in pruned
    [rule] = acphold.run("rules", "--json").out.splitlines()
    [token] = acphold.run("access", "list", "--json").out.splitlines()
    end = clock() / 10**9 + two_days
    for made in (rule, token):
        assert abs(datetime.fromisoformat(json.loads(made)["expiresAt"]).timestamp() - end) < 60


def test_what_is_looked_at_is_as_in_a_file(acphold: OnDatabase, journal: Path) -> None:
    for command in (
        ("list",),
        ("list", "--json"),
        ("show", "aa"),
        ("search", "friendlier"),
        ("usage",),
        ("diff", "aa"),
        ("show", "--follow", "aa"),
        ("export", "aa"),
        ("agent", "stop", "aa"),
        ("session", "prune", "--keep", "1", "--dry-run"),
        ("import", "--dry-run", "--from", str(journal.parent)),
    ):
        done, in_file = acphold.run(*command), CommandLine(journal).run(*command)
        assert (done.code, done.out, done.err) == (in_file.code, in_file.out, in_file.err), command


def test_what_is_put_in_order_is_so(acphold: OnDatabase) -> None:
    assert acphold.run("session", "rename", "aa", "Another title").code == 0
    assert acphold.run("session", "archive", "bb").code == 0
    [row] = map(json.loads, acphold.run("list", "--json").out.splitlines())
    assert (row["sessionId"], row["title"]) == ("aa-1", "Another title")
    assert acphold.run("session", "archive", "--undo", "bb").code == 0
    assert acphold.run("session", "delete", "--yes", "bb").code == 0
    assert (
        acphold.run("session", "prune", "--older-than", "1d", "--yes").out == "Deleted 1 session.\n"
    )
    assert acphold.run("list", "--json").out == ""


def test_doctor_says_where_it_is_and_reads_every_history(acphold: OnDatabase) -> None:
    assert "it is intact" not in acphold.run("doctor").plain
    said = acphold.run("doctor", "--deep").plain
    assert "postgresql://owner@/" in said
    assert "2 sessions" in said
    assert "it is intact: every history was checked" in said


@pytest.mark.parametrize(
    ("command", "instead"),
    [
        (("journal", "backup", "copy.db"), "back it up like your other databases, or copy it"),
        (("journal", "compact"), "a database reclaims space by itself"),
        (("doctor", "--repair"), "restore a damaged database from its backup"),
    ],
)
def test_what_is_for_files_says_so(
    acphold: OnDatabase, command: tuple[str, ...], instead: str
) -> None:
    done = acphold.run(*command)
    assert done.code == 2
    assert f"needs a journal in a file, which this one is not: {instead}" in done.err


def test_a_database_that_is_not_there_is_named_without_its_password(
    acphold: OnDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_bounds, "RETRY_SECONDS", 0.0)
    away = acphold.url.replace("host=", "host=/nowhere")
    for arguments in ((acphold.url, away), (away, acphold.url)):
        done = acphold.run("journal", "copy", *arguments)
        assert done.code == 4
        assert "cannot be used" in done.err


def test_an_agent_that_keeps_the_same_database_is_listed_once(
    acphold: OnDatabase, tmp_path: Path
) -> None:
    (program := tmp_path / "counter.py").write_text(AGENT)
    done = acphold.run("ask", "pelican", "--", sys.executable, str(program))
    assert done.out == "1 of 0, pelican\n", done.err
    listed = [json.loads(line)["agent"] for line in acphold.run("list", "--json").out.splitlines()]
    assert listed.count("counter") == 1
    assert "counter (library)" not in listed


def test_doctor_has_nothing_against_a_database_in_which_no_journal_was_made_yet(
    databases: Databases,
) -> None:
    with databases.new("template1") as url:
        done = run_here(("doctor",), {**os.environ, "ACPHOLD_JOURNAL": url})
        said = " ".join(done.out.split())
        assert "✓ none yet at postgresql://owner@/" in said
        assert "the first session creates it" in said


@pytest.mark.parametrize(
    "command",
    [
        ("list",),
        ("search", "word"),
        ("usage",),
        ("inbox", "--list"),
        ("access", "list"),
        ("access", "share"),
        ("show", "aa"),
        ("export", "aa"),
        ("session", "delete", "--yes", "aa"),
        ("session", "prune", "--keep", "1", "--yes"),
        ("import", "--dry-run", "--from", "/nowhere"),
        ("show", "--follow", "aa"),
        ("continue",),
        ("continue", "aa", "--from", "last"),
    ],
    ids=" ".join,
)
def test_where_no_journal_was_made_yet_a_database_is_as_a_file_that_is_not_there(
    databases: Databases, tmp_path: Path, command: tuple[str, ...]
) -> None:
    said = []
    with databases.new("template1") as url:
        for place in (url, str(tmp_path / "none.db")):
            done = run_here(command, {**os.environ, "ACPHOLD_JOURNAL": place})
            name = database.public_url(url) if place == url else place
            said.append((done.code, done.out, done.err.replace(name, "PLACE")))
    assert said[0] == said[1]
    assert not (tmp_path / "none.db").exists()


def test_of_a_database_that_is_not_there_it_is_said_that_it_has_to_be_made(
    databases: Databases,
) -> None:
    url = databases.server.url("nowhere")
    done = run_here(("list",), {**os.environ, "ACPHOLD_JOURNAL": url})
    assert done.code == 4
    assert "create it there" in done.err
