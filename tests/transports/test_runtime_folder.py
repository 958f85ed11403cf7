"""The folder of the sockets is this user's alone, or it is not used."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from acphold.errors import RuntimeFolderError
from acphold.transports import runtime_folder as place
from acphold.transports.runtime_folder import own_socket, runtime_folder


@pytest.fixture
def base(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's runtime folder, of which acphold's is made; its name is short."""
    folder = tmp_path_factory.mktemp("r")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder))
    monkeypatch.setattr(place, "LONGEST_PATH", 4096)
    return folder


def test_it_is_made_so_that_nobody_else_may_enter(base: Path) -> None:
    folder = Path(runtime_folder())
    assert folder == base / "acphold"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert Path(own_socket()).parent == folder


def test_one_that_others_may_enter_is_refused_with_what_to_do(base: Path) -> None:
    (base / "acphold").mkdir()
    (base / "acphold").chmod(0o750)
    with pytest.raises(RuntimeFolderError, match="chmod 700"):
        runtime_folder()


def test_a_link_is_not_followed(base: Path, tmp_path: Path) -> None:
    (base / "acphold").symlink_to(tmp_path)
    with pytest.raises(RuntimeFolderError, match="is a link"):
        runtime_folder()


def test_one_that_belongs_to_somebody_else_is_refused(
    base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime_folder()
    user = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: user + 1)
    monkeypatch.setattr(place, "_is_ours", lambda path: path == str(base))
    with pytest.raises(RuntimeFolderError, match="belongs to somebody else"):
        runtime_folder()


def test_sockets_of_processes_that_have_gone_are_swept_and_those_of_the_living_stay(
    base: Path,
) -> None:
    folder = Path(runtime_folder())
    gone = folder / f"{2**22 + 1}-0.sock"  # above the highest number that a process may have
    mine, background = folder / f"{os.getpid()}-0.sock", folder / "owner-0.sock"
    for path in (gone, mine, background):
        path.touch()
    place.sweep()
    assert sorted(folder.iterdir()) == sorted([mine, background])
