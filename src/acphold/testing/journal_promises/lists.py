"""The list of sessions: newest first, page by page, by folder and agent."""

from __future__ import annotations

from acphold.errors import CursorError, UnknownSessionError
from acphold.journal import Journal, ListFilter, ListKey, RowChange, cursor
from acphold.testing.journal_promises.promise import promised, raises
from acphold.testing.journal_promises.scenes import put

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
    with raises(UnknownSessionError):
        await journal.change("nobody", RowChange(archived=True))


@promised
async def a_cursor_is_refused_by_a_list_with_another_archive_filter(
    journal: Journal,
) -> None:
    text = cursor.encode(ListKey(1, "s"), ListFilter(), await journal.cursor_secret())
    with raises(CursorError, match="another filter"):
        cursor.decode(text, ListFilter(archived="include"), await journal.cursor_secret())


@promised
async def sessions_of_several_agents_stand_in_one_list(journal: Journal) -> None:
    for n in range(6):
        await put(journal, str(n), n, agent="abc"[n % 3])
    wanted = ListFilter(agents=("a", "c", "a"))
    assert await ids(journal, wanted) == ["5", "3", "2", "0"]
    first = await journal.page(wanted, None, 3)
    assert [row.session_id for row in await journal.page(wanted, first[-1].key, 3)] == ["0"]
