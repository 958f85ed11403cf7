"""JSON values are read as far as necessary."""

from __future__ import annotations

import pytest

from acphold.conversation.history.raw_update import is_same_json


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (b'{"a":1,"b":[]}', b'{ "b": [], "a": 1 }', True),
        (b'"\\u00e9"', '"é"'.encode(), True),
        (b"[1,2]", b"[2,1]", False),
        (b"null", None, False),
        (b"{", b"{", True),
        (b"{", b"{}", False),
        (b'"\xff"', b'""', False),
        (b"[" * 20_000, b"[]", False),
    ],
)
def test_json_values_are_the_same_however_they_are_written(
    one: bytes, other: bytes | None, same: bool
) -> None:
    assert is_same_json(one, other) is same
