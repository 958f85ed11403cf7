"""The beginning of a long update is an update: it says the same, up to where it was cut."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, strategies as st

from acphold.conversation.history.beginnings import beginning, whole_bytes
from acphold.conversation.history.entries import HEAD_BYTES
from acphold.conversation.history.raw_update import items, members

HEAD = {
    "sessionUpdate": "tool_call",
    "toolCallId": "t",
    "title": 'Run {it, ["now"]}',
    "kind": "execute",
    "status": "completed",
    "_meta": {"own": 1},
}
TEXT = 'né "quoted" \\ back\\\\slash\n\t😀 \u2028 {"a": [1, 2]} \x1b[31m, end'


def said(text: str) -> dict[str, Any]:
    return {"type": "content", "content": {"type": "text", "text": text}}


def diff(old: str | None, new: str) -> dict[str, Any]:
    return {"type": "diff", "path": "/a", "oldText": old, "newText": new}


def cut_from(raw: bytes) -> dict[int, dict[str, bytes]]:
    """The beginnings of an update, by the bytes that they are made of."""
    made = ((size, beginning(raw[:size], len(raw), least=0)) for size in range(len(raw)))
    found = {size: members(cut) for size, cut in made if cut is not None}
    assert all(found.values())
    return found


PARTS = st.lists(
    st.sampled_from(
        [said("short"), said(TEXT), diff(TEXT, "b"), diff("a", TEXT), diff(None, TEXT)]
    ),
    max_size=3,
)


@given(PARTS, st.booleans(), st.sampled_from([{}, {"rawOutput": TEXT}, {"rawOutput": [[TEXT]]}]))
def test_it_says_what_the_whole_says_up_to_where_it_was_cut(
    parts: list[dict[str, Any]], ascii_only: bool, more: Mapping[str, Any]
) -> None:
    update = {**HEAD, "content": parts, **more}
    raw = json.dumps(update, ensure_ascii=ascii_only).encode()
    for cut in cut_from(raw).values():
        shown = [json.loads(it) for it in items(cut["content"])]
        for name in ("title", "kind", "status"):
            assert json.loads(cut[name]) == HEAD[name]
        if not whole_bytes(cut, least=0):  # cut in what follows, which is left out
            assert shown == parts
            assert "rawOutput" not in cut
            continue
        assert whole_bytes(cut, least=0) == len(raw)
        assert json.loads(cut["_meta"])["own"] == 1
        part, whole = shown.pop(), parts[len(shown)]
        assert shown == parts[: len(shown)]
        if whole["type"] == "content":
            assert whole["content"]["text"].startswith(part["content"]["text"])
        else:
            assert part["path"] == "/a"
            assert (whole["oldText"] or "").startswith(part["oldText"] or "")
            assert whole["newText"].startswith(part["newText"])


@pytest.mark.parametrize("ascii_only", [False, True])
def test_of_a_text_little_is_lost_at_the_cut(ascii_only: bool) -> None:
    raw = json.dumps({**HEAD, "content": [said(TEXT)]}, ensure_ascii=ascii_only).encode()
    begins = raw.index(b'"text": "n') + len(b'"text": "')
    found = cut_from(raw)
    assert [*found] == [*range(begins, raw.rindex(b'"') + 1)]
    for size, cut in found.items():
        (part,) = items(cut["content"])
        text = json.dumps(json.loads(part)["content"]["text"], ensure_ascii=ascii_only)
        assert len(text.encode()) - 2 >= size - begins - 16


@pytest.mark.parametrize("missing", ["title", "kind", "status", "toolCallId", "sessionUpdate"])
def test_what_may_follow_makes_all_of_it_needed(missing: str) -> None:
    before = {name: it for name, it in HEAD.items() if name != missing}
    update = {**before, "content": [said(TEXT)], missing: HEAD[missing]}
    assert not cut_from(json.dumps(update).encode())
    assert not cut_from(json.dumps({**before, "rawInput": {missing: TEXT}}).encode())


@pytest.mark.parametrize(
    "content",
    [
        [{"type": "terminal", "terminalId": "1"}, said(TEXT)],
        [{"content": {"type": "text", "text": TEXT}, "type": "content"}],
        [{"type": "content", "content": {"text": TEXT, "type": "text"}}],
        [{"type": "content", "content": {"type": "image", "data": TEXT, "mimeType": "image/png"}}],
        [{"type": "content", "content": {"type": "newer", "text": TEXT}}],
        [{"type": "diff", "oldText": "a", "newText": TEXT, "path": "/a"}],
        [TEXT],
        {"content": TEXT},
        TEXT,
    ],
)
def test_content_of_another_form_is_not_cut(content: object) -> None:
    raw = json.dumps({**HEAD, "content": content}).encode()
    assert not cut_from(raw)


def test_what_is_no_update_is_not_cut() -> None:
    for raw in (b"", b'"' + b"x" * 50, b"[" * 50, b'{"a":' * 50, b"}" * 50, b'\\"', b"{,}"):
        assert not cut_from(raw)
    assert beginning(b'{"rawInput":[%b' % (b"1," * 300_000), 10**7) is None


def test_a_short_content_is_not_cut_whatever_an_agent_says_of_it() -> None:
    content = json.dumps([diff("a", TEXT)]).encode()
    told = {"content": content, "_meta": b'{"acphold/whole":[9000000,%d]}' % len(content)}
    assert whole_bytes(told) == 0
    raw = json.dumps({**HEAD, "rawInput": "x" * HEAD_BYTES, "content": [said(TEXT)]}).encode()
    assert beginning(raw[:-20], len(raw)) is None
