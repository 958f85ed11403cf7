"""`acphold tail`: prints the last turn of a session and what follows, without attaching to it."""

# A client that shows no questions would have to leave them open, or reject them.

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from acphold.cli.command_line import Exit, Parser, add_journal
from acphold.cli.journals import entries, is_live, opened
from acphold.cli.places import place
from acphold.cli.servers import FarServer, add_server, server_of
from acphold.cli.ssh import add_host
from acphold.cli.terminal_text import console, visible
from acphold.errors import ConnectionLostError, RewrittenError
from acphold.history import Entry
from acphold.history.decisions import asked_question, closed_question
from acphold.history.entries import ANSWER, CHILD, PARAMS, PROMPT, QUESTION, TURN_END, UPDATE
from acphold.history.timeline import turn_end
from acphold.presentation.json_facts import entry_json
from acphold.reports.transcript import Decision

if TYPE_CHECKING:
    from acphold.history.decisions import AskedQuestion
    from acphold.screen.flow import Flow
    from acphold.screen.layout import Gutter, Plain

LOOK_SECONDS = 0.2
"""Pause between two looks into the journal: short enough to read along, and hardly any work."""


FAR_LOOK_SECONDS = 1.0
"""The same for a server far away."""

FAR_AT_ONCE = 50
"""Sessions and entries per page there: live ones are near the beginning."""


def parser() -> Parser:
    """The arguments of `tail`."""
    made = Parser(tail, "tail", "[OPTIONS] ID")
    made.add_argument("session_id", metavar="ID", help="the session's id, or a prefix of it")
    made.add_argument(
        "--json",
        dest="as_json",
        action="store_true",
        help="print JSON, one object per journal entry",
    )
    add_host(made)
    add_server(made)
    add_journal(made)
    return made


def tail(
    *,
    session_id: str,
    as_json: bool,
    host: str | None,
    server: str | None,
    ca: str | None,
    journal: str | None,
) -> int:
    """Print the last turn of a session and follow it.

    It reads the journal, so it disturbs nobody: the agent does not wait for it, and it shows no
    questions to answer. It ends with the process that runs the session, or with Ctrl-C. If the
    session is not running, it prints the last turn and says so.

    With --json each line is an object as in `acphold show --json`.
    """
    assert host is None, "done there"
    there = server_of(server, ca, journal)
    if there is None:
        asyncio.run(_tail(session_id, journal, as_json=as_json))
    else:
        asyncio.run(_tail_far(there, session_id, as_json=as_json))
    return Exit.OK


Look = Callable[[int | None], Awaitable[tuple[bool, list[Entry]]]]
"""Returns True if the session is live, and its entries after a seq; for None, its last turn."""


async def _tail(given: str, location: str | None, *, as_json: bool) -> None:
    async with opened(location) as journal:
        session_id = (await place(journal, given, "follows it")).row.session_id

        async def look(after: int | None) -> tuple[bool, list[Entry]]:
            lives = await is_live(journal, session_id)  # first: its last words are then read
            fresh = [entry async for entry in entries(journal, session_id, after or 0)]
            prompts = [n for n, entry in enumerate(fresh) if entry.kind == PROMPT]
            return lives, fresh[prompts[-1] :] if prompts and after is None else fresh

        await _read_along(session_id, look, LOOK_SECONDS, as_json=as_json)


async def _tail_far(server: FarServer, given: str, *, as_json: bool) -> None:
    """Follow a session on a server far away; waits while the server cannot be reached."""
    from acphold.cli.far_places import place_there  # late: it brings HTTP
    from acphold.cli.remote import Away, pages_of

    async with await pages_of(server) as pages:
        found, _ = await place_there(pages, server, given, "follows it")
        session_id = found.row.session_id
        away = Away(pages)

        async def look(after: int | None) -> tuple[bool, list[Entry]]:
            fresh: list[Entry] = []
            try:
                lives = (await pages.session(session_id, FAR_AT_ONCE)).live is not None
                async for entry in pages.back(session_id, FAR_AT_ONCE):
                    if entry.seq <= (after or 0):
                        break
                    fresh.insert(0, entry)
                    if after is None and entry.kind == PROMPT:
                        break  # the last turn begins here
            except RewrittenError:
                await asyncio.sleep(FAR_LOOK_SECONDS)  # a turn is being compacted
                return await look(after)
            except ConnectionLostError as exc:
                if after is None:
                    raise
                away(exc)
                return True, []
            away(None)
            return lives, fresh

        await _read_along(session_id, look, FAR_LOOK_SECONDS, as_json=as_json)


async def _read_along(session_id: str, look: Look, seconds: float, *, as_json: bool) -> None:
    """Print new entries until the session is no longer live, or nobody reads."""
    from acphold.screen.plain import is_unread

    put = _put_json if as_json else _Told().put
    after: int | None = None
    was_live = False
    while True:
        lives, fresh = await look(after)
        put(fresh)
        after = fresh[-1].seq if fresh else after or 0
        if not lives:
            break
        if is_unread(sys.stdout):
            return
        was_live = True
        await asyncio.sleep(seconds)
    put(None)
    why = "has ended with the process that had it" if was_live else "is not live"
    print(visible(f"Session {session_id} {why}."), file=sys.stderr)


def _put_json(fresh: list[Entry] | None) -> None:
    for entry in fresh or ():
        sys.stdout.write(f"{entry_json(entry)}\n")
        sys.stdout.flush()


class _Told:
    """Prints entries as the screen of `attach` shows them."""

    def __init__(self) -> None:
        from acphold.screen.flow import Flow
        from acphold.screen.layout import Gutter, Plain

        self._flow: Flow = Flow(thoughts="whole")  # nobody can press a key here
        self._layout: Gutter | Plain = (
            Gutter(console()) if sys.stdout.isatty() else Plain(sys.stdout)
        )
        self._questions: dict[str, tuple[AskedQuestion, str]] = {}
        self._answered: set[str] = set()

    def put(self, fresh: list[Entry] | None) -> None:
        """Print what these entries finish; None stands for the end of all of them.

        A question that is answered among them is not printed as open first.
        """
        if fresh is None:
            self._flow.turn_over()
            self._print()
            return
        self._answered = {closed_question(it.raw).question for it in fresh if it.kind == ANSWER}
        for entry in fresh:
            self._hear(entry)
            self._print()

    def _print(self) -> None:
        for passage in self._flow.take():
            self._layout.put(passage)
        sys.stdout.flush()

    def _hear(self, entry: Entry) -> None:
        if entry.kind in (UPDATE, PARAMS):
            self._flow.hear(entry.update)
        elif entry.kind == CHILD:
            self._flow.hear_child(entry.raw)
        elif entry.kind == PROMPT:
            self._flow.prompted(entry.raw)
        elif entry.kind == TURN_END:
            self._flow.turn_over(turn_end(entry.raw, entry.at))
        elif entry.kind == QUESTION:
            question = asked_question(entry.raw)
            title = self._flow.tool_title(question.untitled_call or "") or question.title
            self._questions[question.id] = question, title
            if question.id not in self._answered:
                self._decided(Decision(title))
        elif entry.kind == ANSWER:
            closed = closed_question(entry.raw)
            if closed.question in self._questions:
                question, title = self._questions[closed.question]
                self._decided(Decision(title, closed.came(question), closed.client))

    def _decided(self, decision: Decision) -> None:
        from acphold.screen.layout import passage

        self._flow.put(passage(decision))
