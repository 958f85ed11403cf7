"""Turns of real agents: the shapes of their messages, with words of our own.

A step is an update, or `{"ask": toolCall}` with the kind of option that the person takes. Where an
agent adapts its messages to the capabilities of its client, these are its messages to Zed.

Shapes from: codex-acp, claude-agent-acp, gemini-cli, qwen-code, copilot-cli, goose, cline,
opencode.
"""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]


def said(text: str, kind: str = "agent_message_chunk") -> Json:
    """A piece of text."""
    return {"sessionUpdate": kind, "content": {"type": "text", "text": text}}


def call(id_: str, title: str, **fields: Any) -> Json:
    """A call begins."""
    return {"sessionUpdate": "tool_call", "toolCallId": id_, "title": title, **fields}


def update(id_: str, **fields: Any) -> Json:
    """It goes on."""
    return {"sessionUpdate": "tool_call_update", "toolCallId": id_, **fields}


def text(words: str) -> Json:
    """Text in the content of a call."""
    return {"type": "content", "content": {"type": "text", "text": words}}


def terminal(id_: str) -> Json:
    """A terminal in the content of a call."""
    return {"type": "terminal", "terminalId": id_}


def printed(id_: str, data: str, name: str = "terminal_output") -> Json:
    """The `_meta` of the output of an agent's own terminal."""
    return {name: {"terminal_id": id_, "data": data}}


def exited(id_: str, code: int = 0) -> Json:
    """The `_meta` of its end."""
    return {"terminal_exit": {"terminal_id": id_, "exit_code": code, "signal": None}}


def diff(path: str, old: str | None, new: str) -> Json:
    """A change of a file in the content of a call."""
    return {"type": "diff", "path": path, "oldText": old, "newText": new}


def asks(option: str, id_: str, **fields: Any) -> Json:
    """The agent asks, and the person takes an option of this kind."""
    return {"ask": {"toolCallId": id_, **fields}, "takes": option}


CODEX = [
    said("I will run the oak tests."),
    call(
        "cmd-1",
        "make oak",
        kind="execute",
        status="in_progress",
        rawInput={"command": "make oak"},
        content=[terminal("cmd-1")],
        _meta={"terminal_info": {"terminal_id": "cmd-1", "cwd": "/"}},
    ),
    update("cmd-1", _meta=printed("cmd-1", "planting acorns\n")),
    update("cmd-1", _meta=printed("cmd-1", "seventeen seedlings\n")),
    update("cmd-1", status="completed", _meta=exited("cmd-1")),
    said("All seventeen stand."),
]

CODEX_OF_DELTAS = [
    call(
        "cmd-1",
        "make elm",
        kind="execute",
        status="in_progress",
        content=[terminal("cmd-1")],
        _meta={"terminal_info": {"terminal_id": "cmd-1", "cwd": "/"}},
    ),
    update("cmd-1", _meta=printed("cmd-1", "watering\n", "terminal_output_delta")),
    update("cmd-1", _meta=printed("cmd-1", "the elm is dry\n", "terminal_output_delta")),
    update("cmd-1", status="failed", _meta=exited("cmd-1", 2)),
]

CLAUDE = [
    call(
        "toolu_1",
        "Terminal",
        name="Bash",
        kind="execute",
        status="pending",
        content=[terminal("toolu_1")],
        _meta={"claudeCode": {"toolName": "Bash"}, "terminal_info": {"terminal_id": "toolu_1"}},
    ),
    update("toolu_1", title="ls beech", rawInput={"command": "ls beech"}),
    asks("allow_once", "toolu_1", title="ls beech", rawInput={"command": "ls beech"}),
    update("toolu_1", _meta={"claudeCode": {"toolResponse": {"stdout": "nuts"}}}),
    update("toolu_1", _meta=printed("toolu_1", "nuts\nleaves")),
    update("toolu_1", status="completed", _meta=exited("toolu_1")),
    said("There are nuts."),
]

GEMINI = [
    call("read-1", "rings.txt", kind="read", status="in_progress", content=[]),
    update("read-1", status="completed", content=[text("forty rings")]),
    asks(
        "allow_once",
        "replace-1",
        status="pending",
        title="rings.txt: forty => fifty",
        kind="edit",
        content=[diff("/rings.txt", "forty\n", "fifty\n")],
        locations=[{"path": "/rings.txt"}],
    ),
    update(
        "replace-1",
        status="completed",
        title="rings.txt: forty => fifty",
        content=[diff("/rings.txt", "forty\n", "fifty\n")],
    ),
    asks(
        "reject_once",
        "shell-1",
        status="pending",
        title="saw the larch",
        kind="execute",
        content=[text("in / (fell a tree)")],
    ),
    said("Then it stays."),
]

