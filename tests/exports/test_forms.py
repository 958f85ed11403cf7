"""The names of the files of an export, and the memory that each form takes."""

from __future__ import annotations

import os
import re
import tracemalloc
from collections.abc import AsyncIterator

import pytest
from hypothesis import given, strategies as st
from msgspec.structs import replace

from acphold.conversation.exports.forms import FORMS, Head
from acphold.conversation.history.entries import Entry
from tests.raw_entries import ended, prompt, update

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


@pytest.mark.parametrize(("form", "most"), [("jsonl", 1.0), ("markdown", 5.0), ("html", 5.0)])
async def test_of_long_output_few_copies_are_in_memory_while_it_is_written(
    form: str, most: float
) -> None:
    text = "a line of output\n" * 200_000
    output = {"type": "content", "content": {"type": "text", "text": text}}
    kind, call = update("tool_call", toolCallId="t", content=[output])
    said = [prompt("x"), (kind, call), ended()]

    async def entries() -> AsyncIterator[Entry]:
        for seq, (kind, raw) in enumerate(said, 1):
            yield Entry(seq, kind, 0, raw)

    async def write() -> tuple[int, int]:
        tracemalloc.start()
        try:
            size = sum([len(piece) async for piece in FORMS[form].writer()(HEAD, entries())])
            return size, tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    await write()  # what is imported late is there
    size, peak = await write()
    assert size >= len(text)
    assert peak < most * len(text)
