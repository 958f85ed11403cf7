"""The person at the terminal of `acphold ask`: asked as in `chat`, and never by accident."""

from __future__ import annotations

import json
import re
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from acphold.faces.cli.command_line import Exit
from tests.cli.place import Place, ask
from tests.editor import scripted_agent
from tests.screen_terminal import Terminal

pytestmark = pytest.mark.slow

ASKED = ", then Enter"

TERMS = pytest.mark.parametrize("term", ["xterm-256color", "dumb"])


def asking(
    place: Place, *steps: dict[str, Any], term: str = "xterm-256color"
) -> AbstractContextManager[Terminal]:
    """`ask` on a terminal, with an agent that does this."""
    place.env["TERM"] = term
    return place.on_terminal("ask", json.dumps(steps), "--", *scripted_agent())


@TERMS
def test_all_that_is_to_be_allowed_is_shown_and_what_each_answer_does(
    place: Place, term: str
) -> None:
    edit = ask(
        title="Edit \x1b[2J it",
        kind="edit",
        rawInput={"replace_all": True},
        content=[{"type": "diff", "path": "/a", "oldText": "1\n", "newText": "2\n"}],
    )
    with asking(place, {"say": "Now this."}, edit, {"say": " So be it."}, term=term) as one:
        shown = one.until("Allow this? Edit \\x1b[2J it", ASKED)
        assert shown.startswith("Now this.\n")
        for words in ("edit · pending", "- 1", "+ 2", "replace_all: true"):
            assert words in shown
        assert "[y] allow once: Go on" in shown
        assert "[n] reject: Stop it" in shown
        one.type("\r")  # which is never an answer
        one.type("y\r", "allowed once: Edit", '"go"', "So be it.")
        assert one.ended() == Exit.OK


def test_a_change_is_compared_with_the_file_as_it_is(place: Place, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\n")
    diff = {"type": "diff", "path": str(tmp_path / "a.txt"), "newText": "two\n"}
    edit = json.dumps([ask(title="Write a.txt", kind="edit", content=[diff])])
    words = ("ask", edit, "--cwd", str(tmp_path), "--", *scripted_agent())
    with place.on_terminal(*words) as one:
        one.until("- one", "+ two", ASKED, but="as the agent says")
        seen = place.run("agent", "status").stdout
        assert re.search(r"\nscripted +acphold ask in .* 1 waiting\n", seen), seen
        one.type("y\r")
        assert one.ended() == Exit.OK


@TERMS
def test_what_was_typed_before_a_question_does_not_answer_it(
    place: Place, tmp_path: Path, term: str
) -> None:
    typed = {"Run it": "y\r", "Make it": "y", "Send it": "1\r"}
    steps = (
        step
        for title in typed
        for step in ({"say": title}, {"until": str(tmp_path / title)}, ask(title=title))
    )
    with asking(place, *steps, term=term) as one:
        for title, begun in typed.items():
            one.until(title)
            one.type(begun, f"{title}{begun.strip()}")
            (tmp_path / title).touch()
            one.until(ASKED, below=f"Allow this? {title}")
            one.type("\r")
            one.type("n\r", f"rejected: {title}", '"stop"')
        assert one.ended() == Exit.OK


@TERMS
def test_a_paste_of_two_lines_allows_nothing(place: Place, term: str) -> None:
    paste = "y\ry\r" if term == "dumb" else "\x1b[200~y\ry\r\x1b[201~\r"
    with asking(place, ask(title="First"), ask(title="Second"), term=term) as one:
        one.until("Allow this? First", ASKED)
        one.type(paste)
        if term == "dumb":
            one.until(f"y\ny\n\ny or n{ASKED}")  # keys typed at once count as one paste
        one.type("n\r", "rejected: First", but="allowed")
        one.until(ASKED, below="Allow this? Second")
        one.type("n\r", "rejected: Second")
        assert one.ended() == Exit.OK


def test_of_lines_that_come_at_once_the_second_is_not_meant_for_the_next_question(
    place: Place,
) -> None:
    with asking(place, ask(title="First"), ask(title="Second")) as one:
        one.until("Allow this? First", ASKED)
        one.type("y\ry\r")  # as a terminal pastes that cannot say that it does
        one.until("allowed once: First")
        one.until(ASKED, below="Allow this? Second")
        one.type("n\r", "rejected: Second")
        assert one.ended() == Exit.OK


@TERMS
def test_who_gives_no_answer_rejects_and_who_cancels_cancels(place: Place, term: str) -> None:
    with asking(place, ask(title="Run"), {"say": " So be it."}, term=term) as one:
        one.until(ASKED)
        one.type("\x04", '"stop"', "So be it.")
        assert one.ended() == Exit.OK
    if term != "dumb":  # where Ctrl-C is a signal
        with asking(place, ask(title="Run"), {"stop": "cancelled"}) as one:
            one.until(ASKED)
            one.type("\x03", '"cancelled"')
            assert one.ended() == Exit.INTERRUPTED


@TERMS
def test_what_the_agent_says_meanwhile_stands_above_the_question(
    place: Place, tmp_path: Path, term: str
) -> None:
    method, params = ask(title="Run")["ask"]
    request = {"id": 99, "method": method, "params": {"sessionId": "$ID", **params}}
    said, over = tmp_path / "said", tmp_path / "over"
    steps = (
        {"line": json.dumps({"jsonrpc": "2.0", **request})},
        *({"until": str(said)}, {"say": "meanwhile"}, {"until": str(over)}, {"say": "the end"}),
    )
    with asking(place, *steps, term=term) as one:
        one.until(ASKED)
        said.touch()
        one.until("\nmeanwhile")
        if term != "dumb":
            shown = one.until("\nmeanwhile\n", ASKED)
            assert shown.index("meanwhile") < shown.index("Allow this?")
        one.type("y\r", "allowed once: Run")
        over.touch()
        one.until("\nthe end")
        assert one.ended() == Exit.OK


def test_questions_that_come_together_are_asked_one_after_the_other(place: Place) -> None:
    method, params = ask(title="Run", rawInput={"command": "make all"})["ask"]
    with asking(place, {"ask many": [2, method, params]}) as one:
        assert one.until(ASKED).count("make all") == 1
        one.type("y\r")
        assert one.until("[y]", ASKED, below="→ Go on").count("make all") == 2
        one.type("n\r", "rejected", "answered: 2")
        assert one.ended() == Exit.OK
