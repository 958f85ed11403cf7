"""The files by which commands find the running servers of a journal."""

from __future__ import annotations

import fcntl
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from msgspec.json import encode

from acphold.web.running_servers import Running, noted, running


@pytest.fixture
def desk(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Running:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return Running(str(tmp_path / "journal.db"), "here", "url", "known")


def test_a_server_is_found_though_others_look_at_each_step_of_its_start(desk: Running) -> None:
    steps = 0

    def look(frame: FrameType, event: str, _: object) -> Any:
        nonlocal steps
        if not frame.f_globals["__name__"].startswith("acphold."):
            return None
        if event == "line":
            steps += 1
            running(desk.journal)
        return look

    before = sys.gettrace()
    sys.settrace(look)
    try:
        entered = noted(desk)
        entered.__enter__()
    finally:
        sys.settrace(before)
    assert steps > 5
    assert running(desk.journal) == [desk]
    entered.__exit__(None, None, None)
    assert running(desk.journal) == []


def test_the_file_of_a_server_of_an_earlier_release_is_found_while_it_is_locked(
    desk: Running,
) -> None:
    with noted(desk):
        (file,) = Path(desk.journal).parent.glob("**/serving/*.json")
    with file.open("wb") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        other.write(encode(desk))
        other.flush()
        assert running(desk.journal) == [desk]
    assert running(desk.journal) == []
    assert not file.exists()
