"""`acphold list`: the sessions of the journal, newest first, once or as they change."""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import aclosing, suppress
from functools import partial, wraps
from itertools import chain, pairwise
from operator import itemgetter
from typing import Any, Final, NamedTuple, TextIO

import msgspec
from msgspec.structs import replace

from acp_wire.tasks import beside
from acphold.conversation.history.entries import iso, now_ms
from acphold.conversation.history.prompt_queue import ELSEWHERE, moment
from acphold.conversation.history.titles import words_below
from acphold.errors import ConnectionLostError, NoJournalError
from acphold.faces.cli import bounds, options
from acphold.faces.cli.command_line import Exit, command
from acphold.faces.cli.index_beside import list_growth, unread_and_resumed
from acphold.faces.cli.journals import reading, require_agent, text_to_match
from acphold.faces.cli.servers import server_of
from acphold.faces.cli.settings import agent_keys, agent_name
from acphold.faces.cli.terminal_text import (
    cell_width,
    console,
    cut,
    day,
    describe_missing,
    folder,
    on_one_line,
    short_age,
    tell,
)
from acphold.journal.hits import terms
from acphold.journal.journal import Sessions
from acphold.journal.moves import destination
from acphold.journal.rows import ListFilter
from acphold.journal.seams import SearchHit, Sought
from acphold.journal_location import VARIABLE, default_location
from acphold.live.reading.json_facts import session_json, session_lines
from acphold.live.reading.session_reader import (
    SHORT_ID,
    ListedSession,
    News,
    SessionReader,
    Wanted,
    session_pages,
)


class Column(NamedTuple):
    """A column of the table; shown on terminals that are at least `from_width` wide.

    Cells are cut to `most` columns there; the title gets the rest. If the title
    gets less than it wants, this column is cut further, down to `least`.
    """

    heading: str
    style: str
    from_width: int = 0
    most: int = 200
    least: int = 200


COLUMNS = (
    Column("TITLE", "heading"),
    Column("ID", "id"),
    Column("STATE", "busy"),
    Column("AGE", ""),
    Column("FOLDER", "faint", most=16, least=8),
    Column("AGENT", "agent", from_width=72, most=18, least=8),
    Column("MESSAGES", "faint", from_width=96),
    Column("RULES", "faint", from_width=96),
    Column("FILES", "faint", from_width=96),
)

IF_ANY = ("STATE", "RULES", "FILES")
"""Columns that are shown only if a session has something in them."""

GAP = "  "
"""The space between two columns."""

WANTED_TITLE = 32
"""Columns that a title gets before folders and agents are shown at length."""

LEAST_TITLE = 12
"""Columns that a title keeps on the narrowest terminal."""

BEGIN = "Nothing here yet{}: acphold import, or acphold setup."
"""What a list says where there is no journal."""


def tells_how_to_begin(
    command: Callable[..., Coroutine[Any, Any, int | None]],
) -> Callable[..., Coroutine[Any, Any, int | None]]:
    """Decorate a command: without a journal, it explains how to begin a session."""

    @wraps(command)
    async def run(**arguments: object) -> int | None:
        try:
            return await command(**arguments)
        except NoJournalError as none:
            is_named = os.environ.get(VARIABLE) or none.place != default_location()
            tell(BEGIN.format(f" (no journal at {none.place})" if is_named else ""))
            return Exit.OK

    return run


def _tagged(arguments: Sequence[str]) -> str:
    """Return the hint for a tag that is given as an option."""
    tag = next((tag for it, tag in pairwise(arguments) if it in ("-t", "--tag", "--tags")), "")
    return f"did you mean: acphold list {shlex.quote('#' + tag.lstrip('#'))}" if tag else ""


