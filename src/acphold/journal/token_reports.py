"""Reports of tokens and cost from agents: found in entries, and made increases.

Agents report tokens in four ways, and cost in one:

    usage of the answer to a prompt             by turn; Copilot: of the whole session so far
    _meta.quota of the answer to a prompt       by turn (Gemini CLI)
    _meta.usage of a chunk of a message         by request to the model (Qwen Code)
    usage of a sub-agent's `idle` state         by piece of its work
    cost of a usage_update                      of the whole session so far

An import that finds only the total of a session stores it with the answer to its last prompt, in
`_meta.acphold/soFar`: `{"usage": …, "cost": …}`, with usage as in the first way and cost as in the
last. One that also finds the tokens of each turn stores only the cost there.

Sources: RFDs end-turn-token-usage and session-usage; behaviour of these agents. Totals for the
session so far are converted to the increase since the report before.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import takewhile
from math import inf
from typing import Final, TypeVar

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from acp_wire.schema.splice import json_value
from acphold.conversation.history.entries import (
    CHILD,
    PARAMS,
    REPLY,
    SO_FAR,
    TURN_END,
    UPDATE,
    Entry,
    Origin,
    Segment,
)
from acphold.conversation.history.raw_update import members, string
from acphold.journal import bounds
from acphold.journal.seams import Tokens

# A fixed list: numbers that grow prove nothing, as they do in every session, with the context.
CUMULATIVE: Final = frozenset({"Copilot"})
"""Agents whose answers report the tokens of the session so far, by the name they are kept under."""

COUNTS: Final = ("input", "output", "thought", "cached_read", "cached_write", "total")
"""The fields of Tokens, and the columns for them."""


class Report(Struct, frozen=True):
    """The report in one entry; `by_turn` if we wrote it, and so know what it counts.

    With `so_far`, it is the total of the session, whatever else was reported of it. `reply` is the
    same number in each copy of an imported turn; 0 if it is unknown.
    """

    seq: int
    at: int
    tokens: Tokens | None = None
    by_turn: bool = False
    cost: float | None = None
    currency: str = ""
    so_far: bool = False
    reply: int = 0


# -- in entries -------------------------------------------------------------------------------


class ReportedTokens(Struct, rename="camel"):
    """Tokens as they are told in JSON, in the order of Tokens."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    thought_tokens: int | None = None
    cached_read_tokens: int | None = None
    cached_write_tokens: int | None = None
    total_tokens: int | None = None

    def tokens(self) -> Tokens:
        """Return them as they are kept."""
        return Tokens(*(getattr(self, name) for name in ReportedTokens.__struct_fields__))


class _Count(Struct):
    input_tokens: int | None = None
    output_tokens: int | None = None


class _Quota(Struct):
    token_count: _Count = field(default_factory=_Count)


class _Cost(Struct):
    amount: float
    currency: str


_WORDS: Final = {
    TURN_END: (b"oken",),
    UPDATE: (b'"cost"', b'"usage"'),
    PARAMS: (b'"usage',),
    CHILD: (b'"usage"',),
}
"""By kind of entry: a report has at least one of these."""


def reports(found: Iterable[Segment]) -> list[Report]:
    """Return the reports in the entries of these segments."""
    found_reports: list[Report] = []
    for segment in found:
        words = _WORDS.get(segment.kind, ())
        if not any(word in segment.raw for word in words):
            continue  # as in most segments: nothing in it is parsed
        for entry in segment.entries():
            if not any(word in entry.raw for word in words):
                continue
            report = _of_answer(entry) if entry.kind == TURN_END else _of_update(entry)
            if report is not None:
                found_reports.append(report)
    return found_reports


