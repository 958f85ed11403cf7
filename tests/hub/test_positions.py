"""A client that asks for positions goes on where it was, over a new connection."""

from __future__ import annotations

import asyncio
import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from acphold.conversation.history.entries import Entry, Segment
from acphold.conversation.history.fold import SessionState, fold
from acphold.live.agents.capabilities import ClientOffer
from acphold.live.agents.interface import Updates
from acphold.live.hub import bounds
from acphold.live.hub.annotations import notice
from acphold.live.hub.attachment import AttachmentState
from acphold.live.hub.frames import Frames
from acphold.live.server.positions import position_of_update
from tests.editor import Refused, prompt_params
from tests.hub.shared import Onlooker, Shared, said, shared, small_pages

POSITIONS: dict[str, Any] = {"_meta": {"acphold/positions": True}}

DEADLINE = 30


def told(client: Onlooker) -> list[dict[str, Any]]:
    """The params of all updates so far."""
    return [m["params"] for m in client.messages if m.get("method") == "session/update"]


def position(params: dict[str, Any]) -> int | None:
    """The position that an update carries."""
    seq: int | None = params.get("_meta", {}).get("acphold/seq")
    return seq


def positions(client: Onlooker) -> list[int | None]:
    return [position(params) for params in told(client)]


def after(seq: object) -> dict[str, Any]:
    return {"_meta": {"acphold/after": seq}}


def settle(house: Shared, session: str) -> asyncio.Task[bool]:
    """Start compacting a session, as when it rests; returns the task."""
    live = house.hub.conversation(session).session
    live.rest.end()
    live.rest.settle_now()
    assert live.rest._settling is not None
    return live.rest._settling


async def test_each_update_carries_its_position_for_who_asks_and_for_nobody_else(
    house: Shared,
) -> None:
    one, two = await house.client(**POSITIONS), await house.client()
    session = await one.new()
    await two.load(session)
    await house.turn(one, session, "say it", "a", "b")
    await two.until_text("b")
    assert positions(one) == [2, 3, 4, 5]  # of its prompt, that alone; the last is the title
    assert positions(two) == [None] * 4
    assert all("_meta" not in params for params in told(two)[1:3])


async def test_a_joined_line_of_a_replay_has_the_position_of_its_last_entry(house: Shared) -> None:
    one, two = await house.client(**POSITIONS), await house.client(**POSITIONS)
    session = await one.new()
    await house.turn(one, session, "say it", "a", "b", "c")
    await two.load(session)
    assert [position(params) for params in told(two)] == [2, 5, 6]
    await settle(house, session)
    three = await house.loaded(session, **POSITIONS)
    assert positions(three) == positions(two)


async def test_the_last_line_of_a_prompt_with_several_blocks_has_the_position(
    house: Shared,
) -> None:
    one, two = await house.client(), await house.client(**POSITIONS)
    session = await one.new()
    await two.load(session)
    blocks = [{"type": "text", "text": text} for text in ("a", "b")]
    one.begin("session/prompt", {"sessionId": session, "prompt": blocks})
    await house.agent.prompted(session)
    await two.until(lambda: len(told(two)) == 2)
    assert positions(two) == [None, 2]


async def test_a_client_that_lagged_is_told_of_its_prompt_between_what_stands_around_it(
    house: Shared,
) -> None:
    client, session = await house.opened(**POSITIONS)
    await house.told(client, session, "before")
    [attachment] = house.hub.conversation(session).session.attachments
    client.reads.clear()
    await house.agent.say(session, "x" * (2 * bounds.LAG_BYTES))
    await house.agent.say(session, "y")  # it waits for room behind this
    running = await house.begun(client, session, "say it")
    await house.agent.say(session, "behind")
    assert attachment.state is AttachmentState.READING
    client.reads.set()
    await client.until_text("behind")
    assert [n for n, params in enumerate(told(client)) if params["update"] == ARRIVED] == [3]
    running.cancel()


ARRIVED = {"sessionUpdate": "session_info_update"}


