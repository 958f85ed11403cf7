"""Tokens and cost reported by agents, added up."""

from __future__ import annotations

from acphold.history import PastEntry
from acphold.journal import Journal, NewSession, RowChange
from acphold.testing.journal_promises.promise import promised
from acphold.testing.journal_promises.scenes import cost, encode, used

DAY = 24 * 3600 * 1000


async def used_in(journal: Journal, name: str, agent: str, cwd: str, *days: int) -> None:
    """Make a session in which an agent reports so many tokens, and the same cost, day by day."""
    lease = await journal.create(NewSession(name, agent, cwd))
    spent = 0
    for day, tokens in enumerate(days, 1):
        spent += tokens
        answer = encode({"stopReason": "end_turn", **used(tokens)})
        kind, total = cost(spent)
        past = [PastEntry(kind, day * DAY, total), PastEntry("turn_end", day * DAY, answer)]
        await journal.take_in(lease, past, RowChange(updated_at=day * DAY, prompted=True))
    await journal.index.catch_up(9)


@promised
async def what_was_reported_is_added_up_by_agent_folder_and_session(journal: Journal) -> None:
    await used_in(journal, "s1", "a", "/one", 100, 50)
    await used_in(journal, "s2", "a", "/two", 7)
    await used_in(journal, "s3", "b", "/two", 30)
    by_agent = await journal.index.usage("agent")
    assert {of.name: of.tokens.total for of in by_agent.groups} == {"a": 157, "b": 30}
    assert {of.name: of.sessions for of in by_agent.groups} == {"a": 2, "b": 1}
    assert (by_agent.total.tokens.total, by_agent.total.costs) == (187, {"USD": 187.0})
    by_folder = await journal.index.usage("folder")
    assert {of.name: of.tokens.total for of in by_folder.groups} == {"/one": 150, "/two": 37}
    by_session = await journal.index.usage("session", agents=("a",))
    assert {of.name: of.tokens.total for of in by_session.groups} == {"s1": 150, "s2": 7}


@promised
async def what_was_reported_is_added_up_by_the_model_that_answered(journal: Journal) -> None:
    lease = await journal.create(NewSession("s1", "a", "/one"))
    told = (("small", 10, 0), ("large", 300, 50), ("small", 20, 0), (None, 7, 0))
    past: list[PastEntry] = []
    spent = 0
    for day, (model, tokens, paid) in enumerate(told, 1):
        if paid:
            spent += paid
            kind, total = cost(spent)
            past.append(PastEntry(kind, day * DAY, total))
        meta = {} if model is None else {"_meta": {"acphold/model": model}}
        answer = encode({"stopReason": "end_turn", **used(tokens), **meta})
        past.append(PastEntry("turn_end", day * DAY, answer))
    await journal.take_in(lease, past, RowChange(updated_at=5 * DAY, prompted=True))
    await used_in(journal, "s2", "b", "/two", 40)
    await journal.index.catch_up(9)
    found = await journal.index.usage("model")
    assert [(of.name, of.tokens.total, of.sessions) for of in found.groups] == [
        ("large", 300, 1),
        ("", 47, 2),
        ("small", 30, 1),
    ]
    assert [of.costs for of in found.groups] == [{"USD": 50.0}, {"USD": 40.0}, {}]
    assert (found.total.tokens.total, found.total.sessions) == (377, 2)
    of_a = await journal.index.usage("model", agents=("a",), since=3 * DAY)
    assert {of.name: of.tokens.total for of in of_a.groups} == {"small": 20, "": 7}


@promised
async def only_what_was_reported_since_then_in_the_folder_is_added_up(
    journal: Journal,
) -> None:
    await used_in(journal, "s1", "a", "/one", 100, 50)
    await used_in(journal, "s2", "a", "/two", 7)
    assert (await journal.index.usage("agent", since=2 * DAY)).total.tokens.total == 50
    assert (await journal.index.usage("agent", since=2 * DAY, cwd="/two")).groups == []
    assert (await journal.index.usage("agent", cwd="/two/.")).total.tokens.total == 7


@promised
async def who_told_no_tokens_is_counted_as_such(journal: Journal) -> None:
    lease = await journal.create(NewSession("s1", "a", "/w"))
    answer = b'{"stopReason":"end_turn"}'
    await journal.append(lease, [("turn_end", [answer])], RowChange(prompted=True))
    total = (await journal.index.usage("agent")).total
    assert (total.sessions, total.not_reported, total.tokens.total) == (1, 1, None)
