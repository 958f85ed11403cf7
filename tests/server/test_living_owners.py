"""An owner that lives keeps its sessions, whatever becomes of its socket, its host name, its lease:
who wants one of them reaches it there, or is told where it is."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from acphold.journal.stores import open_journal
from tests.editor import Editor, Refused, introduced, scripted_agent, wrap_command
from tests.owners import lone_command, owning, program
from tests.served import Guest, guest, wrapped
from tests.server.test_owner_ends import kept

pytestmark = pytest.mark.slow

CONTAINER = "unshare --user --map-root-user --uts --pid --fork --kill-child --mount"
"""Other names for hosts and processes, as a container has them, and the same files."""


@pytest.fixture
def short() -> Iterator[Path]:
    """A folder in which the path of a socket is short enough."""
    with TemporaryDirectory(dir="/tmp") as folder:
        yield Path(folder)


@asynccontextmanager
async def contained(
    journal: Path,
    runtime: Path,
    before: str = "true",
    *,
    name: str = "another",
    by_daemon: bool = False,
) -> AsyncIterator[Editor]:
    """An editor and its agent in a container, after the command `before`; the sessions are kept by
    a process of its own, or `by_daemon`."""
    words = (wrap_command if by_daemon else lone_command)(scripted_agent())
    inside = ["sh", "-c", f'hostname {name} && {before} && exec "$@"', "sh", *words]
    env = {"XDG_RUNTIME_DIR": str(runtime)}
    async with introduced([*CONTAINER.split(), *inside], journal=journal, env=env) as client:
        yield client


def end(go: Path) -> None:
    """The turn that waits for this file goes on."""
    go.touch()


@asynccontextmanager
async def in_a_turn(client: Editor, go: Path) -> AsyncIterator[str]:
    """A session in which the agent has said `a`; at the end of the block it says `b`."""
    session = await client.new()
    turn = client.begin_prompt(session, {"say": "a"}, {"until": str(go)}, {"say": "b"})
    await client.until_text("a")
    yield session
    end(go)
    assert (await turn)["stopReason"] == "end_turn"


async def test_an_owner_whose_runtime_folder_was_removed_in_a_turn_is_found_again_and_shared(
    journal: Path, short: Path
) -> None:
    env = {"XDG_RUNTIME_DIR": str(short)}
    command = lone_command(scripted_agent())
    async with (
        introduced(command, journal=journal, env=env) as one,
        in_a_turn(one, short / "go") as session,
    ):
        shutil.rmtree(short / "acphold")  # as at the last logout
        async with introduced(command, journal=journal, env=env) as two:
            await two.load(session)
            end(short / "go")
            await two.until_text("ab")


async def test_of_two_containers_that_see_the_same_files_one_looks_at_a_session_of_the_other(
    journal: Path, short: Path
) -> None:
    async with contained(journal, short) as one, contained(journal, short) as two:
        async with in_a_turn(one, short / "go") as session:
            await two.load(session)
            end(short / "go")
            await two.until_text("ab")
        with pytest.raises(Refused, match="only looks, because it runs in another sandbox or cont"):
            await two.prompt(session, {"say": "c"})
        await one.prompt(session, {"say": "c"})
        await two.until_text("abc")


async def test_a_container_whose_sockets_nobody_sees_keeps_its_session_and_others_are_told_where(
    journal: Path, short: Path
) -> None:
    (hidden := short / "hidden").mkdir(0o700)
    mount = f"mount -t tmpfs -o mode=700 none {hidden}"
    async with (
        contained(journal, hidden, mount) as one,
        wrapped(journal) as other,
        in_a_turn(one, short / "go") as session,
    ):
        with pytest.raises(Refused, match=r"open in process \d+ on another, which cannot be"):
            await other.load(session)


@pytest.mark.of_a_file
async def test_a_container_whose_own_socket_has_the_name_of_the_owners_is_told_where_that_is(
    journal: Path, short: Path
) -> None:
    # Each has a /run of its own, of one name, and sees its own processes alone.
    mount = f"mount -t tmpfs -o mode=700 none {short} && mount -t proc none /proc"
    async with (
        contained(journal, short, mount, name="one", by_daemon=True) as one,
        contained(journal, short, mount, name="two", by_daemon=True) as other,
    ):
        session = await one.talk({"say": "a"})
        with pytest.raises(Refused, match=r"open in process \d+ on one, which cannot be reached"):
            await other.load(session)
        await one.prompt(session, {"say": "b"})
        assert one.text() == "ab"


async def test_what_is_open_in_a_process_that_shares_nothing_is_told_at_once(
    journal: Path,
) -> None:
    async with kept(journal) as (other, session), owning(journal, session) as process:
        with pytest.raises(
            Refused, match=f"open in process {process.pid} on {os.uname().nodename}"
        ):
            await other.load(session)


async def test_a_client_of_an_owner_that_finds_its_session_taken_follows_it_to_the_next(
    journal: Path,
) -> None:
    async with guest(scripted_agent(), journal) as other, program(journal) as owner:
        await other.initialize()
        session = await owner.talk({"say": "hello "})
        await other.load(session)
        await had_by_another(journal, session)
        await other.until(lambda: len(other.updates(session)) > 0)
        async with program(journal) as taker:
            await taker.load(session)
            await taker.prompt(session, {"say": "from the next"})
            await other.until_text("from the next")


async def had_by_another(journal: Path, session: str) -> None:
    """Another process takes the session, and ends."""
    taker = open_journal(journal)
    await taker.acquire(session)
    await taker.aclose()


async def test_an_owner_that_is_about_to_end_is_not_waited_for(journal: Path) -> None:
    async with kept(journal) as (other, session):
        leaving = open_journal(journal)
        await leaving.acquire(session)
        await leaving.renew(retiring=True)
        await other.load(session)
        await said(other, session)
        await leaving.aclose()


async def said(client: Guest, session: str) -> None:
    await client.prompt(session, {"say": "mine"})
    assert client.text().endswith("mine")


async def test_nobody_is_reached_at_the_socket_of_a_process_that_was_killed_in_a_container(
    journal: Path, short: Path
) -> None:
    async with contained(journal, short) as one:
        session = await one.talk({"say": "a"})
        await one.kill()
    async with asyncio.timeout(30), wrapped(journal) as other:
        await other.load(session)
        await said(other, session)
