"""Results of MCP servers, as types."""

from __future__ import annotations

from acphold.mcp_servers.offers import call_result

IMAGE = {"type": "image", "data": "aGk=", "mimeType": "image/png"}
FILE = {"type": "resource", "resource": {"uri": "x:1", "blob": "aGk=", "mimeType": "x/y"}}
TEXT = {"type": "text", "text": "hi"}


def test_what_a_call_came_to_is_told_without_the_bytes_that_its_content_holds() -> None:
    raw: dict[str, object] = {"content": [IMAGE, TEXT, FILE], "structuredContent": {"data": 1}}
    result = call_result(raw)
    assert len(result.content) == 3
    assert result.raw == raw
    assert result.output == {
        "content": [
            {"type": "image", "mimeType": "image/png"},
            TEXT,
            {"type": "resource", "resource": {"uri": "x:1", "mimeType": "x/y"}},
        ],
        "structuredContent": {"data": 1},
    }


def test_a_result_without_content_is_told_as_it_is() -> None:
    raw: dict[str, object] = {"structuredContent": {"a": 1}}
    assert call_result(raw).output == raw
