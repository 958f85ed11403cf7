"""A turn of the coding agent as its client sees it, with a scripted model."""

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

from acp_wire.schema import (
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
    TextResourceContents,
)
from acphold.client import PermissionQuestion
from acphold.errors import RemoteError
from acphold.testing import Received, connect
from tests.examples.coder.scripted import Call, Script, Think, call


def statuses(told: Received) -> list[str]:
    """The statuses of the only tool call, in order."""
    [made] = told.of("tool_call")
    changes = told.of("tool_call_update")
    return [
        made.get("status", "pending"),
        *(change["status"] for change in changes if "status" in change),
    ]


def last_content(told: Received) -> list[dict[str, Any]]:
    """The final content of the last tool call."""
    return [json.loads(raw) for raw in told.tool_calls[-1].content]


# -- words ---------------------------------------------------------------------------------


async def test_what_the_model_says_and_thinks_streams_to_the_client() -> None:
    script = Script([Think("let me "), Think("see"), "All ", "is ", "well"])
    async with connect(script.agent()) as client:
        session = await client.new_session()
        result = await session.prompt("how is it?")
    assert result.stop_reason == "end_turn"
    assert result.thoughts == "let me see"
    said = [chunk["content"]["text"] for chunk in result.received.of("agent_message_chunk")]
    assert said == ["All ", "is ", "well"]
    assert len({chunk["messageId"] for chunk in result.received.of("agent_message_chunk")}) == 1
    assert script.given() == ["user: how is it?"]


async def test_a_model_that_says_nothing_more_ends_the_turn(tmp_path: Path) -> None:
    script = Script(call("find"), Think("that is all"))
    async with connect(script.agent()) as client:
        result = await (await client.new_session(tmp_path)).prompt("look")
    assert (result.stop_reason, result.text) == ("end_turn", "")


async def test_the_model_is_told_where_it_is(tmp_path: Path) -> None:
    (tmp_path / "AGENTS.md").write_text("Use tabs.")
    script = Script("ok")
    async with connect(script.agent()) as client:
        await (await client.new_session(tmp_path)).prompt("hi")
    told = script.infos[0].instructions or ""
    assert f"Paths start at {tmp_path}" in told
    assert "Use tabs." in told
    assert "Mode: ask" in told


async def test_a_guide_that_leads_out_of_the_folder_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("the secret")
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "AGENTS.md").symlink_to(tmp_path / "secret")
    script = Script("ok")
    async with connect(script.agent()) as client:
        await (await client.new_session(tmp_path / "project")).prompt("hi")
    assert "the secret" not in (script.infos[0].instructions or "")


async def test_images_links_and_embedded_files_reach_the_model() -> None:
    script = Script("I see")
    image = ImageContent(data=base64.b64encode(b"png").decode(), mime_type="image/png")
    file = EmbeddedResource(resource=TextResourceContents(text="x = 1", uri="file:///a.py"))
    link = ResourceLink(name="b c.py", uri="file:///w/b%20c.py")
    async with connect(script.agent()) as client:
        assert client.initialized.agent_capabilities.prompt_capabilities.image
        assert client.initialized.agent_capabilities.prompt_capabilities.embedded_context
        await (await client.new_session()).prompt("look", image, file, link)
    [part] = script.requests[0][0].parts
    assert isinstance(part, UserPromptPart)
    assert part.content == [
        "look",
        BinaryContent(b"png", media_type="image/png"),
        "<file at='/a.py'>\nx = 1\n</file>",
        "[b c.py](/w/b c.py)",
    ]


async def test_an_empty_prompt_is_still_answered() -> None:
    script = Script("?")
    async with connect(script.agent()) as client:
        assert (await (await client.new_session()).prompt(TextContent(text=""))).text == "?"


# -- tools ---------------------------------------------------------------------------------


