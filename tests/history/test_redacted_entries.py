"""A session without its secrets and private facts."""

from __future__ import annotations

import json
from base64 import encodebytes
from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given, settings, strategies as st
from msgspec.structs import replace

from acphold.conversation.history.children import child_entry, opencode_entry
from acphold.conversation.history.entries import CHILD, Entry
from acphold.conversation.history.fold import fold
from acphold.conversation.history.message_chunks import Messages
from acphold.conversation.history.timeline import Message
from acphold.safety.budget import Budget
from acphold.safety.errors import RedactionError
from acphold.safety.redaction import detector
from acphold.safety.redaction.redactor import Redactor, Removal
from acphold.safety.redaction.texts import OVERLAP, WINDOW
from tests.conversations import CONVERSATIONS, entries_of, segments_of
from tests.raw_entries import Raw, prompt, said, update

KEY = "sk-ant-api03-abCD12efGH34ijKL56mnOP78"


def entries(*raws: Raw) -> list[Entry]:
    return [Entry(seq, kind, seq, raw) for seq, (kind, raw) in enumerate(raws, 1)]


def redacted(unit: Sequence[Entry], redactor: Redactor | None = None) -> list[Entry]:
    redactor = redactor or Redactor("", Messages, Budget(10**9))
    look_through(redactor, unit)
    shown = ((entry, redactor.redact(place, entry)) for place, entry in enumerate(unit))
    return [replace(entry, raw=raw) for entry, raw in shown if raw is not None]


def look_through(redactor: Redactor, told: Sequence[Entry]) -> None:
    for entry in told:
        redactor.look(entry)
    while not redactor.is_done():
        for entry in told:
            redactor.look(entry)


def text(found: Sequence[Entry]) -> str:
    return "\n".join(entry.raw.decode() for entry in found)


def messages(found: Sequence[Entry]) -> list[str]:
    return [item.text for item in fold(found).timeline if isinstance(item, Message)]


@pytest.mark.parametrize("kind", [None, 5, {}, [], [[]]])
def test_an_update_whose_kind_is_no_word_is_looked_through_all_the_same(kind: object) -> None:
    odd = json.dumps({"sessionUpdate": kind, "content": KEY}).encode()
    assert KEY not in text(redacted(entries(("update", odd))))


def test_a_secret_is_taken_out_and_told_without_its_value() -> None:
    redactor = Redactor("", Messages, Budget(10**9))
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
    redactor = Redactor("", Messages, Budget(10**9))
    title = {"title": f"use {KEY[:length]}{mark}"}
    redactor.learn_value(title)
    look_through(redactor, entries(prompt(f"use {KEY}, please")))
    assert redactor.value(title) == {"title": f"use [removed: API key]{mark}"}
    assert redactor.removed == {Removal(0, "API key"): 1}


def test_a_text_that_was_cut_elsewhere_stays_as_it_is() -> None:
    redactor = Redactor("", Messages, Budget(10**9))
    look_through(redactor, entries(prompt(f"use {KEY}, please")))
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
    assert '["--password","[removed: password]","x"]' in text(found)


def test_a_usual_word_is_left_where_it_is_no_password() -> None:
    found = redacted(entries(said("password: horses\nand my horses are fast")))
    assert messages(found) == ["password: [removed: password]\nand my horses are fast"]


def test_pictures_and_files_are_left_out() -> None:
    image = {"type": "image", "mimeType": "image/png", "data": "iVBORw0KGgo="}
    blob = {"type": "resource", "resource": {"uri": "x:y", "blob": "AAAA"}}
    redactor = Redactor("", Messages, Budget(10**9))
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


def test_a_password_that_is_a_number_is_removed_and_other_numbers_stay() -> None:
    given = {"password": 84627153, "port": 5432, "nested": [{"db_password": 90125}], "on": True}
    told = text(redacted(entries(update("tool_call", toolCallId="t", rawInput=given))))
    assert "84627153" not in told
    assert "90125" not in told
    assert '"port":5432' in told
    assert '"on":true' in told


