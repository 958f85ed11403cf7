"""Agents that delete their own transcripts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from acphold.imports import Home, ImportMemory, Source, deletions
from acphold.imports.claude import READER
from acphold.imports.readers import Reader
from tests.imports.claude_home import Transcript
from tests.imports.told import write_lines

Json = Any


def claude(home: Path, settings: Json) -> list[str]:
    """The warnings about a home with a conversation of Claude Code."""
    transcript = Transcript("Hello.")
    transcript.write(home)
    if settings is not None:
        (home / ".claude/settings.json").write_text(json.dumps(settings))
    return [found.when for found in deletions(Home(home))]


def gemini(home: Path, settings: Json) -> list[str]:
    write_lines(
        home / ".gemini/tmp/p/chats/session-2026-01-02T03-04-aaaaaaaa.jsonl",
        {"sessionId": "s1", "startTime": "2026-01-02T03:04:05Z"},
        {"id": "1", "type": "user", "content": [{"text": "Hello."}]},
    )
    (home / ".gemini/settings.json").write_text(json.dumps(settings))
    return [found.when for found in deletions(Home(home))]


def test_a_reader_that_fails_hides_no_deletion(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def search(home: Home) -> Iterator[Source]:
        raise ValueError("out of order")

    failing = Reader("claude", "claude", search, READER.read)
    monkeypatch.setattr("acphold.imports.claude.READER", failing)
    assert claude(tmp_path, {"cleanupPeriodDays": 7}) == ["deletes conversations after 7 days"]
    with caplog.at_level("INFO"):
        ImportMemory(Home(tmp_path), ["claude"], since=0, redact=False)
    assert "out of order" in caplog.text


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (None, ["deletes conversations after 30 days"]),
        ({"cleanupPeriodDays": 7}, ["deletes conversations after 7 days"]),
        ({"cleanupPeriodDays": 0}, ["keeps no conversations"]),
        ({"cleanupPeriodDays": 99999}, []),
        ({"cleanupPeriodDays": "many"}, ["deletes conversations after 30 days"]),
        ([], []),
    ],
)
def test_claude_code_deletes_after_a_month_unless_it_is_told_not_to(
    tmp_path: Path, settings: Json, said: list[str]
) -> None:
    assert claude(tmp_path, settings) == said


@pytest.mark.parametrize(
    ("retention", "said"),
    [
        ({}, ["deletes conversations after 30 days"]),
        (
            {"maxAge": "7d", "maxCount": 50},
            ["deletes conversations after 7 days, and beyond 50 of them"],
        ),
        ({"maxAge": "1w"}, ["deletes conversations after 1 week"]),
        ({"maxAge": "soon"}, ["deletes conversations after soon"]),
        ({"enabled": False}, []),
    ],
)
def test_gemini_cli_deletes_after_a_month_unless_it_is_told_not_to(
    tmp_path: Path, retention: Json, said: list[str]
) -> None:
    assert gemini(tmp_path, {"general": {"sessionRetention": retention}}) == said


def test_nothing_is_said_of_agents_without_conversations(tmp_path: Path) -> None:
    (tmp_path / ".claude").mkdir()
    assert list(deletions(Home(tmp_path))) == []
