from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal
from pathlib import PurePath
from typing import Any

import pytest
from hypothesis import given, strategies as st

from acphold.errors import DeclarationError
from acphold.library.outbox import Outbox, Post
from acphold.library.store import Store
from acphold.live.agents.interface import AgentRequest, Event, Updates

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
KEYS = st.sampled_from(["a", "b", "c"])
STEPS = st.lists(
    st.tuples(st.just("set"), KEYS, JSON)
    | st.tuples(st.just("append"), KEYS, JSON)
    | st.tuples(st.just("delete"), KEYS, st.none())
)


class Journal(Outbox):
    """Keeps a store's writes."""

    def __init__(self) -> None:
        super().__init__("s", Post(_Nobody()))
        self.kept: list[bytes] = []

    def keep(self, kind: str, raw: bytes) -> None:
        assert kind == "store"
        self.kept.append(raw)


class _Nobody:
    async def hear(self, event: Event) -> None: ...

    async def hear_together(self, said: Sequence[Updates]) -> list[bool]:
        raise AssertionError

    async def answer(self, asked: AgentRequest) -> bytes:
        raise AssertionError


@given(STEPS)
def test_a_store_is_restored_as_it_was_left(steps: list[tuple[str, str, Any]]) -> None:
    journal = Journal()
    store, known = Store(journal), dict[str, Any]()
    for step, key, value in steps:
        if step == "set":
            store[key] = known[key] = value
        elif step == "delete" and key in known:
            del store[key], known[key]
        elif step == "append" and isinstance(known.get(key, []), list):
            store.append(key, value)
            known[key] = [*known.get(key, []), value]
    assert dict(store) == known
    again = Store(Journal())
    for raw in journal.kept:
        again.restore(raw)
    assert dict(again) == known


def test_only_the_item_is_written_when_a_list_grows() -> None:
    journal = Journal()
    store = Store(journal)
    for number in range(1000):
        store.append("log", number)
    assert max(map(len, journal.kept)) < 40
    assert store["log"] == list(range(1000))


def test_a_value_that_was_read_is_a_copy() -> None:
    store = Store(Journal())
    store["list"] = [1]
    store["list"].append(2)
    assert store["list"] == [1]


CYCLE: list[object] = []
CYCLE.append(CYCLE)


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (object(), "a object"),
        (b"bytes", "a bytes"),
        ({1, 2}, "a set"),
        (datetime(2026, 1, 1), "a datetime"),
        (Decimal(1), "a Decimal"),
        (PurePath("a"), "a Pure"),
        ({"a": [1, b"b"]}, r"a bytes at \['a'\]\[1\]"),
        (float("nan"), "nan"),
        ([float("inf")], r"inf at \[0\]"),
        ({1: "a"}, "the key 1: keys must be strings"),
        ("half \ud83d", "this value"),
        (CYCLE, "this value"),
    ],
)
def test_what_json_cannot_hold_is_refused_at_the_line_that_sets_it(value: object, why: str) -> None:
    journal = Journal()
    store = Store(journal)
    with pytest.raises(TypeError, match=f"JSON cannot hold {why}"):
        store["key"] = value
    with pytest.raises(TypeError, match=f"JSON cannot hold {why}"):
        store.append("key", value)
    assert (len(store), journal.kept) == (0, [])


@pytest.mark.parametrize("key", [5, None, "half \ud83d"])
def test_a_key_that_could_not_be_restored_is_refused(key: Any) -> None:
    journal = Journal()
    store = Store(journal)
    with pytest.raises(TypeError, match="the store"):
        store[key] = 1
    with pytest.raises(TypeError, match="the store"):
        store.append(key, 1)
    assert (len(store), journal.kept) == (0, [])


@pytest.mark.parametrize("value", [None, True, 2**70, 0.5, "é", [1, ["a"]], {"a": {"b": None}}])
def test_what_json_can_hold_comes_back_as_it_was(value: object) -> None:
    store = Store(Journal())
    store["key"] = value
    assert store["key"] == value


def test_nothing_can_be_appended_to_what_is_not_a_list() -> None:
    store = Store(Journal())
    store["key"] = {"a": 1}
    with pytest.raises(DeclarationError, match="cannot append to 'key'"):
        store.append("key", 1)
