"""`acphold inbox`: the questions of all sessions, answered one after another."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from itertools import chain
from typing import TYPE_CHECKING, Final

import msgspec

from acphold.cli.command_line import Exit, Parser, UsageError, above_zero, add_journal
from acphold.cli.inbox_items import NOTHING, age, where
from acphold.cli.readers import reading
from acphold.cli.servers import add_server, server_of
from acphold.cli.ssh import add_host
from acphold.cli.terminal_text import (
    console,
    on_one_line,
    on_terminal,
    short_age,
    visible,
)
from acphold.errors import NoJournalError
from acphold.history.times import now_ms
from acphold.presentation.json_facts import question_json
from acphold.reading.inbox import InboxQuestion

if TYPE_CHECKING:
    from acphold.reading.session_reader import News, SessionReader
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
    journal: str | None,
) -> int:
    """Answer what agents are waiting for.

    Shows each pending question with the whole command and diff and the session it belongs to,
    longest waiting first. Press a key and Enter to answer, as in `chat`. `l` leaves a question
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
    there = server_of(server, journal)
    source = reading(there, journal)
    try:
        if history:
            asyncio.run(_history(source, limit, as_json=as_json))
        elif as_json or only_lists or not on_terminal():
            asyncio.run(_printed(source, follow=follow, as_json=as_json))
        else:
            from acphold.cli.inbox_answers import answer_all  # late: it brings the screen

            return asyncio.run(answer_all(source, there, journal, follow=follow))
    except NoJournalError:
        print(NOTHING, file=sys.stderr)
    return Exit.OK


async def _history(
    source: AbstractAsyncContextManager[SessionReader], limit: int, *, as_json: bool
) -> None:
    async with source as reader:
        found, _ = await reader.decisions(limit)
    if as_json:
        sys.stdout.writelines(f"{question_json(it)}\n" for it in found)
        return
    from acphold.reports.transcript import DecidedQuestion
    from acphold.screen.layout import Gutter, LabelledText, passage

    layout = Gutter(console()) if on_terminal() else LabelledText(sys.stdout)
    now = now_ms()
    for it in found:
        assert it.decided is not None, "a decision"
        by = f" · by {on_one_line(it.decided.client)}" if it.decided.client else ""
        layout.head(f"{short_age(it.answered_at, now)} ago{by}", [where(it)])
        layout.put(passage(DecidedQuestion(it.asks, it.decided.came)))
    if not found:
        print("Nothing was asked yet.", file=sys.stderr)


async def _printed(
    source: AbstractAsyncContextManager[SessionReader], *, follow: bool, as_json: bool
) -> None:
    """Print the pending questions; with `follow`, also changes until nobody reads."""
    show = _print_json if as_json else _print_words
    async with source as reader:
        if not follow:
            show({it.question.id: it for it in await reader.questions()}, None, follow=False)
            return
        from acphold.cli.followed_list import follow as followed  # late: few follow it

        known: dict[str, Sequence[InboxQuestion]] = {}
        told: dict[str, InboxQuestion] | None = None

        def tell(news: News) -> None:
            nonlocal told
            if news.is_all:
                known.clear()
            known.update({it.row.session_id: it.questions for it in news.sessions})
            for session_id in news.gone:
                known.pop(session_id, None)
            found = sorted(chain(*known.values()), key=lambda it: it.at)
            now = {it.question.id: it for it in found}
            show(now, told, follow=True)
            told = now

        await followed(reader, tell)


def _print_json(
    found: dict[str, InboxQuestion], told: dict[str, InboxQuestion] | None, *, follow: bool
) -> None:
    if not follow:
        sys.stdout.writelines(f"{question_json(it)}\n" for it in found.values())
    elif told is None:
        sys.stdout.write(f'{{"questions":[{",".join(map(question_json, found.values()))}]}}\n')
    else:
        new = [it for id_, it in found.items() if id_ not in told]
        sys.stdout.writelines(f'{{"question":{question_json(it)}}}\n' for it in new)
        for id_ in told.keys() - found.keys():
            sys.stdout.write(f'{{"closed":{msgspec.json.encode(id_).decode()}}}\n')


def _print_words(
    found: dict[str, InboxQuestion], told: dict[str, InboxQuestion] | None, *, follow: bool
) -> None:
    from acphold.screen.layout import Gutter, LabelledText

    layout = Gutter(console()) if on_terminal() else LabelledText(sys.stdout)
    told = told or {}
    for it in (it for id_, it in found.items() if id_ not in told):
        layout.head(on_one_line(it.asks), [where(it), age(it)])
        layout.put(shown(it))
    for it in (it for id_, it in told.items() if id_ not in found):
        layout.gap(visible(f"closed: {on_one_line(it.asks)}"))
    if not found and not follow:
        print(NOTHING, file=sys.stderr)


def shown(found: InboxQuestion) -> Passage:
    """Return the whole question: command and diff, or the form, and the possible answers."""
    from rich.text import Text

    from acphold.history.timeline import ToolCall
    from acphold.screen.layout import Passage
    from acphold.screen.permission_text import asked

    question = found.question
    if found.call:
        about = asked(ToolCall(question.id, dict(found.call)))
    else:
        lines = visible(question.title).splitlines()
        about = Passage("asks", "acphold", [Text(line) for line in lines])
    answers = [Text(f"  [{on_one_line(name)}]", "faint") for name in question.option_names]
    return msgspec.structs.replace(about, lines=[*about.lines, *answers])
