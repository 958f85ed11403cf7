"""Members of JSON objects as bytes."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, strategies as st

from acp_wire.errors import InvalidParamsError
from acp_wire.schema import items, members, splice
from tests.schema.strategies import json_values, texts

spaces = st.text(" \t\n\r", max_size=2)
rough_values = json_values | texts | st.sampled_from([1e300, 10**400])


@st.composite
def objects(draw: st.DrawFn) -> dict[str, bytes]:
    """Members by name, each value spelled with white space of its own inside."""
    named = draw(st.dictionaries(texts, rough_values, max_size=5))
    indent = draw(st.sampled_from([None, 1]))
    return {name: json.dumps(value, indent=indent).encode() for name, value in named.items()}


def written(named: dict[str, bytes], space: str = "") -> bytes:
    pairs = (b"%b:%b" % (json.dumps(name).encode(), value) for name, value in named.items())
    gap = space.encode()
    return b"{" + gap + (gap + b"," + gap).join(pairs) + gap + b"}"


@given(objects(), spaces)
def test_members_are_the_values_byte_for_byte_in_order(named: dict[str, bytes], space: str) -> None:
    assert list(members(written(named, space)).items()) == list(named.items())


@given(st.lists(rough_values), spaces)
def test_items_are_the_values_byte_for_byte_in_order(values: list[object], space: str) -> None:
    spelled = [json.dumps(value).encode() for value in values]
    raw = f"[{space}".encode() + f"{space},{space}".encode().join(spelled) + b"]"
    assert items(raw) == spelled


@given(objects(), st.dictionaries(texts, st.none() | st.just(b'{"new": 1}'), max_size=3))
def test_splice_touches_only_what_it_is_told(
    named: dict[str, bytes], replacements: dict[str, bytes | None]
) -> None:
    replacements |= dict.fromkeys(list(named)[:1], b"[ ]")
    found = members(splice(written(named), replacements))
    untouched = [item for item in named.items() if item[0] not in replacements]
    assert [item for item in found.items() if item[0] not in replacements] == untouched
    for name, value in replacements.items():
        assert found.get(name) == value


@given(objects())
def test_splice_replaces_in_place_and_adds_at_the_end(named: dict[str, bytes]) -> None:
    changed = splice(written(named), {**dict.fromkeys(named, b"0"), "the new one": b"1"})
    assert list(members(changed)) == [*named, "the new one"]


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"[1]",
        b'"text"',
        b"{",
        b'{"a"}',
        b'{"a":}',
        b'{"a":1,}',
        b'{"a":1}}',
        b"{1:2}",
        b'{"\\ud83d":NaN}',
        b'{"\\ud83d":1} {}',
        b'{"\\ud83d":1 "b":2}',
        b'{"\\ud83d":' + b"[" * 100_000,
    ],
)
def test_what_is_no_object_is_refused(raw: bytes) -> None:
    with pytest.raises(InvalidParamsError):
        members(raw)
    with pytest.raises(InvalidParamsError):
        splice(raw, {"a": b"1"})


@pytest.mark.parametrize("raw", [b"", b"{}", b"[1,]", b'["\\ud83d" 1]', b'["\\ud83d"'])
def test_what_is_no_array_is_refused(raw: bytes) -> None:
    with pytest.raises(InvalidParamsError):
        items(raw)
