"""`acphold inbox`: the questions of all sessions, answered one after another."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from acphold.cli.command_line import Exit, Parser, UsageError, above_zero, add_journal
from acphold.cli.inbox_items import LOOK_SECONDS, NOTHING, Item, Source, item_of
from acphold.cli.servers import add_server, server_of
from acphold.cli.ssh import add_host
from acphold.cli.terminal_text import (
    console,
    on_one_line,
    on_terminal,
    short_age,
    visible,
    visible_json,
)
from acphold.errors import NoJournalError
from acphold.history.times import now_ms
from acphold.hub.annotations import milliseconds

if TYPE_CHECKING:
    from acphold.screen.layout import Passage

DECISIONS: Final = 50
"""Decisions that `--history` shows by default."""


def parser() -> Parser:
    """The arguments of `inbox`."""
    made = Parser(inbox, "inbox", "[OPTIONS]")
    made.add_argument(
        "--list",
        dest="only_lists",
        action="store_true",
        help="print the questions and exit, as in a pipe",
    )
    made.add_argument("--follow", action="store_true", help="then follow changes until Ctrl-C")
    made.add_argument(
        "--history", action="store_true", help="show past decisions and who made them, newest first"
    )
    made.add_argument(
        "--limit",
        metavar="N",
        type=above_zero,
        default=DECISIONS,
        help=f"with --history: about this many [default: {DECISIONS}]",
    )
    made.add_argument(
        "--json", dest="as_json", action="store_true", help="print JSON, one object per line"
    )
    add_host(made)
    add_server(made)
    add_journal(made)
    return made


def inbox(
    *,
    only_lists: bool,
    follow: bool,
    history: bool,
    limit: int,
    as_json: bool,
    host: str | None,
    server: str | None,
    ca: str | None,
    journal: str | None,
) -> int:
    """Answer what agents are waiting for.

    Shows each pending question with the whole command and diff and the session it belongs to,
    longest waiting first. Press a key and Enter to answer, as in `attach`. `l` leaves a question
    for later; it stays open, here and everywhere. Ctrl-C leaves.

    In a pipe, and with --list, the questions are printed. With --json each line is an object with
    id, sessionId, seq, place, at (pending since; ISO 8601, UTC), agent, cwd, title, asks, method
    params (the agent's request, as in ACP), toolCall (everything it reported about the call) and
    shows (title, arguments and answers as they are shown here). With --follow the first line has
    all `questions`; each later line is a new `question`, or the id of one that was `closed`.

    --history shows past decisions in the most recently active sessions: with --json each has
    answeredAt, outcome, how, said and client (who answered) instead of params, toolCall and shows.
    """
    assert host is None, "done there"
    if history and follow:
        raise UsageError("--history and --follow: decisions are not followed")
    source = Source(server_of(server, ca, journal), journal)
    try:
        if history:
            asyncio.run(_history(source, limit, as_json=as_json))
        elif as_json or only_lists or not on_terminal():
            asyncio.run(_printed(source, follow=follow, as_json=as_json))
        else:
            from acphold.cli.inbox_answers import answer_all  # late: it brings the screen

            return asyncio.run(answer_all(source, follow=follow))
    except NoJournalError:
        print(NOTHING, file=sys.stderr)
    return Exit.OK


async def _history(source: Source, limit: int, *, as_json: bool) -> None:
    async with source.reading() as reading:
        lines = await reading.decided(limit)
    if as_json:
        sys.stdout.writelines(f"{visible_json(line)}\n" for line in lines)
        return
    from acphold.history.decisions import Came
    from acphold.reports.transcript import Decision
    from acphold.screen.layout import Gutter, Plain, passage

    layout = Gutter(console()) if on_terminal() else Plain(sys.stdout)
    now = now_ms()
    for item in map(item_of, lines):
        by = f" · by {on_one_line(item.client)}" if item.client else ""
        age = short_age(milliseconds(item.answered_at), now)
        layout.head(f"{age} ago{by}", [item.where])
        layout.put(passage(Decision(item.asks, Came(item.how, item.said))))
    if not lines:
        print("Nothing was asked yet.", file=sys.stderr)


async def _printed(source: Source, *, follow: bool, as_json: bool) -> None:
    """Print the pending questions; with `follow`, also changes until nobody reads."""
    from acphold.screen.plain import is_unread

    async with source.reading() as reading:
        told: dict[str, str] | None = None
        while True:
            lines = {item_of(line).id: visible_json(line) for line in await reading.waiting()}
            if as_json:
                _print_json(lines, told, follow=follow)
            else:
                _print_words(lines, told or {}, follow=follow)
            told = lines
            sys.stdout.flush()
            if not follow:
                return
            await asyncio.sleep(LOOK_SECONDS)
            if is_unread(sys.stdout):
                return


def _print_json(lines: dict[str, str], told: dict[str, str] | None, *, follow: bool) -> None:
    if not follow:
        sys.stdout.writelines(f"{line}\n" for line in lines.values())
    elif told is None:
        sys.stdout.write(f'{{"questions":[{",".join(lines.values())}]}}\n')
    else:
        new = lines.keys() - told.keys()
        sys.stdout.writelines(f'{{"question":{lines[id_]}}}\n' for id_ in lines if id_ in new)
        for id_ in told.keys() - lines.keys():
            sys.stdout.write(f'{{"closed":{msgspec.json.encode(id_).decode()}}}\n')


def _print_words(lines: dict[str, str], told: dict[str, str], *, follow: bool) -> None:
    from acphold.screen.layout import Gutter, Plain

    layout = Gutter(console()) if on_terminal() else Plain(sys.stdout)
    for item in (item_of(line) for id_, line in lines.items() if id_ not in told):
        layout.head(on_one_line(item.asks), [item.where, item.age])
        layout.put(shown(item))
    for item in (item_of(line) for id_, line in told.items() if id_ not in lines):
        layout.gap(visible(f"closed: {on_one_line(item.asks)}"))
    if not lines and not follow:
        print(NOTHING, file=sys.stderr)


def shown(item: Item) -> Passage:
    """Return the whole question: command and diff, or the form, and the possible answers."""
    from rich.text import Text

    from acphold.history.decisions import AskedQuestion
    from acphold.history.timeline import ToolCall
    from acphold.screen.layout import Passage
    from acphold.screen.permission_text import asked

    question = AskedQuestion(item.id, item.method, bytes(item.params))
    if item.call:
        about = asked(ToolCall(item.id, item.call))
    else:
        lines = visible(question.title).splitlines()
        about = Passage("asks", "acphold", [Text(line) for line in lines])
    names: Sequence[str] = question.option_names
    answers = [Text(f"  [{on_one_line(name)}]", "faint") for name in names]
    return msgspec.structs.replace(about, lines=[*about.lines, *answers])
