"""A coding agent as its client sees it, with a model that does what the test says."""

from __future__ import annotations

import asyncio
import base64
import json
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai.exceptions import (
    ContentFilterError,
    ModelContextWindowExceededError,
    ModelHTTPError,
    ModelRequestRejectedError,
)
from pydantic_ai.messages import BinaryContent, UserPromptPart
from pydantic_ai.models.openai import OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider

import holdfast
from holdfast.agents.model import coding
from holdfast.agents.store import STORE
from holdfast.errors import RemoteError
from holdfast.journal import SqliteJournal
from holdfast.schema import (
    EmbeddedResource,
    ImageContent,
    RequestPermissionRequest,
    SessionConfigSelect,
    TextContent,
    TextResourceContents,
)
from holdfast.testing import Client, ClientSession, Told, connect
from tests.agents.model.scripted import Call, Script, Think, call
from tests.interop.model_endpoint import ModelEndpoint


def statuses(told: Told) -> list[str]:
    """How the only tool call went: the statuses it was shown with."""
    [made] = told.of("tool_call")
    changes = told.of("tool_call_update")
    return [
        made.get("status", "pending"),
        *(change["status"] for change in changes if "status" in change),
    ]


def selects(session: ClientSession) -> list[SessionConfigSelect]:
    return [option for option in session.options if isinstance(option, SessionConfigSelect)]


def last_content(told: Told) -> list[dict[str, Any]]:
    """What the last tool call shows at the end."""
    contents = [update.get("content") for update in told.of("tool_call_update")]
    found = next(content for content in reversed(contents) if content)
    assert isinstance(found, list)
    return found


# -- words ---------------------------------------------------------------------------------


async def test_what_the_model_says_and_thinks_streams_to_the_client() -> None:
    script = Script([Think("let me "), Think("see"), "All ", "is ", "well"])
    async with connect(script.agent()) as client:
        session = await client.new_session()
        result = await session.prompt("how is it?")
    assert result.stop_reason == "end_turn"
    assert result.thoughts == "let me see"
    assert [chunk["content"]["text"] for chunk in result.of("agent_message_chunk")] == [
        "All ",
        "is ",
        "well",
    ]
    assert len({chunk["messageId"] for chunk in result.of("agent_message_chunk")}) == 1
    assert script.given() == ["user: how is it?"]


async def test_a_model_that_says_nothing_more_ends_the_turn() -> None:
    script = Script(call("plan", steps=[{"content": "one"}]), Think("that is all"))
    async with connect(script.agent()) as client:
        result = await (await client.new_session()).prompt("plan it")
    assert result.stop_reason == "end_turn"
    assert result.of("plan")[0]["entries"] == [
        {"content": "one", "priority": "medium", "status": "pending"}
    ]
    assert not result.tool_calls


async def test_the_model_is_told_where_it_is(tmp_path: Path) -> None:
    (tmp_path / "AGENTS.md").write_text("Use tabs.")
    (tmp_path / "CLAUDE.md").write_text("Not read.")
    script = Script("ok")
    async with connect(script.agent()) as client:
        await (await client.new_session(tmp_path)).prompt("hi")
    told = script.infos[0].instructions or ""
    assert f"Working directory: {tmp_path}" in told
    assert "Use tabs." in told
    assert "Not read." not in told
    assert "Mode: ask" in told


async def test_a_guide_that_leads_out_of_the_folder_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("the secret")
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "AGENTS.md").symlink_to(tmp_path / "secret")
    script = Script("ok")
    async with connect(script.agent()) as client:
        await (await client.new_session(tmp_path / "project")).prompt("hi")
    assert "the secret" not in (script.infos[0].instructions or "")


async def test_images_and_embedded_files_reach_the_model() -> None:
    script = Script("I see")
    image = ImageContent(data=base64.b64encode(b"png").decode(), mime_type="image/png")
    file = EmbeddedResource(resource=TextResourceContents(text="x = 1", uri="file:///a.py"))
    async with connect(script.agent()) as client:
        assert client.agent.agent_capabilities.prompt_capabilities.image
        assert client.agent.agent_capabilities.prompt_capabilities.embedded_context
        await (await client.new_session()).prompt("look", image, file)
    [part] = script.requests[0][0].parts
    assert isinstance(part, UserPromptPart)
    assert part.content == [
        "look",
        BinaryContent(b"png", media_type="image/png"),
        '<resource uri="/a.py">\nx = 1\n</resource>',
    ]


# -- tools ---------------------------------------------------------------------------------


