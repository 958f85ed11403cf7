"""`acphold import --explain ID` and `--again ID`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from acphold.imports import Intake, session_writer
from acphold.imports.claude import READER
from acphold.journal.journal import Journal, history, take_lease
from acphold.journal.rows import NewSession, RowChange
from tests.cli.command_line import CommandLine
from tests.imports.claude_home import SESSION
from tests.imports.test_reconciliation import (
    FOLDERS,
    conversation,
    prompts,
    put,
    say_here,
    take,
)
from tests.imports.told import sources

Json = Any


@pytest.fixture
def acphold(journal: Path) -> CommandLine:
    return CommandLine(journal)


def test_an_explanation_says_which_files_have_which_turns_and_what_was_left_out(
    acphold: CommandLine, tmp_path: Path
) -> None:
    told = conversation("one", "two")
    put(tmp_path, told, 0)
    put(tmp_path, told, 1, upto=2)
    acphold.run("import", "--from", str(tmp_path))
    told.beside(type="from-the-future")
    told.user("three")
    put(tmp_path, told, 0)
    done = acphold.run("import", "--from", str(tmp_path), "--explain", SESSION, "--json")
    (found,) = map(json.loads, done.out.splitlines())
    whole, part = (
        str(tmp_path / ".claude/projects" / folder / f"{SESSION}.jsonl") for folder in FOLDERS
    )
    assert [(turn["words"], sorted(turn["files"])) for turn in found["turns"]] == [
        ("one", sorted([whole, part])),
        ("two", [whole]),
    ]
    about: dict[str, Json] = {source["file"]: source for source in found["sources"]}
    assert about[whole]["leftOut"] == ["three"]
    assert about[whole]["missed"] == {"records of type 'from-the-future'": 1}
    assert (about[whole]["isCurrent"], about[part]["isCurrent"]) == (False, True)
    said = acphold.run("import", "--from", str(tmp_path), "--explain", SESSION[:8]).out
    assert "left out: three" in said
    assert "not current" in said
    assert "skipped: records of type 'from-the-future' (1)" in said


async def test_turns_that_were_held_here_and_never_imported_are_found_in_their_file(
    opened: Journal, journal: Path, tmp_path: Path
) -> None:
    lease = await opened.create(NewSession(SESSION, READER.key, "/work"))
    await opened.links.link(lease, READER.key, SESSION)
    await opened.release(lease)
    await say_here(opened, "one")
    put(tmp_path, conversation("one", "two"))
    done = CommandLine(journal).run(
        "import", "--from", str(tmp_path), "--explain", SESSION, "--json"
    )
    found = json.loads(done.out)
    assert found["sources"][0]["leftOut"] == ["two"]
    assert [turn["files"] for turn in found["turns"]] == [[found["sources"][0]["file"]]]


def test_a_session_that_is_not_here_is_not_explained(acphold: CommandLine, tmp_path: Path) -> None:
    acphold.run("import", "--from", str(tmp_path))
    done = acphold.run("import", "--from", str(tmp_path), "--explain", "nobody")
    assert done.code != 0
    assert "nobody" in done.err


async def test_taken_again_a_conversation_is_read_anew_under_its_title(
    opened: Journal, journal: Path, tmp_path: Path
) -> None:
    told = conversation("one", "two")
    put(tmp_path, told, 0)
    await take(opened, tmp_path)
    await opened.change(SESSION, RowChange(given="Mine"))
    for record in told.records:
        text = record["message"]["content"][0]
        text["text"] = text["text"].replace("On one", "As a newer reader tells it")
    put(tmp_path, told, 0)
    acphold = CommandLine(journal)
    acphold.run("import", "--from", str(tmp_path))
    assert "newer reader" not in acphold.run("show", SESSION).out
    done = acphold.run("import", "--from", str(tmp_path), "--again", SESSION)
    assert (done.code, done.out.count("read anew")) == (0, 1)
    assert await prompts(opened) == ["one", "two"]
    shown = acphold.run("show", SESSION).out
    assert "As a newer reader tells it" in shown
    assert "On one" not in shown
    assert (await opened.session(SESSION)).title == "Mine"
    assert await take(opened, tmp_path) == []


async def test_taken_again_a_long_conversation_is_read_from_its_beginning(
    opened: Journal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_writer, "WORTH_CHECKING", 0)
    put(tmp_path, conversation("one", "two"), 0)
    await take(opened, tmp_path)
    (source,) = sources(READER, tmp_path)
    assert (await Intake(opened).take(source, READER, again=True)).outcome == "grown"
    assert await prompts(opened) == ["one", "two"]


@pytest.mark.parametrize("sure", [True, False])
def test_one_that_was_deleted_here_is_asked_for_first(
    acphold: CommandLine, tmp_path: Path, *, sure: bool
) -> None:
    put(tmp_path, conversation("one"), 0)
    acphold.run("import", "--from", str(tmp_path))
    acphold.run("session", "delete", SESSION, "--yes")
    again = ("import", "--from", str(tmp_path), "--again", SESSION[:6])
    done = acphold.run(*again, *(["--yes"] if sure else []))
    assert done.code == (0 if sure else 2)
    assert ("nothing was imported; use --yes" in done.err) is not sure
    assert (SESSION in acphold.run("list", "--json").out) is sure
    put(tmp_path, conversation("one", "two"), 0)
    acphold.run("import", "--from", str(tmp_path))
    assert ("two" in acphold.run("show", SESSION).out) is sure


def test_without_a_file_nothing_is_taken_again(acphold: CommandLine, tmp_path: Path) -> None:
    put(tmp_path, conversation("one"), 0)
    acphold.run("import", "--from", str(tmp_path))
    (tmp_path / ".claude/projects" / FOLDERS[0] / f"{SESSION}.jsonl").unlink()
    done = acphold.run("import", "--from", str(tmp_path), "--again", SESSION)
    assert done.code == 1
    assert f"no file has the conversation {SESSION}" in done.err
    assert "one" in acphold.run("show", SESSION).out


async def test_what_was_said_here_stays_when_a_conversation_is_taken_again(
    opened: Journal, journal: Path, tmp_path: Path
) -> None:
    told = conversation("one")
    put(tmp_path, told, 0)
    await take(opened, tmp_path)
    lease = await take_lease(opened, SESSION)
    await opened.append(lease, [("prompt", [b'[{"type":"text","text":"said here"}]'])])
    await opened.append(lease, [("turn_end", [b'{"stopReason":"end_turn"}'])])
    await opened.release(lease)
    CommandLine(journal).run("import", "--from", str(tmp_path), "--again", SESSION)
    assert await prompts(opened) == ["one", "said here"]


@pytest.mark.parametrize(
    "kept", [range(2), range(3), range(1, 4), range(2, 4), [0, 2, 3], [0, 1, 3], [1]]
)
async def test_turns_that_a_file_has_no_longer_stay_when_it_is_taken_again(
    opened: Journal, journal: Path, tmp_path: Path, kept: Sequence[int]
) -> None:
    told = conversation("one", "two", "three", "four")
    put(tmp_path, told, 0)
    await take(opened, tmp_path)
    told.records = [told.records[2 * n + m] for n in kept for m in (0, 1)]
    for record in told.records:
        text = record["message"]["content"][0]
        text["text"] = text["text"].replace("On ", "A newer reader: on ")
    put(tmp_path, told, 0)
    for _ in range(2):
        CommandLine(journal).run("import", "--from", str(tmp_path), "--again", SESSION)
        assert await prompts(opened) == ["one", "two", "three", "four"]
        told_now = b"".join([it.raw async for it in history(opened, SESSION)])
        words = ["one", "two", "three", "four"]
        anew = [n for n in range(4) if f"newer reader: on {words[n]}".encode() in told_now]
        assert anew == [*kept]


async def test_what_a_cut_file_lacks_of_its_last_turn_stays_when_it_is_taken_again(
    opened: Journal, journal: Path, tmp_path: Path
) -> None:
    told = conversation("one")
    told.user("two")
    told.assistant("Let me see.", {"type": "tool_use", "id": "c1", "name": "Bash", "input": {}})
    told.result("c1", "found")
    told.assistant("All of it.")
    for count in (7, 6, 5, 4, 3):
        put(tmp_path, told, 0, upto=count)
        taking = "import", "--from", str(tmp_path), *(["--again", SESSION] if count < 7 else [])
        CommandLine(journal).run(*taking)
        assert await prompts(opened) == ["one", "two"]
        shown = CommandLine(journal).run("show", SESSION).out
        assert ("All of it." in shown, "found" in shown) == (True, True)


async def test_a_conversation_that_another_agent_continues_is_explained(
    opened: Journal, journal: Path, tmp_path: Path
) -> None:
    put(tmp_path, conversation("one"), 0)
    await take(opened, tmp_path)
    lease = await take_lease(opened, SESSION)
    await opened.links.link(lease, "demo-agent", "demo-1")
    await opened.release(lease)
    done = CommandLine(journal).run("import", "--from", str(tmp_path), "--explain", SESSION)
    assert f"{SESSION}.jsonl" in done.out