async def test_what_else_stands_in_the_params_of_an_update_stays_there(house: Shared) -> None:
    client, session = await house.opened(**POSITIONS)
    params = {"sessionId": session, "update": json.loads(said("x")), "_meta": {"vendor": 1}}
    raw = json.dumps(params).encode()
    await house.agent.listener.hear(Updates(session, "params", [raw]))
    await client.until_text("x")
    assert told(client)[0]["_meta"] == {"vendor": 1, "acphold/seq": 2}


async def test_a_client_that_resumes_behind_a_position_gets_what_it_missed_and_then_the_rest(
    house: Shared,
) -> None:
    one, two, session = await house.pair(**POSITIONS)
    running = await house.begun(two, session, "count")
    for n in range(100):
        await house.agent.say(session, f"{n} ")
    await one.until_text("49 ")
    place = next(position(p) for p in told(one) if p["update"] == json.loads(said("49 ")))
    await one.leave()
    await house.agent.say(session, "100 ")
    three = await house.client(name="again")
    resuming = three.begin("session/resume", {**opened(session), **after(place)})
    await house.agent.say(session, "101 ")
    await resuming
    await three.until_text("101 ")
    answer = three.place_of_answer(three.last_id)
    assert all(m.get("method") is None for m in three.messages[: answer + 1])
    assert three.text() == "".join(f"{n} " for n in range(50, 102))
    await two.until_text("101 ")
    assert told(three) == told(two)[-len(told(three)) :]
    running.cancel()


def opened(session: str) -> dict[str, Any]:
    return {"sessionId": session, "cwd": "/", "mcpServers": []}


def kinds(client: Onlooker) -> list[str]:
    return [update["sessionUpdate"] for update in client.updates()]


@pytest.mark.parametrize("place", [-1, 1000, "5", 1.5, None, [], True])
async def test_what_is_no_position_of_the_session_is_refused(place: object, house: Shared) -> None:
    _, session = await house.opened()
    await house.agent.say(session, "a")
    two = await house.client()
    refusal = await two.refused("session/resume", {**opened(session), **after(place)})
    assert refusal.code == -32602
    assert "acphold/after" in refusal.message
    await two.load(session)  # and it can go on like any other
    assert two.text() == "a"


@pytest.mark.parametrize("other", ["acphold/sent", "acphold/lineage", "acphold/answered"])
async def test_what_belongs_to_a_position_is_read_only_beside_one(
    other: str, house: Shared
) -> None:
    """A client may put what it says about a prompt on every request."""
    _, session = await house.opened()
    two = await house.client()
    meta = {other: {"id": "a"}}
    refusal = await two.refused(
        "session/resume", {**opened(session), "_meta": {**meta, "acphold/after": 0}}
    )
    assert refusal.code == -32602
    assert refusal.message.startswith(f"{other}: must be ")
    await two.resume(session, _meta=meta)


async def test_nobody_goes_on_behind_a_position_that_was_put_together(house: Shared) -> None:
    one, session = await house.talked("say it", "a", "b", "c", **POSITIONS)
    middle, end = positions(one)[0], positions(one)[-1]
    await settle(house, session)
    two, three = await house.client(), await house.client()
    refusal = await two.refused("session/resume", {**opened(session), **after(middle)})
    assert (refusal.code, "load the session" in refusal.message) == (-32602, True)
    await three.resume(session, **after(end))
    await house.told(three, session, "d")
    assert three.text() == "d"


async def is_merged(house: Shared, session: str) -> bool:
    """True if any of its entries were merged."""
    return any(segment.is_merged for segment in await house.journal.read(session, 0))


async def test_a_client_that_closes_the_session_keeps_no_position(house: Shared) -> None:
    one, two = await house.client(**POSITIONS), await house.client()
    session = await one.new()
    await two.load(session)
    await one.call("session/close", {"sessionId": session})
    await two.load(session)
    assert not house.hub.conversation(session).session.rest.bookmarks