@command("list", "[OPTIONS] [WORDS...]", is_read=True, meant=_tagged)
@tells_how_to_begin
async def list_sessions(
    *,
    words: list[str] = options.argument(
        "WORDS",
        "only sessions with all of these words in title, agent, folder, tags or last words",
        nargs="*",
    ),
    cwd: str | None = options.CWD,
    agent: str | None = options.value("NAME", "only sessions of this agent"),
    since: int = options.since("only sessions active"),
    live: bool = options.flag(
        "only sessions that are running, waiting or idle in an acphold process"
    ),
    limit: int | None = options.limit(
        f"at most this many [default: {bounds.LISTED_SESSIONS} on a terminal, else all]"
    ),
    unprompted: bool = options.flag("all of them, also those without a prompt", "--all"),
    archived: bool = options.flag("only archived sessions; with --all, these too"),
    follow: bool = options.flag("then follow changes until Ctrl-C"),
    as_json: bool = options.json(),
    server: str | None = options.SERVER,
) -> int:
    """List sessions, newest first.

    Words select the sessions that have all of them in title, agent, folder, tags or last words; if
    there is none, those that `acphold search` finds, but not with --json. On a terminal sessions
    are grouped by day, each above its last words; ★ marks those that you pinned. Those that only a
    program prompted (`ask` in a script, an SDK, several of a folder with the same words) are
    counted there, and listed with words or --all. A name, a tag or a pin makes one yours.

    AGE is the time since a session was last active: 3m, 2h, 5d, 1w, 4mo, 1y. FOLDER is the last
    part of its working directory on a terminal, and the whole path in a pipe. ID is as much of the
    session's id as other commands need. STATE is running while a turn runs, waiting while the
    agent waits for your answer, idle when an acphold process has it open, followed by
    the number of clients if there are several. A turn that was cancelled, interrupted or failed
    says so until you open its session. A session that an import has only listed is unread until its
    transcript is read, or the session is opened. RULES counts the questions that your
    rules have answered (`acphold rules`). FILES shows whether the files of the last turn were kept
    (`snapshots` in the settings); likely, the agent had spoken already; late, it was at work; if it
    says refused, `acphold show` tells why. A session on another machine has the STATE `on HOST`;
    one that is still being moved here is arriving.

    With --json each line is an object with sessionId, agent, cwd, title, createdAt, updatedAt (ISO
    8601, UTC), messageCount, outcome (of the last turn), unseen (true if it ended while no client
    was connected), unread, archived, origins and live: null, or an object with state (idle, running
    or waiting), clients, questions (ids of the pending questions), background and pid. files is
    null, or an object about the last snapshot of the files, with state (whole, likely, late, later
    or refused), at and reason.

    With --follow, a line is added whenever a session starts, runs, waits for you, ends or
    disappears, in any process. With --json each line is an event: the first, and one after a
    server's restart, has all `sessions` (200 of them, or --limit), each other one a `session` in
    its current state, or the id of a session that is `gone`. A session that waits for you also has
    openQuestions, as in `acphold inbox --json`.
    """
    wanted = Wanted(
        ListFilter(
            agents=agent_keys(agent),
            cwd=cwd,
            include_unprompted=unprompted,
            archived="exclude" if not archived else "include" if unprompted else "only",
        ),
        tuple(" ".join(words).casefold().split()),
        since,
        live,
        mine=sys.stdout.isatty() and not (words or live or unprompted or as_json),
    )
    if limit is None and sys.stdout.isatty() and not (as_json or unprompted):
        limit = bounds.LISTED_SESSIONS
    async with reading(server_of(server)) as reader:
        await list_growth(reader)
        if follow:
            show = partial(_print_table, reader, wanted, limit)
            await follow_list(
                reader,
                AsJson(wanted, sys.stdout) if as_json else AsWords(wanted, sys.stdout),
                limit,
                None if as_json else show,
                said=bool(words),
            )
        elif as_json:
            is_empty = True
            async for page in session_pages(reader, wanted, limit):
                is_empty = False
                sys.stdout.write(session_lines(page))
            if is_empty:
                await require_agent(reader, agent)
        else:
            await _print_table(reader, wanted, limit, agent=agent)
    return Exit.OK