def _of_answer(entry: Entry) -> Report | None:
    parts = members(entry.raw)
    meta = members(parts.get("_meta", b""))
    whole = members(meta.get(SO_FAR, b""))
    paid = _of_cost(entry, whole.get("cost", b"null"))
    tokens = _tokens(parts.get("usage", b""))
    if "usage" in whole or (paid and tokens is None):
        paid = paid or Report(entry.seq, entry.at)
        return replace(paid, tokens=_tokens(whole.get("usage", b"")), so_far=True)
    if tokens is None and (quota := json_value(meta.get("quota"), _Quota)) is not None:
        count = quota.token_count
        tokens = _with_sum(Tokens(count.input_tokens, count.output_tokens))
    if tokens is None:
        return None
    by_turn = any(name.startswith("acphold/") for name in meta)
    reply = _number(string(meta[REPLY]) or "") if REPLY in meta else 0
    report = paid or Report(entry.seq, entry.at)
    return replace(report, tokens=tokens, by_turn=by_turn, reply=reply)


def _number(digest: str) -> int:
    """Return the number of a digest, less than 2**62; 0 if it is none."""
    return int(digest, 16) if re.fullmatch("[0-9a-f]{1,15}", digest) else 0


def _of_update(entry: Entry) -> Report | None:
    parts = members(entry.update)
    if parts.get("sessionUpdate") == b'"usage_update"':
        # Agents that report both include the cost of a sub-agent in that of the session.
        return None if entry.kind == CHILD else _of_cost(entry, parts.get("cost", b"null"))
    if parts.get("sessionUpdate") == b'"subagent_update"':
        tokens = _tokens(members(parts.get("state", b"")).get("usage", b""))
    else:
        tokens = _tokens(members(parts.get("_meta", b"")).get("usage", b""))
    return None if tokens is None else Report(entry.seq, entry.at, tokens, by_turn=True)


def _of_cost(entry: Entry, raw: bytes) -> Report | None:
    cost = json_value(raw, _Cost)
    if cost is None or not 0 <= cost.amount < float("inf"):
        return None
    return Report(entry.seq, entry.at, cost=cost.amount, currency=cost.currency)


def _tokens(raw: bytes) -> Tokens | None:
    reported = json_value(raw, ReportedTokens)
    return None if reported is None else _with_sum(reported.tokens())


MOST: Final = 1 << 50
"""Nobody can have used this many tokens; no store takes numbers of 64 bits and more."""


def _with_sum(tokens: Tokens) -> Tokens | None:
    """Return the tokens with their sum filled in, if it was not reported; None if no count makes
    sense."""
    known = {name: getattr(tokens, name) for name in COUNTS}
    known = {
        name: count for name, count in known.items() if count is not None and 0 <= count < MOST
    }
    if not known:
        return None
    sum_ = known.get("input", 0) + known.get("output", 0)
    return Tokens(**({"total": sum_} | known))


# -- in sessions --------------------------------------------------------------------------------


SLOT_MS: Final = 15 * 60 * 1000
"""A slot of sums: a day begins with one in every time zone."""


class UsageReport(Struct, frozen=True):
    """The usage that an agent reported at one time: the increase since the report before.

    `by_turn` is True if it is known to count a whole turn, or a request of one. `model` is the one
    that answered in the turn, "" if it is unknown or was not looked up. `reply` is as in `Report`.
    """

    agent: str
    at: int
    tokens: Tokens | None = None
    cost: float | None = None
    currency: str = ""
    by_turn: bool = False
    model: str = ""
    reply: int = 0


class SessionUsage(Struct, frozen=True):
    """A session, and the tokens and cost reported in it, oldest first."""

    session_id: str
    agent: str
    cwd: str
    title: str | None
    updated_at: int
    reports: tuple[UsageReport, ...]


Holders = list[tuple[float, str]]
"""Agents that held a session, each with the last entry it held; infinite for the end of it."""


def holders(session_id: str, agent: str, origins: str) -> Holders:
    """Return the agents that held a session, from its row."""
    if origins == "[]":
        return [(inf, agent)]
    before = msgspec.json.decode(origins, type=tuple[Origin, ...])
    own = [(origin.seq, origin.agent) for origin in before if origin.session_id == session_id]
    return [*own, (inf, agent)]


MODEL: Final = "acphold/model"
"""The `_meta` key of the model that answered in a turn; imports write it at the end of the turn."""

Models = Sequence[tuple[int, str]]
"""The ends of turns, oldest first, each with the model that answered, "" if it is unknown."""


