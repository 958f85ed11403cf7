"""Answering all pending questions, session by session.

The person is asked as in `chat`, by `screen.answers`: we attach to the session, and it sends us
its open questions. A question left for later gets no answer: we leave, and it stays open.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, suppress
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from msgspec.structs import replace

from acp_wire.tasks import timeout
from acphold.client import PermissionQuestion, RemoteAgent, connected_to
from acphold.client.answers import PermissionAnswer
from acphold.client.journal_endpoints import OwnerEndpoint
from acphold.conversation.history.entries import now_ms
from acphold.conversation.history.raw_update import string
from acphold.conversation.history.timeline import ToolCall
from acphold.errors import ConnectionLostError, UnknownSessionError
from acphold.faces.cli import bounds
from acphold.faces.cli.ask_person import TerminalPerson
from acphold.faces.cli.asked_calls import KnownCalls
from acphold.faces.cli.command_line import Exit
from acphold.faces.cli.inbox_items import NOTHING, describe_hold, how_to_resume, new_rules, where
from acphold.faces.cli.journals import reading
from acphold.faces.cli.terminal_text import age
from acphold.faces.screen.answers import PersonAnswers
from acphold.faces.screen.flow import Flow
from acphold.faces.screen.panels import Field, Key, KeyChoice
from acphold.faces.screen.session_options import edit_mode
from acphold.live.reading.local_reader import LocalReader, sessions_on_hold
from acphold.live.reading.processes import processes

if TYPE_CHECKING:
    from acphold.live.reading.inbox import InboxQuestion

Q = TypeVar("Q")
T = TypeVar("T")

LATER: Final = Key("l", "later: it stays open", "acphold/later")


ONLY_LOOKS: Final = (
    "This question can only be seen from here: the agent runs outside of this sandbox or "
    "container. Answer it there; or, if you trust what runs here, run there: acphold access "
    "places allow {}"
)


class _LeftForLater(Exception):
    """The person leaves the question for later."""


class InboxPerson(TerminalPerson):
    """A person who may leave each question for later; Ctrl-D does so."""

    async def choose(self, choice: KeyChoice) -> str | None:
        if choice.passes:
            return await super().choose(choice)
        answer = await super().choose(replace(choice, keys=(*choice.keys, LATER)))
        if answer in (None, LATER.value):
            raise _LeftForLater
        return answer

    async def enter(self, field: Field, wrong: str = "") -> str | None:
        line = await super().enter(field, wrong)
        if line is None:
            raise _LeftForLater
        return line

    def status(self) -> Sequence[str]:
        return ("the agent is waiting for your answer", "Ctrl-D: later", "Ctrl-C leaves")


async def answer_all(*, follow: bool) -> int:
    """Ask all pending questions, session by session; with `follow`, new ones too, until Ctrl-C."""
    flow = Flow()
    visitor = InboxPerson(0, 2, flow)
    left: set[str] = set()
    answered = False
    shown: set[tuple[str, str]] = set()  # sessions with held prompts, and why they are held
    async with reading() as reader:
        if news := await new_rules(reader):
            flow.tell(news)
        while True:
            waiting = [it for it in await reader.questions() if it.question.id not in left]
            if waiting:
                answered = True
                session_id = waiting[0].row.session_id
                left |= await InboxVisit(reader, visitor, session_id).run()
                continue
            rows = [it.row for it in await sessions_on_hold(reader)]
            short_ids = await reader.short_ids(row.session_id for row in rows)
            for row in rows:
                short, held = short_ids[row.session_id], describe_hold(row)
                if (row.session_id, held) not in shown:
                    shown.add((row.session_id, held))
                    how = how_to_resume(short)
                    flow.tell(f"{held}: {where(row, short)}. To resume: {how}")
                    visitor.refresh()
            if follow:
                await asyncio.sleep(bounds.INBOX_LOOK_SECONDS)
            else:
                break
    if left:
        flow.tell("Questions that you left for later are still open: acphold inbox")
    elif not (answered or shown):
        flow.tell(NOTHING)
    visitor.refresh()
    return Exit.OK


class InboxVisit:
    """One session: its questions are asked until none is open or the person leaves the rest."""

    def __init__(self, reader: LocalReader, visitor: InboxPerson, session_id: str) -> None:
        self._reader = reader
        self._session_id = session_id
        self._answers = PersonAnswers(visitor.flow, KnownCalls())
        self._answers.face = visitor
        self._visitor = visitor
        self._items: dict[str, InboxQuestion] = {}
        self._elsewhere: set[str] = set()
        self._calls: dict[str, InboxQuestion] = {}
        self._later = 0
        self._on_screen = 0
        self._changed = asyncio.Event()

    async def run(self) -> set[str]:
        """Ask the session's questions; return the ids of those left for later."""
        await self._look()
        if not self._items:
            return set()
        first = next(iter(self._items.values()))
        short = (await self._reader.short_ids([self._session_id]))[self._session_id]
        self._visitor.flow.tell(f"{where(first.row, short)} · asked {age(first.at, now_ms())}")
        self._visitor.refresh()
        if place := await onlooker_of(self._session_id):
            self._visitor.flow.tell(ONLY_LOOKS.format(place))
            self._visitor.refresh()
            return {*self._items}
        try:
            async with self._connection() as agent, aclosing(self._answers):
                there = await agent.resume_session(self._session_id, first.row.cwd)
                self._answers.edit_mode = partial(edit_mode, there)
                known = self._elsewhere
                # An offer of a rule after the last answer ends when another session asks, too.
                while self._asks or (self._answers.is_offering and self._elsewhere <= known):
                    self._changed.clear()
                    with suppress(TimeoutError):
                        async with timeout(bounds.INBOX_LOOK_SECONDS):
                            if self._asks:
                                known = self._elsewhere
                                await self._changed.wait()
                            else:
                                await self._answers.wait_for_offer()
                    await self._look()
        except (ConnectionLostError, UnknownSessionError) as exc:
            await self._look()
            if self._items:  # still open, and unreachable: the other sessions come first
                self._visitor.flow.tell(str(exc))
        return {*self._items}

    @property
    def _asks(self) -> bool:
        """True while questions are open that were not left for later.

        The next one of a turn may be on the screen before any reader knows of it.
        """
        return self._on_screen > 0 or len(self._items) > self._later

    async def _look(self) -> None:
        found = await self._reader.questions()
        self._items = {it.question.id: it for it in found if it.row.session_id == self._session_id}
        self._elsewhere = {it.question.id for it in found} - set(self._items)
        for item in self._items.values():
            if (call_id := string(item.question.tool_call.get("toolCallId"))) is not None:
                self._calls[call_id] = item

    def _connection(self) -> AbstractAsyncContextManager[RemoteAgent]:
        """Return a connection to the process that has the session."""
        return connected_to(
            OwnerEndpoint(self._session_id),
            on_permission=self._on_permission,
            on_form=partial(self._ask, self._answers.on_form),
            on_page=partial(self._ask, self._answers.on_page),
        )

    # -- the session's questions ----------------------------------------------------------

    async def _on_permission(self, question: PermissionQuestion) -> PermissionAnswer:
        # Nothing was replayed to us: the inbox has the earlier updates of the call.
        known = self._calls.get(question.tool_call.tool_call_id)
        fields = {**({} if known is None else known.call), **question.tool_call.fields}
        about = replace(question, tool_call=ToolCall(question.tool_call.tool_call_id, fields))
        return await self._ask(self._answers.on_permission, about)

    async def _ask(self, ask: Callable[[Q], Awaitable[T]], question: Q) -> T:
        """Return the answer. A question left for later stays open, for anybody to answer."""
        try:
            self._on_screen += 1
            try:
                return await ask(question)
            finally:
                self._on_screen -= 1
        except _LeftForLater:
            self._later += 1
            self._changed.set()
            try:
                return await asyncio.Future()
            finally:
                self._later -= 1
        finally:
            self._changed.set()


async def onlooker_of(session_id: str) -> str:
    """Return the name of our place if the process that has a session lets us only look; else ""."""
    for process in await processes():
        if any(it.session_id == session_id for it in process.sessions):
            return process.onlooker
    return ""
