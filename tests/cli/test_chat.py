"""`acphold chat` and `acphold continue` on a real terminal, and in a pipe."""

from __future__ import annotations

import json
import re
import shlex
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conversation import remember
from tests.cli.place import Place, ask, short_folder, steps
from tests.editor import say, scripted_agent, update_line
from tests.raw_entries import ended, prompt
from tests.screen_terminal import Terminal

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def shared_place() -> Iterator[Place]:
    with short_folder() as folder:
        yield Place(folder, folder / "journal.db")


@pytest.fixture(scope="module")
def lasting(shared_place: Place) -> Iterator[Terminal]:
    with shared_place.chat() as one:
        yield one


@pytest.fixture
def one(lasting: Terminal) -> Terminal:
    """The chat of all tests that leave it ready."""
    cleared(lasting)
    return lasting


def cleared(one: Terminal, columns: int = 80) -> None:
    """Have nothing of earlier turns on the screen."""
    one.until("ready")
    one.resize(columns)
    one.screen.erase_in_display(2)
    one.type("\x0c", "ready")


def test_a_write_over_a_file_is_shown_against_the_file_as_it_is(place: Place) -> None:
    (place.folder / "README.md").write_text("# webapp\nRun make.\n")
    new = {"type": "diff", "path": "README.md", "newText": "# webapp\nRun uv.\n"}
    wrong = {**new, "oldText": "Run cargo.", "newText": "Run uv."}
    with place.chat("--cwd", str(place.folder)) as one:
        one.until("ready")
        one.type(steps(ask(title="Write it", kind="edit", content=[new])))
        one.until("- Run make.", "+ Run uv.", ", then Enter", but="+ # webapp")
        one.type("y", "Enter: allow once: Go on", "▸  y")
        one.type("\r", "agent  answer: ", "ready")
        one.type(steps(ask(title="Edit it", kind="edit", content=[wrong])))
        one.until("- Run cargo.", "The file has other text than", "[y] allow once: Go on")


def test_a_turn_with_a_permission_by_key_and_another_day(place: Place) -> None:
    with place.chat() as one:
        one.until("ready")
        one.type(steps(ask(title="Run it", rawInput={"command": "make all"})))
        one.until(
            "command: make all",
            "[y] allow once: Go on",
            "[n] reject: Stop it",
            ", then Enter",
        )
        one.type("\r")  # which is never a yes
        one.type("y", "Enter: allow once: Go on", "▸  y")
        one.type("\r", "allowed once: Run it → Go on", 'agent  answer: {"outcome"', '"go"', "ready")
        assert one.ended("\x04") == 0
        one.until("To continue: acphold continue")
    with place.chat("--continue") as other:
        other.until('agent  answer: {"outcome"', '"go"', "ready")
        other.type("\x03", "Ctrl-C again")
        assert other.ended("\x03") == 0


def test_a_command_to_be_allowed_stands_there_once_and_breaks_between_words(one: Terminal) -> None:
    command = "git log --oneline --decorate --since=yesterday | grep -v merges && make everything"
    given = {"command": command, "cwd": "/srv", "dangerouslyDisableSandbox": True}
    request = ask(title=f"`{command}`", kind="execute", rawInput=given)
    for columns in (60, 80, 120):
        cleared(one, columns)
        one.type(steps(request, ask(title=f"Look for {command}")))
        _, _, shown = one.until(", then Enter").partition("asks  ")
        assert shown.split().count("--decorate") == 1, shown
        assert command in " ".join(shown.split()), shown
        assert "cwd: /srv" in shown
        assert "dangerouslyDisableSandbox: true" in shown
        assert "\n          " not in shown.partition("Allow this command?")[2], shown
        one.type("n\r")
        _, _, shown = one.until("Allow this? Look", ", then Enter").rpartition("?  Allow this?")
        assert set(command.split()) <= set(shown.split()), shown
        one.type("\x03", "asked  not answered: Look for git", "ready")


def test_a_prompt_that_is_typed_while_the_agent_starts_is_sent(place: Place) -> None:
    with place.chat() as one:
        one.until("Starting")
        one.type(steps({"say": "ear"}, {"say": "lier"}), "earlier", "ready")


def test_the_seconds_are_shown_while_an_agent_starts(place: Place) -> None:
    slow = f"sleep 2.5; exec {shlex.join(scripted_agent())}"
    with place.on_terminal("chat", "--", "sh", "-c", slow) as one:
        one.until("Starting sh", "ready")
        assert re.search(rb"Starting sh[^\n]* 1 s\rStarting sh[^\n]* 2 s", one.raw)


