"""The rules on clients: each is kept by a good conversation, and broken by a bad one."""

from __future__ import annotations

import json
from typing import Any

import pytest

from acp_check.checks import CheckReport, choose, inspect
from acp_check.errands import Memory
from acp_check.record import Record, Side
from acp_check.rules import CHECKS
from acp_check.rules.client_answers import RULES as ANSWERS
from acp_check.rules.clients import CHECKS as CLIENT_CHECKS
from acp_check.stage import CheckSettings
from acp_check.verdicts import Verdict
from acp_check.watcher import FENCE, Watcher, report_on
from acp_wire.transports.streams import MemoryTransport
from tests.memory_subject import MemorySubject
from tests.played_shell import PlayedShell
from tests.virtual_time import play

Json = dict[str, Any]
Said = tuple[Side, Json | bytes]

CAN = {
    "loadSession": True,
    "promptCapabilities": {"embeddedContext": True},
    "mcpCapabilities": {"http": True},
    "sessionCapabilities": {"list": {}},
}
KEY = {"id": "key", "name": "Use a key"}
LOGIN = {"id": "login", "name": "Log in", "type": "terminal"}


def asked(id: object, method: str, **params: object) -> Said:
    return "client", {"jsonrpc": "2.0", "id": id, "method": method, "params": params}


def answered(id: int, **result: object) -> Said:
    return "agent", {"jsonrpc": "2.0", "id": id, "result": result}


def told(method: str, **params: object) -> Said:
    return "client", {"jsonrpc": "2.0", "method": method, "params": params}


WHO = {"name": "editor", "version": "1"}
INTRODUCTION = [
    asked(1, "initialize", protocolVersion=1, clientInfo=WHO),
    answered(1, protocolVersion=1, agentCapabilities=CAN, authMethods=[KEY, LOGIN]),
]
SESSION = [
    *INTRODUCTION,
    asked(2, "session/new", cwd="/w", mcpServers=[]),
    answered(2, sessionId="s"),
]
TEXT = [{"type": "text", "text": "Hello"}]
OPTIONS = [{"optionId": "yes", "name": "Yes", "kind": "allow_once"}]


def question(id: int) -> Said:
    params = {"sessionId": "s", "toolCall": {"toolCallId": "c"}, "options": OPTIONS}
    method = "session/request_permission"
    return "agent", {"jsonrpc": "2.0", "id": id, "method": method, "params": params}


def prompt(id: object, **block: object) -> Said:
    return asked(id, "session/prompt", sessionId="s", prompt=[block] if block else TEXT)


def refused(id: int, code: int) -> Said:
    return "agent", {"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": "no"}}


QUESTION = question(1)
LIST_PAGE = [asked(8, "session/list"), answered(8, sessions=[], nextCursor="c1")]


def permission(outcome: Json, id: int = 1) -> Said:
    return "client", {"jsonrpc": "2.0", "id": id, "result": {"outcome": outcome}}


YES = permission({"outcome": "selected", "optionId": "yes"})
PROMPT = prompt(3)
END = answered(3, stopReason="end_turn")
CANCEL = told("session/cancel", sessionId="s")
TURN = [PROMPT, QUESTION, YES, END]


FILES = {"fs": {"readTextFile": True}}


def checked(*said: Said, offers: Json = FILES) -> CheckReport:
    record = Record("the client", offers)
    for by, message in said:
        raw = message if isinstance(message, bytes) else json.dumps(message).encode()
        record.add(0.0, by, raw)
    record.ended = "the client left"
    return report_on(CLIENT_CHECKS, record, 0.0)


def failed(report: CheckReport) -> dict[str, str]:
    return {finding.rule.id: finding.why for finding in report.of(Verdict.FAIL)}


def failed_with(error: Json) -> Said:
    return "client", {"jsonrpc": "2.0", "id": 1, "error": error}


NO_METHOD = {"code": -32601, "message": "not here"}
DRAFTED: Json = {"subagents": {}}
READ: Said = (
    "agent",
    {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "fs/read_text_file",
        "params": {"sessionId": "s", "path": "/w/a"},
    },
)
BLOB = {"uri": "file:///w/a", "blob": "not base64!"}


def introduction(**can: object) -> list[Said]:
    result = {"protocolVersion": 1, "agentCapabilities": {**CAN, "sessionCapabilities": can}}
    return [INTRODUCTION[0], answered(1, **result)]


def new(**more: object) -> list[Said]:
    params = {"cwd": "/w", "mcpServers": [], **more}
    return [*INTRODUCTION, asked(2, "session/new", **params), answered(2, sessionId="s")]


def listed(*roots: str) -> Json:
    return {"sessionId": "s", "cwd": "/w", "additionalDirectories": roots}


def fence(id: int, behind: str) -> Said:
    params = {"sessionId": "s", "behind": behind}
    return "agent", {"jsonrpc": "2.0", "id": id, "method": FENCE, "params": params}


