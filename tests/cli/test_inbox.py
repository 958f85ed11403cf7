"""`acphold inbox`: lists waiting questions, and answers them or leaves them, in the terminal."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from itertools import chain

import pytest

from tests.cli.place import ACPHOLD, Place, ask, steps
from tests.editor import DEADLINE
from tests.plugin import pause_after
from tests.screen_terminal import Terminal

pytestmark = pytest.mark.slow

RUN = ask(title="Run it", kind="execute", rawInput={"command": "make all\x1b[2J"})


def listed(place: Place) -> list[dict[str, object]]:
    """Return the inbox as soon as it is not empty."""
    deadline = time.monotonic() + DEADLINE
    began = time.monotonic()
    while not (out := place.here("inbox", "--json").out):
        assert time.monotonic() < deadline
        time.sleep(pause_after(time.monotonic() - began))
        began = time.monotonic()
    return [json.loads(line) for line in out.splitlines()]


def asking(one: Terminal, *questions: dict[str, object]) -> None:
    """Have the agent of a chat ask."""
    one.until("ready")
    one.type(steps(*questions), ", then Enter")


def test_what_waits_in_another_terminal_is_seen_whole_and_answered(place: Place) -> None:
    assert "Nothing is waiting" in place.here("inbox").err
    with place.chat() as chat:
        asking(chat, RUN)
        (question,) = listed(place)
        assert question["asks"] == "Run it"
        told = place.here("inbox").out
        assert "command: make all\\x1b[2J" in told
        assert "[Go on]" in told
        with place.on_terminal("inbox") as inbox:
            inbox.until(", then Enter")
            assert inbox.ended("\x03") == 130
            assert b"settled" not in inbox.raw
            assert b"Traceback" not in inbox.raw
        with place.on_terminal("inbox") as inbox:
            shown = inbox.until("command: make all\\x1b[2J", "[y] allow once", ", then Enter")
            assert f"·{str(question['sessionId'])[:6]}" in "".join(shown.split())
            inbox.type("\r")  # which is never a yes
            inbox.type("yes please\r", "“yes please” is no answer: type one of the letters")
            inbox.type("y\r", "allowed once: Run it → Go on")
            assert inbox.ended() == 0
        chat.until('"go"', "ready")
        history = place.here("inbox", "--history").out
        assert "allowed once (in acphold): Run it → Go on" in history
        assert history.startswith("just now\n")
        assert str(question["sessionId"]) not in history  # the short id is enough
        (decided,) = place.here("inbox", "--history", "--json").out.splitlines()
        assert json.loads(decided)["client"] == "acphold"
        chat.type("\x04")


def test_a_call_of_which_the_question_gives_the_id_alone_is_shown_as_it_was_announced(
    place: Place,
) -> None:
    announced = {"sessionUpdate": "tool_call", "toolCallId": "t1", "title": "Edit a.py"}
    with place.chat() as chat:
        asking(chat, {"update": announced}, ask())
        listed(place)
        with place.on_terminal("inbox") as inbox:
            inbox.until("Allow this? Edit a.py", ", then Enter")
            inbox.type("\x03")
        chat.type("\x04")


def test_what_is_left_for_later_stays_open_and_the_next_is_asked(place: Place) -> None:
    with place.chat() as chat, place.chat() as other:
        asking(chat, RUN)
        asking(other, ask(title="Delete it"))
        for key in ("l\r", "\x04"):
            with place.on_terminal("inbox") as inbox:
                inbox.until("Allow this? Run it", ", then Enter")
                inbox.type(key, ", then Enter", below="Allow this? Delete it")
                inbox.type(key, "Questions that you left for later")
                assert inbox.ended() == 0
            assert [each["asks"] for each in listed(place)] == ["Run it", "Delete it"]
        with place.on_terminal("inbox") as inbox:
            inbox.until("Allow this? Run it", ", then Enter")
            chat.type("n\r")  # answered elsewhere meanwhile: the next one comes
            inbox.until(", then Enter", below="Allow this? Delete it")
            assert inbox.ended("n\r") == 0
        other.until('"stop"')


def test_the_next_question_of_a_turn_is_asked_once_whenever_it_comes(place: Place) -> None:
    titles = [f"Step {number}" for number in range(10)]
    with place.chat() as chat:
        asking(
            chat,
            *chain.from_iterable(
                # more and more words before it, so that some come while the inbox looks
                ({"flood of": ["x", number * 40]}, ask(toolCallId=title, title=title))
                for number, title in enumerate(titles)
            ),
        )
        with place.on_terminal("inbox", "--follow") as inbox:
            for title in titles:
                inbox.until(", then Enter", below=f"Allow this? {title}")
                inbox.type("y\r", f"allowed once: {title} → Go on")
            inbox.process.send_signal(signal.SIGINT)
            inbox.ended()
            assert "settled without an answer" not in inbox.raw.decode()


def test_who_follows_the_inbox_is_told_what_comes_and_what_is_closed(place: Place) -> None:
    with place.chat() as chat:
        chat.until("ready")
        words = [*ACPHOLD, "inbox", "--follow", "--json"]
        with subprocess.Popen(words, env=place.env, stdout=subprocess.PIPE, text=True) as following:
            assert following.stdout is not None
            assert json.loads(following.stdout.readline()) == {"questions": [], "held": []}
            asking(chat, RUN)
            question = json.loads(following.stdout.readline())["question"]
            chat.type("y\r")
            assert json.loads(following.stdout.readline()) == {"closed": question["id"]}
            following.terminate()