async def test_a_tool_call_is_shown_from_its_first_word_to_its_result(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\ntwo\nthree\n")
    script = Script(["Reading.", call("read", piece=3, path="a.txt", line=2, limit=1)], "Done.")
    async with connect(script.agent()) as client:
        result = await (await client.new_session(tmp_path)).prompt("read")
    assert statuses(result) == ["pending", "in_progress", "completed"]
    [read] = result.tool_calls
    assert (read.title, read.kind) == ("Read a.txt", "read")
    assert read.raw_input == b'{"path":"a.txt","line":2,"limit":1}'
    assert read.raw_output == b'{"lines":1,"more":true}'
    assert result.of("tool_call_update")[2]["locations"] == [
        {"path": str(tmp_path / "a.txt"), "line": 2}
    ]
    assert last_content(result)[0]["content"]["text"] == "```\ntwo\n```"
    assert script.given()[-1] == "tool: two\n\n(There is more: read on with line=3.)"
    ids = [chunk["messageId"] for chunk in result.of("agent_message_chunk")]
    assert len(set(ids)) == 2


async def test_unsaved_buffers_are_what_is_read(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("on disk\n")
    script = Script(call("read", path="a.txt"), "ok")
    async with connect(script.agent(), buffers={str(path): "unsaved\n"}) as client:
        await (await client.new_session(tmp_path)).prompt("read")
    assert script.given()[-1] == "tool: unsaved\n"


async def test_a_change_is_shown_and_asked_about_before_it_is_made(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("one\ntwo\n")
    seen = []

    def decide(asked: RequestPermissionRequest) -> str:
        seen.append((path.read_text(), asked.tool_call.title, asked.tool_call.status))
        return "allow_once"

    script = Script(call("edit", path="a.txt", old_text="two", new_text="2"), "ok")
    async with connect(script.agent(), permission=decide) as client:
        result = await (await client.new_session(tmp_path)).prompt("edit")
    assert seen == [("one\ntwo\n", "Edit a.txt", "pending")]
    assert path.read_text() == "one\n2\n"
    assert statuses(result) == ["pending", "in_progress", "completed"]
    assert last_content(result) == [
        {"type": "diff", "path": str(path), "oldText": "one\ntwo\n", "newText": "one\n2\n"}
    ]


async def test_a_change_that_is_not_allowed_is_not_made(tmp_path: Path) -> None:
    script = Script(call("write", path="new.txt", content="x"), "I see")
    async with connect(script.agent(), permission="reject_once") as client:
        result = await (await client.new_session(tmp_path)).prompt("write")
    assert not (tmp_path / "new.txt").exists()
    assert statuses(result) == ["pending", "failed"]
    assert "The person did not allow this." in script.given()[-1]
    assert result.stop_reason == "end_turn"


async def test_an_answer_for_always_outlives_the_process(tmp_path: Path) -> None:
    script = Script(
        call("write", path="a.txt", content="1"),
        "ok",
        call("edit", path="a.txt", old_text="1", new_text="2"),
        "ok",
    )
    async with connect(script.agent(), permission=["allow_always"]) as client:
        session = await client.new_session(tmp_path)
        await session.prompt("write")
        await client.restart()
        session = await client.load_session(session.id)
        await session.prompt("edit")
        assert len(client.permissions) == 1
    assert (tmp_path / "a.txt").read_text() == "2"


async def test_in_code_mode_files_are_changed_freely_and_commands_asked_about(
    tmp_path: Path,
) -> None:
    script = Script(
        [
            call("write", path="deep/a.txt", content="1\n"),
            call("edit", path="deep/a.txt", old_text="1", new_text="2"),
            call("shell", command="cat deep/a.txt"),
        ],
        "ok",
    )
    async with connect(script.agent()) as client:
        session = await client.new_session(tmp_path)
        await session.set_mode("code")
        await session.prompt("go")
        assert [asked.tool_call.title for asked in client.permissions] == ["cat deep/a.txt"]
    assert script.given()[-3:] == [
        "tool: Made deep/a.txt.",
        "tool: Edited deep/a.txt.",
        "tool: 2\n\n(exit code 0)",
    ]


async def test_in_plan_mode_nothing_can_be_changed(tmp_path: Path) -> None:
    script = Script("ok", call("write", path="a.txt", content="1"), "I see")
    async with connect(script.agent()) as client:
        session = await client.new_session(tmp_path)
        await session.set_option("mode", "plan")
        await session.prompt("hi")
        assert script.tools == {"read", "list", "search", "plan"}
        assert "Nothing may be changed" in (script.infos[0].instructions or "")
        await session.prompt("write")
        assert not client.permissions
    assert not (tmp_path / "a.txt").exists()
    assert "Unknown tool name: 'write'" in script.given()[-1]


async def test_a_mode_that_is_chosen_in_the_middle_of_a_turn_holds_at_once(tmp_path: Path) -> None:
    reached, go = asyncio.Event(), asyncio.Event()

    async def wait() -> None:
        reached.set()
        await go.wait()

    script = Script([wait, call("write", path="a.txt", content="1")], "I see")
    async with connect(script.agent()) as client:
        session = await client.new_session(tmp_path)
        turn = session.begin("write")
        await asyncio.wait_for(reached.wait(), 10)
        await session.set_mode("plan")
        go.set()
        await turn
    assert not (tmp_path / "a.txt").exists()


async def test_files_outside_the_roots_are_refused(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "work").mkdir()
    script = Script(
        [call("read", path="../secret"), call("write", path="/tmp/../etc/x", content="x")], "no"
    )
    async with connect(script.agent()) as client:
        session = await client.new_session(tmp_path / "work")
        await session.set_mode("code")
        result = await session.prompt("read")
    assert all("outside the folders of this session" in line for line in script.given()[-2:])
    assert [made.status for made in result.tool_calls] == ["failed", "failed"]


async def test_a_file_that_changed_while_the_person_decided_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("one\n")

    def decide(asked: RequestPermissionRequest) -> str:
        path.write_text("one\nmore\n")
        return "allow_once"

    script = Script(call("edit", path="a.txt", old_text="one", new_text="1"), "I see")
    async with connect(script.agent(), permission=decide) as client:
        await (await client.new_session(tmp_path)).prompt("edit")
    assert path.read_text() == "one\nmore\n"
    assert "was changed meanwhile" in script.given()[-1]


async def test_list_and_search_tell_what_there_is(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "a.py").write_text("import os\n")
    script = Script([call("list"), call("list", glob="*.py"), call("search", pattern="^imp")], "ok")
    async with connect(script.agent()) as client:
        result = await (await client.new_session(tmp_path)).prompt("look")
    assert script.given()[-1] == "tool: src/a.py:1: import os"
    assert "tool: src/a.py" in script.given()
    assert [made.title for made in result.tool_calls] == [
        "List files",
        "List *.py",
        "Search for ^imp",
    ]


async def test_a_command_that_fails_is_shown_as_failed_and_told(tmp_path: Path) -> None:
    script = Script(call("shell", command="echo oops >&2; exit 3"), "I see")
    async with connect(script.agent()) as client:
        result = await (await client.new_session(tmp_path)).prompt("run")
    assert script.given()[-1] == "tool: oops\n\n(exit code 3)"
    assert result.tool_calls[0].status == "failed"
    assert b'"exitCode":3' in (result.tool_calls[0].raw_output or b"")


async def test_a_command_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    script = Script(call("shell", command="echo begun; sleep 100", seconds=1), "I see")
    async with connect(script.agent()) as client:
        await (await client.new_session(tmp_path)).prompt("run")
    assert script.given()[-1] == "tool: begun\n\n(ended by holdfast after 1 s)"


async def test_an_allowed_command_is_not_asked_about_again_but_others_are(tmp_path: Path) -> None:
    script = Script(
        [call("shell", command="true"), call("shell", command="true"), call("shell", command=":")],
        "ok",
    )
    async with connect(script.agent(), permission="allow_always") as client:
        await (await client.new_session(tmp_path)).prompt("run")
        assert [asked.tool_call.title for asked in client.permissions] == ["true", ":"]


async def test_the_keys_of_the_environment_are_not_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "very-secret-value")
    (tmp_path / ".env").write_text("a\nKEY=very-secret-value\nb\n")
    calls = [
        call("read", path=".env"),
        call("search", pattern="KEY"),
        call("edit", path=".env", old_text="a\n", new_text="c\n"),
        call("shell", command="env"),
    ]
    script = Script(calls, "ok")
    async with connect(script.agent()) as client:
        await (await client.new_session(tmp_path)).prompt("run")
        kept = [path.read_bytes() for path in client.journal.parent.glob("journal*")]
    assert "OPENAI_API_KEY=[OPENAI_API_KEY]" in script.given()[-1]
    assert not any(b"very-secret-value" in data for data in kept)
    assert not any("very-secret-value" in line for line in script.given())
    assert (tmp_path / ".env").read_text() == "c\nKEY=very-secret-value\nb\n"


async def test_calls_that_cannot_be_made_are_failed_and_explained(tmp_path: Path) -> None:
    script = Script([call("nothing", a=1), call("read", line=1), Call("read", "{broken")], "I see")
    async with connect(script.agent()) as client:
        result = await (await client.new_session(tmp_path)).prompt("go")
    unknown, missing, broken = script.given()[-3:]
    assert "Unknown tool name" in unknown
    assert "Field required" in missing
    assert "JSON" in broken
    assert [made.status for made in result.tool_calls] == ["failed"] * 3
    assert result.stop_reason == "end_turn"


# -- ends ----------------------------------------------------------------------------------


async def test_a_turn_that_asks_too_often_ends() -> None:
    script = Script(*[call("plan", steps=[])] * 3)
    async with connect(script.agent(max_requests=3)) as client:
        result = await (await client.new_session()).prompt("go")
    assert result.stop_reason == "max_turn_requests"


async def test_a_refused_prompt_is_taken_out_of_the_conversation() -> None:
    script = Script("one", ContentFilterError("no"), "three")
    async with connect(script.agent()) as client:
        session = await client.new_session()
        await session.prompt("first")
        assert (await session.prompt("second")).stop_reason == "refusal"
        await session.prompt("third")
    assert script.given() == ["user: first", "model: one", "user: third"]


async def test_an_error_of_the_service_is_told_and_the_session_lives() -> None:
    failure = ModelHTTPError(503, "scripted", {"message": "try later"})
    script = Script(failure, "here again")
    async with connect(script.agent()) as client:
        session = await client.new_session()
        with pytest.raises(RemoteError, match="scripted: the service answered 503 Service Una"):
            await session.prompt("hello?")
        assert (await session.prompt("hello?")).text == "here again"
    assert script.given() == ["user: hello?", "user: hello?"]


async def test_what_the_service_rejects_does_not_spoil_the_conversation(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("text\n")
    rejected = ModelHTTPError.for_category(
        ModelRequestRejectedError, status_code=400, model_name="scripted", body=None
    )
    script = Script("one", rejected, call("read", path="a.txt"), rejected, "four")
    async with connect(script.agent()) as client:
        session = await client.new_session(tmp_path)
        await session.prompt("first")
        for prompt in ("bad", "good, but its tool is not"):
            with pytest.raises(RemoteError, match="400 Bad Request"):
                await session.prompt(prompt)
        await session.prompt("last")
    assert script.given() == [
        "user: first",
        "model: one",
        "user: good, but its tool is not",
        'call: read {"path":"a.txt"}',
        "tool: cancelled: the call was stopped before it had a result",
        "user: last",
    ]


async def test_cancelling_in_the_middle_of_an_answer_keeps_what_was_said() -> None:
    script = Script(["Half of ", asyncio.Event().wait], "Whole")
    async with connect(script.agent()) as client:
        session = await client.new_session()
        turn = session.begin("go")
        await session.until_said("Half of ")
        await session.cancel()
        assert (await turn).stop_reason == "cancelled"
        await session.prompt("again")
    assert script.given() == ["user: go", "model: Half of ", "user: again"]


async def test_cancelling_in_a_tool_ends_it_and_tells_the_model_later(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("text\n")
    script = Script(
        [call("read", path="a.txt"), call("shell", command="touch begun; sleep 100; touch over")],
        "I see",
    )
    async with connect(script.agent()) as client:
        session = await client.new_session(tmp_path)
        turn = session.begin("go")
        await session.until(
            lambda told: [made.status for made in told.tool_calls] == ["completed", "in_progress"]
        )
        await session.cancel()
        result = await turn
        assert result.stop_reason == "cancelled"
        assert [made.status for made in result.tool_calls] == ["completed", "failed"]
        await session.prompt("what now?")
    assert script.given()[-3:] == [
        "tool: text\n",
        "tool: cancelled: the call was stopped before it had a result",
        "user: what now?",
    ]
    assert not (tmp_path / "over").exists()


async def test_cancelling_while_the_person_is_asked_makes_no_change(tmp_path: Path) -> None:
    script = Script(call("write", path="a.txt", content="x"))
    async with connect(script.agent(), permission=lambda asked: None) as client:
        session = await client.new_session(tmp_path)
        turn = session.begin("go")
        await client.until(lambda: client.permissions or None)
        await session.cancel()
        assert (await turn).stop_reason == "cancelled"
    assert not (tmp_path / "a.txt").exists()


# -- memory --------------------------------------------------------------------------------


@pytest.mark.parametrize("kill", [False, True])
async def test_a_loaded_session_goes_on_with_the_models_own_messages(
    tmp_path: Path, kill: bool
) -> None:
    (tmp_path / "a.txt").write_text("text\n")
    script = Script(
        [Think("hm"), "Let me look.", call("read", path="a.txt")], "It says text.", "ok"
    )
    async with connect(script.agent()) as client:
        session = await client.new_session(tmp_path)
        await session.prompt("what does it say?")
        await client.restart(kill=kill)
        session = await client.load_session(session.id)
        assert "It says text." in session.replayed.text
        await session.prompt("and now?")
    assert script.given() == [
        "user: what does it say?",
        "model: Let me look.",
        'call: read {"path":"a.txt"}',
        "tool: text\n",
        "model: It says text.",
        "user: and now?",
    ]


async def test_a_killed_turn_is_remembered_as_far_as_it_was_seen(tmp_path: Path) -> None:
    script = Script(["I was about ", asyncio.Event().wait], "ok")
    async with connect(script.agent()) as client:
        session = await client.new_session(tmp_path)
        turn = session.begin("go")
        await session.until_said("I was about ")
        await client.restart(kill=True)
        turn.cancel()
        session = await client.load_session(session.id)
        await session.prompt("where were you?")
    assert script.given() == ["user: go", "model: I was about ", "user: where were you?"]


async def test_a_turn_that_is_killed_in_a_tool_remembers_the_call(tmp_path: Path) -> None:
    script = Script(["Run.", call("shell", command="sleep 100")], "ok")
    async with connect(script.agent()) as client:
        session = await client.new_session(tmp_path)
        turn = session.begin("go")
        await session.until(
            lambda told: [made.status for made in told.tool_calls] == ["in_progress"]
        )
        await client.restart(kill=True)
        turn.cancel()
        session = await client.load_session(session.id)
        await session.prompt("well?")
    assert script.given() == [
        "user: go",
        "model: Run.",
        'call: shell {"command":"sleep 100"}',
        "tool: cancelled: the call was stopped before it had a result",
        "user: well?",
    ]


async def test_only_what_is_new_is_written(journal: Path) -> None:
    script = Script(*["answer"] * 3)
    async with connect(script.agent(), journal=journal) as client:
        session = await client.new_session()
        for prompt in ("FIRST PROMPT", "second", "third"):
            await session.prompt(prompt)
    opened = SqliteJournal.open(str(journal))
    segments = await opened.read(session.id, 0)
    await opened.aclose()
    kept = b"\n".join(segment.raw for segment in segments if segment.kind == STORE)
    assert kept.count(b'"content":"FIRST PROMPT"') == 1
    assert kept.count(b'"content":"answer"') == 3


async def test_a_conversation_can_be_summed_up() -> None:
    script = Script("one", "two", "We counted to two.", "three")
    async with connect(script.agent()) as client:
        session = await client.new_session()
        await session.prompt("count")
        await session.prompt("on")
        summed = await session.prompt("/compact the numbers")
        assert "We counted to two." in summed.text
        await client.restart(kill=True)
        session = await client.load_session(session.id)
        await session.prompt("go on")
    order, summary, prompt = script.given()
    assert "In particular: the numbers" in order
    assert (summary, prompt) == ("model: We counted to two.", "user: go on")
    assert script.given(2)[:-1] == ["user: count", "model: one", "user: on", "model: two"]


async def test_what_is_too_long_to_be_summed_up_is_halved_first() -> None:
    too_long = ModelHTTPError.for_category(
        ModelContextWindowExceededError, status_code=400, model_name="scripted", body=None
    )
    script = Script("one", "two", too_long, too_long, "We counted.")
    async with connect(script.agent()) as client:
        session = await client.new_session()
        await session.prompt("count")
        await session.prompt("on")
        with pytest.raises(RemoteError, match="the conversation is too long; try /compact"):
            await session.prompt("x" * 100)
        assert "We counted." in (await session.prompt("/compact")).text
    assert script.given(-2)[:2] == ["user: count", "model: one"]
    assert script.given(-1)[:3] == ["user: on", "model: two", f"user: {'x' * 100}"]


async def test_there_is_nothing_to_sum_up_in_the_beginning() -> None:
    script = Script()
    async with connect(script.agent()) as client:
        result = await (await client.new_session()).prompt("/compact")
    assert result.text == "There is nothing to sum up yet."


# -- the session ---------------------------------------------------------------------------


async def test_the_model_names_the_session_once_and_delays_nobody() -> None:
    asked, go = asyncio.Event(), asyncio.Event()

    async def wait() -> None:
        asked.set()
        await go.wait()

    script = Script("one", "two", title=[wait, '"Counting up."'])
    async with connect(script.agent()) as client:
        session = await client.new_session()
        await session.prompt("count")  # answered while the title waits
        await asyncio.wait_for(asked.wait(), 10)
        await session.prompt("on")
        go.set()
        told = await session.until(
            lambda told: any(
                update.get("title") == "Counting up" for update in told.of("session_info_update")
            )
        )
        assert told
        assert (await client.sessions())[0].title == "Counting up"
    assert script.titles == 1


async def test_a_session_that_closes_waits_for_no_title() -> None:
    asked = asyncio.Event()

    async def wait() -> None:
        asked.set()
        await asyncio.Event().wait()

    script = Script("one", title=[wait])
    async with connect(script.agent()) as client:
        session = await client.new_session()
        await session.prompt("count")
        await asyncio.wait_for(asked.wait(), 10)
        await session.close()


async def test_a_model_that_makes_no_title_is_no_trouble() -> None:
    script = Script("one", "two", title=[ModelHTTPError(500, "scripted")])
    async with connect(script.agent()) as client:
        session = await client.new_session()
        await session.prompt("count")
        assert (await session.prompt("on")).text == "two"


async def test_the_use_of_the_context_is_shown_where_its_size_is_known() -> None:
    script = Script("some words")
    async with connect(script.agent(context_window=1000)) as client:
        result = await (await client.new_session()).prompt("hello there")
    [usage] = result.of("usage_update")
    assert usage["size"] == 1000
    assert 0 < usage["used"] < 1000
    assert "cost" not in usage  # nobody knows the price of a script
    script = Script("some words")
    async with connect(script.agent()) as client:
        assert not (await (await client.new_session()).prompt("hello")).of("usage_update")


async def test_models_can_be_chosen_by_option_and_by_command() -> None:
    first = Script("I am first", "first again")
    second = Script("I am second", name="other")
    agent = holdfast.Agent("coder", version="1")
    coding(agent, [first.model, second.model])
    async with connect(agent) as client:
        session = await client.new_session()
        shown = [(option.id, option.category) for option in selects(session)]
        assert shown == [("mode", "mode"), ("model", "model"), ("thinking", "thought_level")]
        assert (await session.prompt("who?")).text == "I am first"
        assert (await session.prompt("/model oth")).text == "Going on with other."
        assert (await session.prompt("who?")).text == "I am second"
        listed = await session.prompt("/model")
        assert listed.text == "There are:\n\n- scripted\n- other (in use)"
        await session.set_option("model", "scripted")
        assert (await session.prompt("who?")).text == "first again"
    assert second.given()[:2] == ["user: who?", "model: I am first"]


@pytest.mark.parametrize(
    ("level", "sent"),
    [("default", None), ("off", {"effort": "none"}), ("low", {"effort": "low", "summary": "auto"})],
)
async def test_how_much_the_model_thinks_can_be_chosen(
    journal: Path, model: ModelEndpoint, level: str, sent: dict[str, str] | None
) -> None:
    service = OpenAIResponsesModel("gpt-5.1", provider=OpenAIProvider(model.url, "key"))
    agent = holdfast.Agent("coder", version="1")
    coding(agent, [service])
    async with connect(agent, journal=journal) as client:
        session = await client.new_session()
        await session.set_option("thinking", level)
        await session.prompt("hi")
    assert json.loads(model.requests[0]).get("reasoning") == sent


async def test_a_prompt_of_nothing_is_still_answered() -> None:
    script = Script("?")
    async with connect(script.agent()) as client:
        assert (await (await client.new_session()).prompt(TextContent(text=""))).text == "?"


async def two_sessions(client: Client) -> tuple[str, str]:
    one, other = await client.new_session(), await client.new_session()
    first, second = await asyncio.gather(one.prompt("a"), other.prompt("b"))
    return first.text, second.text


async def test_sessions_do_not_see_each_other() -> None:
    script = Script("x", "y")
    async with connect(script.agent()) as client:
        assert sorted(await two_sessions(client)) == ["x", "y"]
    assert sorted(script.given(0) + script.given(1)) == ["user: a", "user: b"]
