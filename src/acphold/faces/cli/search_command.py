"""`acphold search`: finds words in everything that was said and done."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping, Sequence
from itertools import groupby

from msgspec.structs import replace

from acphold.conversation.history.entries import iso, now_ms
from acphold.faces.cli import bounds, options
from acphold.faces.cli.background_import import list_growth, unread_and_resumed
from acphold.faces.cli.command_line import UsageError, command
from acphold.faces.cli.journals import reading, require_agent, tells_how_to_begin
from acphold.faces.cli.list_table import LEAST_TITLE
from acphold.faces.cli.settings import agent_keys, agent_name
from acphold.faces.cli.terminal_text import (
    console,
    cut,
    describe_missing,
    folder,
    on_one_line,
    quantity,
    short_age,
    tell,
    titled,
    visible,
)
from acphold.journal.hits import terms
from acphold.journal.seams import Part, SearchHit, Sought
from acphold.live.reading.json_facts import hit_json, place_name

SPEAKERS = {
    "user": ("you", "you"),
    "told": ("user", "faint"),
    "agent": ("agent", "agent"),
    "thought": ("thought", "thought"),
    "tool": ("tool", "tool"),
    "diff": ("diff", "tool"),
}
"""Label and style for each speaker."""

PARTS: tuple[Part, ...] = ("messages", "tools", "diffs")


@command("search", "[OPTIONS] WORDS...", *options.PLACES, is_read=True)
@tells_how_to_begin
async def search(
    *,
    words: list[str] = options.argument(
        "WORDS", 'words, "a phrase" in quotes, or a prefix*', nargs="+"
    ),
    rank: bool = options.flag("best match first instead of newest first"),
    part: Part | None = options.value(
        "PART", "only messages, tools or diffs", "--in", choices=PARTS
    ),
    agent: str | None = options.value("NAME", "only sessions of this agent"),
    cwd: str | None = options.CWD,
    since: int = options.since("only entries"),
    limit: int = options.limit(
        f"at most this many [default: {bounds.SEARCH_HITS}]", bounds.SEARCH_HITS
    ),
    as_json: bool = options.json(),
) -> None:
    """Search all conversations, newest first.

    Finds the messages, thoughts and tool calls that have all words, in any order and case. If none
    has, it finds the conversations that have them in several messages, title, folder or agent, or
    else most of them, and says which words are missing. For a phrase use two pairs of quotes,
    because the shell removes one: '"flaky test" retry'. A * after a word finds everything that
    starts with it. snake_case, camelCase and dotted.names are found whole, and by their parts.

    Each hit begins with its place: `acphold show ID@SEQ` shows what is around it.

    A turn is indexed a moment after its end, and until then a search reads the ends of the 20
    newest sessions, up to 256 KiB of each. Imported conversations of the last 30 days are
    searchable at once; the rest follows in the background.

    With --json each line is an object with sessionId, seq, place, at (ISO 8601, UTC), speaker,
    user, agent, cwd, title, archived, tool, excerpt, marks, missing (words that its conversation
    does not have) and nowhere (those that none has).
    """
    sought = Sought(
        " ".join(words),
        agents=agent_keys(agent),
        cwd=cwd,
        since=since,
        part=part,
        rank=rank,
        limit=limit,
    )
    if not terms(sought.words):
        raise UsageError(f"{sought.words!r} has no word to search for; see `acphold search --help`")
    async with reading() as reader:
        await list_growth(reader)
        # One more than is shown, to know if there are more.
        found = await reader.search(replace(sought, limit=sought.limit + 1))
        hits = found[: sought.limit]
        if not hits:
            await require_agent(reader, agent)
        await reader.live()  # so that a daemon that does not answer is named
        if as_json:
            sys.stdout.writelines(f"{hit_json(hit)}\n" for hit in hits)
            return
        filters = [
            f"in {sought.part}" if sought.part else "",
            f"of agent {sought.agents[0]!r}" if sought.agents else "",
            f"in {folder(sought.cwd)}" if sought.cwd is not None else "",
            f"since {iso(sought.since)[:10]}" if sought.since else "",
        ]
        which = " ".join(filter(None, filters))
        for tag in (word for word in words if word.startswith("#")):
            tell(f"Searching what was said; `acphold list {shlex.quote(tag)}` lists by tag.")
        if remark := describe_missing(found, which):
            tell(f"{remark}:")
        _print(hits, await reader.short_ids(hit.session_id for hit in hits))
        lagging = await reader.lagging()
        if not found:
            tell(f"No results for {f'{sought.words} {which}'.strip()}.")
        elif found[0].missing:
            pass  # the best ones are shown
        elif len(found) > sought.limit:
            tell(f"The newest {sought.limit:,} shown; --limit {sought.limit * 4} shows more")
        if lagging:
            some = quantity(lagging, "older conversation")
            tell(f"Not searchable yet: {some}. `acphold import --wait` indexes all at once.")
        if remark := await unread_and_resumed(reader):
            tell(f"{remark}.")


StyledText = tuple[str, str]
"""Visible text and its style."""


def mark_excerpt(hit: SearchHit) -> list[StyledText]:
    """Return the excerpt of a hit, with the found words in a style of their own."""
    pieces = []
    done = 0
    for start, end in hit.marks:
        pieces += [(hit.excerpt[done:start], ""), (hit.excerpt[start:end], "found")]
        done = end
    pieces.append((hit.excerpt[done:], ""))
    return [(visible(text), style) for text, style in pieces]


def _print(hits: Sequence[SearchHit], short_ids: Mapping[str, str]) -> None:
    """Print hits; consecutive hits of one session stand under its title.

    On a terminal heads are cut to a line, excerpts are wrapped and indented; in a pipe or a file
    nothing is.
    """
    screen = console() if sys.stdout.isatty() else None

    def fit(text: str, beside: int) -> str:
        return text if screen is None else cut(text, max(LEAST_TITLE, screen.width - beside))

    def line(*pieces: StyledText, indent: int = 0) -> None:
        if screen is None:
            print(" " * indent + "".join(text for text, _ in pieces))
            return
        from rich.padding import Padding
        from rich.text import Text

        screen.print(Padding(Text.assemble(*pieces), (0, 0, 0, indent), expand=False))

    now = now_ms()
    for number, (session_id, group) in enumerate(groupby(hits, lambda hit: hit.session_id)):
        first, *more = group
        if number:
            line()
        agent, where = on_one_line(agent_name(first.agent)), folder(first.cwd)
        if screen is not None:
            agent, where = cut(agent, 20), cut(where.rpartition("/")[2] or "/", 20)
        where = f"  {agent} in {where}"
        mark = "(archived) " if first.archived else ""
        if first.missing and first.missing != first.nowhere:
            lacks = ", ".join(on_one_line(word) for word in first.missing)
            where += cut(f"  without {lacks}", 40)
        title = fit(mark + titled(first.title), len(where))
        line((title, "heading"), (where, "faint"))
        short = on_one_line(short_ids[session_id])
        for hit in (first, *more):
            label, style = SPEAKERS[hit.speaker]
            label = on_one_line(hit.user or "") or label
            place = place_name(short, hit.seq)
            when = f"  {short_age(hit.at, now)}  "
            tool = f"  {on_one_line(hit.tool)}" if hit.tool else ""
            tool = fit(tool, 2 + len(place) + len(when) + len(label))
            line((place, "id"), (when, "faint"), (label, style), (tool, "faint"), indent=2)
            line(*mark_excerpt(hit), indent=4)
