"""Text from agents, clients and file names plays no tricks on a terminal or its reader."""

from __future__ import annotations

import json
import logging
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from acphold.faces.cli.terminal_text import VisibleLines
from tests.cli.command_line import CommandLine, run_here
from tests.cli.conversation import remember
from tests.cli.test_terminal_text import obeyed
from tests.conftest import Defaults
from tests.raw_entries import Raw, ended, prompt, said, update

pytestmark = pytest.mark.slow

PIECES = (
    *("\x1b[2J", "\x1b]0;title\x07", "\x9b31m", "\x7f", "\x08", "\x00", "\r", "\x85"),
    *("\u202e", "\u2066", "\u200f", "\u061c"),
    *("\u200b", "\u200d", "\ufeff", "\ufe0f", "\u3164", "\u2028", "\U000e0072"),
    *("&#27;[2J", "&#x9b;", "&#x202e;", "&rlm;", "&zwj;", "&#xe0072;"),
    *("`", "#", "\n", "\t", "    ", "- ", "[", "](", ")", "|", "~~~\n", "a", "日本"),
)
"""Characters that terminals obey, some hidden by Markdown, among text that Markdown formats."""

HOSTILE = st.lists(st.sampled_from(PIECES), min_size=1, max_size=8).map("".join)


def conversation(text: str) -> tuple[Raw, ...]:
    """Every field of every kind of entry that a transcript shows."""
    block = {"type": "text", "text": text}
    diff = {"type": "diff", "path": text, "oldText": "x", "newText": text}
    contents = [
        {"type": "content", "content": block},
        {"type": "content", "content": {"type": "resource_link", "name": text, "uri": text}},
        {"type": "content", "content": {"type": "image", "mimeType": text, "data": "AAAA"}},
        {"type": "terminal", "terminalId": text},
        {"type": text},
        diff,
    ]
    return (
        prompt(text),
        said(text),
        said(text, "agent_thought_chunk"),
        update("plan", entries=[{"content": text, "priority": text, "status": text}]),
        update(
            *("tool_call",), toolCallId=text, title=text, kind=text, status=text, content=contents
        ),
        update("tool_call", toolCallId=f"{text}2", kind=text),
        update("notice", severity=text, title=text, description=text),
        update("current_mode_update", currentModeId=text),
        update(text),
        ended(stopReason=text),
        prompt(text),
        ended(error={"code": 1, "message": text}),
    )


# On a dumb terminal rich writes no escape sequences of its own.
DUMB = {"TERM": "dumb", "COLUMNS": "80", "HOME": "/home/me", "PATH": "/usr/bin"}


@pytest.mark.filterwarnings("ignore:.*unclosed.*:ResourceWarning")
@pytest.mark.parametrize("terminal", [True, False])
@settings(max_examples=25)
@given(text=HOSTILE)
def test_nothing_that_a_command_prints_of_others_is_obeyed_by_a_terminal(
    terminal: bool, text: str
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        name = text.replace("/", "").replace("\x00", "")[:40]
        journal = Path(folder) / f"j{name}.db"
        for suffix in "12":
            remember(
                *(journal, f"s{text}{suffix}"),
                *conversation(text),
                agent=text,
                cwd=f"/{text}",
                title=text,
            )
        where = ("--journal", str(journal))
        for arguments in (
            *(("list", "--all"), ("list", "--json"), ("list", "--agent", f"{text}!")),
            *(
                ("show", f"s{text}1"),
                ("show", "--full", f"s{text}1"),
                ("show", f"s{text}1", "--json"),
            ),
            *(
                ("show", f"s{text}"),
                ("show", f"{text}?"),
                ("session", "delete", "--yes", f"s{text}1"),
            ),
            *(("doctor",), ("list", text), (text,)),
        ):
            shown = run_here((*arguments, *where), DUMB, is_terminal=terminal).all
            assert obeyed(shown) == [], (arguments, shown)
        journal.write_text("shopping list")
        for command in (("list",), ("doctor",), ("show", text)):
            shown = run_here((*command, *where), DUMB, is_terminal=terminal).all
            assert obeyed(shown) == [], (command, shown)


def test_an_agents_own_words_about_itself_are_made_visible(
    acphold: CommandLine, defaults: Defaults
) -> None:
    defaults(start_timeout=2)
    hostile = "\x1b[2J\u202e"
    answer = {
        "protocolVersion": 1,
        "agentInfo": {"name": hostile, "version": hostile},
        "authMethods": [{"id": hostile, "name": hostile}],
    }
    line = json.dumps({"jsonrpc": "2.0", "id": 1, "result": answer})
    refused = json.dumps({"jsonrpc": "2.0", "id": 1, "error": {"code": 1, "message": hostile}})
    for said_first in (line, refused, hostile):
        code = f"import sys; sys.stdin.readline(); print({said_first!r}, flush=True); input()"
        done = acphold.run("doctor", "--", sys.executable, "-c", code)
        assert obeyed(done.out + done.err) == []


def test_a_line_of_the_log_is_made_visible() -> None:
    record = logging.LogRecord("x", 30, "x.py", 1, "from the agent: %s", ("\x1b[2J\u202e",), None)
    assert VisibleLines("%(message)s").format(record) == "from the agent: \\x1b[2J\\u202e"
