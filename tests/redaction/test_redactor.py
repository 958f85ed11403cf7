"""Records of a session without their secrets, whoever keeps the session."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import pytest

from acphold.safety.budget import Budget
from acphold.safety.errors import RedactionError
from acphold.safety.redaction.redactor import UNREADABLE, Redactor, Removal
from acphold.safety.redaction.texts import Chunk

KEY = "sk-ant-api03-abCD12efGH34ijKL56mnOP78"


class Said(NamedTuple):
    seq: int
    text: str

    @property
    def kind(self) -> str:
        return "said"

    @property
    def raw(self) -> bytes:
        return json.dumps({"text": self.text}).encode()


class OneMessage:
    """All records continue one message."""

    def chunk(self, kind: str, value: Any) -> Chunk:
        return Chunk(kind, (kind, "1"), frozenset({id(value)}))


def redacted(*told: Said) -> str:
    redactor = looked_through(*told)
    raws = [redactor.redact(place, said) for place, said in enumerate(told)]
    return "".join(json.loads(raw)["text"] for raw in raws if raw is not None)


def looked_through(*told: Said) -> Redactor:
    redactor = Redactor("", OneMessage, Budget(10**9))
    for said in told:
        redactor.look(said)
    while not redactor.is_done():
        for said in told:
            redactor.look(said)
    return redactor


def test_a_secret_that_was_cut_in_two_is_found_in_the_message_it_belongs_to() -> None:
    assert (
        redacted(Said(1, f"key: {KEY[:9]}"), Said(2, f"{KEY[9:]}.")) == "key: [removed: API key]."
    )


def test_a_record_that_has_changed_since_it_was_searched_is_refused() -> None:
    redactor = looked_through(Said(1, "one"), Said(2, "two"))
    assert redactor.redact(0, Said(1, "one"))
    with pytest.raises(RedactionError):
        redactor.redact(1, Said(2, KEY))
    with pytest.raises(RedactionError):
        redactor.redact(2, Said(3, "three"))


def test_a_record_that_cannot_be_read_is_left_out_and_counted() -> None:
    class Torn(Said):
        raw = b'{"text'

    redactor = looked_through(torn := Torn(7, ""))
    assert redactor.redact(0, torn) is None
    assert redactor.removed == {Removal(7, UNREADABLE): 1}
