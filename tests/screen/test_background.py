"""Detecting a light terminal; nobody waits for a terminal that does not answer."""

from __future__ import annotations

import os
import pty
import threading

import pytest

from acphold.faces.screen.terminal import TerminalBackground, background


@pytest.mark.parametrize(
    ("answer", "light"),
    [
        (b"\x1b]11;rgb:ffff/ffff/eeee\x1b\\\x1b[?62;c", True),
        (b"\x1b]11;rgb:1e/1e/2e\x07\x1b[?6c", False),
        (b"\x1b[?1;2c", False),
        (b"", False),
    ],
)
def test_a_terminal_is_asked(answer: bytes, light: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLORFGBG", raising=False)
    ours, theirs = pty.openpty()

    def reply() -> None:
        os.read(ours, 100)
        os.write(ours, b"typed " + answer + b"meanwhile")

    answering = threading.Thread(target=reply)
    answering.start()
    found = background(theirs, theirs)
    assert found.is_light is light
    assert b"typed " in found.typed
    # What comes behind the answer may be left to the next reader.
    assert found.typed.removeprefix(b"typed ") in (b"", b"meanwhile")
    answering.join()
    os.close(ours)
    os.close(theirs)


@pytest.mark.parametrize(
    ("told", "light"), [("0;15", True), ("15;0", False), ("0;default;7", True)]
)
def test_what_the_environment_says_counts_and_nothing_is_asked(
    told: str, light: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLORFGBG", told)
    assert background(-1, -1) == TerminalBackground(light)
