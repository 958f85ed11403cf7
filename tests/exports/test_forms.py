"""The names of the files of an export."""

from __future__ import annotations

import os
import re

import pytest
from hypothesis import given, strategies as st
from msgspec.structs import replace

from acphold.conversation.exports.forms import Head

HEAD = Head("01a1f8ba-aa04-7032-9c1f-000000000001", "agent", "/", 0, 0)


@pytest.mark.parametrize(
    ("title", "words"),
    [
        ("Fix the *greeting* in `hello.py`", "fix-the-greeting-in-hello-py"),
        ("Don't say naïve Größe — ever", "dont-say-naive-gro-e-ever"),
        ("会話を直す", "会話を直す"),
        ("Fix 会話", "fix"),
        ("a word " * 20, "a-word-" * 6 + "a-word"),
        ("x" * 80, "x" * 50),
        ("../../etc/passwd\x00\u202e.exe", "etc-passwd-exe"),
        ("...", "session"),
        (None, "session"),
    ],
)
def test_a_file_is_named_by_title_and_the_beginning_of_the_id(
    title: str | None, words: str
) -> None:
    assert re.fullmatch(f"{words}-01a1f8ba-[0-9a-f]{{8}}", replace(HEAD, title=title).file_name)


def test_two_of_one_title_and_one_minute_have_a_file_each() -> None:
    other = replace(HEAD, session_id="01a1f8ba-aa04-7032-9c1f-000000000002")
    assert other.file_name != HEAD.file_name


@given(st.text(max_size=80), st.text(min_size=1, max_size=80))
def test_no_title_and_no_id_leave_the_folder_or_hide_a_file(title: str, session_id: str) -> None:
    name = replace(HEAD, title=title, session_id=session_id).file_name
    assert os.path.basename(name) == name
    assert len(name.encode()) < 250
    assert all(it.isalnum() or it == "-" for it in name)
    assert name[0] != "-"