def test_ctrl_c_is_heard_while_the_agent_floods_the_screen(place: Place, tmp_path: Path) -> None:
    go, over = tmp_path / "go", tmp_path / "over"
    flood = ({"until": str(go)}, {"flood of": ["some words\n" * 10, None]}, {"touch": str(over)})
    with place.chat() as one:
        one.until("ready")
        one.type(steps({"say": "begun"}, *flood), "agent  begun", "running")
        go.touch()
        one.drain(lambda: one.raw.count(b"some words") > 1000)
        one.type("\x03")
        one.drain(over.exists)


def test_who_leaves_does_not_wait_until_all_that_came_is_printed(place: Place) -> None:
    with place.chat() as one:
        one.until("ready")
        one.type(steps({"say at once": ["some words\n", 100_000]}, {"until": "cancel"}))
        one.drain(lambda: one.raw.count(b"some words") > 100)
        one.type("\x04\x04")  # before the terminal takes more of it
        one.drain(lambda: one.process.poll() is not None)
        one.drain(lambda: b"To continue" in one.raw)
        left = re.search(rb"the rest is not printed; `acphold (show \S+)` shows it", one.raw)
        assert left
        assert one.raw.count(b"some words") < 100_000
    assert "some words" in place.run(*left[1].decode().split()).stdout


def test_two_terminals_hold_one_session_and_the_first_answer_counts(
    shared_place: Place, one: Terminal
) -> None:
    one.type(steps({"say": "from the first"}), "agent  from the first", "ready")
    with shared_place.on_terminal("continue") as other:
        other.until("Enter continues")
        other.type("\r", "agent  from the first", "ready")
        other.type(steps(ask(title="Run it")))
        one.until("[y] allow once: Go on", ", then Enter")
        other.until("[y] allow once: Go on", ", then Enter")
        other.type("y\r")
        told = "allowed once (in acphold): Run it → Go on"
        one.until(told, 'agent  answer: {"outcome"', '"go"', but="[y]")
        other.until('agent  answer: {"outcome"', '"go"', "ready")
        other.type("\x04", "the session continues")
        assert other.ended() == 0
    one.type(steps({"say": "still here"}), "agent  still here", "ready")


def test_who_is_attached_is_told_when_the_process_goes(place: Place) -> None:
    with place.chat() as one:
        one.until("ready")
        one.type(steps({"say": "from the first"}), "agent  from the first", "ready")
        with place.on_terminal("continue") as other:
            other.until("Enter continues")
            other.type("\r", "agent  from the first", "ready")
            place.run("agent", "stop", "--all", "--yes")
            for each in (one, other):
                each.until("acphold has stopped", "To continue: acphold continue")
                assert each.ended() == 5


def test_a_session_that_is_not_running_cannot_be_watched(place: Place, journal: Path) -> None:
    remember(journal, "a-session", prompt("hello"), ended())
    refused = place.here("continue", "--watch", "a-session")
    assert refused.code == 1
    assert "not running; to continue it: acphold continue a-sess" in refused.err
    moved = place.here("continue", "--watch", "--cwd", "/", "a-session")
    assert (moved.code, "leave out --cwd" in moved.err) == (2, True)


def test_words_typed_at_the_first_of_two_questions_come_behind_both_for_whoever_comes_later(
    shared_place: Place, one: Terminal
) -> None:
    one.type(steps(ask(title="Run 1"), ask(toolCallId="t2", title="Run 2"), {"say": "Both asked."}))
    one.until("Run 1", ", then Enter")
    one.type("use make", "Enter rejects")
    one.type("\r", "Rejected; said to the agent: use make", "Run 2", "1 queued prompt", ", then")
    with shared_place.on_terminal("continue") as other:
        other.until("Enter continues")
        other.type("\r", "Run 2", "1 queued prompt", ", then Enter")
        one.type("n\r")
        one.until("rejected: Run 2")
        for each in (one, other):
            text = each.until("Both asked.", "you  use make", 'agent  heard: [{"type"', "ready")
            order = [text.rindex(it) for it in ("Both asked.", "you  use make", "heard: ")]
            assert order == sorted(order), text


def test_ctrl_c_in_a_running_turn_keeps_the_line_that_was_begun(one: Terminal) -> None:
    one.type(steps({"say": "begun"}, {"until": "cancel"}, {"stop": "cancelled"}))
    one.until("agent  begun", "running")
    one.type("the next one", "▸  the next one")
    one.type("\x03", "cancelled", "ready", "▸  the next one")
    one.type("\x03", "ready", but="the next one")


def test_in_a_pipe_each_line_is_a_prompt_and_nothing_is_allowed_unasked(place: Place) -> None:
    typed = f"{json.dumps([ask(title='Run it')])}\nsecond\n"
    done = place.run("chat", "--", *scripted_agent(), typed=typed)
    assert done.returncode == 0, done.stderr
    assert '"optionId": "stop"' in done.stdout
    assert "second" in done.stdout
    assert "\x1b" not in done.stdout


