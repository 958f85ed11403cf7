"""`acphold usage`: tokens and cost, as agents reported them."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime

import msgspec

from acphold.cli.command_line import Exit, Parser, a_moment, above_zero, add_cwd, add_journal
from acphold.cli.journals import caught_up, exists, opened, path_of
from acphold.cli.list import BEGIN, GAP, TERMINAL_LIMIT, short_id
from acphold.cli.terminal_text import (
    console,
    counted,
    cut,
    folder,
    on_one_line,
    visible,
    visible_json,
)
from acphold.journal import Journal, SessionUsage, UsageReport
from acphold.journal.sqlite.token_usage import COUNTS

CATCH_UP_SECONDS = 3.0
"""How long what was imported is first looked through, when that was not done yet."""

GROUPINGS = ("agent", "day", "folder", "session")

NOT_REPORTED = "not reported"

LAST_REQUEST_ONLY = frozenset({"goose acp", "OpenCode"})
"""Agents whose answer to a prompt tells the tokens of its last request to the model alone."""

LEAST_NAME = 12
"""Columns that a name keeps on the narrowest terminal."""


def parser() -> Parser:
    """The arguments of `usage`."""
    made = Parser(usage, "usage")
    made.add_argument(
        "--by",
        dest="grouping",
        choices=GROUPINGS,
        default="agent",
        metavar="WHAT",
        help="a line for each agent, day, folder or session [default: agent]",
    )
    made.add_argument("--agent", metavar="NAME", help="only what this agent reported")
    add_cwd(made)
    made.add_argument(
        "--since",
        metavar="WHEN",
        type=a_moment,
        default=0.0,
        help="only what was reported since: 2026-01-31, or 12h, 30d, 8w ago",
    )
    made.add_argument(
        "--limit",
        metavar="N",
        type=above_zero,
        help=f"at most so many lines [default: {TERMINAL_LIMIT} on a terminal, else all]",
    )
    made.add_argument("--json", dest="as_json", action="store_true", help="one JSON object a line")
    add_journal(made)
    return made


def usage(
    *,
    grouping: str,
    agent: str | None,
    cwd: str | None,
    since: float,
    limit: int | None,
    as_json: bool,
    journal: str | None,
) -> int:
    """Add up the tokens and the cost that agents reported.

    NOT REPORTED counts sessions in which the agent told no tokens. TOKENS is what the agent gives
    as the sum; some count what was cached as INPUT, some beside it. A day is yours, not one of UTC.

    With --json each line is an object with the group, sessions, notReported, totalTokens,
    inputTokens, outputTokens, thoughtTokens, cachedReadTokens, cachedWriteTokens and cost; null is
    what nobody reported.
    """
    if not exists(journal):
        print(visible(f"There is no journal yet at {path_of(journal)}. {BEGIN}"), file=sys.stderr)
        return Exit.OK
    since_ms = max(0, round(since * 1000))
    if limit is None and sys.stdout.isatty() and not as_json:
        limit = TERMINAL_LIMIT
    asyncio.run(_usage(journal, grouping, agent, cwd, since_ms, limit, as_json=as_json))
    return Exit.OK


async def _usage(
    location: str | None,
    grouping: str,
    agent: str | None,
    cwd: str | None,
    since: int,
    limit: int | None,
    *,
    as_json: bool,
) -> None:
    async with opened(location) as journal:
        lagging = await caught_up(journal, CATCH_UP_SECONDS)
        found = await journal.usage(cwd=cwd, since=since)
        sums = grouped(found, grouping, agent)
        if as_json:
            for sum_ in sums[:limit]:
                sys.stdout.write(sum_.json_line(grouping))
        else:
            names = [await _name(journal, sum_, grouping) for sum_ in sums[:limit]]
            # Not the sum of the lines: a session may have a part in several days.
            total = grouped(found, "in all", agent) if len(sums) > 1 else []
            _print([*names, "in all"], [*sums[:limit], *total], grouping)
    if not as_json:
        _remark(found, agent, len(sums), limit)
    if lagging:
        some = counted(lagging, "older session")
        print(f"Not counted yet: {some}; `acphold index` reads them all.", file=sys.stderr)


async def _name(journal: Journal, sum_: Sum, grouping: str) -> str:
    """What stands in the first column."""
    if grouping == "session" and sys.stdout.isatty():
        short = await short_id(journal, sum_.name)
        return f"{on_one_line(short)} {on_one_line(sum_.title)}"
    return folder(sum_.name) if grouping == "folder" else on_one_line(sum_.name)


# -- sums -------------------------------------------------------------------------------------


class Sum:
    """What was reported in a group of sessions; `name` is the group, `title` that of a session."""

    def __init__(self, name: str, title: str = "") -> None:
        self.name = name
        self.title = title
        self.sessions = 0
        self.not_reported = 0
        self.tokens: Counter[str] = Counter()
        self.costs: dict[str, float] = {}

    def add(self, reports: Sequence[UsageReport]) -> None:
        """One more session, with what was reported in it."""
        self.sessions += 1
        self.not_reported += all(report.tokens is None for report in reports)
        for report in reports:
            if report.tokens is not None:
                told = {name: getattr(report.tokens, name) for name in COUNTS}
                self.tokens.update({n: count for n, count in told.items() if count is not None})
            if report.cost is not None:
                self.costs[report.currency] = self.costs.get(report.currency, 0) + report.cost

    def json_line(self, grouping: str) -> str:
        """The sum as `--json` has it."""
        key = "sessionId" if grouping == "session" else grouping
        title = {"title": self.title or None} if grouping == "session" else {}
        facts = {
            key: self.name,
            **title,
            "sessions": self.sessions,
            "notReported": self.not_reported,
            "totalTokens": self.tokens.get("total"),
            "inputTokens": self.tokens.get("input"),
            "outputTokens": self.tokens.get("output"),
            "thoughtTokens": self.tokens.get("thought"),
            "cachedReadTokens": self.tokens.get("cached_read"),
            "cachedWriteTokens": self.tokens.get("cached_write"),
            "cost": {currency: round(cost, 6) for currency, cost in self.costs.items()} or None,
        }
        return visible_json(msgspec.json.encode(facts).decode()) + "\n"


def grouped(found: Iterable[SessionUsage], grouping: str, agent: str | None) -> list[Sum]:
    """A sum for each group: of days and sessions the newest first, else the most tokens."""
    sums: dict[str, Sum] = {}
    for session in found:
        reports = [report for report in session.reports if agent in (None, report.agent)]
        if not reports and agent not in (None, session.agent):
            continue
        parts: dict[str, list[UsageReport]] = {}
        for report in reports:
            parts.setdefault(_group(session, grouping, report), []).append(report)
        # What reported nothing is counted where it belongs all the same.
        for name, part in (parts or {_group(session, grouping, None): []}).items():
            sums.setdefault(name, Sum(name, session.title or "")).add(part)
    if grouping == "session":
        return [*sums.values()]
    if grouping == "day":
        return sorted(sums.values(), key=lambda sum_: sum_.name, reverse=True)
    return sorted(sums.values(), key=lambda sum_: (-sum_.tokens["total"], sum_.name))


def _group(session: SessionUsage, grouping: str, report: UsageReport | None) -> str:
    match grouping:
        case "agent":
            return session.agent if report is None else report.agent
        case "day":
            at = session.updated_at if report is None else report.at
            return datetime.fromtimestamp(at / 1000).date().isoformat()
        case "folder":
            return session.cwd
        case "session":
            return session.session_id
        case _:
            return grouping


# -- a table ----------------------------------------------------------------------------------

HEADINGS = ("SESSIONS", "NOT REPORTED", "TOKENS", "INPUT", "OUTPUT", "CACHED", "COST")

DETAILS = {"INPUT", "OUTPUT", "CACHED"}
"""What a narrow terminal has no room for."""

DETAILS_WIDTH = 110


def _print(names: Sequence[str], sums: Sequence[Sum], grouping: str) -> None:
    """A line for each name and the sum of it."""
    if not sums:
        return
    out = console() if sys.stdout.isatty() else None
    headings = [
        heading
        for heading in HEADINGS
        if out is None or out.width >= DETAILS_WIDTH or heading not in DETAILS
    ]
    table = [[grouping.upper(), *headings]]
    for name, sum_ in zip(names, sums, strict=False):
        cells = _cells(sum_, short=out is not None)
        table.append([name, *(cells[heading] for heading in headings)])
    for number, line in enumerate(_aligned(table, None if out is None else out.width)):
        if out is None:
            print(line.rstrip())
        else:
            out.print(line, style="" if number else "faint", no_wrap=True, overflow="crop")


def _cells(sum_: Sum, *, short: bool) -> dict[str, str]:
    """The cells of a sum by heading."""

    def number(name: str) -> str:
        if name not in sum_.tokens:
            return NOT_REPORTED if name == "total" else "-"
        return _short(sum_.tokens[name]) if short else f"{sum_.tokens[name]}"

    return {
        "SESSIONS": str(sum_.sessions),
        "NOT REPORTED": str(sum_.not_reported),
        "TOKENS": number("total"),
        "INPUT": number("input"),
        "OUTPUT": number("output"),
        "CACHED": number("cached_read"),
        "COST": " + ".join(_money(*cost) for cost in sum_.costs.items()) or NOT_REPORTED,
    }


def _short(count: int) -> str:
    """`950`, `12.3k`, `4.5M`."""
    amount, unit = float(count), ""
    for larger in ("k", "M", "G"):
        if amount < 1000:
            break
        amount, unit = amount / 1000, larger
    return f"{amount:.1f}{unit}" if unit else str(count)


def _money(currency: str, amount: float) -> str:
    return f"{amount:.2f} {on_one_line(currency)}"


def _aligned(table: Sequence[Sequence[str]], width: int | None) -> Iterator[str]:
    """Lines of a table: the first column to the left, and cut to what `width` leaves it."""
    from rich.cells import cell_len

    names, *numbers = ([*column] for column in zip(*table, strict=True))
    widths = [max(map(cell_len, column)) for column in numbers]
    if width is not None:
        room = max(LEAST_NAME, width - sum(widths) - len(GAP) * len(widths) - 1)
        names = [cut(name, room) for name in names]
    longest = max(map(cell_len, names))
    for name, *cells in zip(names, *numbers, strict=True):
        right = [" " * (w - cell_len(cell)) + cell for cell, w in zip(cells, widths, strict=True)]
        yield GAP.join([name + " " * (longest - cell_len(name)), *right])


def _remark(
    found: Iterable[SessionUsage], agent: str | None, lines: int, limit: int | None
) -> None:
    """What the figures do not say by themselves: on stderr."""
    if not lines:
        print("No sessions that fit. `acphold list` shows what there is.", file=sys.stderr)
    if limit is not None and lines > limit:
        print(f"There are more; `--limit {limit * 4}` shows them.", file=sys.stderr)
    agents = {report.agent for session in found for report in session.reports if not report.by_turn}
    few = sorted(LAST_REQUEST_ONLY & (agents if agent is None else agents & {agent}))
    for name in few:
        print(
            f"{name} reports only the last request of each turn: it used more than that.",
            file=sys.stderr,
        )
