"""Sessions, and entries that are appended to them, one by one and together, and read again."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from msgspec.structs import replace

from acphold import errors
from acphold.conversation.history.entries import Origin, Segment
from acphold.journal.journal import Append, Journal, Lease, history, state_of
from acphold.journal.rows import (
    MOST_TAGS,
    ListFilter,
    Marks,
    NewSession,
    RowChange,
    SessionRow,
    as_tags,
)
from acphold.journal.seams import Sought
from tests import conversations
from tests.journal.promises import promise

PROMPT = b'[{"type":"text","text":"Hi"}]'


@promise.promised
async def words_of_a_list_are_looked_for_in_the_journal(journal: Journal) -> None:
    made = (
        ("s1", "a", "/w/Apples", "Bake a PIE"),
        ("s2", "a", "/w/pears", "bake 100% of it_all"),
        ("s3", "b", "/w/pears", None),
        ("s4", "b", "/w/plums", "Straße in ÜBER"),
    )
    for session_id, agent, cwd, title in made:
        lease = await journal.create(NewSession(session_id, agent, cwd, title=title))
        await journal.change(lease, RowChange(prompted=True, tags=("green",) * (agent == "b")))

    async def found(
        *words: tuple[str, tuple[str, ...]], ids: tuple[str, ...] = (), **filters: Any
    ) -> set[str]:
        rows = await journal.page(ListFilter(words=tuple((*it, ids) for it in words), **filters))
        return {row.session_id for row in rows if row.session_id != "s4"}

    assert await found(("bake", ())) == {"s1", "s2"}
    assert await found(("bake", ()), ("pears", ())) == {"s2"}
    assert await found(("bake", ("b",)), cwd="/w/pears") == {"s2", "s3"}
    assert await found(("green", ())) == {"s3"}
    assert await found(("#gre", ())) == {"s3"}
    assert await found(("#pie", ())) == set()
    assert await found(("green", ()), ids=("s1", "none")) == {"s1", "s3"}
    assert await found(("100%", ())) == {"s2"}
    assert await found(("t_a", ())) == {"s2"}
    assert await found(("none", ())) == {"s3"}  # it has no title, as a list shows it
    assert await found(("quince", ())) == set()
    for word in ("strasse", "über"):
        rows = await journal.page(ListFilter(words=((word, (), ()),)))
        assert [row.session_id for row in rows] == ["s4"]
    assert sorted(await journal.agents()) == ["a", "b"]


@promise.promised
async def a_new_session_is_as_it_was_created(journal: Journal) -> None:
    new = NewSession("s1", "gemini", "/home/me/project", ("/lib", "/a b"), "Title", created_at=1234)
    lease = await journal.create(new)
    row = await journal.session("s1")
    assert (row.agent, row.cwd, row.additional_directories) == (
        "gemini",
        "/home/me/project",
        ("/lib", "/a b"),
    )
    assert (row.title, row.created_at, row.updated_at) == ("Title", 1234, 1234)
    assert (row.message_count, row.prompted, row.last_seq) == (0, False, 0)
    assert (lease.session_id, lease.epoch > 0, lease.next_seq) == ("s1", True, 1)


@promise.promised
async def a_row_has_each_new_value(journal: Journal) -> None:
    lease = await promise.begun(journal)
    await journal.append(lease, [("prompt", [PROMPT])])
    was = await journal.session("s1")
    others: dict[type, Any] = {bool: True, int: 99, str: "new", type(None): "new", tuple: ()}
    others[bytes] = b'{"a":1}'
    new = {
        name: others[type(getattr(was, name))]
        for name in {*RowChange.__struct_fields__} & {*SessionRow.__struct_fields__} - {"unread"}
    }
    new |= {"additional_directories": ("/a", "/b"), "origins": (Origin("s0", "b", 3),)}
    new |= {"held_until": 99, "home": lease.journal}
    await journal.change(lease, RowChange(**new))
    row = await journal.session("s1")
    assert row == replace(was, **new), f"{row} does not have all of {new}"
    [listed] = await journal.page(ListFilter(archived="include"))
    assert replace(listed, message_count=0) == row, "the list has other values"


@promise.promised
async def marks_of_the_same_moment_all_stay(journal: Journal) -> None:
    await promise.begun(journal)
    people = [f"p{number}" for number in range(8)]
    await asyncio.gather(
        *(journal.mark("s1", Marks(added=(each,), person=each, pinned=True)) for each in people)
    )
    row = await journal.session("s1")
    assert (row.tags, row.pins) == (tuple(people), tuple(people))
    now = await journal.mark("s1", Marks(removed=("p1",), person="p2", pinned=False))
    assert now == RowChange(tags=row.tags[:1] + row.tags[2:], pins=row.pins[:2] + row.pins[3:])
    now = await journal.mark("s1", Marks(("x",)))
    assert (now.tags, now.pins) == (("x",), row.pins[:2] + row.pins[3:])
    now = await journal.mark("s1", Marks(as_tags(["#Needs  review", "x"])))
    assert now.tags == ("needs-review", "x")
    with pytest.raises(ValueError, match="at most"):
        await journal.mark("s1", Marks(added=tuple(f"t{number}" for number in range(MOST_TAGS))))
    with pytest.raises(errors.UnknownSessionError):
        await journal.mark("s2", Marks(pinned=True))


@promise.promised
async def titles_of_short_sessions_that_several_share_are_found(journal: Journal) -> None:
    for number in range(5):
        for title in ("often", "twice" if number < 2 else str(number)):
            await journal.create(NewSession(f"{title}-{number}", "a", "/", title=title))
        await journal.create(NewSession(f"elsewhere-{number}", "a", f"/{number}", title="apart"))
    copied = (Origin("1-1", "a", 1),)
    for number in range(5):
        await journal.create(NewSession(f"copy-{number}", "a", "/", title="4", origins=copied))
    every = ListFilter(include_unprompted=True)
    titles = {("", row.cwd, row.title or "") for row in await journal.page(every, None, 50)}

    async def repeated(least: int) -> set[str]:
        return {title for _, _, title in await journal.repeated_titles(titles, least)}

    assert await repeated(5) == {"often"}
    assert await repeated(2) == {"often", "twice"}
    await journal.index.tidy(9)
    assert await repeated(5) == {"often"}
    assert await repeated(2) == {"often", "twice"}
    assert await journal.repeated_titles([("you", "/", "often"), ("", "/", "twice")], 2) == {
        ("", "/", "twice")
    }
    await journal.mark("often-1", Marks(pinned=True))
    await journal.mark("twice-1", Marks(added=("x",)))
    await journal.change("often-2", RowChange(given="often"))
    for _ in range(2):
        assert await repeated(4) == set()
        assert await repeated(2) == {"often"}
        await journal.index.tidy(9)
    await journal.delete("often-3")
    assert await repeated(3) == set()
    assert await repeated(2) == {"often"}


@promise.promised
async def an_id_is_taken_once(journal: Journal) -> None:
    await promise.begun(journal)
    with pytest.raises(errors.SessionExistsError, match="'s1'"):
        await promise.begun(journal)
    assert (await journal.session("s1")).last_seq == 0


@promise.promised
async def what_was_appended_is_read_in_order_byte_for_byte(journal: Journal) -> None:
    lease = await promise.begun(journal)
    raws = [
        conversations.encode(conversations.chunk("agent_message", f"né {n} 🙂")) for n in range(5)
    ]
    [one] = await journal.append(lease, [("prompt", [PROMPT])])
    [many] = await journal.append(lease, [("update", raws)])
    assert (one.first_seq, one.last_seq, many.first_seq, many.last_seq) == (1, 1, 2, 6)
    assert lease.next_seq == 7
    assert await journal.read("s1", 0) == [one, many]
    assert [entry.raw for entry in many.entries()] == raws
    assert [entry.seq for entry in many.entries()] == [2, 3, 4, 5, 6]


@promise.promised
async def reading_on_begins_after_the_given_entry_also_inside_a_segment(
    journal: Journal,
) -> None:
    lease = await promise.begun(journal)
    await journal.append(lease, [("update", [b"1", b"2", b"3"])])
    [rest] = await journal.append(lease, [("update", [b"4"])])
    for after in range(5):
        read = await journal.read("s1", after)
        seqs = [entry.seq for segment in read for entry in segment.entries()]
        assert seqs == list(range(after + 1, 5))
    assert await journal.read("s1", 3) == [rest]
    assert await journal.read("s1", 4) == []


@promise.promised
async def one_read_brings_no_more_than_asked_for_but_never_nothing(
    journal: Journal,
) -> None:
    lease = await promise.begun(journal)
    for _ in range(4):
        await journal.append(lease, [("update", [b"x" * 100])])
    assert len(await journal.read("s1", 0, 1)) == 1
    assert len(await journal.read("s1", 0, 150)) == 2
    assert len(await journal.read("s1", 2, 10_000)) == 2


@promise.promised
async def sessions_never_see_each_others_entries(journal: Journal) -> None:
    leases = [await promise.begun(journal, f"s{n}") for n in range(3)]
    for n, lease in enumerate(leases):
        await journal.append(lease, [("update", [b"%d" % n] * (n + 1))])
    for n in range(3):
        (segment,) = await journal.read(f"s{n}", 0)
        assert segment.raw.split(b"\n") == [b"%d" % n] * (n + 1)
        assert (await journal.session(f"s{n}")).last_seq == n + 1


@promise.promised
async def json_laid_out_over_lines_is_kept_on_one(journal: Journal) -> None:
    lease = await promise.begun(journal)
    [segment] = await journal.append(lease, [("update", [b'{\n "a": 1\n}', b"{}"])])
    assert [entry.raw for entry in segment.entries()] == [b'{  "a": 1 }', b"{}"]


@promise.promised
async def appending_nothing_is_our_own_mistake(journal: Journal) -> None:
    with pytest.raises(ValueError, match="nothing to append"):
        await journal.append(await promise.begun(journal), [("update", [])])


@promise.promised
async def a_change_of_a_row_changes_what_is_given_and_nothing_else(journal: Journal) -> None:
    lease = await promise.begun(journal)
    await journal.change(lease, RowChange(title="T", updated_at=99))
    await journal.change(lease, RowChange(prompted=True))
    await journal.change(lease, RowChange())
    row = await journal.session("s1")
    assert (row.title, row.updated_at, row.prompted) == ("T", 99, True)
    await journal.change(lease, RowChange(title=None))
    assert (await journal.session("s1")).title is None


@promise.promised
async def a_session_can_be_renamed_from_outside(journal: Journal) -> None:
    await promise.begun(journal)
    await journal.change("s1", RowChange(given="half a smile: \ud83d"))
    assert (await journal.session("s1")).title == "half a smile: ?"
    with pytest.raises(errors.UnknownSessionError):
        await journal.change("s2", RowChange(given="T"))


@promise.promised
async def a_title_that_a_person_gave_is_changed_by_a_person_alone(
    journal: Journal,
) -> None:
    lease = await promise.begun(journal)
    await journal.change("s1", RowChange(given="Mine"))
    await journal.change(lease, RowChange(title="The agent's", updated_at=99))
    await journal.append(lease, [("update", [b"{}"])], RowChange(title=None))
    row = await journal.session("s1")
    assert (row.title, row.renamed, row.updated_at) == ("Mine", True, 99)
    await journal.change("s1", RowChange(given="Another of mine"))
    assert (await journal.session("s1")).title == "Another of mine"
    await journal.change("s1", RowChange(given=None))
    await journal.change(lease, RowChange(title="The agent's"))
    row = await journal.session("s1")
    assert (row.title, row.renamed) == ("The agent's", False)
    await journal.change("s1", RowChange(given="Mine"))
    await journal.change("s1", RowChange(given=None, title="The agent's"))
    row = await journal.session("s1")
    assert (row.title, row.renamed) == ("The agent's", False)


@promise.promised
async def a_session_remembers_where_it_came_from(journal: Journal) -> None:
    first, second = Origin("s0", "a", 7), Origin("s1", "b", 9)
    lease = await journal.create(NewSession("s1", "b", "/", renamed=True, origins=(first,)))
    assert (await journal.session("s1")).origins == (first,)
    await journal.change(lease, RowChange(agent="c", origins=(first, second)))
    row = await journal.session("s1")
    assert (row.agent, row.origins, row.renamed) == ("c", (first, second), True)


@promise.promised
async def an_id_may_be_given_as_any_prefix_that_fits_one_session(
    journal: Journal,
) -> None:
    for session_id in ("abc", "abcd", "abX", "x%", "é1"):
        await promise.begun(journal, session_id)
    assert (await journal.resolve("abc")).session_id == "abc"
    assert (await journal.resolve("abcd")).session_id == "abcd"
    assert (await journal.resolve("x")).session_id == "x%"
    assert (await journal.resolve("é")).session_id == "é1"
    with pytest.raises(errors.AmbiguousIdError) as caught:
        await journal.resolve("ab")
    assert set(caught.value.matches) == {"abc", "abcd", "abX"}
    for nothing in ("", "abcde", "%", "AB", "~", "x~"):
        with pytest.raises(errors.UnknownSessionError):
            await journal.resolve(nothing)


@promise.promised
async def sessions_named_after_another_leave_its_prefixes_to_it(journal: Journal) -> None:
    for session_id in ("abcdef", "abcdef~", "abcdef~12", "abcdef~13", "abcdef~13~2", "b~1"):
        await promise.begun(journal, session_id)
    asked = ["abcdef", "abcdef~12", "abcdef~13", "abcdef~13~2", "b~1"]
    short = await journal.short_ids(asked, 2)
    assert short == ["ab", "ab~12", "ab~13", "ab~13~", "b~"]
    for session_id, prefix in zip(asked, short, strict=True):
        assert (await journal.resolve(prefix)).session_id == session_id
    assert (await journal.resolve("abc~13")).session_id == "abcdef~13"
    assert (await journal.resolve("ab~")).session_id == "abcdef~"
    for several in ("ab~1", "abcdef~1"):
        with pytest.raises(errors.AmbiguousIdError) as caught:
            await journal.resolve(several)
        assert set(caught.value.matches) == {"abcdef~12", "abcdef~13", "abcdef~13~2"}


@promise.promised
async def what_is_not_there_is_said_to_be_unknown(journal: Journal) -> None:
    for question in (journal.session, journal.owner, journal.summary):
        with pytest.raises(errors.UnknownSessionError) as caught:
            await question("nobody")
        assert caught.value.session_id == "nobody"
    with pytest.raises(errors.UnknownSessionError):
        await journal.read("nobody", 0)
    with pytest.raises(errors.UnknownSessionError):
        await journal.acquire("nobody")
    assert await journal.delete("nobody") == []


@promise.promised
async def names_that_are_no_text_are_refused_and_leave_nothing_open(
    journal: Journal,
) -> None:
    lease = await promise.begun(journal)
    half = "half \ud83d"
    for attempt in (
        journal.session(half),
        journal.resolve(half),
        journal.acquire(half),
        state_of(journal, half),
        journal.read(half, 0),
        journal.delete(half),
        journal.create(NewSession(half, "a", "/")),
        journal.create(NewSession("s2", "a", half)),
        journal.create(NewSession("s2", "a", "/", (half,))),
        journal.links.link(lease, "a", half),
        journal.links.sessions_of("a", [half]),
        journal.page(ListFilter(cwd=half)),
        journal.index.search(Sought("word", cwd=half)),
        journal.append(lease, [("prompt", [b"[]"])], RowChange(cwd=half)),
    ):
        with pytest.raises(errors.IllegibleNameError, match="half"):
            await attempt
    assert (await journal.append(lease, [("update", [b"{}"])]))[0].first_seq == 1
    assert [row.session_id for row in await journal.page(ListFilter(include_unprompted=True))] == [
        "s1"
    ]


@promise.promised
async def a_journal_opened_again_has_everything(
    journal: Journal, again: Callable[[], Awaitable[Journal]]
) -> None:
    secret = (await journal.identity()).secret
    lease = await promise.begun(journal)
    [segment] = await journal.append(lease, [("prompt", [PROMPT])])
    row = await journal.session("s1")
    await journal.aclose()
    reopened = await again()
    assert await reopened.session("s1") == row
    assert await reopened.read("s1", 0) == [segment]
    assert (await reopened.identity()).secret == secret
    assert len(secret) == 32


@promise.promised
async def the_mark_of_how_the_agent_was_started_stays_until_another_takes_its_place(
    journal: Journal,
) -> None:
    lease = await promise.begun(journal)
    assert (await journal.session("s1")).start is None
    await journal.append(lease, [("prompt", [PROMPT])], RowChange(start="0a", prompted=True))
    await journal.append(lease, [("prompt", [PROMPT])], RowChange(updated_at=9))
    [row] = await journal.page(ListFilter())
    assert row.start == (await journal.session("s1")).start == "0a"
    await journal.change(lease, RowChange(start=None))
    assert (await journal.session("s1")).start is None


@promise.promised
async def the_shortest_beginning_of_an_id_fits_no_other(journal: Journal) -> None:
    for session_id in ("abc", "abcd", "abX", "x%", "é1"):
        await promise.begun(journal, session_id)
    asked = ["x%", "abcd", "abc", "abX", "é1"]
    assert await journal.short_ids(asked, 1) == ["x", "abcd", "abc", "abX", "é"]
    assert await journal.short_ids(["x%", "abce"], 4) == ["x%", "abce"]  # and of one that is gone


@promise.promised
async def what_several_sessions_append_together_stands_in_each_of_them(
    journal: Journal,
) -> None:
    leases = [await promise.begun(journal, name) for name in ("s1", "s2", "s3")]
    await journal.append(leases[1], [("update", [b"0"])])
    done = await journal.append_all(
        [
            Append(
                leases[0], [("prompt", [b"[]"]), ("update", [b"1", b"2"])], RowChange(title="T")
            ),
            Append(leases[1], [("update", [b"3"])]),
            Append(leases[2], [("store", [b"4"])]),
        ]
    )
    assert [lease.next_seq for lease in leases] == [4, 3, 2]
    assert (await journal.session("s1")).title == "T"
    for lease, told in zip(leases, done, strict=True):
        assert not isinstance(told, errors.LeaseLostError)
        read = await journal.read(lease.session_id, told[0].first_seq - 1)
        assert conversations.entries_of(read) == conversations.entries_of(told)


@promise.promised
async def who_lost_a_session_is_told_and_the_others_are_appended_to(
    journal: Journal, other: Journal
) -> None:
    kept, lost = await promise.begun(journal, "s1"), await promise.begun(journal, "s2")
    await other.acquire("s2")
    [one, two] = await journal.append_all(
        [
            Append(kept, [("update", [b"1"])]),
            Append(lost, [("update", [b"2"])], RowChange(title="lost")),
        ]
    )
    assert not isinstance(one, errors.LeaseLostError)
    assert isinstance(two, errors.LeaseLostError)
    assert (two.session_id, two.deleted) == ("s2", False)
    assert [entry.raw for entry in conversations.entries_of(await journal.read("s1", 0))] == [b"1"]
    assert await journal.read("s2", 0) == []
    assert ((await journal.session("s2")).title, lost.next_seq) == (None, 1)


@promise.promised
async def what_cannot_be_written_for_one_is_written_for_none(journal: Journal) -> None:
    leases = [await promise.begun(journal, name) for name in ("s1", "s2")]
    with pytest.raises(OverflowError):
        await journal.append_all(
            [
                Append(leases[0], [("update", [b"1"])]),
                Append(leases[1], [("update", [b"2"])], RowChange(updated_at=1 << 70)),
            ]
        )
    assert await journal.read("s1", 0) == []
    assert [lease.next_seq for lease in leases] == [1, 1]


TEXT = "x" * 20_000


async def long_turn(journal: Journal, chunks: int = 80) -> Lease:
    """Make a session with a finished turn that is longer than one read returns."""
    lease = await promise.begun(journal)
    pieces = [conversations.chunk("agent_message", f"<{number}>{TEXT}") for number in range(chunks)]
    await promise.append(journal, lease, promise.turn("Go", *pieces))
    return lease


def numbers(found: list[Segment]) -> list[int]:
    """Return the numbers of the chunks, in order."""
    text = b"".join(segment.raw for segment in found if segment.kind == "update").decode()
    return [int(number) for number in re.findall("<([0-9]+)>", text)]


@promise.promised
async def a_turn_that_is_settled_between_two_pages_is_read_once(journal: Journal) -> None:
    lease = await long_turn(journal)
    found: list[Segment] = []
    async for segment in history(journal, "s1"):
        found.append(segment)
        if len(found) == 20:  # within the first megabyte
            await journal.settle(lease, lease.next_seq - 1)
    assert numbers(found) == [*range(80)]
    again = [segment async for segment in history(journal, "s1")]
    assert numbers(again) == [*range(80)]
    assert len(again) < len(found)


@promise.promised
async def a_turn_that_begins_while_a_session_is_read_is_not_read_in_part(
    journal: Journal,
) -> None:
    lease = await long_turn(journal)
    await journal.settle(lease, lease.next_seq - 1)
    found: list[Segment] = []
    async for segment in history(journal, "s1"):
        if not found:
            end = lease.next_seq - 1
            await promise.append(
                journal, lease, promise.turn("More", conversations.chunk("agent_message", "<99>"))
            )
        found.append(segment)
    assert found[-1].last_seq == end
    assert numbers(found) == [*range(80)]


@promise.promised
async def history_ends_where_it_is_to_end_also_inside_a_segment(journal: Journal) -> None:
    lease = await promise.begun(journal)
    chunks = [conversations.chunk("agent_message", f"<{n}>") for n in range(5)]
    await journal.append(lease, [("update", [conversations.encode(it) for it in chunks])])
    for through in (1, 3, 5):
        found = [segment async for segment in history(journal, "s1", through=through)]
        assert numbers(found) == [*range(through)]
        assert found[-1].last_seq == through


@promise.promised
async def entries_of_some_kinds_are_read_back_without_the_others(journal: Journal) -> None:
    lease = await promise.begun(journal)
    for number in range(5):
        await promise.append(
            journal, lease, promise.turn(f"ask {number}", conversations.chunk("agent_message", "…"))
        )
    all_ = (await journal.read_back("s1", None, 100)).entries
    wanted = [entry for entry in all_ if entry.kind in ("prompt", "turn_end")]
    found, before = list[object](), None
    while True:
        page = await journal.read_back("s1", before, 3, kinds=("prompt", "turn_end"))
        assert len(page.entries) <= 3
        found += page.entries
        if (before := page.before) is None:
            break
    assert found == wanted
    # A page that begins inside a segment of another kind contains none of it.
    middle = next(entry.seq for entry in all_ if entry.kind == "update")
    back = await journal.read_back("s1", middle + 1, 100, kinds=("prompt",))
    assert {entry.kind for entry in back.entries} == {"prompt"}
