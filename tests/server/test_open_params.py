"""The params of a request that opens a session: each field with the scope that it needs."""

from __future__ import annotations

import json
from typing import Any

import pytest

from acphold.journal.access import SCOPES, Scope
from acphold.live.server.open_params import OpenParams

SERVER = {"name": "x", "command": "/bin/sh", "args": [], "env": []}
GUEST: frozenset[Scope] = frozenset(SCOPES) - {"manage"}

PLAIN: dict[str, Any] = {"sessionId": "s1", "cwd": "/w", "mcpServers": []}


def asked(**more: Any) -> OpenParams:
    return OpenParams.decode(json.dumps({**PLAIN, **more}).encode())


def test_who_may_manage_says_anything_byte_for_byte() -> None:
    raw = b'{ "sessionId" : "s1", "cwd":"/w" , "mcpServers":[ ],"x":1,"_meta":{"v": {}} }'
    said, left_out = OpenParams.decode(raw).restrict(frozenset({"manage"}))
    assert said.params is raw
    assert left_out == ()


@pytest.mark.parametrize(
    ("more", "names"),
    [
        ({}, ()),
        ({"additionalDirectories": []}, ()),
        ({"mcpServers": None}, ()),
        ({"_meta": None}, ()),
        ({"mcpServers": [SERVER]}, ("mcpServers",)),
        ({"additionalDirectories": ["/"]}, ("additionalDirectories",)),
        ({"unknownMember": 1}, ("unknownMember",)),
        ({"_meta": [1]}, ("_meta",)),
        ({"_meta": {"traceparent": {"run": "me"}}}, ("traceparent",)),
        ({"_meta": {"claudeCode": {}, "acphold/keptInFront": "j1"}}, ("claudeCode", "keptInFront")),
    ],
)
def test_anybody_else_joins_a_session_as_it_is_set_up(
    more: dict[str, Any], names: tuple[str, ...]
) -> None:
    said, left_out = asked(**more).restrict(GUEST)
    assert json.loads(said.params) == {"sessionId": "s1"}
    assert len(left_out) == len(names)
    assert all(left.endswith(name) for left, name in zip(left_out, names, strict=True))
    assert json.loads(said.set_up("/its", ["/own"]).params) == {
        "sessionId": "s1",
        "cwd": "/its",
        "additionalDirectories": ["/own"],
        "mcpServers": [],
    }


def test_anybody_resumes_after_a_position_and_names_a_trace() -> None:
    meta = {"acphold/after": 3, "acphold/lineage": "l", "traceparent": "00", "baggage": "b"}
    said, left_out = asked(_meta=meta).restrict(GUEST)
    assert json.loads(said.params) == {"sessionId": "s1", "_meta": meta}
    assert left_out == ()


def test_a_session_is_given_to_an_agent_and_to_none() -> None:
    named = asked().naming("one").naming("two")
    assert named.agent == "two"
    assert json.loads(named.params)["_meta"] == {"acphold/agent": "two"}
    assert json.loads(named.naming(None).params) == PLAIN