def test_an_entry_that_cannot_be_read_is_left_out() -> None:
    redactor = Redactor("", Messages, Budget(10**9))
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


USUAL = (
    "docker run --rm -u 1000:1000 -v $PWD:/src node npm test",
    "mysqldump --user root --password X shop > dump.sql",
    "curl -u a:b http://localhost:8080/health",
    "curl -u elastic:Tr0ub4dor&3 http://localhost:9200/",
    "sort -u file:name",
    "  --token TOKEN        the token of the service account",
    "  --password PASSWORD, -p PASSWORD   asked for if it is not given",
    "usage: tool [-h] [--api-key API_KEY] [--secret SECRET]",
    "password: password: password: Tr0ub4dor&3",
    "--password --token --secret Tr0ub4dor&3",
    "token=token=token=Tr0ub4dor&3abc",
    "export DB_PASSWORD=Tr0ub4dor&3 TOKEN=abcd1234efgh5678",
    "Authorization: Bearer Bearer abcdefgh12345678",
    "https://ada:Tr0ub4dor&3@example.org https://ada:[removed: password]@example.org",
    "password: [removed: password], --token [removed: secret]",
    'password: "\\"Tr0ub4dor&3\\""',
    "curl -u [removed: password]:Tr0ub4dor&3 x",
    f"{KEY}{KEY} {KEY}, -u {KEY}:{KEY}",
)
"""Lines after which the words around them have to stand as they did."""


@pytest.mark.parametrize("line", USUAL)
def test_whatever_is_taken_out_the_words_around_it_stay(line: str) -> None:
    redactor = Redactor("", Messages, Budget(10**9), only_secrets=True)
    found = redacted(entries(said(f"I ran this:\n{line}\nAnd it went well.")), redactor)
    (left,) = messages(found)
    assert left.startswith("I ran this:\n")
    assert left.endswith("\nAnd it went well.")
    for secret in (KEY, "Tr0ub4dor"):
        assert secret not in left


@pytest.mark.parametrize("line", USUAL)
def test_what_was_redacted_is_not_redacted_again(line: str) -> None:
    once = redacted(entries(said(line)))
    redactor = Redactor("", Messages, Budget(10**9))
    assert redacted(once, redactor) == once
    assert not redactor.removed


BESIDE = (
    update("usage_update", used=1, size=2),
    update("available_commands_update", availableCommands=[]),
    update("config_option_update", configOptions=[]),
    update("session_info_update", title="A title"),
    update("current_mode_update", currentModeId="plan"),
    update("something_new", text="words"),
    update("plan", entries=[]),
    update("notice", severity="info", title="Hm"),
    update("tool_call_update", toolCallId="before", status="completed"),
    update("compaction_update", compactionId="c", status="completed"),
    ("turn_end", b'{"stopReason":"end_turn"}'),
    ("settings", b'{"modes":null}'),
    ("question", b'{"id":"q","method":"session/request_permission","params":{}}'),
    ("author", b'{"name":"an editor"}'),
    ("echo", said("an echo", "user_message_chunk")[1]),
    ("some_later_kind", b'{"x":1}'),
    ("update", b"no JSON"),
)
"""Updates that may come between two chunks of a message."""


@pytest.mark.parametrize("beside", BESIDE, ids=lambda raw: f"{raw[0]} {raw[1][:40]!r}")
@pytest.mark.parametrize("place", [3, 9, 20])
def test_a_secret_is_found_in_a_message_between_whose_chunks_something_else_came(
    beside: Raw, place: int
) -> None:
    call = update("tool_call", toolCallId="before", title="Look")
    found = redacted(
        entries(call, said(f"use {KEY[:place]}"), beside, beside, said(f"{KEY[place:]} now"))
    )
    assert KEY[place:] not in text(found)
    assert "".join(messages(found)) == "use [removed: API key] now"


