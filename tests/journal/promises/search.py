"""Finding sessions: in the list, by the agents' ids, and by their words."""

from __future__ import annotations

from typing import Any

import pytest

from acphold.errors import CursorError, UnknownSessionError
from acphold.journal import bounds, list_places
from acphold.journal.access import Share
from acphold.journal.journal import Journal, is_forgotten, session_of
from acphold.journal.rows import ListFilter, ListKey, NewSession, RowChange
from acphold.journal.seams import Sought
from tests.conversations import chunk, encode
from tests.journal.promises.promise import (
    begun,
    found,
    promised,
    put,
    running,
    said,
    text,
    told,
)

EVERYTHING = ListFilter(include_unprompted=True)


async def ids(
    journal: Journal, filter: ListFilter, after: ListKey | None = None, limit: int = 50
) -> list[str]:
    """Return the ids of one page."""
    return [row.session_id for row in await journal.page(filter, after, limit)]


@promised
async def the_newest_come_first(journal: Journal) -> None:
    for session_id, at in (("b", 2), ("a", 1), ("d", 3), ("c", 3)):
        await put(journal, session_id, at)
    assert await ids(journal, ListFilter()) == ["d", "c", "b", "a"]


@promised
async def agent_and_folder_narrow_the_list(journal: Journal) -> None:
    await put(journal, "1", 1, agent="a", cwd="/x")
    await put(journal, "2", 2, agent="a", cwd="/y")
    await put(journal, "3", 3, agent="b", cwd="/x")
    assert await ids(journal, ListFilter(agents=("a",))) == ["2", "1"]
    assert await ids(journal, ListFilter(cwd="/x")) == ["3", "1"]
    assert await ids(journal, ListFilter(agents=("b",), cwd="/x")) == ["3"]
    assert await ids(journal, ListFilter(agents=("b",), cwd="/y")) == []


@promised
async def a_session_never_prompted_is_listed_only_while_it_is_held(
    journal: Journal,
) -> None:
    await put(journal, "new", 2, prompted=False)
    await put(journal, "other", 4, prompted=False)
    await put(journal, "old", 1)
    await put(journal, "older", 0)
    held = frozenset({"new", "old", "unheard of"})
    assert await ids(journal, ListFilter()) == ["old", "older"]
    assert await ids(journal, ListFilter(held=held)) == ["new", "old", "older"]
    assert await ids(journal, ListFilter(held=held), limit=1) == ["new"]
    assert await ids(journal, ListFilter(held=held), ListKey(2, "new")) == ["old", "older"]
    assert await ids(journal, ListFilter(held=held, cwd="/elsewhere")) == []
    assert await ids(journal, EVERYTHING) == ["other", "new", "old", "older"]


@promised
async def pages_stay_whole_while_the_list_changes(journal: Journal) -> None:
    for n in range(5):
        await put(journal, f"s{n}", n)
    first = await journal.page(ListFilter(), None, 2)
    await put(journal, "newer", 9)
    await journal.delete("s2")
    assert [row.session_id for row in first] == ["s4", "s3"]
    assert await ids(journal, ListFilter(), first[-1].key, 2) == ["s1", "s0"]


@promised
async def archived_sessions_are_left_out_or_in_or_alone(journal: Journal) -> None:
    for number in range(4):
        await put(journal, f"s{number}", number)
    await journal.change("s1", RowChange(archived=True))
    await journal.change("s2", RowChange(archived=True))
    assert await ids(journal, ListFilter()) == ["s3", "s0"]
    assert await ids(journal, ListFilter(archived="include")) == ["s3", "s2", "s1", "s0"]
    assert await ids(journal, ListFilter(archived="only")) == ["s2", "s1"]
    await journal.change("s2", RowChange(archived=False))
    assert await ids(journal, ListFilter()) == ["s3", "s2", "s0"]
    assert [row.archived for row in await journal.page(ListFilter(archived="only"))] == [True]
    with pytest.raises(UnknownSessionError):
        await journal.change("nobody", RowChange(archived=True))


@promised
async def a_cursor_is_refused_by_a_list_with_another_archive_filter(
    journal: Journal,
) -> None:
    text = list_places.encode(ListKey(1, "s"), ListFilter(), (await journal.identity()).secret)
    with pytest.raises(CursorError, match="another filter"):
        list_places.decode(text, ListFilter(archived="include"), (await journal.identity()).secret)


@promised
async def sessions_of_several_agents_stand_in_one_list(journal: Journal) -> None:
    for n in range(6):
        await put(journal, str(n), n, agent="abc"[n % 3])
    wanted = ListFilter(agents=("a", "c", "a"))
    assert await ids(journal, wanted) == ["5", "3", "2", "0"]
    first = await journal.page(wanted, None, 3)
    assert [row.session_id for row in await journal.page(wanted, first[-1].key, 3)] == ["0"]


