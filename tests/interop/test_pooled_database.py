"""Machines whose database is behind PgBouncer, which gives a connection away behind each
transaction: nothing may be kept in one, no lock, no prepared statement, no setting."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import acphold
from acphold.errors import RemoteError
from tests.postgresql import Databases
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