@pytest.mark.parametrize(
    "between",
    [
        update("tool_call", toolCallId="t", title="Look"),
        said("Hm.", "agent_thought_chunk"),
        prompt("Go on."),
    ],
    ids=["tool", "thought", "prompt"],
)
def test_a_secret_does_not_come_through_in_two_messages(between: Raw) -> None:
    found = redacted(entries(said(f"use {KEY[:9]}"), between, said(f"{KEY[9:]}, please")))
    assert KEY[9:] not in text(found)
    assert messages(found)[0] == "use [removed: API key]"
    assert messages(found)[-1] == ", please"


def test_a_word_that_begins_the_next_message_is_no_part_of_a_secret() -> None:
    call = update("tool_call", toolCallId="t", title="Look")
    found = redacted(entries(said(f"use {KEY}"), call, said("Looking at it.")))
    assert messages(found) == ["use [removed: API key]", "Looking at it."]


def test_a_message_that_goes_on_in_a_later_turn_is_looked_through_as_one() -> None:
    def chunk(words: str) -> Raw:
        content = {"type": "text", "text": words}
        return update("agent_message_chunk", content=content, messageId="m")

    found = redacted(
        entries(prompt("a"), chunk(f"use {KEY[:9]}"), prompt("b"), chunk(f"{KEY[9:]} now"))
    )
    assert KEY[9:] not in text(found)
    assert "use [removed: API key] now" in messages(found)


def test_chunks_of_a_kind_that_is_not_shown_are_looked_through_as_one() -> None:
    def chunk(words: str) -> Raw:
        content = {"type": "text", "text": words}
        return update("compaction_summary_chunk", content=content, compactionId="c")

    found = redacted(entries(chunk(f"use {KEY[:9]}"), said("beside"), chunk(KEY[9:])))
    assert KEY[9:] not in text(found)


@pytest.mark.parametrize("is_opencodes", [False, True])
def test_what_two_sub_agents_say_by_turns_is_looked_through_as_two_messages(
    is_opencodes: bool,
) -> None:
    def says(child: str, words: str) -> Raw:
        raw = said(words)[1]
        if not is_opencodes:
            return CHILD, child_entry(child, raw)
        params = {"childSessionId": child, "type": "update", "update": json.loads(raw)}
        return CHILD, opencode_entry(json.dumps(params).encode())

    found = redacted(
        entries(says("a", f"use {KEY[:20]}"), says("b", "Hello"), says("a", f"{KEY[20:]}, please"))
    )
    assert KEY[:20] not in text(found)
    assert KEY[20:] not in text(found)
    assert "Hello" in text(found)


