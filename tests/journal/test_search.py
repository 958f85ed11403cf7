"""Search: all that was said and done, found by its words, newest first."""

from __future__ import annotations

import pytest

from acphold.journal import NewSession, SqliteJournal
from acphold.journal.entries import Entry
from acphold.journal.search import TEXT_CHARACTERS, searchable_text
from tests.journal.conversations import chunk, encode


async def said(
    journal: SqliteJournal, session_id: str, *values: object, agent: str = "a", cwd: str = "/w"
) -> None:
    """A settled session in which these updates came, after a prompt if one is a list."""
    lease = await journal.create(NewSession(session_id, agent, cwd), "me")
    for value in values:
        kind = "prompt" if isinstance(value, list) else "update"
        await journal.append(lease, kind, [encode(value)])
    await journal.settle(lease, lease.next_seq - 1)


async def found(journal: SqliteJournal, words: str) -> list[tuple[str, int]]:
    """Where the words are."""
    return [(hit.session_id, hit.seq) for hit in await journal.search(words)]


async def test_messages_thoughts_and_tools_are_found(journal: SqliteJournal) -> None:
    tool = {
        "sessionUpdate": "tool_call",
        "toolCallId": "t",
        "title": "Run the suite",
        "rawInput": {"command": ["pytest", "-q"], "cwd": "/srv"},
        "content": [
            {"type": "content", "content": {"type": "text", "text": "3 passed"}},
            {"type": "diff", "path": "/main.py", "newText": "def added(): ...", "oldText": "gone"},
        ],
        "rawOutput": {"stdout": {"lines": ["all green"]}},
    }
    prompt = [
        {"type": "text", "text": "Please look"},
        {"type": "resource", "resource": {"uri": "file:///notes.md", "text": "embedded words"}},
        {"type": "image", "data": "AAAABBBB", "mimeType": "image/png"},
    ]
    await said(
        journal,
        "s1",
        prompt,
        chunk("agent_thought", "pondering"),
        chunk("agent_message", "Done"),
        tool,
    )
    where = {"look": 1, "embedded": 1, "notes.md": 1, "pondering": 2, "done": 3}
    where |= {"suite": 4, "pytest": 4, "passed": 4, "main.py": 4, "added": 4, "gone": 4, "green": 4}
    for word, seq in where.items():
        assert await found(journal, word) == [("s1", seq)], word
    assert await found(journal, "AAAABBBB") == []
    assert await found(journal, "stdout") == []


async def test_the_newest_are_found_first_whatever_session_they_are_in(
    journal: SqliteJournal,
) -> None:
    old = await journal.create(NewSession("old", "a", "/w"), "me")
    await said(journal, "new", chunk("agent_message", "flaky test"))
    await journal.append(old, "update", [encode(chunk("agent_message", "flaky again"))])
    await journal.settle(old, 1)
    assert await found(journal, "flaky") == [("old", 1), ("new", 1)]
    hits = await journal.search("flaky", limit=1)
    assert [hit.session_id for hit in hits] == ["old"]


async def test_all_words_must_be_there_in_any_order(journal: SqliteJournal) -> None:
    await said(journal, "s1", chunk("agent_message", "The Quick brown fox"))
    await said(journal, "s2", chunk("agent_message", "The quick dog"))
    assert await found(journal, "fox QUICK") == [("s1", 1)]
    assert await found(journal, "the quick") == [("s2", 1), ("s1", 1)]
    assert await found(journal, "bro") == []
    assert await found(journal, "bro*") == [("s1", 1)]


@pytest.mark.parametrize(
    "words",
    ["", "   ", '"', "*", "--", "AND", "NOT x", "a OR", "(", "^", "text:", "né*", "a\0b", "\ud83d"],
)
async def test_no_words_are_taken_for_operators(journal: SqliteJournal, words: str) -> None:
    await said(journal, "s1", chunk("agent_message", "nothing of that"))
    assert await journal.search(words) == []


async def test_punctuation_between_words_does_not_hide_them(journal: SqliteJournal) -> None:
    await said(journal, "s1", chunk("agent_message", "see foo.bar(baz) -- twice"))
    for words in ("foo.bar", "foo.bar(baz)", "-- twice", '"baz"', "bar*"):
        assert await found(journal, words) == [("s1", 1)], words


async def test_search_can_keep_to_an_agent_and_a_folder(journal: SqliteJournal) -> None:
    await said(journal, "s1", chunk("agent_message", "word"), agent="a", cwd="/x")
    await said(journal, "s2", chunk("agent_message", "word"), agent="b", cwd="/x")
    await said(journal, "s3", chunk("agent_message", "word"), agent="b", cwd="/y")
    assert [hit.session_id for hit in await journal.search("word", agent="b")] == ["s3", "s2"]
    assert [hit.session_id for hit in await journal.search("word", cwd="/x")] == ["s2", "s1"]
    assert [hit.session_id for hit in await journal.search("word", agent="b", cwd="/x")] == ["s2"]


async def test_an_excerpt_is_one_line_around_the_word(journal: SqliteJournal) -> None:
    text = "before " * 50 + "\nthe\tNeedle here\n" + "after " * 50
    await said(journal, "s1", chunk("agent_message", text))
    (hit,) = await journal.search("needle")
    assert hit.excerpt.startswith("…")
    assert hit.excerpt.endswith("…")
    assert "before the Needle here after" in hit.excerpt
    assert (hit.kind, len(hit.excerpt) < 200) == ("update", True)


async def test_a_hit_names_the_entry_even_when_it_shares_its_segment(
    journal: SqliteJournal,
) -> None:
    lease = await journal.create(NewSession("s1", "a", "/w"), "me")
    raws = [encode(chunk("agent_message", f"word{n}", messageId=f"m{n}")) for n in range(5)]
    await journal.append(lease, "update", raws)
    await journal.settle(lease, 5)
    (hit,) = await journal.search("word3")
    assert (hit.seq, hit.excerpt) == (4, "word3")


def test_only_the_beginning_of_a_huge_entry_is_searched() -> None:
    raw = encode(chunk("agent_message", "x " * TEXT_CHARACTERS))
    assert len(searchable_text(Entry(1, "update", 0, raw))) == TEXT_CHARACTERS


@pytest.mark.parametrize(
    ("kind", "raw"),
    [
        ("echo", encode(chunk("user_message", "again"))),
        ("turn_end", b'{"error":{"code":1,"message":"text"}}'),
        ("settings", b'{"modes":null}'),
        ("update", b'{"sessionUpdate":"plan","entries":[{"content":"step"}]}'),
        ("update", b"\xff"),
        ("params", b"[]"),
    ],
)
def test_what_nobody_said_is_not_searched(kind: str, raw: bytes) -> None:
    assert searchable_text(Entry(1, kind, 0, raw)) == ""