@promised
async def the_newest_link_is_the_one_to_use(journal: Journal) -> None:
    lease = await journal.create(NewSession("s1", "a", "/"))
    assert (await journal.session("s1")).downstream_id is None
    await journal.links.link(lease, "a", "d1")
    await journal.links.link(lease, "a", "d2")
    assert (await journal.session("s1")).downstream_id == "d2"
    await journal.links.link(lease, "a", "d1")
    assert (await journal.session("s1")).downstream_id == "d1"
    assert await session_of(journal, "a", "d2") == "s1"
    assert await session_of(journal, "b", "d2") is None
    assert await journal.page(ListFilter(include_unprompted=True)) == [await journal.session("s1")]


@promised
async def linked_tells_ours_from_the_agents_own(journal: Journal) -> None:
    lease = await journal.create(NewSession("s1", "a", "/"))
    await journal.links.link(lease, "a", "d1")
    await journal.links.link(None, "a", "gone")
    asked = ["d1", "gone", *(f"other {n}" for n in range(2000))]
    assert await journal.links.sessions_of("a", asked) == {"d1": "s1", "gone": None}
    assert await journal.links.sessions_of("b", asked) == {}
    assert await journal.links.sessions_of("a", []) == {}


@promised
async def the_ids_of_a_session_are_told_from_the_oldest_to_the_newest(journal: Journal) -> None:
    lease = await journal.create(NewSession("s1", "a", "/"))
    other = await journal.create(NewSession("s2", "a", "/"))
    assert await journal.links.of("s1") == []
    await journal.links.link(lease, "b", "d2")
    await journal.links.link(lease, "a", "d1")
    await journal.links.link(other, "a", "d3")
    await journal.links.link(lease, "a", "d0")
    await journal.links.link(lease, "b", "d2")
    assert await journal.links.of("s1") == [("a", "d1"), ("a", "d0"), ("b", "d2")]
    assert await journal.links.of("no such session") == await journal.links.of(None) == []
    await journal.release(other)
    await journal.delete("s2")
    await journal.links.link(None, "c", "theirs")
    assert sorted(await journal.links.of(None)) == [("a", "d3"), ("c", "theirs")]


@promised
async def deleting_a_session_leaves_tombstones_for_its_links(journal: Journal) -> None:
    lease = await journal.create(NewSession("s1", "a", "/"))
    await journal.links.link(lease, "a", "d1")
    assert not await is_forgotten(journal, "a", "d1")
    assert await journal.delete("s1")
    assert await is_forgotten(journal, "a", "d1")
    assert await session_of(journal, "a", "d1") is None
    assert await journal.links.sessions_of("a", ["d1"]) == {"d1": None}


@promised
async def an_id_that_was_never_ours_can_be_forgotten(journal: Journal) -> None:
    await journal.links.link(None, "a", "theirs")
    assert await is_forgotten(journal, "a", "theirs")
    assert not await is_forgotten(journal, "b", "theirs")
    lease = await journal.create(NewSession("theirs", "a", "/"))
    await journal.links.link(lease, "a", "theirs")
    assert not await is_forgotten(journal, "a", "theirs")


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
async def the_last_words_of_a_killed_session_are_found_also_in_the_archive(
    journal: Journal,
) -> None:
    await running(journal, "s1", text("hello"), chunk("agent_message", "flaky test"))
    await journal.change("s1", RowChange(archived=True))
    copy = await journal.create(NewSession("s2", "a (library)", "/w"))  # of an agent behind wrap
    await journal.append(copy, [("update", [encode(chunk("agent_message", "flaky test"))])])
    hits = await journal.index.search("flaky")
    assert [(hit.session_id, hit.archived) for hit in hits] == [("s1", True)]


@promised
async def all_words_must_be_there_in_any_order(journal: Journal) -> None:
    await said(journal, "s1", chunk("agent_message", "The Quick brown fox"))
    await said(journal, "s2", chunk("agent_message", "The quick dog"))
    assert await found(journal, "fox QUICK") == [("s1", 1)]
    assert await found(journal, "the quick") == [("s2", 1), ("s1", 1)]
    assert await found(journal, "bro") == []
    assert await found(journal, "bro*") == [("s1", 1)]


NO_WORDS = (
    *("", "   ", '"', "*", "--", "AND", "NOT x", "a OR", "(", "^", "text:", "né*", "a\0b"),
    "\ud83d",
)


@promised
async def no_words_are_taken_for_operators(journal: Journal) -> None:
    await said(journal, "s1", chunk("agent_message", "nothing of that"))
    for words in NO_WORDS:
        assert await journal.index.search(words) == [], words


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
    assert len(hit.excerpt) < 200


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


IN_TEXTS = [
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
]


