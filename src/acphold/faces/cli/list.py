"""`acphold list`: the sessions of the journal, newest first, once or as they change."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from functools import cache, partial
from itertools import pairwise
from operator import attrgetter
from typing import Final, NamedTuple

from msgspec.structs import replace

from acphold.conversation.history.entries import iso, now_ms
from acphold.conversation.history.titles import words_below
from acphold.faces.cli import bounds, options
from acphold.faces.cli.background_import import list_growth, unread_and_resumed
from acphold.faces.cli.command_line import Exit, command
from acphold.faces.cli.followed_list import AsJson, AsWords, follow_list
from acphold.faces.cli.journals import BEGIN, reading, require_agent, tells_how_to_begin
from acphold.faces.cli.list_table import BELOW, Table, cells, under_origins
from acphold.faces.cli.settings import agent_keys, agent_name
from acphold.faces.cli.terminal_text import day, describe_missing, folder, on_one_line, tell
from acphold.journal.hits import terms
from acphold.journal.rows import ListFilter
from acphold.journal.seams import SearchHit, Sought
from acphold.live.reading.json_facts import session_lines
from acphold.live.reading.listed_sessions import ListedSession, Wanted
from acphold.live.reading.local_reader import LocalReader, session_pages


def _tagged(arguments: Sequence[str]) -> str:
    """Return the hint for a tag that is given as an option."""
    tag = next((tag for it, tag in pairwise(arguments) if it in ("-t", "--tag", "--tags")), "")
    return f"did you mean: acphold list {shlex.quote('#' + tag.lstrip('#'))}" if tag else ""


@command("list", "[OPTIONS] [WORDS...]", *options.PLACES, is_read=True, meant=_tagged)
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
    disappears, in any process. With --json each line is an event: the first has all `sessions`
    (200 of them, or --limit), each other one a `session` in its current state, or the id of a
    session that is `gone`. A session that waits for you also has openQuestions, as in
    `acphold inbox --json`.
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
    async with reading() as reader:
        await list_growth(reader)
        if follow:
            show = partial(print_list, reader, wanted, limit)
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
            await print_list(reader, wanted, limit, agent=agent)
    return Exit.OK


async def print_list(
    reader: LocalReader, wanted: Wanted, limit: int | None, agent: str | None = None
) -> None:
    """Print the wanted sessions, at most so many, or why there are none; UsageError if `agent` is
    the name of no agent."""
    programs: list[int] = []
    table = _SessionTable(reader)
    # One more than is shown, to know if there are more.
    async for page in session_pages(reader, wanted, limit and limit + 1, programs.append):
        await table.add(page)
    if not table.places and any(programs):  # there is nothing else
        return await print_list(reader, replace(wanted, mine=False), limit)
    if not table.places:
        await require_agent(reader, agent)
        remark, found = await _said_anywhere(reader, wanted)
        tell(remark or await _why_none(reader, wanted))
        if found:
            await table.add(found)
            await table.print(are_by_day=False)
    elif limit is not None and len(table.places) > limit:
        table.cut(limit)
        await table.print()
        count, programs = 0, []
        async for page in session_pages(reader, wanted, bounds.COUNTED_SESSIONS, programs.append):
            count += len(page)
        least = "at least " if count == bounds.COUNTED_SESSIONS else ""
        tell(f"{limit:,} of {least}{count:,} shown; --all, or acphold to pick")
    else:
        await table.print()
        if table.is_drawn and wanted.words:
            hits, shown = await _saying(reader, wanted)
            whole = {hit.session_id for hit in hits if not hit.missing} - dict(table.places).keys()
            if more := sum(it.row.session_id in whole for it in shown):
                what = "conversation says" if more == 1 else "conversations say"
                tell(f"{more} more {what} this: acphold search {shlex.join(wanted.words)}")
    if count := sum(programs):
        tell(f"{count:,} by programs; --all shows them, and words find them")
    if table.are_unread and (unread := await unread_and_resumed(reader)):
        tell(f"{unread}.")


class _Note(NamedTuple):
    """The lines beside a row on a terminal: above it its day; below it its tags, and its last words
    if they say more than its title."""

    day: str
    tags: str
    title: str | None
    said: str


class _SessionTable:
    """The sessions of a list as it shows them: `places` are their ids and those of which they are
    tails. It `is_drawn` on a terminal."""

    def __init__(self, reader: LocalReader) -> None:
        self._reader = reader
        self._table = Table()
        self._notes: list[_Note] = []  # for a terminal
        self._now = now_ms()
        self.is_drawn = sys.stdout.isatty()
        self.places: list[tuple[str, str]] = []
        self.are_unread = False
        # These take longer than the rest of a row.
        self._name = cache(lambda key: on_one_line(agent_name(key)))
        self._where = cache(_last_part if self.is_drawn else folder)

    async def add(self, page: Sequence[ListedSession]) -> None:
        """Add sessions below those that are there."""
        short_ids = await self._reader.short_ids(it.row.session_id for it in page)
        now, name, where = self._now, self._name, self._where
        self.are_unread = self.are_unread or any(map(attrgetter("row.is_unread"), page))
        self.places += ((it.row.session_id, it.row.tail_of) for it in page)
        self._table.add(
            *(
                cells(it, short_ids[it.row.session_id], name(it.row.agent), now, where(it.row.cwd))
                for it in page
            )
        )
        if self.is_drawn:
            self._notes += (
                _Note(day(it.row.updated_at, now), it.row.hashtags, it.row.title, it.said or "")
                for it in page
            )

    def cut(self, most: int) -> None:
        """Keep only the first sessions."""
        del self._table.lines[most:], self.places[most:]

    async def print(self, *, are_by_day: bool = True) -> None:
        """Print them, each tail under the session that it was left in; on a terminal by day, if
        there are several."""
        order, lines = under_origins(self.places), self._table.lines
        self._table.lines = [BELOW * is_below + lines[n] for n, is_below in order]
        above, below = list[str](), list[str]()
        if self.is_drawn:  # of nothing else: that takes as long as the rest of a row
            ends = await self._reader.endings([session_id for session_id, _ in self.places])
            for n, is_below in order:
                note, session_id = self._notes[n], self.places[n][0]
                above.append(above[-1] if is_below else note.day)
                words = words_below(ends.get(session_id, note.said), note.title)
                below.append(f"{note.tags} {words}".strip())
        self._table.print(above if are_by_day and len({*above}) > 1 else (), below)


def _last_part(cwd: str) -> str:
    return folder(cwd).rpartition("/")[2] or "/"


async def _saying(
    reader: LocalReader, wanted: Wanted
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
    reader: LocalReader, wanted: Wanted
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


async def _why_none(reader: LocalReader, wanted: Wanted) -> str:
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
    return BEGIN.format("")