def test_a_sub_agent_is_shown_and_what_it_asks_is_answered(place: Place) -> None:
    def in_child(update: dict[str, Any]) -> dict[str, str]:
        return {"line": update_line(update, "kid")}

    told = {"sessionUpdate": "subagent_update", "sessionId": "kid"}
    (method, params) = ask(title="Run it")["ask"]
    over = {"state": "idle", "stopReason": "end_turn"}
    turn = [
        {"update": {**told, "title": "Explorer", "state": {"state": "running"}}},
        in_child(say("It is here.")),
        {"ask": [method, {**params, "sessionId": "kid"}]},
        {"update": {**told, "state": over}},
    ]
    done = place.run("chat", "--", *scripted_agent(), typed=f"{json.dumps(turn)}\n")
    assert done.returncode == 0, done.stderr
    assert "child: ● Explorer  sub-agent · done\n    sub-agent: It is here.\n" in done.stdout
    assert '"optionId": "stop"' in done.stdout


@pytest.mark.parametrize(
    ("last", "code"),
    [
        ({"stop": "refusal"}, 6),
        ({"stop": "max_tokens"}, 7),
        ({"error": {"code": -32603, "message": "it broke"}}, 5),
        ({"say": "fine"}, 0),
    ],
)
def test_in_a_pipe_the_exit_code_is_that_of_the_last_turn(
    place: Place, last: dict[str, Any], code: int
) -> None:
    typed = f"{json.dumps([{'stop': 'cancelled'}])}\n{json.dumps([last])}\n"
    assert place.run("chat", "--", *scripted_agent(), typed=typed).returncode == code


def test_what_is_typed_stays_one_prompt_over_several_lines_and_is_kept_private(
    shared_place: Place, one: Terminal
) -> None:
    one.type("one\\\rtwo\x1b\rthree", "three")
    one.type("\r", "one\\\\ntwo\\\\nthree".replace("\\\\", "\\"), "ready")
    one.type("\x1b[200~pasted\rlines\x1b[201~", "lines")
    one.type("\x04\x03", but="lines")
    kept = shared_place.folder / "state" / "acphold" / "prompts"
    assert kept.stat().st_mode & 0o777 == 0o600
    assert "+three" in kept.read_text()


def test_show_follow_prints_what_comes_until_the_process_goes(place: Place) -> None:
    with place.chat() as one:
        one.until("ready")
        one.type(steps({"say": "the first"}), "agent  the first", "ready")
        one.type(steps({"say": "the second"}), "agent  the second", "ready")
        [line] = [json.loads(it) for it in place.here("list", "--json").out.splitlines()]
        with place.on_terminal("show", "--follow", line["sessionId"]) as other:
            assert "first" not in other.until("agent  the second")
            one.type(steps({"say": "the third"}, ask(title="Run it")))
            other.until("agent  the third", "not answered yet: Run it")
            one.until("[y] allow once: Go on", ", then Enter")
            one.type("y\r")
            other.until("allowed once (in acphold): Run it → Go on")
            one.until("ready")
            assert one.ended("\x04") == 0
            place.run("agent", "stop", "--all", "--yes")  # else it stays for the next one
            assert other.ended() == 0
            other.until("ended with its process")


def test_show_follow_of_a_session_that_is_not_live_says_so(place: Place, journal: Path) -> None:
    remember(journal, "a-session", prompt("hello"), ended())
    done = place.here("show", "--follow", "--json", "a-session")
    kinds = [json.loads(it)["kind"] for it in done.out.splitlines()]
    assert (done.code, kinds[0], "turn_end" in kinds) == (0, "prompt", True)
    assert "is not live" in done.err
    for words in (("a-session@1",), ("--full", "a-session")):
        refused = place.here("show", "--follow", *words)
        assert (refused.code, refused.out) == (2, "")
        assert "not both" in refused.err


def test_who_only_watches_sees_a_question_and_cannot_answer_it(
    shared_place: Place, one: Terminal
) -> None:
    one.type(steps({"say": "from the first"}), "agent  from the first", "ready")
    with shared_place.on_terminal("continue", "--watch") as other:
        other.until("Enter watches")
        other.type("\r", "agent  from the first", "read-only", "q leaves")
        one.type(steps(ask(title="Run it")))
        other.until("The agent is waiting for an answer", "The question: Run it")
        other.type("y\r")
        one.until("[y] allow once: Go on", ", then Enter")
        one.type("n\r")
        other.until('agent  answer: {"outcome"', '"stop"')
        assert other.ended("q") == 0


