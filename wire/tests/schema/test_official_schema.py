"""Our types are those of the schema that the official npm package publishes."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache

import pytest
from hypothesis import given, settings, strategies as st
from jsonschema import Draft202012Validator
from msgspec import Struct
from msgspec.structs import fields as struct_fields

from acp_wire.errors import InvalidParamsError
from acp_wire.schema import Decoded, decode, encode
from tests.npm import installed
from tests.schema.comparison import OTHER_NAMES, Json, differences, our_objects, our_structs
from tests.schema.strategies import instances, json_values

PACKAGE = "@agentclientprotocol/sdk@2.4.0"

pytestmark = pytest.mark.timeout(300)  # the first run downloads the package


@cache
def official_text() -> bytes:
    folder = installed(PACKAGE) / "node_modules" / "@agentclientprotocol" / "sdk"
    return (folder / "schema" / "v1" / "schema.json").read_bytes()


def a_copy() -> Json:
    schema: Json = json.loads(official_text())
    return schema


@cache
def official() -> Json:
    return a_copy()


def test_every_type_and_method_is_as_the_official_schema_says() -> None:
    assert differences(official()) == []


# --- the comparison itself: it must see the changes of a later release


def properties(defs: Json, name: str) -> Json:
    found: Json = defs[name]["properties"]
    return found


PLAN_REMOVED: Json = {
    "type": "object",
    "properties": {"sessionUpdate": {"type": "string", "const": "plan_removed"}},
    "allOf": [{"$ref": "#/$defs/Plan"}],
}
FORK: Json = {"type": "object", "properties": {}, "x-side": "agent", "x-method": "session/fork"}
WHY = "PromptResponse.stopReason: the schema says enum(cancelled|end_turn"

MUTATIONS: list[tuple[str, Callable[[Json], object]]] = [
    (
        "ToolCallUpdate.nickname: missing",
        lambda it: properties(it, "ToolCallUpdate").update(nickname={"type": ["string", "null"]}),
    ),
    (
        "ToolCallUpdate.name: not in the schema",
        lambda it: properties(it, "ToolCallUpdate").pop("name"),
    ),
    ("Weather: missing", lambda it: it.update(Weather={"type": "object", "properties": {}})),
    (
        "agent session/fork params: the schema has ForkSessionRequest, we have None",
        lambda it: it.update(ForkSessionRequest=FORK),
    ),
    (
        "agent session/prompt params: the schema has None, we have PromptRequest",
        lambda it: it["PromptRequest"].update({"x-method": "session/turn"}),
    ),
    (
        "SessionNotification.update: the schema says",
        lambda it: it["SessionUpdate"]["oneOf"].append(PLAN_REMOVED),
    ),
    (WHY, lambda it: it["StopReason"]["oneOf"].append({"type": "string", "const": "tired"})),
    (WHY, lambda it: it["StopReason"]["oneOf"].append({"title": "other", "type": "string"})),
    (
        "PromptResponse._meta: the schema says {any}? required",
        lambda it: it["PromptResponse"]["required"].append("_meta"),
    ),
    (
        "SessionInfo.title: the schema says string optional on_error, we say string?",
        lambda it: properties(it, "SessionInfo")["title"].update(type="string"),
    ),
    (
        "SessionInfo.title: the schema says string? optional, we say",
        lambda it: properties(it, "SessionInfo")["title"].pop("x-deserialize-default-on-error"),
    ),
    (
        "AgentCapabilities.load_session: the schema's default is True",
        lambda it: properties(it, "AgentCapabilities")["loadSession"].update(default=True),
    ),
    (
        "elicitation mode form: the schema requires",
        lambda it: it["ElicitationFormMode"]["required"].append("title"),
    ),
]


@pytest.mark.parametrize(("said", "mutate"), MUTATIONS)
def test_a_change_of_the_schema_is_reported_by_name(
    said: str, mutate: Callable[[Json], object]
) -> None:
    schema = a_copy()
    mutate(schema["$defs"])
    assert [line for line in differences(schema) if line.startswith(said)]


def test_every_property_of_every_type_is_compared() -> None:
    names = {key for node in official()["$defs"].values() for key in node.get("properties", ())}
    for key in names - {"jsonrpc"}:
        schema = a_copy()
        owners = drop(schema["$defs"], key)
        lines = differences(schema)
        assert lines or not owners
        for owner in owners:
            for label in our_objects().get(owner, {}):
                assert f"{label}.{key}: not in the schema" in lines


def drop(defs: Json, key: str) -> list[str]:
    """Take the property `key` off each type that has it, and return which those are."""
    return [
        name
        for name, node in defs.items()
        if "x-docs-ignore" not in node and node.get("properties", {}).pop(key, None) is not None
    ]


# --- values -------------------------------------------------------------------------------------

STRUCTS = [kind for kind in our_structs() if struct_fields(kind)]


def name_in_schema(kind: type[Struct]) -> str:
    return OTHER_NAMES.get(kind.__name__, kind.__name__)


def attempt(kind: type[Struct], raw: bytes) -> Decoded[Struct] | InvalidParamsError:
    try:
        return decode(kind, raw)
    except InvalidParamsError as error:
        return error


@given(data=st.data(), kind=st.sampled_from(STRUCTS))
@settings(max_examples=200)
def test_what_we_send_is_valid_and_reads_back_the_same(
    data: st.DataObject, kind: type[Struct]
) -> None:
    value = data.draw(instances(kind))
    sent = encode(value)
    schema = {"$ref": f"#/$defs/{name_in_schema(kind)}", "$defs": official()["$defs"]}
    Draft202012Validator(schema).validate(json.loads(sent))
    assert decode(kind, sent) == Decoded(value)


@given(data=st.data(), kind=st.sampled_from(STRUCTS), junk=json_values)
@settings(max_examples=200)
def test_a_marked_field_never_fails_and_any_other_is_named(
    data: st.DataObject, kind: type[Struct], junk: object
) -> None:
    members = json.loads(encode(data.draw(instances(kind))))
    properties = official()["$defs"][name_in_schema(kind)].get("properties", {})
    key = data.draw(st.sampled_from(sorted(properties)))
    members[key] = junk
    found = attempt(kind, json.dumps(members).encode())
    if isinstance(found, InvalidParamsError):
        assert "x-deserialize-default-on-error" not in properties[key]
        assert junk is not None or "x-deserialize-default-on-null" not in properties[key]
        assert key in str(found)
        assert found.field is not None
    else:
        assert all(flaw.startswith(f"$.{key}") for flaw in found.flaws)
