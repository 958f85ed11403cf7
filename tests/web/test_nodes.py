"""Several machines that serve one journal: a session lives at one, and is there at each."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator
from contextlib import (
    AbstractAsyncContextManager,
    suppress,
)
from functools import partial
from pathlib import Path

import httpx2
import psycopg
import pytest

import acphold
from acphold.errors import RemoteError
from tests.postgresql import Databases
from tests.web.certificates import new_authority
from tests.web.machines import Node, machines

pytestmark = pytest.mark.slow

DEADLINE = 90.0


Nodes = Callable[..., AbstractAsyncContextManager[list[Node]]]


@pytest.fixture(params=["sqlite", "postgresql"])
def location(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The journal that the machines of a test share."""
    if request.param == "sqlite":
        yield str(tmp_path / "shared.db")
        return
    databases: Databases = request.getfixturevalue("databases")
    with databases.new() as url:
        yield url


@pytest.fixture
def nodes(location: str) -> Nodes:
    """`nodes(folder, number)`: so many machines that share the journal, for the block."""
    return partial(machines, location)


async def test_a_session_of_one_machine_is_listed_shown_and_gone_on_with_at_another(
    tmp_path: Path, nodes: Nodes
) -> None:
    async with nodes(tmp_path) as (one, two), one.client() as here, two.client() as there:
        session = await here.new_session(cwd=tmp_path)
        await session.prompt("quick: one")
        assert [row.session_id async for row in there.sessions()] == [session.id]
        far = await there.load_session(session.id, cwd=tmp_path)
        assert "two" in (await far.prompt("quick: two")).text
        assert one.net.connections == 1  # it came there by a line
        updates = far.updates()
        assert "three" in (await session.prompt("quick: three")).text
        async with asyncio.timeout(DEADLINE):
            while "three" not in str(await anext(updates)):
                pass
        assert str(session.state.timeline).count("quick: two") == 2


async def test_a_machine_that_is_killed_leaves_its_sessions_to_the_others(
    tmp_path: Path, nodes: Nodes
) -> None:
    async with nodes(tmp_path) as (one, two), two.client() as there:
        async with one.client() as here:
            session = await here.new_session(cwd=tmp_path)
            await session.prompt("quick: one")
            far = await there.load_session(session.id, cwd=tmp_path)
            await asyncio.to_thread(one.served.kill)
            async with asyncio.timeout(DEADLINE):
                assert "two" in (await far.prompt("quick: two")).text
        one.served.start_again()
        async with one.client() as back:
            again = await back.load_session(session.id, cwd=tmp_path)
            assert str(again.state.timeline).count("quick: one") == 2
            assert "three" in (await again.prompt("quick: three")).text
        assert two.net.connections == 1


async def test_a_turn_of_which_the_machine_is_killed_is_shown_as_far_as_it_went(
    tmp_path: Path, nodes: Nodes
) -> None:
    async with nodes(tmp_path) as (one, two), two.client() as there, one.client() as here:
        session = await here.new_session(cwd=tmp_path)
        await session.prompt("quick: one")
        far = await there.load_session(session.id, cwd=tmp_path)
        turn, said = far.prompt("slow"), 0
        async with asyncio.timeout(DEADLINE):
            async for _ in turn:
                said += 1
                if said == 20:
                    break
            await asyncio.to_thread(one.served.kill)
            with pytest.raises(RemoteError, match="interrupted"):
                await turn
        async with asyncio.timeout(DEADLINE):
            assert "two" in (await far.prompt("quick: two")).text
        shown = text_of(far)
        async with two.client() as there_again:
            assert text_of(await there_again.load_session(session.id, cwd=tmp_path)) == shown
        one.served.start_again()


@pytest.mark.parametrize("location", ["postgresql"], indirect=True)
async def test_who_serves_where_a_killed_machine_served_is_not_taken_for_it(
    tmp_path: Path, nodes: Nodes
) -> None:
    async with nodes(tmp_path) as (one, two), two.client() as there, one.client() as here:
        session = await here.new_session(cwd=tmp_path)
        await session.prompt("quick: one")
        far = await there.load_session(session.id, cwd=tmp_path)
        with two.stopped():
            await asyncio.to_thread(one.served.start_again)
            async with one.client() as anew:
                await anew.new_session(cwd=tmp_path)
        async with asyncio.timeout(DEADLINE):
            assert "two" in (await far.prompt("quick: two")).text


def text_of(session: acphold.RemoteSession) -> list[str]:
    """The texts of a session, without the ids and times that differ."""
    return re.findall(r"text='([^']*)'", str(session.state.timeline))


async def test_a_line_between_machines_that_is_cut_comes_back_and_nothing_is_answered_twice(
    tmp_path: Path, nodes: Nodes
) -> None:
    async with nodes(tmp_path) as (one, two), two.client() as there, one.client() as here:
        session = await here.new_session(cwd=tmp_path)
        await session.prompt("quick: one")
        far = await there.load_session(session.id, cwd=tmp_path)
        for n in range(5):
            turn = far.prompt(f"quick: again{n}")
            if n % 2:
                one.net.cut()
            else:
                one.net.go_down()
                asyncio.get_running_loop().call_later(1.0, one.net.come_up)
            with suppress(RemoteError):
                async with asyncio.timeout(DEADLINE):
                    await turn

        def told() -> list[int]:
            timeline = str(session.state.timeline)
            return [timeline.count(f"quick: again{n}") for n in range(5)]

        updates = session.updates()
        async with asyncio.timeout(DEADLINE):
            while 1 in told():  # the answer to the last one is still on its way
                await anext(updates)
        assert {*told()} <= {0, 2}
        assert two.net.connections == 0  # the session has stayed where it was


