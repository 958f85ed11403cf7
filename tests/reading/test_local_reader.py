"""The list of a journal's sessions, as a person sees it, read without attaching."""

from __future__ import annotations

import subprocess
import tracemalloc
from collections.abc import Collection
from functools import partial
from pathlib import Path

import pytest

from acphold.conversation.reports.transcript import turns
from acphold.journal.journal import Titled
from acphold.journal.rows import NewSession, RowChange
from acphold.journal.sqlite.store import SqliteJournal
from acphold.live.reading.listed_sessions import Wanted
from acphold.live.reading.local_reader import LocalReader
from tests.raw_entries import ended, prompt, update

STEPS_OF_A_LINE = 115


async def test_a_line_of_the_list_takes_few_steps_and_no_statement(
    tmp_path: Path,
) -> None:
    costs: list[tuple[int, int]] = []
    journal = SqliteJournal(tmp_path / "journal.db")
    reader = LocalReader(journal, live={})
    for number in range(60):
        lease = await journal.create(NewSession(f"s{number}", "a", "/w"))
        await journal.append(lease, [("prompt", [b"[]"]), ("turn_end", [b"{}"])])
        await journal.settle(lease, 2)
        await journal.change(lease, RowChange(prompted=True))
        if number not in (9, 59):
            continue
        steps, statements = bytearray(), list[str]()
        connection = journal.connect().connection
        connection.set_trace_callback(statements.append)
        connection.set_progress_handler(partial(steps.append, 0), 1)
        page = await reader.page(Wanted())
        connection.set_progress_handler(None, 0)
        connection.set_trace_callback(None)
        assert [it.outcome for it in page.sessions] == ["completed"] * (number + 1)
        costs.append((len(statements), len(steps)))
    (few, before), (many, after) = costs
    assert many <= few
    assert (after - before) / 50 <= STEPS_OF_A_LINE
    await journal.aclose()


async def test_sessions_of_the_same_words_are_sought_only_if_one_that_is_listed_is_short(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sought: list[Titled] = []

    async def seek(among: Collection[Titled], least: int) -> frozenset[Titled]:
        sought.extend(among)
        return frozenset({("", "/w", "same")})

    journal = SqliteJournal(tmp_path / "journal.db")
    monkeypatch.setattr(journal, "repeated_titles", seek)
    for session_id, title in (("untitled", None), ("short", "same")):
        lease = await journal.create(NewSession(session_id, "a", "/w"))
        await journal.change(lease, RowChange(prompted=True, title=title))
        for mine in (False, True):
            page = await LocalReader(journal, live={}).page(Wanted(mine=mine))
            assert [it.row.session_id for it in page.sessions if not it.by_program] == ["untitled"]
        assert sought == ([] if title is None else [("", "/w", "same")])  # once
    await journal.aclose()


async def test_a_list_asks_once_for_the_project_of_a_folder_and_the_next_list_again(
    tmp_path: Path,
) -> None:
    repository, tree = tmp_path / "repository", tmp_path / "tree"
    _git("init", "-q", str(repository))
    _git("-C", str(repository), "commit", "-q", "--allow-empty", "-m", "first")
    _git("-C", str(repository), "worktree", "add", "-q", str(tree))
    journal = SqliteJournal(tmp_path / "journal.db")
    for number in range(2):
        await journal.change(
            await journal.create(NewSession(f"s{number}", "a", str(tree))), RowChange(prompted=True)
        )
    reader = LocalReader(journal, live={})
    first = await reader.page(Wanted(), limit=1)
    (tree / ".git").unlink()
    second = await reader.page(Wanted(), first.cursor, limit=1)
    anew = await reader.page(Wanted(), limit=1)
    assert [it.sessions[0].project for it in (first, second, anew)] == [str(repository)] * 2 + [""]
    await journal.aclose()


def _git(*words: str) -> None:
    who = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    subprocess.run(["git", *who, *words], check=True)


async def test_a_long_output_is_in_memory_once_while_its_turn_is_read(tmp_path: Path) -> None:
    output = {"type": "content", "content": {"type": "text", "text": "y" * 4_000_000}}
    call = update("tool_call_update", toolCallId="t", content=[output])
    journal = SqliteJournal(tmp_path / "journal.db")
    lease = await journal.create(NewSession("s", "a", "/w"))
    for kind, raw in (prompt("x"), call, ended()):
        await journal.append(lease, [(kind, [raw])])
    entries = LocalReader(journal, live={}).entries("s")
    tracemalloc.start()
    try:
        async for _ in turns(entries):
            now, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert now < 1.5 * 4_000_000
    await journal.aclose()
