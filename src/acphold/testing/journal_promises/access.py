"""Tokens: what is kept of them, and that it is not the tokens themselves."""

from __future__ import annotations

from msgspec.structs import replace

from acphold.journal import Journal
from acphold.journal.access import Deed, new_token, token_id
from acphold.testing.journal_promises.promise import promised


@promised
async def tokens_are_kept_oldest_first_and_their_use_and_end_are_noted(
    journal: Journal, other: Journal
) -> None:
    _, second = new_token("phone", ("watch", "prompt"), 2)
    _, first = new_token("laptop", ("manage",), 1, session_id="s1", expires_at=5)
    await journal.keep_access_token(second)
    await journal.keep_access_token(first)
    assert await other.access_tokens() == [first, second]
    await other.keep_access_token(replace(first, revoked_at=3, used_at=2))
    await journal.keep_access_token(replace(first, used_at=4))  # by who read it before it ended
    assert await journal.access_tokens() == [replace(first, revoked_at=3, used_at=4), second]


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

    await journal.keep_deeds(deeds("one", 1, 2))
    await other.keep_deeds(deeds("two", *range(3, 12_000)))
    assert await journal.deeds(0, 2) == deeds("two", 11_998, 11_999)
    kept = await journal.deeds(0, 100_000)
    assert kept[:3] == [*deeds("one", 1, 2), *deeds("two", 2_000)]
    assert len(kept) == 10_002
    assert await journal.deeds(11_999, 10) == deeds("two", 11_999)
    await journal.keep_deeds(deeds("one", 500 * 24 * 3600 * 1000))  # much later
    assert len(await journal.deeds(0, 100_000)) == 1
