"""Full-text search."""

from __future__ import annotations

from acphold.journal import Journal, NewSession, Sought
from acphold.testing.journal_promises.promise import each, promised
from acphold.testing.journal_promises.scenes import chunk, encode, found, running, said, text, told


@promised
async def the_newest_are_found_first_whatever_session_they_are_in(
    journal: Journal,
) -> None:
    old = await journal.create(NewSession("old", "a", "/w"))
    await said(journal, "new", chunk("agent_message", "flaky test"))
    await journal.append(old, [("update", [encode(chunk("agent_message", "flaky again"))])])
    await journal.settle(old, 1)
    assert await found(journal, "flaky") == [("old", 1), ("new", 1)]
    hits = await journal.index.search(Sought("flaky", limit=1))
    assert [hit.session_id for hit in hits] == ["old"]


@promised
async def all_words_must_be_there_in_any_order(journal: Journal) -> None:
    await said(journal, "s1", chunk("agent_message", "The Quick brown fox"))
    await said(journal, "s2", chunk("agent_message", "The quick dog"))
    assert await found(journal, "fox QUICK") == [("s1", 1)]
    assert await found(journal, "the quick") == [("s2", 1), ("s1", 1)]
    assert await found(journal, "bro") == []
    assert await found(journal, "bro*") == [("s1", 1)]


@each(
    "words",
    ["", "   ", '"', "*", "--", "AND", "NOT x", "a OR", "(", "^", "text:", "né*", "a\0b", "\ud83d"],
)
@promised
async def no_words_are_taken_for_operators(journal: Journal, words: str) -> None:
    await said(journal, "s1", chunk("agent_message", "nothing of that"))
    assert await journal.index.search(words) == []


@promised
async def punctuation_between_words_does_not_hide_them(journal: Journal) -> None:
    await said(journal, "s1", chunk("agent_message", "see foo.bar(baz) -- twice"))
    for words in ("foo.bar", "foo.bar(baz)", "-- twice", '"baz"', "bar*"):
        assert await found(journal, words) == [("s1", 1)], words


@promised
async def search_can_keep_to_an_agent_and_a_folder(journal: Journal) -> None:
    await said(journal, "s1", chunk("agent_message", "word"), agent="a", cwd="/x")
    await said(journal, "s2", chunk("agent_message", "word"), agent="b", cwd="/x")
    await said(journal, "s3", chunk("agent_message", "word"), agent="b", cwd="/y")
    for sought, sessions in (
        (Sought("word", agents=("b",)), ["s3", "s2"]),
        (Sought("word", cwd="/x"), ["s2", "s1"]),
        (Sought("word", agents=("b",), cwd="/x/."), ["s2"]),
        (Sought("word", agents=("c",)), []),
    ):
        assert [hit.session_id for hit in await journal.index.search(sought)] == sessions


@promised
async def an_excerpt_is_one_line_around_the_word(journal: Journal) -> None:
    text = "before " * 50 + "\nthe\tNeedle here\n" + "after " * 50
    await said(journal, "s1", chunk("agent_message", text))
    (hit,) = await journal.index.search("needle")
    assert hit.excerpt.startswith("…")
    assert hit.excerpt.endswith("…")
    assert "before the Needle here after" in hit.excerpt
    assert (hit.kind, len(hit.excerpt) < 200) == ("update", True)


@promised
async def a_hit_names_the_entry_even_when_it_shares_its_segment(
    journal: Journal,
) -> None:
    lease = await journal.create(NewSession("s1", "a", "/w"))
    raws = [encode(chunk("agent_message", f"word{n}", messageId=f"m{n}")) for n in range(5)]
    await journal.append(lease, [("update", raws)])
    await journal.settle(lease, 5)
    (hit,) = await journal.index.search("word3")
    assert (hit.seq, hit.excerpt) == (4, "word3")


@each(
    ("text", "words"),
    [
        ("see max_retry_count here", "max_retry_count"),
        ("see max_retry_count here", "retry"),
        ("see max_retry_count here", "max_retry*"),
        ("call getUserName(id)", "getUserName"),
        ("call getUserName(id)", "getusername"),
        ("call getUserName(id)", "UserName"),
        ("call getUserName(id)", "user"),
        ("call getUserName(id)", "getUser*"),
        ("call get_user_name(id)", "getUserName"),
        ("an HTTPServer", "server"),
        ("import a.b.c_d", "a.b.c_d"),
        ("open src/acphold/journal/words.py", "journal/words.py"),
        ("open src/acphold/journal/words.py", "words.py"),
        ("C++ and std::vector<int>", "std::vector"),
        ("naïve café", "naive cafe"),
        ("\x1b[1;32mPASSED\x1b[0m", "passed"),
        ("\x1b]0;a title\x07prompt", "prompt"),
        ("今日は良い天気です", "天気"),
        ("今日は良い天気です", "天*"),
        ("请修复这个测试", "修复 测试"),
        ("테스트를 고쳐 주세요", "테스트"),
        ("テストを直す", "テスト"),
        ("use Python入門 now", "Python入門"),
    ],
)
@promised
async def names_in_code_and_text_without_spaces_are_found(
    journal: Journal, text: str, words: str
) -> None:
    await said(journal, "s1", chunk("agent_message", text))
    (hit,) = await journal.index.search(words)
    assert hit.marks, hit.excerpt


@each("words", ["user_max", "気天", "复修", "eruser", "names"])
@promised
async def what_is_not_in_a_row_is_no_such_name(journal: Journal, words: str) -> None:
    text = "max_retry getUserName 今日は良い天気です 请修复这个测试"
    await said(journal, "s1", chunk("agent_message", text))
    assert await journal.index.search(words) == []


