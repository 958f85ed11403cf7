"""How a session stands is known without folding its whole history."""

from __future__ import annotations

import asyncio
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from acphold.journal import NewSession, SqliteJournal, Standing
from tests.journal.conversations import CONVERSATIONS

Pieces = list[tuple[str, list[bytes]]]


async def _standing_equals_the_whole_fold(pieces: Pieces, settle_after: int) -> None:
    with TemporaryDirectory() as folder:
        journal = SqliteJournal.open(Path(folder) / "journal.db")
        lease = await journal.create(NewSession("s1", "a", "/w"), "me")
        for number, (kind, raws) in enumerate(pieces):
            await journal.append(lease, kind, raws)
            if number == settle_after:
                await journal.settle(lease, lease.next_seq - 1)
        state = await journal.state("s1")
        assert await journal.standing("s1") == Standing(state.settings, state.turn)
        await journal.aclose()


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(CONVERSATIONS, st.integers(0, 12))
def test_a_standing_is_the_fold_of_everything_wherever_it_was_settled(
    pieces: Pieces, settle_after: int
) -> None:
    asyncio.run(_standing_equals_the_whole_fold(pieces, settle_after))


async def test_the_words_of_a_deleted_session_are_nowhere_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    journal = SqliteJournal.open(path)
    for name in ("kept", "gone"):
        lease = await journal.create(NewSession(name, "a", "/w"), "me")
        for turn in range(20):
            text = b'{"type":"text","text":"zebrafish%b %d"}' % (name.encode(), turn)
            await journal.append(lease, "prompt", [b"[%b]" % text])
            chunk = b'{"sessionUpdate":"agent_message_chunk","content":%b}' % text
            for _ in range(5):
                await journal.append(lease, "update", [chunk])
            await journal.append(lease, "turn_end", [b'{"stopReason":"end_turn"}'])
            await journal.settle(lease, lease.next_seq - 1)
    assert await journal.delete("gone")
    await journal.aclose()
    left = path.read_bytes()
    assert not path.with_name("journal.db-wal").exists()
    assert b"zebrafishkept" in left
    assert b"zebrafishgone" not in left
    assert b"fishgone" not in left
