"""Snapshots of files: the rows that name them."""

from __future__ import annotations

import asyncio

from msgspec.structs import replace

from acphold.errors import UnknownSessionError
from acphold.journal import Journal, NewSession
from acphold.journal.snapshots import TurnSnapshot
from acphold.testing.journal_promises.promise import promised, raises

BEGIN = TurnSnapshot(
    turn=2, edge="begin", root="/w", at=5, state="late", store="s", tree="t", commit="c", branch="m"
)
END = replace(BEGIN, edge="end", at=6, state="whole", left_out=(("é", "a secret"),), files=3)
NEXT = TurnSnapshot(turn=9, edge="begin", root="/w", at=7, state="refused", reason="full")


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
    assert await journal.snapshots.named() == [*(("s1", one) for one in kept), ("s2", END)]
    with raises(UnknownSessionError):
        await journal.snapshots.keep("none", [END])
    seen = (await journal.changes(None)).last
    await journal.snapshots.keep("s2", [NEXT])
    # A store may report it only when everything that began earlier is over.
    while "s2" not in (await journal.changes(seen)).session_ids:  # noqa: ASYNC110
        await asyncio.sleep(0.01)


@promised
async def snapshots_go_one_by_one_and_with_their_session(journal: Journal, other: Journal) -> None:
    for name in ("s1", "s2"):
        await journal.release(await journal.create(NewSession(name, "a", "/w")))
        await journal.snapshots.keep(name, [BEGIN, END])
    await other.snapshots.drop("s1", [BEGIN, NEXT])
    assert await journal.snapshots.of("s1") == [END]
    await other.delete("s1")
    assert await journal.snapshots.of("s1") == []
    assert await journal.snapshots.named() == [("s2", BEGIN), ("s2", END)]
    await journal.create(NewSession("s1", "a", "/w"))
    assert await journal.snapshots.of("s1") == []
