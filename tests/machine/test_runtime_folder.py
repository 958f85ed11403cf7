"""The folder of the sockets is this user's alone, or it is not used."""

from __future__ import annotations

import os
import socket
import stat
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from acp_wire.state_folder import write_private
from acphold.machine import runtime_folder as place
from acphold.machine.runtime_folder import (
    RuntimeFolderError,
    machine_id,
    own_socket,
    runtime_folder,
)


@pytest.fixture
def base(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's runtime folder, of which acphold's is made; its name is short."""
    folder = tmp_path_factory.mktemp("r")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder))
    monkeypatch.setattr(place, "LONGEST_PATH", 4096)
    return folder


def test_the_runtime_folder_is_made_so_that_nobody_else_may_enter(base: Path) -> None:
    folder = Path(runtime_folder())
    assert folder == base / "acphold"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert Path(own_socket()).parent == folder


def test_a_runtime_folder_that_others_may_enter_is_refused_with_what_to_do(base: Path) -> None:
    (base / "acphold").mkdir()
    (base / "acphold").chmod(0o750)
    with pytest.raises(RuntimeFolderError, match="chmod 700"):
        runtime_folder()


def test_a_link_is_not_followed(base: Path, tmp_path: Path) -> None:
    (base / "acphold").symlink_to(tmp_path)
    with pytest.raises(RuntimeFolderError, match="is a link"):
        runtime_folder()


def test_a_runtime_folder_that_belongs_to_somebody_else_is_refused(
    base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime_folder()
    user = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: user + 1)
    monkeypatch.setattr(place, "_is_ours", lambda path: path == str(base))
    with pytest.raises(RuntimeFolderError, match="belongs to another user"):
        runtime_folder()


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A home folder, where nobody has made a runtime folder; and another temporary folder."""
    monkeypatch.delenv("XDG_RUNTIME_DIR")
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    with TemporaryDirectory(prefix="a") as folder:  # a short name, as people's are
        for name in ("home", "tmp"):
            (Path(folder) / name).mkdir()
        monkeypatch.setenv("HOME", f"{folder}/home")
        monkeypatch.setattr(place, "LOGINS", f"{folder}/none")
        monkeypatch.setattr(place, "TEMPORARY", f"{folder}/tmp")
        yield Path(folder) / "home"


def test_sockets_are_in_the_folder_for_state_where_there_is_no_runtime_folder(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home.parent / "tmp" / f"acphold-{os.getuid()}").symlink_to("/nonexistent")
    folder = Path(runtime_folder())
    assert folder.is_relative_to(home)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert runtime_folder() == str(folder)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(own_socket())
    monkeypatch.setenv("XDG_STATE_HOME", str(home.parent / "state"))
    assert Path(runtime_folder()).is_relative_to(home.parent / "state" / "acphold")


def test_machines_with_one_home_folder_have_folders_of_their_own(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = os.uname()
    here = runtime_folder()
    monkeypatch.setattr(os, "uname", lambda: os.uname_result((names.sysname, "other", *names[2:])))
    assert (runtime_folder() == here) == (sys.platform == "darwin")


@pytest.mark.parametrize("why", ["no home", "a file", "too long", "of another user"])
def test_a_user_who_cannot_have_it_at_home_has_it_in_the_temporary_folder(
    home: Path, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if why == "no home":
        monkeypatch.setenv("HOME", "/proc/nowhere")
    elif why == "a file":
        (home / ".local").touch()
    elif why == "too long":
        monkeypatch.setenv("HOME", str(home / ("x" * 100)))
    else:
        ours = place._is_ours
        monkeypatch.setattr(place, "_is_ours", lambda path: "state" not in path and ours(path))
    assert runtime_folder() == str(home.parent / "tmp" / f"acphold-{os.getuid()}")


def test_sockets_of_processes_that_have_gone_are_swept_and_those_of_the_living_stay(
    base: Path,
) -> None:
    folder = Path(runtime_folder())
    gone = folder / f"{2**22 + 1}-0.sock"  # above the highest number that a process may have
    mine, daemon = folder / f"{os.getpid()}-0.sock", folder / "daemon-0.sock"
    for path in (gone, mine, daemon):
        path.touch()
    place.sweep()
    assert sorted(folder.iterdir()) == sorted([mine, daemon])


def test_a_private_file_follows_no_link_that_lies_where_it_is_made(tmp_path: Path) -> None:
    (other := tmp_path / "other").write_text("mine")
    (tmp_path / f"file.{os.getpid()}").symlink_to(other)
    write_private(str(tmp_path / "file"), b"new")
    assert (other.read_text(), (tmp_path / "file").read_bytes()) == ("mine", b"new")
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o600


def test_a_private_file_is_made_in_a_private_folder(tmp_path: Path) -> None:
    file = tmp_path / "made" / "file"
    write_private(str(file), b"new")
    assert file.read_bytes() == b"new"
    assert file.parent.stat().st_mode & 0o777 == 0o700


@pytest.fixture
def nameless(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without an id of its own; its user's home folder, as the system knows it."""
    monkeypatch.setattr(place, "MACHINE", str(home / "none"))
    monkeypatch.setattr(place, "_account_home", lambda: str(home))
    return home


def test_a_machine_has_one_id_whatever_the_variables_of_a_process_are(
    nameless: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = set()
    for name in ("one", "other"):
        monkeypatch.setenv("XDG_STATE_HOME", str(nameless.parent / name))
        monkeypatch.setenv("HOME", str(nameless.parent / name))
        found.add(machine_id())
    assert len(found) == 1
    assert found != {""}
    assert machine_id(b"another use") not in found


def test_processes_that_make_the_id_at_once_have_the_same(nameless: Path) -> None:
    with ThreadPoolExecutor(8) as threads:
        found = set(threads.map(lambda _: machine_id(), range(64)))
    assert len(found) == 1
    assert os.listdir(nameless / ".local/state/acphold") == ["machine"]
