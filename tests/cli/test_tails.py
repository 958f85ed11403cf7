"""The turns that a person went back from: listed under their session, and shared with it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from acphold.faces.cli.list_table import BELOW
from tests.cli.command_line import CommandLine
from tests.imports.claude_home import SESSION, Transcript
from tests.imports.test_reconciliation import put, say


@pytest.fixture
def tail(acphold: CommandLine, tmp_path: Path) -> str:
    """A session that was gone back in once it had been imported, and another one; the tail."""
    transcript = Transcript()
    first = say(transcript, "one")
    say(transcript, "two")
    put(tmp_path, transcript)
    acphold.run("import", "--from", str(tmp_path))
    transcript._count = 60
    say(transcript, "back", first)
    put(tmp_path, transcript)
    acphold.run("import", "--from", str(tmp_path))
    between = Transcript("between", count=50)
    for record in between.records:
        record["sessionId"] = "of-another"
    path = between.write(tmp_path)
    path.rename(path.with_name("of-another.jsonl"))
    put(tmp_path, transcript)
    acphold.run("import", "--from", str(tmp_path))
    rows = map(json.loads, acphold.run("list", "--json").out.splitlines())
    one, other, left = [row["sessionId"] for row in rows]
    assert (one, other) == (SESSION, "of-another")
    return str(left)


def test_a_tail_is_listed_under_its_session_though_it_is_older(
    acphold: CommandLine, tail: str
) -> None:
    assert tail.startswith(f"{SESSION}~")
    lines = acphold.run("list").out.splitlines()[1:]
    assert [line.split("  ")[0] for line in lines] == ["one", f"{BELOW}two", "between"]
    lines = acphold.run("list", "--limit", "2").out.splitlines()[1:]
    assert [line.split("  ")[0] for line in lines] == ["one", "between"]


def test_a_tail_leaves_its_session_the_short_id(acphold: CommandLine, tail: str) -> None:
    lines = acphold.run("list").out.splitlines()[1:3]
    ids = [re.split(" {2,}", line)[1] for line in lines]
    assert ids == [SESSION[:6], f"{SESSION[:6]}~"]
    for short, title in zip(ids, ("one", "two"), strict=True):
        assert acphold.run("show", short).out.splitlines()[0] == title


def test_a_tail_is_shared_with_its_session_also_later(acphold: CommandLine, tail: str) -> None:
    def shared() -> list[str]:
        told = acphold.run("access", "share", "--json").out.splitlines()
        return [json.loads(line)["sessionId"] for line in told]

    assert acphold.run("access", "share", SESSION, "--with", "bert").code == 0
    assert shared() == [SESSION, tail]
    assert acphold.run("access", "share", SESSION, "--with", "bert", "--stop").code == 0
    assert shared() == []