@promised
async def names_in_code_and_text_without_spaces_are_found(journal: Journal) -> None:
    places = {saying: f"/{place}" for place, (saying, _) in enumerate(IN_TEXTS)}
    for saying, place in places.items():
        await said(journal, place, chunk("agent_message", saying), cwd=place)
    for saying, words in IN_TEXTS:
        (hit,) = await journal.index.search(Sought(words, cwd=places[saying]))
        assert hit.marks, (saying, words)


@promised
async def what_is_not_in_a_row_is_no_such_name(journal: Journal) -> None:
    saying = "max_retry getUserName 今日は良い天気です 请修复这个测试"
    await said(journal, "s1", chunk("agent_message", saying))
    for words in ("user_max", "気天", "复修", "eruser", "names"):
        assert await journal.index.search(words) == [], words


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
    assert (hit.speaker, hit.tool) == ("user", None)
    assert [hit.excerpt[start:end] for start, end in hit.marks] == ["word", "Two"]


@promised
async def a_hit_names_the_user_who_said_it(journal: Journal) -> None:
    by = b'{"name":"zed","version":"1","user":"bert"}'
    meta = {"acphold/client": {"user": "ada"}}
    lease = await begun(journal)
    await journal.change(lease, RowChange(prompted=True))
    await journal.append(lease, [("author", [by]), ("prompt", [encode(text("my word"))])])
    said_in_turn = encode(chunk("user_message", "her word", messageId="acphold-1", _meta=meta))
    await journal.append(lease, [("update", [said_in_turn])])
    await journal.append(lease, [("prompt", [encode(text("a word"))])])
    for _ in range(2):
        hits = await journal.index.search("word")
        assert [(hit.excerpt, hit.user) for hit in sorted(hits, key=lambda hit: hit.seq)] == [
            ("my word", "bert"),
            ("her word", "ada"),
            ("a word", None),
        ]
        await journal.settle(lease, lease.next_seq - 1)


@promised
async def a_long_prompt_that_is_not_settled_names_its_user(journal: Journal) -> None:
    by = b'{"name":"zed","version":"1","user":"bert"}'
    lease = await begun(journal)
    await journal.change(lease, RowChange(prompted=True))
    prompt = encode(text(f"needle {'hay ' * (bounds.UNSETTLED_BYTES // 4)}"))
    await journal.append(lease, [("author", [by]), ("prompt", [prompt])])
    assert [hit.user for hit in await journal.index.search("needle")] == ["bert"]


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


async def widened(journal: Journal, words: str, **more: Any) -> list[tuple[str, int]]:
    """Return the places that a search which widens finds."""
    hits = await journal.index.search(Sought(words, widens=True, **more))
    return [(hit.session_id, hit.seq) for hit in hits]


@promised
async def words_may_be_in_several_messages_of_a_conversation(journal: Journal) -> None:
    pieces = ("the parser breaks", "on a flaky disk", "nothing else")
    updates = [chunk("agent_message", it, messageId=it) for it in pieces]
    await said(journal, "s1", *updates)
    await said(journal, "s2", chunk("agent_message", "a flaky test of something"))
    assert await found(journal, "parser flaky") == []
    assert await widened(journal, "parser flaky") == [("s1", 1), ("s1", 2)]
    assert await widened(journal, "flaky disk") == [("s1", 2)]  # one message has both
    assert await widened(journal, "pars flak") == [("s1", 1), ("s1", 2)]
    (_, hit) = await journal.index.search(Sought("parser flaky", widens=True))
    assert (hit.missing, hit.nowhere, hit.excerpt) == ((), (), "on a flaky disk")
    assert hit.marks


@promised
async def a_word_that_is_nowhere_does_not_empty_a_search(journal: Journal) -> None:
    await said(journal, "s1", chunk("agent_message", "fix the parser of the lexer"))
    await said(journal, "s2", chunk("agent_message", "a parser"))
    hits = await journal.index.search(Sought("parser lexer quux", widens=True))
    assert [(it.session_id, it.missing, it.nowhere) for it in hits] == [
        ("s1", ("quux",), ("quux",))
    ]
    assert await widened(journal, "quux bar") == []
    assert await widened(journal, "quux") == []


@promised
async def another_form_of_an_english_word_is_found_where_the_word_is_nowhere(
    journal: Journal,
) -> None:
    await said(journal, "s1", chunk("agent_message", "I restored the backup; uploaded it, too"))
    for words in ("restoring backups", "restores uploads", "backups"):
        (hit,) = await journal.index.search(Sought(words, widens=True))
        assert (hit.missing, hit.nowhere) == ((), ()), words
        assert hit.marks, words
    assert await widened(journal, "ring sing") == []
    await said(journal, "s2", chunk("agent_message", "312 duplicates"))
    assert await widened(journal, "dupes") == [("s2", 1)]


