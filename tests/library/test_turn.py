"""A turn's output, as a client receives it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import acphold
from acp_wire.schema import PROMPT, McpServer, PromptRequest
from acphold.library import bounds
from acphold.testing import WatchedAgent, WatchedSession, WatchedTurn, connect

Work = Callable[[acphold.Turn], Awaitable[Any]]


def agent_that(work: Work, **options: Any) -> acphold.Agent:
    """An agent whose turns do `work`."""
    agent = acphold.Agent("test", version="1", **options)

    @agent.prompt
    async def answer(turn: acphold.Turn) -> Any:
        return await work(turn)

    return agent


@asynccontextmanager
async def opened(
    agent: acphold.Agent,
    cwd: Path | None = None,
    *,
    mcp_servers: Sequence[McpServer] = (),
    additional_directories: Sequence[Path] = (),
    **client: Any,
) -> AsyncIterator[tuple[WatchedAgent, WatchedSession]]:
    """A client with these options that is connected to the agent, and a new session."""
    async with connect(agent, **client) as connected:
        yield (
            connected,
            await connected.new_session(
                cwd, mcp_servers=mcp_servers, additional_directories=additional_directories
            ),
        )


async def one_turn(
    work: Work, *, prompt: str = "go", cwd: Path | None = None, **client: Any
) -> WatchedTurn:
    """Run a turn that does `work` and return what a client with these options saw."""
    async with opened(agent_that(work), cwd, **client) as (_, session):
        return await session.prompt(prompt)


async def test_pieces_in_a_row_are_one_message_with_one_id() -> None:
    async def work(turn: acphold.Turn) -> None:
        await turn.say("one ")
        await turn.say("message")
        await turn.think("a thought")
        await turn.say("another")

    result = await one_turn(work)
    said = result.received.of("agent_message_chunk")
    ids = [update["messageId"] for update in said]
    assert ids[0] == ids[1] != ids[2]
    assert [
        item.text for item in result.received.state.timeline if isinstance(item, acphold.Message)
    ] == [
        "one message",
        "a thought",
        "another",
    ]
    assert result.thoughts == "a thought"


async def test_what_is_said_after_a_tool_call_is_another_message() -> None:
    async def work(turn: acphold.Turn) -> None:
        await turn.say("before")
        async with turn.tool("Look"):
            pass
        await turn.say("after")

    result = await one_turn(work)
    first, second = result.received.of("agent_message_chunk")
    assert first["messageId"] != second["messageId"]


async def test_ten_thousand_pieces_come_whole_and_in_order() -> None:
    async def work(turn: acphold.Turn) -> None:
        for number in range(10_000):
            await turn.say(f"{number} ")

    result = await one_turn(work)
    assert result.text.split() == [str(number) for number in range(10_000)]


@pytest.mark.parametrize("text", ["", 'quotes " and \\', "line\nbreak\0", "\u2028 \U0001f600"])
async def test_any_text_arrives_as_it_was_said(text: str) -> None:
    async with opened(agent_that(lambda turn: turn.say(turn.text))) as (_, session):
        assert (await session.prompt(text)).text == text


async def test_half_a_surrogate_pair_is_replaced() -> None:
    async with connect(agent_that(lambda turn: turn.say("a\ud83db"))) as client:
        assert (await (await client.new_session()).prompt("go")).text == "a\ufffdb"


async def test_other_content_blocks_can_be_said() -> None:
    async def work(turn: acphold.Turn) -> None:
        await turn.say(acphold.ImageContent(data="aGk=", mime_type="image/png"))
        await turn.think(acphold.ResourceLink(name="a", uri="file:///a"))

    result = await one_turn(work)
    assert result.received.of("agent_message_chunk")[0]["content"]["type"] == "image"
    assert result.received.of("agent_thought_chunk")[0]["content"]["uri"] == "file:///a"


async def test_plan_usage_and_title_are_shown() -> None:
    async def work(turn: acphold.Turn) -> None:
        done = acphold.PlanEntry(content="first", priority="high", status="completed")
        await turn.plan([done, "second", "third"])
        await turn.usage(10, 100, 0.5)
        await turn.title("A name")

    async with connect(agent_that(work)) as client:
        result = await (await client.new_session()).prompt("go")
        [listed] = [info async for info in client.sessions()]
    assert result.received.of("plan")[0]["entries"] == [
        {"content": "first", "priority": "high", "status": "completed"},
        {"content": "second", "priority": "medium", "status": "pending"},
        {"content": "third", "priority": "medium", "status": "pending"},
    ]
    assert result.received.of("usage_update")[0]["cost"] == {"amount": 0.5, "currency": "USD"}
    assert [update["title"] for update in result.received.of("session_info_update")] == ["A name"]
    assert listed.title == "A name"


@pytest.mark.parametrize(
    ("entries", "why"),
    [("Look", "is a list of entries, not 'Look'"), ([{"content": "Look"}], "text or a PlanEntry")],
)
async def test_what_is_no_plan_is_refused_where_it_is_given(entries: Any, why: str) -> None:
    async def work(turn: acphold.Turn) -> None:
        with pytest.raises(TypeError, match=why):
            await turn.plan(entries)

    async with connect(agent_that(work)) as client:
        result = await (await client.new_session()).prompt("go")
    assert result.received.of("plan") == []


async def test_a_notice_is_told_once_and_not_replayed() -> None:
    async def work(turn: acphold.Turn) -> None:
        await turn.say("before ")
        await turn.notice("Careful", "Thin ice", severity="warning")
        await turn.say("after")

    async with opened(agent_that(work)) as (client, session):
        result = await session.prompt("go")
        replayed = (await client.load_session(session.id)).received
    [notice] = result.received.of("notice")
    assert (notice["severity"], notice["title"]) == ("warning", "Careful")
    assert result.text == replayed.text == "before after"
    assert replayed.of("notice") == []


Misuse = Callable[[acphold.Turn], Awaitable[object]]
bad_entry = acphold.PlanEntry(content="x", priority="high", status="done")  # type: ignore[arg-type]


async def bad_tool(turn: acphold.Turn) -> None:
    turn.tool("x", kind="readd")  # type: ignore[arg-type]


async def bad_input(turn: acphold.Turn) -> None:
    turn.tool("x", input=object())


async def bad_output(turn: acphold.Turn) -> None:
    async with turn.tool("x") as call:
        await call.output(object())


@pytest.mark.parametrize(
    ("misuse", "error"),
    [
        (lambda turn: turn.say(5), TypeError),
        (lambda turn: turn.think(None), TypeError),
        (lambda turn: turn.plan([bad_entry]), acphold.DeclarationError),
        (lambda turn: turn.usage(-1, 5), acphold.DeclarationError),
        (lambda turn: turn.notice("", "x"), acphold.DeclarationError),
        (lambda turn: turn.notice("x", severity="bad"), acphold.DeclarationError),
        (lambda turn: turn.session.set_mode("x"), acphold.DeclarationError),
        (lambda turn: turn.session.set_option("x", value=True), acphold.DeclarationError),
        (lambda turn: turn.session.call("x/y"), acphold.DeclarationError),
        (lambda turn: turn.ask_form("Who?", {"n": {"type": "string"}}), acphold.CapabilityError),
        (lambda turn: turn.ask_page("Go", "https://example.org"), acphold.CapabilityError),
        (lambda turn: turn.ask_permission("May I?", options=[]), acphold.DeclarationError),
        (bad_tool, acphold.DeclarationError),
        (bad_input, TypeError),
        (bad_output, TypeError),
    ],
)
async def test_misuse_raises_at_the_line_that_did_it(
    misuse: Misuse, error: type[Exception]
) -> None:
    raised: list[Exception] = []

    async def work(turn: acphold.Turn) -> None:
        try:
            await misuse(turn)
        except Exception as exc:
            raised.append(exc)

    result = await one_turn(work)
    assert [type(exc) for exc in raised] == [error]
    assert result.stop_reason == "end_turn"
    assert result.text == ""


@pytest.mark.parametrize(
    ("ended", "reason"),
    [
        (None, "end_turn"),
        ("max_tokens", "max_tokens"),
        (acphold.Refusal(), "refusal"),
        (acphold.MaxTurnRequests(), "max_turn_requests"),
        (ExceptionGroup("", [acphold.MaxTokens()]), "max_tokens"),
    ],
)
async def test_a_stop_reason_is_returned_or_raised(ended: object, reason: str) -> None:
    async def work(turn: acphold.Turn) -> object:
        await turn.say("so far")
        if isinstance(ended, Exception):
            raise ended
        return ended

    result = await one_turn(work)
    assert (result.stop_reason, result.text) == (reason, "so far")


async def test_a_turn_that_is_over_can_say_and_start_nothing_more() -> None:
    turns: list[acphold.Turn] = []
    calls: list[acphold.RunningTool] = []

    async def work(turn: acphold.Turn) -> None:
        turns.append(turn)
        await turn.say("something")
        calls.append(turn.tool("left open"))
        await calls[0].start()

    async with connect(agent_that(work)) as client:
        result = await (await client.new_session()).prompt("go")
        [turn], [call] = turns, calls
        with pytest.raises(acphold.DeclarationError, match="turn is over"):
            await turn.say("more")
        with pytest.raises(acphold.DeclarationError, match="is over"):
            turn.tool("another")
        with pytest.raises(acphold.DeclarationError, match="is over"):
            await call.content("more")
    assert [call.status for call in result.tool_calls] == ["failed"]


async def test_the_log_names_the_authors_line_where_a_call_comes_after_the_turn(
    caplog: pytest.LogCaptureFixture,
) -> None:
    late: list[Any] = []

    async def misuse(turn: acphold.Turn) -> None:
        if late:
            async with late[0]:
                pass
        late.append(turn.tool("left open"))

    async with opened(agent_that(misuse)) as (_, session):
        await session.prompt("go")
        with pytest.raises(acphold.AcpError), caplog.at_level("WARNING"):
            await session.prompt("go again")
    assert f"({__file__}:" in caplog.text


async def test_history_is_the_conversation_before_the_prompt() -> None:
    seen: list[list[tuple[str, str]]] = []

    async def work(turn: acphold.Turn) -> None:
        await turn.say(f"answer to {turn.text}")
        await asyncio.sleep(0)  # so that it is journalled: this turn is no history yet
        history = await turn.history()
        seen.append(
            [
                (item.role, item.text)
                for item in history.timeline
                if isinstance(item, acphold.Message)
            ]
        )

    async def talk(client: WatchedAgent) -> None:
        session = await client.new_session()
        await session.prompt("one")
        await session.prompt("two")
        await client.restart()
        session = await client.load_session(session.id)
        await session.prompt("three")

    async with connect(agent_that(work)) as client:
        await talk(client)
    one = [("user", "one"), ("agent", "answer to one")]
    two = [("user", "two"), ("agent", "answer to two")]
    assert seen == [[], one, [*one, *two]]


async def test_the_last_turns_of_the_history_can_be_had_alone() -> None:
    seen: list[list[str]] = []

    async def work(turn: acphold.Turn) -> None:
        history = await turn.history(last=2)
        seen.append([item.text for item in history.timeline if isinstance(item, acphold.Message)])
        await turn.say(f"to {turn.text}")

    async with opened(agent_that(work)) as (_, session):
        for words in ("one", "two", "three", "four"):
            await session.prompt(words)
    assert seen == [
        [],
        ["one", "to one"],
        ["one", "to one", "two", "to two"],
        ["two", "to two", "three", "to three"],
    ]


async def test_nobody_can_ask_for_the_last_no_turns() -> None:
    async def work(turn: acphold.Turn) -> None:
        await turn.history(last=0)

    async with opened(agent_that(work)) as (_, session):
        with pytest.raises(acphold.RemoteError, match="at least 1, not 0"):
            await session.prompt("one")


async def test_others_run_while_a_long_history_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "SLICE_SECONDS", 0.0)  # each entry is long
    monkeypatch.setattr(bounds, "KEPT_BYTES", 100)
    beats = 0

    async def beat() -> None:
        nonlocal beats
        while True:
            beats += 1
            await asyncio.sleep(0)

    async def work(turn: acphold.Turn) -> None:
        if turn.text == "say":
            for number in range(50):
                await turn.think(f"{number} ")
                await turn.say(f"{number} ")
            return
        beating = asyncio.create_task(beat())
        for _ in range(2):  # a long history is not kept in memory the first time
            before = beats
            history = await turn.history()
            assert len(history.timeline) == 102
            assert beats - before > 100
        beating.cancel()

    async with opened(agent_that(work)) as (_, session):
        await session.prompt("say")
        await session.prompt("read")


async def test_the_history_tells_how_each_turn_ended() -> None:
    seen: list[tuple[str, str | None]] = []

    async def work(turn: acphold.Turn) -> Any:
        history = await turn.history()
        seen[:] = [
            (item.outcome, item.message)
            for item in history.timeline
            if isinstance(item, acphold.TurnEnd)
        ]
        match turn.text:
            case "refuse":
                return "refusal"
            case "fail":
                raise acphold.RemoteError(-32000, "the quota is used up")
            case "wait":
                await turn.say("waiting")
                await asyncio.Event().wait()
        return None

    async with opened(agent_that(work)) as (_, session):
        await session.prompt("work")
        await session.prompt("refuse")
        with pytest.raises(acphold.RemoteError):
            await session.prompt("fail")
        waiting = session.prompt("wait")
        await session.until_said("waiting")
        session.cancel()
        await waiting
        await session.prompt("so?")
    failed = ("failed", "the quota is used up")
    assert seen == [("completed", None), ("refused", None), failed, ("cancelled", None)]


async def test_content_that_was_not_advertised_is_refused_on_the_way_in() -> None:
    image = acphold.ImageContent(data="aGk=", mime_type="image/png")
    link = acphold.ResourceLink(name="a", uri="file:///a")
    async with opened(agent_that(lambda turn: turn.say("seen"))) as (client, session):
        unfit = PromptRequest(session_id=session.id, prompt=(link, image))
        with pytest.raises(
            acphold.RemoteError, match=r"prompt\[1\]: this agent does not accept image"
        ):
            await client.ask(PROMPT, unfit)
        with pytest.raises(acphold.CapabilityError, match="image"):
            await session.prompt("look", image)
        assert (await session.prompt("look", link)).text == "seen"
    async with connect(agent_that(lambda turn: turn.say("seen"), image=True)) as client:
        assert client.initialized.agent_capabilities.prompt_capabilities.image
        assert (await (await client.new_session()).prompt(image)).text == "seen"


async def test_what_is_too_long_for_one_message_arrives_in_pieces() -> None:
    text = "0123456789abcdef" * (70 << 16)  # 70 MiB

    async def long(turn: acphold.Turn) -> None:
        await turn.say(text)
        await turn.think(text[:100_000])

    result = await one_turn(long)
    assert result.text == text
    assert result.thoughts == text[:100_000]


async def test_an_update_that_no_client_could_read_is_refused_and_the_turn_goes_on() -> None:
    async def long(turn: acphold.Turn) -> None:
        with pytest.raises(acphold.DeclarationError, match="70 MiB is longer than clients read"):
            await turn.say(acphold.ImageContent(data="x" * (70 << 20), mime_type="image/png"))
        await turn.say("and on")

    assert (await one_turn(long)).text == "and on"
