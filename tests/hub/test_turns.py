"""Turns: one at a time at the agent, each ended and answered once."""

from __future__ import annotations

import asyncio
import gc
import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from acphold.errors import AcpError, AgentExitedError, RemoteError
from acphold.journal.postgresql.pipelines import Answer, Pipelines, Rows, Value
from acphold.live.agents.interface import AgentCall, Updates
from acphold.live.hub import bounds
from acphold.live.hub.prompt_turn import PromptTurn
from acphold.live.server import bounds as server_bounds
from tests.editor import Refused, open_params, prompt_params
from tests.hub.shared import Onlooker, Shared, shared
from tests.postgresql import Databases


def prompts(house: Shared) -> list[str]:
    return [
        params["prompt"][0]["text"]
        for method, params in house.agent.asked
        if method == "session/prompt"
    ]


async def test_an_agent_that_is_deaf_to_a_cancellation_never_sees_a_second_prompt_meanwhile(
    house: Shared,
) -> None:
    house.agent.can("resume")
    house.agent.heeds_cancel = False
    client, session, first = await house.in_turn("first")
    await client.call("session/close", {"sessionId": session})
    assert await first == {"stopReason": "cancelled"}
    await client.load(session)
    second = client.begin_prompt(session, "second")
    await client.call("session/list", {})
    assert prompts(house) == ["first"]
    await house.agent.say(session, "of the first turn")
    await house.agent.end(session)
    await house.agent.prompted(session)
    assert prompts(house) == ["first", "second"]
    await house.agent.say(session, "of the second turn")
    await house.agent.end(session)
    assert await second == {"stopReason": "end_turn"}
    assert client.text() == "of the second turn"


async def test_a_session_that_rests_keeps_neither_its_last_prompt_nor_who_sent_it(
    house: Shared,
) -> None:
    def turns() -> list[PromptTurn]:
        gc.collect()
        return [it for it in gc.get_objects() if type(it) is PromptTurn]

    others = {id(it): it for it in turns()}  # of earlier tests
    client, session = await house.opened()
    for heeds_cancel in (True, False):
        house.agent.heeds_cancel = heeds_cancel
        turn = await house.begun(client, session, "work on")
        if not heeds_cancel:
            client.tell("session/cancel", {"sessionId": session})
        await house.ended(session, turn)
        await client.call("session/list", {})
        house.agent.calls.clear()
        del turn
        assert {id(it) for it in turns()} <= others.keys()


