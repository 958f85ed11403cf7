"""Programs that are begun before anybody asks for them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from acp_wire.errors import AgentStartError
from acp_wire.surroundings import Surroundings
from acphold.machine import begun
from tests.watched_processes import lives

WAITS = ("sh", "-c", "read line; echo $line")


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    yield
    begun.abandon()


def within(**env: str) -> Surroundings:
    return Surroundings({"PATH": os.environ["PATH"], **env}, "/")


def test_it_is_given_once_to_who_asks_for_the_same() -> None:
    begun.begin(WAITS, within(A="1"), "/")
    assert begun.take(WAITS, within(A="2"), "/") is None
    assert begun.take(WAITS, within(A="1"), "/tmp") is None
    assert begun.take(WAITS[:2], within(A="1"), "/") is None
    program = begun.take(WAITS, within(A="1"), "/")
    assert program is not None
    assert begun.take(WAITS, within(A="1"), "/") is None
    os.write(program.fds[0], b"hello\n")
    assert os.read(program.fds[1], 100) == b"hello\n"
    program.abandon()


def test_what_nobody_asks_for_is_ended(tmp_path: Path) -> None:
    begun.begin(("sleep", "1000"), within(), str(tmp_path))
    program = next(iter(begun._begun.values()))
    assert begun.is_left(("sleep", "1000"), within(), str(tmp_path))
    assert not begun.is_left(("sleep", "2000"), within(), str(tmp_path))
    assert lives(program.pid)
    begun.abandon()
    assert not begun.is_left(("sleep", "1000"), within(), str(tmp_path))
    assert not lives(program.pid)


def test_a_program_that_is_not_there_is_an_error() -> None:
    with pytest.raises(AgentStartError):
        begun.begin(("no-such-program",), within(), "/")
    assert not begun._begun


def test_who_asks_later_than_anybody_is_expected_to_finds_it_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begun.begin(("sleep", "1000"), within(), "/")
    assert not begun.is_left(("other",), within(), "/")
    monkeypatch.setattr(begun, "WAITS_SECONDS", -1.0)
    assert begun.is_left(("other",), within(), "/")
