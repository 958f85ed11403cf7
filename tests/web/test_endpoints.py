"""Several agents behind one server: which are served, when each is started, and when it ends."""

from __future__ import annotations

from pathlib import Path
from typing import NoReturn

import pytest

from acp_wire.tasks import beside
from acp_wire.transports.streams import memory_pair
from acphold.errors import StoppedError
from acphold.journal.access import Scope
from acphold.live.server.principals import Principal
from acphold.live.server.service import Service
from acphold.serve_options import ServeOptions
from tests.caller import Caller
from tests.conversations import chunk
from tests.journal.conversations import turn
from tests.web.in_process import Site, site


@pytest.mark.parametrize("scopes", [("watch",), ("watch", "prompt", "answer", "manage")])
async def test_a_token_for_one_session_starts_no_agent_but_that_of_the_session(
    tmp_path: Path, scopes: tuple[Scope, ...]
) -> None:
    started = list[str]()

    def service(name: str) -> Service:
        def make_agent(*given: object) -> NoReturn:
            started.append(name)
            raise StoppedError

        options = ServeOptions(journal=tmp_path / "journal.db")
        return Service(make_agent=make_agent, options=options)

    services = {name: service(name) for name in ("one", "two")}
    async with site(tmp_path, services=services) as web:
        await web.remember("s2", [], agent="two")
        only = await web.new_token(*scopes, session_id="s2")
        gone = await web.new_token(*scopes, session_id="s3")
        all_agents = {"_meta": {"acphold/allAgents": True}}

        async def status(path: str, token: str) -> int:
            params = {"protocolVersion": 1, "clientCapabilities": all_agents}
            call = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}
            return (await web.post(path, token, **call)).status

        assert await status("/acp/one", only) == 404
        for path in ("/acp", "/acp/one", "/acp/two"):
            assert await status(path, gone) == 404
        assert started == []
        for path in ("/acp", "/acp/two"):
            assert await status(path, only) == 200
            assert set(started) == {"two"}


async def test_who_has_one_session_reads_it_at_the_only_agent_though_another_had_it(
    web: Site,
) -> None:
    talk = turn("Go", chunk("agent_message", "Done."))
    await web.remember("s1", talk, agent="one that is served no more")
    guest = Principal(name="guest", scopes=frozenset({"watch"}), session_id="s1")
    assert await web.relay.name_of("another", "s1") is None
    name = await web.relay.name_of("", "s1")
    assert name is not None
    near, far = memory_pair()
    reader = Caller(near)
    async with (
        beside(web.relay.attend(name, far, guest, {}), "attend") as attending,
        beside(reader.read(), "read"),
    ):
        await reader.initialize()
        await reader.load("s1")
        await reader.until_text("Done.")
        await reader.leave()
        await attending
