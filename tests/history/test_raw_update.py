"""JSON values are read as far as necessary, and kinds shown to clients that offer it."""

from __future__ import annotations

import pytest

from acphold.conversation.history.raw_update import OPENCODE_CHILD, is_same_json, kinds_to_withhold


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (b'{"a":1,"b":[]}', b'{ "b": [], "a": 1 }', True),
        (b'"\\u00e9"', '"é"'.encode(), True),
        (b"[1,2]", b"[2,1]", False),
        (b"null", None, False),
        (b"{", b"{", True),
        (b"{", b"{}", False),
        (b'"\xff"', b'""', False),
        (b"[" * 20_000, b"[]", False),
    ],
)
def test_json_values_are_the_same_however_they_are_written(
    one: bytes, other: bytes | None, same: bool
) -> None:
    assert is_same_json(one, other) is same


@pytest.mark.parametrize(
    ("capabilities", "shown"),
    [
        (b'{"session":{"notices":{}}}', {"notice"}),
        (b'{"session":{"notices":null,"compaction":{}}}', {"compaction_update"}),
        (b'{"session":[]}', set()),
        (b'{"subagents":{}}', {"subagent_update", "subagent_spawned"}),
        (
            b'{"_meta":{"jetbrains":{"air":{"capabilities":["nativeSubagentSessions"]}}}}',
            {"subagent_update", "subagent_spawned"},
        ),
        (b'{"_meta":{"opencode/child-session-updates":true}}', {OPENCODE_CHILD}),
        (b"null", set()),
        (b"no JSON", set()),
        (b"\xff", set()),
        (b"[" * 100_000, set()),
    ],
)
def test_what_a_client_does_not_offer_to_show_is_withheld(
    capabilities: bytes, shown: set[str]
) -> None:
    kinds = {"notice", "compaction_update", "subagent_update", "subagent_spawned", OPENCODE_CHILD}
    assert kinds - kinds_to_withhold(capabilities) == shown