def test_a_message_longer_than_what_is_looked_through_at_once_has_no_gap() -> None:
    for before in (WINDOW - 10, WINDOW - OVERLAP - 5, 2 * WINDOW):
        found = redacted(
            entries(*[said("x " * 512)] * (before // 1024), said("x" * (before % 1024)))
            + [Entry(10_000, *_timed(said(f" {KEY[:9]}"))), Entry(10_001, *_timed(said(KEY[9:])))]
            + [Entry(20_000 + n, *_timed(said("y " * 512))) for n in range(80)]
        )
        (left,) = messages(found)
        assert KEY[9:] not in left
        assert left.count("[removed: API key]") == 1


def _timed(raw: Raw) -> tuple[str, int, bytes]:
    kind, content = raw
    return kind, 0, content


@pytest.mark.parametrize("name", ["terminal_output", "terminal_output_delta"])
def test_a_secret_that_a_terminal_printed_in_pieces_is_taken_out(name: str) -> None:
    def printed(data: str) -> Raw:
        meta = {name: {"terminal_id": "one", "data": data}}
        return update("tool_call_update", toolCallId="t", _meta=meta)

    pieces = [f"TOKEN {KEY[:20]}", f"{KEY[20:30]}", f"{KEY[30:]}\n$ "]
    found = redacted(entries(*map(printed, pieces)))
    told = "".join(json.loads(it.raw)["_meta"][name]["data"] for it in found)
    assert told == "TOKEN [removed: API key]\n$ "


@pytest.mark.parametrize(
    "hidden", ["\x1b]0;TOKEN={} npm\x07", "\x1b]8;;https://{}@host/\x1b\\", "\x1b]0;{}\x07 {}"]
)
def test_a_secret_that_a_terminal_does_not_show_is_taken_out(hidden: str) -> None:
    raw = said(f"before {hidden.replace('{}', KEY)} after")
    shown = text(redacted(entries(raw)))
    assert KEY not in shown
    assert "after" in shown


@pytest.mark.parametrize(
    "value",
    [
        {"password": ["correct7horse"]},
        {"password": {"value": "correct7horse"}},
        {"env": [{"Name": "DB_PASSWORD", "Value": "correct7horse"}]},
    ],
)
def test_a_name_is_that_of_what_is_below_it_as_well(value: object) -> None:
    raw = update("tool_call", toolCallId="t", rawInput=value)
    assert "correct7horse" not in text(redacted(entries(raw)))


def test_data_encoded_in_lines_are_left_out() -> None:
    lines = encodebytes(bytes(range(250)) * 4).decode()
    assert lines.splitlines()[3] not in text(redacted(entries(said(lines))))


def test_what_is_not_as_it_was_when_it_was_looked_through_is_not_written() -> None:
    told = entries(said("one"), said("two"))
    redactor = Redactor("", Messages, Budget(10**9))
    look_through(redactor, told)
    assert redactor.redact(0, told[0]) is not None
    for place, entry in ((1, Entry(2, "update", 2, said(KEY)[1])), (2, told[1])):
        with pytest.raises(RedactionError):
            redactor.redact(place, entry)


def test_two_members_that_are_called_after_secrets_both_stay() -> None:
    call = update("tool_call", toolCallId="t", rawInput={KEY: 1, f"{KEY}x": 2, "b": 3})
    raw = json.loads(text(redacted(entries(call))))["rawInput"]
    assert sorted(raw.values()) == [1, 2, 3]


def test_only_secrets_leaves_people_places_and_pictures() -> None:
    image = {"type": "image", "mimeType": "image/png", "data": "iVBORw0KGgo="}
    raws = entries(("prompt", json.dumps([image]).encode()), said(f"/home/ada ada@x.org {KEY}"))
    found = redacted(raws, Redactor("", Messages, Budget(10**9), only_secrets=True))
    assert "iVBORw0KGgo=" in text(found)
    assert messages(found)[1:] == ["/home/ada ada@x.org [removed: API key]"]


def test_the_head_of_a_session_is_looked_through_too() -> None:
    redactor = Redactor("", Messages, Budget(10**9))
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
    redactor = Redactor("", Messages, Budget(10**9), only_secrets=True)
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
    assert not [f for f in detector.secrets(left, Budget(10**9)) if f.kind == "API key"]


@given(CONVERSATIONS, st.data())
@settings(max_examples=60)
def test_what_the_fold_puts_together_is_looked_through_as_one(
    pieces: list[tuple[str, list[bytes]]], data: st.DataObject
) -> None:
    """In a conversation with anything in it, a secret is cut in two by an update in between."""
    around = [(entry.kind, entry.raw) for entry in entries_of(segments_of(pieces))]
    first = data.draw(st.integers(0, len(around)))
    second = data.draw(st.integers(first, len(around)))
    named = data.draw(st.sampled_from([None, "m"]))
    kind = data.draw(st.sampled_from(["agent_message_chunk", "agent_thought_chunk"]))

    def chunk(words: str) -> Raw:
        message = {} if named is None else {"messageId": named}
        return update(kind, content={"type": "text", "text": words}, **message)

    told = entries(
        *around[:first],
        chunk(f" {KEY[:9]}"),
        *around[first:second],
        chunk(KEY[9:]),
        *around[second:],
    )
    assert not [left for left in messages(redacted(told)) if KEY in left]


def test_a_prompt_ends_the_message_before_it() -> None:
    messages = Messages()
    words = {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": "so"}}
    told = [("update", words), ("prompt", []), ("update", words), ("prompt", [])]
    chunks = [messages.chunk(kind, value) for kind, value in told]
    assert len({chunk.message for chunk in chunks if chunk is not None}) == 4
