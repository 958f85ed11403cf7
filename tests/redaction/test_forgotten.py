"""Texts that a person has removed for good, found by their marks alone."""

from __future__ import annotations

import base64
import json
import urllib.parse
from html import escape

import pytest
from hypothesis import example, given, strategies as st

from acphold.conversation.history.entries import Entry
from acphold.conversation.history.message_chunks import Messages
from acphold.safety.redaction.forgotten import Blanking, ForgottenTexts, mark_of
from tests.raw_entries import said, update

SECRET = 'sk-SEKRET"77/xyz & more'
NOTE = "[removed: forgotten]"


def blanking(text: str = SECRET) -> Blanking:
    return Blanking(ForgottenTexts([mark_of(text)]), Messages)


@pytest.mark.parametrize(
    "written",
    [
        f"before {SECRET} behind",
        json.dumps({"key": SECRET}),
        json.dumps(json.dumps({"key": SECRET})),
        urllib.parse.quote(SECRET, safe=""),
        escape(SECRET),
        SECRET.encode().hex(),
        *(base64.b64encode(b"x" * n + SECRET.encode()).decode() for n in range(3)),
        f"s\x1b[31m{SECRET[1:9]}\x1b[0m{SECRET[9:]}",
        f"über {SECRET[:5]}\u200b{SECRET[5:]}",
    ],
)
def test_a_text_is_found_in_any_encoding_and_its_mark_does_not_have_it(written: str) -> None:
    left = blanking().blank(written)
    assert NOTE in left
    assert "SEKRET" not in left
    assert "SEKRET" not in mark_of(SECRET)


@given(st.text(min_size=8, max_size=40), st.text(max_size=20), st.text(max_size=20))
@example("Pässwörter", "ä", "ö")
def test_any_text_of_eight_characters_goes_and_what_is_around_it_stays(
    text: str, before: str, behind: str
) -> None:
    finder = Blanking(ForgottenTexts([mark_of(text)]))
    around = before + behind
    assert any(ForgottenTexts([mark_of(text)]).find(f"{before}{text}{behind}"))
    if text not in around and text.isalnum() and around.isalnum():
        left = finder.blank(f"{before}{text}{behind}")
        assert (left.startswith(before), left.endswith(behind)) == (True, True)


def test_records_are_changed_only_where_a_text_is() -> None:
    finder = blanking()
    kind, raw = said(f"the key: {SECRET}")
    left = finder.blank_record(Entry(1, kind, 0, raw))
    assert left is not None
    assert json.loads(left)["content"]["text"] == f"the key: {NOTE}"
    assert finder.blank_record(Entry(1, *said("nothing")[:1], 0, said("nothing")[1])) is None
    assert finder.blank_record(Entry(1, kind, 0, b'{"a": "\\u00e9"}')) is None
    kind, raw = update("tool_call", rawInput={SECRET: [1, SECRET]})
    left = finder.blank_record(Entry(1, kind, 0, raw))
    assert json.loads(left or b"{}")["rawInput"] == {NOTE: [1, NOTE]}
    assert finder.blank_record(Entry(1, kind, 0, b'{"a": "' + SECRET.encode())) == b"{}"


def test_a_text_that_came_in_pieces_is_found() -> None:
    finder = blanking("sk-SEKRET77xyz")
    parts = enumerate(map(said, ("a sk-SEK", "RET77xyz b")))
    entries = [Entry(n, kind, 0, raw) for n, (kind, raw) in parts]
    for entry in entries:
        finder.look(entry)
    assert finder.is_done()
    assert finder.places == {0, 1}
    left = [json.loads(finder.redact(n, it) or b"") for n, it in enumerate(entries)]
    assert "".join(it["content"]["text"] for it in left) == f"a {NOTE} b"
