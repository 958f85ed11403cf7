"""Made-up conversations: strategies for updates, entries and the segments they are kept in."""

from __future__ import annotations

import json
from collections.abc import Sequence

from hypothesis import strategies as st

from acphold.conversation.history.entries import Entry, Segment

Json = dict[str, object]


def chunk(role: str, text: str, **more: object) -> Json:
    """Return a chunk of text by `role` ("user_message", "agent_message", "agent_thought")."""
    return {
        "sessionUpdate": f"{role}_chunk",
        "content": {"type": "text", "text": text},
        **{name: value for name, value in more.items() if value is not None},
    }


def encode(value: object) -> bytes:
    """Return JSON on one line."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def entries_of(segments: Sequence[Segment]) -> list[Entry]:
    """Return all entries of these segments, in order."""
    return [entry for segment in segments for entry in segment.entries()]


TEXTS = st.one_of(
    st.sampled_from(["a", "Hello ", "", "\n", '"', "né", "🙂", "x" * 20_000]),
    st.text(st.characters(codec="utf-8"), max_size=8),
)
MESSAGE_IDS = st.sampled_from([None, None, "m1", "m2", "acphold-1"])
TOOL_IDS = st.sampled_from(["t1", "t2", "t3"])
STATUSES = st.sampled_from(["pending", "in_progress", "completed", "failed", None, 7])
PATHS = st.sampled_from(["/a.py", "/b.py"])


@st.composite
def chunks(draw: st.DrawFn) -> Json:
    update = chunk(
        draw(st.sampled_from(["user_message", "agent_message", "agent_message", "agent_thought"])),
        draw(TEXTS),
    )
    if (message_id := draw(MESSAGE_IDS)) is not None or draw(st.booleans()):
        update["messageId"] = message_id
    extra = draw(st.sampled_from(["", "", "", "", "_meta", "future", "annotations", "image"]))
    if extra in ("_meta", "future"):
        update[extra] = {"k": draw(TEXTS)}
    elif extra == "annotations":
        update["content"] = {"type": "text", "text": draw(TEXTS), "annotations": {"priority": 1}}
    elif extra == "image":
        update["content"] = {"type": "image", "data": "AAAA", "mimeType": "image/png"}
    return update


def _produced(path: str, text: str) -> list[Json]:
    if text == "a":
        return [{"type": "terminal", "terminalId": "term-1"}]
    return [
        {"type": "content", "content": {"type": "text", "text": text}},
        {"type": "diff", "path": path, "oldText": None, "newText": text},
    ]


@st.composite
def _metas(draw: st.DrawFn) -> Json:
    """The `_meta` of a tool call, with the output of an agent's own terminal, too."""
    terminal = {"terminal_id": draw(st.sampled_from(["term-1", "term-1", "term-1", "term-2"]))}
    printed = st.one_of(TEXTS, st.sampled_from(["\u2026\n", "ä\x1b" * 9000, "x" * 30_000]))
    members: dict[str, st.SearchStrategy[Json]] = {
        "k": TEXTS.map(lambda text: {"text": text}),
        "terminal_info": st.just({**terminal, "cwd": "/"}),
        "terminal_output": printed.map(lambda text: {**terminal, "data": text}),
        "terminal_output_delta": printed.map(lambda text: {**terminal, "data": text}),
        "terminal_exit": st.just({**terminal, "exit_code": 0}),
        "terminal_input": st.just({**terminal, "data": "y"}),
        "acphold/failed": st.just({}),
    }
    names = st.sampled_from([*members, "terminal_output", "terminal_output", "terminal_exit"])
    return {name: draw(members[name]) for name in draw(st.lists(names, max_size=3))}


METAS: st.SearchStrategy[Json] = _metas()


@st.composite
def tools(draw: st.DrawFn) -> Json:
    update: Json = {
        "sessionUpdate": draw(st.sampled_from(["tool_call", "tool_call_update"])),
        "toolCallId": draw(TOOL_IDS),
    }
    fields: dict[str, st.SearchStrategy[object]] = {
        "title": st.one_of(TEXTS, st.none()),
        "status": STATUSES,
        "kind": st.sampled_from(["read", "edit", None, ["?"]]),
        "content": st.one_of(st.none(), st.builds(_produced, PATHS, TEXTS), st.just("?")),
        "locations": st.one_of(st.just([]), st.builds(lambda path: [{"path": path}], PATHS)),
        "rawInput": st.one_of(st.none(), st.builds(lambda path: {"path": path}, PATHS)),
        "rawOutput": st.one_of(st.none(), TEXTS, st.integers()),
        "_meta": st.one_of(st.none(), METAS, METAS),
        "future": st.one_of(st.none(), TEXTS),
    }
    for name in draw(st.lists(st.sampled_from(sorted(fields)), unique=True, max_size=4)):
        update[name] = draw(fields[name])
    return update


@st.composite
def compactions(draw: st.DrawFn) -> Json:
    update: Json = {"compactionId": draw(st.sampled_from(["c1", "c1", "c2"]))}
    if draw(st.booleans()):
        text = {"type": "text", "text": draw(TEXTS)}
        image = {"type": "image", "data": "AAAA", "mimeType": "image/png"}
        content = text if draw(st.booleans()) else image
        return {"sessionUpdate": "compaction_summary_chunk", **update, "content": content}
    blocks = st.builds(lambda text: [{"type": "text", "text": text}], TEXTS)
    fields: dict[str, st.SearchStrategy[object]] = {
        "status": st.sampled_from(["in_progress", "completed", "failed", "_own", None, 7]),
        "summary": st.one_of(blocks, st.just([]), st.none(), st.just("?")),
        "error": st.one_of(TEXTS, st.none(), st.just(5)),
        "_meta": st.one_of(st.none(), st.builds(lambda text: {text: 1}, TEXTS)),
        "future": TEXTS,
    }
    for name in draw(st.lists(st.sampled_from(sorted(fields)), unique=True, max_size=4)):
        update[name] = draw(fields[name])
    return {"sessionUpdate": "compaction_update", **update}


