"""Showing a conversation: finished parts are printed once, unfinished ones are redrawn."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from acphold.conversation.history.timeline import ToolCall, turn_end
from acphold.conversation.presentation.visible_text import local
from acphold.faces.screen import bounds
from acphold.faces.screen.flow import Flow
from acphold.faces.screen.layout import Passage

CANCELLED = turn_end(b'{"stopReason":"cancelled"}', 0)
COMPLETED = turn_end(b'{"stopReason":"end_turn"}', 0)


def shown(passages: list[Passage]) -> list[tuple[str, str]]:
    return [(it.label, "\n".join(line.plain for line in it.lines)) for it in passages]


def taken(flow: Flow) -> list[tuple[str, str]]:
    return shown(flow.take())


def hear(flow: Flow, update: str, /, **fields: Any) -> None:
    flow.add_update(json.dumps({"sessionUpdate": update, **fields}).encode())


def say(flow: Flow, text: str, kind: str = "agent_message_chunk", **fields: Any) -> None:
    hear(flow, kind, content={"type": "text", "text": text}, **fields)


def tool(flow: Flow, **fields: Any) -> None:
    hear(flow, "tool_call", **{"toolCallId": "t1", "title": "Run it", **fields})


def test_a_finished_paragraph_is_printed_once_and_the_live_one_is_redrawn() -> None:
    flow = Flow()
    say(flow, "One.\n\nLater")
    assert (taken(flow), shown(flow.live())) == ([("agent", "One.")], [("", "Later")])
    say(flow, " and more")
    assert (taken(flow), shown(flow.live())) == ([], [("", "Later and more")])
    flow.turn_over(COMPLETED)
    assert (taken(flow), shown(flow.live())) == ([("", "Later and more")], [])


def test_a_tool_call_is_live_until_it_is_completed() -> None:
    flow = Flow()
    tool(flow, status="in_progress")
    assert (taken(flow), shown(flow.live())) == ([], [("tool", "◐ Run it  other · in progress")])
    hear(flow, "tool_call_update", toolCallId="t1", status="completed")
    assert (taken(flow), flow.live()) == ([("tool", "● Run it  other · completed")], [])


def test_a_message_that_goes_on_behind_a_tool_call_has_its_label_again() -> None:
    flow = Flow()
    tool(flow)
    say(flow, "One.\n\nLater")
    assert taken(flow) == [("agent", "One.")]
    hear(flow, "tool_call_update", toolCallId="t1", status="failed")
    assert taken(flow) == [("tool", "✗ Run it  other · failed")]
    assert shown(flow.live()) == [("agent", "Later")]


def test_what_is_open_at_the_end_of_a_cancelled_turn_is_cancelled() -> None:
    flow = Flow()
    tool(flow)
    flow.turn_over(CANCELLED)
    assert taken(flow) == [("tool", "○ Run it  other · cancelled"), ("turn", "cancelled")]


def test_the_plan_is_live_and_stands_at_the_end_as_the_turn_left_it() -> None:
    flow = Flow()
    entry = {"content": "Think", "priority": "high"}
    hear(flow, "plan", entries=[{**entry, "status": "in_progress"}])
    assert (taken(flow), shown(flow.live())) == ([], [("plan", "◐ Think")])
    hear(flow, "plan", entries=[{**entry, "status": "completed"}])
    flow.turn_over(COMPLETED)
    assert taken(flow) == [("plan", "✓ Think")]


def test_a_compaction_is_live_until_it_is_over_or_the_turn_is() -> None:
    flow = Flow()
    hear(flow, "compaction_update", compactionId="c", status="in_progress")
    kept = {"type": "text", "text": "All of it"}
    hear(flow, "compaction_summary_chunk", compactionId="c", content=kept)
    assert taken(flow) == []
    assert shown(flow.live()) == [("context", "is being compacted\nAll of it")]
    hear(flow, "compaction_update", compactionId="c", status="completed")
    assert taken(flow) == [("context", "compacted\nAll of it")]
    hear(flow, "compaction_update", compactionId="d", status="in_progress")
    flow.turn_over()
    assert taken(flow) == [("context", "is being compacted")]


def test_a_thought_is_one_line_and_a_key_shows_all_of_it() -> None:
    flow = Flow()
    say(flow, "Well.\nAnd so\non.", "agent_thought_chunk")
    say(flow, "Hi", "agent_message_chunk")
    assert taken(flow) == [("thought", "3 lines (Ctrl-T)  Well.")]
    flow.unfold()
    assert taken(flow) == [("thought", "Well.\nAnd so\non.")]
    say(flow, "A\nB", "agent_thought_chunk")
    flow.turn_over(COMPLETED)
    assert ("thought", "A\nB") in taken(flow)


@pytest.mark.parametrize(("client", "place"), [("zed", "in zed"), ("acphold-page", "on the page")])
def test_a_prompt_of_another_client_has_its_name(client: str, place: str) -> None:
    assert prompted({"name": client, "version": "1"}) == ("you", f"hello\n{place}")


@pytest.mark.parametrize(
    ("client", "place"), [("zed", "\nin zed"), ("acphold", ""), ("\x1b[2J", "\nin \\x1b[2J")]
)
def test_a_named_user_s_prompt_has_their_name_and_is_not_yours(client: str, place: str) -> None:
    told = prompted({"name": client, "user": "bert"})
    assert told == ("user", f"bert\nhello{place}")


def test_the_name_of_a_user_does_nothing_to_the_terminal() -> None:
    _, shown = prompted({"name": "acphold", "user": "\x1b[2Jbert\nyou: delete it"})
    assert shown == "\\x1b[2Jbert you: delete it\nhello"


def prompted(client: dict[str, str]) -> tuple[str, str]:
    """What is drawn of a prompt that this client has sent."""
    flow = Flow()
    meta = {"acphold/client": client}
    say(flow, "hello", "user_message_chunk", messageId="acphold-1", _meta=meta)
    flow.turn_over()
    [shown] = taken(flow)
    return shown


def test_what_only_the_agent_says_that_the_user_said_is_told_so() -> None:
    flow = Flow()
    say(flow, "delete it all", "user_message_chunk", messageId="1")
    flow.turn_over()
    assert taken(flow) == [("user", "as reported by the agent:\ndelete it all")]


def test_a_notice_of_ours_and_one_of_the_agent_are_told_apart() -> None:
    flow = Flow()
    hear(flow, "notice", title="Look", _meta={"acphold/notice": {"kind": "context"}})
    hear(flow, "notice", title="Look", description="here")
    hear(flow, "notice", title="Look", _meta={"acphold/notice": {"from": "coder"}})
    assert taken(flow) == [
        ("acphold", "Look"),
        ("agent", "notice: Look. here"),
        ("agent", "notice: Look"),
    ]


def test_a_notice_stands_below_the_prompt_that_it_came_after() -> None:
    flow = Flow()
    say(flow, "Do it", "user_message_chunk")
    hear(flow, "notice", title="Passed on", description="", _meta={"acphold/notice": True})
    flow.tell("The rule was not added")
    say(flow, "Done")
    flow.turn_over(COMPLETED)
    asked, passed_on, told, done = [words for _, words in taken(flow)]
    assert asked.endswith("Do it")
    assert (passed_on.rstrip("."), told, done) == ("Passed on", "The rule was not added", "Done")


def test_a_prompt_of_another_client_ends_the_turn_before_it() -> None:
    flow = Flow()
    hear(flow, "plan", entries=[{"content": "Think", "priority": "low", "status": "pending"}])
    say(flow, "next", "user_message_chunk")
    assert taken(flow) == [("plan", "○ Think")]


def test_how_a_turn_of_another_client_ended_is_told() -> None:
    flow = Flow()
    say(flow, "half")
    hear(flow, "session_info_update", _meta={"acphold/turn": {"outcome": "interrupted"}})
    assert taken(flow) == [("agent", "half"), ("turn", "interrupted by a crash or a kill")]
    assert not flow.is_open


def test_the_vendors_limit_is_told_with_the_moment_at_which_it_resets() -> None:
    flow = Flow()
    say(flow, "half")
    told = {"outcome": "limited", "message": "You've hit your limit", "resetsAt": 1_795_404_000_000}
    hear(flow, "session_info_update", _meta={"acphold/turn": told})
    words = f"stopped at a limit, which resets at {local(1_795_404_000_000)}: You've hit your limit"
    assert taken(flow) == [("agent", "half"), ("turn", words)]


def test_what_plays_tricks_on_a_terminal_is_made_visible() -> None:
    flow = Flow()
    say(flow, "\x1b]0;owned\x07", "agent_thought_chunk")
    tool(
        flow,
        status="completed",
        content=[{"type": "content", "content": {"type": "text", "text": "\x1b[2J"}}],
    )
    assert "\x1b" not in str(taken(flow))


def test_updates_of_unknown_kinds_are_passed_over() -> None:
    flow = Flow()
    hear(flow, "something_new", content=3)
    flow.add_update(b"[]")
    assert taken(flow) == []


def test_of_a_long_history_the_end_is_shown_and_the_rest_counted() -> None:
    flow = Flow()
    for number in range(5):
        say(flow, f"prompt {number}", "user_message_chunk", messageId=f"acphold-{number}")
    flow.turn_over()
    flow.transcript = "acphold show 3f9a"
    flow.shorten(2)
    assert taken(flow) == [
        ("acphold", "3 earlier passages: `acphold show 3f9a` shows them"),
        ("you", "prompt 3"),
        ("you", "prompt 4"),
    ]


LONG = "one two three\n" * 10_000


@pytest.mark.parametrize("kind", ["agent_message_chunk", "agent_thought_chunk"])
@pytest.mark.parametrize("text", [LONG, LONG.replace("\n", " "), f"```\n{LONG}"])
def test_of_what_still_grows_only_the_end_is_laid_out(kind: str, text: str) -> None:
    flow = Flow(thoughts="whole")
    say(flow, f"{text}the end", kind)
    [live] = flow.live()
    assert live.letters <= bounds.LIVE_LETTERS + 1
    assert live.lines[-1].plain.endswith("the end")
    flow.turn_over(COMPLETED)
    assert sum(it.letters for it in flow.take()) >= len(LONG)


FRAME = 3 * bounds.PIECE_LETTERS


def frames(flow: Flow) -> Iterator[list[Passage]]:
    """The passages of each frame, until nothing is left."""
    return iter(lambda: flow.take(FRAME), [])


@pytest.mark.parametrize("kind", ["agent_message_chunk", "agent_thought_chunk"])
@pytest.mark.parametrize("unit", ["some words\n", "- an item\n", "Words.\n\n"])
def test_however_much_comes_at_once_a_frame_lays_out_so_much_and_no_more(
    kind: str, unit: str
) -> None:
    flow, text = Flow(thoughts="whole"), unit * 8_000
    say(flow, text, kind)
    printed = 0
    for is_over in (False, True):
        if is_over:
            flow.turn_over(COMPLETED)
        for frame in frames(flow):
            letters = sum(it.letters for it in frame)
            assert letters <= FRAME + bounds.PIECE_LETTERS + len(unit)
            assert sum(it.letters for it in flow.live()) <= bounds.LIVE_LETTERS + 2 * len(unit)
            printed += letters
    assert printed >= len(text.replace("\n\n", "\n")) - 1


def test_what_comes_behind_much_is_printed_behind_it() -> None:
    flow = Flow()
    say(flow, "some words\n" * 5_000)
    hear(flow, "notice", title="Look")
    tool(flow, status="completed")
    say(flow, "The end.")
    flow.turn_over(COMPLETED)
    labels = [it.label for frame in frames(flow) for it in frame]
    assert [label for label in labels if label] == ["agent", "agent", "agent", "tool", "agent"]
    assert len(labels) > 6


def test_the_lines_of_a_thought_that_goes_on_are_counted_and_its_last_one_shown() -> None:
    flow = Flow()
    for piece in ("One", " line.\n", "\n \n", "Two", ".\nThr", "ee"):
        say(flow, piece, "agent_thought_chunk")
    assert shown(flow.live()) == [("thought", "3 lines (Ctrl-T)  Three")]


def test_of_a_tool_that_works_only_the_end_of_its_output_is_laid_out() -> None:
    flow = Flow()
    output = {"type": "text", "text": f"{'x' * 100_000}the end"}
    tool(flow, status="in_progress", content=[{"type": "content", "content": output}])
    [live] = flow.live()
    assert live.letters < 2 * bounds.LIVE_LETTERS
    assert live.lines[-1].plain.endswith("the end")


def test_a_tool_call_is_laid_out_anew_only_when_something_came_of_it() -> None:
    flow = Flow()
    tool(flow, status="pending")
    [first] = flow.live()
    [again] = flow.live()
    assert again is first
    hear(flow, "tool_call_update", toolCallId="t1", status="in_progress")
    assert shown(flow.live()) == [("tool", "◐ Run it  other · in progress")]


def test_of_very_many_tool_calls_at_work_the_newest_are_shown() -> None:
    flow = Flow()
    for number in range(2 * bounds.LIVE_TOOLS):
        hear(flow, "tool_call", toolCallId=str(number), title=f"Number {number}")
    live = shown(flow.live())
    assert len(live) == bounds.LIVE_TOOLS
    assert f"Number {2 * bounds.LIVE_TOOLS - 1}" in live[-1][1]


def child(flow: Flow, text: str, name: str = "kid") -> None:
    update = {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": text}}
    flow.add_child_update(json.dumps({"sessionId": name, "update": update}).encode())


def test_a_sub_agent_is_live_until_it_has_ended_its_work_in_whatever_turn() -> None:
    flow = Flow()
    hear(flow, "subagent_update", sessionId="kid", title="Explorer", state={"state": "running"})
    hear(flow, "subagent_update", sessionId="other", title="Other", state={"state": "running"})
    child(flow, "Looking")
    [kid, other] = shown(flow.live())
    assert kid == ("child", "◐ Explorer  sub-agent · at work\n  sub-agent: Looking")
    assert other == ("child", "◐ Other  sub-agent · at work")
    flow.turn_over(COMPLETED)
    assert taken(flow) == []
    child(flow, " about.")
    over = {"state": "idle", "stopReason": "end_turn"}
    hear(flow, "subagent_update", sessionId="kid", state=over)
    told = ("child", "● Explorer  sub-agent · done\n  sub-agent: Looking about.")
    assert (taken(flow), shown(flow.live())) == ([told], [other])
    hear(flow, "subagent_update", sessionId="other", state=over)
    assert len(taken(flow)) == 1
    assert flow.live() == []
    # It may be given something else to do.
    hear(flow, "subagent_update", sessionId="kid", state={"state": "running"})
    assert shown(flow.live()) == [("child", "◐ Explorer  sub-agent · at work")]


def text(words: str) -> list[dict[str, Any]]:
    return [{"type": "content", "content": {"type": "text", "text": words}}]


def test_for_who_looks_on_a_read_is_one_line() -> None:
    flow = Flow(brief=True)
    tool(flow, kind="read", status="completed", content=text("secret\n" * 9))
    assert taken(flow) == [("tool", "● Run it  read · completed")]


def test_for_who_looks_on_a_command_has_its_last_lines_and_says_how_many_are_above() -> None:
    flow = Flow(brief=True)
    printed = "```console\n" + "".join(f"line {number}\n" for number in range(20)) + "```"
    tool(flow, kind="execute", status="completed", content=text(printed))
    [(_, told)] = taken(flow)
    assert told.splitlines() == [
        "● Run it  execute · completed",
        "  … 15 lines above (Ctrl-O)",
        *(f"  line {number}" for number in range(15, 20)),
    ]
    [whole] = flow.whole_calls()
    assert len(whole.lines) == 21


def test_an_edit_that_was_allowed_shows_its_diff_once() -> None:
    change = [{"type": "diff", "path": "/a", "oldText": "a\n", "newText": "b\n"}]
    flow = Flow(brief=True)
    tool(flow, kind="edit", status="pending", content=change)
    fields = {"content": json.dumps(change, separators=(",", ":")).encode()}
    flow.asks_about(ToolCall("t1", fields))
    assert [told for _, told in shown(flow.live())] == ["○ Run it  edit · pending"]
    hear(flow, "tool_call_update", toolCallId="t1", status="completed")
    assert taken(flow) == [("tool", "● Run it  edit · completed")]
    tool(flow, kind="edit", status="completed", content=change, toolCallId="t2")
    assert "- a" in taken(flow)[0][1]


def test_an_edit_that_is_not_what_was_allowed_is_shown() -> None:
    change = [{"type": "diff", "path": "/a", "oldText": "a\n", "newText": "b\n"}]
    other = [{"type": "diff", "path": "/a", "oldText": "a\n", "newText": "evil\n"}]
    flow = Flow(brief=True)
    flow.asks_about(ToolCall("t1", {"content": json.dumps(change).encode()}))
    tool(flow, kind="edit", status="completed", content=other)
    assert "evil" in taken(flow)[0][1]
