"""Strict first, lenient second: the flaws a reader forgives and names, and the bytes it keeps."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import TypeVar

import pytest
from hypothesis import given, strategies as st
from msgspec import UNSET, Raw, Struct

from acp_wire.errors import InvalidParamsError
from acp_wire.schema import (
    AgentMessageChunk,
    AuthMethodAgent,
    AuthMethodTerminal,
    AvailableCommandsUpdate,
    CloseSessionResponse,
    Content,
    CreateElicitationRequest,
    CreateTerminalRequest,
    Decoded,
    InitializeRequest,
    InitializeResponse,
    ListSessionsRequest,
    ListSessionsResponse,
    McpServerHttp,
    McpServerStdio,
    MultiSelectPropertySchema,
    NewSessionRequest,
    NewSessionResponse,
    PromptRequest,
    RequestPermissionResponse,
    SessionConfigBoolean,
    SessionConfigSelect,
    SessionConfigSelectGroup,
    SessionConfigSelectOption,
    SessionInfoUpdate,
    SessionModeState,
    SessionNotification,
    SetSessionConfigOptionRequest,
    StringMultiSelectItems,
    TextContent,
    TitledMultiSelectItems,
    ToolCallPatch,
    ToolCallStart,
    ToolCallUpdate,
    UnknownConfigOption,
    UnknownContent,
    UnknownMcpServer,
    UnknownMultiSelectItems,
    UnknownToolContent,
    UnknownUpdate,
    decode,
    decode_blocks,
    decode_update,
    encode,
    salvage,
)
from tests.schema.strategies import instances

T = TypeVar("T")

# --- flaws that the marks forgive


def test_a_marked_field_falls_back_to_its_default_and_is_named() -> None:
    raw = b'{"sessionUpdate":"tool_call","toolCallId":"t","title":"T","kind":"dance","status":7}'
    assert decode_update(raw) == Decoded(ToolCallStart("t", "T"), ("$.kind", "$.status"))


def test_invalid_items_are_left_out_and_named() -> None:
    raw = b'{"sessions":[{"sessionId":"a","cwd":"/"},{"cwd":"/"},3,{"sessionId":"b","cwd":"/"}]}'
    value, flaws = _pair(decode(ListSessionsResponse, raw))
    assert [info.session_id for info in value.sessions] == ["a", "b"]
    assert flaws == ("$.sessions[1]", "$.sessions[2]")


def test_a_flaw_inside_an_item_is_named_inside_it() -> None:
    raw = b'{"sessions":[{"sessionId":"a","cwd":"/","title":1,"additionalDirectories":["/b",2]}]}'
    value, flaws = _pair(decode(ListSessionsResponse, raw))
    assert value.sessions[0].additional_directories == ("/b",)
    assert flaws == ("$.sessions[0].additionalDirectories[1]", "$.sessions[0].title")


def test_a_marked_list_that_is_no_list_becomes_its_default() -> None:
    raw = b'{"sessionUpdate":"available_commands_update","availableCommands":{"a":1}}'
    assert decode_update(raw) == Decoded(AvailableCommandsUpdate(()), ("$.availableCommands",))
    found = decode(NewSessionResponse, b'{"sessionId":"s","configOptions":"none"}')
    assert found == Decoded(NewSessionResponse("s"), ("$.configOptions",))


def test_a_part_of_a_capability_does_not_take_the_others_with_it() -> None:
    raw = b"""{"protocolVersion":1,"clientCapabilities":{"terminal":"yes",
        "fs":{"readTextFile":true,"writeTextFile":1},"elicitation":[]}}"""
    value, flaws = _pair(decode(InitializeRequest, raw))
    assert value.client_capabilities.fs.read_text_file
    assert not value.client_capabilities.fs.write_text_file
    assert set(flaws) == {
        "$.clientCapabilities.fs.writeTextFile",
        "$.clientCapabilities.terminal",
        "$.clientCapabilities.elicitation",
    }


def test_null_is_the_default_where_the_schema_says_so() -> None:
    raw = b'{"sessionId":"s","command":"ls","args":null,"env":null}'
    found = decode(CreateTerminalRequest, raw)
    assert found == Decoded(CreateTerminalRequest("s", "ls"), ("$.args", "$.env"))
    session = decode(NewSessionRequest, b'{"cwd":"/","mcpServers":null}')
    assert session == Decoded(NewSessionRequest("/", ()), ("$.mcpServers",))


def test_a_field_that_forgives_null_forgives_nothing_else() -> None:
    with pytest.raises(InvalidParamsError, match=r"\$\.args: expected `array`, got `str`"):
        decode(CreateTerminalRequest, b'{"sessionId":"s","command":"ls","args":"-l"}')


def test_clearing_a_title_is_not_leaving_it() -> None:
    kept = decode_update(b'{"sessionUpdate":"session_info_update"}')
    cleared = decode_update(b'{"sessionUpdate":"session_info_update","title":null}')
    spoilt = decode_update(b'{"sessionUpdate":"session_info_update","title":[]}')
    assert kept.value == SessionInfoUpdate(UNSET)
    assert cleared.value == SessionInfoUpdate(None)
    assert spoilt == Decoded(SessionInfoUpdate(UNSET), ("$.title",))


# --- flaws that they do not forgive


@pytest.mark.parametrize(
    ("raw", "field"),
    [
        (b'{"prompt":[]}', "$.sessionId"),
        (b'{"sessionId":5,"prompt":[]}', "$.sessionId"),
        (b'{"sessionId":"s","prompt":{}}', "$.prompt"),
        (b'{"sessionId":"s","prompt":[{"type":"text"}]}', "$.prompt[0].text"),
        (b'{"sessionId":"s","prompt":[{"text":"no type"}]}', "$.prompt[0].type"),
        (b'{"sessionId":"s","prompt":["hi"]}', "$.prompt[0]"),
        (b'["s"]', "$"),
        (b"null", "$.sessionId"),
        (b"", "$.sessionId"),
        (b'{"sessionId":"s"', "$"),
        (b'{"sessionId":"s","prompt":[],"a":' + b"[" * 5000 + b"]" * 5000 + b"}", "$"),
    ],
)
def test_an_unmarked_wrong_field_is_refused_by_name(raw: bytes, field: str) -> None:
    with pytest.raises(InvalidParamsError) as refused:
        decode(PromptRequest, raw)
    assert refused.value.field == field
    assert str(refused.value).startswith(field)


def test_a_required_list_may_be_wrong_but_not_missing() -> None:
    assert decode(SessionModeState, b'{"currentModeId":"m","availableModes":4}') == Decoded(
        SessionModeState("m", ()), ("$.availableModes",)
    )
    with pytest.raises(InvalidParamsError, match=r"\$\.availableModes is missing"):
        decode(SessionModeState, b'{"currentModeId":"m"}')


def test_an_answer_to_a_permission_request_that_cannot_be_read_permits_nothing() -> None:
    for outcome in (b'{"outcome":"maybe"}', b'{"outcome":"selected"}', b"{}", b"true"):
        with pytest.raises(InvalidParamsError, match="outcome"):
            decode(RequestPermissionResponse, b'{"outcome":%b}' % outcome)


def test_no_params_read_as_params_without_members() -> None:
    for raw in (b"", b"null", b" null ", b"{}"):
        assert decode(ListSessionsRequest, raw) == Decoded(ListSessionsRequest())
        assert decode(CloseSessionResponse, raw) == Decoded(CloseSessionResponse())


def test_raw_from_an_envelope_is_as_good_as_bytes() -> None:
    assert decode(ListSessionsRequest, Raw(b'{"cwd":"/"}')).value.cwd == "/"
    assert decode(ListSessionsRequest, Raw(b'{"_meta":3}')).flaws == ("$._meta",)


# --- unions ---------------------------------------------------------------------------------------


def test_an_update_newer_than_us_keeps_its_bytes() -> None:
    raw = b'{ "sessionUpdate": "plan_removed",  "id": 1e2 }'
    found = decode_update(raw)
    assert found == Decoded(UnknownUpdate("plan_removed", raw))
    sent = encode(SessionNotification("s", found.value))
    assert sent == b'{"sessionId":"s","update":%b}' % raw
    assert decode(SessionNotification, sent).value.update == found.value


def test_content_newer_than_us_keeps_its_bytes_wherever_it_stands() -> None:
    video = b'{"type":"video",  "data":"AA=="}'
    unknown = UnknownContent("video", video)
    chunk = b'{"sessionUpdate":"agent_message_chunk","content":%b}' % video
    assert decode_update(chunk) == Decoded(AgentMessageChunk(unknown))
    assert decode_blocks(b'[{"type":"text","text":"a"},%b]' % video).value == (
        TextContent("a"),
        unknown,
    )
    tool = (
        b'{"sessionUpdate":"tool_call_update","toolCallId":"t","content":'
        b'[{"type":"content","content":%b},{"type":"chart"},{"type":"terminal"}]}' % video
    )
    value, flaws = _pair(decode_update(tool))
    assert value == ToolCallUpdate(
        "t", content=(Content(unknown), UnknownToolContent("chart", b'{"type":"chart"}'))
    )
    assert flaws == ("$.content[2]",)
    assert encode(value).count(video) == 1


def test_an_mcp_server_is_stdio_unless_its_type_says_otherwise() -> None:
    stdio = b'{"name":"n","command":"/c","args":[],"env":[]}'
    raw = b"""{"cwd":"/","mcpServers":[%b,{"type":"stdio",%b,
        {"type":"http","name":"n","url":"u","headers":[]},{"type":"acp","id":"x"}]}"""
    value, flaws = _pair(decode(NewSessionRequest, raw % (stdio, stdio[1:])))
    known = McpServerStdio("n", "/c", (), ())
    assert value.mcp_servers == (
        known,
        known,
        McpServerHttp("n", "u", ()),
        UnknownMcpServer("acp", b'{"type":"acp","id":"x"}'),
    )
    assert flaws == ()
    assert encode(known) == stdio


@pytest.mark.parametrize(
    ("server", "field"),
    [
        (b'{"name":"n","command":7,"args":[],"env":[]}', "$.mcpServers[0].command"),
        (b'{"type":"http","name":"n","headers":[]}', "$.mcpServers[0].url"),
        (b'"a"', "$.mcpServers[0]"),
    ],
)
def test_an_mcp_server_that_fits_no_kind_is_refused_by_field(server: bytes, field: str) -> None:
    with pytest.raises(InvalidParamsError) as refused:
        decode(NewSessionRequest, b'{"cwd":"/","mcpServers":[%b]}' % server)
    assert refused.value.field == field


def test_a_way_to_sign_in_without_a_type_is_the_agents_own() -> None:
    raw = b"""{"protocolVersion":1,"authMethods":[{"id":"a","name":"A"},{"id":"b"},
        {"type":"terminal","id":"t","name":"T","env":{"K":"V"}},{"type":"x","id":"x","name":"X"}]}"""
    value, flaws = _pair(decode(InitializeResponse, raw))
    assert value.auth_methods == (
        AuthMethodAgent("a", "A"),
        AuthMethodTerminal("t", "T", env={"K": "V"}),
        AuthMethodAgent("x", "X"),
    )
    assert flaws == ("$.authMethods[1]",)


def test_a_config_option_is_of_a_known_kind_or_keeps_its_bytes() -> None:
    slider = b'{"type":"slider","id":"v","name":"V","currentValue":3}'
    grouped = SessionConfigSelect(
        "m",
        "M",
        current_value="a",
        options=(SessionConfigSelectGroup("g", "G", (SessionConfigSelectOption("a", "A"),)),),
    )
    switch = SessionConfigBoolean("b", "B", current_value=True)
    raw = b'{"sessionId":"s","configOptions":[%b,%b,%b]}'
    found = decode(NewSessionResponse, raw % (encode(grouped), encode(switch), slider))
    options = (grouped, switch, UnknownConfigOption("slider", slider))
    assert found == Decoded(NewSessionResponse("s", config_options=options))


def test_a_boolean_option_is_set_with_its_type() -> None:
    value = SetSessionConfigOptionRequest("s", "c", True, "boolean")
    assert decode(SetSessionConfigOptionRequest, encode(value)) == Decoded(value)
    with pytest.raises(InvalidParamsError, match='`type` must be "boolean"'):
        decode(SetSessionConfigOptionRequest, b'{"sessionId":"s","configId":"c","value":true}')


@pytest.mark.parametrize(
    ("items", "expected"),
    [
        (b'{"type":"string","enum":["a"]}', StringMultiSelectItems(("a",))),
        (b'{"anyOf":[]}', TitledMultiSelectItems(())),
        (b'{"type":"color"}', UnknownMultiSelectItems("color", b'{"type":"color"}')),
    ],
)
def test_the_values_of_a_multi_select_come_in_three_kinds(items: bytes, expected: object) -> None:
    raw = b'{"type":"array","items":%b,"default":["a",1]}' % items
    value, flaws = _pair(decode(MultiSelectPropertySchema, raw))
    assert (value.items, value.default, flaws) == (expected, ("a",), ("$.default[1]",))


@pytest.mark.parametrize(
    ("members", "complaint"),
    [
        (b'"mode":"form","sessionId":"s"', "requestedSchema"),
        (b'"mode":"url","sessionId":"s","url":"u"', "elicitationId"),
        (b'"mode":"form","requestedSchema":{}', "sessionId"),
        (b'"sessionId":"s"', "mode"),
    ],
)
def test_an_elicitation_without_what_its_mode_needs_is_refused(
    members: bytes, complaint: str
) -> None:
    with pytest.raises(InvalidParamsError, match=complaint):
        decode(CreateElicitationRequest, b'{"message":"m",%b}' % members)


def test_an_elicitation_of_a_newer_mode_passes() -> None:
    raw = b'{"message":"m","mode":"voice","requestId":null}'
    assert decode(CreateElicitationRequest, raw).value.mode == "voice"


# --- text that is none ----------------------------------------------------------------------------


@given(st.text(st.characters() | st.sampled_from("\ud83d\ude00"), max_size=20))
def test_any_text_python_can_hold_is_sent_as_json_in_utf8(text: str) -> None:
    sent = encode(SessionNotification("s", AgentMessageChunk(TextContent(text))))
    received = json.loads(sent.decode())["update"]["content"]["text"]
    assert received == text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def test_an_unknown_variant_beside_such_a_text_is_still_sent() -> None:
    blocks = (TextContent("\ud83d"), UnknownContent("video", b'{"type": "video"}'))
    sent = json.loads(encode(PromptRequest("s", blocks)))
    assert sent["prompt"] == [{"type": "text", "text": "\ufffd"}, {"type": "video"}]


# --- sending --------------------------------------------------------------------------------------


def test_what_is_at_its_default_is_not_sent() -> None:
    assert encode(PromptRequest("s", (TextContent("hi"),))) == (
        b'{"sessionId":"s","prompt":[{"type":"text","text":"hi"}]}'
    )
    assert encode(ToolCallStart("t", "T", raw_input=None)) == (
        b'{"sessionUpdate":"tool_call","toolCallId":"t","title":"T","rawInput":null}'
    )
    assert encode(ToolCallPatch("t", meta={"a": 1})) == b'{"toolCallId":"t","_meta":{"a":1}}'


def test_what_is_no_json_is_refused() -> None:
    with pytest.raises(TypeError, match="a complex is not JSON"):
        encode(1j)


def _pair(decoded: Decoded[T]) -> tuple[T, tuple[str, ...]]:
    return decoded.value, decoded.flaws


def test_what_is_hardly_anything_but_flaws_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(salvage, "MAX_PARTS", 5_000)
    commands = b'{"availableCommands":[%b1]}'
    value = decode(AvailableCommandsUpdate, commands % (b"1," * 1000))
    assert len(value.flaws) == 1001
    with pytest.raises(InvalidParamsError, match="parts"):
        decode(AvailableCommandsUpdate, commands % (b"1," * 5_000))
    good = b'{"name":"a","description":"b"},' * 5_001
    assert decode(AvailableCommandsUpdate, commands % good).flaws == ("$.availableCommands[5001]",)


KINDS = (PromptRequest, SessionNotification, InitializeRequest, ListSessionsResponse, ToolCallStart)
JUNK = (
    *(b"{", b"}", b"[", b"]", b",", b":", b'"', b"\\", b"1", b"-", b"e", b"01", b"1e999", b"null"),
    *(
        b"\xff",
        b"\x00",
        b"\xef\xbb\xbf",
        b"[" * 600,
        b'"\\ud83d"',
        b'{"\\ud83d":0}',
        b'""',
        b"true",
    ),
)


@given(
    st.one_of([instances(kind) for kind in KINDS]),
    st.lists(st.tuples(st.integers(0), st.integers(0, 4), st.sampled_from(JUNK)), max_size=4),
)
def test_whatever_the_bytes_they_are_read_or_refused(
    value: Struct, changes: list[tuple[int, int, bytes]]
) -> None:
    raw = encode(value)
    for place, size, junk in changes:
        start = place % (len(raw) + 1)
        raw = raw[:start] + junk + raw[start + size :]
    with suppress(InvalidParamsError):
        encode(decode(type(value), raw).value)