INFO: st.SearchStrategy[Json] = st.builds(
    lambda parts: {"sessionUpdate": "session_info_update", **parts},
    st.fixed_dictionaries(
        {},
        optional={
            "title": st.sampled_from(["A title", None, 5]),
            "updatedAt": st.sampled_from(["2026-01-31T12:00:00Z", None, False]),
            "_meta": st.sampled_from([{"a": 1}, {"a": 2, "b": 1}, None]),
        },
    ),
)

OTHERS: st.SearchStrategy[Json] = st.one_of(
    compactions(),
    compactions(),
    INFO,
    st.builds(lambda text: {"sessionUpdate": "plan", "entries": [{"content": text}]}, TEXTS),
    st.builds(
        lambda mode: {"sessionUpdate": "current_mode_update", "currentModeId": mode},
        st.sampled_from(["ask", "code", None]),
    ),
    st.builds(
        lambda name: {
            "sessionUpdate": "available_commands_update",
            "availableCommands": [{"name": name, "description": ""}],
        },
        TEXTS,
    ),
    st.builds(
        lambda value: {"sessionUpdate": "config_option_update", "configOptions": value},
        st.sampled_from([[], [{"id": "model"}], None, "?"]),
    ),
    st.builds(
        lambda used: {"sessionUpdate": "usage_update", "used": used, "size": 9}, st.integers(0, 9)
    ),
    st.just({"sessionUpdate": "notice", "message": "not part of the history"}),
    st.just({"sessionUpdate": "from_the_future", "anything": [1, 2]}),
)

BROKEN = st.sampled_from(
    [
        b'{"sessionUpdate":"agent_message_chunk","content":5}',
        b'{"sessionUpdate":"tool_call"}',
        b'{"sessionUpdate":7}',
        b'{"sessionUpdate":"agent_message_chunk"',
        b"[]",
        b"\xff",
        b"",
        b"[" * 5000,
    ]
)


UPDATES = st.one_of(
    chunks().map(encode), chunks().map(encode), tools().map(encode), OTHERS.map(encode), BROKEN
)
BLOCKS = st.lists(
    st.one_of(
        st.builds(lambda text: {"type": "text", "text": text}, TEXTS),
        st.just({"type": "resource_link", "uri": "file:///a.py", "name": "a.py"}),
    ),
    max_size=3,
)


def _params(update: bytes) -> bytes:
    return b'{"sessionId":"s","update":%b,"_meta":{"trace":1}}' % (update or b"null")


SETTINGS = st.sampled_from(
    [
        b'{"modes":{"currentModeId":"ask","availableModes":[{"id":"ask","name":"Ask"}]}}',
        b'{"modes":null,"configOptions":[]}',
        b"{}",
    ]
)
TURN_ENDS = st.sampled_from(
    [
        b'{"stopReason":"end_turn"}',
        b'{"stopReason":"refusal"}',
        b'{"interrupted":true}',
        b'{"error":{"code":1,"message":"no"}}',
        b"",
    ]
)

IDS = st.sampled_from(["q1", "q2"])
ASKED = st.builds(lambda id_: {"id": id_, "method": "m", "params": {}}, IDS).map(encode)
ANSWERED = st.builds(lambda id_: {"question": id_, "outcome": "answered"}, IDS).map(encode)

PIECES: st.SearchStrategy[tuple[str, list[bytes]]] = st.one_of(
    st.tuples(st.just("update"), st.lists(UPDATES, min_size=1, max_size=6)),
    st.tuples(st.just("update"), st.lists(UPDATES, min_size=1, max_size=6)),
    st.tuples(st.just("params"), st.lists(UPDATES.map(_params), min_size=1, max_size=2)),
    st.tuples(st.just("prompt"), st.lists(BLOCKS.map(encode), min_size=1, max_size=1)),
    st.tuples(st.just("turn_end"), st.lists(TURN_ENDS, min_size=1, max_size=1)),
    st.tuples(st.just("question"), st.lists(ASKED, min_size=1, max_size=1)),
    st.tuples(st.just("answer"), st.lists(ANSWERED, min_size=1, max_size=1)),
    st.tuples(st.just("author"), st.just([b'{"name":"zed","version":"1"}'])),
    st.tuples(st.just("echo"), st.lists(chunks().map(encode), min_size=1, max_size=2)),
)
"""A kind of entry, and the raws of one append."""

CONVERSATIONS = st.lists(PIECES, max_size=12)


def segments_of(pieces: Sequence[tuple[str, list[bytes]]], first_seq: int = 1) -> list[Segment]:
    """The segments that appending these pieces makes."""
    segments = []
    for at, (kind, raws) in enumerate(pieces):
        last_seq = first_seq + len(raws) - 1
        segments.append(Segment(first_seq, last_seq, kind, at // 2, b"\n".join(raws)))
        first_seq = last_seq + 1
    return segments
