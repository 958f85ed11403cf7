"""Files of a session: the client's where it serves them, else those on the disk."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

import acphold
from acp_wire.schema import ClientCapabilities, FileSystemCapabilities, InitializeRequest
from acphold.errors import (
    FileAccessError,
    InvalidParamsError,
    MissingFileError,
    NotTextError,
    OutsideRootsError,
    RemoteError,
)
from acphold.library.outbox import Outbox, Post
from acphold.library.workspace import ClientSide, Folders, SessionFiles
from acphold.live.agents.interface import AgentRequest, Event, Updates
from acphold.testing import connect
from tests.library.test_turn import agent_that, opened


async def read(turn: acphold.Turn) -> None:
    path, *window = turn.text.split()
    await turn.say(await turn.files.read(path, *map(int, window)))


async def write(turn: acphold.Turn) -> None:
    path, text = turn.text.split()
    await turn.files.write(path, text)


async def test_files_are_read_from_the_cwd_wherever_the_agent_was_started(work: Path) -> None:
    (work / "a.txt").write_text("one\ntwo\nthree\n")
    async with opened(agent_that(read), work) as (client, session):
        assert (await session.prompt("a.txt")).text == "one\ntwo\nthree\n"
        assert (await session.prompt("a.txt 2 1")).text == "two\n"
        assert (await session.prompt(f"{work}/a.txt 3")).text == "three\n"
        assert client.requests == []


async def test_additional_directories_are_inside_and_everything_else_is_not(
    work: Path, tmp_path: Path
) -> None:
    other, outside = tmp_path / "other", tmp_path / "outside"
    for folder in (other, outside):
        folder.mkdir()
        (folder / "a.txt").write_text(folder.name)
    (work / "link").symlink_to(outside)
    async with opened(agent_that(read), work, additional_directories=[other]) as (_, session):
        assert (await session.prompt(f"{other}/a.txt")).text == "other"
        for path in (f"{outside}/a.txt", "../outside/a.txt", "link/a.txt", "/etc/passwd"):
            with pytest.raises(acphold.RemoteError, match="outside the folders of this session"):
                await session.prompt(path)


async def test_a_client_that_serves_files_is_asked_for_its_unsaved_text(work: Path) -> None:
    (work / "a.txt").write_text("saved")
    buffers = {f"{work}/a.txt": "unsaved\ntext"}
    async with opened(agent_that(read), work, files=buffers) as (client, session):
        assert (await session.prompt("./a.txt")).text == "unsaved\ntext"
        assert (await session.prompt("a.txt 2 1")).text == "text"
        with pytest.raises(acphold.RemoteError, match="there is no file"):
            await session.prompt("b.txt")
        with pytest.raises(acphold.RemoteError, match="outside the folders"):
            await session.prompt("/etc/passwd")
        assert [params["path"] for _, params in client.requests] == [
            f"{work}/a.txt",
            f"{work}/a.txt",
            f"{work}/b.txt",
        ]


async def test_a_client_that_serves_files_is_handed_what_is_written(work: Path) -> None:
    async with connect(agent_that(write), files={}) as client:
        await (await client.new_session(work)).prompt("a.txt text")
        assert client.files == {f"{work}/a.txt": "text"}
    assert not (work / "a.txt").exists()


async def test_without_such_a_client_a_file_is_written_in_one_step(work: Path) -> None:
    (work / "a.txt").write_text("old")
    (work / "a.txt").chmod(0o640)
    async with opened(agent_that(write), work) as (_, session):
        await session.prompt("a.txt new")
        await session.prompt("sub/b.txt made")
    assert (work / "a.txt").read_text() == "new"
    assert (work / "a.txt").stat().st_mode & 0o777 == 0o640
    assert (work / "sub/b.txt").read_text() == "made"


class Editor:
    """A client whose answer to anything is an error."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    async def hear(self, event: Event) -> None: ...

    async def hear_together(self, said: Sequence[Updates]) -> list[bool]:
        return [True for _ in said]

    async def answer(self, asked: AgentRequest) -> bytes:
        raise self.error


def files_of(work: Path, answer: Exception, *, served: bool = True) -> SessionFiles:
    """The files of a session in `work`, whose client serves them or not."""
    can = ClientCapabilities(
        fs=FileSystemCapabilities(read_text_file=served, write_text_file=served)
    )
    editor = Editor(answer)
    introduced = InitializeRequest(protocol_version=1, client_capabilities=can)
    side = ClientSide("s", editor, introduced, Outbox("s", Post(editor)))
    return SessionFiles(side, Folders(str(work), ()))


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (RemoteError(-32002, "not found"), MissingFileError),
        (RemoteError(-32603, "the disk is on fire"), FileAccessError),
    ],
)
async def test_what_the_client_refuses_is_an_error_of_the_workspace(
    work: Path, answer: RemoteError, error: type[Exception]
) -> None:
    files = files_of(work, answer)
    with pytest.raises(error):
        await files.read("a.txt")
    with pytest.raises(error):
        await files.write("a.txt", "text")


async def test_a_client_that_cannot_after_all_leaves_the_work_to_us(work: Path) -> None:
    files = files_of(work, RemoteError(-32601, "no such method"))
    await files.write("a.txt", "text")
    assert await files.read("a.txt") == "text"


async def test_mistakes_are_reported_without_asking_anybody(work: Path) -> None:
    files = files_of(work, AssertionError())
    with pytest.raises(InvalidParamsError, match="line is negative"):
        await files.read("a.txt", -1)
    with pytest.raises(OutsideRootsError):
        await files.write("../a.txt", "text")
    with pytest.raises(NotTextError):
        await files_of(work, AssertionError(), served=False).read(".")
