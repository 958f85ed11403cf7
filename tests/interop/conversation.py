"""A conversation, however it is cut: a replay and a live stream must have it in common.

Written from the schema alone and without our own fold, because it checks that fold.
"""

from __future__ import annotations

from collections.abc import Iterable

from tests.interop.wire import Json

CHUNKS = {"user_message_chunk", "agent_message_chunk", "agent_thought_chunk"}
TOOLS = {"tool_call", "tool_call_update"}
TIMELINE = {*CHUNKS, *TOOLS, "plan"}
"""Updates with a place in the conversation. The others describe the session, and may be sent before
or after a prompt in flight."""

AUTHOR = "acphold/client"
INTERRUPTED = {"acphold/turn": {"outcome": "interrupted"}}


LOST = "/without-history"
"""The command in the line that says what an agent has lost."""


def timeline(updates: Iterable[Json]) -> list[Json]:
    """The conversation in `updates`, in order.

    The chunks of a message become one message. A tool call and its updates become one call, at the
    place where it began, with the last value of each field. Of the plans since the last prompt only
    the newest stays, because each plan is complete.
    """
    items: list[Json] = []
    tools: dict[str, Json] = {}
    plan: Json | None = None
    for update in without_authors(updates):
        kind = update["sessionUpdate"]
        if kind == "user_message_chunk":
            plan = None
        if kind in CHUNKS:
            _add_chunk(items, update)
        elif kind in TOOLS and update["toolCallId"] in tools:
            call = tools[update["toolCallId"]]
            call.update({**update, "sessionUpdate": call["sessionUpdate"]})
        elif kind in TIMELINE:
            items.append(dict(update))
            if kind in TOOLS:
                tools[update["toolCallId"]] = items[-1]
            else:
                items = [item for item in items if item is not plan]
                plan = items[-1]
    return items


def attributes(updates: Iterable[Json]) -> list[Json]:
    """The updates that say how the session stands, in order."""
    return [update for update in updates if update["sessionUpdate"] not in TIMELINE]


def lasting(updates: Iterable[Json]) -> list[Json]:
    """The updates without acphold's live-only notices, which no replay has."""
    return [update for update in updates if not _is_of_the_moment(update)]


def text(updates: Iterable[Json], kind: str = "agent_message_chunk") -> str:
    """All that was said in chunks of this kind, but what acphold says of an agent's memory."""
    said = (
        update["content"]
        for update in updates
        if update["sessionUpdate"] == kind and LOST not in str(update["content"])
    )
    return "".join(content.get("text", "") for content in said)


def without_authors(updates: Iterable[Json]) -> list[Json]:
    """The updates without their authors: the one who prompted is not sent these live; and without
    the line that says what an agent has lost."""
    found = []
    for update in updates:
        if LOST in str(update.get("content")):
            continue
        meta = update.get("_meta") or {}
        if AUTHOR in meta:
            update = {key: value for key, value in update.items() if key != "_meta"}
            if others := {key: value for key, value in meta.items() if key != AUTHOR}:
                update["_meta"] = others
        found.append(update)
    return found


def assert_same(seen: Iterable[Json], replay: Iterable[Json]) -> None:
    """Nothing is missing, nothing is there twice, and the order is kept."""
    was, now = lasting(seen), list(replay)
    assert timeline(now) == timeline(was)
    assert attributes(now) == attributes(was)


def assert_all_there(seen: Iterable[Json], replay: Iterable[Json]) -> None:
    """Like `assert_same`, after everything was killed in the middle of a message.

    The replay may have more words of that message, which were journalled but not yet seen. An open
    tool call has failed, and the end is marked as interrupted.
    """
    was, now = lasting(seen), list(replay)
    *before, last_seen = timeline(was)
    *same, last = timeline(now)
    assert [_ended(item) for item in same] == [_ended(item) for item in before]
    assert {**last, "content": None} == {**last_seen, "content": None}
    assert last["content"][-1]["text"].startswith(last_seen["content"][-1]["text"])
    open_calls = [item for item in same if item.get("status") in ("pending", "in_progress")]
    assert open_calls == []
    stood, stood_before = attributes(now), attributes(was)
    assert stood[: len(stood_before)] == stood_before
    # An agent that is back may say more, behind the mark.
    assert [it.get("_meta") for it in stood].count(INTERRUPTED) == 1


def _add_chunk(items: list[Json], update: Json) -> None:
    last = items[-1] if items else {}
    message = _message(update)
    if _message(last) != message:
        items.append({**message, "content": [dict(update["content"])]})
        return
    block, content = dict(update["content"]), last["content"]
    if block.keys() == content[-1].keys() == {"type", "text"}:
        content[-1]["text"] += block["text"]
    else:
        content.append(block)


def _message(update: Json) -> Json:
    """The marks that tell a message from the next: kind, id, and the fields beside its content."""
    message = {name: value for name, value in update.items() if name != "content"}
    if message.get("sessionUpdate") == "user_message_chunk":
        message.pop("messageId", None)  # the prompting client did not have one
    return message


def _ended(item: Json) -> Json:
    """A tool call that did not end well, without how it stands; anything else as it is."""
    if item["sessionUpdate"] not in TOOLS or item.get("status") == "completed":
        return item
    return {name: value for name, value in item.items() if name not in ("status", "_meta")}


def _is_of_the_moment(update: Json) -> bool:
    return update["sessionUpdate"] == "notice" or "acphold/notice" in update.get("_meta", {})
