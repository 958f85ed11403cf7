"""Files are read by lines and written in one step, and nothing else is left or touched."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from acphold.errors import (
    FileAccessError,
    FileTooLargeError,
    InvalidParamsError,
    MissingFileError,
    NotTextError,
    OutsideRootsError,
)
from acphold.workspace import Files, Roots, files, replacing
from tests.workspace.conftest import Until

NOBODY = 65534


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that everybody can reach; pytest's own are closed to other users."""
    with TemporaryDirectory() as name:
        Path(name).chmod(0o777)
        yield Path(name)


@contextmanager
def without_powers() -> Iterator[None]:
    """Root gives up for the block what no mode of a file would stop it from doing."""
    powerful = os.geteuid() == 0
    if powerful:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        if powerful:
            os.seteuid(0)


@pytest.fixture
def tool(project: Path) -> Files:
    return Files(Roots(str(project)))


async def test_lines_are_read_from_a_number_that_counts_from_one(
    tool: Files, project: Path
) -> None:
    (project / "f").write_bytes(b"one\r\ntwo\nthree")
    assert await tool.read("f") == "one\r\ntwo\nthree"
    assert await tool.read("f", line=2, limit=1) == "two\n"
    assert await tool.read("f", line=2) == "two\nthree"
    assert await tool.read("f", limit=1) == "one\r\n"
    assert await tool.read("f", line=0, limit=1) == "one\r\n"
    assert await tool.read("f", line=4) == ""
    assert await tool.read("f", limit=0) == ""
    with pytest.raises(InvalidParamsError, match="line is negative"):
        await tool.read("f", line=-1)


@pytest.mark.parametrize("path", ["../outside/secret", "link", "folder/secret", "/etc/passwd"])
async def test_nothing_outside_is_read_or_written(
    tool: Files, project: Path, outside: Path, path: str
) -> None:
    (project / "link").symlink_to(outside / "secret")
    (project / "folder").symlink_to(outside)
    with pytest.raises(OutsideRootsError):
        await tool.read(path)
    with pytest.raises(OutsideRootsError):
        await tool.write(path, "x")
    with pytest.raises(OutsideRootsError):
        await tool.write(f"{outside}/new/file", "x")
    assert (outside / "secret").read_text() == "secret"
    assert os.listdir(outside) == ["secret"]


async def test_what_is_missing_is_told_as_such(tool: Files, project: Path) -> None:
    (project / "file").touch()
    for path in ("missing", "missing/deep", "file/deep"):
        with pytest.raises(MissingFileError, match=path) as caught:
            await tool.read(path)
        assert caught.value.code == -32002
    with pytest.raises(FileAccessError, match="Not a directory"):
        await tool.write("file/deep", "x")


async def test_pipes_sockets_devices_and_folders_are_no_files(project: Path) -> None:
    os.mkfifo(project / "fifo")
    (project / "zero").symlink_to("/dev/zero")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(project / "socket"))
    tool = Files(Roots(str(project), ["/dev"]))
    for path in ("fifo", "zero", "socket", "/dev/zero", "/dev/stdin", "."):
        async with asyncio.timeout(5):
            with pytest.raises((NotTextError, OutsideRootsError, MissingFileError)):
                await tool.read(path)
    for path in ("fifo", "zero", "socket", ".", "new/"):
        async with asyncio.timeout(5):
            with pytest.raises(NotTextError):
                await tool.write(path, "x")
    assert not (project / "new").exists()


async def test_bytes_that_are_no_text_are_refused_with_the_line(tool: Files, project: Path) -> None:
    (project / "latin").write_bytes(b"ok\ncaf\xe9\n")
    (project / "binary").write_bytes(b"\x7fELF\0\0")
    with pytest.raises(NotTextError, match="byte 0xe9 in line 2"):
        await tool.read("latin")
    assert await tool.read("latin", limit=1) == "ok\n"
    with pytest.raises(NotTextError, match="binary"):
        await tool.read("binary")


async def test_a_text_of_gigabytes_is_read_in_parts_only(tool: Files, project: Path) -> None:
    with (project / "huge").open("wb") as file:
        file.write(b"first\n" + b"x" * 8000 + b"\nthird\n")
        file.truncate(1 << 40)
    with pytest.raises(FileTooLargeError, match=r"1099511627776 bytes.*line and limit"):
        await tool.read("huge")
    assert await tool.read("huge", line=3, limit=1) == "third\n"
    with pytest.raises(FileTooLargeError, match="in these lines"):
        await tool.read("huge", line=4, limit=1)


async def test_the_most_that_is_read_at_once_can_be_read(tool: Files, project: Path) -> None:
    (project / "big").write_bytes(b"x" * files.MAX_READ)
    assert len(await tool.read("big")) == files.MAX_READ
    (project / "big").write_bytes(b"x" * files.MAX_READ + b"\ny")
    with pytest.raises(FileTooLargeError):
        await tool.read("big")
    assert await tool.read("big", line=2) == "y"


async def test_a_read_that_takes_long_can_be_cancelled_and_stalls_nobody(
    tool: Files, project: Path, until: Until
) -> None:
    with (project / "huge").open("wb") as file:
        file.write(b"x" * 9000)
        file.truncate(1 << 42)
    (project / "small").write_text("x")
    slow = asyncio.create_task(tool.read("huge", line=2))
    async with asyncio.timeout(5):
        assert await tool.read("small") == "x"
        assert not slow.done()
        slow.cancel()
        await asyncio.wait([slow])
    assert slow.cancelled()
    await until(lambda: all(thread.name != "workspace" for thread in threading.enumerate()))


