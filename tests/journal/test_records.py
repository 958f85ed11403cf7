"""Records as one transaction sees them: with its own changes, before any of them is written."""

from __future__ import annotations

from hypothesis import given, strategies as st

from acphold.history.entries import now_ms
from acphold.journal.records.draft import Draft, key
from dict_store import Shelf

PLACES = st.integers(0, 30)
CHANGES = st.lists(st.tuples(PLACES, st.none() | st.integers(0, 9)))


@given(CHANGES, CHANGES, PLACES, PLACES, st.booleans(), st.integers(1, 5))
def test_a_walk_sees_what_is_kept_and_what_was_changed_each_once_and_in_order(
    kept: list[tuple[int, int | None]],
    changed: list[tuple[int, int | None]],
    first: int,
    end: int,
    backwards: bool,
    at_once: int,
) -> None:
    shelf = Shelf()
    for changes in (kept, changed):
        draft = Draft(shelf, now_ms)
        for place, value in changes:
            if value is None:
                draft.remove(key(b"x", place))
            else:
                draft.put(key(b"x", place), value)
        if changes is kept:
            draft.save()
    expected = dict([*kept, *changed])
    its = [it for it in sorted(expected) if first <= it < end and expected[it] is not None]
    walk = draft.walk(key(b"x", first), key(b"x", end), backwards=backwards, at_once=at_once)
    assert [it for it, _ in walk] == [key(b"x", it) for it in (its[::-1] if backwards else its)]
    for place, value in expected.items():
        assert draft.get(key(b"x", place), int) == value
    draft.save()
    left = [it for it, _ in shelf.scan(b"", b"\xff", 100, False)]
    assert left == [key(b"x", it) for it in sorted(expected) if expected[it] is not None]


PARTS = st.text("ab\0\xff", max_size=4)


@given(st.lists(st.tuples(PARTS, PARTS, st.integers(-(1 << 63), (1 << 63) - 1))))
def test_keys_are_in_the_order_of_their_parts(parts: list[tuple[str, str, int]]) -> None:
    assert sorted(parts, key=lambda it: key(b"x", *it)) == sorted(parts)
    assert len({key(b"x", *it) for it in parts}) == len({*parts})
