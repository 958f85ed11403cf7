"""Files are read by lines and written in one step, and nothing else is left or touched."""

from __future__ import annotations

import asyncio
import os
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, strategies as st

from acp_wire.errors import (
    FileAccessError,
    FileTooLargeError,
    InvalidParamsError,
    MissingFileError,
    NotTextError,
    OutsideRootsError,
)
from acp_wire.workspace import bounds, files
from acp_wire.workspace.files import (
    Files,
    LineWindow,
    decode_lines,
    refuse_binary,
)
from acp_wire.workspace.roots import Roots
from tests.watched_processes import until

NOBODY = 65534
ALICE, DEVS = 61001, 61002
"""A user and a group that nobody here is or is in."""

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
linux_only = pytest.mark.skipif(sys.platform != "linux", reason="attributes as Linux has them")


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that everybody can reach; pytest's own are closed to other users."""
    with TemporaryDirectory() as name:
        Path(name).chmod(0o777)
        yield Path(name)


@pytest.fixture
def closed_folder(open_folder: Path) -> Iterator[Path]:
    """A folder that takes no other file; the one in it, `f`, can be written."""
    (file := open_folder / "f").write_text("old")
    file.chmod(0o666)
    open_folder.chmod(0o555)
    yield open_folder
    open_folder.chmod(0o777)


@contextmanager
def without_powers(*groups: int) -> Iterator[None]:
    """For the block, root gives up its power to ignore file modes."""
    powerful = os.geteuid() == 0
    before = os.getgroups()
    if powerful:
        os.setgroups(groups)
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        if powerful:
            os.seteuid(0)
            os.setgroups(before)


def acl() -> bytes:
    """A POSIX ACL as Linux keeps it: we and NOBODY read and write, our group and others nothing.

    Source: Linux, posix_acl_xattr.h; entries of tag, permissions and id, in the order of tags.
    """
    nobody = 0xFFFFFFFF
    entries = [(1, 6, nobody), (2, 6, NOBODY), (4, 0, nobody), (16, 6, nobody), (32, 0, nobody)]
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)


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


async def test_a_missing_file_is_said_to_be_missing(tool: Files, project: Path) -> None:
    (project / "file").touch()
    for path in ("missing", "missing/deep", "file/deep"):
        with pytest.raises(MissingFileError, match=path) as caught:
            await tool.read(path)
        assert caught.value.code == -32002
    with pytest.raises(FileAccessError, match="Not a directory"):
        await tool.write("file/deep", "x")


async def test_pipes_sockets_devices_and_folders_are_refused(project: Path) -> None:
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


async def test_bytes_that_are_no_text_are_refused_and_their_line_named(
    tool: Files, project: Path
) -> None:
    (project / "latin").write_bytes(b"ok\ncaf\xe9\n")
    (project / "binary").write_bytes(b"\x7fELF\0\0")
    with pytest.raises(NotTextError, match="byte 0xe9 in line 2"):
        await tool.read("latin")
    assert await tool.read("latin", limit=1) == "ok\n"
    with pytest.raises(NotTextError, match="binary"):
        await tool.read("binary")


async def test_a_text_of_gigabytes_can_only_be_read_in_parts(tool: Files, project: Path) -> None:
    with (project / "huge").open("wb") as file:
        file.write(b"first\n" + b"x" * 8000 + b"\nthird\n")
        file.truncate(1 << 40)
    with pytest.raises(FileTooLargeError, match=r"1099511627776 bytes.*line and limit"):
        await tool.read("huge")
    assert await tool.read("huge", line=3, limit=1) == "third\n"
    with pytest.raises(FileTooLargeError, match="in these lines"):
        await tool.read("huge", line=4, limit=1)


async def test_the_most_that_is_read_at_once_can_be_read(tool: Files, project: Path) -> None:
    (project / "big").write_bytes(b"x" * bounds.MAX_READ)
    assert len(await tool.read("big")) == bounds.MAX_READ
    (project / "big").write_bytes(b"x" * bounds.MAX_READ + b"\ny")
    with pytest.raises(FileTooLargeError):
        await tool.read("big")
    assert await tool.read("big", line=2) == "y"


async def test_a_read_that_takes_long_can_be_cancelled_and_stalls_nobody(
    tool: Files, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "SPARE_THREAD_SECONDS", 0.1)
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
        monkeypatch.setattr(files, "SELF", "/nowhere")
    (script := project / "script").write_text("old")
    script.chmod(0o751)
    with script.open() as reader:
        await tool.write("script", "new")
        assert reader.read() == "old"
    assert script.read_text() == "new"
    assert script.stat().st_mode & 0o7777 == 0o751
    assert os.listdir(project) == ["script"]


@needs_root
@linux_only
async def test_a_file_of_others_keeps_owner_group_acl_and_attributes(
    tool: Files, project: Path
) -> None:
    (file := project / "f").write_text("old")
    os.chown(file, ALICE, DEVS)
    os.setxattr(file, "system.posix_acl_access", acl())
    os.setxattr(file, "user.origin", b"https://example.org")
    before = file.stat()
    await tool.write("f", "new")
    now = file.stat()
    assert file.read_text() == "new"
    assert now.st_ino != before.st_ino
    assert (now.st_uid, now.st_gid, now.st_mode) == (ALICE, DEVS, 0o100660)
    assert os.getxattr(file, "system.posix_acl_access") == acl()
    assert os.getxattr(file, "user.origin") == b"https://example.org"


