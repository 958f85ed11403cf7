"""Lines of a terminal: a paste is one entry, however late we look."""

from __future__ import annotations

import os
import pty

import pytest

from acphold.faces.screen import bounds
from acphold.faces.screen.terminal import TypedLines


async def test_lines_that_have_come_are_one_entry_even_when_the_time_for_them_is_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bounds, "PASTE_SECONDS", 0.0)  # as on a machine that is busy for longer
    ours, theirs = pty.openpty()
    try:
        os.write(ours, b"y\ny\n")
        entry = await TypedLines(theirs).entry()
        assert entry is not None
        assert entry.text == "y\ny"
    finally:
        os.close(ours)
        os.close(theirs)
