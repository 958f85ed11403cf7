"""Kept beside the conversations: tokens, shares, standing answers, and rows of snapshots."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace

from acphold.conversation.history.entries import now_ms
from acphold.errors import RewrittenError, UnknownSessionError
from acphold.journal import bounds
from acphold.journal.access import NODE, Deed, Share, new_browser, new_token, token_id
from acphold.journal.journal import Journal
from acphold.journal.rows import ListFilter, NewSession, RowChange
from acphold.journal.seams import Sought, TurnSnapshot
from acphold.safety.standing.decision import RuleChange, StandingRule
from tests.journal.promises.promise import promised

SAID = b'[{"type":"text","text":"apples"}]'


@promised
async def tokens_are_kept_oldest_first_and_their_use_and_end_are_noted(
    journal: Journal, other: Journal
) -> None:
    _, second = new_token("phone", ("watch", "prompt"), 2)
    _, first = new_token("laptop", ("manage",), 1, session_id="s1", expires_at=5)
    await journal.access.keep_token(second)
    await journal.access.keep_token(first)
    assert await other.access.tokens() == [first, second]
    await other.access.keep_token(replace(first, revoked_at=3, used_at=2))
    await journal.access.keep_token(replace(first, used_at=4))  # read before it was revoked
    assert await journal.access.tokens() == [replace(first, revoked_at=3, used_at=4), second]


@promised
async def a_token_is_of_its_tenant_and_one_of_nodes_or_a_browser_is_known_as_that(
    journal: Journal, other: Journal
) -> None:
    _, hers = new_token("phone", ("watch",), 1, tenant="alice")
    _, nodes = new_token("nodes", (NODE,), 2)
    await journal.access.keep_token(hers)
    page, cookie, browsers = new_browser("browser", ("watch",), 3, "http://localhost:8260")
    await journal.access.keep_token(nodes)
    await journal.access.keep_token(browsers)
    assert await other.access.tokens() == [hers, nodes, browsers]
    [*_, found] = await other.access.tokens()
    assert found.is_page_of(page, "http://localhost:8260")
    assert found.is_cookie_of(cookie)
    assert not any(found.is_of(half) for half in (page, cookie))


@promised
async def rules_are_kept_for_each_person_with_numbers_that_are_not_used_again(
    journal: Journal, other: Journal
) -> None:
    made = StandingRule(
        "allow", "run", ("pytest",), is_prefix=True, folder="/w", person="ada", made_at=1
    )
    assert await journal.access.rules("ada") == []
    first = await journal.access.add_rule(made)
    second = await other.access.add_rule(replace(made, verdict="ask", argv=("git", "push")))
    his = await other.access.add_rule(replace(made, person="bob"))
    assert first == replace(made, number=1)
    assert (second.number, his.number) == (2, 1)
    assert await other.access.rules("ada") == [first, second]
    assert await other.access.rules("") == []
    assert await journal.access.rules(None) == [first, second, his]
    ended = replace(second, ended_at=5)
    assert await journal.access.change_rules("ada", [2, 9], RuleChange(ended_at=5)) == [ended]
    assert (await other.access.add_rule(made)).number == 3


@promised
async def a_rule_that_was_revoked_stays_revoked_whatever_others_change_at_the_same_time(
    journal: Journal, other: Journal
) -> None:
    made = StandingRule("allow", "run", ("make", "check"), folder="/w")
    numbers = [(await journal.access.add_rule(made)).number for _ in range(8)]
    changes = (RuleChange(ended_at=7), RuleChange(is_seen=True), RuleChange(is_off=True))
    await asyncio.gather(
        *(
            its.access.change_rules("", [number] if number % 2 else None, change)
            for number in numbers
            for its, change in zip((journal, other, other), changes, strict=True)
        )
    )
    await other.access.change_rules("", None, RuleChange(ended_at=9))
    for rule in await journal.access.rules(""):
        assert rule == replace(made, number=rule.number, ended_at=7, is_seen=True, is_off=True)


@promised
async def a_session_is_there_for_whose_it_is_and_for_those_it_is_shared_with(
    journal: Journal, other: Journal
) -> None:
    for number, (session_id, tenant) in enumerate(
        (("hers", "alice"), ("shared", "alice"), ("nobodys", ""), ("his", "bob"))
    ):
        new = NewSession(session_id, "a", "/w", created_at=1000 + number, tenant=tenant)
        lease = await journal.create(new)
        await journal.append(lease, [("prompt", [SAID])], RowChange(prompted=True))
        await journal.settle(lease, lease.next_seq - 1)
    await journal.access.keep_share(Share("shared", "bob"))
    await other.access.keep_share(Share("shared", "bob", prompts=True))
    await other.access.keep_share(Share("shared", "rita"))
    assert await journal.access.shares() == [Share("shared", "bob", True), Share("shared", "rita")]
    assert (await other.session("shared")).shared_with == {"bob": True, "rita": False}

    async def there_for(tenant: str | None) -> list[set[str]]:
        listed = await other.page(ListFilter(tenant=tenant))
        one = await other.page(ListFilter(tenant=tenant), None, 1)
        rest = await other.page(ListFilter(tenant=tenant), one[-1].key if one else None)
        assert [row.session_id for row in (*one, *rest)] == [row.session_id for row in listed]
        hits = await other.index.search(Sought("apples", tenant=tenant))
        best = await other.index.search(Sought("apples", tenant=tenant, rank=True))
        assert {hit.session_id for hit in hits} == {hit.session_id for hit in best}
        return [{row.session_id for row in listed}, {hit.session_id for hit in hits}]

    everybody: dict[str | None, set[str]] = {
        None: {"hers", "shared", "nobodys", "his"},
        "alice": {"hers", "shared"},
        "bob": {"his", "shared"},
        "rita": {"shared"},
        "eve": set(),
    }
    for user, theirs in everybody.items():
        assert await there_for(user) == [theirs, theirs], user
    seen = (await journal.changes(None)).last
    assert await journal.access.end_share("shared", "bob")
    assert not await journal.access.end_share("shared", "bob")
    assert "shared" in (await journal.changes(seen)).session_ids
    assert await there_for("bob") == [{"his"}, {"his"}]
    await journal.delete("shared")
    assert await other.access.shares() == []
    with pytest.raises(UnknownSessionError):
        await other.access.keep_share(Share("shared", "bob"))


def test_a_token_is_known_again_by_what_is_kept_of_it_which_does_not_tell_it() -> None:
    text, kept = new_token("phone", ("watch",), 1)
    other, _ = new_token("phone", ("watch",), 1)
    assert token_id(text) == kept.id
    assert kept.is_of(text)
    assert not kept.is_of(other)
    assert not kept.is_of(f"{text}x")
    assert not kept.is_of("\udc80")
    assert text.split("_", 2)[2].encode() not in kept.digest
    assert (token_id("acphold_1"), token_id(""), token_id("a_b_c")) == ("", "", "")


def test_a_token_opens_nothing_once_it_is_revoked_or_over() -> None:
    _, kept = new_token("phone", ("watch",), 1, expires_at=10)
    assert kept.is_good(9)
    assert not kept.is_good(10)
    assert not replace(kept, revoked_at=2).is_good(3)
    assert replace(kept, expires_at=None).is_good(10**18)


@promised
async def deeds_are_read_oldest_first_and_one_token_takes_no_room_of_another(
    journal: Journal, other: Journal
) -> None:
    def deeds(token: str, *times: int) -> list[Deed]:
        return [Deed(at=at, deed="session/prompt", name="phone", token=token) for at in times]

    await journal.access.keep_deeds(deeds("one", 2))
    await journal.access.keep_deeds(deeds("one", 1))  # written down later than it happened
    await other.access.keep_deeds(deeds("two", *range(3, 12_000)))
    assert await journal.access.deeds(0, 2) == deeds("two", 11_998, 11_999)
    kept = await journal.access.deeds(0, 100_000)
    assert kept[:3] == [*deeds("one", 1, 2), *deeds("two", 2_000)]
    assert len(kept) == 10_002
    assert await journal.access.deeds(11_999, 10) == deeds("two", 11_999)
    later = 500 * 24 * 3600 * 1000  # or the clock is wrong
    await journal.access.keep_deeds(deeds("one", later))
    kept = await journal.access.deeds(0, 100_000)
    assert kept == [*deeds("two", *range(2_001, 12_000)), *deeds("one", later)]


BEGIN = TurnSnapshot(
    turn=2, edge="begin", root="/w", at=5, state="late", store="s", tree="t", commit="c", branch="m"
)
END = replace(BEGIN, edge="end", at=6, state="whole", left_out=(("é", "a secret"),), files=3)
NEXT = TurnSnapshot(turn=9, edge="begin", root="/w", at=7, state="refused", reason="full")


@promised
async def who_follows_the_access_reads_only_what_others_have_changed(
    journal: Journal, other: Journal
) -> None:
    async def news(after: str) -> tuple[set[str], set[str], str]:
        found = await journal.access.changes(after)
        assert not found.is_all
        return {*found.tokens}, {*found.tenants}, found.last

    await other.create(NewSession("s1", "a", "/w"))
    await other.create(NewSession("s2", "a", "/w"))
    _, one = new_token("one", ("watch",), 1)
    _, two = new_token("two", ("watch",), 2)
    await other.access.keep_token(one)
    last = (await journal.access.changes(None)).last
    assert (await news(last))[:2] == (set(), set())
    await other.access.keep_token(two)
    await other.access.keep_token(replace(one, used_at=5))
    tokens, tenants, last = await news(last)
    assert (tokens, tenants) == ({one.id, two.id}, set())
    assert await journal.access.tokens([two.id, "none"]) == [two]
    for session_id in ("s1", "s2"):
        await other.access.keep_share(Share(session_id, "bob"))
        await other.access.keep_share(Share(session_id, "rita"))
    *_, last = await news(last)
    await other.access.keep_share(Share("s1", "bob", prompts=True))  # more than before
    assert (await news(last))[:2] == (set(), set())
    await other.access.keep_share(Share("s1", "bob"))
    tokens, tenants, last = await news(last)
    assert (tokens, tenants) == (set(), {"bob"})
    await other.access.end_share("s1", "rita")
    tokens, tenants, last = await news(last)
    assert (tokens, tenants) == (set(), {"rita"})
    await other.delete("s2")
    tokens, tenants, last = await news(last)
    assert (tokens, tenants) == (set(), {"bob", "rita"})
    await other.access.accept()
    assert (await journal.access.changes(last)).is_all


@promised
async def a_token_is_deleted_a_month_after_its_end_and_the_audit_still_names_it(
    journal: Journal, other: Journal
) -> None:
    month, now = bounds.ENDED_TOKEN_MS, now_ms()
    kept = [
        new_token(name, ("watch",), 1, expires_at=at)[1]
        for name, at in (("good", None), ("new", now - month // 2), ("old", now - month - 60_000))
    ]
    made = now - month - bounds.BROWSER_MS - 60_000
    away = new_browser("away", ("watch",), made, "http://localhost:8260")[2]
    there = replace(new_browser("there", ("watch",), made, "http://b")[2], used_at=now)
    gone = replace(new_token("revoked", ("watch",), 2)[1], revoked_at=now - month - 60_000)
    for token in (*kept, away, there, gone):
        await journal.access.keep_token(token)
    last = (await other.access.changes(None)).last
    await journal.access.forget_ended()
    assert {it.name for it in await other.access.tokens()} == {"good", "new", "there"}
    assert {*(await other.access.changes(last)).tokens} == {kept[2].id, away.id, gone.id}
    told = {(it.deed, it.name, it.token) for it in await other.access.deeds(0, 10)}
    assert told == {("forget token", it.name, it.id) for it in (kept[2], away, gone)}


@promised
async def who_was_away_too_long_or_has_too_much_ahead_reads_all_again(
    journal: Journal, other: Journal
) -> None:
    last = (await journal.access.changes(None)).last
    for number in range(3):
        await other.access.keep_token(new_token(f"t{number}", ("watch",), 1)[1])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bounds, "ACCESS_CHANGES", 2)
        assert (await journal.access.changes(last)).is_all
        patch.setattr(bounds, "KEPT_CHANGES_SECONDS", -1)
        with pytest.raises(RewrittenError):
            await journal.access.changes(last)
        await other.access.forget_ended()  # but for the last one: numbers go on behind it
    last = (await journal.access.changes(None)).last
    await other.access.keep_token(late := new_token("late", ("watch",), 1)[1])
    assert (await journal.access.changes(last)).tokens == [late.id]


@promised
async def snapshots_are_kept_in_order_and_taken_again_in_place(
    journal: Journal, other: Journal
) -> None:
    for name in ("s1", "s2"):
        await journal.create(NewSession(name, "a", "/w"))
    await journal.snapshots.keep("s1", [NEXT, END])
    await other.snapshots.keep("s1", [BEGIN, replace(BEGIN, root="/v")])
    await journal.snapshots.keep("s1", [replace(NEXT, reason="fuller")])
    kept = [replace(BEGIN, root="/v"), BEGIN, END, replace(NEXT, reason="fuller")]
    assert await other.snapshots.of("s1") == kept
    assert await other.snapshots.of("s2") == []
    assert await other.snapshots.newest(["s1", "s2", "none"]) == {"s1": kept[-1]}
    await other.snapshots.keep("s2", [END])
    assert await journal.snapshots.of_all() == [*(("s1", one) for one in kept), ("s2", END)]
    with pytest.raises(UnknownSessionError):
        await journal.snapshots.keep("none", [END])
    seen = (await journal.changes(None)).last
    await journal.snapshots.keep("s2", [NEXT])
    assert "s2" in (await journal.changes(seen)).session_ids


@promised
async def snapshots_go_one_by_one_and_with_their_session(journal: Journal, other: Journal) -> None:
    for name in ("s1", "s2"):
        await journal.release(await journal.create(NewSession(name, "a", "/w")))
        await journal.snapshots.keep(name, [BEGIN, END])
    await other.snapshots.drop("s1", [BEGIN, NEXT])
    assert await journal.snapshots.of("s1") == [END]
    await other.delete("s1")
    assert await journal.snapshots.of("s1") == []
    assert await journal.snapshots.of_all() == [("s2", BEGIN), ("s2", END)]
    await journal.create(NewSession("s1", "a", "/w"))
    assert await journal.snapshots.of("s1") == []