@pytest.mark.postgresql
async def test_in_a_database_a_prompt_is_committed_before_it_is_sent_and_nothing_is_asked_beside(
    databases: Databases, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    ask = Pipelines.ask

    def noted(self: Pipelines, statement: str, values: Sequence[Value]) -> Answer[Rows | None]:
        asked.append(statement)
        return ask(self, statement, values)

    with databases.new() as url:
        async with shared(url) as house:
            client, session = await house.opened()
            for text in ("first", "second"):
                turn = await house.begun(client, session, text)
                kept = await house.entries(session, "prompt")
                assert kept[-1][0]["text"] == text
                await house.ended(session, turn)
                monkeypatch.setattr(Pipelines, "ask", noted)
    prompt, end = asked
    assert "INSERT INTO acphold.segments" in prompt
    assert "INSERT INTO acphold.segments" in end


@pytest.mark.parametrize(
    "how", ["", "the agent hangs", pytest.param("a second load", marks=pytest.mark.of_a_file)]
)
async def test_a_cancel_right_behind_a_load_and_a_prompt_reaches_that_prompt_at_once(
    how: str, house: Shared
) -> None:
    client, session = await house.opened()
    await client.call("session/close", {"sessionId": session})
    if how == "the agent hangs":
        house.agent.may_answer.clear()
    loading = client.begin("session/load", open_params(session, "/"))
    turn = client.begin_prompt(session, "never mind")
    if how == "a second load":
        loading = client.begin("session/load", open_params(session, "/"))
    client.tell("session/cancel", {"sessionId": session})
    assert await asyncio.wait_for(turn, 5) == {"stopReason": "cancelled"}
    assert not (how == "the agent hangs" and loading.done())
    house.agent.may_answer.set()
    await loading
    assert prompts(house) == []
    await client.load(session)
    assert client.text("user_message_chunk") == "never mind" or how == "a second load"


async def test_prompts_that_are_cancelled_without_end_during_loads_are_refused(
    monkeypatch: pytest.MonkeyPatch, house: Shared
) -> None:
    monkeypatch.setattr(server_bounds, "KEPT_PROMPTS_BYTES", 10_000)
    client, session = await house.opened()
    sessions = [session, await client.new()]
    for each in sessions:
        await client.call("session/close", {"sessionId": each})
    house.agent.may_answer.clear()
    loadings = [client.begin("session/load", open_params(each, "/")) for each in sessions]
    turn = client.begin_prompt(sessions[0], "x" * 9_000)
    client.tell("session/cancel", {"sessionId": sessions[0]})
    assert await asyncio.wait_for(turn, 5) == {"stopReason": "cancelled"}
    for each in sessions:
        with pytest.raises(Refused, match="too many prompts wait"):
            await client.prompt(each, "one more")
    house.agent.may_answer.set()
    await asyncio.gather(*loadings)
    assert prompts(house) == []


async def test_a_cancel_behind_a_load_does_not_reach_a_prompt_that_comes_after_it(
    house: Shared,
) -> None:
    client, session = await house.opened()
    await client.call("session/close", {"sessionId": session})
    client.begin("session/load", open_params(session, "/"))
    client.tell("session/cancel", {"sessionId": session})
    ended = await house.turn(client, session, "after all", own="s1")
    assert ended == {"stopReason": "end_turn"}


@pytest.mark.of_a_file
@pytest.mark.parametrize("block", ["text", 7, None, ["x"]])
async def test_a_prompt_whose_block_is_no_object_is_refused_and_leaves_no_turn_open(
    block: object, house: Shared
) -> None:
    client, session = await house.opened()
    half = {"type": "text", "text": "half a pair: \ud83d"}
    params = {"sessionId": session, "prompt": [half, block]}
    error = await client.refused("session/prompt", params)
    assert (error.code, error.data) == (-32602, {"field": "prompt[1]"})
    turn = client.begin("session/prompt", {"sessionId": session, "prompt": [half]})
    await house.agent.prompted(session)
    await house.agent.end(session)
    assert await turn == {"stopReason": "end_turn"}


async def test_what_the_agent_says_behind_the_answer_of_a_turn_comes_behind_ours(
    house: Shared,
) -> None:
    client, session, turn = await house.in_turn("hi")
    await house.agent.say(session, "in the turn")
    await house.agent.end(session)
    await house.agent.say(session, " and behind it")
    await turn
    await client.until_text("behind it")
    kinds = ["update" if "method" in message else "answer" for message in client.messages]
    assert kinds[-3:] == ["update", "answer", "update"]


@pytest.mark.parametrize("method", ["session/set_mode", "_vendor/do"])
async def test_what_the_agent_says_behind_any_answer_comes_behind_ours(
    method: str, house: Shared
) -> None:
    house.agent.results[method] = b"{}"
    house.agent.says_behind[method] = "behind it"
    client, session = await house.opened()
    await client.call(method, {"sessionId": session, "modeId": "x"})
    await client.until_text("behind it")
    kinds = ["update" if "method" in message else "answer" for message in client.messages]
    assert kinds[-2:] == ["answer", "update"]


async def test_a_prompt_on_a_session_that_is_deleted_meanwhile_is_answered(house: Shared) -> None:
    client, session = await house.opened()
    await house.journal.delete(session)
    error = await client.refused("session/prompt", prompt_params(session, "hi"))
    assert "deleted" in error.message
    assert prompts(house) == []


async def test_a_prompt_that_is_given_up_while_it_waits_keeps_its_place(house: Shared) -> None:
    one, two = await house.client(fs={"readTextFile": True}), await house.client()
    session = await one.new()
    await two.load(session)
    first = await house.begun(one, session, "first")
    given_up = two.begin_prompt(session, "given up")
    await two.call("session/list", {})
    third = one.begin_prompt(session, "third")
    await one.call("session/list", {})
    two.tell("$/cancel_request", {"requestId": two.last_id - 1})
    await asyncio.wait([given_up])
    assert given_up.exception() is not None
    await house.agent.end(session)
    await house.agent.prompted(session)
    one.answers["fs/read_text_file"] = lambda _: {"content": "read by the first client"}
    read = await asyncio.wait_for(
        house.agent.ask_client("fs/read_text_file", sessionId=session, path="/x"), 5
    )
    assert read == {"content": "read by the first client"}
    await house.agent.end(session)
    assert await first == await third == {"stopReason": "end_turn"}
    history = [
        entry.kind
        for segment in await house.journal.read(session, 0)
        for entry in segment.entries()
        if entry.kind in ("prompt", "turn_end")
    ]
    assert history == ["prompt", "turn_end"] * 3
    assert prompts(house) == ["first", "third"]


async def test_a_cancel_reaches_the_running_turn_also_while_its_session_is_loaded_again(
    house: Shared,
) -> None:
    house.agent.can("list")
    house.agent.results["session/list"] = b'{"sessions":[]}'
    house.agent.has_sign_in = True
    client, session, turn = await house.in_turn("go on and on")
    house.desk.sign_in_changed()  # so that the load asks the agent, which takes its time
    house.agent.may_answer.clear()
    loading = client.begin("session/load", open_params(session, "/"))
    client.tell("session/cancel", {"sessionId": session})
    await asyncio.wait_for(house.agent.cancelled.wait(), 2)
    house.agent.may_answer.set()
    await loading
    assert await asyncio.wait_for(turn, 5) == {"stopReason": "cancelled"}


@pytest.mark.parametrize("turns", [1, 2])
async def test_an_agent_that_never_ends_its_turns_is_started_anew_before_the_next_prompt(
    turns: int, house: Shared
) -> None:
    house.agent.heeds_cancel = False
    client = await house.client()
    sessions = [await client.new() for _ in range(turns)]
    for session in sessions:
        turn = await house.begun(client, session, "first")
        client.tell("session/cancel", {"sessionId": session})
        assert await turn == {"stopReason": "cancelled"}
    again = await house.begun(client, sessions[0], "second", own=f"s{turns}")
    assert house.agent.generation == 2
    await house.agent.end(f"s{turns}")
    assert await again == {"stopReason": "end_turn"}


TOOL = {
    "sessionUpdate": "tool_call",
    "toolCallId": "t",
    "title": "make",
    "_meta": {"vendor": {"n": [1]}},
}


@pytest.mark.parametrize("how", ["cancelled", "the agent died", "taken over"])
async def test_a_tool_call_that_is_closed_for_the_agent_keeps_what_the_agent_put_in_its_meta(
    journal: Path, how: str, house: Shared
) -> None:
    client, session, turn = await house.in_turn("build")
    await house.agent.listener.hear(Updates(session, "update", [json.dumps(TOOL).encode()]))
    if how == "cancelled":
        client.tell("session/cancel", {"sessionId": session})
        await turn
    elif how == "the agent died":
        await house.agent.end(session, AgentExitedError("gone", "exit status 1", ""))
        await asyncio.wait([turn])
    await house.give_way()
    async with shared(journal) as other:  # else another process takes it in mid-turn
        two = await other.client()
        await two.load(session)
        tools = [update for update in two.updates() if "toolCallId" in update]
        assert tools[-1]["status"] == "failed"
        meta = tools[-1]["_meta"]
        assert meta["vendor"] == {"n": [1]}
        assert "acphold/failed" in meta


async def test_a_call_that_has_begun_long_ago_is_looked_for_until_it_is_found(
    monkeypatch: pytest.MonkeyPatch, house: Shared
) -> None:
    monkeypatch.setattr(bounds, "CALLS_LOOKED_BACK", 1)
    client, session, turn = await house.in_turn("build")
    await house.agent.listener.hear(Updates(session, "update", [json.dumps(TOOL).encode()]))
    for number in range(20):  # each is an entry: the client sees it before the next
        await house.agent.say(session, f"line {number}.")
        await client.until_text(f"line {number}.")
    client.tell("session/cancel", {"sessionId": session})
    await turn
    [closed] = [update for update in client.updates() if update.get("status") == "failed"]
    assert closed["_meta"]["vendor"] == {"n": [1]}


@pytest.mark.parametrize(
    ("answer", "mark"),
    [
        (b'{"stopReason":"end_turn"}', None),
        (b'{"stopReason":"refusal"}', {"outcome": "refused", "stopReason": "refusal"}),
        (b'{"stopReason":"cancelled"}', {"outcome": "cancelled", "stopReason": "cancelled"}),
        (b'{"stopReason":"max_tokens"}', {"outcome": "limited", "stopReason": "max_tokens"}),
        (RemoteError(-32602, "no images"), {"outcome": "failed", "message": "no images"}),
        (
            AgentExitedError("it ended", "exit status 1", ""),
            {"outcome": "failed", "message": "it ended"},
        ),
    ],
)
async def test_how_a_turn_ended_is_told_to_the_others_and_in_a_replay(
    answer: bytes | AcpError, mark: object, house: Shared
) -> None:
    def marks(client: Onlooker) -> list[object]:
        metas = [update.get("_meta", {}) for update in client.updates()]
        return [meta["acphold/turn"] for meta in metas if "acphold/turn" in meta]

    one, two, three = [await house.client() for _ in range(3)]
    session = await one.new()
    await two.load(session)
    turn = await house.begun(one, session, "look at this")
    await house.agent.end(session, answer)
    await asyncio.wait([turn])
    await three.load(session)
    await two.call("session/list", {})
    assert marks(one) == []  # it has the answer
    assert marks(two) == marks(three) == ([] if mark is None else [mark])


@pytest.mark.parametrize("asks_for", ["nothing", "acphold/positions"])
async def test_a_prompt_that_the_agent_had_ended_before_goes_to_the_next_one(
    monkeypatch: pytest.MonkeyPatch, asks_for: str, house: Shared
) -> None:
    client, session = await house.opened(_meta={asks_for: True})
    send = house.agent.send

    def gone(call: AgentCall) -> None:
        monkeypatch.setattr(house.agent, "send", send)
        house.agent.generation += 1  # from now on it has to be started again
        raise AgentExitedError("it ended", "signal SIGKILL", "")

    monkeypatch.setattr(house.agent, "send", gone)
    assert await house.turn(client, session, "hi", own="s1") == {"stopReason": "end_turn"}
    assert client.text("user_message_chunk") == ""
    assert len(prompts(house)) == 1


@pytest.mark.parametrize(("asks", "known_as"), [(True, ""), ("events", "mine"), ("events", "")])
async def test_a_prompt_that_its_client_may_send_again_is_committed_then_sent_then_shown(
    monkeypatch: pytest.MonkeyPatch, asks: bool | str, known_as: str, house: Shared
) -> None:
    client, session = await house.opened(_meta={"acphold/positions": asks})
    other = await house.loaded(session)
    live, send = house.hub.conversation(session).session, house.agent.send
    known: list[tuple[int, int]] = []

    def look(call: AgentCall) -> None:
        shown = [attachment.cursor for attachment in live.attachments]
        known.append((live.last_seq - shown[0], max(shown) - min(shown)))
        send(call)

    monkeypatch.setattr(house.agent, "send", look)
    meta = {"acphold/sent": {"id": known_as}} if known_as else {}
    turn = client.begin("session/prompt", prompt_params(session, "hi") | {"_meta": meta})
    await house.agent.prompted(session)
    await house.agent.say(session, "there")
    await house.ended(session, turn)
    # The prompt, and its id, which no client had been told; or nothing of it yet, in a file.
    assert known == [(2 if known_as else 1 if asks is True or house.journal.file is None else 0, 0)]
    await other.until_text("there")
    assert other.text("user_message_chunk") == "hi"


@pytest.mark.parametrize("asks_for", ["nothing", "acphold/positions"])
async def test_a_prompt_that_no_agent_gets_fails_once(
    monkeypatch: pytest.MonkeyPatch, asks_for: str, house: Shared
) -> None:
    client, session = await house.opened(_meta={asks_for: True})

    def gone(call: AgentCall) -> None:
        raise AgentExitedError("it ended", "signal SIGKILL", "")

    with monkeypatch.context() as patch:
        patch.setattr(house.agent, "send", gone)
        error = await client.refused("session/prompt", prompt_params(session, "hi"))
        assert "it ended" in error.message
    assert await house.turn(client, session, "again") == {"stopReason": "end_turn"}


async def test_a_session_can_be_closed_while_a_cancelled_start_of_its_agent_takes_its_time(
    monkeypatch: pytest.MonkeyPatch, house: Shared
) -> None:
    restarting, may_end = asyncio.Event(), asyncio.Event()

    async def restart() -> None:
        restarting.set()
        try:
            await asyncio.Event().wait()
        finally:
            await may_end.wait()  # as ending a program that is deaf

    monkeypatch.setattr(house.agent, "restart", restart)
    house.agent.heeds_cancel = False
    client, session, first = await house.in_turn("first")
    client.tell("session/cancel", {"sessionId": session})
    await first
    second = client.begin_prompt(session, "second")
    await asyncio.wait_for(restarting.wait(), 20)
    client.tell("session/cancel", {"sessionId": session})
    try:
        assert await client.call("session/close", {"sessionId": session}) == {}
        assert await second == {"stopReason": "cancelled"}
        assert session not in house.hub.live
    finally:
        may_end.set()


async def test_who_closes_a_shared_session_has_the_last_words_of_its_turn(house: Shared) -> None:
    house.agent.heeds_cancel = False
    one, _, session = await house.pair()
    turn = await house.begun(one, session, "hi")
    closing = one.begin("session/close", {"sessionId": session})
    await house.agent.cancelled.wait()
    await house.agent.say(session, "last")
    assert not turn.done()
    await house.agent.end(session)
    assert await turn == {"stopReason": "cancelled"}
    await closing
    assert one.text() == "last"
