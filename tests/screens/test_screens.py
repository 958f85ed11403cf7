"""An editor draws the same live and after a load; `show`, `search` and a handover agree with it."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from acp_wire.schema import TextContent
from acphold.conversation.history.timeline import ToolCall, with_those_inside
from acphold.conversation.reports.transcript import turn_scenes
from acphold.faces.screen.layout import passage
from acphold.journal.journal import state_of
from acphold.live.agents.interface import Updates
from acphold.live.hub.handover import earlier_conversation
from tests.history import fold_corpus
from tests.hub.shared import Onlooker, Person, Shared, shared
from tests.hub.test_positions import settle
from tests.page.test_model import told_by_the_page
from tests.screens.editors import EDITORS, NOT_FOUND, Chat, Zed
from tests.screens.recordings import RECORDINGS, diff, text, update

DEADLINE = 60

PROMPT = "Look after the trees"

KINDS = ("allow_once", "allow_always", "reject_once", "reject_always")
OPTIONS = [{"optionId": kind, "name": kind, "kind": kind} for kind in KINDS]


async def play(house: Shared, session: str, steps: list[dict[str, Any]], client: Onlooker) -> None:
    """A turn in which the agent does all this, and the person answers."""
    turn = await house.begun(client, session, PROMPT)
    for step in steps:
        if "ask" in step:
            chosen = {"outcome": "selected", "optionId": step["takes"]}
            client.answers["session/request_permission"] = answering({"outcome": chosen})
            await house.agent.ask_client(
                "session/request_permission",
                sessionId=session,
                toolCall=step["ask"],
                options=OPTIONS,
            )
        else:
            raw = json.dumps(step.get("update", step)).encode()
            await house.agent.listener.hear(Updates(step.get("in", session), "update", [raw]))
    await house.ended(session, turn)


def answering(answer: dict[str, Any]) -> Any:
    """Return a handler that answers each request with this."""

    async def answered(_: dict[str, Any]) -> Any:
        return answer

    return answered


def drawn(editor: type[Zed | Chat], client: Onlooker) -> list[tuple[str, ...]]:
    """The screen of an editor that has read all lines of this client."""
    screen = editor()
    for message in client.messages:
        screen.read(message)
    return screen.screen()


@pytest.mark.parametrize("name", RECORDINGS)
async def test_each_editor_draws_after_a_load_what_it_drew_live(name: str, house: Shared) -> None:
    # Zed made the session: the agent adapts its updates to Zed.
    first, session = await house.opened(**Zed.capabilities)
    there: dict[type[Zed | Chat], Onlooker] = {}
    for editor in (*EDITORS, Chat):
        there[editor] = client = await house.client(**editor.capabilities)
        Person(client)  # leaves the answers to the other client
        await client.load(session)
    await play(house, session, RECORDINGS[name], first)
    await house.agent.say(session, "behind")
    for settled in (False, True):
        if settled:
            await settle(house, session)
        for editor, client in there.items():
            await client.until_text("behind")
            again = await house.loaded(session, **editor.capabilities)
            replayed = drawn(editor, again)
            assert replayed == drawn(editor, client), (editor, settled)
            assert NOT_FOUND not in json.dumps(replayed)
            assert "a hole" not in json.dumps(replayed)


async def told_by_all(house: Shared, session: str) -> dict[str, str]:
    """The session as told by `show`, an export, a handover and the library."""
    segments = await house.journal.read(session, 0)
    state = await state_of(house.journal, session)
    entries = [entry for segment in segments for entry in segment.entries()]
    context = earlier_conversation(state)
    assert context is not None
    shown = [passage(scene, full=True) for scene in turn_scenes(entries)]
    calls = [item for item in with_those_inside(state.timeline) if isinstance(item, ToolCall)]
    return {
        "show": "\n".join(line.plain for each in shown for line in each.lines),
        "handover": context.text,
        "library": "\n".join(
            block.text for call in calls for block in call.blocks if isinstance(block, TextContent)
        ),
    }


@pytest.mark.parametrize(
    ("name", "printed"),
    [
        ("codex", "planting acorns\nseventeen seedlings\n"),
        ("codex, of deltas", "watering\nthe elm is dry\n"),
        ("claude", "nuts\nleaves"),
    ],
)
async def test_all_that_reads_a_session_has_what_its_commands_printed(
    name: str, printed: str, house: Shared
) -> None:
    client, session = await house.opened(**Zed.capabilities)
    await play(house, session, RECORDINGS[name], client)
    live = await told_by_all(house, session)
    await settle(house, session)
    found = await house.journal.index.search(f'"{printed.split()[-1]}"')
    assert [hit.session_id for hit in found] == [session]
    for all_told in (live, await told_by_all(house, session)):
        for reader, told in all_told.items():
            assert all(line in told for line in printed.splitlines()), reader


@pytest.mark.parametrize("name", RECORDINGS)
async def test_what_is_drawn_of_a_session_is_shown_found_and_handed_over(
    name: str, house: Shared
) -> None:
    client, session = await house.opened(**Zed.capabilities)
    await play(house, session, RECORDINGS[name], client)
    live = told_words([("user", PROMPT), *drawn(Zed, client)])
    thoughts = told_words([each for each in drawn(Zed, client) if each[0] == "thought"])
    before = await told_by_all(house, session)
    await settle(house, session)
    again = await house.loaded(session, **Zed.capabilities)
    assert told_words(drawn(Zed, again)) == live
    after = await told_by_all(house, session)
    for reader in ("show", "handover"):
        assert before[reader] == after[reader], reader
        # A model is not to take up old thoughts.
        wanted = live - thoughts if reader == "handover" else live
        assert [word for word in sorted(wanted) if word not in after[reader]] == [], reader
    for word in sorted(live):
        found = await house.journal.index.search(word)
        assert {hit.session_id for hit in found} == {session}, word


def told_words(screen: list[tuple[str, ...]]) -> set[str]:
    """The words on a screen, without the states of calls and the names of members in JSON."""
    texts = (each[1:2] + each[3:] if each[0] == "call" else each[1:] for each in screen)
    found = (re.findall(r"\b[A-Za-z]{4,}\b(?!\':)", part) for text in texts for part in text)
    return {word for words in found for word in words}


async def test_the_page_draws_what_the_core_folds_live_and_later(
    journal: Path, tmp_path: Path
) -> None:
    lines = []
    async with shared(journal) as house, asyncio.timeout(DEADLINE):
        for name in RECORDINGS:
            client, session = await house.opened(**Zed.capabilities)
            await play(house, session, RECORDINGS[name], client)
            folds = []
            for when in ("live", "settled"):
                if when == "settled":
                    await settle(house, session)
                segments = await house.journal.read(session, 0)
                entries = [entry for segment in segments for entry in segment.entries()]
                lines.append(fold_corpus.line(f"{name}, {when}", entries))
                folds.append(fold_corpus.folded(entries))
            assert folds[0] == folds[1], name
    file = tmp_path / "folds.jsonl"
    file.write_text("".join(lines), encoding="utf-8")
    found = told_by_the_page("fold.mjs", file)
    assert found["failed"] == 0, json.dumps(found["wrong"][0], indent=1)
    assert found["sequences"] == len(lines)


def of_call(client: Onlooker, id_: str) -> list[dict[str, Any]]:
    """The updates of a call that a client was sent."""
    return [update for update in client.updates() if update.get("toolCallId") == id_]


@pytest.mark.parametrize("settled", [False, True])
async def test_a_call_that_was_asked_about_first_begins_with_what_was_asked(
    settled: bool, house: Shared
) -> None:
    client, session = await house.opened()
    watching = await house.loaded(session, _meta={"acphold/watches": True})
    await play(house, session, RECORDINGS["gemini"], client)
    if settled:
        await settle(house, session)
    again = await house.loaded(session)
    for there in (watching, again):
        told = of_call(there, "replace-1")
        begun, ended = told[0], told[-1]
        assert begun["sessionUpdate"] == "tool_call"
        assert begun["content"] == [diff("/rings.txt", "forty\n", "fifty\n")]
        assert begun["locations"] == [{"path": "/rings.txt"}]
        assert ended["status"] == "completed"
        told = of_call(there, "shell-1")
        begun, ended = told[0], told[-1]
        assert (begun["sessionUpdate"], begun["title"]) == ("tool_call", "saw the larch")
        assert ended["status"] == "failed"
        assert ended["_meta"] == {"acphold/failed": "it was rejected"}
    read = await told_by_all(house, session)
    assert all("saw the larch" in read[reader] for reader in ("show", "handover"))


async def test_a_call_of_a_sub_agent_that_was_refused_has_failed_there(house: Shared) -> None:
    client, session, turn = await house.in_turn("Have it done", subagents={})
    spawned = {"sessionUpdate": "subagent_spawned", "subagentSessionId": "child", "name": "C"}
    await house.agent.listener.hear(Updates(session, "update", [json.dumps(spawned).encode()]))
    refused = {"outcome": {"outcome": "selected", "optionId": "reject_once"}}
    client.answers["session/request_permission"] = answering(refused)
    about = {"toolCallId": "t", "title": "Fell it"}
    await house.agent.ask_client(
        "session/request_permission", sessionId="child", toolCall=about, options=OPTIONS
    )
    await house.ended(session, turn)
    told = of_call(client, "t")
    assert [(update["sessionUpdate"], update.get("status")) for update in told] == [
        ("tool_call", None),
        ("tool_call_update", "failed"),
    ]
    assert (await house.journal.summary(session)).open_children[0].open_tools == ()


async def test_the_first_thing_that_is_replayed_of_a_call_is_its_beginning(house: Shared) -> None:
    client, session = await house.opened()
    told = [update("t", status="completed"), update("u", title="U", content=[text("done")])]
    await play(house, session, told, client)
    again = await house.loaded(session)
    assert [(update["sessionUpdate"], update["title"]) for update in again.updates()[1:3]] == [
        ("tool_call", "Tool call"),
        ("tool_call", "U"),
    ]


def under_ids(steps: Any, prefix: str) -> Any:
    """The same steps with ids of their own."""
    if isinstance(steps, list):
        return [under_ids(step, prefix) for step in steps]
    if not isinstance(steps, dict):
        return steps
    ids = {"toolCallId", "terminalId", "terminal_id", "subagentSessionId", "in"}
    return {
        name: f"{prefix}{value}" if name in ids else under_ids(value, prefix)
        for name, value in steps.items()
    }


@st.composite
def interleaved(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Some recordings at once, each in its order."""
    names = draw(st.lists(st.sampled_from(sorted(RECORDINGS)), min_size=1, max_size=3))
    left = [under_ids(RECORDINGS[name], str(place)) for place, name in enumerate(names)]
    steps = []
    while left := [each for each in left if each]:
        steps.append(draw(st.sampled_from(left)).pop(0))
    return steps


