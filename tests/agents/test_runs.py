"""Notifications of an agent sorted into runs of updates."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, strategies as st

from acp_wire.rpc import CutNotification, NotificationReceived
from acphold.live.agents.interface import Notified, Updates, runs, session_of


def told(method: str, params: Any) -> NotificationReceived:
    raw = params if isinstance(params, bytes) else json.dumps(params).encode()
    return NotificationReceived(method, raw)


def update(session: str, number: int, **more: Any) -> NotificationReceived:
    params = {"sessionId": session, "update": {"n": number}, **more}
    return told("session/update", params)


def test_updates_of_one_session_in_a_row_are_one_run() -> None:
    batch = [update("a", 1), update("a", 2), update("b", 3), update("a", 4)]
    assert list(runs(batch)) == [
        Updates("a", "update", [b'{"n": 1}', b'{"n": 2}']),
        Updates("b", "update", [b'{"n": 3}']),
        Updates("a", "update", [b'{"n": 4}']),
    ]


def test_another_notification_keeps_its_place_between_updates() -> None:
    other = told("_x/y", {"sessionId": "a"})
    assert list(runs([update("a", 1), other, update("a", 2)])) == [
        Updates("a", "update", [b'{"n": 1}']),
        Notified(other.method, other.params),
        Updates("a", "update", [b'{"n": 2}']),
    ]


def test_params_that_carry_more_stay_whole() -> None:
    more = update("a", 1, _meta={"x": 1.0})
    assert list(runs([more, update("a", 2)])) == [
        Updates("a", "params", [more.params]),
        Updates("a", "update", [b'{"n": 2}']),
    ]


def test_what_holds_no_update_is_left_out_and_nothing_else() -> None:
    broken = [
        b"",
        b"[]",
        b"{}",
        b'{"sessionId":"a"}',
        b'{"sessionId":7,"update":{}}',
        b'{"sessionId":"a","update":7}',
        b'{"sessionId":"a","update":[{}],"_meta":{}}',
        b'{"update":{}}',
    ]
    batch = [update("a", 1), *(told("session/update", raw) for raw in broken), update("a", 2)]
    assert list(runs(batch)) == [Updates("a", "update", [b'{"n": 1}', b'{"n": 2}'])]


@given(
    st.lists(
        st.tuples(st.sampled_from(["a", "b", "other", "broken"]), st.booleans()),
        max_size=12,
    )
)
def test_every_update_comes_out_once_and_in_order(kinds: list[tuple[str, bool]]) -> None:
    batch, expected = [], []
    for number, (kind, whole) in enumerate(kinds):
        if kind == "other":
            batch.append(told("_x", {"n": number}))
            expected.append(batch[-1].params)
        elif kind == "broken":
            batch.append(told("session/update", b"{}"))
        else:
            batch.append(update(kind, number, **({"_meta": {}} if whole else {})))
            expected.append(batch[-1].params if whole else b'{"n": %d}' % number)
    found: list[bytes] = []
    for item in runs(batch):
        found += item.raws if isinstance(item, Updates) else [item.params]
    assert found == expected


@pytest.mark.parametrize("place", range(3))
@pytest.mark.parametrize(
    "mark", [b'"acphold/notice"', b'"acphold\\/notice"', b'"\\u0061cphold/notice"']
)
def test_a_mark_is_taken_out_wherever_it_stands_in_a_read(mark: bytes, place: int) -> None:
    ours = b'"_meta":{%b:{},"its":1}' % mark
    marked = [
        told("session/update", b'{"sessionId":"a","update":{"n":5,%b}}' % ours),
        told("session/update", b'{"sessionId":"a","update":{"n":5},%b}' % ours),
        told("session/update", b'{"sessionId":"a","update":{"n":5,%b},"_meta":{}}' % ours),
    ]
    plain = [update("a", number) for number in range(2)]
    for one in marked:
        batch = [*plain[:place], one, *plain[place:]]
        said = [raw for run in runs(batch, unmarked=True) for raw in run.raws]  # type: ignore[union-attr]
        assert len(said) == 3
        assert not any(b"notice" in raw for raw in said)
        assert b'"its":1' in said[min(place, 2)]
        assert any(b"notice" in raw for run in runs(batch) for raw in run.raws)  # type: ignore[union-attr]


def test_what_is_over_a_limit_is_of_a_session_only_if_it_is_an_update() -> None:
    params = {"sessionId": b'"a"'}
    assert session_of(CutNotification("session/update", "", params, b"")) == "a"
    assert session_of(CutNotification("session/update", "", {"sessionId": b"1"}, b"")) is None
    assert session_of(CutNotification("_x/y", "", params, b"")) is None