@linux_only
async def test_a_file_without_an_acl_gets_none_from_its_folder(tool: Files, project: Path) -> None:
    (file := project / "f").write_text("old")
    file.chmod(0o640)
    os.setxattr(project, "system.posix_acl_default", acl())
    await tool.write("f", "new")
    assert file.stat().st_mode == 0o100640
    assert os.listxattr(file) == []
    await tool.write("made", "new")
    assert os.getxattr(project / "made", "system.posix_acl_access") == acl()


@needs_root
@pytest.mark.parametrize("text", ["new", "much more than there was"])
async def test_a_file_that_only_its_group_may_write_is_written_in_place(
    open_folder: Path, text: str
) -> None:
    (file := open_folder / "f").write_text("old, and long")
    os.chown(file, ALICE, DEVS)
    file.chmod(0o660)
    before = file.stat()
    with without_powers(DEVS):
        await Files(Roots(str(open_folder))).write("f", text)
    now = file.stat()
    assert file.read_text() == text
    assert (now.st_ino, now.st_uid, now.st_gid) == (before.st_ino, ALICE, DEVS)
    assert now.st_mode == before.st_mode
    assert os.listdir(open_folder) == ["f"]


async def test_a_file_in_a_folder_that_takes_no_other_is_written_in_place(
    closed_folder: Path,
) -> None:
    with without_powers():
        tool = Files(Roots(str(closed_folder)))
        await tool.write("f", "new")
        with pytest.raises(FileAccessError, match="Permission denied"):
            await tool.write("other", "new")
    assert (closed_folder / "f").read_text() == "new"


async def test_a_full_disk_leaves_a_file_as_it_was_also_where_it_is_written_in_place(
    closed_folder: Path,
) -> None:
    code = """
import asyncio, os, resource, signal, sys
from acp_wire.workspace.files import Files
from acp_wire.workspace.roots import Roots
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
if os.geteuid() == 0:
    os.setuid(65534)
asyncio.run(Files(Roots(sys.argv[1])).write("f", "x" * 5000))
"""
    run = [sys.executable, "-c", code, str(closed_folder)]
    for mode in (0o555, 0o777):
        os.chmod(closed_folder, mode)
        done = await asyncio.to_thread(subprocess.run, run, capture_output=True, text=True)
        assert "FileAccessError: cannot write 'f': File too large" in done.stderr
        assert (closed_folder / "f").read_text() == "old"
        assert os.listdir(closed_folder) == ["f"]


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


async def test_a_kill_in_the_middle_of_a_write_leaves_nothing_behind(project: Path) -> None:
    code = """
import asyncio, sys
from acp_wire.workspace.files import Files
from acp_wire.workspace.roots import Roots
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


async def test_readers_see_the_old_contents_or_the_new_and_never_half(tool: Files) -> None:
    texts = ["a" * 300_000, "b" * 200_000]
    await tool.write("f", texts[0])

    async def write() -> None:
        for turn in range(40):
            await tool.write("f", texts[turn % 2])

    writing = asyncio.create_task(write())
    while not writing.done():
        assert await tool.read("f") in texts
    await writing


# -- lines and encodings, without I/O ----------------------------------------------------------

TEXT = st.text("ab\n\r\u00e9", max_size=30).map(str.encode)


def window(data: bytes, size: int, first: int, limit: int | None) -> bytes:
    cut = LineWindow(first, limit)
    for start in range(0, len(data), size):
        if cut.complete:
            break
        cut.feed(data[start : start + size])
    assert cut.size == len(cut.lines())
    return cut.lines()


@given(TEXT, st.integers(1, 9), st.integers(1, 8), st.none() | st.integers(0, 8))
def test_a_window_has_as_many_lines_as_asked_for_from_its_first(
    data: bytes, size: int, first: int, limit: int | None
) -> None:
    lines = [line + b"\n" for line in data.split(b"\n")]
    lines[-1] = lines[-1][:-1]
    last = None if limit is None else first - 1 + limit
    assert window(data, size, first, limit) == b"".join(lines[first - 1 : last])


def test_a_byte_that_is_no_utf8_is_told_with_its_line() -> None:
    with pytest.raises(NotTextError, match=r"'f' is not UTF-8 text: byte 0xff in line 12"):
        decode_lines(b"a\nb\n\xff", 10, "f")


@pytest.mark.parametrize("data", [b"\x7fELF\0", "hi".encode("utf-16"), b"\xfe\xff\0a"])
def test_binary_files_are_told_from_text(data: bytes) -> None:
    with pytest.raises(NotTextError):
        refuse_binary(data, "f")
    refuse_binary(b"a" * 8000 + b"\0", "f")


def test_a_text_is_read_through_no_link_and_is_empty_where_there_is_none(
    project: Path, outside: Path
) -> None:
    (project / "folder").mkdir()
    (project / "folder" / "a.txt").write_text("inside")
    (project / "file").symlink_to(project / "folder" / "a.txt")
    (project / "way").symlink_to(project / "folder")
    roots = Roots(str(project))

    def text(path: str) -> str | None:
        return files.text_of(roots, path, 6)

    assert text("folder/a.txt") == text(str(project / "folder" / "a.txt")) == "inside"
    assert text("folder/none.txt") == ""
    assert text("file") is text("way/a.txt") is text(str(outside / "secret")) is None
    (project / "folder" / "a.txt").write_text("too long")
    assert text("folder/a.txt") is None