async def test_a_tool_call_is_shown_with_its_arguments_and_its_result(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\ntwo\nthree\n")
    script = Script(["Reading.", call("read", path="a.txt", line=2, limit=1)], "Done.")
    async with connect(script.agent()) as client:
        result = await (await client.new_session(tmp_path)).prompt("read")
    assert statuses(result.received) == ["pending", "in_progress", "completed"]
    [read] = result.tool_calls
    assert (read.title, read.kind) == ("Read a.txt", "read")
    assert read.raw_input == b'{"path":"a.txt","line":2,"limit":1}'
    [made] = result.received.of("tool_call")
    assert made["locations"] == [{"path": str(tmp_path / "a.txt"), "line": 2}]
    assert last_content(result.received)[0]["content"]["text"] == "```\ntwo\n```"
    assert script.given()[-1] == "tool: two\n\n(There is more: read on with line=3.)"
    ids = [chunk["messageId"] for chunk in result.received.of("agent_message_chunk")]
    assert len(set(ids)) == 2, "what is said behind the call is another message"


async def test_a_secret_in_a_file_is_read_and_written_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-very-secret-value")
    (path := tmp_path / ".env").write_text("KEY=sk-very-secret-value\nDEBUG=0\n")
    script = Script(
        call("read", path=".env"),
        call("edit", path=".env", old_text="", new_text="KEY=sk-very-secret-value\nDEBUG=1\n"),
        "ok",
    )
    async with connect(script.agent()) as client:
        result = await (await client.new_session(tmp_path)).prompt("debug on")
        [asked] = client.permissions
    assert script.given(1)[-1] == "tool: KEY=sk-very-secret-value\nDEBUG=0\n"
    assert path.read_text() == "KEY=sk-very-secret-value\nDEBUG=1\n"
    diff = last_content(result.received)[0]
    assert (diff["oldText"], diff["newText"]) == (
        "KEY=sk-very-secret-value\nDEBUG=0\n",
        "KEY=sk-very-secret-value\nDEBUG=1\n",
    )
    assert asked.tool_call.content is not None


async def test_a_change_is_shown_whole_and_asked_about_before_it_is_made(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    long = "".join(f"line {number}\n" for number in range(5000))
    path.write_text(long)
    seen = []

    def decide(asked: PermissionQuestion) -> str:
        seen.append((path.read_text(), asked.tool_call.title, asked.tool_call.status))
        return "allow_once"

    script = Script(call("edit", path="a.txt", old_text="line 4999\n", new_text="the end\n"), "ok")
    async with connect(script.agent(), on_permission=decide) as client:
        result = await (await client.new_session(tmp_path)).prompt("edit")
        [(_, asked)] = [it for it in client.requests if it[0] == "session/request_permission"]
    new = long.replace("line 4999\n", "the end\n")
    shown = {"type": "diff", "path": str(path), "oldText": long, "newText": new}
    assert seen == [(long, "Edit a.txt", "pending")]
    assert asked["toolCall"]["content"] == [shown]
    assert asked["toolCall"]["rawInput"]["old_text"] == "line 4999\n"
    assert path.read_text() == new
    assert statuses(result.received) == ["pending", "in_progress", "completed"]


async def test_a_command_is_asked_about_whole_however_long_it_is(tmp_path: Path) -> None:
    command = f"echo {'harmless ' * 100}; echo last; touch made"
    script = Script(call("shell", command=command), "ok")
    async with connect(script.agent(), on_permission="reject_once") as client:
        await (await client.new_session(tmp_path)).prompt("run")
        [(_, asked)] = [it for it in client.requests if it[0] == "session/request_permission"]
    assert asked["toolCall"]["rawInput"] == {"command": command, "seconds": 120}
    assert command in asked["toolCall"]["content"][0]["content"]["text"]
    assert asked["toolCall"]["title"] == command
    assert not (tmp_path / "made").exists()


async def test_a_change_that_is_not_allowed_is_not_made(tmp_path: Path) -> None:
    script = Script(call("edit", path="new.txt", old_text="", new_text="x"), "I see")
    async with connect(script.agent(), on_permission="reject_once") as client:
        result = await (await client.new_session(tmp_path)).prompt("write")
    assert not (tmp_path / "new.txt").exists()
    assert statuses(result.received) == ["pending", "failed"]
    assert "The person did not allow this." in script.given()[-1]
    assert result.stop_reason == "end_turn"


async def test_an_answer_for_always_outlives_the_process(tmp_path: Path) -> None:
    script = Script(
        call("edit", path="a.txt", old_text="", new_text="1"),
        "ok",
        call("edit", path="a.txt", old_text="1", new_text="2"),
        "ok",
    )
    async with connect(script.agent(), on_permission=["allow_always"]) as client:
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
            call("edit", path="deep/a.txt", old_text="", new_text="1\n"),
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
        "tool: deep/a.txt is written.",
        "tool: deep/a.txt is written.",
        "tool: 2\n\n(exit code 0)",
    ]


async def test_in_plan_mode_nothing_can_be_changed(tmp_path: Path) -> None:
    calls = [call("edit", path="a.txt", old_text="", new_text="1"), call("shell", command="true")]
    script = Script(calls, "I see")
    async with connect(script.agent()) as client:
        session = await client.new_session(tmp_path)
        await session.set_option("mode", "plan")
        result = await session.prompt("write")
        assert not client.permissions
    assert not (tmp_path / "a.txt").exists()
    assert "Nothing can be changed" in (script.infos[0].instructions or "")
    assert [made.status for made in result.tool_calls] == ["failed", "failed"]
    assert script.given()[-2:] == ["tool: In plan mode nothing is changed or run."] * 2


async def test_a_mode_that_is_chosen_in_the_middle_of_a_turn_holds_at_once(tmp_path: Path) -> None:
    reached, go = asyncio.Event(), asyncio.Event()

    async def wait() -> None:
        reached.set()
        await go.wait()

    script = Script([wait, call("edit", path="a.txt", old_text="", new_text="1")], "I see")
    async with connect(script.agent()) as client:
        session = await client.new_session(tmp_path)
        turn = session.prompt("write")
        await asyncio.wait_for(reached.wait(), 10)
        await session.set_mode("plan")
        go.set()
        await turn
    assert not (tmp_path / "a.txt").exists()


async def test_files_outside_the_roots_are_refused(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "work").mkdir()
    script = Script(
        [
            call("read", path="../secret"),
            call("edit", path="../secret", old_text="", new_text="x"),
            call("find", path=".."),
        ],
        "no",
    )
    async with connect(script.agent()) as client:
        session = await client.new_session(tmp_path / "work")
        await session.set_mode("code")
        result = await session.prompt("read")
    assert all("outside the folders of this session" in line for line in script.given()[-3:])
    assert [made.status for made in result.tool_calls] == ["failed"] * 3
    assert (tmp_path / "secret").read_text() == "secret"


async def test_a_file_that_changed_while_the_person_decided_is_left_alone(tmp_path: Path) -> None:
    (path := tmp_path / "a.txt").write_text("one\n")

    def decide(asked: PermissionQuestion) -> str:
        path.write_text("one\nmore\n")
        return "allow_once"

    script = Script(call("edit", path="a.txt", old_text="one", new_text="1"), "I see")
    async with connect(script.agent(), on_permission=decide) as client:
        await (await client.new_session(tmp_path)).prompt("edit")
    assert path.read_text() == "one\nmore\n"
    assert "was changed meanwhile" in script.given()[-1]


async def test_a_replacement_that_is_not_clear_is_not_made(tmp_path: Path) -> None:
    (path := tmp_path / "a.txt").write_text("one one\n")
    calls = [
        call("edit", path="a.txt", old_text="one", new_text="1"),
        call("edit", path="a.txt", old_text="two", new_text="2"),
        call("edit", path="missing.txt", old_text="two", new_text="2"),
    ]
    script = Script(calls, "I see")
    async with connect(script.agent()) as client:
        await (await client.new_session(tmp_path)).prompt("edit")
        assert not client.permissions
    assert path.read_text() == "one one\n"
    assert [line.partition("file ")[2] for line in script.given()[-3:]] == [
        "2 times, not once",
        "0 times, not once",
        "0 times, not once",
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
    assert script.given()[-1] == "tool: begun\n\n(ended after 1 s)"


async def test_an_allowed_command_is_not_asked_about_again_but_others_are(tmp_path: Path) -> None:
    script = Script(
        [call("shell", command="true"), call("shell", command="true"), call("shell", command=":")],
        "ok",
    )
    async with connect(script.agent(), on_permission="allow_always") as client:
        await (await client.new_session(tmp_path)).prompt("run")
        assert [asked.tool_call.title for asked in client.permissions] == ["true", ":"]


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


async def test_a_turn_that_asks_too_often_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("answer.MAX_REQUESTS", 3)
    script = Script(*[call("find")] * 3)
    async with connect(script.agent()) as client:
        result = await (await client.new_session(tmp_path)).prompt("go")
    assert result.stop_reason == "max_turn_requests"


async def test_a_refused_prompt_is_taken_out_of_the_conversation() -> None:
    script = Script("one", ContentFilterError("no"), "three")
    async with connect(script.agent()) as client:
        session = await client.new_session()
        await session.prompt("first")
        assert (await session.prompt("second")).stop_reason == "refusal"
        await session.prompt("third")
    assert script.given() == ["user: first", "model: one", "user: third"]


async def test_an_error_of_the_service_is_reported_and_the_session_lives() -> None:
    failure = ModelHTTPError(503, "scripted", {"message": "try later"})
    script = Script(failure, "here again")
    async with connect(script.agent()) as client:
        session = await client.new_session()
        with pytest.raises(RemoteError, match=r"scripted: .*503.*try later"):
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
            with pytest.raises(RemoteError, match="400"):
                await session.prompt(prompt)
        await session.prompt("last")
    assert script.given() == [
        "user: first",
        "model: one",
        "user: good, but its tool is not",
        'call: read {"path":"a.txt"}',
        "tool: The tool call was interrupted before a result was produced.",
        "user: last",
    ]


async def test_a_conversation_that_is_too_long_can_begin_anew() -> None:
    too_long = ModelHTTPError.for_category(
        ModelContextWindowExceededError, status_code=400, model_name="scripted", body=None
    )
    script = Script("one", too_long, "two")
    async with connect(script.agent()) as client:
        session = await client.new_session()
        await session.prompt("first")
        with pytest.raises(RemoteError, match="too long for it, /clear makes room"):
            await session.prompt("second")
        assert "Forgotten" in (await session.prompt("/clear")).text
        await session.prompt("third")
    assert script.given() == ["user: third"]


async def test_cancelling_in_the_middle_of_an_answer_keeps_what_was_said() -> None:
    script = Script(["Half of ", asyncio.Event().wait], "Whole")
    async with connect(script.agent()) as client:
        session = await client.new_session()
        turn = session.prompt("go")
        await session.until_said("Half of ")
        session.cancel()
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
        turn = session.prompt("go")
        await session.until(
            lambda told: [made.status for made in told.tool_calls] == ["completed", "in_progress"]
        )
        session.cancel()
        result = await turn
        assert result.stop_reason == "cancelled"
        assert [made.status for made in result.tool_calls] == ["completed", "failed"]
        await session.prompt("what now?")
    assert script.given()[-3:] == [
        "tool: text\n",
        "tool: The tool call was interrupted before a result was produced.",
        "user: what now?",
    ]
    assert not (tmp_path / "over").exists()


async def test_cancelling_while_the_person_is_asked_makes_no_change(tmp_path: Path) -> None:
    script = Script(call("edit", path="a.txt", old_text="", new_text="x"))
    async with connect(script.agent(), on_permission=[]) as client:
        session = await client.new_session(tmp_path)
        turn = session.prompt("go")
        await client.until(lambda: client.permissions or None)
        session.cancel()
        assert (await turn).stop_reason == "cancelled"
    assert not (tmp_path / "a.txt").exists()


# -- the session ---------------------------------------------------------------------------


async def test_models_can_be_chosen() -> None:
    from agent import coder

    first, second = Script("I am first", "first again"), Script("I am second", name="other")
    async with connect(coder(first.model, second.model)) as client:
        session = await client.new_session()
        assert [getattr(it, "id", None) for it in session.config_options] == ["mode", "model"]
        assert (await session.prompt("who?")).text == "I am first"
        await session.set_option("model", "other")
        assert (await session.prompt("who?")).text == "I am second"
        await session.set_option("model", "scripted")
        assert (await session.prompt("who?")).text == "first again"
    assert second.given()[:2] == ["user: who?", "model: I am first"]