QWEN = [
    call("call_1", "Edit", kind="edit", status="pending", content=[], rawInput={}),
    asks(
        "allow_once",
        "call_1",
        status="pending",
        title="bark.txt",
        kind="edit",
        content=[diff("/bark.txt", "rough", "smooth")],
        rawInput={"file_path": "/bark.txt"},
    ),
    update("call_1", status="completed", content=[diff("/bark.txt", "rough", "smooth")]),
]

COPILOT = [
    call(
        "call_1", "Editing /root.txt", kind="edit", status="pending", rawInput={"path": "/root.txt"}
    ),
    asks(
        "allow_once",
        "call_1",
        title="Edit file",
        kind="edit",
        status="pending",
        rawInput={"fileName": "/root.txt", "diff": "-deep\n+deeper\n"},
    ),
    update(
        "call_1",
        status="completed",
        content=[diff("/root.txt", "deep", "deeper")],
        rawOutput={"content": "updated"},
    ),
]

GOOSE = [
    call("call_1", "shell · ls grove", rawInput={"command": "ls grove"}),
    asks("reject_once", "call_1", kind="other", status="pending", title="shell"),
    update("call_1", title="looking around"),
    said("I may not look."),
]

CLINE = [
    update("call_1", title="read: sap.txt", kind="read", status="pending"),
    asks("allow_once", "call_1", title="read: sap.txt", kind="read", status="pending"),
    update("call_1", status="in_progress"),
    call("call_1", "read: sap.txt", kind="read", status="pending"),
    update("call_1", status="completed", rawOutput={"result": "sweet"}),
]

OPENCODE = [
    {**said("The user wants to know of mushrooms.", "agent_thought_chunk"), "messageId": "msg_1"},
    call("call_1", "bash", kind="execute", status="pending", locations=[], rawInput={}),
    update(
        "call_1",
        title="ls mushrooms",
        kind="execute",
        status="in_progress",
        locations=[],
        rawInput={"command": "ls mushrooms", "description": "Look under the trees"},
    ),
    asks(
        "allow_once",
        "call_1",
        title="ls mushrooms",
        kind="execute",
        status="pending",
        locations=[],
        rawInput={"command": "ls mushrooms"},
    ),
    update(
        "call_1",
        kind="execute",
        status="in_progress",
        content=[text("morel\n")],
        rawInput={"command": "ls mushrooms", "description": "Look under the trees"},
    ),
    update(
        "call_1",
        title="ls mushrooms",
        kind="execute",
        status="completed",
        content=[text("morel\nchanterelle\n")],
        rawOutput={"output": "morel\nchanterelle\n", "metadata": {"exit": 0, "truncated": False}},
    ),
    {**said("Two kinds "), "messageId": "msg_2"},
    {**said("grow here."), "messageId": "msg_2"},
]

RECORDINGS: dict[str, list[Json]] = {
    "codex": CODEX,
    "codex, of deltas": CODEX_OF_DELTAS,
    "claude": CLAUDE,
    "gemini": GEMINI,
    "qwen": QWEN,
    "copilot": COPILOT,
    "goose": GOOSE,
    "cline": CLINE,
    "opencode": OPENCODE,
}


def in_child(child: str, step: Json) -> Json:
    """An update of a sub-agent, in its own session."""
    return {"in": child, "update": step}


CHILDREN = [
    {
        "sessionUpdate": "subagent_spawned",
        "subagentSessionId": "child",
        "name": "Forester",
        "task": "Count the firs",
    },
    in_child("child", {**said("I count "), "messageId": "m1"}),
    in_child("child", {**said("the firs."), "messageId": "m1"}),
    in_child("child", call("walk", "Walk the wood", status="in_progress")),
    in_child("child", update("walk", status="completed", content=[text("ninety")])),
    in_child("child", {**said("Ninety firs. " * 200), "messageId": "m2"}),
    {
        "sessionUpdate": "subagent_state_update",
        "subagentSessionId": "child",
        "state": "completed",
    },
    said("The forester counts ninety firs."),
]

RECORDINGS["children"] = CHILDREN
