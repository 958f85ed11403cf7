"""Files of records, of which only a part is read."""

from __future__ import annotations

from pathlib import Path

import pytest

from acphold.imports import records
from acphold.imports.records import mentions


@pytest.mark.parametrize("before", range(12))
def test_words_are_found_wherever_a_read_ends_and_nothing_else_is(
    before: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "_BUFFER", 8)
    path = tmp_path / "log.jsonl"
    path.write_bytes(b"x" * before + b"rewound" + b"y" * 20)
    assert mentions(path, b"rewound")
    assert not mentions(path, b"rewinds")
    assert not mentions(path, b"rewound", before + 1)
