"""`acphold usage`: tokens and cost, as reported by agents."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import get_args

from msgspec.structs import astuple, replace

from acphold.faces.cli import bounds, options
from acphold.faces.cli.background_import import unread_and_resumed
from acphold.faces.cli.command_line import Exit, command
from acphold.faces.cli.journals import reading, require_agent, tells_how_to_begin
from acphold.faces.cli.list_table import Column, Table
from acphold.faces.cli.settings import agent_keys, agent_name
from acphold.faces.cli.terminal_text import folder, on_one_line, tell
from acphold.journal.seams import Grouping, Tokens, UsageSum
from acphold.live.reading.json_facts import usage_json
from acphold.live.reading.local_reader import LocalReader

GROUPINGS: tuple[Grouping, ...] = get_args(Grouping)

NO_DATA = "no data"

LAST_REQUEST_ONLY = frozenset({"goose acp", "OpenCode"})
"""Agents whose answer to a prompt counts only the tokens of its last request to the model."""


@command("usage", "[OPTIONS]", *options.PLACES, is_read=True)
@tells_how_to_begin
async def usage(
    *,
    grouping: Grouping = options.value(
        "WHAT",
        "group by agent, day, folder, model or session [default: agent]",
        "--by",
        choices=GROUPINGS,
        default="agent",
    ),
    agent: str | None = options.value("NAME", "only this agent"),
    cwd: str | None = options.CWD,
    since: int = options.since("only usage"),
    limit: int | None = options.limit(
        f"at most this many lines [default: {bounds.LISTED_SESSIONS} on a terminal]"
    ),
    as_json: bool = options.json(),
) -> int:
    """Add up the tokens and the cost that agents reported.

    NO DATA counts sessions without reported tokens. TOKENS is the sum as the agent
    reports it; some agents include cached tokens in INPUT, others do not. Days are in your time
    zone, not UTC. A model is known only if it was imported with a conversation.

    With --json each line is an object with the group, sessions, notReported, totalTokens,
    inputTokens, outputTokens, thoughtTokens, cachedReadTokens, cachedWriteTokens and cost; null
    means not reported.
    """
    if limit is None and sys.stdout.isatty() and not as_json:
        limit = bounds.LISTED_SESSIONS
    async with reading() as reader:
        found = await reader.usage(grouping, agents=agent_keys(agent), cwd=cwd, since=since)
        if not found.groups:
            await require_agent(reader, agent)
        if as_json:
            for sum_ in found.groups[:limit]:
                print(usage_json(sum_, grouping))
        else:
            if grouping == "agent":
                found = replace(found, groups=_by_short_name(found.groups))
            shown = found.groups[:limit]
            # Not the sum of the lines: a session may count in several days.
            total = found.total if len(found.groups) > 1 else None
            if shown:
                table = Table((Column(grouping.upper(), ""), *COLUMNS), is_right=True)
                short = sys.stdout.isatty()
                for sum_ in shown:
                    name = await _first_cell(reader, sum_, grouping)
                    table.add([name, *_cells(sum_, short=short)])
                if total is not None:
                    table.add(["total", *_cells(total, short=short)])
                table.print()
        unread = await unread_and_resumed(reader)
    if as_json:
        return Exit.OK
    lines = len(found.groups)
    if not lines:
        tell("No matching sessions. `acphold list` shows all.")
    if limit is not None and lines > limit:
        tell(f"{limit:,} of {lines:,} shown; --limit {lines} shows all")
    for it in sorted(LAST_REQUEST_ONLY & found.by_request):
        partly = "reports only the last request of each turn, so it used more than that."
        tell(f"{agent_name(it)} {partly}")
    if unread:
        tell(f"{unread}.")
    return Exit.OK


async def _first_cell(reader: LocalReader, sum_: UsageSum, grouping: Grouping) -> str:
    """Return the name of a group, as the first column shows it."""
    if grouping == "session" and sys.stdout.isatty():
        short_ids = await reader.short_ids([sum_.name])
        return f"{on_one_line(short_ids[sum_.name])} {on_one_line(sum_.title or '')}"
    if grouping == "model" and not sum_.name:
        return NO_DATA
    return folder(sum_.name) if grouping == "folder" else on_one_line(sum_.name)


def _by_short_name(sums: Sequence[UsageSum]) -> list[UsageSum]:
    """Return one sum per agent name that people use, for all names its releases had."""
    named: dict[str, UsageSum] = {}
    for sum_ in sums:
        name = agent_name(sum_.name)
        before = named.get(name, UsageSum(name))
        both = zip(astuple(before.tokens), astuple(sum_.tokens), strict=True)
        counts = (a if b is None else b if a is None else a + b for a, b in both)
        costs = {
            currency: before.costs.get(currency, 0.0) + sum_.costs.get(currency, 0.0)
            for currency in {**before.costs, **sum_.costs}
        }
        named[name] = replace(
            before,
            sessions=before.sessions + sum_.sessions,
            not_reported=before.not_reported + sum_.not_reported,
            tokens=Tokens(*counts),
            costs=costs,
        )
    return sorted(named.values(), key=lambda sum_: (-(sum_.tokens.total or 0), sum_.name))


# -- a table ----------------------------------------------------------------------------------

COLUMNS = (
    *(Column(heading, "") for heading in ("SESSIONS", NO_DATA.upper(), "TOKENS")),
    *(Column(heading, "", from_width=110) for heading in ("INPUT", "OUTPUT", "CACHED")),
    Column("COST", ""),
)


def _cells(sum_: UsageSum, *, short: bool) -> list[str]:
    """Return the cells of a sum, by COLUMNS."""

    def number(count: int | None, nothing: str = "-") -> str:
        if count is None:
            return nothing
        if not short or count < 1000:
            return f"{count:,}"
        amount, unit = count / 1000, "k"  # `12.3k`, `4.5M`
        for larger in ("M", "G"):
            if amount >= 1000:
                amount, unit = amount / 1000, larger
        return f"{amount:.1f}{unit}"

    costs = (f"{amount:,.2f} {on_one_line(unit)}" for unit, amount in sum_.costs.items())
    return [
        f"{sum_.sessions:,}",
        f"{sum_.not_reported:,}",
        number(sum_.tokens.total, NO_DATA),
        number(sum_.tokens.input),
        number(sum_.tokens.output),
        number(sum_.tokens.cached_read),
        " + ".join(costs) or NO_DATA,
    ]
