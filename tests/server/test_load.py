"""`session/load`: the whole conversation, then the answer, and the agent's side restored."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.editor import Refused, Talker, open_params, received, say
from tests.owners import program
from tests.served import Guest, wrapped

NOT_FOUND = -32002
INVALID_PARAMS = -32602

CONVERSATION: list[dict[str, Any]] = [
    {"sessionUpdate": "agent_thought_chunk", "content": {"type": "text", "text": "hm "}},
    {"sessionUpdate": "plan", "entries": [{"content": "a", "priority": "low", "status": "x-new"}]},
    {
        "sessionUpdate": "tool_call",
        "toolCallId": "t1",
        "title": "Edit",
        "kind": "edit",
        "status": "pending",
        "rawInput": {"deep": [1.0, {"\u00e9": None}]},
        "locations": [{"path": "/a", "line": 3, "column": 9}],
        "_meta": {"vendor/x": 1},
    },
    {
        "sessionUpdate": "tool_call_update",
        "toolCallId": "t1",
        "status": "completed",
        "content": [{"type": "diff", "path": "/a", "oldText": None, "newText": "b"}],
        "rawOutput": {"ok": True},
    },
    {"sessionUpdate": "current_mode_update", "currentModeId": "code"},
    {"sessionUpdate": "available_commands_update", "availableCommands": []},
    {"sessionUpdate": "session_info_update", "title": "The title"},
    {"sessionUpdate": "usage_update", "used": 5, "size": 10},
    {"sessionUpdate": "from_the_future", "payload": [1, 2], "_meta": None},
    {
        "sessionUpdate": "agent_message_chunk",
        "content": {"type": "image", "data": "aGk=", "mimeType": "image/png"},
        "messageId": "m1",
    },
    {
        "sessionUpdate": "agent_message_chunk",
        "content": {"type": "text", "text": "done", "annotations": {"x": 1}},
        "messageId": "m1",
    },
]


def steps(updates: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{"update": update} for update in updates]


def without_ours(client: Talker, session: str) -> list[dict[str, Any]]:
    """The agent's updates, without the user's words and acphold's additions."""
    return [
        update
        for update in client.updates(session)
        if update["sessionUpdate"] != "user_message_chunk"
        and not any(key.startswith("acphold/") for key in update.get("_meta") or {})
    ]


async def test_load_replays_the_entire_conversation(journal: Path) -> None:
    async with program(journal) as client:
        session = await client.talk(*steps(CONVERSATION))
        assert without_ours(client, session) == CONVERSATION
    async with wrapped(journal) as client:
        await client.load(session)
        assert without_ours(client, session) == CONVERSATION
        [said] = [u for u in client.updates() if u["sessionUpdate"] == "user_message_chunk"]
        assert said["content"]["text"] == json.dumps(steps(CONVERSATION))


async def test_two_loads_sent_at_once_are_both_answered_each_after_a_whole_replay(
    journal: Path,
) -> None:
    async with program(journal) as client:
        session = await client.talk(*steps(CONVERSATION))
    async with wrapped(journal) as client:
        loads = [client.begin("session/load", open_params(session, "/")) for _ in range(2)]
        for load in loads:
            await load
        assert without_ours(client, session) == CONVERSATION * 2
        first = client.place_of_answer(client.last_id - 1)
        client.messages = client.messages[:first]
        assert without_ours(client, session) == CONVERSATION
        assert await client.prompt(session, say("on")) == {"stopReason": "end_turn"}


async def test_a_replay_of_a_settled_session_folds_to_the_same_tool_call(journal: Path) -> None:
    async with wrapped(journal) as client:
        session = await client.talk(*steps(CONVERSATION))
        await client.leave()  # which compacts
    async with wrapped(journal) as client:
        await client.load(session)
        call: dict[str, Any] = {}
        for update in client.updates():
            if update["sessionUpdate"].startswith("tool_call"):
                call |= {k: v for k, v in update.items() if k != "sessionUpdate"}
        assert call["status"] == "completed"
        assert call["rawInput"] == {"deep": [1.0, {"\u00e9": None}]}
        assert call["rawOutput"] == {"ok": True}
        assert call["content"][0]["newText"] == "b"
        assert call["locations"] == [{"path": "/a", "line": 3, "column": 9}]


async def test_what_the_user_said_is_replayed_block_by_block(journal: Path) -> None:
    blocks = [
        {"type": "text", "text": "look at", "_meta": {"x": 1}},
        {"type": "resource_link", "uri": "file:///a", "name": "a", "vendor": 1},
        {"type": "from_the_future", "data": [1, None]},
    ]
    async with wrapped(journal) as client:
        session = await client.new()
        await client.call("session/prompt", {"sessionId": session, "prompt": blocks})
    async with wrapped(journal) as client:
        await client.load(session)
        said = [u for u in client.updates() if u["sessionUpdate"] == "user_message_chunk"]
        assert [update["content"] for update in said] == blocks
        assert len({update["messageId"] for update in said}) == 1