@settings(max_examples=25, suppress_health_check=list(HealthCheck))
@given(steps=interleaved(), settled=st.booleans(), editor=st.sampled_from(EDITORS))
def test_calls_that_run_side_by_side_are_drawn_again_after_a_load(
    tmp_path_factory: pytest.TempPathFactory,
    steps: list[dict[str, Any]],
    settled: bool,
    editor: type[Zed],
) -> None:
    async def both() -> None:
        path = tmp_path_factory.mktemp("screens") / "journal.db"
        async with shared(path) as house, asyncio.timeout(DEADLINE):
            first, session = await house.opened(**Zed.capabilities)
            there = await house.client(**editor.capabilities)
            Person(there)
            await there.load(session)
            await play(house, session, steps, first)
            await house.told(there, session, "behind")
            if settled:
                await settle(house, session)
            again = await house.loaded(session, **editor.capabilities)
            assert drawn(editor, again) == drawn(editor, there)

    asyncio.run(both())


@pytest.mark.parametrize("settled", [False, True])
async def test_a_client_without_sub_agents_has_each_as_one_call_with_its_text(
    settled: bool, house: Shared
) -> None:
    client, session = await house.opened()
    await play(house, session, RECORDINGS["children"], client)
    if settled:
        await settle(house, session)
    again = await house.loaded(session)
    for there in (client, again):
        told = of_call(there, "child")
        assert (told[0]["sessionUpdate"], told[0]["title"]) == ("tool_call", "Forester")
        assert told[0]["rawInput"] == {"task": "Count the firs"}
        assert told[-1]["status"] == "completed"
        assert [each["content"] for each in told if "content" in each][-1] == [
            text("I count the firs.\n\n[Walk the wood]\n\n" + "Ninety firs. " * 200)
        ]
    shows = await house.loaded(session, subagents={})
    assert of_call(shows, "child") == []


async def test_the_text_of_a_sub_agent_that_does_not_end_is_there_when_its_turn_ends(
    house: Shared,
) -> None:
    client, session = await house.opened()
    await play(house, session, RECORDINGS["children"][:3], client)
    again = await house.loaded(session)
    for there in (client, again):
        told = of_call(there, "child")
        assert told[0]["status"] == "in_progress"
        assert told[-1]["content"] == [text("I count the firs.")]
