"""A title says what a person asked for, in words of their first prompt."""

from __future__ import annotations

import time

import msgspec
import pytest

from acphold.conversation.history.entries import Entry
from acphold.conversation.history.titles import (
    TITLE_LENGTH,
    is_own,
    last_words,
    says_nothing,
    shorten,
    title_of_prompt,
    title_of_words,
    words_below,
)

KEY = (
    "sk-ant-api03-"
    + "abcdefghijklmnopqrstuvwxyz0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"
    + "-abcdefghijk-AA"
)


TRACEBACK = """Traceback (most recent call last):
  File "a.py", line 1, in <module>
    main()
KeyError: 'x'

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "a.py", line 3, in main
    look()
ValueError: bad x"""


@pytest.mark.parametrize(
    ("said", "title"),
    [
        ("Mend   the\tgate \nand the fence", "Mend the gate"),
        ("Hi! Can you please fix the flaky test?", "Fix the flaky test"),
        ("Let's Encrypt renewal fails", "Let's Encrypt renewal fails"),
        ("let's add a sitemap", "Add a sitemap"),
        ("Please refactor the parser. Thanks!", "Refactor the parser"),
        ("Would you recommend Redis or Postgres?", "Would you recommend Redis or Postgres?"),
        ("Kannst du bitte die Tests schreiben?", "Die Tests schreiben"),
        (
            "<environment_context>\n<cwd>/x</cwd>\n</environment_context>\nRename it all",
            "Rename it all",
        ),
        ("Why does <div> not centre in Firefox?", "Why does <div> not centre in Firefox?"),
        ("```\nKeyError: 'a'\n```\nWhy does this happen?", "Why does this happen?"),
        ("$ npm test\n> failing\nWhat is wrong here?", "What is wrong here?"),
        ("Review this diff\n\n--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b", "Review this diff"),
        ("> it fails\n> on Mondays", "> it fails: > on Mondays"),
        ("# Task\n\nWrite a migration", "Task: Write a migration"),
        ("Fix it. The lock is taken twice.", "Fix it. The lock is taken twice"),
        ("Explain src/net/retry/policy.py to me", "Explain policy.py to me"),
        ("Read /home/ada/project/notes.txt, and/or guess", "Read notes.txt, and/or guess"),
        ("fix https://example.com/acme/tool/issues/82?x=1", "fix issues/82"),
        ("/compact", "/compact"),
        ("/model opus\n\nMake the login faster", "Make the login faster"),
        ("Kannst du mir bitte sagen, wo er ist?", "Sagen, wo er ist"),
        (f"Why?\n{TRACEBACK}", "Why?: ValueError: bad x"),
        (f"{TRACEBACK}\nWhy does this fail?", "Why does this fail?"),
        (f"```\n{TRACEBACK}\n```", "ValueError: bad x"),
        ("<task-note>\n<id>Background</id> done\n</task-note>", None),
        ("<task-note>done</task-note>\nMend the gate", "Mend the gate"),
        ("Where does <my-gate> stand?", "Where does <my-gate> stand?"),
        ("Thanks", "Thanks"),
        (
            "Why is **2 ** 3** no 9, and what are **kwargs?",
            "Why is 2 ** 3 no 9, and what are **kwargs?",
        ),
        (f"Use {KEY} to list the models", "Use [removed: API key] to list the models"),
        (" \n", None),
    ],
)
def test_a_title_is_what_a_person_asked_for(said: str, title: str | None) -> None:
    assert title_of_words(said) == title


def test_a_long_title_ends_behind_a_word() -> None:
    title = title_of_words("Translate all " + "documents " * 40)
    assert title is not None
    assert title.endswith("documents…")
    assert len(title) <= TITLE_LENGTH


def test_words_may_follow_a_picture() -> None:
    picture = {"type": "image", "data": "aGk=", "mimeType": "image/png"}
    assert title_of_prompt(msgspec.json.encode([picture])) is None
    said = [picture, {"type": "text", "text": "What is this?"}]
    assert title_of_prompt(msgspec.json.encode(said)) == "What is this?"


@pytest.mark.parametrize("raw", [b"", b"garbage", b"{}", b'[1,{"text":3}]'])
def test_a_prompt_that_cannot_be_read_has_no_last_words(raw: bytes) -> None:
    assert last_words([Entry(1, "prompt", 0, raw)]) == ""


@pytest.mark.parametrize(
    ("said", "drawn"),
    [
        ("All `*.py` and *.js of 2 * 3", "All *.py and *.js of 2 * 3"),
        ("`__init__` and __init__, 2 ** 3, **kwargs", "__init__ and __init__, 2 ** 3, **kwargs"),
        ("**Done**: *all* of _it_, ~~not~~ *a **b** c*", "Done: all of it, not a b c"),
        ("## Fixed\n- see [the `test`](test_a.py#L3)\n> 1. quoted", "Fixed see the test quoted"),
        ("Now:\n```py\nx = [a](b) * c * d\n```\nruns.", "Now: x = [a](b) * c * d runs."),
        (
            "snake_case_name, \\*kept\\*, ``a`b`` and `open",
            "snake_case_name, *kept*, a`b and `open",
        ),
        ("这是**重点**的", "这是重点的"),
    ],
)
def test_last_words_are_the_text_as_it_is_drawn(said: str, drawn: str) -> None:
    prompt = msgspec.json.encode([{"type": "text", "text": said}])
    assert last_words([Entry(1, "prompt", 0, prompt)]) == drawn


@pytest.mark.parametrize("sign", ["`", "``` ", "*a ", "**a ", "[", "_a ", "\\", "`a``b", "*a_b**"])
def test_signs_that_never_end_cost_no_time(sign: str) -> None:
    said = [{"type": "text", "text": sign * 2000}]
    began = time.process_time()
    last_words([Entry(1, "prompt", 0, msgspec.json.encode(said))])
    assert time.process_time() - began < 0.2


def test_last_words_that_begin_as_the_title_are_not_said_twice() -> None:
    assert words_below("Fix the greeting, please, in all files", "Fix the greeting…") == ""
    assert words_below("Done.", "Fix the greeting…") == "Done."
    assert words_below("Done.", None) == "Done."
    assert words_below("Fix foo in bar, please", "Fix `foo` in *bar*") == ""


@pytest.mark.parametrize(
    ("title", "is_empty"),
    [
        ("hi", True),
        ("Hello!", True),
        ("Hi there", True),
        ("go on, please", True),
        ("OK", True),
        ("Continue with the greeting", False),
        ("/init", True),
        ("/model opus", True),
        ("! git status", True),
        ("/review the new parser", False),
        ("/etc/hosts", False),
        ("hello.py", False),
        ("会話", False),
    ],
)
def test_a_greeting_says_nothing_of_a_conversation(title: str, is_empty: bool) -> None:
    assert says_nothing(title) is is_empty


@pytest.mark.parametrize(
    ("title", "is_its"),
    [
        ("A better gate", True),
        ("Mend the GATE", False),
        ("Mend the…", False),
        ("Then paint it", False),
        ("New session - 2026-09-01T11:20:40.228Z", False),
        ("New session - 2026-09-01T11:20:40.228Z (fork #1)", False),
        ("New session handling", True),
    ],
)
def test_a_title_of_an_agents_own_is_no_default_and_no_prompt(title: str, is_its: bool) -> None:
    assert is_own(title, ["Mend the  gate, please", "Then paint it"]) is is_its


def test_a_cut_keeps_its_marks_if_it_has_nothing_else() -> None:
    assert shorten("-" * 10, 5) == "----…"
    assert shorten("a, - b", 5) == "a…"
