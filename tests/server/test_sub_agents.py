"""Sub-agents that an agent reports as sessions of their own: each belongs to its parent."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from acphold.conversation.history.children import MOST_CHILDREN
from acphold.journal.stores import open_journal
from tests.editor import Talker, say, update_line
from tests.hub.shared import PERMISSION, shared
from tests.hub.test_positions import POSITIONS, after
from tests.owners import program
from tests.served import Guest, wrapped

pytestmark = pytest.mark.slow

SHOWS: dict[str, Any] = {"subagents": {}}
AIR: dict[str, Any] = {
    "_meta": {"jetbrains": {"air": {"version": 1, "capabilities": ["nativeSubagentSessions"]}}}
}
OPENCODE: dict[str, Any] = {"_meta": {"opencode/child-session-updates": True}}

CHILD = "opencode/session/child_update"


@pytest.fixture
async def editor(tmp_path: Path) -> AsyncIterator[Guest]:
    """A client that shows sub-agents."""
    async with wrapped(tmp_path / "j.db", client=SHOWS) as found:
        yield found


def announced(child: str = "kid", /, **fields: Any) -> dict[str, Any]:
    return {"sessionUpdate": "subagent_update", "sessionId": child, **fields}


RUNS: dict[str, Any] = {"state": {"state": "running"}}
DONE: dict[str, Any] = {"state": {"state": "idle", "stopReason": "end_turn"}}


def in_child(update: dict[str, Any], child: str = "kid", **beside: Any) -> dict[str, str]:
    """A step of the scripted agent: this update, in a sub-agent's session."""
    return {"line": update_line(update, child, **beside)}


LOOK = {"sessionUpdate": "tool_call", "toolCallId": "t1", "title": "Look around"}
MADE = {"sessionUpdate": "tool_call", "toolCallId": "made", "title": "Send somebody"}
BEGIN: tuple[Any, ...] = (
    {"say": "I send somebody. "},
    {"update": MADE},
    {"update": announced(title="Explorer", description="Look for it", **RUNS)},
    in_child(say("Looking "), _meta={"theirs": 1}),
    in_child(say("about.")),
    in_child(LOOK),
)
END: tuple[Any, ...] = (
    in_child({**LOOK, "sessionUpdate": "tool_call_update", "status": "completed"}),
    {"update": announced(**DONE)},
    {"update": {**MADE, "sessionUpdate": "tool_call_update", "status": "completed"}},
    {"say": "It is there."},
)


def ask(session: str = "kid") -> dict[str, Any]:
    return {
        "sessionId": session,
        "toolCall": {"toolCallId": "t1", "title": "Look around"},
        "options": [{"optionId": "yes", "name": "Yes", "kind": "allow_once"}],
    }


def text_of(update: dict[str, Any]) -> str:
    """The text of a chunk; "" for all else."""
    content = update.get("content")
    return str(content.get("text", "")) if isinstance(content, dict) else ""


def told(client: Any) -> list[tuple[str, str]]:
    """The updates that a client was sent: the session, and the text or kind of each; but not the
    line that says what its agent has lost."""
    return [
        (params["sessionId"], text_of(params["update"]) or kind)
        for message in client.messages
        if message.get("method") == "session/update"
        for params in [message["params"]]
        if (kind := params["update"]["sessionUpdate"]) != "session_info_update"
        and "/without-history" not in text_of(params["update"])
    ]


