"""What a session has planned goes on only in the journal in which it was planned."""

from __future__ import annotations

import pytest

from acphold.conversation.history.attributes import Attributes
from acphold.conversation.history.entries import SETTINGS
from acphold.conversation.history.fold import Summary
from acphold.journal.intentions import marks


@pytest.mark.parametrize(
    ("attributes", "kinds"),
    [
        (Attributes(), []),
        (Attributes(current_mode_id="plan"), [SETTINGS]),
        (Attributes(config_options=b"[]"), [SETTINGS]),
    ],
)
def test_only_what_was_set_is_made_history(attributes: Attributes, kinds: list[str]) -> None:
    assert [kind for kind, _ in marks(Summary(attributes))] == kinds