async def _print_table(
    reader: SessionReader,
    wanted: Wanted,
    limit: int | None,
    found: Sequence[ListedSession] = (),
    agent: str | None = None,
) -> None:
    """Print the wanted sessions, or those that were found in another way; UsageError if there are
    none, and `agent` is the name of no agent."""
    on_terminal = sys.stdout.isatty()
    if on_terminal and reader.origin:
        wanted = replace(wanted, said=True)
    table = Table()
    now = now_ms()
    is_unread = False
    days: list[str] = []
    places: list[tuple[str, str]] = []
    said: dict[str, str] = {}
    titles: list[str | None] = []
    tags: list[str] = []
    # These take longer than the rest of a row.
    agents: dict[str, str] = {}
    folders: dict[str, str] = {}
    left_out: list[int] = []
    # One more than is shown, to know if there are more.
    pages = session_pages(reader, wanted, limit and limit + 1, left_out.append)
    async for page in _as_page(found) if found else pages:
        short_ids = await reader.short_ids(it.row.session_id for it in page)
        is_unread = is_unread or any(it.row.is_unread for it in page)
        rows: list[list[str]] = []
        for it in page:
            key, short = it.row.agent, short_ids[it.row.session_id]
            agent = agents.get(key) or agents.setdefault(key, on_one_line(agent_name(key)))
            if (cwd := it.row.cwd) not in folders:
                path = folder(cwd)
                folders[cwd] = path.rpartition("/")[2] or "/" if on_terminal else path
            rows.append(cells(it, short, agent, now, folders[cwd]))
            places.append((it.row.session_id, it.row.tail_of))
            if on_terminal:
                said[it.row.session_id] = it.said or ""
                tags.append(it.row.hashtags)
                titles.append(it.row.title)
                if not found:
                    days.append(day(it.row.updated_at, now))
        table.add(*rows)
    has_more = limit is not None and len(table.lines) > limit
    if limit is not None:
        del table.lines[limit:], places[limit:]
    if on_terminal:  # of nothing else: that takes as long as the rest of a row
        said |= await reader.endings([session_id for session_id, _ in places])
    order = under_origins(places)
    below = [
        f"{tags[n]} {words_below(said[places[n][0]], titles[n])}".strip()
        for n, _ in (order if on_terminal else ())
    ]
    table.lines = [BELOW * is_below + table.lines[n] for n, is_below in order]
    shown_days: list[str] = []
    for n, is_below in order if days else ():
        shown_days.append(shown_days[-1] if is_below else days[n])
    unread = await unread_and_resumed(reader) if is_unread else ""
    if not table.lines and any(left_out):  # there is nothing else
        return await _print_table(reader, replace(wanted, mine=False), limit)
    if not table.lines:
        await require_agent(reader, agent)
        remark, found = await _said_anywhere(reader, wanted)
        tell(remark or await _why_none(reader, wanted))
        if found:
            await _print_table(reader, wanted, None, found)
    else:
        # Days stand above their sessions, if there are several.
        table.print(above=shown_days if len({*shown_days}) > 1 else (), below=below)
    if limit is not None and has_more:
        count, left_out = 0, []
        async for page in session_pages(reader, wanted, bounds.COUNTED_SESSIONS, left_out.append):
            count += len(page)
        least = "at least " if count == bounds.COUNTED_SESSIONS else ""
        tell(f"{limit:,} of {least}{count:,} shown; --all, or acphold to pick")
    if on_terminal and wanted.words and not (found or has_more) and table.lines:
        hits, shown = await _saying(reader, wanted)
        whole = {hit.session_id for hit in hits if not hit.missing} - {*said}
        if more := sum(it.row.session_id in whole for it in shown):
            what = "conversation says" if more == 1 else "conversations say"
            tell(f"{more} more {what} this: acphold search {shlex.join(wanted.words)}")
    if programs := sum(left_out):
        tell(f"{programs:,} by programs; --all shows them, and words find them")
    if unread:
        tell(f"{unread}.")


async def _as_page(found: Sequence[ListedSession]) -> AsyncIterator[Sequence[ListedSession]]:
    yield found


async def _saying(
    reader: SessionReader, wanted: Wanted
) -> tuple[Sequence[SearchHit], Sequence[ListedSession]]:
    """Return the hits of the words of a list, and the sessions in which they were said, or most of
    them, the best first."""
    filter, words = wanted.filter, " ".join(wanted.words)
    if wanted.only_live or not terms(words):
        return (), ()
    hits = await reader.search(
        Sought(words, filter.agents, filter.cwd, wanted.since, limit=bounds.FOUND_HITS, rank=True)
    )
    all_ = replace(filter, include_unprompted=True, archived="include")
    listed = await reader.listed([*dict.fromkeys(hit.session_id for hit in hits)])
    return hits, [it for it in listed if all_.fits(it.row)]


async def _said_anywhere(
    reader: SessionReader, wanted: Wanted
) -> tuple[str, Sequence[ListedSession]]:
    """Return the first sessions in which the words of a list were said, and how they were found."""
    hits, listed = await _saying(reader, wanted)
    is_any = wanted.filter.archived == "include"
    shown = [it for it in listed if is_any or not it.row.archived][: bounds.FOUND_SESSIONS]
    if not shown:
        return ARCHIVED if listed else "", ()
    ids = {it.row.session_id for it in shown}
    lacking = describe_missing([hit for hit in hits if hit.session_id in ids])
    for tag in (word for word in wanted.words if word.startswith("#")):
        tagged = Wanted(ListFilter(include_unprompted=True, archived="include"), (tag,))
        if not [page async for page in session_pages(reader, tagged, 1)]:
            return f"No session has the tag {on_one_line(tag)}; found in conversations:", shown
    return f"{lacking or 'No title or last words have all of these, but conversations do'}:", shown


