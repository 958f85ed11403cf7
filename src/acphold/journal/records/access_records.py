"""The records of tokens, deeds and rules; see `journal.access`."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from acphold.journal import bounds
from acphold.journal.access import AccessToken, Deed
from acphold.journal.records.draft import DEED_COUNTS, DEEDS, RULES, TOKENS, Draft, key

if TYPE_CHECKING:  # imported late: most processes never see a rule
    from acphold.standing import RuleChange, StandingRule


def tokens(draft: Draft) -> list[AccessToken]:
    """Like `Access.tokens`."""
    return [msgspec.msgpack.decode(it, type=AccessToken) for _, it in draft.walk(TOKENS)]


def keep_token(draft: Draft, token: AccessToken) -> None:
    """Like `Access.keep_token`."""
    place = key(TOKENS, token.created_at, token.id)
    if (known := draft.get(place, AccessToken)) is not None:
        used_at = known.used_at if token.used_at is None else token.used_at
        revoked_at = token.revoked_at if known.revoked_at is None else known.revoked_at
        token = replace(known, used_at=used_at, revoked_at=revoked_at)
    draft.put(place, token)


def deeds(draft: Draft, since: int, limit: int) -> list[Deed]:
    """Like `Access.deeds`."""
    found = sorted(
        ((deed.at, place[-8:], deed) for place, deed in _kept(draft, DEEDS) if deed.at >= since),
        key=lambda it: it[:2],
    )
    return [deed for _, _, deed in found[-limit:]]


def keep_deeds(draft: Draft, deeds: Sequence[Deed]) -> None:
    """Like `Access.keep_deeds`."""
    for deed in deeds:
        draft.put(key(DEEDS, deed.token, draft.next_number()), deed)
    for token in {it.token for it in deeds}:
        place = key(DEED_COUNTS, token)
        count = (draft.get(place, int) or 0) + sum(it.token == token for it in deeds)
        for old, _ in islice(draft.walk(key(DEEDS, token)), max(0, count - bounds.KEPT_DEEDS)):
            draft.remove(old)
        draft.put(place, min(count, bounds.KEPT_DEEDS))
    oldest = max(it.at for it in deeds) - bounds.KEPT_DEEDS_MS
    for place, _ in draft.walk(DEED_COUNTS):
        gone = 0
        for old, deed in _kept(draft, DEEDS + place.removeprefix(DEED_COUNTS)):
            if deed.at >= oldest:
                break
            draft.remove(old)
            gone += 1
        if gone:
            draft.put(place, (draft.get(place, int) or 0) - gone)


def _kept(draft: Draft, first: bytes) -> Iterator[tuple[bytes, Deed]]:
    for place, record in draft.walk(first):
        yield place, msgspec.msgpack.decode(record, type=Deed)


def rules(draft: Draft, person: str | None) -> list[StandingRule]:
    """Like `Access.rules`."""
    from acphold.standing import StandingRule

    first = RULES if person is None else key(RULES, person)
    return [msgspec.msgpack.decode(record, type=StandingRule) for _, record in draft.walk(first)]


def add_rule(draft: Draft, rule: StandingRule) -> StandingRule:
    """Like `Access.add_rule`."""
    numbers = [known.number for known in rules(draft, rule.person)]
    numbered = replace(rule, number=max(numbers, default=0) + 1)
    _keep_rule(draft, numbered)
    return numbered


def change_rules(
    draft: Draft, person: str, numbers: Collection[int] | None, change: RuleChange
) -> list[StandingRule]:
    """Like `Access.change_rules`."""
    changed = [
        change.made_to(rule)
        for rule in rules(draft, person)
        if numbers is None or rule.number in numbers
    ]
    for rule in changed:
        _keep_rule(draft, rule)
    return changed


def _keep_rule(draft: Draft, rule: StandingRule) -> None:
    draft.put(key(RULES, rule.person, rule.number), rule)
