"""The metrics of a server, in Prometheus' format, for users who may see all sessions."""

from __future__ import annotations

import re

from tests.web.conftest import Served
from tests.web.in_process import Site
from tests.web.test_journal_pages import said
from tests.web.test_list_feed import watching

SAMPLE = re.compile(r'[a-z_]+(\{[a-z]+="[^"\\\n]*"\})? [0-9.e+-]+')


async def figures(web: Site) -> dict[str, float]:
    """The reported metrics: name and labels, with the value."""
    answer = await web.get("/metrics")
    assert answer.status == 200, answer.body
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    lines = answer.body.decode().removesuffix("\n").split("\n")
    samples = [line for line in lines if not line.startswith("#")]
    assert all(SAMPLE.fullmatch(line) for line in samples)
    named = {line.split()[2] for line in lines if line.startswith("# TYPE ")}
    bare = {re.sub(r"(_bucket|_sum|_count)?(\{.*)? .*", "", line) for line in samples}
    assert bare <= named
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in samples)}


async def test_sessions_connections_bytes_and_refusals_are_counted(web: Site) -> None:
    before = await figures(web)
    await web.remember("s1", said(1))
    await web.get("/sessions", "acphold_0_0")
    await web.get("/sessions?x=1")
    async with watching(web) as watcher:
        await watcher.next()
        after = await figures(web)
    assert after["acphold_sessions"] == before["acphold_sessions"] + 1
    assert after['acphold_refused_requests_total{status="401"}'] == 1
    assert after['acphold_refused_requests_total{status="400"}'] == 1
    assert after['acphold_connections{transport="feed"}'] == 1
    sent = 'acphold_bytes_total{direction="out"}'
    assert after[sent] > before[sent]


async def test_appends_are_counted_by_how_long_they_took(web: Site) -> None:
    name = "acphold_journal_append_seconds"
    before = (await figures(web))[f"{name}_count"]
    await web.remember("s1", said(1))
    after = await figures(web)
    assert after[f"{name}_count"] == before + 3
    buckets = [value for key, value in after.items() if key.startswith(f"{name}_bucket")]
    assert buckets == sorted(buckets)
    assert after[f'{name}_bucket{{le="+Inf"}}'] == after[f"{name}_count"]
    assert after[f"{name}_sum"] > 0


async def test_figures_are_for_who_may_see_all_sessions(web: Site) -> None:
    assert (await web.get("/metrics", "")).status == 401
    assert (await web.get("/metrics", await web.new_token("manage"))).status == 403
    one = await web.new_token("watch", session_id="s1")
    assert (await web.get("/metrics", one)).status == 403
    assert (await web.get("/metrics", method="POST")).status == 405
    head = await web.get("/metrics", method="HEAD")
    assert (head.status, head.body) == (200, b"")


async def test_a_turn_over_a_websocket_shows_in_the_figures_of_a_real_server(
    served: Served,
) -> None:
    import httpx2

    import acphold

    token = served.token()
    async with (
        acphold.connect(served.url, token=token) as agent,
        httpx2.AsyncClient(headers={"Authorization": f"Bearer {token}"}) as http,
    ):
        session = await agent.new_session(cwd=served.folder)
        await session.prompt("quick: hello")
        told = (await http.get(f"{served.url}/metrics")).text.splitlines()
    assert 'acphold_connections{transport="websocket"} 1' in told
    assert "acphold_live_sessions 1" in told
    assert "acphold_sessions 1" in told
    [count] = [line for line in told if line.startswith("acphold_journal_append_seconds_count")]
    assert int(count.split()[1]) >= 3
