"""The line of a program's stderr that says why it failed."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from acp_wire.processes.last_words import last_words

FRAMED = """\
Usage: agent [OPTIONS]
╭─ Error ──────────────────╮
│ There is no key for the  │
│ model; set AGENT_KEY.    │
╰──────────────────────────╯
"""

NODE = """\
file:///agent.js:3
    throw new Error("no key");
          ^

Error: no key
    at file:///agent.js:3:11

Node.js v22.3.0
"""


@pytest.mark.parametrize(
    ("stderr", "words"),
    [
        ("", ""),
        ("first\nno licence found\n\n", "no licence found"),
        (FRAMED, "There is no key for the model; set AGENT_KEY."),
        ("┃ one ┃\nbetween\n┃ two ┃\n┗━━━━━┛\n", "two"),
        ("│\n╰───╯\n", ""),
        ("x = 1 +\n      ^\n", "x = 1 +"),
        ("it broke\n======\n", "it broke"),
        ("\x1b[31m\x1b]0;agent\x07it broke\x1b[0m\n\x1b[?25h\n", "it broke"),
        ("Node.js v22.3.0\n", ""),
        ("Warning: old\nNode.js v22.3.0\n", "Warning: old"),
        (NODE, "Error: no key"),
    ],
)
def test_the_last_words_are_the_line_that_says_why(stderr: str, words: str) -> None:
    assert last_words(stderr) == words


@given(st.text(st.sampled_from("│╰─╯ a\n\x1b[m1;]\x07\\^=\r\x0b")))
def test_the_last_words_of_whatever_was_printed_are_one_line(stderr: str) -> None:
    words = last_words(stderr)
    assert len(words.splitlines()) <= 1
    assert not words or any(map(str.isalnum, words))