async def test_the_answer_follows_the_whole_replay_and_nothing_of_it_follows_the_answer(
    journal: Path,
) -> None:
    async with wrapped(journal) as client:
        session = await client.new()
        for number in range(3):
            await client.prompt(session, *[{"say": f"{number}.{n} "} for n in range(200)])
        text = client.text()
    async with wrapped(journal) as client:
        await client.load(session)
        answer = client.place_of_answer(client.last_id)
        assert client.text() == text
        await client.prompt(session, {"say": "next"})
        behind = [m["params"]["update"] for m in client.messages[answer + 1 : -1]]
        assert all("acphold" in json.dumps(u) or u == say("next") for u in behind)


async def test_a_session_that_is_open_here_can_be_loaded_again(journal: Path, log: Path) -> None:
    async with wrapped(journal, log=str(log), capabilities={"loadSession": True}) as client:
        session = await client.talk({"say": "once"})
        await client.load(session)
        assert client.text() == "onceonce"
        await client.prompt(session, {"say": "more"})
        assert client.text() == "onceoncemore"
        # The agent has it open already, and some call a second load an error.
        assert received(log, "session/load") == []


async def test_a_client_that_loads_in_its_own_turn_gets_the_answer_to_its_prompt(
    journal: Path, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    async with wrapped(journal) as client:
        session = await client.new()
        turn = client.begin_prompt(session, {"say": "a"}, {"until": str(go)}, {"say": "b"})
        await client.until_text("a")
        await client.load(session)
        assert client.text() == "aa"
        go.touch()
        assert await turn == {"stopReason": "end_turn"}
        assert client.text() == "aab"


async def test_load_answers_an_object_when_there_are_no_modes_and_options(journal: Path) -> None:
    async with wrapped(journal) as client:
        session = await client.new()
    async with wrapped(journal) as client:
        assert await client.load(session) == {}


@pytest.mark.parametrize("answer", [None, {}, {"modes": None, "configOptions": None}])
async def test_null_from_the_agent_is_accepted(journal: Path, answer: Any) -> None:
    can = {"loadSession": True}
    async with wrapped(journal, capabilities=can, replies={"session/load": [answer]}) as client:
        session = await client.talk({"say": "a"})
    async with wrapped(journal, capabilities=can, replies={"session/load": [answer]}) as client:
        result = await client.load(session)
        assert isinstance(result, dict)
        assert not any(result.values())
        assert client.text() == "a"


async def test_load_answers_with_fields_of_the_agents_answer_that_are_not_known_here(
    journal: Path, tmp_path: Path
) -> None:
    opened = {"models": {"currentModelId": "m"}, "_meta": {"vendor": 1}}
    agent: dict[str, Any] = {
        "capabilities": {"loadSession": True},
        "store": str(tmp_path / "store"),
        "opened": opened,
    }
    async with wrapped(journal, **agent) as client:
        session = await client.talk({"say": "a"})
        assert await client.load(session) == opened
    async with wrapped(journal, **agent) as client:
        assert await client.load(session) == opened


@pytest.mark.parametrize(
    "can", [{}, {"loadSession": True}, {"sessionCapabilities": {"resume": {}}}]
)
async def test_an_id_that_neither_the_journal_nor_the_agent_knows_is_not_found(
    journal: Path, can: dict[str, Any], tmp_path: Path
) -> None:
    async with wrapped(journal, capabilities=can, store=str(tmp_path / "store")) as client:
        for method in ("session/load", "session/resume") * 2:
            error = await client.refused(method, open_params("no-such", "/"))
            assert error.code == NOT_FOUND
            assert error.data["sessionId"] == "no-such"
            assert error.message
            assert "\n" not in error.message
            assert await client.sessions() == []


@pytest.mark.parametrize("method", ["session/load", "session/resume"])
async def test_another_cwd_than_the_sessions_is_refused(
    journal: Path, tmp_path: Path, method: str
) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    there.mkdir()
    async with wrapped(journal) as client:
        session = await client.talk({"say": "a"}, cwd=here)
    for _ in range(2):
        async with wrapped(journal) as client:
            error = await client.refused(method, open_params(session, there))
            assert error.code == INVALID_PARAMS
            assert "cwd" in error.message
            assert client.updates() == []
            await client.call(method, open_params(session, here))
            error = await client.refused(method, open_params(session, there))
            assert error.code == INVALID_PARAMS


async def test_a_session_whose_folder_is_gone_moves_into_the_one_that_it_is_opened_in(
    journal: Path, tmp_path: Path
) -> None:
    gone, there = tmp_path / "gone", tmp_path / "there"
    gone.mkdir()
    async with wrapped(journal) as client:
        session = await client.talk({"say": "a"}, cwd=gone)
    gone.rename(there)
    async with wrapped(journal) as client:
        with pytest.raises(Refused, match="belongs to"):
            await client.load(session, cwd=tmp_path / "nowhere")
        await client.load(session, cwd=there)
        assert client.text() == "a"
        await client.prompt(session, {"say": "b"})
        assert [found["cwd"] for found in await client.sessions(cwd=str(there))] == [str(there)]
        gone.mkdir()
        with pytest.raises(Refused, match="belongs to"):
            await client.load(session, cwd=gone)


async def test_the_same_cwd_by_another_way_is_accepted(journal: Path, tmp_path: Path) -> None:
    here, link = tmp_path / "here", tmp_path / "link"
    here.mkdir()
    link.symlink_to(here)
    async with wrapped(journal) as client:
        session = await client.talk({"say": "a"}, cwd=here)
    async with wrapped(journal) as client:
        await client.load(session, link)
        await client.load(session, f"{here}/")
        await client.load(session, f"{link}/../here")
        assert client.text() == "aaa"


async def test_params_of_load_are_checked_as_those_of_new(client: Guest) -> None:
    session = await client.new()
    for wrong, field in (
        ({"cwd": "rel"}, "cwd"),
        ({"additionalDirectories": ["/x"]}, "additionalDirectories"),
        ({"mcpServers": [{"name": "s", "command": "nope-nope", "args": [], "env": []}]}, "'s'"),
        ({"sessionId": 7}, "sessionId"),
    ):
        error = await client.refused("session/load", {**open_params(session, "/"), **wrong})
        assert error.code == INVALID_PARAMS
        assert field in error.message


async def test_a_lone_surrogate_comes_no_further_than_the_line_it_came_in(
    journal: Path,
) -> None:
    update = '{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"\\ud83d."}}'
    head = '{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"$ID",'
    lines = [
        f'{head}"update":{update}}}}}',
        f'{head}"_meta":{{"x":"\\udc00"}},"update":{update}}}}}',
    ]
    said = '{"type":"text","text":"half \\ud83d of it"}'
    sound = update.replace("\\ud83d", "\\ufffd").encode()
    async with wrapped(journal) as client:
        session = await client.talk(*[{"line": line} for line in lines])
        assert sum(sound in line for line in client.lines) == 2
        params = f'{{"sessionId":"{session}","prompt":[{said}]}}'
        client.send_line(
            f'{{"jsonrpc":"2.0","id":900,"method":"session/prompt","params":{params}}}'.encode()
        )
        await client.until(lambda: client.messages[-1].get("id") == 900)
        assert client.messages[-1]["result"] == {"stopReason": "end_turn"}
    async with wrapped(journal) as client:
        await client.load(session)
        assert sum(sound in line for line in client.lines) == 2
        assert sum(b'"_meta":{"x":"\\ufffd"}' in line for line in client.lines) == 1
        assert sum(b"half \\ufffd of it" in line for line in client.lines) == 1


async def test_every_byte_of_an_update_survives_live_and_on_load(journal: Path) -> None:
    odd = (
        '{"content":{"type" : "text","text":"\\u00e9\\/é","n":1.0e2},"_meta":null,'
        '"sessionUpdate":"agent_message_chunk","big":12345678901234567890123,"status":"x-new"}'
    )
    beside = '{"sessionUpdate":"x-unknown","a":[ ]}'
    head = '{"jsonrpc":"2.0","method":"session/update","params":'
    lines = [
        f'{head}{{"sessionId":"$ID","update":{odd}}}}}',
        f'{head}{{"_meta":{{"trace":"t1"}},"update":{beside},"sessionId":"$ID","extra":0.10}}}}',
    ]
    async with wrapped(journal) as client:
        session = await client.talk(*[{"line": line} for line in lines])
        live = [line for line in client.lines if b"x-new" in line or b"x-unknown" in line]
        assert odd.encode() in live[0]
        assert beside.encode() in live[1]
        assert b'"_meta":{"trace":"t1"}' in live[1]
        assert b'"extra":0.10' in live[1]
    async with wrapped(journal) as client:
        await client.load(session)
        replayed = [line for line in client.lines if b"x-new" in line or b"x-unknown" in line]
        assert replayed[-2:] == live
