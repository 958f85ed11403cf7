"""A search finds the same in every store: entries, order, excerpts and marks; ranked hits in any
order."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from acphold.conversation.history.entries import PastEntry
from acphold.journal.journal import Journal
from acphold.journal.rows import NewSession
from acphold.journal.seams import Part, Sought
from acphold.journal.stores import open_journal
from tests.conversations import chunk, encode
from tests.postgresql import Databases

pytestmark = pytest.mark.postgresql

SAID = [
    "The quick brown fox jumps over the lazy dog",
    "call getUserName(id) and get_user_name, please",
    "see foo.bar(baz) -- twice; max_retry_count = 3",
    "naïve café, Ärger, ÅNGSTRÖM, straße, İstanbul, ﬁne, Ⅷ, x²",
    "今日は良い天気です。テストを直す、がっこう",
    "请修复这个测试 use Python入門 now",
    "테스트를 고쳐 주세요",
    "привет мир, ёлка й; Ελληνικά ά; עברית; العربية",
    "http://example.org/a-b?c=d user@host.example 3.14 1e9 v1.2.3",
    "emoji 🙂 and\u200bzero width, soft\u00adhyphen, it's o'clock",
    "HTTPServer std::vector<int> src/acphold/journal/words.py",
    "fox fox FOX, and a dog dog dog dog",
    "a flaky test, a flaky test and the test that is flaky: " + "so many other words " * 30,
    "テスト テスト テスト",
    "getUserName getUserName username user",
    "e\u0301galite\u0301 decomposed, क्षत्रिय हिन्दी",
]
# fmt: off
SOUGHT = [
    "fox", "FOX quick", '"brown fox"', '"fox brown"', "bro*", "getUserName",
    "username", "user", "get_user*", "foo.bar", '"foo bar"', "max_retry",
    "retry count", "naive", "cafe", "arger", "angstrom", "strasse", "straße",
    "istanbul", "fine", "x", "viii", "天気", "天*", "气天", "テスト", "か", "がっこう",
    "修复 测试", "Python入門", "테스트", "привет", "елка", "ёлка", "й", "и", "ελληνικα",
    "ά", "עברית", "example", "a-b", "host.example", "3.14", "1e9", "v1.2",
    "zero", "zerowidth", "softhyphen", "soft", "it's", "clock", "vector",
    "words.py", "egalite", "हिन्दी", "क्षत्रिय", "the",
    "dog", "fox dog", "the test", "flaky test", '"flaky test"', '"a test"', "te*", '"other w"*',
    "user getUserName", "テ テスト", "w1", "w3 w2", '"w1 w2"', '"w1 w1"', "w*", "w9 w1*",
]
# fmt: on

_rough = Random(7)
SAID += [
    " ".join(_rough.choices([f"w{number}" for number in range(12)], range(1, 13), k=length))
    for length in _rough.choices(range(1, 90), k=25)
]
"""Texts that differ only in their length and in the number of times a word occurs."""


async def fill(journal: Journal) -> None:
    """The same in each of two sessions, at the same times."""
    for number, session_id in enumerate(("s1", "s2")):
        lease = await journal.create(NewSession(session_id, "a", "/w"))
        past = [
            PastEntry(
                "update",
                1_700_000_000_000 + 10_000 * place + 1000 * number,
                encode(update),
            )
            for place, text in enumerate(SAID)
            for update in (
                chunk("agent_message", text, messageId=str(place)),
                {"sessionUpdate": "tool_call", "toolCallId": str(place), "title": f"{text} w2 w2"},
            )
        ]
        await journal.take_in(lease, past)
    assert await journal.index.catch_up(60) == 0


@pytest.mark.parametrize("part", [None, "messages", "tools"])
async def test_both_stores_find_the_same_with_the_same_marks_in_the_same_order(
    tmp_path: Path, databases: Databases, part: Part | None
) -> None:
    with databases.new() as url:
        stores = [open_journal(tmp_path / "journal.db"), open_journal(url)]
        try:
            for journal in stores:
                await fill(journal)
            some = 0
            for words in SOUGHT:
                sought = Sought(words, part=part, unsettled=False, limit=200)
                one, other = [await journal.index.search(sought) for journal in stores]
                assert one == other, words
                some += bool(one)
                ranked = Sought(words, part=part, rank=True, unsettled=False, limit=200)
                for journal in stores:
                    best = await journal.index.search(ranked)
                    assert sorted(best, key=lambda it: (-it.at, -it.seq)) == one, words
            assert some > 40
        finally:
            for journal in stores:
                await journal.aclose()
