"""Cursors: only our own are accepted, and only for the same list."""

from __future__ import annotations

import os
import re

import pytest
from hypothesis import given, strategies as st

from acp_wire.errors import INVALID_PARAMS
from acphold.errors import CursorError
from acphold.journal import list_places
from acphold.journal.rows import ListFilter, ListKey

SECRET = b"s" * 32
KEYS = st.builds(ListKey, st.integers(0, 1 << 50), st.text(st.characters(codec="utf-8")))
FILTERS = st.builds(ListFilter, st.none() | st.text("ab"), st.none() | st.text("/w"))


@given(KEYS, FILTERS)
def test_a_cursor_leads_back_to_its_place(key: ListKey, filter: ListFilter) -> None:
    text = list_places.encode(key, filter, SECRET)
    assert re.fullmatch(r"[A-Za-z0-9_-]+", text)
    assert list_places.decode(text, filter, SECRET) == key


def list_of(filter: ListFilter) -> tuple[tuple[str, ...], str | None]:
    """Equal for filters of the same list: `w` and `w/` are one folder."""
    return filter.agents, None if filter.cwd is None else os.path.realpath(filter.cwd)


@given(KEYS, FILTERS, FILTERS)
def test_a_cursor_is_refused_with_another_filter(
    key: ListKey, filter: ListFilter, other: ListFilter
) -> None:
    text = list_places.encode(key, filter, SECRET)
    if list_of(filter) != list_of(other):
        with pytest.raises(CursorError, match="another filter"):
            list_places.decode(text, other, SECRET)


@given(KEYS, st.data())
def test_a_cursor_with_any_character_changed_is_refused(key: ListKey, data: st.DataObject) -> None:
    text = list_places.encode(key, ListFilter(), SECRET)
    place = data.draw(st.integers(0, len(text) - 1))
    character = data.draw(st.characters().filter(lambda other: other != text[place]))
    for altered in (
        text[:place] + character + text[place + 1 :],
        text[:place],
        text[:place] + "!" + text[place:],
        text + "=",
    ):
        with pytest.raises(CursorError):
            list_places.decode(altered, ListFilter(), SECRET)


@pytest.mark.parametrize("text", ["", "x", "AAAA", "é", "MTIz" * 20])
def test_what_is_no_cursor_is_an_invalid_parameter(text: str) -> None:
    with pytest.raises(CursorError) as caught:
        list_places.decode(text, ListFilter(), SECRET)
    assert caught.value.code == INVALID_PARAMS


def test_a_cursor_of_another_journal_is_refused() -> None:
    text = list_places.encode(ListKey(1, "s"), ListFilter(), SECRET)
    with pytest.raises(CursorError):
        list_places.decode(text, ListFilter(), b"t" * 32)


def test_who_holds_sessions_does_not_belong_to_the_filter() -> None:
    text = list_places.encode(ListKey(1, "s"), ListFilter(cwd="/w"), SECRET)
    held = ListFilter(cwd="/w", held=frozenset({"s"}), include_unprompted=True)
    assert list_places.decode(text, held, SECRET) == ListKey(1, "s")