ARCHIVED: Final = "All matching sessions are archived; `--archived` shows them."


async def _why_none(reader: SessionReader, wanted: Wanted) -> str:
    """Return the message for an empty list."""
    with_archived = replace(wanted, filter=replace(wanted.filter, archived="include"))
    # For words, the search of all that was said has looked for those, too.
    is_excluded = wanted.filter.archived == "exclude" and not wanted.words
    if is_excluded and [page async for page in session_pages(reader, with_archived, 1)]:
        return ARCHIVED
    cwd, agents = wanted.filter.cwd, wanted.filter.agents
    filters = [
        "that are archived" if wanted.filter.archived == "only" else "",
        "that are running, waiting or idle" if wanted.only_live else "",
        f"in {cwd}" if cwd is not None else "",
        f"of agent {agents[0]!r}" if agents else "",
        f"active since {iso(wanted.since)[:10]}" if wanted.since else "",
        f"with {' '.join(wanted.words)}" if wanted.words else "",
    ]
    if which := " ".join(filter(None, filters)):
        return f"No sessions {which}. `acphold list` shows those of all folders and agents."
    return BEGIN


BELOW: Final = "└ "
"""Before the title of a session with turns that were left in the one above it."""


def under_origins(places: Sequence[tuple[str, str]]) -> list[tuple[int, bool]]:
    """Return the order in which to show sessions, given their ids and what they are tails of: each
    tail, marked with True, under that session, if that is shown."""
    tails: dict[str, list[int]] = {}
    for number, (_, origin) in enumerate(places):
        if origin:
            tails.setdefault(origin, []).append(number)
    if not tails:
        return [(number, False) for number in range(len(places))]
    ids = {session_id for session_id, _ in places}
    order: list[tuple[int, bool]] = []
    for number, (session_id, origin) in enumerate(places):
        if origin not in ids:
            order += [(number, False), *((tail, True) for tail in tails.get(session_id, ()))]
    return order


class Table:
    """The lines of a list; each is one string, because there may be 100,000.

    With `is_right`, all columns but the first are aligned to the right.
    """

    def __init__(self, columns: Sequence[Column] = COLUMNS, *, is_right: bool = False) -> None:
        self.lines: list[str] = []
        self._columns = columns
        self._is_right = is_right
        self._widths = [0 for _ in columns]

    def add(self, *rows: Sequence[str]) -> None:
        """Add lines, each given by its cells."""
        self.lines += map("\0".join, rows)  # no cell contains it
        if rows:
            self._widths = [*map(max, self._widths, _widths(rows))]

    def print(self, above: Sequence[str] = (), below: Sequence[str] = ()) -> None:
        """Print headings and lines, each cell as wide as its column; on a terminal cut to fit, with
        a heading `above` each group of lines that has the same, and words `below` each line."""
        headings = [column.heading for column in self._columns]
        if not sys.stdout.isatty():
            shown = [n for n, it in enumerate(headings) if it not in IF_ANY or self._widths[n]]
            widths = [max(self._widths[n], len(headings[n])) for n in shown]
            sides = ["-", *("" if self._is_right else "-" for _ in shown[1:])]
            aligned = GAP.join(
                f"%{side}{width}s" for side, width in zip(sides, widths, strict=True)
            )
            pick = itemgetter(*shown)
            for line in chain(["\0".join(headings)], self.lines):
                row = pick(line.split("\0"))
                if line.isascii():
                    text = aligned % row  # a third of the time
                else:
                    text = GAP.join(_pad(row, widths, is_right=self._is_right))
                sys.stdout.write(f"{text.rstrip()}\n")
            return
        from rich.text import Text

        terminal = console()
        rows = fit_columns([it.split("\0") for it in self.lines], terminal.width, self._columns)
        columns = [self._columns[headings.index(heading)] for heading in rows[0]]
        widths, before = _widths(rows), ""
        for number, row in enumerate(rows):
            padded = _pad(row, widths, is_right=self._is_right)
            drawn = Text(GAP.join(padded), "faint")
            if number:
                pieces = [
                    it for cell in zip(padded, columns, strict=True) for it in style_cell(*cell)
                ]
                drawn = Text.assemble(*pieces)
                if above and above[number - 1] != before:
                    before = above[number - 1]
                    terminal.print(Text(before, "faint"))
            terminal.print(drawn, no_wrap=True, overflow="crop")
            if number and below and (words := on_one_line(below[number - 1])):
                words = cut(f"  {words}", terminal.width - 1)
                terminal.print(Text(words, "faint"), no_wrap=True, overflow="crop")


