"""Regular files alone are read, and no more of them than is asked for."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from acp_wire.workspace.regular_files import contents


def a_pipe(path: Path) -> None:
    os.mkfifo(path)


def a_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(os.path.relpath(path))


def a_device(path: Path) -> None:
    path.symlink_to("/dev/zero")


@pytest.mark.parametrize("make", [a_pipe, a_socket, a_device, Path.mkdir])
def test_special_files_are_refused_and_not_waited_for(
    tmp_path: Path, make: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    make(tmp_path / "other")
    (tmp_path / "link").symlink_to("other")
    for name in ("other", "link"):
        with pytest.raises(OSError, match="not a file") as caught:
            contents(tmp_path / name, 10)
        assert caught.value.errno == errno.EINVAL


def test_a_file_is_read_to_its_end_and_not_beyond_the_bound(tmp_path: Path) -> None:
    (file := tmp_path / "file").write_bytes(b"12345")
    (tmp_path / "link").symlink_to(file)
    assert contents(tmp_path / "link", 5) == b"12345"
    assert contents(os.fspath(file), 6) == b"12345"
    with pytest.raises(OSError, match="more than 0 KiB") as caught:
        contents(file, 4)
    assert caught.value.errno == errno.EFBIG
    with pytest.raises(FileNotFoundError):
        contents(tmp_path / "none", 5)
