"""The rules on clients: each is kept by a good conversation, and broken by a bad one."""

from __future__ import annotations

import json
from typing import Any

import pytest

from acphold.conformance.exemplar_turns import Memory
from acphold.conformance.inspection import Report, chosen, inspect
from acphold.conformance.record import Record, Side
from acphold.conformance.rules import CHECKS
from acphold.conformance.rules.clients import CHECKS as CLIENT_CHECKS
from acphold.conformance.stage import Settings
from acphold.conformance.subject import MemorySubject
from acphold.conformance.verdicts import Verdict
from acphold.conformance.watcher import Watcher, judged
from acphold.transports.memory import MemoryTransport
from tests.conformance.played_shell import PlayedShell
from tests.conformance.virtual_time import play

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


def asked(id: int, method: str, **params: object) -> Said:
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


QUESTION = question(1)
LIST_PAGE = [asked(8, "session/list"), answered(8, sessions=[], nextCursor="c1")]


def permission(outcome: Json, id: int = 1) -> Said:
    return "client", {"jsonrpc": "2.0", "id": id, "result": {"outcome": outcome}}


YES = permission({"outcome": "selected", "optionId": "yes"})
PROMPT = asked(3, "session/prompt", sessionId="s", prompt=TEXT)
TURN = [PROMPT, QUESTION, YES, answered(3, stopReason="end_turn")]


def checked(*said: Said) -> Report:
    record = Record("the client", {})
    for by, message in said:
        raw = message if isinstance(message, bytes) else json.dumps(message).encode()
        record.add(0.0, by, raw)
    return judged(CLIENT_CHECKS, record, 0.0)


def failed(report: Report) -> dict[str, str]:
    return {finding.rule.id: finding.why for finding in report.of(Verdict.FAIL)}


def new(**more: object) -> list[Said]:
    params = {"cwd": "/w", "mcpServers": [], **more}
    return [*INTRODUCTION, asked(2, "session/new", **params), answered(2, sessionId="s")]


BROKEN: dict[str, list[Said]] = {
    "client.messages": [*SESSION, ("client", b"hello?")],
    "client.schema": [*INTRODUCTION, asked(2, "session/new", cwd="/w")],
    "client.members": new(colour="green"),
    "client.methods": [*SESSION, told("editor/ready")],
    "client.answers": [*SESSION, *TURN, YES],
    "client.kinds": [*SESSION, PROMPT, asked(7, "session/cancel", sessionId="s")],
    "client.initialize-first": SESSION[2:] + INTRODUCTION,
    "client.info": [asked(1, "initialize", protocolVersion=1), INTRODUCTION[1]],
    "client.advertised-methods": [*SESSION, asked(5, "session/close", sessionId="s")],
    "client.advertised-servers": new(
        mcpServers=[{"type": "sse", "name": "x", "url": "http://x", "headers": []}]
    ),
    "client.advertised-directories": new(additionalDirectories=["/more"]),
    "client.advertised-content": [
        *SESSION,
        asked(
            3,
            "session/prompt",
            sessionId="s",
            prompt=[{"type": "image", "mimeType": "image/png", "data": "AA=="}],
        ),
        answered(3, stopReason="end_turn"),
    ],
    "client.absolute": new(mcpServers=[{"name": "x", "command": "npx", "args": [], "env": []}]),
    "client.known-sessions": [*SESSION, told("session/cancel", sessionId="other")],
    "client.same-folder": [
        *SESSION,
        asked(5, "session/load", sessionId="s", cwd="/elsewhere", mcpServers=[]),
        answered(5),
    ],
    "client.cursors": [*SESSION, *LIST_PAGE, asked(9, "session/list", cursor="c1", cwd="/w")],
    "client.one-turn": [
        *SESSION,
        PROMPT,
        asked(4, "session/prompt", sessionId="s", prompt=TEXT),
        answered(3, stopReason="end_turn"),
        answered(4, stopReason="end_turn"),
    ],
    "client.permission-options": [
        *SESSION,
        PROMPT,
        QUESTION,
        permission({"outcome": "selected", "optionId": "maybe"}),
    ],
    "client.permission-cancelled": [
        *SESSION,
        PROMPT,
        QUESTION,
        told("session/cancel", sessionId="s"),
        YES,
    ],
    "client.known-choices": [
        *SESSION,
        asked(5, "session/set_mode", sessionId="s", modeId="wild"),
        ("agent", {"jsonrpc": "2.0", "id": 5, "error": {"code": -32602, "message": "none"}}),
    ],
    "client.sign-in-methods": [*SESSION, asked(5, "authenticate", methodId="login"), answered(5)],
}


@pytest.mark.parametrize("rule", BROKEN)
def test_exactly_the_rule_that_a_client_breaks_fails(rule: str) -> None:
    report = checked(*BROKEN[rule])
    assert failed(report).keys() == {rule}, failed(report)


def test_a_client_that_keeps_the_rules_breaks_none() -> None:
    cancelled = [
        asked(4, "session/prompt", sessionId="s", prompt=TEXT),
        question(2),
        told("session/cancel", sessionId="s"),
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
    assert {check.rule.id for check in CLIENT_CHECKS if not check.unseen} == BROKEN.keys()


def test_the_checker_of_agents_is_a_good_client_where_it_does_not_provoke() -> None:
    records: list[Record] = []
    memory = Memory()

    async def serve(transport: MemoryTransport) -> None:
        records.append(Record(f"client {len(records) + 1}", {}))
        await Watcher(transport, memory, records[-1], lambda: None).serve()

    polite = chosen(CHECKS, ["prompt.[amnrst]*", "cancel.*", "tool.*", "load.[agort]*", "list.k*"])
    subject = MemorySubject("watcher", serve)
    report = play(inspect(subject, polite, Settings(), shell=PlayedShell))
    assert {it.rule.id: it.why for it in report.of(Verdict.FAIL)} == {}
    for record in records:
        found = failed(judged(CLIENT_CHECKS, record, 0.0))
        # Asking for what does not exist is how it finds out that it was heard.
        assert found.keys() <= {"client.methods"}, found
