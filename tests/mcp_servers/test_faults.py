"""Secrets that a client passes to us are kept out of our messages."""

from __future__ import annotations

from hypothesis import given, strategies as st

from acp_wire.schema import EnvVariable, HttpHeader, McpServerHttp, McpServerStdio
from acphold.mcp_servers.faults import HIDDEN, FaultRedaction


def redaction(*values: str) -> FaultRedaction:
    env = tuple(EnvVariable(name="X", value=value) for value in values)
    return FaultRedaction(McpServerStdio(name="x", command="/x", args=(), env=env))


VALUES = st.text(min_size=4).filter(lambda value: len(value.strip()) >= 4)


@given(st.lists(VALUES, min_size=1), st.text(), st.text())
def test_no_value_of_the_environment_is_left(values: list[str], before: str, after: str) -> None:
    clean = redaction(*values)(f"{before}{values[0]}{after}")
    assert values[0] not in clean or values[0] in HIDDEN or values[0] in before + after + HIDDEN


def test_a_value_that_begins_with_another_leaves_no_rest() -> None:
    assert redaction("abcd", "abcdefgh")("key abcdefgh!") == f"key {HIDDEN}!"


def test_the_token_of_a_header_is_kept_out_without_its_scheme_too() -> None:
    headers = (HttpHeader(name="Authorization", value="Bearer abc-123-def"),)
    redact = FaultRedaction(McpServerHttp(name="x", url="http://h", headers=headers))
    assert redact("token abc-123-def is bad, Bearer") == f"token {HIDDEN} is bad, Bearer"


def test_values_that_are_no_secrets_do_not_make_holes_everywhere() -> None:
    assert redaction("1", "", "no")("exit status 1, no answer") == "exit status 1, no answer"


def test_a_text_of_many_lines_becomes_one_of_bounded_length() -> None:
    line = redaction("secret").one_line("a\n\tsecret\n" + "b" * 999, limit=50)
    assert line.startswith(f"a {HIDDEN} bbb")
    assert len(line) == 50


def test_keys_in_an_address_are_kept_out_too() -> None:
    address = "https://me:pass-word-1@h/mcp?key=abc%2D123-def&v=1"
    redact = FaultRedaction(McpServerHttp(name="x", url=address, headers=()))
    assert redact("pass-word-1, abc-123-def, v 1") == f"{HIDDEN}, {HIDDEN}, v 1"
    assert FaultRedaction(McpServerHttp(name="x", url="http://[", headers=()))("a") == "a"