async def test_a_new_file_is_made_with_the_folders_it_lacks(tool: Files, project: Path) -> None:
    old = os.umask(0o027)
    try:
        await tool.write("a/b/new", "h\u00e9\n")
    finally:
        os.umask(old)
    assert (project / "a/b/new").read_bytes() == b"h\xc3\xa9\n"
    assert (project / "a/b/new").stat().st_mode & 0o777 == 0o640
    assert os.listdir(project / "a/b") == ["new"]


@pytest.mark.parametrize("unnamed", [True, False])
async def test_a_file_keeps_its_mode_and_gets_its_contents_in_one_step(
    tool: Files, project: Path, monkeypatch: pytest.MonkeyPatch, unnamed: bool
) -> None:
    if not unnamed:  # as where the system has no files without a name
        monkeypatch.setattr(replacing, "SELF", "/nowhere")
    script = project / "script"
    script.write_text("old")
    script.chmod(0o751)
    with script.open() as reader:
        await tool.write("script", "new")
        assert reader.read() == "old"
    assert script.read_text() == "new"
    assert script.stat().st_mode & 0o7777 == 0o751
    assert os.listdir(project) == ["script"]


async def test_a_link_inside_stays_a_link(tool: Files, project: Path) -> None:
    (project / "link").symlink_to("file")
    await tool.write("link", "made")
    await tool.write("link", "changed")
    assert (project / "link").is_symlink()
    assert (project / "file").read_text() == "changed"


@pytest.mark.parametrize(
    ("old", "new", "written"),
    [
        (b"a\r\nb\r\n", "c\nd\n", b"c\r\nd\r\n"),
        (b"a\r\n", "c\r\nd\n", b"c\r\nd\r\n"),
        (b"a\nb\n", "c\nd\n", b"c\nd\n"),
        (b"a\nb\n", "c\r\nd\n", b"c\r\nd\n"),
        (b"a\r\nb\n", "c\nd\r\n", b"c\nd\r\n"),
        (b"", "c\n", b"c\n"),
    ],
)
async def test_crlf_stays_crlf(
    tool: Files, project: Path, old: bytes, new: str, written: bytes
) -> None:
    (project / "f").write_bytes(old)
    await tool.write("f", new)
    assert (project / "f").read_bytes() == written


async def test_text_that_utf8_cannot_hold_is_refused_before_anything_is_touched(
    tool: Files, project: Path
) -> None:
    (project / "f").write_text("old")
    with pytest.raises(InvalidParamsError, match="surrogate"):
        await tool.write("f", "\ud800")
    assert (project / "f").read_text() == "old"


async def test_a_file_that_must_not_be_written_is_not_replaced(open_folder: Path) -> None:
    (open_folder / "f").write_text("old")
    (open_folder / "f").chmod(0o444)
    with without_powers(), pytest.raises(FileAccessError, match="Permission denied"):
        await Files(Roots(str(open_folder))).write("f", "new")
    assert (open_folder / "f").read_text() == "old"


async def test_a_file_too_large_for_the_system_leaves_all_as_it_was(project: Path) -> None:
    code = """
import asyncio, resource, signal, sys
from acphold.workspace import Files, Roots
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
asyncio.run(Files(Roots(sys.argv[1])).write("f", "x" * 5000))
"""
    (project / "f").write_text("old")
    run = [sys.executable, "-c", code, str(project)]
    done = await asyncio.to_thread(subprocess.run, run, capture_output=True, text=True, check=False)
    assert "FileAccessError: cannot write 'f': File too large" in done.stderr
    assert (project / "f").read_text() == "old"
    assert os.listdir(project) == ["f"]


async def test_cancelling_a_write_leaves_the_old_or_the_new_and_nothing_else(
    tool: Files, project: Path
) -> None:
    (project / "f").write_text("old")
    new = "x" * (32 << 20)
    outcomes = set()
    for milliseconds in (0, 1, 5, 10, 20, 40):
        task = asyncio.create_task(tool.write("f", new))
        await asyncio.wait([task], timeout=milliseconds / 1000)
        task.cancel()
        await asyncio.wait([task])
        outcomes.add(task.cancelled())
        assert (project / "f").stat().st_size in (3, len(new))
        assert os.listdir(project) == ["f"]
    assert True in outcomes


async def test_a_kill_in_the_middle_of_a_write_leaves_nothing_behind(
    project: Path, until: Until
) -> None:
    code = """
import asyncio, sys
from acphold.workspace import Files, Roots
async def main():
    files = Files(Roots(sys.argv[1]))
    while True:
        await files.write("f", "x" * (8 << 20))
asyncio.run(main())
"""
    try:
        os.close(os.open(project, os.O_TMPFILE | os.O_WRONLY))
    except (AttributeError, OSError):
        pytest.skip("this file system has no files without a name")
    (project / "f").write_text("old")
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", code, str(project))
    await until(lambda: (project / "f").stat().st_size > 3)
    process.kill()
    await process.wait()
    assert (project / "f").stat().st_size == 8 << 20
    assert os.listdir(project) == ["f"]


async def test_readers_see_the_old_contents_or_the_new_never_half(tool: Files) -> None:
    texts = ["a" * 300_000, "b" * 200_000]
    await tool.write("f", texts[0])

    async def write() -> None:
        for turn in range(40):
            await tool.write("f", texts[turn % 2])

    writing = asyncio.create_task(write())
    while not writing.done():
        assert await tool.read("f") in texts
    await writing


async def test_many_at_once_all_get_their_answer(tool: Files) -> None:
    async with asyncio.timeout(20):
        await asyncio.gather(*(tool.write(f"d/{n}", str(n)) for n in range(60)))
        texts = await asyncio.gather(*(tool.read(f"d/{n}") for n in range(60)))
    assert texts == [str(n) for n in range(60)]