@settings(max_examples=25)
@given(st.data())
def test_a_client_that_comes_back_at_any_position_gets_what_one_that_stayed_got(
    data: st.DataObject,
) -> None:
    steps = st.sampled_from(["say", "say", "many", "tool", "prompt", "notice", "settle", "params"])
    plan = data.draw(st.lists(steps, min_size=1, max_size=25))
    with tempfile.TemporaryDirectory() as folder, small_pages():
        asyncio.run(run_plan(Path(folder) / "journal.db", plan, data))


async def run_plan(journal: Path, plan: list[str], data: st.DataObject) -> None:
    async with shared(journal) as house, asyncio.timeout(DEADLINE):
        one = await house.client(name="one")
        stayed = await house.client(session={"notices": {}}, **POSITIONS)
        session = await one.new()
        await stayed.load(session)
        for number, step in enumerate(plan):
            await play(house, one, session, step, number)
        await house.told(stayed, session, "end")
        known = [seq for seq in positions(stayed) if seq is not None]
        place = data.draw(st.sampled_from([0, *known]))
        back = await house.client(session={"notices": {}}, **POSITIONS)
        if (refusal := await resumed(back, session, place)) is not None:
            assert refusal.code == -32602
            assert "settle" in plan
            return
        await house.told(stayed, session, "over")
        await back.until_text("over")
        behind = [n for n, params in enumerate(told(stayed)) if position(params) == place]
        before = told(stayed)[: behind[0] + 1 if behind else 0]
        if "settle" in plan:  # between two turns: the same conversation, in fewer pieces
            assert conversation(before + told(back)) == conversation(told(stayed))
        else:
            assert before + told(back) == told(stayed)


def conversation(shown: list[dict[str, Any]]) -> SessionState:
    """The state that a client folds from these params."""
    entries = (
        Entry(number, "update", 0, json.dumps(params["update"]).encode())
        for number, params in enumerate(shown, 1)
    )
    return fold(entries)


async def resumed(client: Onlooker, session: str, place: int) -> Refused | None:
    """Resume behind a position; how it was refused, if it was."""
    try:
        await client.resume(session, **after(place))
    except Refused as refusal:
        return refusal
    return None


async def play(house: Shared, one: Onlooker, session: str, step: str, number: int) -> None:
    """One step of a plan."""
    agent = house.agent
    if step == "say":
        await agent.say(session, f"{number} ")
    elif step == "many":
        await agent.say(session, *(f"{number}.{n} " for n in range(5)))
    elif step == "tool":
        kind = "tool_call" if number % 2 else "tool_call_update"
        call = {"sessionUpdate": kind, "toolCallId": "t", "title": f"{number}"}
        await agent.listener.hear(Updates(session, "update", [json.dumps(call).encode()]))
    elif step == "prompt":
        await house.turn(one, session, "say it", f"{number} ")
    elif step == "notice":
        raw = notice(f"{number}", "here")
        await house.hub.conversation(session).session.publish("update", [raw])
    elif step == "params":
        params = {"sessionId": session, "update": json.loads(said("p ")), "_meta": {"n": number}}
        await agent.listener.hear(Updates(session, "params", [json.dumps(params).encode()]))
    else:
        await settle(house, session)


async def test_a_client_whose_prompt_came_again_is_shown_the_next_one_of_another(
    house: Shared,
) -> None:
    one, two, session = await house.pair(**POSITIONS)
    await house.turn(two, session, "first", "a")
    await one.until_text("a")
    seq = house.hub.conversation(session).session.last_seq
    back = await house.client(**POSITIONS)
    lost = {"acphold/after": seq, "acphold/sent": ["p1"]}
    await back.resume(session, _meta=lost)
    asked = prompt_params(session, "mine")
    asked["_meta"] = {"acphold/sent": {"id": "p1", "after": seq}}
    turn = back.begin("session/prompt", asked)  # it had never arrived
    await house.agent.prompted(session)
    await house.ended(session, turn)
    await house.turn(two, session, "theirs", "b")
    await back.until_text("b")
    assert "theirs" in back.text("user_message_chunk")
    assert "mine" not in back.text("user_message_chunk")