@promised
async def a_rare_word_weighs_more_than_common_ones(journal: Journal) -> None:
    for number in range(6):
        await said(journal, f"s{number}", chunk("agent_message", f"we fixed it {number}"))
    await said(journal, "rare", chunk("agent_message", "the borrow checker"))
    hits = await journal.index.search(Sought("we fixed the checker", widens=True))
    assert [it.session_id for it in hits] == ["rare"]
    assert (hits[0].missing, hits[0].nowhere) == (("we", "fixed"), ())


@promised
async def words_of_a_title_weigh_more_than_those_of_a_message(journal: Journal) -> None:
    await said(journal, "s1", chunk("agent_message", "the watch loses rides"))
    await journal.change("s1", RowChange(title="Sync loses rides", prompted=True))
    await said(journal, "s2", chunk("agent_message", "two headers were missing"))
    for words in ("missing rides", "rides missing"):
        assert await widened(journal, words) == [("s1", 1), ("s2", 1)]


@promised
async def the_words_of_a_row_count_as_its_conversations(journal: Journal) -> None:
    await said(
        journal, "s1", chunk("agent_message", "a flaky test"), agent="codex", cwd="/home/shop"
    )
    await said(journal, "s2", chunk("agent_message", "a flaky test"), agent="b", cwd="/elsewhere")
    await journal.change("s2", RowChange(title="Basket of fruit", tags=("urgent",), prompted=True))
    assert await widened(journal, "flaky shop") == [("s1", 1)]
    assert await widened(journal, "flaky codex") == [("s1", 1)]
    assert await widened(journal, "basket test") == [("s2", 1)]
    assert await widened(journal, "#urgent basket") == [("s2", 1)]  # nothing of it was said
    assert await widened(journal, "flaky shop", part="messages") == [("s2", 1), ("s1", 1)]
    assert await widened(journal, "flaky shop", cwd="/elsewhere") == [("s2", 1)]


@promised
async def tenants_find_nothing_of_others_in_a_wider_search(journal: Journal) -> None:
    for tenant in ("ada", "bob", ""):
        lease = await journal.create(NewSession(f"s{tenant}", "a", "/w", tenant=tenant))
        texts = [chunk("agent_message", it, messageId=it) for it in ("parser", "flaky", tenant)]
        await journal.append(lease, [("update", [encode(it) for it in texts])])
        await journal.settle(lease, 3)
    assert await widened(journal, "parser flaky", tenant="ada") == [("sada", 2), ("sada", 1)]
    (first, _) = await journal.index.search(Sought("parser flaky bob", widens=True, tenant="ada"))
    assert (first.session_id, first.nowhere) == ("sada", ("bob",))
    await journal.access.keep_share(Share("sbob", "ada", prompts=False))
    assert (await widened(journal, "parser flaky bob", tenant="ada"))[0][0] == "sbob"


@promised
async def words_of_a_running_turn_count_in_a_wider_search(journal: Journal) -> None:
    await said(journal, "s1", chunk("agent_message", "a parser"))
    await running(journal, "s2", text("the parser"), chunk("agent_message", "is flaky"))
    assert {it for it, _ in await widened(journal, "parser flaky")} == {"s2"}


@promised
async def common_words_are_looked_for_in_the_best_conversations(journal: Journal) -> None:
    lease = await journal.create(NewSession("old", "a", "/w"))
    texts = [chunk("agent_message", it, messageId=it) for it in ("common", "rare")]
    await journal.append(lease, [("update", [encode(it) for it in texts])])
    await journal.settle(lease, 2)
    lease = await journal.create(NewSession("long", "a", "/w"))
    many = [chunk("agent_message", "common", messageId=str(n)) for n in range(bounds.WIDE_ENTRIES)]
    await journal.append(lease, [("update", [encode(it) for it in many])])
    await journal.settle(lease, len(many))
    await journal.index.catch_up(9)
    assert await widened(journal, "common rare") == [("old", 2), ("old", 1)]


@promised
async def a_search_can_keep_to_the_ends_of_sessions(journal: Journal) -> None:
    lease = await journal.create(NewSession("s1", "a", "/w"))
    texts = ["flaky", *("more" for _ in range(bounds.ENTRIES_AT_AN_END)), "parser"]
    said_ = [chunk("agent_message", it, messageId=str(n)) for n, it in enumerate(texts)]
    await journal.append(lease, [("update", [encode(it) for it in said_])])
    await journal.settle(lease, len(texts))
    await journal.index.catch_up(9)
    for word, places in (("flaky", []), ("parser", [("s1", len(texts))])):
        hits = await journal.index.search(Sought(word, at_ends=True))
        assert [(hit.session_id, hit.seq) for hit in hits] == places