async def short_id(journal: Sessions, session_id: str) -> str:
    """Return the shortest unique prefix of an id, at least SHORT_ID characters, to be shown."""
    return on_one_line((await journal.short_ids([session_id], SHORT_ID))[0])


async def lasting_id(journal: Sessions, session_id: str) -> str:
    """Return the word that will still find a session when there are more: of a random id the
    shortest unique prefix, all of another one, which those after it may begin like."""
    short = await short_id(journal, session_id)
    return short if _RANDOM_ID.fullmatch(session_id) else shlex.quote(on_one_line(session_id))


_RANDOM_ID: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}")


def cells(listed: ListedSession, short: str, agent: str, now: int, where: str) -> list[str]:
    """Return the line of a session, by COLUMNS; `short` is its short id, `agent` a name, `where`
    its folder."""
    row, live, files = listed.row, listed.live, listed.files
    state = "unread" if row.is_unread else ""
    if row.unseen and listed.outcome not in (None, "completed"):
        state = listed.outcome
    if row.moved:
        state = f"on {on_one_line(destination(row))}" if destination(row) else "arriving"
    if live is not None:
        state = live.state if live.clients < 2 else f"{live.state} ({live.clients})"
    if row.queued:
        what = "paused" if row.held else "queued"
        if row.held == ELSEWHERE:
            what = "planned elsewhere"
        if row.held_until is not None:
            what = f"{'waits' if row.queued == 1 else 'wait'} until {moment(row.held_until)}"
        state = f"{state}, {row.queued} {what}".removeprefix(", ")
    return [
        ("★ " if listed.pinned else "")
        + ("(archived) " if row.archived else "")
        + on_one_line(row.title or "(no title)"),
        on_one_line(short),
        state,
        short_age(row.updated_at, now),
        where,
        agent,
        f"{row.message_count:,}",
        f"{row.ruled:,}" if row.ruled else "",
        "" if files is None else "kept" if files.state == "whole" else files.state,
    ]


def style_cell(cell: str, column: Column) -> Iterator[tuple[str, str]]:
    """Yield a cell in its style; waiting sessions stand out without colours, too."""
    waits = column.heading == "STATE" and cell.startswith("waiting")
    text = cell.rstrip()
    yield text, "waits" if waits else column.style
    yield " " * (len(cell) - len(text)) + GAP, ""


def fit_columns(
    rows: Sequence[Sequence[str]], width: int, columns: Sequence[Column] = COLUMNS
) -> list[list[str]]:
    """Return headings and rows with the columns that fit into `width`, cells cut to fit."""
    shown = [
        place
        for place, column in enumerate(columns)
        if width >= column.from_width
        and (column.heading not in IF_ANY or any(row[place] for row in rows))
    ]
    table = [
        [columns[place].heading for place in shown],
        *(
            [cut(row[place], columns[place].most) if place else row[0] for place in shown]
            for row in rows
        ),
    ]
    title, *others = _widths(table)
    room = width - len(GAP) * len(others) - 1
    least = [columns[place].least for place in shown[1:]]
    for _ in range(sum(others) + min(title, WANTED_TITLE) - room):  # too wide: the widest gives
        can = [place for place, wide in enumerate(others) if wide > least[place]]
        if not can:
            break
        others[max(can, key=others.__getitem__)] -= 1
    widths = [max(LEAST_TITLE, room - sum(others)), *others]
    return [[cut(cell, most) for cell, most in zip(row, widths, strict=True)] for row in table]


def _pad(row: Sequence[str], widths: Sequence[int], *, is_right: bool) -> list[str]:
    """Return the cells of a row, each as wide as its column."""
    if not "".join(row).isascii():  # its letters are not all as wide
        widths = [width - cell_width(it) + len(it) for it, width in zip(row, widths, strict=True)]
    padded = [*map(str.ljust, row, widths)]
    return [padded[0], *map(str.rjust, row[1:], widths[1:])] if is_right else padded


def _widths(rows: Sequence[Sequence[str]]) -> list[int]:
    """Return the width of each column."""
    columns = zip(*rows, strict=True)
    return [max(map(len if "".join(it).isascii() else cell_width, it)) for it in columns]


