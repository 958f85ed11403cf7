"""Roots let no path out, whatever it looks like and whatever is swapped meanwhile."""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
import threading
import unicodedata
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from acp_wire.errors import (
    AcpError,
    FileAccessError,
    InvalidParamsError,
    MissingFileError,
    NotTextError,
    OutsideRootsError,
)
from acp_wire.workspace.files import Files
from acp_wire.workspace.roots import Roots

linux_only = pytest.mark.skipif(sys.platform != "linux", reason="/proc")


def test_relative_paths_start_at_cwd_wherever_the_process_was_started(
    project: Path, outside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(outside)
    assert Roots(str(project)).resolve("a/./b/../c") == f"{project}/a/c"


def test_a_path_outside_is_refused_with_the_path_and_the_roots_in_the_message(
    project: Path, outside: Path
) -> None:
    (project / "link").symlink_to(outside)
    with pytest.raises(OutsideRootsError) as caught:
        Roots(str(project), ["/nowhere"]).resolve("link/secret")
    assert str(caught.value) == (
        f"'link/secret' leads to '{outside}/secret', which is outside the folders of this "
        f"session: '{project}', '/nowhere'"
    )
    assert caught.value.code == -32602


@pytest.mark.parametrize(
    "path",
    [
        "..",
        "../outside/secret",
        "a/../../outside/secret",
        "missing/../../outside/secret",
        "../project2",
        "/",
        "//etc/passwd",
        "/etc/passwd",
        "/dev/zero",
        "/root/x/y/z",
        "/nowhere/at/all",
        pytest.param("/proc/self/root/etc/passwd", marks=linux_only),
        pytest.param("/proc/self/cwd", marks=linux_only),
        pytest.param("/proc/self/fd/0", marks=linux_only),
    ],
)
def test_paths_that_lead_out_are_refused(project: Path, outside: Path, path: str) -> None:
    (project.parent / "project2").mkdir()
    with pytest.raises(OutsideRootsError):
        Roots(str(project)).resolve(path)


@linux_only
@pytest.mark.parametrize("target", ["/proc/self/root", "/proc/self/cwd/..", "/proc/thread-self"])
def test_links_into_proc_lead_where_their_text_says_and_no_further(
    project: Path, target: str
) -> None:
    (project / "link").symlink_to(target)
    with pytest.raises(OutsideRootsError):
        Roots(str(project)).resolve("link/etc/passwd")


@pytest.mark.parametrize("path", ["a\0b", "\ud800", "x/" * 2049])
def test_text_that_cannot_be_a_path_is_refused(project: Path, path: str) -> None:
    with pytest.raises(InvalidParamsError):
        Roots(str(project)).resolve(path)


@pytest.mark.parametrize(("cwd", "more"), [("here", ()), ("/tmp", ("there",)), ("/tmp\0", ())])
def test_a_root_that_is_not_absolute_is_refused(cwd: str, more: tuple[str, ...]) -> None:
    with pytest.raises(InvalidParamsError) as caught:
        Roots(cwd, more)
    assert caught.value.field == ("additionalDirectories[0]" if more else "cwd")


@pytest.mark.parametrize("name", ["caf\u00e9", "cafe\u0301", "CAFE\u0301", "\u2025", "..\u200d"])
def test_names_that_unicode_can_spell_in_several_ways_are_taken_as_they_are(
    project: Path, outside: Path, name: str
) -> None:
    roots = Roots(str(project))
    twins = {name, *(unicodedata.normalize(form, name) for form in ("NFC", "NFD", "NFKC"))} - {".."}
    assert {roots.resolve(twin) for twin in twins} == {f"{project}/{twin}" for twin in twins}
    (folder := project / "Caf\u00e9").mkdir()
    (folder / "way").symlink_to(outside)
    for spelling in ("Caf\u00e9", "Cafe\u0301", "CAF\u00c9"):
        real = os.path.realpath(project / spelling / "way")
        if os.path.exists(project / spelling):
            assert real == str(outside)
            with pytest.raises(OutsideRootsError):
                roots.resolve(f"{spelling}/way/secret")
        else:
            assert roots.resolve(f"{spelling}/way/secret").startswith(f"{project}/")


def test_a_root_may_be_reached_by_a_link_and_by_its_own_name(project: Path) -> None:
    alias = project.parent / "alias"
    alias.symlink_to(project)
    for roots in (Roots(str(alias)), Roots(str(project))):
        assert roots.resolve("x") == f"{project}/x"
        assert roots.resolve(f"{alias}/x") == f"{project}/x"
        assert roots.resolve(f"{project}/x") == f"{project}/x"


def test_links_that_stay_inside_are_followed_also_from_root_to_root(
    project: Path, outside: Path
) -> None:
    (project / "near").symlink_to("a/../b")
    (project / "far").symlink_to(outside)
    roots = Roots(str(project), [str(outside)])
    assert roots.resolve("near/x") == f"{project}/b/x"
    assert roots.resolve("far/secret") == f"{outside}/secret"


def test_a_loop_of_links_is_refused(project: Path) -> None:
    (project / "loop").symlink_to("loop/x")
    with pytest.raises(FileAccessError, match="symbolic links"):
        Roots(str(project)).resolve("loop")


def test_an_additional_root_that_becomes_a_link_stops_being_a_root(
    project: Path, outside: Path
) -> None:
    (inner := project / "inner").mkdir()
    roots = Roots(str(project), [str(inner)])
    inner.rmdir()
    inner.symlink_to(outside)
    with pytest.raises(OutsideRootsError):
        roots.resolve(f"{inner}/secret")


def test_a_root_that_is_gone_is_named_and_one_that_comes_back_counts_again(project: Path) -> None:
    roots = Roots(str(project))
    project.rmdir()
    with pytest.raises(MissingFileError, match=f"the folder '{project}' of this session"):
        roots.resolve("x")
    project.mkdir()
    assert roots.resolve("x") == f"{project}/x"


def test_everything_is_inside_the_root_of_all(outside: Path) -> None:
    assert Roots("/").resolve(f"{outside}/secret") == f"{outside}/secret"


def test_a_client_hears_its_own_names(project: Path) -> None:
    alias = project.parent / "alias"
    alias.symlink_to(project)
    roots = Roots(str(alias))
    assert roots.resolve_keeping_links("a//./b") == f"{alias}/a/b"
    assert roots.resolve_keeping_links("a/../b") == f"{project}/b"
    with pytest.raises(OutsideRootsError):
        roots.resolve_keeping_links("/etc/passwd")


def test_a_folder_is_a_folder_that_exists(project: Path) -> None:
    (project / "file").touch()
    roots = Roots(str(project))
    assert roots.folder(".") == str(project)
    with pytest.raises(MissingFileError):
        roots.folder("missing")
    with pytest.raises(NotTextError):
        roots.folder("file")


def test_no_descriptor_is_left_open(project: Path, outside: Path) -> None:
    (project / "loop").symlink_to("loop")
    (project / "out").symlink_to(outside)
    roots = Roots(str(project), ["/nowhere"])
    before = len(os.listdir("/dev/fd"))
    for path in ("x/y/../z", "loop", "out/secret", "../..", "."):
        with suppress(AcpError):
            roots.resolve(path)
    assert len(os.listdir("/dev/fd")) == before


NAMES = st.sampled_from(["a", "b", "c", "..", ".", "", "out", "root"])
PATHS = st.lists(NAMES, min_size=1, max_size=6).map("/".join)
TREES = st.lists(st.tuples(PATHS, st.none() | st.tuples(st.booleans(), PATHS)), max_size=8)


def plant(base: Path, tree: list[tuple[str, tuple[bool, str] | None]]) -> None:
    """Make files, folders and links below `base`, wherever there is room for them."""
    for path, link in tree:
        spot = Path(os.path.realpath(base / path.lstrip("/")))
        if not spot.is_relative_to(base):
            continue
        with suppress(OSError):
            spot.parent.mkdir(parents=True, exist_ok=True)
            if link is None:
                spot.write_text("x")
            else:
                absolute, target = link
                spot.symlink_to(f"{base}/{target}" if absolute else target or ".")


@settings(max_examples=75)
@given(tree=TREES, path=PATHS, absolute=st.booleans())
def test_exactly_what_lies_inside_is_let_in(
    tree: list[tuple[str, tuple[bool, str] | None]], path: str, absolute: bool
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        base = Path(os.path.realpath(folder))
        for name in ("root/a", "out/a"):
            (base / name).mkdir(parents=True)
        plant(base, tree)
        if not (base / "root").is_dir() or (base / "root").is_symlink():
            return
        roots = Roots(f"{base}/root", [f"{base}/root/a"])
        asked = f"{base}/{path}" if absolute else path
        whole = os.path.join(base, "root", asked)
        real = os.path.realpath(whole)
        looped = os.path.realpath(real) != real or any(
            os.path.islink(ancestor) for ancestor in (real, *map(str, Path(real).parents))
        )
        if looped:
            with pytest.raises((FileAccessError, OutsideRootsError)):
                roots.resolve(asked)
        elif real == f"{base}/root" or real.startswith(f"{base}/root/"):
            assert roots.resolve(asked) == real
        else:
            with pytest.raises(OutsideRootsError):
                roots.resolve(asked)


@contextmanager
def meanwhile(step: Callable[[], None]) -> Iterator[None]:
    """Repeat `step` in another thread for the block."""
    over = threading.Event()

    def repeat() -> None:
        while not over.is_set():
            step()

    thread = threading.Thread(target=repeat)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


async def test_a_folder_that_becomes_a_link_during_the_call_never_leads_out(
    project: Path, outside: Path
) -> None:
    (project / "folder").mkdir()
    (project / "folder" / "secret").write_text("inside")
    (project / "way").symlink_to(outside)
    files = Files(Roots(str(project)))

    def swap() -> None:  # "folder" is in turn the folder, nothing for a moment, the link
        (project / "folder").rename(project / "held")
        (project / "way").rename(project / "folder")
        (project / "folder").rename(project / "way")
        (project / "held").rename(project / "folder")

    outcomes = set()
    with meanwhile(swap):
        for number in range(5000):
            try:
                outcomes.add(await files.read("folder/secret"))
            except (OutsideRootsError, MissingFileError, FileAccessError):
                outcomes.add("refused")
            if number >= 150 and len(outcomes) > 1:
                break
    assert outcomes == {"inside", "refused"}


async def test_a_link_that_is_turned_during_the_call_never_leads_out(
    project: Path, outside: Path
) -> None:
    (project / "folder").mkdir()
    (project / "way").symlink_to("folder")
    files = Files(Roots(str(project)))

    def turn() -> None:
        for target in (outside, project / "folder"):
            (project / "turned").symlink_to(target)
            (project / "turned").rename(project / "way")

    with meanwhile(turn):
        for _ in range(150):
            with suppress(OutsideRootsError):
                await files.write("way/secret", "inside")
                assert (project / "folder" / "secret").read_text() == "inside"
    assert (outside / "secret").read_text() == "secret"
    assert os.listdir(outside) == ["secret"]


async def test_a_file_that_becomes_a_link_during_the_call_is_not_followed(
    project: Path, outside: Path
) -> None:
    code = """
import os, sys
secret, target = sys.argv[1:]
while True:
    os.symlink(secret, "link")
    os.rename("link", target)
    os.close(os.open("plain", os.O_CREAT))
    os.rename("plain", target)
    print()
"""
    # A process, not a thread: it has to get in between two system calls.
    command = (sys.executable, "-c", code, str(outside / "secret"), str(project / "file"))
    swapping = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, cwd=project
    )
    files, outcomes = Files(Roots(str(project))), set()
    assert swapping.stdout is not None
    await swapping.stdout.readline()
    reading = asyncio.create_task(swapping.stdout.read())
    for _ in range(250):
        try:
            outcomes.add(await files.read("file"))
        except OutsideRootsError:
            outcomes.add("refused")
        except FileAccessError:
            outcomes.add("changed")
        with suppress(OutsideRootsError, FileAccessError):
            await files.write("file", "")
    swapping.kill()
    await reading
    await swapping.wait()
    assert {"", "refused"} <= outcomes <= {"", "refused", "changed"}
    assert (outside / "secret").read_text() == "secret"
