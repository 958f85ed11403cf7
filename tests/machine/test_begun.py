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


@pytest.mark.parametrize("umask", [None, 0o027, 0o031])
def test_it_starts_in_its_folder_with_its_umask(tmp_path: Path, umask: int | None) -> None:
    env = within().env
    begun.begin(("sh", "-c", "pwd; umask"), Surroundings(env, "/", umask), str(tmp_path))
    begun.begin(("sh", "-c", "pwd; umask"), Surroundings(env, "/", umask), os.getcwd())
    ours = os.umask(0)
    os.umask(ours)
    for folder in (str(tmp_path), os.getcwd()):
        program = begun.take(("sh", "-c", "pwd; umask"), Surroundings(env, "/", umask), folder)
        assert program is not None
        with os.fdopen(program.fds[1], closefd=False) as output:
            assert output.read() == f"{folder}\n{ours if umask is None else umask:04o}\n"
        program.abandon()


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
