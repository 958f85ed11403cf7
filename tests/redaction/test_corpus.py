"""Redaction finds nearly all secrets of a corpus, and hardly changes harmless texts."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import pytest

from acphold.safety.budget import Budget
from acphold.safety.redaction.redactor import Redactor
from acphold.safety.redaction.texts import Chunk
from tests.redaction.corpus.corpus import cases, harmless, is_readable

LEAST_FOUND = 215
MOST_CHANGED = 0
"""Of 220 secrets and 100 harmless lines."""


class Said(NamedTuple):
    seq: int
    kind: str
    raw: bytes


class Whole:
    """Each record is a message of its own."""

    def __init__(self) -> None:
        self.count = 0

    def chunk(self, kind: str, value: Any) -> Chunk:
        self.count += 1
        return Chunk(kind, (kind, str(self.count)), frozenset(map(id, value)), is_whole=True)


def redacted(messages: tuple[str, ...]) -> list[str]:
    told = [
        Said(seq, "prompt", json.dumps([{"type": "text", "text": message}]).encode())
        for seq, message in enumerate(messages, 1)
    ]
    redactor = Redactor("", Whole, Budget(10**9), only_secrets=True)
    for entry in told:
        redactor.look(entry)
    while not redactor.is_done():
        for entry in told:
            redactor.look(entry)
    shown = (redactor.redact(place, entry) for place, entry in enumerate(told))
    return [json.loads(raw)[0]["text"] for raw in shown if raw is not None]


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
    assert len(told) == 220
    assert len(told) - len(missed) >= LEAST_FOUND, missed


def test_hardly_anything_is_changed_for_nothing() -> None:
    told = harmless()
    changed = [text for text in told if redacted((text,)) != [text]]
    assert len(told) == 100
    assert len(changed) <= MOST_CHANGED, changed