def models_since(found: Iterable[Report], newest_first: Iterable[Segment], since: int) -> Models:
    """Return the models of those turns that reports from this time (milliseconds) on may need, from
    the segments that end turns."""
    first = min((report.seq for report in found if report.at >= since), default=None)
    if first is None:
        return ()
    answered: list[tuple[int, str]] = []
    for segment in takewhile(lambda segment: segment.last_seq >= first, newest_first):
        for entry in segment.entries():
            name = None
            if MODEL.encode() in entry.raw:
                name = string(members(members(entry.raw).get("_meta", b"")).get(MODEL))
            answered.append((entry.seq, (name or "")[: bounds.MODEL_CHARACTERS]))
    return sorted(answered)


class Reported(Struct, array_like=True):
    """The basis for the next increases of a session: the last counts of the session that an agent
    told, the last cost by agent and currency, and the sums of COUNTS; and the last reply, with its
    counts: a turn that was imported while it ran is told again from its beginning."""

    last: Tokens = Tokens()
    costs: dict[tuple[str, str], float] = {}
    sums: dict[str, int] = field(default_factory=lambda: dict.fromkeys(COUNTS, 0))
    reply: int = 0
    told: dict[str, int] = {}


def increases(
    found: Iterable[Report], held_by: Holders, answered: Models = (), before: Reported | None = None
) -> Iterator[UsageReport]:
    """Yield each report as an increase, with the agent that reported it.

    `answered` has the models. A report on the whole session has none: it may be of several.
    `before` is what was reported earlier; it goes on with these.
    """
    before = Reported() if before is None else before
    costs, sums = before.costs, before.sums
    held_through, agent = -1.0, ""
    for report in found:
        if report.seq > held_through:
            held_through, agent = next(it for it in held_by if report.seq <= it[0])
        tokens, cost = report.tokens, report.cost
        if tokens is not None:
            known = {name: getattr(tokens, name) for name in COUNTS}
            known = {name: count for name, count in known.items() if count is not None}
            if report.so_far:  # less all that was reported before, so that nothing counts twice
                known = {name: max(0, count - sums[name]) for name, count in known.items()}
            elif agent in CUMULATIVE and not report.by_turn:
                last, before.last = before.last, tokens
                known = {
                    name: increase(getattr(last, name) or 0, count) for name, count in known.items()
                }
            elif report.reply:
                told = before.told if report.reply == before.reply else {}
                before.reply, before.told = (
                    report.reply,
                    {name: max(count, told.get(name, 0)) for name, count in known.items()},
                )
                known = {name: max(0, count - told.get(name, 0)) for name, count in known.items()}
            for name, count in known.items():
                sums[name] += count
            tokens = Tokens(**known)
        if cost is not None:
            past = costs.get((agent, report.currency), 0.0)
            costs[agent, report.currency] = cost
            cost = increase(past, cost)
        is_all, model = report.by_turn or report.so_far, ""
        if answered and not report.so_far:
            end = bisect_left(answered, (report.seq, ""))
            model = answered[end][1] if end < len(answered) else ""
        reply = report.reply
        yield UsageReport(agent, report.at, tokens, cost, report.currency, is_all, model, reply)


class CountedReplies:
    """The tokens counted so far of turns that have copies."""

    def __init__(self) -> None:
        self._counted: dict[int, dict[str, int]] = {}

    def rest(self, told: Iterable[UsageReport]) -> Iterator[UsageReport]:
        """Yield the reports of a session, each with what its tokens exceed those of copies that
        were counted before."""
        own: Counter[tuple[int, str]] = Counter()
        for report in told:
            if not report.reply or report.tokens is None:
                yield report
                continue
            known = self._counted.setdefault(report.reply, {})
            rest: dict[str, int] = {}
            for name in COUNTS:
                if (count := getattr(report.tokens, name)) is not None:
                    own[report.reply, name] += count
                    rest[name] = max(0, own[report.reply, name] - known.get(name, 0))
                    known[name] = max(own[report.reply, name], known.get(name, 0))
            yield replace(report, tokens=Tokens(**rest))


Number = TypeVar("Number", int, float)


def increase(past: Number, now: Number) -> Number:
    """Return the increase of a count; one lower than before has started over, as after a restart of
    the agent's program."""
    return now - past if now >= past else now