BROKEN: dict[str, list[Said]] = {
    "client.messages": [*SESSION, ("client", b"hello?")],
    "client.schema": [*INTRODUCTION, asked(2, "session/new", cwd="/w")],
    "client.members": new(colour="green"),
    "client.methods": [*SESSION, told("editor/ready")],
    "client.answers": [*SESSION, *TURN, YES],
    "client.kinds": [*SESSION, PROMPT, asked(7, "session/cancel", sessionId="s")],
    "client.initialize-first": SESSION[2:] + INTRODUCTION,
    "client.initialize-first:unanswered": [
        INTRODUCTION[0],
        SESSION[2],
        INTRODUCTION[1],
        SESSION[3],
    ],
    "client.initialize-once": [
        *SESSION,
        asked(7, "initialize", protocolVersion=1, clientInfo=WHO),
        answered(7, protocolVersion=1),
    ],
    "client.request-ids": [*SESSION, prompt(3.5)],
    "client.null-ids": [*SESSION, prompt(None)],
    "client.unique-ids": [*SESSION, PROMPT, asked(3, "session/list"), END],
    "client.errors": [*SESSION, PROMPT, READ, failed_with({"code": "no"})],
    "client.trace-context": new(_meta={"traceparent": "5"}),
    "client.permission": [*SESSION, PROMPT, QUESTION, failed_with(NO_METHOD)],
    "client.offers": [*SESSION, PROMPT, READ, failed_with(NO_METHOD)],
    "client.content": [*SESSION, prompt(3, type="resource", resource=BLOB)],
    "client.known-sessions:not-loaded-yet": [
        *INTRODUCTION,
        asked(2, "session/load", sessionId="s", cwd="/w", mcpServers=[]),
        PROMPT,
        answered(2),
    ],
    "client.known-sessions:closed": [
        *(*introduction(close={}), *SESSION[2:]),
        *(asked(5, "session/close", sessionId="s"), answered(5)),
        PROMPT,
    ],
    "client.closes": [
        INTRODUCTION[0],
        answered(1, protocolVersion=32_767, agentCapabilities={}),
        *SESSION[2:],
    ],
    "client.info": [asked(1, "initialize", protocolVersion=1), INTRODUCTION[1]],
    "client.advertised-methods": [*SESSION, asked(5, "session/close", sessionId="s")],
    "client.advertised-methods:fork": [*SESSION, asked(5, "session/fork", sessionId="s", cwd="/w")],
    "client.advertised-servers": new(
        mcpServers=[{"type": "sse", "name": "x", "url": "http://x", "headers": []}]
    ),
    "client.advertised-directories": new(additionalDirectories=["/more"]),
    "client.advertised-content": [
        *SESSION,
        prompt(3, type="image", mimeType="image/png", data="AA=="),
        END,
    ],
    "client.absolute": new(mcpServers=[{"name": "x", "command": "npx", "args": [], "env": []}]),
    "client.schema:server-without-env": new(
        mcpServers=[{"name": "x", "command": "/x", "args": []}]
    ),
    "client.known-sessions": [*SESSION, told("session/cancel", sessionId="other")],
    "client.same-folder": [
        *SESSION,
        asked(5, "session/load", sessionId="s", cwd="/elsewhere", mcpServers=[]),
        answered(5),
    ],
    "client.listed-roots": [
        *introduction(list={}, resume={}, additionalDirectories={}),
        *(asked(5, "session/list"), answered(5, sessions=[listed("/a")])),
        *(asked(6, "session/list"), answered(6, sessions=[listed("/b")])),
        asked(7, "session/resume", **listed("/a", "/b"), mcpServers=[]),
    ],
    "client.late-updates": [
        *(*SESSION, PROMPT, CANCEL),
        *(fence(1, ""), failed_with(NO_METHOD), fence(2, "late")),
        answered(3, stopReason="cancelled"),
    ],
    "client.signed-out": [
        *(*SESSION, PROMPT, fence(1, ""), failed_with(NO_METHOD)),
        refused(3, -32000),
        fence(2, "signed-out"),
    ],
    "client.cursors": [*SESSION, *LIST_PAGE, asked(9, "session/list", cursor="c2")],
    "client.cursors:behind-the-end": [
        *(*SESSION, *LIST_PAGE),
        *(asked(9, "session/list", cursor="c1"), answered(9, sessions=[])),
        *(asked(10, "session/list", cursor="c1"), answered(10, sessions=[])),
        *(asked(11, "session/list", cursor="c1"), answered(11, sessions=[])),
    ],
    "client.one-turn": [*SESSION, PROMPT, prompt(4), END, answered(4, stopReason="end_turn")],
    "client.permission-options": [
        *SESSION,
        PROMPT,
        QUESTION,
        permission({"outcome": "selected", "optionId": "maybe"}),
    ],
    "client.permission-cancelled": [*SESSION, PROMPT, QUESTION, CANCEL, YES],
    "client.known-choices": [
        *SESSION,
        asked(5, "session/set_mode", sessionId="s", modeId="wild"),
        refused(5, -32602),
    ],
    "client.sign-in-methods": [*SESSION, asked(5, "authenticate", methodId="login"), answered(5)],
}