@promised
async def a_phrase_is_words_in_a_row(journal: Journal) -> None:
    await said(journal, "s1", chunk("agent_message", "the flaky test was retried"))
    await said(journal, "s2", chunk("agent_message", "a test that is flaky"))
    assert await found(journal, "flaky test") == [("s2", 1), ("s1", 1)]
    assert await found(journal, '"flaky test"') == [("s1", 1)]
    assert await found(journal, '"flaky te"*') == [("s1", 1)]
    assert await found(journal, '"flaky tes"') == []


@promised
async def the_best_come_first_by_rank(journal: Journal) -> None:
    await said(journal, "best", chunk("agent_message", "flaky flaky"))
    await said(journal, "long", chunk("agent_message", "flaky " + "and more words " * 20))
    assert [hit.session_id for hit in await journal.index.search("flaky")] == ["long", "best"]
    ranked = await journal.index.search(Sought("flaky", rank=True))
    assert [hit.session_id for hit in ranked] == ["best", "long"]
    assert len(await journal.index.search(Sought("flaky", rank=True, limit=1))) == 1


@promised
async def what_is_indexed_later_stands_where_it_was_said(journal: Journal) -> None:
    await told(journal, "new", 9_000, 19_000)
    await journal.index.catch_up(9)
    await told(journal, "old", 1_000, 15_000)
    await journal.index.catch_up(9)
    places = [("new", 2), ("old", 2), ("new", 1), ("old", 1)]
    assert await found(journal, "word*") == places
    hits = await journal.index.search(Sought("word*", since=10_000))
    assert [(hit.session_id, hit.at) for hit in hits] == [("new", 19_000), ("old", 15_000)]


@promised
async def entries_of_one_moment_stay_in_their_order(journal: Journal) -> None:
    for session in ("a", "b", "c"):
        await told(journal, session, *[5_000] * 40, 1_000)
        await journal.index.catch_up(9)
    hits = await journal.index.search(Sought("word*", limit=1000))
    assert len(hits) == 123
    for session in ("a", "b", "c"):
        seqs = [hit.seq for hit in hits if hit.session_id == session]
        assert seqs == [*range(41, 0, -1)]


@promised
async def each_turn_that_settles_catches_up_with_a_piece(journal: Journal) -> None:
    await told(journal, "imported", 1)
    await said(journal, "live", chunk("agent_message", "now"))
    assert await journal.index.catch_up(0) == 0
    assert await found(journal, "word0") == [("imported", 1)]


@promised
async def what_is_not_settled_is_found_too_as_it_will_be_settled(
    journal: Journal,
) -> None:
    await said(journal, "old", chunk("agent_message", "a flaky test"))
    chunks = [chunk("agent_message", piece) for piece in ("the fla", "ky test", " again")]
    await running(journal, "new", text("look at getFlakyTest"), *chunks)
    assert await found(journal, '"flaky test"') == [("new", 4), ("new", 1), ("old", 1)]
    (hit,) = await journal.index.search("again")
    assert (hit.session_id, hit.speaker, hit.excerpt) == ("new", "agent", "the flaky test again")
    ranked = await journal.index.search(Sought("flaky", rank=True, limit=2))
    assert [hit.session_id for hit in ranked] == ["new", "new"]
    hits = await journal.index.search(Sought("flaky", unsettled=False))
    assert [hit.session_id for hit in hits] == ["old"]


@promised
async def what_is_not_settled_obeys_the_filters(journal: Journal) -> None:
    await running(journal, "s1", text("word"), cwd="/x")
    await running(journal, "s2", text("other"), chunk("agent_message", "word"), cwd="/y")
    for sought, places in (
        (Sought("word", cwd="/x"), [("s1", 1)]),
        (Sought("word", agents=("b",)), []),
        (Sought("word", part="diffs"), []),
        (Sought("word", since=1 << 50), []),
        (Sought("word", limit=1), [("s2", 2)]),
    ):
        hits = await journal.index.search(sought)
        assert [(hit.session_id, hit.seq) for hit in hits] == places


@promised
async def a_hit_tells_whose_words_they_are_and_where(journal: Journal) -> None:
    new = NewSession("s1", "claude", "/home/me/project", title="A title")
    lease = await journal.create(new)
    await journal.append(lease, [("prompt", [b'[{"type":"text","text":"A word, or Two words"}]'])])
    await journal.settle(lease, 1)
    (hit,) = await journal.index.search("WORD two")
    assert (hit.agent, hit.cwd, hit.title) == ("claude", "/home/me/project", "A title")
    assert (hit.speaker, hit.tool, hit.kind) == ("user", None, "prompt")
    assert [hit.excerpt[start:end] for start, end in hit.marks] == ["word", "Two"]


@promised
async def an_excerpt_has_as_many_of_the_words_as_can_be(journal: Journal) -> None:
    text = f"one {'x ' * 200} other {'y ' * 200} one more and the other {'z ' * 200}"
    await said(journal, "s1", chunk("agent_message", text))
    (hit,) = await journal.index.search("other one")
    assert "one more and the other" in hit.excerpt
    assert [hit.excerpt[start:end] for start, end in hit.marks] == ["one", "other"]


@promised
async def whole_words_are_marked_before_parts_of_others(journal: Journal) -> None:
    await said(journal, "s1", chunk("agent_message", "other the there"))
    (hit,) = await journal.index.search("the")
    assert hit.marks == ((6, 9),)
