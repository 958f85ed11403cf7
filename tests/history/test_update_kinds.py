"""Kinds of updates that a client gets only if it offers to show them."""

from __future__ import annotations

import pytest

from acphold.conversation.history.update_kinds import OPENCODE_CHILD, kinds_to_withhold


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