async def test_a_prompt_that_comes_again_while_the_end_of_its_turn_is_written_is_answered(
    house: Shared,
) -> None:
    one, session = await house.opened(**POSITIONS)
    live = house.hub.conversation(session)
    seq = live.session.last_seq
    asked = prompt_params(session, "mine") | {"_meta": {"acphold/sent": {"id": "p1"}}}
    one.begin("session/prompt", asked)
    await house.agent.prompted(session)
    await house.agent.say(session, "a")
    turn = live.turns.running
    assert turn is not None
    async with asyncio.timeout(DEADLINE), live.session.writing:
        ending = asyncio.create_task(house.agent.end(session))
        back = await house.client(**POSITIONS)
        await back.resume(session, _meta={"acphold/after": seq, "acphold/sent": ["p1"]})
        again = asked | {"_meta": {"acphold/sent": {"id": "p1", "after": seq}}}
        answer = back.begin("session/prompt", again)
        await back.refused("no/such", {"sessionId": session})  # it is there
        assert turn.ending.locked()
    async with asyncio.timeout(DEADLINE):
        await ending
        assert await answer == {"stopReason": "end_turn"}
    assert back.text() == "a"


async def test_who_joins_a_turn_behind_a_gap_before_its_prompt_is_written_is_told_it_is_its_own(
    house: Shared,
) -> None:
    one, session = await house.opened(**POSITIONS)
    asked = prompt_params(session, "mine") | {"_meta": {"acphold/sent": {"id": "p1"}}}
    async with asyncio.timeout(DEADLINE), house.hub.conversation(session).session.writing:
        one.begin("session/prompt", asked)
        await one.refused("no/such", {"sessionId": session})  # it is there
        back = await house.client(**POSITIONS)
        await back.resume(session)
        again = asked | {"_meta": {"acphold/sent": {"id": "p1", "after": 0}}}
        answer = back.begin("session/prompt", again)
        await back.refused("no/such", {"sessionId": session})
    await house.agent.prompted(session)
    await house.agent.say(session, "a")
    await house.ended(session, answer)
    assert back.text() == "a"
    assert "mine" not in back.text("user_message_chunk")


def test_a_prompt_that_the_client_sent_itself_is_not_shown_to_it_and_the_next_ones_are() -> None:
    frames = Frames("s", ClientOffer(), sent={"mine"})
    prompt = json.dumps([{"type": "text", "text": "hello"}]).encode()
    shown = [
        frames.live(Segment(seq, seq, kind, 0, raw))
        for seq, (kind, raw) in enumerate(
            [
                ("sent", b'{"id":"mine"}'),
                ("prompt", prompt),
                ("prompt", prompt),
                ("sent", b'{"id":"theirs"}'),
                ("prompt", prompt),
            ],
            1,
        )
    ]
    assert [b"hello" in each for each in shown] == [False, False, True, False, True]


def test_the_end_of_no_update_passes_for_its_position() -> None:
    shows = ClientOffer(shows_terminals="terminal_output")
    frames = Frames("s", shows, positions=True)
    call = {
        "sessionUpdate": "tool_call",
        "toolCallId": "t",
        "_meta": {"terminal_info": {"terminal_id": "x"}, "terminal_output": {"terminal_id": "x"}},
        "acphold/seq": 99,
    }
    params = {"sessionId": "s", "_meta": {"a": 1}, "update": call, "x": {"acphold/seq": 99}}
    for kind, value in (("update", call), ("params", params)):
        raw = json.dumps(value, separators=(",", ":")).encode()
        lines = frames.live(Segment(7, 7, kind, 0, raw)).splitlines()
        told = [json.loads(line)["params"] for line in lines]
        ends = [json.dumps(each, separators=(",", ":")).encode() for each in told]
        assert [position_of_update("session/update", each) for each in ends] == [None, 7]
        assert list(map(position, told)) == [None, 7]