def joined(lines: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Texts of one session in a row as one: a replay may join them."""
    whole: list[tuple[str, str]] = []
    for session, words in lines:
        if whole and whole[-1][0] == session and "_" not in words + whole[-1][1]:
            whole[-1] = (session, whole[-1][1] + words)
        else:
            whole.append((session, words))
    return whole


def whole_turn(session: str, child: str = "kid") -> list[tuple[str, str]]:
    return [
        (session, "I send somebody. "),
        (session, "tool_call"),
        (session, "subagent_update"),
        (child, "Looking about."),
        (child, "tool_call"),
        (child, "tool_call_update"),
        (session, "subagent_update"),
        (session, "tool_call_update"),
        (session, "It is there."),
    ]


async def entries(journal: Path, session: str, kind: str) -> list[Any]:
    async with aclosing(open_journal(journal)) as opened:
        segments = await opened.read(session, 0)
        return [
            json.loads(entry.raw)
            for segment in segments
            if segment.kind == kind
            for entry in segment.entries()
        ]


@pytest.mark.parametrize("client", [SHOWS, AIR])
async def test_what_a_sub_agent_says_reaches_who_shows_them_in_order_and_as_it_came(
    tmp_path: Path, client: Mapping[str, Any]
) -> None:
    async with wrapped(tmp_path / "j.db", client=client) as editor:
        session = await editor.talk(*BEGIN, *END)
        assert joined(told(editor)) == whole_turn(session)
        [marked] = [m["params"] for m in editor.messages if "theirs" in json.dumps(m)]
        assert marked == {"sessionId": "kid", "update": say("Looking "), "_meta": {"theirs": 1}}


async def test_a_client_that_does_not_show_sub_agents_is_told_of_the_session_alone(
    tmp_path: Path,
) -> None:
    async with program(tmp_path / "j.db", client=SHOWS) as editor:
        session = await editor.talk(*BEGIN, *END)
        async with (
            program(tmp_path / "j.db") as plain,
            program(tmp_path / "j.db", client=SHOWS) as second,
        ):
            await plain.load(session)
            await second.load(session)
            steps = (*BEGIN[1:], *END)
            await editor.prompt(session, *steps)
            await plain.until(lambda: plain.text().count("It is there.") == 2)
            await second.until(lambda: second.text().count("It is there.") == 2)
            assert {where for where, _ in told(plain)} == {session}
            assert "subagent_update" not in {what for _, what in told(plain)}
            kid = [line for line in joined(told(second)) if line[0] == "kid"]
            once = [("kid", "Looking about."), ("kid", "tool_call"), ("kid", "tool_call_update")]
            # After settling, a tool call is one update.
            assert kid[-3:] == once
            assert kid[:2] == once[:2]


@pytest.mark.parametrize(
    ("reason", "status"), [("end_turn", "completed"), ("error", "failed"), ("refusal", "failed")]
)
async def test_to_a_client_that_shows_none_a_sub_agent_is_a_call_that_ends_as_it_ended(
    tmp_path: Path, reason: str, status: str
) -> None:
    async with wrapped(tmp_path / "j.db") as editor:
        over = announced(state={"state": "idle", "stopReason": reason})
        session = await editor.talk(
            {"update": announced(title="Explorer", **RUNS)}, {"update": over}
        )
        made, *later = [it for it in editor.updates(session) if "toolCallId" in it]
        assert (made["title"], made["status"]) == ("Explorer", "in_progress")
        assert [it["status"] for it in later if "status" in it] == [status]


@pytest.mark.parametrize("how", ["kill", "leave"])
async def test_a_load_replays_them_at_their_place(tmp_path: Path, how: str) -> None:
    journal = tmp_path / "j.db"
    async with program(journal, client=SHOWS) as editor:
        session = await editor.talk(*BEGIN, *END)
        await (editor.kill() if how == "kill" else editor.leave())
    async with wrapped(journal, client=SHOWS) as later:
        await later.load(session)
        replayed = joined(told(later))[1:]  # without the prompt
        # Once it is settled, a tool call is one update.
        assert [line for line in replayed if line[1] != "tool_call_update"] == [
            line for line in whole_turn(session) if line[1] != "tool_call_update"
        ]


async def test_what_a_crash_cut_off_in_a_sub_agent_is_closed_there(tmp_path: Path) -> None:
    journal = tmp_path / "j.db"
    inner = announced("inner", title="Helper", **RUNS)
    steps = (*BEGIN, in_child(inner), in_child(say("deep"), "inner"), {"until": "cancel"})
    async with program(journal, client=SHOWS) as editor:
        session = await editor.new()
        editor.begin_prompt(session, *steps)
        await editor.until(lambda: ("inner", "deep") in told(editor))
        await editor.kill()
    async with wrapped(journal, client=SHOWS) as later:
        await later.load(session)
        ends = [
            (message["params"]["sessionId"], update)
            for message in later.messages
            if message.get("method") == "session/update"
            if "acphold/failed" in (update := message["params"]["update"]).get("_meta", {})
        ]
        for _, update in ends:
            del update["_meta"]
        why = {"code": -32603, "message": "interrupted: acphold was ended meanwhile"}
        over: dict[str, Any] = {"state": {"state": "idle", "stopReason": "error", "error": why}}
        failed = {"sessionUpdate": "tool_call_update", "status": "failed"}
        assert ends == [
            ("kid", announced("inner", **over)),
            ("kid", {**failed, "toolCallId": "t1"}),
            (session, announced(**over)),
            (session, {**failed, "toolCallId": "made"}),
        ]
    async with aclosing(open_journal(journal)) as opened:
        assert (await opened.summary(session)).open_children == ()


async def test_a_sub_agent_that_went_on_behind_its_turn_is_closed_when_acphold_was_killed(
    tmp_path: Path,
) -> None:
    journal = tmp_path / "j.db"
    async with program(journal, client=AIR) as editor:
        spawned = {"sessionUpdate": "subagent_spawned", "subagentSessionId": "kid", "name": "E"}
        session = await editor.talk({"update": spawned}, in_child(say("on and on")))
        await editor.kill()
    async with wrapped(journal, client=AIR) as later:
        await later.load(session)
        last = [it for it in later.updates(session) if "content" not in it][-1]
        assert (last["sessionUpdate"], last["state"]) == ("subagent_state_update", "failed")


async def test_a_sub_agent_that_went_on_behind_its_turn_is_closed_when_the_agent_has_ended(
    tmp_path: Path,
) -> None:
    async with shared(tmp_path / "j.db") as house, asyncio.timeout(60):
        client, session = await house.opened(**SHOWS)
        await house.agent.listener.hear(update_of(session, announced(**RUNS)))
        await house.agent.restart()
        client.begin_prompt(session, "go on")
        over = {"state": "idle", "stopReason": "error"}
        await client.until(
            lambda: [
                u for u in client.updates(session) if over.items() <= u.get("state", {}).items()
            ]
        )


async def test_a_cancelled_turn_ends_its_sub_agents(editor: Guest) -> None:
    session = await editor.new()
    turn = editor.begin_prompt(session, *BEGIN, {"until": "cancel"})
    await editor.until(lambda: ("kid", "tool_call") in told(editor))
    editor.tell("session/cancel", {"sessionId": session})
    assert await turn == {"stopReason": "cancelled"}
    [end] = [u for u in editor.updates(session) if u.get("state", {}).get("state") == "idle"]
    assert end["state"] == {"state": "idle", "stopReason": "cancelled"}
    assert ("kid", "tool_call_update") in told(editor)


# -- questions ----------------------------------------------------------------------------------


async def test_a_sub_agents_question_is_asked_of_everybody_and_kept(tmp_path: Path) -> None:
    journal = tmp_path / "j.db"
    async with program(journal, client=SHOWS) as editor, program(journal) as plain:
        never: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        editor.answers[PERMISSION] = lambda _: never
        asked: list[str] = []

        def yes(params: dict[str, Any]) -> Any:
            asked.append(params["sessionId"])
            return {"outcome": {"outcome": "selected", "optionId": "yes"}}

        session = await editor.talk("hello")
        await plain.load(session)
        plain.answers[PERMISSION] = yes
        await editor.prompt(session, *BEGIN, {"ask": [PERMISSION, ask()]}, *END)
        assert asked == [session]
        [put] = [m["params"] for m in editor.messages if m.get("method") == PERMISSION]
        assert put["sessionId"] == "kid"
        assert '"optionId": "yes"' in editor.text(session_id=session)
        [question] = await entries(journal, session, "question")
        [answer] = await entries(journal, session, "answer")
        assert question["params"] == ask()
        assert (answer["question"], answer["outcome"]) == (question["id"], "answered")


async def test_a_sub_agents_question_waits_while_nobody_is_there_for_who_comes(
    tmp_path: Path,
) -> None:
    async with shared(tmp_path / "j.db") as house, asyncio.timeout(60):
        house.agent.heeds_cancel = False
        first = await house.client(**SHOWS)
        session = await house.at_work(first)
        await house.agent.listener.hear(update_of(session, announced()))
        await first.leave()
        await first.left.wait()
        asking = asyncio.create_task(house.agent.ask_client(PERMISSION, **ask()))
        second = await house.client(**SHOWS)
        seen: list[str] = []

        def yes(params: dict[str, Any]) -> Any:
            seen.append(params["sessionId"])
            return {"outcome": {"outcome": "selected", "optionId": "yes"}}

        second.answers[PERMISSION] = yes
        await second.load(session)
        assert (await asking)["outcome"]["optionId"] == "yes"
        assert seen == ["kid"]


async def test_a_cancelled_turn_cancels_what_its_sub_agents_asked(editor: Guest) -> None:
    never: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    editor.answers[PERMISSION] = lambda _: never
    session = await editor.new()
    turn = editor.begin_prompt(session, *BEGIN, {"ask": [PERMISSION, ask()]})
    await editor.until(lambda: any(m.get("method") == PERMISSION for m in editor.messages))
    editor.tell("session/cancel", {"sessionId": session})
    assert await turn == {"stopReason": "cancelled"}


# -- ids ----------------------------------------------------------------------------------------


async def test_a_session_that_is_open_cannot_be_announced_as_a_sub_agent(
    tmp_path: Path, editor: Guest
) -> None:
    victim, session = await editor.new(), await editor.new()
    stolen = (
        {"update": announced(victim)},
        in_child(say("not mine"), victim),
        {"say": "done"},
    )
    await editor.prompt(session, *stolen)
    assert {where for where, _ in told(editor)} == {victim, session}
    assert "subagent_update" not in {what for _, what in told(editor)}
    # Updates under its id are its own, as ever.
    assert editor.text(session_id=victim) == "not mine"
    assert await entries(tmp_path / "j.db", session, "child") == []


async def test_the_child_of_one_session_is_not_made_that_of_another(
    tmp_path: Path, editor: Guest
) -> None:
    first = await editor.talk(*BEGIN, *END)
    second = await editor.talk({"update": announced(title="Mine")}, {"say": "done"})
    assert told(editor)[-1] == (second, "done")
    assert (second, "subagent_update") not in told(editor)
    await editor.prompt(second, in_child(say("more")))
    kept = await entries(tmp_path / "j.db", first, "child")
    assert kept[-1]["update"] == say("more")
    assert await entries(tmp_path / "j.db", second, "child") == []


async def test_an_id_that_the_journal_has_for_something_else_is_not_that_of_a_sub_agent(
    tmp_path: Path,
) -> None:
    journal = tmp_path / "j.db"
    async with wrapped(journal) as before:
        saved = await before.talk("hello")
    async with wrapped(journal, client=SHOWS) as editor:
        session = await editor.talk(
            {"update": announced(saved, title="It")}, in_child(say("from the child"), saved)
        )
        [child] = {where for where, _ in told(editor)} - {session}
        assert child == f"{session}:{saved}"
        assert editor.updates(session)[0] == announced(child, title="It")
    assert await entries(journal, saved, "child") == []


async def test_what_a_later_agent_calls_the_same_is_another_sub_agent(tmp_path: Path) -> None:
    journal = tmp_path / "j.db"
    async with wrapped(journal, client=SHOWS) as editor:
        session = await editor.talk(*BEGIN, *END)
    async with wrapped(journal, client=SHOWS) as later:  # this agent has forgotten it
        await later.load(session)
        before = len(later.messages)
        await later.prompt(session, {"update": announced(**RUNS)}, in_child(say("anew")))
        new = [m["params"] for m in later.messages[before:] if m.get("method") == "session/update"]
        [child] = {params["sessionId"] for params in new} - {session}
        assert child.endswith(":kid")
        assert child != "kid"
        assert announced(child, **RUNS) in [params["update"] for params in new]


async def test_there_is_an_end_to_how_many_sub_agents_are_kept(editor: Guest) -> None:
    many = [{"update": announced(f"k{n}")} for n in range(MOST_CHILDREN + 5)]
    session = await editor.talk(*many, in_child(say("too many"), f"k{MOST_CHILDREN}"))
    found = [what for _, what in told(editor)].count("subagent_update")
    assert found == MOST_CHILDREN
    assert {where for where, _ in told(editor)} == {session}
    nested = [in_child(announced(f"n{n + 1}"), f"n{n}" if n else "k0") for n in range(20)]
    await editor.prompt(session, *nested, {"say": "deep"})
    assert editor.updates("n7") == []


async def test_a_sub_agent_whose_id_no_store_can_look_up_is_refused_and_the_turn_goes_on(
    journal: Path,
) -> None:
    async with wrapped(journal, client=SHOWS) as editor:
        session = await editor.talk({"update": announced("c\0d")}, {"say": "done"})
        assert editor.text() == "done"
        assert {where for where, _ in told(editor)} == {session}


# -- opencode -----------------------------------------------------------------------------------


def opencodes(**fields: Any) -> dict[str, Any]:
    params = {
        "rootSessionId": "$ID",
        "childSessionId": "kid",
        "parentSessionId": "$ID",
        "depth": 1,
        "title": "Explorer",
        **fields,
    }
    return {"line": json.dumps({"jsonrpc": "2.0", "method": CHILD, "params": params})}


def childs(client: Talker) -> list[dict[str, Any]]:
    return [m["params"] for m in client.messages if m.get("method") == CHILD]


async def test_what_opencode_tells_of_sub_agents_is_kept_and_replayed(tmp_path: Path) -> None:
    journal = tmp_path / "j.db"
    async with program(journal, client=OPENCODE) as editor, program(journal) as plain:
        session = await editor.talk("hello")
        await plain.load(session)
        await editor.prompt(
            session,
            opencodes(type="status", status="running"),
            opencodes(type="update", update=say("Looking")),
            {"say": "done"},
        )
        live = childs(editor)
        assert [params["type"] for params in live] == ["status", "update"]
        assert live[1]["update"] == say("Looking")
        assert (live[0]["rootSessionId"], live[0]["childSessionId"]) == (session, "kid")
        await plain.until_text("done")
        assert childs(plain) == []
    async with wrapped(journal, client=OPENCODE) as later:
        await later.load(session)
        *replayed, end = childs(later)
        assert replayed == live
        assert (end["type"], end["status"]) == ("status", "interrupted")


def update_of(session: str, update: dict[str, Any]) -> Any:
    from acphold.live.agents.interface import Updates

    return Updates(session, "update", [json.dumps(update).encode()])


async def test_a_client_that_was_cut_off_goes_on_behind_what_a_sub_agent_said(
    tmp_path: Path,
) -> None:
    async with shared(tmp_path / "j.db") as house, asyncio.timeout(60):
        client, session = await house.opened(**SHOWS, **POSITIONS)
        await house.agent.listener.hear(update_of(session, announced()))
        for text in ("one", "two"):
            await house.agent.say("kid", text)
        await client.until(lambda: "two" in client.text())
        first, one, two = [
            message["params"]["_meta"]
            for message in client.messages
            if message.get("method") == "session/update"
        ]
        assert "acphold/parent" not in first
        assert one["acphold/parent"] == two["acphold/parent"] == session
        back = await house.client(**SHOWS, **POSITIONS)
        await back.resume(session, **after(one["acphold/seq"]))
        await back.until_text("two")
        assert told(back) == [("kid", "two")]
