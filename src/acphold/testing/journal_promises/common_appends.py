"""Appends of many sessions in one transaction."""

from __future__ import annotations

from acphold.errors import LeaseLostError
from acphold.journal import Append, Journal, RowChange
from acphold.testing.journal_promises.promise import promised, raises
from acphold.testing.journal_promises.scenes import begun, entries_of


@promised
async def what_several_sessions_append_together_stands_in_each_of_them(
    journal: Journal,
) -> None:
    leases = [await begun(journal, name) for name in ("s1", "s2", "s3")]
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
        assert not isinstance(told, LeaseLostError)
        read = await journal.read(lease.session_id, told[0].first_seq - 1)
        assert entries_of(read) == entries_of(told)


@promised
async def who_lost_a_session_is_told_and_the_others_are_appended_to(
    journal: Journal, other: Journal
) -> None:
    kept, lost = await begun(journal, "s1"), await begun(journal, "s2")
    await other.acquire("s2")
    [one, two] = await journal.append_all(
        [
            Append(kept, [("update", [b"1"])]),
            Append(lost, [("update", [b"2"])], RowChange(title="lost")),
        ]
    )
    assert not isinstance(one, LeaseLostError)
    assert isinstance(two, LeaseLostError)
    assert (two.session_id, two.deleted) == ("s2", False)
    assert [entry.raw for entry in entries_of(await journal.read("s1", 0))] == [b"1"]
    assert await journal.read("s2", 0) == []
    assert ((await journal.session("s2")).title, lost.next_seq) == (None, 1)


@promised
async def what_cannot_be_written_for_one_is_written_for_none(journal: Journal) -> None:
    leases = [await begun(journal, name) for name in ("s1", "s2")]
    with raises(OverflowError):
        await journal.append_all(
            [
                Append(leases[0], [("update", [b"1"])]),
                Append(leases[1], [("update", [b"2"])], RowChange(updated_at=1 << 70)),
            ]
        )
    assert await journal.read("s1", 0) == []
    assert [lease.next_seq for lease in leases] == [1, 1]