def test_a_form_is_filled_in_field_by_field_and_seen_before_it_goes(one: Terminal) -> None:
    colours = {"type": "string", "title": "Colour", "enum": ["red", "blue"]}
    form = {
        "type": "object",
        "properties": {"colour": colours, "count": {"type": "integer"}},
        "required": ["colour", "count"],
    }
    asked = {"mode": "form", "message": "How shall it look?", "requestedSchema": form}
    one.type(steps({"ask": ["elicitation/create", asked]}))
    one.until("The agent asks for: Colour, count", "[f] fill it in", ", then Enter")
    one.type("f\r", "Colour", "2: blue")
    one.type("2\r", "count", "a whole number")
    one.type("many\r", "this must be a whole number")
    one.type("3\r", "colour: blue, count: 3", "[s] send", ", then Enter")
    one.type("s\r", 'agent  answer: {"action": "accept"', '"count": 3', "ready")


def test_y_and_n_answer_a_field_of_yes_or_no_whatever_its_line_began_with(one: Terminal) -> None:
    form = {
        "type": "object",
        "properties": {
            "tests": {"type": "boolean", "title": "Run the tests", "default": True},
            "push": {"type": "boolean", "default": False},
            "why": {"type": "string", "default": "any"},
        },
    }
    asked = {"mode": "form", "message": "How shall it go?", "requestedSchema": form}
    one.type(steps({"ask": ["elicitation/create", asked]}), "[f] fill it in", ", then Enter")
    one.type("f\r", "Run the tests", "y or n, then Enter", "?  y")
    one.type("n", "?  n")
    one.type("\r", "push", "?  n", but="Run the tests\n")
    one.type("yes")  # as a word, too
    one.until("?  yes")
    one.type("\r", "?  why", "?  any")
    one.type(" y")  # which is a letter in every other field
    one.until("?  any y")
    one.type("\r", "tests: no, push: yes, why: any y", ", then Enter")
    one.type("s\r", '"tests": false', '"push": true', "ready")


def test_a_terminal_that_becomes_narrow_is_drawn_for_its_width(one: Terminal) -> None:
    one.resize(60)
    one.type(steps({"say": "words " * 30}, {"until": "cancel"}), "running")
    one.until("words", "Ctrl-C cancels")
    assert max(len(line.rstrip()) for line in one.screen.display) <= 60
    one.type("\x03")


def test_on_a_narrow_terminal_nothing_is_cut_within_a_word(place: Place) -> None:
    with place.chat(columns=36) as one:
        one.until("ready")
        one.type("?\r", f"{'':9}Ctrl-T\n{'':11}unfold or fold thoughts\n", "ready")
        one.type(steps(ask(title="Run it")))
        one.until("▸\n         waiting for your answer…")


def test_no_colours_where_none_are_wanted(place: Place) -> None:
    place.env["NO_COLOR"] = "1"
    with place.chat() as one:
        one.until("ready")
        one.type(steps({"say": "# Plain **words**\n\nand `code`"}))
        one.until("Plain words", "and code", "ready")
        assert re.search(rb"\x1b\[(0;)?1mcode", one.raw)
        assert not re.search(rb"\x1b\[[0-9;]*(3[0-7]|9[0-7]|38|48)[;m]", one.raw)


def test_a_terminal_that_only_has_lines_gets_lines_and_is_asked_all_the_same(place: Place) -> None:
    place.env["TERM"] = "dumb"
    with place.chat(columns=300) as one:
        one.until("Starting")
        one.type(steps(ask(title="Run it")) + "\r")
        one.until("? Allow this? Run it", "[y] allow once: Go on", ", then Enter")
        one.type("y\ry\r")  # a paste, which is never a yes
        one.until("y\ny\n", "acphold: Rejected; said to the agent: y y", "you: y")
        one.type(steps(ask(title="Make it")) + "\r")
        one.until("[y]", ", then Enter", below="? Allow this? Make it")
        one.type("y\r", "asked: allowed once: Make it → Go on")
        one.type(steps(ask(title="Do it")) + "\r")
        one.until("[y]", ", then Enter", below="? Allow this? Do it")
        one.type("use make\r", "acphold: Rejected; said to the agent: use make", "you: use make")
        one.type(steps({"say": "begun"}, {"until": "cancel"}, {"stop": "cancelled"}))
        one.until('you: [{"say": "begun"}')
        one.process.send_signal(signal.SIGINT)  # the terminal of the test is not in control
        one.until("turn: cancelled")
        assert one.ended("\x04") == 0
    assert b"\x1b" not in one.raw


def test_a_crash_of_the_agent_is_told_and_the_next_prompt_goes_on(one: Terminal) -> None:
    one.type(steps({"say": "begun"}, {"stderr": "out of luck"}, {"exit": 3}))
    one.until("out of luck", "ready")
    one.type(steps({"say": "here again"}), "agent  here again", "ready")
