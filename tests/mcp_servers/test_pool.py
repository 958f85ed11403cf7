"""The MCP servers of a session together."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import msgspec
import pytest

from acp_wire.schema import HttpHeader, McpServerHttp, McpServerStdio
from acphold.mcp_servers.connections import Connecting, Failed, Ready
from acphold.mcp_servers.errors import McpError
from tests.mcp_servers.conftest import SECRET, Faulty, Gather, Told
from tests.mcp_servers.http_faults import FaultyHttp
from tests.watched_processes import lives, until


async def test_four_broken_servers_of_eight_hold_nobody_up(
    faulty: Faulty, gather: Gather, faulty_url: FaultyHttp
) -> None:
    told = Told()
    headers = (HttpHeader(name="Authorization", value=SECRET),)
    far = McpServerHttp(name="far", url=faulty_url.url("ok"), headers=headers)
    locked = McpServerHttp(name="locked", url=faulty_url.url("401"), headers=headers)
    missing = McpServerStdio(name="missing", command="/no/such", args=(), env=())
    good = [faulty("ok"), faulty("chatter"), faulty("slow", SLOW="0.7"), far]
    bad = [missing, locked, faulty("exit"), faulty("silent")]
    await gather(faulty("ok")).tools()  # the SDK is there
    servers = gather(
        *(server for pair in zip(good, bad, strict=True) for server in pair),
        deadline=3.0,
        listener=told,
    )
    began = time.monotonic()
    servers.start()
    for name in ("ok", "chatter", "far", "slow"):
        await servers[name].tools()
    assert set(told.reasons) == {"missing", "locked", "exit"}
    tools = await servers.tools()  # waits for the silent one as well
    assert time.monotonic() - began >= 3.0
    assert {tool.server for tool in tools} == {"ok", "chatter", "far", "slow"}
    assert [tool.server for tool in tools] == sorted(
        (tool.server for tool in tools), key=["ok", "chatter", "slow", "far"].index
    )
    assert set(told.reasons) == {"missing", "locked", "exit", "silent"}
    again = time.monotonic()
    assert len(await servers.tools()) == len(tools)  # but only once
    assert time.monotonic() - again < 3.0


async def test_nothing_begins_before_it_is_asked_for(faulty: Faulty, gather: Gather) -> None:
    servers = gather(faulty("ok"), faulty("exit"))
    assert len(servers) == 2
    assert "ok" in servers
    assert [type(one.state).__name__ for one in servers] == ["Idle", "Idle"]
    assert (await servers["ok"].call("ok")).text == "ok {}"
    assert [type(one.state).__name__ for one in servers] == ["Ready", "Idle"]


async def test_a_name_that_no_server_has_is_reported_with_those_there_are(
    faulty: Faulty, gather: Gather
) -> None:
    servers = gather(faulty("ok"), faulty("exit"))
    with pytest.raises(McpError, match=r"'nope': this session has no such server; .*'ok', 'exit'"):
        servers["nope"]


async def test_a_lost_server_is_back_when_the_tools_are_asked_for(
    faulty: Faulty, gather: Gather
) -> None:
    servers = gather(faulty("ok"))
    tools = await servers.tools()
    with pytest.raises(McpError):
        await servers["ok"].call("die")
    assert await servers.tools() == tools
    assert isinstance(servers["ok"].state, Ready)


async def test_a_failed_server_is_tried_again_beside_the_others(
    faulty: Faulty, gather: Gather, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("acphold.mcp_servers.bounds.RETRY_SECONDS", 0.0)
    script = tmp_path / "server"
    told = Told()
    later = McpServerStdio(name="later", command=str(script), args=(), env=())
    servers = gather(faulty("ok"), later, listener=told)
    assert {tool.server for tool in await servers.tools()} == {"ok"}
    assert isinstance(servers["later"].state, Failed)
    working = faulty("ok")
    script.write_text(f"#!/bin/sh\nexec {working.command} {' '.join(working.args)}\n")
    script.chmod(0o755)
    assert {tool.server for tool in await servers.tools()} == {"ok"}
    assert isinstance(servers["later"].state, Connecting)
    await until(lambda: isinstance(servers["later"].state, Ready))
    assert {tool.server for tool in await servers.tools()} == {"ok", "later"}
    assert list(told.reasons) == ["later"]


async def test_a_server_that_cannot_list_its_tools_is_reported(
    faulty: Faulty, gather: Gather
) -> None:
    told = Told()
    servers = gather(faulty("no_list"), faulty("ok"), listener=told)
    assert {tool.server for tool in await servers.tools()} == {"ok"}
    assert "its answer to `tools/list` is not MCP" in told.reasons["no_list"]


@pytest.mark.slow
async def test_prompts_are_gathered_too(gather: Gather, everything: dict[str, object]) -> None:
    servers = gather(everything["http"])
    assert "simple-prompt" in {prompt.name for prompt in await servers.prompts()}


async def test_all_are_closed_at_the_same_time(faulty: Faulty, gather: Gather) -> None:
    named = [msgspec.structs.replace(faulty("stubborn"), name=f"s{n}") for n in range(3)]
    servers = gather(*named)
    facts = [(await one.call("surroundings")).structured or {} for one in servers]
    await servers.aclose()
    assert not any(lives(msgspec.convert(fact["pid"], int)) for fact in facts)
    await servers.aclose()


async def test_closing_ends_the_wait_of_everybody(faulty: Faulty, gather: Gather) -> None:
    servers = gather(faulty("silent"))
    waiting = asyncio.create_task(servers.tools())
    await until(lambda: isinstance(servers["silent"].state, Connecting))
    await servers.aclose()
    assert await waiting == ()