ID_WIDTH = 8
"""Characters of an id: enough for a person to tell sessions apart."""


async def follow_list(
    reader: SessionReader,
    report: Callable[[News], None],
    limit: int | None = None,
    show: Callable[[], Awaitable[None]] | None = None,
    *,
    said: bool = False,
) -> None:
    """Report the sessions and their changes, until nobody reads or the person ends it.

    `show` prints the list first; changes that happen meanwhile are reported after it. With `said`,
    they have the last words.
    """
    from acphold.faces.screen.plain import is_unread

    async def report_changes() -> None:
        pending, known = show, set[str]()
        everything = Wanted(ListFilter(archived="include", include_unprompted=True), said=said)
        found_by = reader.changes(limit or bounds.FOLLOWED_SESSIONS, said=said)
        async with aclosing(found_by) as changes:
            async for news in changes:
                report(news)
                listed = {it.row.session_id for it in news.sessions}
                known = (known | listed) - {*news.gone}
                # A list after a restart lacks sessions that are gone, archived, or only older.
                if news.is_all and (missing := known - listed):
                    with suppress(ConnectionLostError):  # then the next list tells it
                        found: list[ListedSession] = []
                        async for page in session_pages(reader, everything):
                            found += [it for it in page if it.row.session_id in missing]
                            missing -= {it.row.session_id for it in page}
                            if not missing:
                                break
                        report(News(found, [*missing]))
                        known -= missing
                if pending is not None:
                    await pending()
                    pending = None
                sys.stdout.flush()

    async with beside(report_changes(), "follow") as task:
        while not task.done() and not is_unread(sys.stdout):
            await asyncio.wait({task}, timeout=bounds.READER_LOOK_SECONDS)
    if not task.cancelled():
        task.result()


# -- the output -----------------------------------------------------------------------------


class AsJson:
    """A line per event: the first has all `sessions`, each other one a `session` that is new or has
    changed, or the id of one that is `gone`. If a server no longer has the missed changes, a line
    has all `sessions` again."""

    def __init__(self, wanted: Wanted, out: TextIO) -> None:
        self._wanted = wanted
        self._out = out
        self._shown: set[str] = set()

    def __call__(self, news: News) -> None:
        rows = {
            it.row.session_id: session_json(it) for it in news.sessions if _fits(self._wanted, it)
        }
        if news.is_all:
            self._shown = {*rows}
            self._out.write(f'{{"sessions":[{",".join(rows.values())}]}}\n')
            return
        self._shown |= rows.keys()
        self._out.writelines(f'{{"session":{row}}}\n' for row in rows.values())
        others = {it.row.session_id for it in news.sessions} - rows.keys()
        for session_id in self._shown & {*news.gone, *others}:
            self._out.write(f'{{"gone":{msgspec.json.encode(session_id).decode()}}}\n')
            self._shown.discard(session_id)


class AsWords:
    """A line per event, below the list itself: the time, a session's new state, and its agent."""

    def __init__(self, wanted: Wanted, out: TextIO) -> None:
        self._wanted = wanted
        self._out = out
        self._known: dict[str, tuple[str, str]] = {}
        self._is_listed = False

    def __call__(self, news: News) -> None:
        for it in news.sessions:
            row = it.row
            if not _fits(self._wanted, it):
                self._over(row.session_id, "archived" if row.archived else "left")
                continue
            shown = it.state, on_one_line(row.title or "(no title)")
            if self._known.get(row.session_id) != shown:
                self._known[row.session_id] = shown
                if self._is_listed:
                    where = f"{on_one_line(agent_name(row.agent))} in {folder(row.cwd)}"
                    self._line(row.session_id, *shown, where)
        for session_id in news.gone:
            self._over(session_id, "deleted")
        self._is_listed = True

    def _over(self, session_id: str, how: str) -> None:
        if (known := self._known.pop(session_id, None)) is not None:
            self._line(session_id, how, known[1])

    def _line(self, session_id: str, state: str, title: str, where: str = "") -> None:
        short = on_one_line(session_id)[:ID_WIDTH]
        line = f"{time.strftime('%H:%M:%S')}  {state:<11}  {short:<{ID_WIDTH}}  {title}  {where}"
        self._out.write(f"{line.rstrip()}\n")


def _fits(wanted: Wanted, session: ListedSession) -> bool:
    matched = f"{text_to_match(session.row)}\0{session.said or ''}" if wanted.words else ""
    return wanted.fits(session.row, is_live=session.live is not None, said=lambda _: matched)
