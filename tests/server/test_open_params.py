"""The params of a request that opens a session: each field with the scope that it needs."""

from __future__ import annotations

import json
from typing import Any

import pytest

from acphold.live.server.open_params import OpenParams

SERVER = {"name": "x", "command": "/bin/sh", "args": [], "env": []}

PLAIN: dict[str, Any] = {"sessionId": "s1", "cwd": "/w", "mcpServers": []}


def asked(**more: Any) -> OpenParams:
    return OpenParams.decode(json.dumps({**PLAIN, **more}).encode())


def test_params_that_nothing_changes_stay_byte_for_byte() -> None:
    raw = b'{ "sessionId" : "s1", "cwd":"/w" , "mcpServers":[ ],"x":1,"_meta":{"v": {}} }'
    assert OpenParams.decode(raw).params is raw


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
        (
            {"_meta": {"claudeCode": {}, "acphold/keptInFront": "j1"}},
            ("claudeCode", "acphold/keptInFront"),
        ),
    ],
)
def test_anybody_else_joins_a_session_as_it_is_set_up(
    more: dict[str, Any], names: tuple[str, ...]
) -> None:
    said = asked(**more).joining("/its", ["/own"])
    assert [left.rpartition(".")[2] for left in said.left_out] == ["cwd", *names]
    assert json.loads(said.params) == {
        "sessionId": "s1",
        "cwd": "/its",
        "additionalDirectories": ["/own"],
        "mcpServers": [],
    }


def test_anybody_resumes_after_a_position_and_names_a_trace() -> None:
    meta = {"acphold/after": 3, "acphold/lineage": "l", "traceparent": "00", "baggage": "b"}
    said = asked(_meta=meta).joining("/w", ())
    assert json.loads(said.params) == {**PLAIN, "_meta": meta}
    assert said.left_out == ()


def test_a_session_is_given_to_an_agent_and_to_none() -> None:
    named = asked().naming("one").naming("two")
    assert named.agent == "two"
    assert json.loads(named.params)["_meta"] == {"acphold/agent": "two"}
    assert json.loads(named.naming(None).params) == PLAIN
