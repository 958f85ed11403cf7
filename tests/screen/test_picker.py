"""The list of sessions: its columns, whatever their texts are, and what is marked in them."""

from __future__ import annotations

import asyncio
import io
import sys
from collections.abc import AsyncIterator, Sequence

import pytest
from prompt_toolkit.application import create_app_session
from prompt_toolkit.input import create_pipe_input
from rich.cells import cell_len

from acp_wire.tasks import beside
from acphold.faces.screen.picker import (
    FOUND,
    HERE,
    Picked,
    Picker,
    PickerLine,
    end_of,
    highlight,
    shorten,
)
from tests.editor import DEADLINE
from tests.watched_processes import until


@pytest.mark.parametrize(
    ("path", "width", "shown"),
    [
        ("~/shop", 14, "~/shop"),
        ("~/work/customers/shop", 14, "…/shop"),
        ("~/work/customers/shop", 16, "…/customers/shop"),
        ("~/work/shop/", 9, "…/shop"),
        ("~/work/shop-of-europe", 9, "…f-europe"),
        ("~/仕事/日本の店", 10, "…/日本の店"),
        ("~/仕事/日本の店", 9, "…日本の店"),
        ("~/仕事/日本の店", 6, "…の店"),
        ("/" * 1_000_000, 9, "…"),
        ("~/仕事", 1, "…"),
    ],
)
def test_a_long_path_loses_its_beginning_and_keeps_its_last_folder(
    path: str, width: int, shown: str
) -> None:
    assert end_of(path, width) == shown
    assert cell_len(shown) <= width


@pytest.mark.parametrize(
    ("text", "is_twin", "shown"),
    [
        ("Rename the settings", True, "Rename the settings"),
        ("Rename the settings in the web application", False, "Rename the settings in …"),
        ("Rename the settings in the web application", True, "Rename the s…application"),
        ("Rename the settings in the terminal", True, "Rename the s…terminal"),
        ("x" * 100, True, "x" * 11 + "…" + "x" * 12),
        ("日本" * 20, True, "日本日本日…日本日本日本"),
    ],
)
def test_twins_are_told_apart_by_their_last_words(text: str, is_twin: bool, shown: str) -> None:
    found = shorten(text, 24, is_twin=is_twin)
    assert cell_len(found) <= 24
    assert found.partition("…")[2] == shown.partition("…")[2]
    assert found.startswith(shown[:8])


def test_the_places_of_the_words_are_marked_whatever_their_case() -> None:
    assert highlight("A Needle, needles", ["needle"], "") == [
        ("", "A "),
        ("class:match", "Needle"),
        ("", ", "),
        ("class:match", "needle"),
        ("", "s"),
    ]
    assert highlight("ẞ needle", ["needle"], "") == [("", "ẞ needle")]


TITLE = "Rename the settings, which were named by somebody else, in the "


class Sessions:
    """Two sessions whose titles begin alike, and one with the typed words in its text."""

    async def lines(self) -> AsyncIterator[Sequence[PickerLine]]:
        yield [
            PickerLine(f"s-{end}", f"{TITLE}{end}", "done", "claude", "/shop", "1 h", HERE)
            for end in ("web page", "terminal")
        ]

    async def search(self, words: str) -> Sequence[PickerLine]:
        found = "the words before what was found, and the settings"
        return [
            PickerLine(session_id, TITLE, "done", "pi", "/shop", "2 h", FOUND, found)
            for session_id in ("s-3", "s-terminal")  # that one is listed by its title
        ]

    async def preview(self, session_id: str) -> Sequence[str]:
        return ["its last words"]


async def test_titles_that_begin_alike_are_listed_with_their_ends_and_what_was_found_with_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    terminal = io.StringIO()
    monkeypatch.setattr(sys, "__stdout__", terminal)
    with create_pipe_input() as keys, create_app_session(input=keys):
        picker = Picker(Sessions())

        async def shown(*texts: str) -> None:
            await until(lambda: all(text in terminal.getvalue() for text in texts))

        async def person() -> None:
            await shown("this folder", "…in the web page", "…in the terminal")
            assert "Rename the settings, which" not in terminal.getvalue()
            assert "its last words" not in terminal.getvalue()
            await shown("Tab preview")
            keys.send_text("\t")
            await shown("its last words")  # below the list: the terminal is narrow
            keys.send_text("settings")
            await shown("found in the text", "Rename the settings, which were n…")
            assert picker._count()[0][1] == "3 of 3"
            keys.send_text("\r")

        async with asyncio.timeout(2 * DEADLINE), beside(person(), "person"):
            assert await picker.run() == Picked("s-web page", "open")


async def test_all_of_a_session_is_read_with_the_list_as_it_was_afterwards(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "__stdout__", terminal := io.StringIO())
    read: list[str] = []

    async def show(session_id: str) -> None:
        read.append(session_id)

    with create_pipe_input() as keys, create_app_session(input=keys):
        picker = Picker(Sessions(), read=show)

        async def person() -> None:
            await until(lambda: "^O reads it" in terminal.getvalue())
            keys.send_text("rename\x1b[B\x0f")
            await until(lambda: read == ["s-terminal"])
            keys.send_text("\r")

        async with asyncio.timeout(2 * DEADLINE), beside(person(), "person"):
            assert await picker.run() == Picked("s-terminal", "open")


async def test_the_end_beside_the_list_is_broken_between_words(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "__stdout__", io.StringIO())
    sessions = Sessions()
    words = [f"paragraph{number}" for number in range(40)]

    async def preview(session_id: str) -> Sequence[str]:
        return [" ".join(words)]

    monkeypatch.setattr(sessions, "preview", preview)
    monkeypatch.setattr(Picker, "_is_wide", True)
    with create_pipe_input() as keys, create_app_session(input=keys):
        picker = Picker(sessions)

        async def person() -> None:
            await until(lambda: picker._preview is not None)
            text = "".join(piece[1] for piece in picker._preview_text())
            assert text.split() == words
            assert text.count("\n") > 10
            keys.send_text("\x1b")

        async with asyncio.timeout(2 * DEADLINE), beside(person(), "person"):
            assert await picker.run() is None
