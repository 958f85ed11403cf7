"""A session without what nobody else should read."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from acphold.journal import Entry
from acphold.journal.fold import fold
from acphold.journal.timeline import Message
from acphold.redaction import detector
from acphold.redaction.redactor import Redactor, Removal
from tests.cli.conversation import Raw, prompt, said, update
from tests.journal.conversations import CONVERSATIONS, entries_of, segments_of

KEY = "sk-ant-api03-abCD12efGH34ijKL56mnOP78"


def entries(*raws: Raw) -> list[Entry]:
    return [Entry(seq, kind, seq, raw) for seq, (kind, raw) in enumerate(raws, 1)]


def redacted(unit: Sequence[Entry], redactor: Redactor | None = None) -> list[Entry]:
    redactor = redactor or Redactor()
    redactor.learn(unit)
    return redactor.entries(unit)


def text(found: Sequence[Entry]) -> str:
    return "\n".join(entry.raw.decode() for entry in found)


def messages(found: Sequence[Entry]) -> list[str]:
    return [item.text for item in fold(found).timeline if isinstance(item, Message)]


@pytest.mark.parametrize("kind", [None, 5, {}, [], [[]]])
def test_an_update_whose_kind_is_no_word_is_looked_through_all_the_same(kind: object) -> None:
    odd = json.dumps({"sessionUpdate": kind, "content": KEY}).encode()
    assert KEY not in text(redacted(entries(("update", odd))))


def test_a_secret_is_taken_out_and_told_without_its_value() -> None:
    redactor = Redactor()
    found = redacted(entries(prompt("Hi"), said(f"use {KEY}, please")), redactor)
    assert messages(found) == ["Hi", "use [removed: API key], please"]
    assert dict(redactor.removed) == {Removal(2, "API key"): 1}


@pytest.mark.parametrize("place", range(1, len(KEY)))
def test_a_secret_that_came_in_two_chunks_is_taken_out(place: int) -> None:
    found = redacted(entries(said(f"use {KEY[:place]}"), said(f"{KEY[place:]}, please")))
    assert messages(found) == ["use [removed: API key], please"]


@pytest.mark.parametrize("mark", ["…", "...", "… "])
@pytest.mark.parametrize("length", [4, 10, len(KEY) - 1])
def test_what_a_title_that_was_cut_has_of_a_secret_is_taken_out(length: int, mark: str) -> None:
    redactor = Redactor()
    title = {"title": f"use {KEY[:length]}{mark}"}
    redactor.learn_value(title)
    redactor.learn(entries(prompt(f"use {KEY}, please")))
    assert redactor.value(title) == {"title": f"use [removed: API key]{mark}"}
    assert redactor.removed == {Removal(0, "API key"): 1}


def test_a_text_that_was_cut_elsewhere_stays_as_it_is() -> None:
    redactor = Redactor()
    redactor.learn(entries(prompt(f"use {KEY}, please")))
    for words in ("skip…", "use sk…", "use it..."):
        assert redactor.value([words]) == [words]


def test_a_secret_that_came_letter_by_letter_is_taken_out() -> None:
    found = redacted(entries(*map(said, f"use {KEY} ok")))
    assert messages(found) == ["use [removed: API key] ok"]


def test_chunks_of_a_message_are_put_together_by_its_id() -> None:
    def chunk(words: str, message_id: str) -> Raw:
        content = {"type": "text", "text": words}
        return update("agent_message_chunk", content=content, messageId=message_id)

    found = redacted(
        entries(chunk(KEY[:20], "a"), chunk("other ", "b"), chunk(f"{KEY[20:]} ok", "a"))
    )
    assert messages(found) == ["[removed: API key] ok", "other "]


def test_a_secret_is_taken_out_of_every_part_of_an_entry() -> None:
    call = update(
        "tool_call",
        toolCallId=KEY,
        title=f"run {KEY}",
        locations=[{"path": f"/srv/{KEY}"}],
        content=[{"type": "diff", "path": "/x", "oldText": KEY, "newText": f"a\n{KEY}\n"}],
        rawInput={KEY: [KEY, {"deep": KEY}]},
        rawOutput=json.dumps({"out": KEY}),
        _meta={"x": KEY},
    )
    block = {"type": "resource", "resource": {"uri": f"file:///{KEY}", "text": KEY}}
    found = redacted(
        entries(
            ("prompt", json.dumps([{"type": "text", "text": KEY}, block]).encode()),
            call,
            ("params", b'{"sessionId":"s","update":%b}' % said(KEY)[1]),
            ("turn_end", json.dumps({"error": {"code": 1, "message": KEY}}).encode()),
            ("some_later_kind", json.dumps([KEY]).encode()),
        )
    )
    assert len(found) == 5
    assert KEY not in text(found)


def test_what_a_name_gives_away_is_taken_out_where_nothing_names_it() -> None:
    variable = {"name": "DB_PASSWORD", "value": "Tr0ub4dor&3"}
    call = update("tool_call", toolCallId="t", rawInput={"env": [variable]})
    found = redacted(entries(said("it printed Tr0ub4dor&3 again"), call))
    assert "Tr0ub4dor&3" not in text(found)


def test_an_option_gives_its_argument_away() -> None:
    call = update("tool_call", toolCallId="t", rawInput={"args": ["--password", "hunter2", "x"]})
    found = redacted(entries(call))
    assert '["--password","[removed: Secret Keyword]","x"]' in text(found)


def test_a_usual_word_is_left_where_it_is_no_password() -> None:
    found = redacted(entries(said("password: horses\nand my horses are fast")))
    assert messages(found) == ["password: [removed: Secret Keyword]\nand my horses are fast"]


def test_pictures_and_files_are_left_out() -> None:
    image = {"type": "image", "mimeType": "image/png", "data": "iVBORw0KGgo="}
    blob = {"type": "resource", "resource": {"uri": "x:y", "blob": "AAAA"}}
    redactor = Redactor()
    found = redacted(
        entries(
            ("prompt", json.dumps([image, blob]).encode()),
            update("agent_message_chunk", content=image),
            said(f"data:image/png;base64,{'QUJD' * 200}"),
        ),
        redactor,
    )
    for data in ("iVBOR", "AAAA", "QUJD"):
        assert data not in text(found)
    assert dict(redactor.removed) == {
        Removal(1, "encoded data"): 2,
        Removal(2, "encoded data"): 1,
        Removal(3, "encoded data"): 1,
    }


def test_an_entry_that_cannot_be_read_is_left_out() -> None:
    redactor = Redactor()
    found = redacted(entries(("update", b'{"x":'), said("ok")), redactor)
    assert [entry.seq for entry in found] == [2]
    assert redactor.removed[Removal(1, "unreadable entry")] == 1


def test_no_byte_passes_by_unread() -> None:
    twice = b'{"sessionUpdate":"plan","a":"%b","a":"x"}' % KEY.encode()
    assert KEY not in text(redacted(entries(("update", twice))))


def test_half_of_a_surrogate_pair_hides_nothing() -> None:
    raw = b'{"sessionUpdate":"plan","a":"\\ud83d %b"}' % KEY.encode()
    assert text(redacted(entries(("update", raw)))) == (
        '{"sessionUpdate":"plan","a":"\\ud83d [removed: API key]"}'
    )


def test_what_is_left_of_a_secret_takes_its_text_with_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def half(whole: str) -> list[detector.Finding]:
        place = whole.find("secret")
        return [] if place < 0 else [detector.Finding("half", place, place + 1, False)]

    monkeypatch.setattr("acphold.redaction.redactor.secrets", half)
    found = redacted(entries(said("a secretsecret thing")))
    assert messages(found) == ["[removed: text with a secret that could not be cut out]"]


def test_only_secrets_leaves_people_places_and_pictures() -> None:
    image = {"type": "image", "mimeType": "image/png", "data": "iVBORw0KGgo="}
    raws = entries(("prompt", json.dumps([image]).encode()), said(f"/home/ada ada@x.org {KEY}"))
    found = redacted(raws, Redactor(only_secrets=True))
    assert "iVBORw0KGgo=" in text(found)
    assert messages(found)[1:] == ["/home/ada ada@x.org [removed: API key]"]


def test_the_head_of_a_session_is_looked_through_too() -> None:
    redactor = Redactor()
    head = {"title": f"with {KEY}", "cwd": "/home/ada/x", "createdAt": 5}
    assert redactor.value(head) == {
        "title": "with [removed: API key]",
        "cwd": "~/x",
        "createdAt": 5,
    }
    assert {removal.seq for removal in redactor.removed} == {0}


@given(CONVERSATIONS)
@settings(max_examples=40)
def test_a_session_without_secrets_is_the_same(pieces: list[tuple[str, list[bytes]]]) -> None:
    before = entries_of(segments_of(pieces))
    redactor = Redactor(only_secrets=True)
    after = redacted(before, redactor)
    unread = {removal.seq for removal in redactor.removed}
    readable = [entry for entry in before if entry.seq not in unread]
    assert [(e.seq, e.kind, e.at) for e in after] == [(e.seq, e.kind, e.at) for e in readable]
    assert [json.loads(e.raw) for e in after] == [json.loads(e.raw) for e in readable]


@given(
    st.lists(st.sampled_from([KEY, KEY[:9], KEY[9:], " ", "password: ", '"', "x1Y2z3", "\n"])),
    st.lists(st.integers(0, 200), max_size=8),
)
def test_no_secret_is_left_however_it_was_cut(parts: list[str], cuts: list[int]) -> None:
    whole = "".join(parts)
    ends = sorted({min(cut, len(whole)) for cut in cuts} | {0, len(whole)})
    pieces = [whole[start:end] for start, end in pairwise(ends)]
    (left,) = messages(redacted(entries(*map(said, pieces)))) or [""]
    assert KEY not in left
    assert not [f for f in detector.secrets(left) if f.kind == "API key"]
