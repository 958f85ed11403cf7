"""`acphold show --follow`: the last turn of a session and what follows it, without attaching."""

# A client that shows no questions would have to leave them open, or reject them.

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING

from acphold.cli.command_line import UsageError
from acphold.cli.places import place
from acphold.cli.readers import Away
from acphold.cli.terminal_text import console, visible
from acphold.errors import ConnectionLostError, RewrittenError
from acphold.history import Entry
from acphold.history.decisions import asked_question, closed_question
from acphold.history.entries import ANSWER, CHILD, PARAMS, PROMPT, QUESTION, TURN_END, UPDATE
from acphold.history.timeline import turn_end
from acphold.presentation.json_facts import entry_json
from acphold.reading.session_reader import newest_first
from acphold.reports.transcript import DecidedQuestion

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    from acphold.history.decisions import AskedQuestion
    from acphold.reading.session_reader import SessionReader
    from acphold.screen.flow import Flow
    from acphold.screen.layout import Gutter, LabelledText

LOOK_SECONDS = 0.2
"""Pause between two looks into the journal: short enough to read along, and hardly any work."""


FAR_LOOK_SECONDS = 1.0
"""The same for a server far away."""

AT_ONCE = 50
"""Entries read at once, from the end of the session."""


async def follow(
    source: AbstractAsyncContextManager[SessionReader], given: str | None, *, as_json: bool
) -> None:
    """Print the last turn, and new entries until the session is not live or nobody reads.

    A server that cannot be reached is waited for.
    """
    from acphold.screen.plain import is_unread

    put = _put_json if as_json else _PrintedSession().put
    after: int | None = None
    was_live = False
    async with source as reader:
        row, seq = await place(reader, given, "follows it")
        if seq is not None:
            raise UsageError("--follow goes on to the end, and @SEQ is one entry: leave one out")
        session_id = row.session_id
        away, seconds = Away(reader.origin), FAR_LOOK_SECONDS if reader.origin else LOOK_SECONDS
        while True:
            lives, fresh = True, list[Entry]()
            try:
                lives = await reader.is_live(session_id)  # first: its last words are then read
                fresh = await _since(reader, session_id, after)
                away(None)
                put(fresh)
                after = fresh[-1].seq if fresh else after or 0
            except RewrittenError:  # a turn is being compacted
                lives = True
            except ConnectionLostError as exc:
                if after is None:
                    raise
                away(exc)
            if not lives:
                break
            if is_unread(sys.stdout):
                return
            was_live = True
            await asyncio.sleep(seconds)
    put(None)
    why = "ended with its process" if was_live else "is not live"
    print(visible(f"Session {session_id} {why}."), file=sys.stderr)


async def _since(reader: SessionReader, session_id: str, after: int | None) -> list[Entry]:
    """Return the entries of a session after a seq; for None, its last turn."""
    fresh: list[Entry] = []
    async for entry in newest_first(reader, session_id, AT_ONCE):
        if entry.seq <= (after or 0):
            break
        fresh.append(entry)
        if after is None and entry.kind == PROMPT:
            break
    return fresh[::-1]


def _put_json(fresh: list[Entry] | None) -> None:
    for entry in fresh or ():
        sys.stdout.write(f"{entry_json(entry)}\n")
        sys.stdout.flush()


class _PrintedSession:
    """Prints entries as the screen of `chat` shows them."""

    def __init__(self) -> None:
        from acphold.screen.flow import Flow
        from acphold.screen.layout import Gutter, LabelledText

        self._flow: Flow = Flow(thoughts="whole")  # nobody can press a key here
        self._layout: Gutter | LabelledText = (
            Gutter(console()) if sys.stdout.isatty() else LabelledText(sys.stdout)
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
                self._decided(DecidedQuestion(title))
        elif entry.kind == ANSWER:
            closed = closed_question(entry.raw)
            if closed.question in self._questions:
                question, title = self._questions[closed.question]
                came, by_rule = closed.came(question), bool(closed.rules)
                self._decided(DecidedQuestion(title, came, closed.client, by_rule))

    def _decided(self, decision: DecidedQuestion) -> None:
        from acphold.screen.layout import passage

        self._flow.put(passage(decision))