@pytest.mark.parametrize("fault", BROKEN)
def test_exactly_the_rule_that_a_client_breaks_fails(fault: str) -> None:
    report = checked(*BROKEN[fault])
    assert failed(report).keys() == {fault.partition(":")[0]}, failed(report)


ODD: dict[str, list[Said]] = {
    "asks for a page of another folder": [
        *(*SESSION, *LIST_PAGE),
        asked(9, "session/list", cursor="c1", cwd="/w"),
    ],
    "opens a session with folders of its own choice": [
        *introduction(list={}, resume={}, additionalDirectories={}),
        *(asked(4, "session/resume", **listed("/a"), mcpServers=[]), answered(4)),
        *(asked(5, "session/list"), answered(5, sessions=[listed("/a")])),
        *(asked(6, "session/list"), answered(6, sessions=[listed("/b")])),
        asked(7, "session/resume", **listed("/a", "/c"), mcpServers=[]),
    ],
    "deletes a session of an earlier run": [
        *introduction(delete={}),
        asked(5, "session/delete", sessionId="old"),
    ],
    "names a folder with a slash at its end": [
        *SESSION,
        asked(5, "session/load", sessionId="s", cwd="/w/", mcpServers=[]),
    ],
    "calls a method of a draft": [*SESSION, asked(5, "session/set_title", sessionId="s", title="")],
    "uses the id of an answered request again": [
        *(*SESSION, PROMPT, END),
        asked(3, "session/list"),
    ],
    "has one id for all of its requests": [
        *INTRODUCTION,
        *(asked(1, "session/new", cwd="/w", mcpServers=[]), answered(1, sessionId="s")),
        *(
            prompt(1),
            answered(1, stopReason="end_turn"),
        ),
        *(asked(1, "session/list"), answered(1, sessions=[], nextCursor="c1")),
        asked(1, "session/list", cursor="c1"),
    ],
    "introduces itself again when it was refused": [
        INTRODUCTION[0],
        refused(1, -32000),
        *INTRODUCTION,
    ],
    "tells that it has cancelled a permission that the agent took back": [
        *(*SESSION, PROMPT, QUESTION, CANCEL),
        ("agent", {"jsonrpc": "2.0", "method": "$/cancel_request", "params": {"requestId": 1}}),
        failed_with({"code": -32800, "message": "Cancelled"}),
    ],
}


@pytest.mark.parametrize("oddity", ODD)
def test_what_is_odd_and_allowed_breaks_no_rule(oddity: str) -> None:
    assert failed(checked(*ODD[oddity])) == {}


def test_what_only_a_draft_has_is_told_and_breaks_no_rule() -> None:
    hello = asked(1, "initialize", protocolVersion=1, clientInfo=WHO, clientCapabilities=DRAFTED)
    report = checked(hello, *INTRODUCTION[1:])
    assert failed(report) == {}
    (members,) = [it for it in report.findings if it.rule.id == "client.members"]
    assert "$.clientCapabilities.subagents" in members.why


def test_a_client_that_keeps_the_rules_breaks_none() -> None:
    cancelled = [
        prompt(4),
        question(2),
        CANCEL,
        permission({"outcome": "cancelled"}, 2),
        answered(4, stopReason="cancelled"),
    ]
    more = [*LIST_PAGE, asked(9, "session/list", cursor="c1"), answered(9, sessions=[])]
    report = checked(*SESSION, *TURN, *cancelled, *more)
    assert failed(report) == {}
    assert len(report.of(Verdict.PASS)) >= 15
    assert report.agent is not None
    assert report.agent.name == "editor"


def test_every_rule_that_can_be_seen_is_broken_once() -> None:
    can_fail = {check.rule.id for check in CLIENT_CHECKS if not check.unseen}
    can_fail -= {check.rule.id for check in ANSWERS}  # see test_client_answers.py
    assert can_fail == {fault.partition(":")[0] for fault in BROKEN}


def test_the_checker_of_agents_is_a_good_client_where_it_does_not_provoke() -> None:
    records: list[Record] = []
    memory = Memory()

    async def serve(transport: MemoryTransport) -> None:
        records.append(Record(f"client {len(records) + 1}", {}))
        await Watcher(transport, memory, records[-1], lambda: None, "all").serve()

    polite = choose(CHECKS, ["prompt.[amnrst]*", "cancel.*", "tool.*", "load.[agot]*", "list.k*"])
    subject = MemorySubject("watcher", serve)
    report = play(inspect(subject, polite, CheckSettings(), shell=PlayedShell))
    assert {it.rule.id: it.why for it in report.of(Verdict.FAIL)} == {}
    for record in records:
        found = failed(report_on(CLIENT_CHECKS, record, 0.0))
        # It asks for missing things to find out if its message was heard.
        assert found.keys() <= {"client.methods"}, found
