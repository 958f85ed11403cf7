"""Updates that a client has to offer to show: no other client is ever told them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from acp_wire.schema.updates import UPDATE_KINDS
from acphold.live.agents.interface import Updates
from acphold.live.hub import bounds
from acphold.live.hub.annotations import notice, notice_as_message
from tests.hub.shared import Onlooker, Shared, said
from tests.hub.test_positions import POSITIONS, after, settle

DEADLINE = 60

OFFERS_ALL: dict[str, Any] = {
    "session": {"notices": {}, "compaction": {}},
    "plan": {},
    "subagents": {},
}

NEEDING = {name for name, kind in UPDATE_KINDS.items() if kind.needs}

CALLS = {"tool_call", "tool_call_update"}


def needing_updates() -> list[bytes]:
    """One of each kind that has to be offered, and a text that comes behind them."""
    updates = [
        {
            "sessionUpdate": name,
            "compactionId": "c",
            "title": "t",
            "plan": {},
            "planId": "p",
            "sessionId": "child",
            "subagentSessionId": "child",
            "messageId": "m",
        }
        for name in sorted(NEEDING)
    ]
    return [json.dumps(update).encode() for update in updates] + [said("behind")]


def kinds(client: Onlooker) -> set[str]:
    return {update["sessionUpdate"] for update in client.updates()}


async def both_told(shows: Onlooker, plain: Onlooker) -> None:
    """Both have all there is, and only the one that shows them has those that need an offer."""
    await shows.until_text("behind")
    await plain.until_text("behind")
    assert kinds(plain) & NEEDING == set()
    assert kinds(shows) >= NEEDING


@pytest.mark.parametrize("how", ["alone", "in one read", "behind a text", "with more beside"])
async def test_live_they_reach_only_clients_that_show_them(how: str, house: Shared) -> None:
    shows, session = await house.opened(**OFFERS_ALL)
    plain = await house.loaded(session)
    raws = needing_updates()
    if how == "behind a text":
        raws = [said("first"), *raws]
    if how == "with more beside":
        params = [b'{"sessionId":"s0","update":%b,"_meta":{"a":1}}' % raw for raw in raws]
        await house.agent.listener.hear(Updates(session, "params", params))
    else:
        size = 1 if how == "alone" else len(raws)
        for start in range(0, len(raws), size):
            piece = raws[start : start + size]
            await house.agent.listener.hear(Updates(session, "update", piece))
    await both_told(shows, plain)


async def test_a_client_that_goes_on_or_lags_is_told_none_of_them_either(house: Shared) -> None:
    shows, session = await house.opened(**OFFERS_ALL)
    plain = await house.loaded(session, **POSITIONS)
    await house.told(plain, session, "known")
    lagging = await house.loaded(session)
    lagging.reads.clear()
    await house.agent.say(session, "x" * (bounds.LAG_BYTES + 1))
    await house.agent.listener.hear(Updates(session, "update", needing_updates()))
    await both_told(shows, plain)
    lagging.reads.set()
    await both_told(shows, lagging)
    back = await house.client(**POSITIONS)
    await back.call(
        "session/resume", {"sessionId": session, "cwd": "/", "mcpServers": [], **after(1)}
    )
    await both_told(shows, back)


@pytest.mark.parametrize("settled", [False, True])
async def test_a_replay_has_them_only_for_clients_that_show_them(
    house: Shared, *, settled: bool
) -> None:
    first, session = await house.opened(**OFFERS_ALL)
    await house.begun(first, session, "go")
    await house.agent.listener.hear(Updates(session, "update", needing_updates()))
    await house.agent.end(session)
    await first.until_text("behind")
    if settled:
        await settle(house, session)
    plain = await house.loaded(session)
    shows = await house.loaded(session, **OFFERS_ALL)
    assert kinds(plain) & NEEDING == set()
    # A notice is only for the clients present then, even for one that can show notices.
    assert kinds(shows) & NEEDING == NEEDING - {"notice"}


async def test_a_notice_of_ours_is_words_for_who_shows_none_wherever_it_stands_in_a_read(
    house: Shared,
) -> None:
    shows, session = await house.opened(**OFFERS_ALL)
    plain = await house.loaded(session)
    for number in range(20):
        raws = [said(f"{number} "), notice("Look", f"{number}"), said("behind")]
        await house.hub.conversation(session).session.publish("update", raws)
    await shows.until(lambda: shows.text().count("behind") == 20)
    await plain.until(lambda: plain.text().count("behind") == 20)
    assert kinds(plain) == {"agent_message_chunk"}
    assert [f"[acphold] Look. {n}\n" in plain.text() for n in range(20)] == [True] * 20
    assert "[acphold]" not in shows.text()


@pytest.mark.parametrize("said_by_it", [b'"title":7', b'"description":"x"', b'"title":null'])
async def test_what_only_begins_like_a_notice_of_ours_is_told_to_who_shows_notices_alone(
    said_by_it: bytes,
) -> None:
    ours = notice("Look", "here")
    assert b"[acphold] Look. here" in notice_as_message(ours)
    start = ours[: ours.index(b'"severity"')]
    assert notice_as_message(start + said_by_it + b"}") == b""


async def test_positions_of_who_shows_none_have_no_hole_that_cannot_be_gone_on_behind(
    house: Shared,
) -> None:
    _, session = await house.opened(**OFFERS_ALL)
    plain = await house.loaded(session, **POSITIONS)
    await house.agent.listener.hear(Updates(session, "update", needing_updates()))
    await plain.until_text("behind")
    told = [m["params"] for m in plain.messages if m.get("method") == "session/update"]
    *children, update = told  # each sub-agent is a call to it
    assert {each["update"]["sessionUpdate"] for each in children} <= CALLS
    assert update["_meta"]["acphold/seq"] == house.hub.conversation(session).session.last_seq


async def test_a_client_that_offers_nothing_takes_nothing_from_the_others(house: Shared) -> None:
    plain, session = await house.opened()  # the one that the agent is introduced to
    notices = await house.loaded(session, session={"notices": {}})
    compaction = await house.loaded(session, session={"compaction": {}})
    await house.agent.listener.hear(Updates(session, "update", needing_updates()))
    for client in (plain, notices, compaction):
        await client.until_text("behind")
    assert kinds(plain) & NEEDING == set()
    assert kinds(notices) & NEEDING == {"notice"}
    assert kinds(compaction) & NEEDING == {"compaction_update", "compaction_summary_chunk"}
