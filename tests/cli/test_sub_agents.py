"""Sub-agents in the lists, searches, sums and exports of the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command_line import CommandLine
from tests.cli.conversation import remember
from tests.raw_entries import DIFF, Raw, ended, prompt, said, update


def of(kind: str, /, **fields: Any) -> Raw:
    told = {"sessionId": "kid", "update": {"sessionUpdate": kind, **fields}}
    return "child", json.dumps(told).encode()


def words(text: str) -> dict[str, str]:
    return {"type": "text", "text": text}


SECRET = "ghp_" + "a1B2" * 9
USAGE = {"inputTokens": 30, "outputTokens": 12, "totalTokens": 42}

CONVERSATION = (
    prompt("Find the greeting"),
    update("tool_call", toolCallId="made", title="Delegate", status="completed"),
    said("I have sent somebody."),
    update(
        "subagent_update",
        sessionId="kid",
        title="Explorer",
        description="Finds needles",
        state={"state": "running"},
        _meta={"theirs": {"parentToolCallId": "made"}},
    ),
    update(
        "session_message",
        messageId="m",
        recipientSessionId="kid",
        content=[words("Look in the haystack")],
    ),
    of("agent_message_chunk", content=words("It is under the ")),
    of("agent_message_chunk", content=words("pomegranate.")),
    of(
        "tool_call",
        toolCallId="t",
        title="Edit it",
        kind="edit",
        status="completed",
        content=[DIFF],
    ),
    update(
        "subagent_update",
        sessionId="kid",
        state={"state": "idle", "stopReason": "end_turn", "usage": USAGE},
    ),
    said("Found."),
    ended(),
)


@pytest.fixture
def told(journal: Path) -> Path:
    """A journal with a conversation."""
    remember(journal, "0b5e-1", *CONVERSATION, title="Greeting")
    return journal


TRANSCRIPT = """\
you: Find the greeting

tool: ● Delegate  other · completed

child: ● Explorer  sub-agent · done
    task: Look in the haystack
    sub-agent: It is under the pomegranate.
    tool: ● Edit it  edit · completed
        /home/me/hello.py
        - hi
        + hello

agent: I have sent somebody.

agent: Found.

turn: ended
"""


@pytest.mark.usefixtures("told")
def test_a_sub_agent_is_shown_under_the_call_that_made_it(acphold: CommandLine) -> None:
    _, _, conversation = acphold.run("show", "0b").out.partition("\n\n")
    assert conversation == TRANSCRIPT
    assert "Explorer" in acphold.shown("show", "0b").plain


@pytest.mark.usefixtures("told")
@pytest.mark.parametrize("sought", ["pomegranate", "needles", "haystack"])
def test_what_it_said_and_was_told_is_found(acphold: CommandLine, sought: str) -> None:
    found = acphold.run("search", sought, "--json")
    [hit] = [json.loads(line) for line in found.out.splitlines()]
    assert hit["sessionId"] == "0b5e-1"
    shown = acphold.run("show", f"0b5e-1@{hit['seq']}")
    assert "▸ child" in shown.out or "Explorer" in shown.out


@pytest.mark.usefixtures("told")
def test_its_tokens_count_as_the_sessions(acphold: CommandLine) -> None:
    assert '"total":42' in acphold.run("usage", "--json").out.replace(" ", "").replace(
        "totalTokens", "total"
    )


@pytest.mark.usefixtures("told")
def test_what_it_changed_is_in_the_diff(acphold: CommandLine) -> None:
    assert "+hello" in acphold.run("diff", "0b").out


@pytest.mark.usefixtures("told")
def test_it_is_a_fold_in_exports(acphold: CommandLine, tmp_path: Path) -> None:
    markdown = acphold.run("export", "0b").out
    assert "<summary>● Explorer (sub-agent: done)</summary>" in markdown
    assert "> It is under the pomegranate." in markdown
    page = acphold.run("export", "0b", "--format", "html").out
    assert "Explorer <span>sub-agent · done</span>" in page
    assert "under the pomegranate" in page


@pytest.mark.usefixtures("told")
def test_its_words_come_back_from_an_export_under_an_id_of_its_session(
    acphold: CommandLine, tmp_path: Path
) -> None:
    lines = tmp_path / "x.jsonl"
    acphold.run("export", "0b", "-o", str(lines))
    assert '"sessionId":"kid"' in lines.read_text()
    acphold.run("session", "delete", "0b5e-1", "--yes")
    done = acphold.run("import", "--from", str(tmp_path))
    assert done.code == 0, done.err
    _, _, conversation = acphold.run("show", "0b").out.partition("\n\n")
    assert conversation.partition("you: ")[2] == TRANSCRIPT.partition("you: ")[2]
    kept = [json.loads(line) for line in acphold.run("show", "0b", "--json").out.splitlines()]
    assert {k["update"]["sessionId"] for k in kept if k["kind"] == "child"} == {"0b5e-1:kid"}


def test_a_secret_that_it_says_in_two_pieces_is_taken_out(
    acphold: CommandLine, journal: Path
) -> None:
    half = len(SECRET) // 2
    pieces = [
        of("agent_message_chunk", content=words("the key is " + SECRET[:half])),
        said("Meanwhile."),
        of("agent_message_chunk", content=words(SECRET[half:])),
    ]
    remember(journal, "0b5e-1", prompt("x"), *pieces, ended())
    for form in ("markdown", "html", "jsonl"):
        out = acphold.run("export", "0b", "--format", form, "--redact").out
        assert "the key is" in out
        assert SECRET[:half] not in out
        assert SECRET[half:] not in out
