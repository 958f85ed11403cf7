"""A file is held by one process, and is nobody's once its name leads elsewhere."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from acphold.machine.locked_file import hold, holder, is_held, read_note


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "made" / "file")


def test_a_file_is_held_by_one_until_it_is_released_which_leaves_none(path: str) -> None:
    assert not is_held(path)
    held = hold(path)
    assert held is not None
    held.note("here")
    assert (hold(path), is_held(path), read_note(path)) == (None, True, "here")
    held.release()
    assert not is_held(path)
    assert os.listdir(os.path.dirname(path)) == []


def test_the_holder_of_a_file_that_was_removed_makes_it_again_unless_another_has_it(
    path: str,
) -> None:
    first = hold(path)
    assert first is not None
    first.note("first")
    os.unlink(path)
    assert first.keep()
    assert (read_note(path), is_held(path)) == ("first", True)
    os.unlink(path)
    second = hold(path)
    assert second is not None
    second.note("second")
    assert not first.keep()
    first.release()  # and leaves the other's alone
    assert (read_note(path), is_held(path)) == ("second", True)
    second.release()


def test_a_file_that_cannot_be_looked_at_is_not_taken_for_removed(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = hold(path)
    assert held is not None

    def broken(path: str) -> os.stat_result:
        raise OSError(errno.EIO, "the disk is broken", path)

    with monkeypatch.context() as patch:
        patch.setattr(os, "lstat", broken)
        for look in (held.keep, lambda: held.is_there, lambda: hold(f"{path}.other")):
            with pytest.raises(OSError, match="broken"):
                look()
    assert held.keep()
    held.release()


def test_a_note_that_a_full_disk_refused_is_written_once_there_is_room(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = hold(path)
    assert held is not None
    held.note("first")

    def full(descriptor: int, raw: bytes, offset: int) -> int:
        raise OSError(errno.ENOSPC, "the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", full)
        with pytest.raises(OSError, match="full"):
            held.note("second")
        with pytest.raises(OSError, match="full"):
            held.keep()
    assert held.keep()
    assert read_note(path) == "second"
    os.unlink(path)
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", full)
        with pytest.raises(OSError, match="full"):
            held.keep()
        assert not is_held(path)  # so that whoever comes asks elsewhere
    assert held.keep()
    assert (read_note(path), is_held(path)) == ("second", True)
    held.release()


def test_a_file_is_free_when_its_holder_was_killed(path: str) -> None:
    code = (
        "from acphold.machine.locked_file import hold; "
        f"h = hold({path!r}); print(1, flush=True); input()"
    )
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", code], stdin=pipe, stdout=pipe) as other:
        assert other.stdout is not None
        other.stdout.readline()
        if sys.platform == "linux":
            assert holder(path) == other.pid
        assert is_held(path)
        other.kill()
    assert not is_held(path)
    held = hold(path)
    assert held is not None
    held.release()


def test_a_pipe_in_place_of_the_file_keeps_nobody_waiting(path: str) -> None:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    os.mkfifo(path)
    code = "import sys; from acphold.machine.locked_file import read_note; read_note(sys.argv[1])"
    subprocess.run([sys.executable, "-c", code, path], timeout=20, check=True)
    with pytest.raises(OSError, match="it is no file"):
        hold(path)


def test_a_note_says_nothing_in_a_copy_and_once_the_file_was_moved(path: str) -> None:
    held = hold(path)
    assert held is not None
    held.note("here")
    os.link(path, other := f"{path}.other")
    assert read_note(other) == "here"
    shutil.copy(path, copied := f"{path}.copied")
    os.rename(path, moved := f"{path}.moved")
    assert [read_note(it) for it in (copied, moved, other)] == ["", "", ""]
    assert is_held(moved)
    assert held.keep()
    assert read_note(path) == "here"
    assert is_held(moved)
    held.release()
    assert not is_held(moved)
