"""`acphold show`: the transcript of a session."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from pathlib import Path

import pytest

from acphold.errors import AmbiguousIdError
from tests.cli.command_line import ACPHOLD, SECONDS, CommandLine
from tests.cli.conversation import remember
from tests.raw_entries import CONVERSATION, ended, prompt, said, update

TRANSCRIPT = """\
you: Make it friendlier

thought: A thought.

agent: I will change **it**.

tool: ● Edit hello.py  edit · completed
    /home/me/hello.py
    - hi
    + hello

plan: ✓ Change the greeting

agent: Done.

turn: ended
"""


@pytest.fixture
def told(journal: Path) -> Path:
    """A journal with a conversation."""
    remember(journal, "0b5e-1f2a-77", *CONVERSATION, title="Greeting")
    return journal


@pytest.mark.usefixtures("told")
def test_any_prefix_that_fits_one_session_shows_its_transcript_below_a_short_id(
    acphold: CommandLine,
) -> None:
    done = acphold.run("show", "0b")
    head, _, conversation = done.out.partition("\n\n")
    assert head.startswith("Greeting\nsession 0b5e-1\nscripted in /home/me\n")
    assert conversation == TRANSCRIPT


def test_the_prompt_of_a_named_user_has_their_name_and_is_not_yours(
    acphold: CommandLine, journal: Path
) -> None:
    author = "author", b'{"name":"zed","version":"1","user":"bert"}'
    remember(journal, "s", author, prompt("hello"), ended())
    assert "\n\nuser: bert\n  hello\n" in acphold.run("show", "s").out


@pytest.mark.usefixtures("told")
def test_on_a_terminal_it_is_in_colour_beside_a_gutter(acphold: CommandLine) -> None:
    shown = acphold.shown("show", "0b5e-1")
    assert "\x1b[1;36m    you\x1b[0m  Make it friendlier" in shown.out
    assert "  agent  I will change it." in shown.plain  # Markdown, laid out
    assert "\x1b[32m+ hello" in shown.out


def test_how_each_turn_ended_is_told(acphold: CommandLine, journal: Path) -> None:
    remember(
        journal,
        "s",
        *(prompt("1"), ended(interrupted=True)),
        *(prompt("2"), ended(stopReason="cancelled")),
        *(prompt("3"), ended(error={"code": -32603, "message": "out of tokens"})),
        *(prompt("4"), ended(stopReason="refusal")),
        *(prompt("5"), ended(stopReason="max_tokens")),
        *(prompt("6"), ended(stopReason="_paused")),
        *(prompt("7"), ended()),
        prompt("8"),
    )
    turns = [line for line in acphold.run("show", "s").out.splitlines() if "turn: " in line]
    assert [turn.partition(":")[2].split(":")[0].strip() for turn in turns] == [
        "interrupted by a crash or a kill",
        "cancelled",
        "failed",
        "refused",
        "stopped at a limit",
        "ended",
        "ended",
        "interrupted; the session has not been opened since",
    ]
    assert turns[2].endswith("failed: out of tokens")
    assert turns[4].endswith("stopped at a limit: max tokens")
    assert turns[5].endswith("ended: paused")


@pytest.mark.usefixtures("told")
def test_json_is_every_journal_entry_on_a_line(acphold: CommandLine) -> None:
    entries = [
        json.loads(line) for line in acphold.run("show", "0b5e-1", "--json").out.split("\n")[:-1]
    ]
    assert all(entry.keys() == {"seq", "kind", "at", "update"} for entry in entries)
    assert entries[0]["kind"] == "prompt"
    prompt = [{"type": "text", "text": "Make it friendlier"}]
    assert entries[0]["update"] == {"prompt": prompt}
    assert entries[0]["at"].endswith("Z")
    assert entries[-1]["update"] == {"stopReason": "end_turn"}


def test_an_update_that_a_later_one_made_void_is_no_line(
    acphold: CommandLine, journal: Path
) -> None:
    sizes = [update("usage_update", used=used, size=100) for used in (1, 2)]
    remember(journal, "void", prompt("Hello"), *sizes, said("Hi."), ended())
    entries = map(json.loads, acphold.run("show", "void", "--json").out.splitlines())
    kinds = [(entry["kind"], entry["update"].get("used")) for entry in entries]
    assert kinds == [("prompt", None), ("update", 2), ("update", None), ("turn_end", None)]


def test_a_latin_terminal_gets_question_marks_and_no_traceback(
    acphold: CommandLine, journal: Path
) -> None:
    remember(journal, "s", prompt("日本"), ended())
    done = acphold.run_as_process("show", "s", PYTHONIOENCODING="latin-1", PYTHONUTF8="0")
    assert (done.code, "you: ??" in done.out) == (0, True)


def test_a_reader_that_has_seen_enough_ends_it_quietly(acphold: CommandLine, journal: Path) -> None:
    remember(journal, "s", prompt("x"), *[said("y" * 4000)] * 500)
    for option in ("--json", "--full"):
        with subprocess.Popen(
            [*ACPHOLD, "show", "s", option],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=acphold.environment,
        ) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            process.stdout.readline()
            process.stdout.close()
            assert process.stderr.read() == b""
            assert process.wait(SECONDS) == 0


def test_an_unknown_or_ambiguous_id_has_its_own_exit_code(
    acphold: CommandLine, journal: Path
) -> None:
    remember(journal, "ab-1", prompt("x"), title="Say hello.")
    remember(journal, "ab-2", prompt("x"), title="Say goodbye.")
    unknown, ambiguous = acphold.run("show", "zz"), acphold.run("show", "ab")
    assert (unknown.code, ambiguous.code) == (3, 3)
    assert unknown.err.startswith("acphold: no session id begins with 'zz'; `acphold list")
    assert ambiguous.err == (
        "acphold: 'ab' fits 2 sessions; more letters: ab-1 Say hello., ab-2 Say goodbye.\n"
    )


def test_words_of_a_title_in_place_of_an_id_are_told_with_the_ids_that_they_fit(
    acphold: CommandLine, journal: Path
) -> None:
    for number in range(4):
        remember(journal, f"ab-{number}", prompt("x"), title=f"Say hello {number}.")
    done = acphold.run("show", "Hello 2")
    assert (done.code, done.out) == (3, "")
    assert (
        "no session id begins with 'Hello 2'; sessions with these words: ab-2 Say hello 2.;"
        in done.err
    )
    assert acphold.run("show", "hello").err.count("Say hello") == 3
    assert "ab-1 Say hello 1., …;" in acphold.run("show", "hello").err


def test_a_prefix_that_fits_many_sessions_names_some_and_counts_the_rest(
    acphold: CommandLine, journal: Path
) -> None:
    for number in range(11):
        remember(journal, f"ab-{number:02}", prompt("x"), title="x")
    assert "fits 11 sessions; more letters: ab-00 x, ab-01 x, " in acphold.run("show", "ab").err
    assert acphold.run("show", "ab").err.endswith("ab-07 x and 3 more\n")
    assert "; one more letter: ab-00 x, " in acphold.run("show", "ab-0").err


def test_of_very_many_sessions_a_prefix_fits_more_than_a_hundred() -> None:
    error = AmbiguousIdError("ab", tuple(f"ab-{number}" for number in range(100)), more=True)
    assert str(error).startswith("'ab' fits more than 100 sessions; more letters: ab-0, ab-1, ")
    assert str(error).endswith("ab-7 and more than 92 more")


def test_long_output_of_a_tool_is_cut_unless_all_is_asked_for(
    acphold: CommandLine, journal: Path
) -> None:
    lines = "\n".join(f"line {number}" for number in range(100))
    output = {"type": "content", "content": {"type": "text", "text": lines}}
    tool = {"sessionUpdate": "tool_call", "toolCallId": "t", "title": "cat", "content": [output]}
    remember(journal, "s", prompt("x"), ("update", json.dumps(tool).encode()), ended())
    [cut] = re.findall("… 80 more lines; `acphold (.*)` shows them", acphold.run("show", "s").out)
    assert cut.startswith("show ")
    assert "line 99" in acphold.run(*shlex.split(cut)).out


def test_of_very_long_output_and_changes_only_the_beginning_is_read(
    acphold: CommandLine, journal: Path
) -> None:
    lines = "\n".join(f"line {number}" for number in range(100_000))
    output = {"type": "content", "content": {"type": "text", "text": f"```\n{lines}\n```"}}
    change = {"type": "diff", "path": "/w/a", "oldText": lines, "newText": f"{lines}\nmore"}
    done = {"title": "make", "kind": "execute", "status": "completed"}
    calls = [
        update("tool_call", toolCallId="t", **done, content=[output]),
        update("tool_call", toolCallId="u", **done, content=[change]),
    ]
    remember(journal, "s", prompt("x"), *calls, ended())
    out = acphold.run("show", "s").out
    [cut] = re.findall("    … more lines, in 1.1 MiB; `acphold (.*)` shows them", out)
    assert "  line 0\n" in out
    assert "  line 19\n    …" in out
    assert "    /w/a\n    @@ a long change, in 2.3 MiB @@\n" in out
    assert "line 99999" in acphold.run(*shlex.split(cut)).out


@pytest.mark.usefixtures("told")
def test_in_a_pipe_it_says_what_to_type_instead_of_a_choice(acphold: CommandLine) -> None:
    done = acphold.run("show")
    assert done.code == 2
    assert (
        "`acphold list` prints them, or type `-` for the newest session in this folder" in done.err
    )


# -- places ---------------------------------------------------------------------------------

STEPS = [
    said(f"step {n}", "agent_thought_chunk" if n % 2 else "agent_message_chunk") for n in range(20)
]


@pytest.fixture
def placed(journal: Path) -> Path:
    """A journal with two turns: entries 1 to 3 and, compacted, 4 to 25."""
    remember(
        journal,
        "0b5e-1",
        *(prompt("First"), said("nothing"), ended()),
        *(prompt("Second"), *STEPS, ended()),
        title="Greeting",
    )
    return journal


def test_a_session_without_a_turn_has_nothing_to_show_around_an_entry(
    acphold: CommandLine, journal: Path
) -> None:
    remember(journal, "aa", update("session_info_update", title="Empty"))
    assert acphold.run("show", "aa@last").out.endswith("\nThis turn has no messages.\n")


@pytest.mark.usefixtures("placed")
def test_a_place_is_shown_with_its_prompt_and_what_is_around_it(acphold: CommandLine) -> None:
    done = acphold.run("show", "0b@15")
    head, _, passages = done.out.partition("\n\n")
    more, command = re.findall("(… 6 more in this turn; `acphold (.*)` shows them)", done.out)[0]
    assert head.endswith("turn 2, around @15")
    assert passages.splitlines()[::2] == [
        "you: Second",
        more,
        *(f"{'agent' if n % 2 == 0 else 'thought'}: step {n}" for n in range(6, 10)),
        "▸ agent: step 10",
        *(f"{'agent' if n % 2 == 0 else 'thought'}: step {n}" for n in range(11, 15)),
        more,
    ]
    assert "step 19" in acphold.run(*shlex.split(command)).out


@pytest.mark.usefixtures("placed")
def test_the_last_entry_and_the_newest_session_have_names(acphold: CommandLine) -> None:
    last = json.loads(acphold.run("show", "0b", "--json").out.splitlines()[-1])["seq"]
    assert acphold.run("show", "0b@last").out == acphold.run("show", f"0b@{last}").out
    assert acphold.run("show", "--last", "0b").code == 2
    assert acphold.run("show", "last").err == acphold.run("show", "-").err
    assert acphold.run("show", "--last").err == acphold.run("show", "-").err


@pytest.mark.usefixtures("placed")
def test_full_and_json_show_the_whole_turn_of_a_place(acphold: CommandLine) -> None:
    passages = acphold.run("show", "--full", "0b5e-1@1").out.split("\n\n")[1:]
    assert passages == ["▸ you: First", "agent: nothing", "turn: ended\n"]
    lines = acphold.run("show", "--json", "0b5e-1@2").out.splitlines()
    assert [json.loads(line)["seq"] for line in lines] == [1, 2, 3]


@pytest.mark.usefixtures("placed")
def test_a_place_is_marked_on_a_terminal(acphold: CommandLine) -> None:
    shown = acphold.shown("show", "0b5e-1@2")
    assert "\n  agent▸ nothing" in shown.plain


@pytest.mark.usefixtures("placed")
def test_an_entry_that_is_not_there_is_refused_and_what_is_no_place_is_no_id(
    acphold: CommandLine,
) -> None:
    for place in ("0b@0", "0b@26", "0b@" + "9" * 5000):
        done = acphold.run("show", place)
        assert (done.code, "are numbered from 1 to 25" in done.err) == (2, True)
    for place in ("0b@", "0b@x", "0b@-1", "@1", "zz@1", "0b@1@1"):
        assert acphold.run("show", place).code == 3


def test_an_id_with_an_at_sign_is_an_id(acphold: CommandLine, journal: Path) -> None:
    remember(journal, "me@1", prompt("One"), ended())
    assert "you: One" in acphold.run("show", "me@1").out
    assert "▸ you: One" in acphold.run("show", "me@1@1").out
