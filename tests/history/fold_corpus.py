"""Sequences of entries and their folds, for every program that folds them.

`history/fold.py` has the rules. The page of `serve` folds in the browser, by the same rules: both
fold the sequences here (tests/page/test_model.py). Some have the shapes of real agents, the others
are random. Several hundred are kept in `corpus/folds.jsonl`, so that a change of the rules shows;
`python -m tests.history.fold_corpus` writes them again.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from random import Random
from typing import Any, TypeAlias

from acphold.conversation.history.display_terminals import texts
from acphold.conversation.history.entries import Entry, exact_entry_json
from acphold.conversation.history.fold import Fold, SessionState
from acphold.conversation.history.timeline import (
    ContextCompaction,
    Item,
    Message,
    SubAgent,
    ToolCall,
    TurnEnd,
)

FILE = Path(__file__).with_name("corpus") / "folds.jsonl"
KEPT = 300

Json: TypeAlias = Any
Step: TypeAlias = tuple[str, Json]
"""A kind of entry, and its content."""


def entries_of(steps: Iterable[Step]) -> list[Entry]:
    """These steps as a journal would have them."""
    return [
        Entry(seq, kind, 1_700_000_000_000 + seq, json.dumps(said).encode())
        for seq, (kind, said) in enumerate(steps, 1)
    ]


# -- as agents speak ------------------------------------------------------------------------


def _chunk(text: str, role: str = "agent_message", **more: Json) -> Step:
    content = {"type": "text", "text": text}
    return "update", {"sessionUpdate": f"{role}_chunk", "content": content, **more}


def _call(call: str, **fields: Json) -> Step:
    return "update", {"sessionUpdate": "tool_call", "toolCallId": call, **fields}


def _change(call: str, **fields: Json) -> Step:
    return "update", {"sessionUpdate": "tool_call_update", "toolCallId": call, **fields}


def _shell(text: str) -> list[Json]:
    return [{"type": "content", "content": {"type": "text", "text": text}}]


PROMPT: Step = ("prompt", [{"type": "text", "text": "Do it."}])
DONE: Step = ("turn_end", {"stopReason": "end_turn"})
RESET = 1_795_404_000_000


def _limit(**more: int) -> Json:
    return {"acphold/limit": {"words": "You've hit your limit", **more}}


AGENTS: dict[str, list[Step]] = {
    "claude: a call whose title comes later, an edit, a plan": [
        ("settings", {"modes": {"currentModeId": "ask", "availableModes": [{"id": "ask"}]}}),
        PROMPT,
        _chunk("I think.", "agent_thought"),
        _chunk("Let me "),
        _chunk("look."),
        _call("toolu_1", title="Terminal", kind="execute", status="pending", rawInput={}),
        _change("toolu_1", title="`ls`", rawInput={"command": "ls"}),
        _change("toolu_1", status="completed", content=_shell("a\nb")),
        ("update", {"sessionUpdate": "plan", "entries": [{"content": "one", "status": "pending"}]}),
        _chunk(" Done."),
        DONE,
    ],
    "codex: nulls for what has not changed, an output as data": [
        PROMPT,
        _call("exec-1", title="ls", kind="execute", status="in_progress"),
        _change("exec-1", title=None, kind=None, status="completed", content=None, rawOutput="a"),
        _chunk("There is a.", messageId="m1"),
        DONE,
    ],
    "codex: a command in a terminal that is only shown": [
        PROMPT,
        _call(
            "exec-1",
            title="ls",
            kind="execute",
            status="in_progress",
            content=[{"type": "terminal", "terminalId": "exec-1"}],
            _meta={"terminal_info": {"terminal_id": "exec-1", "cwd": "/"}, "codex": 1},
        ),
        _change("exec-1", _meta={"terminal_output": {"terminal_id": "exec-1", "data": "a\n"}}),
        _change("exec-1", _meta={"terminal_output": {"terminal_id": "exec-1", "data": "b\n"}}),
        _change(
            "exec-1",
            status="completed",
            _meta={"terminal_exit": {"terminal_id": "exec-1", "exit_code": 0, "signal": None}},
        ),
        DONE,
    ],
    "gemini: a question about a call that nobody has announced": [
        PROMPT,
        (
            "question",
            {
                "id": "q1",
                "method": "session/request_permission",
                "params": {"toolCall": {"toolCallId": "w-1", "title": "Write"}, "options": []},
            },
        ),
        ("answer", {"question": "q1", "outcome": "answered", "result": {}}),
        _change("w-1", status="completed"),
        _chunk("Written."),
        DONE,
    ],
    "opencode: a child that its notifications tell of": [
        PROMPT,
        _call("task", title="task", status="in_progress"),
        *[
            ("child", {"method": "opencode/session/child_update", "params": {**params, **ids}})
            for ids in [{"childSessionId": "c", "parentSessionId": "r", "rootSessionId": "r"}]
            for params in (
                {"type": "created", "title": "Explore", "status": "running"},
                {"type": "update", "update": _chunk("found")[1]},
                {"type": "status", "status": "completed"},
            )
        ],
        _change("task", status="completed"),
        DONE,
    ],
    "a replay of a session from before, without ids": [
        _chunk("First ", "user_message"),
        _chunk("question", "user_message"),
        _chunk("First answer"),
        _chunk("Second", "user_message"),
        _chunk("Second answer"),
    ],
    "chunks behind the end of their turn": [PROMPT, _chunk("The e"), DONE, _chunk("nd."), PROMPT],
    "a turn that fails, and one that broke off": [
        PROMPT,
        _call("t", title="Run"),
        ("turn_end", {"error": {"code": -32603, "message": "no credit"}}),
        PROMPT,
        ("turn_end", {"interrupted": True}),
        PROMPT,
        ("turn_end", {"interrupted": None}),
    ],
    "a person who went back, and said something else": [
        PROMPT,
        _chunk("One."),
        DONE,
        PROMPT,
        _call("t", title="Run"),
        DONE,
        PROMPT,
        _chunk("Three."),
        DONE,
        ("back", {"left": [[4, 6], [7, 9]]}),
        PROMPT,
        _call("t", title="Run", status="completed"),
        DONE,
    ],
    "a turn that was told twice, and stands once": [
        PROMPT,
        _chunk("One."),
        DONE,
        PROMPT,
        _chunk("One."),
        DONE,
        PROMPT,
        _chunk("Two."),
        DONE,
        ("back", {"left": [[4, 6]]}),
        ("back", {"left": "none"}),
    ],
    "turns that the vendor's limit ended": [
        PROMPT,
        ("turn_end", {"error": {"message": "Internal error"}, "_meta": _limit(resetsAt=RESET)}),
        PROMPT,
        ("turn_end", {"stopReason": "end_turn", "_meta": _limit()}),
        PROMPT,
        ("turn_end", {"stopReason": "end_turn", "_meta": _limit(resetsAt=-1)}),
        PROMPT,
        ("turn_end", {"stopReason": "end_turn", "_meta": {"acphold/limit": "none"}}),
    ],
}


# -- at random ------------------------------------------------------------------------------

_TEXTS = ("a", "b ", "", "ü\n")
_IDS = ("m1", "m2", "acphold-9", "")
_CALLS = ("t1", "t2", "t3")
_CHILDREN = ("c1", "c2", "c3")
_TERMINAL: Json = {"type": "terminal", "terminalId": "x1"}
_PRINTED: tuple[Json, ...] = (
    {"terminal_info": {"terminal_id": "x1", "cwd": "/"}},
    {"terminal_output": {"terminal_id": "x1", "data": "out\n"}},
    {"terminal_output_delta": {"terminal_id": "x1", "data": "more"}, "own": 2},
    {"terminal_output": {"terminal_id": "x2", "data": "…\nend", "acphold/cut": True}},
    {"terminal_exit": {"terminal_id": "x1", "exit_code": 0}, "terminal_output": {"data": "?"}},
)
_WRONG: tuple[Json, ...] = (None, 3, True, [], {}, "x")


def _content(random: Random) -> Json:
    if random.random() < 0.8:
        return {"type": "text", "text": random.choice(_TEXTS)}
    return random.choice(
        (
            {"type": "image", "data": "AA==", "mimeType": "image/png"},
            {"type": "text", "text": "said", "annotations": {}},
            {"type": "resource_link", "uri": "file:///x", "name": "x"},
            {"type": "text", "text": 3},
            None,
        )
    )


def _with_some(random: Random, members: dict[str, tuple[Json, ...]]) -> dict[str, Json]:
    """Some of these members; now and then with null or a value of a wrong type."""
    return {
        name: random.choice(_WRONG) if random.random() < 0.12 else random.choice(values)
        for name, values in members.items()
        if random.random() < 0.4
    }


def _update(random: Random, depth: int = 0) -> Json:
    kind = random.choices(
        (
            "chunk",
            "tool_call",
            "tool_call_update",
            "compaction_update",
            "compaction_summary_chunk",
            "plan",
            "info",
            "children",
            "between",
            "attribute",
            "wrong",
        ),
        (40, 8, 14, 3, 3, 4, 4, 6 if depth < 2 else 0, 2 if depth < 2 else 0, 4, 1),
    )[0]
    if kind == "chunk":
        role = random.choices(("agent_message", "agent_thought", "user_message"), (6, 2, 3))[0]
        said = {"sessionUpdate": f"{role}_chunk", "content": _content(random)}
        if random.random() < 0.4:
            said["messageId"] = random.choice((*_IDS, None))
        if random.random() < 0.03:
            del said["content"]
        return said
    fields: dict[str, tuple[Json, ...]]
    if kind.startswith("tool"):
        fields = {
            "title": ("Read", "Run"),
            "kind": ("read", "execute"),
            "status": ("pending", "in_progress", "completed", "failed", "of its own"),
            "content": (
                [],
                _shell("out"),
                [_TERMINAL],
                [{"type": "diff", "path": "/a", "newText": "b"}],
            ),
            "locations": ([{"path": "/a"}],),
            "rawInput": ({"command": "ls"}, "x"),
            "rawOutput": ({"output": "y"},),
            "_meta": ({"own": 1}, {"acphold/failed": "it broke"}, *_PRINTED),
            "another": (1,),
        }
        call = random.choice(_CALLS) if random.random() < 0.97 else random.choice(("", None))
        return {"sessionUpdate": kind, "toolCallId": call, **_with_some(random, fields)}
    if kind == "compaction_update":
        fields = {
            "status": ("in_progress", "completed", "failed"),
            "error": ("full", None),
            "summary": ([{"type": "text", "text": "short"}], [], None),
        }
        return {"sessionUpdate": kind, "compactionId": "k1", **_with_some(random, fields)}
    if kind == "compaction_summary_chunk":
        return {"sessionUpdate": kind, "compactionId": "k1", "content": _content(random)}
    if kind == "plan":
        entries = [{"content": random.choice(_TEXTS), "status": "pending", "priority": "low"}]
        return {"sessionUpdate": "plan", "entries": random.choice((entries, [], None))}
    if kind == "info":
        told = _with_some(random, {"title": ("One", "Two", None), "updatedAt": ("2026-01-01",)})
        return {"sessionUpdate": "session_info_update", **told}
    if kind == "children":
        return _about_child(random)
    if kind == "between":
        ends = {"senderSessionId": random.choice(_CHILDREN), "recipientSessionId": "c1"}
        message = {"messageId": random.choice(("b1", "b2"))}
        if random.random() < 0.5:
            chunk = {"sessionUpdate": "session_message_chunk", "content": _content(random)}
            return {**chunk, **message}
        told = _with_some(random, {"content": ([{"type": "text", "text": "go"}],)})
        return {"sessionUpdate": "session_message", **ends, **message, **told}
    if kind == "attribute":
        return random.choice(
            (
                {"sessionUpdate": "current_mode_update", "currentModeId": "code"},
                {"sessionUpdate": "current_mode_update", "currentModeId": None},
                {
                    "sessionUpdate": "available_commands_update",
                    "availableCommands": [{"name": "a"}],
                },
                {"sessionUpdate": "available_commands_update", "availableCommands": None},
                {"sessionUpdate": "config_option_update", "configOptions": [{"id": "model"}]},
                {"sessionUpdate": "usage_update", "used": 1, "size": 2},
                {"sessionUpdate": "notice", "severity": "info", "title": "hm"},
            )
        )
    return random.choice(({}, {"sessionUpdate": "of tomorrow"}, {"sessionUpdate": None}))


def _about_child(random: Random) -> Json:
    child = random.choice(_CHILDREN)
    meta = {"_meta": {"own": {"parentToolCallId": random.choice(_CALLS)}}}
    more = meta if random.random() < 0.4 else {}
    kind = random.choice(("subagent_update", "subagent_spawned", "subagent_state_update"))
    if kind == "subagent_update":
        states: tuple[Json, ...] = (
            {"state": "running"},
            {"state": "idle", "stopReason": "end_turn"},
            {},
        )
        told = {"title": ("Look",), "description": ("Look at it",), "state": states}
        return {"sessionUpdate": kind, "sessionId": child, **_with_some(random, told), **more}
    told = {"name": ("Look",), "task": ("Look at it",), "state": ("completed", "failed", "busy")}
    return {"sessionUpdate": kind, "subagentSessionId": child, **_with_some(random, told), **more}


def _step(random: Random) -> Step:
    kind = random.choices(
        ("update", "prompt", "turn_end", "child", "question", "answer", "settings", "other"),
        (60, 6, 8, 14, 4, 4, 3, 2),
    )[0]
    if kind == "update":
        return kind, _update(random)
    if kind == "prompt":
        return kind, [_content(random) for _ in range(random.choice((0, 1, 1, 2)))]
    if kind == "turn_end":
        ends = ({"stopReason": "end_turn"}, {"stopReason": "refusal"}, {"interrupted": True})
        return kind, random.choice((*ends, {"error": {"message": "no"}}, {"stopReason": None}))
    if kind == "child":
        if random.random() < 0.3:
            ids = {"childSessionId": random.choice(_CHILDREN), "rootSessionId": "r"}
            ids["parentSessionId"] = random.choice(("r", "r", "c1"))
            told = _with_some(random, {"title": ("Look",), "status": ("running", "completed")})
            params: Json = {"type": "status", **ids, **told}
            if random.random() < 0.5:
                params = {"type": "update", **ids, "update": _update(random, 1)}
            return kind, {"method": "opencode/session/child_update", "params": params}
        return kind, {"sessionId": random.choice(_CHILDREN), "update": _update(random, 1)}
    if kind == "question":
        asked = {"id": f"q{random.randrange(9)}", "method": "session/request_permission"}
        return kind, {**asked, "params": {}}
    if kind == "answer":
        return kind, {"question": f"q{random.randrange(9)}", "outcome": "answered"}
    if kind == "settings":
        modes = {"currentModeId": "ask", "availableModes": [{"id": "ask"}, {"id": "code"}]}
        members = {"modes": (modes,), "configOptions": ([{"id": "model"}],), "anew": (True,)}
        return kind, _with_some(random, members)
    return random.choice((("author", {"name": "x"}), ("echo", _update(random)), ("of later", {})))


def sequence(seed: int) -> list[Entry]:
    """The random sequence of this number."""
    random = Random(seed)
    steps: list[Step] = []
    asked: set[str] = set()
    for _ in range(random.randrange(2, 14)):
        kind, said = _step(random)
        # An id is given to one question, which is answered once.
        if kind in ("question", "answer"):
            name = f"{kind} {said.get('id') or said.get('question')}"
            if name in asked or f"answer {said.get('id')}" in asked:
                continue
            asked.add(name)
        steps.append((kind, said))
    return entries_of(steps)


# -- their folds ----------------------------------------------------------------------------


def folded(entries: Iterable[Entry]) -> dict[str, Json]:
    """The fold, as far as a face shows it; sub-agents by their ids, for a face may place them."""
    folding = Fold()
    for entry in entries:
        folding.add(entry)
    state = folding.state()
    children: dict[str, Json] = {}
    timeline = [*_timeline(state.timeline, "", children)]
    return {
        "timeline": timeline,
        "children": children,
        "attributes": _attributes(state),
        "openQuestions": [*state.open_questions],
    }


def _attributes(state: SessionState) -> dict[str, Json]:
    known = state.attributes
    raws = {
        "availableModes": known.available_modes,
        "options": known.config_options,
        "commands": known.commands,
        "plan": known.plan,
        "usage": known.usage,
    }
    values = {name: None if raw is None else json.loads(raw) for name, raw in raws.items()}
    return {**values, "title": known.title, "modeId": known.current_mode_id}


def _timeline(items: Iterable[Item], lane: str, children: dict[str, Json]) -> Iterator[Json]:
    for item in items:
        match item:
            case Message():
                text, others = _told(item.content)
                yield ["message", item.role, item.message_id, text, others]
            case ToolCall():
                fields = {name: json.loads(raw) for name, raw in item.fields.items()}
                yield ["tool", item.tool_call_id, fields, texts(item.terminals)]
            case ContextCompaction():
                text, _ = _told(item.summary)
                yield ["compaction", item.compaction_id, item.status, item.error, text]
            case TurnEnd():
                resets = [] if item.resets_ms is None else [item.resets_ms]
                yield ["end", item.outcome, item.message, *resets]
            case SubAgent():
                told = [item.title, item.description, item.status, item.stop_reason, item.caller]
                children[item.session_id] = [lane, *told]
                inside = [*_timeline(item.timeline, item.session_id, children)]
                children[item.session_id].append(inside)


def _told(content: Iterable[bytes]) -> tuple[str, list[Json]]:
    """The text of these blocks, and those that have none."""
    text, others = "", list[Json]()
    for raw in content:
        block = json.loads(raw)
        said = block.get("text") if isinstance(block, dict) else None
        if isinstance(said, str) and block.get("type") == "text":
            text += said
        else:
            others.append(block)
    return text, others


# -- the file -------------------------------------------------------------------------------


def line(name: str, entries: list[Entry]) -> str:
    """A sequence with its fold, the entries as the server tells them."""
    told = ",".join(map(exact_entry_json, entries))
    fold = json.dumps(folded(entries))
    return f'{{"name":{json.dumps(name)},"entries":[{told}],"fold":{fold}}}\n'


def entries_in(told: Json) -> list[Entry]:
    """The entries of a line, as the journal has them."""
    return [
        Entry(
            each["seq"],
            each["kind"],
            0,
            json.dumps(
                each["update"]["prompt"] if each["kind"] == "prompt" else each["update"]
            ).encode(),
        )
        for each in told["entries"]
    ]


def kept() -> str:
    """The content of the corpus file."""
    agents = [line(name, entries_of(steps)) for name, steps in AGENTS.items()]
    return "".join([*agents, *(line(f"random {seed}", sequence(seed)) for seed in range(KEPT))])


if __name__ == "__main__":
    FILE.write_text(kept(), encoding="utf-8")
