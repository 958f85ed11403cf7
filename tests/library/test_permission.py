"""Asking a person for permission."""

from __future__ import annotations

import pytest

import acphold
from acp_wire.schema import Diff, PermissionOption
from acphold.testing import connect
from tests.library.test_turn import agent_that, opened


async def ask(turn: acphold.Turn) -> None:
    for question in turn.text.split(","):
        await turn.say(f"{bool(await turn.ask_permission(question))} ")


@pytest.mark.parametrize(
    ("answer", "allowed", "asked_again"),
    [
        ("allow_once", "True", True),
        ("allow_always", "True", False),
        ("reject_once", "False", True),
        ("reject_always", "False", False),
    ],
)
async def test_what_was_answered_for_always_is_not_asked_again_even_after_a_restart(
    answer: str, allowed: str, asked_again: bool
) -> None:
    async with opened(agent_that(ask), on_permission=answer) as (client, session):
        assert (await session.prompt("Write?")).text.split() == [allowed]
        [asked] = client.permissions
        kinds = [option.kind for option in asked.options]
        assert kinds == ["allow_once", "allow_always", "reject_once", "reject_always"]
        assert asked.tool_call.title == "Write?"
        await client.restart(kill=True)
        session = await client.load_session(session.id)
        assert (await session.prompt("Write?")).text.split() == [allowed]
        assert (len(client.permissions) == 2) is asked_again


async def test_other_questions_and_other_sessions_are_asked() -> None:
    async with opened(agent_that(ask), on_permission="allow_always") as (client, session):
        await session.prompt("Write a?,Write a?,Write b?")
        assert len(client.permissions) == 2
        await (await client.new_session()).prompt("Write a?")
        assert len(client.permissions) == 3


async def test_questions_with_one_key_are_one_question() -> None:
    async def work(turn: acphold.Turn) -> None:
        for name in ("a", "b"):
            await turn.ask_permission(f"Write {name}?", remember="write")
        turn.session.forget_permissions()
        await turn.ask_permission("Write c?", remember="write")

    async with connect(agent_that(work), on_permission="allow_always") as client:
        await (await client.new_session()).prompt("go")
        titles = [asked.tool_call.title for asked in client.permissions]
    assert titles == ["Write a?", "Write c?"]


async def test_a_call_that_is_asked_about_is_shown_first_and_fails_when_rejected() -> None:
    async def work(turn: acphold.Turn) -> None:
        call = turn.tool("Write a", kind="edit", input={"path": "a"})
        if await turn.ask_permission("May I?", tool=call):
            async with call:
                await turn.say("written")

    async with opened(agent_that(work), on_permission=["reject_once", "allow_once"]) as (
        client,
        session,
    ):
        rejected = await session.prompt("go")
        allowed = await session.prompt("go")
        asked = client.permissions[0].tool_call
    assert (asked.kind, asked.raw_input, asked.status) == ("edit", {"path": "a"}, "pending")
    [call] = rejected.tool_calls
    assert (call.status, b"not allowed" in call.content[0]) == ("failed", True)
    assert [call.status for call in allowed.tool_calls] == ["completed"]
    assert allowed.text == "written"


async def test_authors_offer_options_of_their_own() -> None:
    options = [
        PermissionOption(option_id="sure", name="Sure", kind="allow_once"),
        PermissionOption(option_id="never", name="Never", kind="reject_once"),
    ]

    async def work(turn: acphold.Turn) -> None:
        decision = await turn.ask_permission("May I?", options=options)
        await turn.say(f"{bool(decision)} {decision.option_id}")

    async with opened(agent_that(work), on_permission=["sure", "never"]) as (client, session):
        assert (await session.prompt("go")).text == "True sure"
        assert (await session.prompt("go")).text == "False never"
        assert [option.option_id for option in client.permissions[0].options] == ["sure", "never"]


async def test_the_option_that_was_chosen_for_always_is_told_without_asking_again() -> None:
    options = [
        PermissionOption(option_id="folder", name="In this folder", kind="allow_always"),
        PermissionOption(option_id="anywhere", name="Anywhere", kind="allow_always"),
    ]

    async def work(turn: acphold.Turn) -> None:
        await turn.say(f"{await turn.ask_permission('Write?', options=options)}")

    async with opened(agent_that(work), on_permission=["folder"]) as (client, session):
        await session.prompt("go")
        await client.restart()
        session = await client.load_session(session.id)
        result = await session.prompt("go")
        assert result.text == "Decision(allowed=True, option_id='folder')"
        assert len(client.permissions) == 1


async def test_a_permission_request_shows_the_whole_command_arguments_and_diff() -> None:
    command = "echo " + "long " * 1000
    old, new = "old\n" * 5000, "new\n" * 5000

    async def work(turn: acphold.Turn) -> None:
        run = turn.tool(command, kind="execute", input={"command": command})
        await turn.ask_permission("Run it?", tool=run)
        edit = turn.tool("Edit", kind="edit", locations=["a.txt"])
        await edit.diff("a.txt", new, old)
        await turn.ask_permission("Edit it?", tool=edit)
        await turn.ask_permission("Send it?", kind="execute", input={"text": command})

    async with opened(agent_that(work)) as (client, session):
        await session.prompt("go")
        run, edit, asked = [permission.tool_call for permission in client.permissions]
    assert (run.title, run.raw_input) == (command, {"command": command})
    [diff] = edit.content or ()
    assert isinstance(diff, Diff)
    assert (diff.new_text, diff.old_text) == (new, old)
    assert (asked.title, asked.kind, asked.raw_input) == (
        "Send it?",
        "execute",
        {"text": command},
    )
