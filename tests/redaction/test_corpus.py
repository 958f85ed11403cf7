"""Redaction finds nearly all secrets of a corpus, and hardly changes harmless texts."""

from __future__ import annotations

import json

import pytest

from acphold.record.history.entries import Entry
from acphold.record.redaction.redactor import Redactor
from tests.redaction.corpus.corpus import cases, harmless, is_readable

LEAST_FOUND = 195
MOST_CHANGED = 1
"""Of 200 secrets and 100 harmless lines."""


def redacted(messages: tuple[str, ...]) -> list[str]:
    told = [
        Entry(seq, "prompt", 0, json.dumps([{"type": "text", "text": message}]).encode())
        for seq, message in enumerate(messages, 1)
    ]
    redactor = Redactor("", only_secrets=True)
    for entry in told:
        redactor.look(entry)
    while not redactor.is_done():
        for entry in told:
            redactor.look(entry)
    shown = (redactor.entry(place, entry) for place, entry in enumerate(told))
    return [json.loads(entry.raw)[0]["text"] for entry in shown if entry is not None]


@pytest.mark.parametrize("seed", range(5))
def test_nearly_all_secrets_are_found(seed: int) -> None:
    told = cases(seed)
    missed = [
        case.name
        for case in told
        if any(
            is_readable(secret, text) for secret in case.secrets for text in redacted(case.messages)
        )
    ]
    assert len(told) == 200
    assert len(told) - len(missed) >= LEAST_FOUND, missed


def test_hardly_anything_is_changed_for_nothing() -> None:
    told = harmless()
    changed = [text for text in told if redacted((text,)) != [text]]
    assert len(told) == 100
    assert len(changed) <= MOST_CHANGED, changed
