"""A conversation, whatever it is cut into: what a replay and a live stream must have in common.

Written from the schema alone and without our own fold, which is what it checks.
"""

from __future__ import annotations

from collections.abc import Iterable

from tests.interop.wire import Json

CHUNKS = {"user_message_chunk", "agent_message_chunk", "agent_thought_chunk"}
TOOLS = {"tool_call", "tool_call_update"}


def folded(updates: Iterable[Json]) -> list[Json]:
    """The conversation in `updates`, in order.

    Chunks of one message become one, with their texts joined; a tool call and its updates become
    one, where the call began, each field as it was set last. Everything else stays as it came.
    """
    items: list[Json] = []
    tools: dict[str, Json] = {}
    for update in updates:
        kind = update["sessionUpdate"]
        if kind in CHUNKS:
            _add_chunk(items, update)
        elif kind in TOOLS and update["toolCallId"] in tools:
            call = tools[update["toolCallId"]]
            call.update({**update, "sessionUpdate": call["sessionUpdate"]})
        else:
            items.append(dict(update))
            if kind in TOOLS:
                tools[update["toolCallId"]] = items[-1]
    return items


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
    """All that tells a message from the next: its kind, its id, what is beside its content."""
    message = {name: value for name, value in update.items() if name != "content"}
    if message.get("sessionUpdate") == "user_message_chunk":
        message.pop("messageId", None)  # the prompting client did not have one
    return message


def is_of_the_moment(update: Json) -> bool:
    """Whether holdfast says this once, to whoever is there: it is in no replay."""
    return "holdfast/notice" in update.get("_meta", {}) or update["sessionUpdate"] == "notice"


def lasting(updates: Iterable[Json]) -> list[Json]:
    """The updates without what is of the moment."""
    return [update for update in updates if not is_of_the_moment(update)]


def text(updates: Iterable[Json], kind: str = "agent_message_chunk") -> str:
    """All that was said in chunks of this kind."""
    said = (update["content"] for update in updates if update["sessionUpdate"] == kind)
    return "".join(content.get("text", "") for content in said)


def assert_all_there(seen: list[Json], replay: list[Json]) -> None:
    """A replay after a crash has all that was seen, in order and once.

    Beyond that it may have what had been written down and not yet been seen: more words of the
    last message. A tool call that was open has failed, and the end is marked as interrupted.
    """
    was, now = folded(lasting(seen)), folded(replay)
    assert now[-1].get("_meta", {}).get("holdfast/turn") == "interrupted"
    now.pop()
    *before, last_seen = was
    *same, last = now
    assert [_settled(item) for item in before] == [_settled(item) for item in same]
    assert _message(last_seen) == _message(last)
    assert last["content"][-1]["text"].startswith(last_seen["content"][-1]["text"])
    for item in now:
        assert item.get("status") not in ("pending", "in_progress"), "a tool call stayed open"


def _settled(item: Json) -> Json:
    """A tool call without how it stands, if it did not end well."""
    if item["sessionUpdate"] != "tool_call" or item.get("status") == "completed":
        return item
    return {name: value for name, value in item.items() if name not in ("status", "_meta")}
