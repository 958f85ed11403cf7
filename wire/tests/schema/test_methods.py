"""The table of methods, as a type checker and as a reader see it."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TypeVar, assert_type

import acp_wire.schema as schema
import acp_wire.schema.methods as module
from acp_wire.schema import (
    AGENT_METHODS,
    CANCEL,
    CLIENT_METHODS,
    LIST_SESSIONS,
    PROMPT,
    PROTOCOL_METHODS,
    CancelNotification,
    ListSessionsRequest,
    ListSessionsResponse,
    Method,
    Notification,
    PromptRequest,
    PromptResponse,
    TextContent,
)

P = TypeVar("P")
R = TypeVar("R")


def answered(method: Method[P, R], params: P, raw: bytes) -> R:
    """The result of `method` for a caller, from the raw answer."""
    assert isinstance(params, method.params)
    return schema.decode(method.result, raw).value


def told(notification: Notification[P], raw: bytes) -> P:
    return schema.decode(notification.params, raw).value


def test_a_method_carries_the_types_of_both_sides() -> None:
    prompt = PromptRequest("s", (TextContent("hi"),))
    response = answered(PROMPT, prompt, b'{"stopReason":"end_turn"}')
    assert assert_type(response, PromptResponse).stop_reason == "end_turn"
    page = answered(LIST_SESSIONS, ListSessionsRequest(), b'{"sessions":[]}')
    assert assert_type(page, ListSessionsResponse).sessions == ()
    cancel = told(CANCEL, b'{"sessionId":"s"}')
    assert assert_type(cancel, CancelNotification).session_id == "s"


def test_every_method_is_found_by_its_wire_name() -> None:
    methods = [
        one for one in vars(module).values() if isinstance(one, Method | Notification) and one.name
    ]
    tables = {**AGENT_METHODS, **module.UNSTABLE_METHODS, **CLIENT_METHODS, **PROTOCOL_METHODS}
    assert {method.name: method for method in methods} == tables
    assert AGENT_METHODS["session/prompt"] is PROMPT


def test_importing_the_types_builds_no_decoder_and_loads_no_slow_path() -> None:
    program = (
        "import sys, json as before; del sys.modules['json']; import acp_wire.schema as s;"
        "from acp_wire.schema.shapes import _decoders;"
        "before.dump([sorted(sys.modules), len(_decoders)], sys.stdout)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, check=True, timeout=30
    )
    modules, decoders = json.loads(done.stdout)
    assert not {"json", "acp_wire.schema.salvage"} & set(modules)
    assert decoders == 0
