"""Machines whose database is behind PgBouncer, which gives a connection away behind each
transaction: nothing may be kept in one, no lock, no prepared statement, no setting."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import httpx2
import pytest
from psycopg.conninfo import conninfo_to_dict

import acphold
from acphold.errors import RemoteError
from acphold.journal_location import VARIABLE
from tests.postgresql import Databases
from tests.web.conftest import serving
from tests.web.machines import machines

pytestmark = pytest.mark.interop

DEADLINE = 120.0


async def loaded(
    agent: acphold.RemoteAgent, session_id: str, folder: Path
) -> acphold.RemoteSession | None:
    """The session, unless its owner may live and cannot be reached."""
    try:
        return await agent.load_session(session_id, cwd=folder)
    except RemoteError as error:
        if "cannot be reached from here" not in error.message:
            raise
        return None


async def test_machines_behind_a_pooler_share_sessions_and_take_over_from_who_is_killed(
    tmp_path: Path, databases_pooled: Databases
) -> None:
    with databases_pooled.new() as url:
        async with machines(url, tmp_path) as (one, two), two.client() as there:
            async with one.client() as here, asyncio.timeout(DEADLINE):
                session = await here.new_session(cwd=tmp_path)
                await session.prompt("quick: one")
                far = await there.load_session(session.id, cwd=tmp_path)
                assert "two" in (await far.prompt("quick: two")).text
                assert one.net.connections == 1  # asked where it lives, and not of the database
                one.served.process.kill()
                one.served.process.wait()
            async with asyncio.timeout(DEADLINE):
                while (taken := await loaded(there, session.id, tmp_path)) is None:
                    pass  # until its owner has been silent for long: no connection says it lives
                assert "three" in (await taken.prompt("quick: three")).text
            one.served.start_again()
            async with one.client() as back, asyncio.timeout(DEADLINE):
                again = await back.load_session(session.id, cwd=tmp_path)
                for word in ("one", "two", "three"):
                    assert str(again.state.timeline).count(f"quick: {word}") == 2


WATCHED_SECONDS = 30.0
OURS = re.compile("LOG:  (?:statement|execute [^:]*): (?!SET application_name)")
"""PgBouncer has statements of its own."""


async def test_a_server_that_nobody_uses_asks_the_database_little_also_with_a_list_open(
    tmp_path: Path, databases_pooled: Databases
) -> None:
    with databases_pooled.new() as url, serving(tmp_path, variables={VARIABLE: url}) as served:
        server = databases_pooled.server
        name = conninfo_to_dict(url)["dbname"]

        async def asked() -> float:
            """How often a second, once what belongs to a start is over."""
            await asyncio.sleep(WATCHED_SECONDS / 2)
            before = len(server.log())
            await asyncio.sleep(WATCHED_SECONDS)
            found = OURS.findall(server.log()[before:])
            return len(found) / WATCHED_SECONDS

        server.execute(f"ALTER DATABASE {name} SET log_statement = 'all'")
        assert await asked() <= 0.2
        async with (
            httpx2.AsyncClient(timeout=DEADLINE) as client,
            client.stream(
                "GET",
                f"{served.url}/sessions/feed",
                headers={"authorization": f"Bearer {served.token()}"},
            ) as feed,
        ):
            await anext(feed.aiter_lines())
            assert 0.5 < await asked() <= 2.0