async def test_a_machine_that_is_stopped_loses_its_sessions_and_finds_them_again_when_it_goes_on(
    tmp_path: Path, nodes: Nodes
) -> None:
    async with nodes(tmp_path) as (one, two), two.client() as there, one.client() as here:
        session = await here.new_session(cwd=tmp_path)
        await session.prompt("quick: one")
        far = await there.load_session(session.id, cwd=tmp_path)
        with one.stopped():
            async with asyncio.timeout(DEADLINE):
                assert "two" in (await far.prompt("quick: two")).text
        async with asyncio.timeout(DEADLINE):
            assert "three" in (await session.prompt("quick: three")).text
        assert two.net.connections >= 1  # it came from the machine that lost it
        for text in ("one", "two", "three"):
            assert str(session.state.timeline).count(f"quick: {text}") == 2


async def test_what_goes_on_at_one_machine_is_seen_in_the_list_of_another(
    tmp_path: Path, nodes: Nodes
) -> None:
    async with nodes(tmp_path) as (one, two), one.client() as here:
        session = await here.new_session(cwd=tmp_path)
        turn = session.prompt("slow")
        await anext(aiter(turn))
        token = two.served.token()
        headers = {"Authorization": f"Bearer {token}"}
        async with httpx2.AsyncClient(base_url=two.served.url, headers=headers) as web:
            [row] = (await web.get("/sessions")).json()["sessions"]
            assert (row["sessionId"], row["live"]["state"]) == (session.id, "running")
        # In a thread: the network that it asks through is in this loop.
        assert "running" in await asyncio.to_thread(two.served.run, "list", "--json")
        session.cancel()
        await turn


async def test_machines_reach_each_other_by_the_certificates_that_their_servers_trust(
    tmp_path: Path, nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = new_authority(tmp_path, "localhost")
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.ca))
    async with (
        nodes(tmp_path, authority=authority) as (one, two),
        one.client() as here,
        two.client() as there,
    ):
        session = await here.new_session(cwd=tmp_path)
        await session.prompt("quick: one")
        far = await there.load_session(session.id, cwd=tmp_path)
        assert "two" in (await far.prompt("quick: two")).text


async def test_a_session_whose_folder_is_on_another_machine_is_read_and_forked_there(
    tmp_path: Path, nodes: Nodes
) -> None:
    (folder := tmp_path / "there").mkdir()
    async with nodes(tmp_path) as (one, two), two.client() as reads:
        async with one.client() as here:
            session = await here.new_session(cwd=folder)
            await session.prompt("quick: one")
        await asyncio.to_thread(one.served.kill)
        folder.rmdir()
        read = await reads.load_session(session.id, cwd=folder)
        assert "quick: one" in str(read.state.timeline)
        with pytest.raises(
            RemoteError, match=f"acphold continue {session.id} --from last --cwd FOLDER"
        ):
            await read.prompt("quick: two")
        copy = two.served.run("continue", session.id, "--from", "last", "--cwd", str(tmp_path))
        forked = await reads.load_session(copy, cwd=tmp_path)
        assert "two" in (await forked.prompt("quick: two")).text
        one.served.start_again()


async def test_two_machines_that_want_the_sessions_of_a_third_that_was_killed_agree_on_one_owner(
    tmp_path: Path, nodes: Nodes
) -> None:
    async with (
        nodes(tmp_path, 3) as (one, two, three),
        two.client() as second,
        three.client() as third,
    ):
        async with one.client() as first:
            session = await first.new_session(cwd=tmp_path)
            await session.prompt("quick: one")
        left = await second.load_session(session.id, cwd=tmp_path)
        right = await third.load_session(session.id, cwd=tmp_path)
        await asyncio.to_thread(one.served.kill)
        async with asyncio.timeout(DEADLINE):
            turns = [left.prompt("quick: left"), right.prompt("quick: right")]
            said = [(await turn).text for turn in turns]
        assert ["left" in said[0], "right" in said[1]] == [True, True]
        async with three.client() as again:
            kept = str((await again.load_session(session.id, cwd=tmp_path)).state.timeline)
            assert [kept.count(f"quick: {it}") for it in ("one", "left", "right")] == [2, 2, 2]
        assert two.net.connections + three.net.connections >= 1
        one.served.start_again()


@pytest.mark.parametrize("location", ["postgresql"], indirect=True)
async def test_a_machine_whose_connections_to_the_database_are_ended_keeps_its_sessions(
    tmp_path: Path, nodes: Nodes, location: str
) -> None:
    async with nodes(tmp_path) as (one, two), two.client() as there, one.client() as here:
        session = await here.new_session(cwd=tmp_path)
        await session.prompt("quick: one")
        with psycopg.connect(location, autocommit=True) as line:
            line.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
        far = await there.load_session(session.id, cwd=tmp_path)
        assert "two" in (await far.prompt("quick: two")).text
        assert "three" in (await session.prompt("quick: three")).text
        # It was asked over a line; before that, and until it is back, it is asked if it answers.
        assert one.net.connections in (1, 2, 3)
        assert two.net.connections == 0
