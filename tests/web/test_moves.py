"""A session leaves a server for another machine that comes with a token."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from acp_wire.surroundings import Surroundings
from acp_wire.tasks import beside
from acp_wire.transports.streams import memory_pair
from acphold.errors import AcpError, ConnectionLostError, MoveRefusedError
from acphold.journal.rows import ListFilter
from acphold.live.hub.move_taker import WantedPlace, take
from acphold.live.hub.moves import MovedSession
from acphold.live.server.principals import Principal
from acphold.machine.addresses import MOVES
from acphold.web.application import ServedMoves
from tests.editor import DEADLINE
from tests.hub.moving import (
    ROUNDS,
    Cut,
    Machine,
    Result,
    broken_moves,
    cut_pair,
    machines,
    origin,
)
from tests.raw_entries import CONVERSATION
from tests.snapshots.conftest import Project
from tests.web.in_process import ORIGIN, Site, site


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return origin(tmp_path)


WHOLE = 1 << 40
"""More bytes than a move has."""


@asynccontextmanager
async def coming(web: Site, session_id: str, token: str, after: int) -> AsyncIterator[Cut]:
    """Come to a server for a session, over a WebSocket that breaks after so many bytes."""
    near, far = cut_pair(after)
    unread = b""
    is_begun = False

    async def receive() -> dict[str, Any]:
        nonlocal unread, is_begun
        if not is_begun:
            is_begun = True
            return {"type": "websocket.connect"}
        while b"\n" not in unread:
            if not (data := await far.receive()):
                return {"type": "websocket.disconnect", "code": 1006}
            unread += data
        line, _, unread = unread.partition(b"\n")
        return {"type": "websocket.receive", "text": line.decode()}

    async def send(message: Any) -> None:
        if message["type"] == "websocket.send":
            far.send(message["text"].encode() + b"\n")
            await far.drain()
        else:
            assert message["type"] in ("websocket.accept", "websocket.close"), message

    scope = {
        "type": "websocket",
        "path": f"{MOVES}{session_id}",
        "headers": [
            (b"host", urlsplit(ORIGIN).netloc.encode()),
            (b"authorization", f"Bearer {token}".encode()),
        ],
        "subprotocols": [],
    }

    async def serve() -> None:
        try:
            await web.app(scope, receive, send)
        finally:
            await far.aclose()

    async with asyncio.timeout(DEADLINE), beside(serve(), "server") as served:
        try:
            yield near
        finally:
            await near.aclose()
            await asyncio.wait([served])


async def brought(
    giver: Machine,
    taker: Machine,
    place: WantedPlace | None = None,
    after: int = WHOLE,
    scopes: tuple[Any, ...] = ("manage", "files"),
) -> Result:
    """Bring the session `s-1` from the server of a machine to another one."""
    place = place or WantedPlace(cwd=str(taker.clone if taker.clone.exists() else taker.folder))
    async with site(giver.folder) as web:
        token = await web.new_token(*scopes)
        async with coming(web, "s-1", token, after) as near:
            try:
                return await take(taker.journal, near, place, Surroundings.here())
            except AcpError as error:
                return error


class UntilMarked(Cut):
    """A transport that breaks when the mark of the move comes."""

    async def receive(self) -> bytes:
        data = await super().receive()
        if b'"type":"marked"' in data:
            await self.aclose()
            return b""
        return data


async def test_a_session_that_has_gone_is_audited_once_also_if_the_connection_broke_then(
    tmp_path: Path,
) -> None:
    noted: list[tuple[str, str | None]] = []
    who = Principal(name="phone", sees_all=True, note=lambda *deed: noted.append(deed))
    async with machines(tmp_path) as (here, there):
        await here.remember("s-1", *CONVERSATION)
        served = ServedMoves(here.journal)
        place = WantedPlace(cwd=str(there.folder))
        for kind in (UntilMarked, Cut):
            near, far = memory_pair(1 << 20)
            async with beside(
                served.attend("s-1", Cut(far, [WHOLE], []), who), "server"
            ) as serving:
                transport = kind(near, [WHOLE], [])
                try:
                    await take(there.journal, transport, place, Surroundings.here())
                except ConnectionLostError:
                    assert kind is UntilMarked
                    assert not await there.owns("s-1")
                finally:
                    await transport.aclose()
                await asyncio.wait([serving])
            assert not await here.owns("s-1")
            assert noted == [("move", "s-1")]
        assert await there.owns("s-1")


@pytest.mark.parametrize("scopes", [("watch", "prompt", "answer", "files"), ("rules",)])
async def test_who_may_not_manage_takes_no_session_away(
    tmp_path: Path, scopes: tuple[str, ...]
) -> None:
    async with machines(tmp_path) as (here, there):
        await here.remember("s-1", *CONVERSATION)
        refused = await brought(here, there, scopes=scopes)
        assert isinstance(refused, MoveRefusedError)
        assert "move needs the scope 'manage'" in str(refused)
        assert await here.owns("s-1")
        assert await there.journal.page(ListFilter()) == []


async def test_without_the_scope_files_a_session_comes_only_without_its_files(
    tmp_path: Path,
    project: Project,
) -> None:
    async with machines(tmp_path, project) as (here, there):
        await here.remember("s-1", *CONVERSATION)
        await here.keep("s-1")
        refused = await brought(here, there, scopes=("manage",))
        assert isinstance(refused, MoveRefusedError)
        assert "taking its files needs the scope 'files'" in str(refused)
        assert "--no-files" in str(refused)
        assert await there.journal.page(ListFilter()) == []
        place = WantedPlace(cwd=str(there.clone), with_files=False)
        taken = await brought(here, there, place, scopes=("manage",))
        assert isinstance(taken, MovedSession), taken
        assert (await there.journal.session("s-1")).cwd == str(there.clone)
        assert await there.journal.snapshots.of("s-1") == []


async def test_sessions_of_others_and_unknown_ones_are_not_there(tmp_path: Path) -> None:
    async with machines(tmp_path) as (here, there):
        unknown = await brought(here, there)
        assert isinstance(unknown, MoveRefusedError)
        await here.remember("s-1", *CONVERSATION)
        async with site(here.folder) as web:
            limits: list[dict[str, Any]] = [{"tenant": "ada"}, {"session_id": "other"}]
            for limited in limits:
                token = await web.new_token("manage", "files", **limited)
                async with coming(web, "s-1", token, WHOLE) as near:
                    with pytest.raises(MoveRefusedError) as refused:
                        await take(
                            there.journal, near, WantedPlace(cwd=str(tmp_path)), Surroundings.here()
                        )
                    assert str(refused.value) == str(unknown)
        assert await here.owns("s-1")


async def test_connections_to_a_server_that_break_anywhere_leave_one_owner_in_the_end(
    tmp_path: Path,
    project: Project,
) -> None:
    await broken_moves(tmp_path, project, ROUNDS // 2, 31, brought)
