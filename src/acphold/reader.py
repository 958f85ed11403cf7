"""`acphold.open`: the sessions of a journal, read as they change.

    async with acphold.open() as history:
        async for session in history.sessions(follow=True):
            print(session.status, session.title)

Reading starts no agent and no daemon. Only the answer to a question goes to the process in which
its session waits.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

from msgspec import UNSET, Struct
from msgspec.structs import replace

from acp_wire.schema import CREATE_ELICITATION, REQUEST_PERMISSION, ElicitationSchema, decode
from acp_wire.tasks import timeout
from acphold.conversation.history.entries import in_utc
from acphold.conversation.history.timeline import ToolCall
from acphold.errors import AgentTimeoutError, DeclarationError
from acphold.extras import require_loop
from acphold.journal.rows import ListFilter
from acphold.journal.seams import Grouping, Sought
from acphold.journal.stores import journal_name
from acphold.live.reading import bounds
from acphold.live.reading.listed_sessions import ListedSession, Wanted
from acphold.live.reading.local_reader import LocalReader, existing_journal, session_pages

# What a list does not need is imported late: the commands use this module, too.
if TYPE_CHECKING:
    from acphold.client.answers import (
        Filled,
        FormQuestion,
        PageQuestion,
        PermissionAnswer,
        PermissionQuestion,
    )
    from acphold.conversation.history.fold import SessionState
    from acphold.journal.seams import UsageSum
    from acphold.live.reading.inbox import InboxQuestion
    from acphold.live.reading.local_reader import LocalReader

LOOK_SECONDS = 0.1
"""Seconds between looks whether an answer was taken."""

About: TypeAlias = "PermissionQuestion | FormQuestion | PageQuestion"
"""The content of a question, as `acphold.connect` gives it to its callbacks."""


class KeptSession(Struct, frozen=True):
    """A session of a history. `status` is `running` or `waiting` (for an answer) while a turn runs;
    otherwise the outcome of its last turn; `idle` or `new` without one, `unread` if an import has
    only listed it, and `gone` once it has left the list.
    """

    id: str
    agent: str
    cwd: str
    title: str | None
    created_at: datetime
    updated_at: datetime
    status: str
    messages: int
    tags: tuple[str, ...] = ()
    archived: bool = False


class KeptQuestion:
    """An open question: `id`, `session`, `asked_at`, its `title` for people, and `about`, as
    callbacks of `acphold.connect` get it."""

    def __init__(self, history: KeptSessions, asked: InboxQuestion, about: About) -> None:
        self._history = history
        self.id: str = asked.question.id
        self.session: KeptSession = replace(_session(ListedSession(asked.row)), status="waiting")
        self.asked_at: datetime = in_utc(asked.at)
        self.title: str = asked.asks
        self.about = about

    def __repr__(self) -> str:
        return f"<KeptQuestion {self.title!r} of session {self.session.id}>"

    async def answer(
        self,
        answer: PermissionAnswer | Filled,
        *,
        timeout: float = 30.0,  # noqa: ASYNC109 - as in all of the API
    ) -> bool:
        """Answer it, as those do; return False if somebody was faster.

        Raises DeclarationError for an answer that does not fit, ConnectionLostError if no process
        waits for it any more, AgentTimeoutError if it is not taken within `timeout` seconds.
        """
        return await self._history._answer(self, answer, timeout)


class SearchResult(Struct, frozen=True):
    """A place that a search found: `excerpt` is a line of what `speaker` said, which is `user`,
    `agent`, `thought`, `tool` or `diff`. Its conversation has all words but those `missing`."""

    session_id: str
    agent: str
    cwd: str
    title: str | None
    at: datetime
    speaker: str
    excerpt: str
    missing: tuple[str, ...] = ()


class Usage(Struct, frozen=True):
    """Tokens and cost as agents reported them, by currency; `groups` has the sums of its parts."""

    name: str
    sessions: int
    tokens: int | None
    costs: dict[str, float]
    groups: tuple[Usage, ...] = ()


class KeptSessions:
    """The sessions of a journal; see `acphold.open`. Times are in UTC.

    What cannot be read raises JournalError.
    """

    def __init__(self, reader: LocalReader, journal: str) -> None:
        self._reader = reader
        self._journal = journal

    async def sessions(
        self,
        *,
        follow: bool = False,
        words: str = "",
        agent: str | None = None,
        cwd: str | os.PathLike[str] | None = None,
        archived: bool = False,
    ) -> AsyncGenerator[KeptSession, None]:
        """Yield the sessions, last active first; with `follow`, then each whenever it changes.

        All `words` must be in its title, agent, folder or tags. The list is complete when a change
        comes. A session that leaves the list comes with the status `gone`.
        """
        from acphold.client.advertised import absolute

        wanted = Wanted(
            ListFilter(
                agents=() if agent is None else (agent,),
                cwd=None if cwd is None else absolute(cwd),
                archived="include" if archived else "exclude",
            ),
            words=tuple(words.casefold().split()),
        )
        if not follow:
            async for page in session_pages(self._reader, wanted):
                for it in page:
                    yield _session(it)
            return
        known: dict[str, KeptSession] = {}
        async with aclosing(self._reader.changes(1)) as changes:
            async for news in changes:
                if news.is_all:
                    pages = session_pages(self._reader, wanted)
                    listed, left = [it async for page in pages for it in page], {*known}
                else:
                    listed, left = [*news.sessions], {*news.gone}
                for it in listed:
                    id, session = it.row.session_id, _session(it)
                    if not wanted.fits(it.row, is_live=it.live is not None):
                        left.add(id)
                        continue
                    left.discard(id)
                    if known.get(id) != session:
                        known[id] = session
                        yield session
                for id in left & known.keys():
                    yield replace(known.pop(id), status="gone")

    async def read(self, session: str | KeptSession) -> SessionState:
        """Return a conversation.

        A session is named by its id, or by the beginning of its id. Raises UnknownSessionError.
        """
        id = session if isinstance(session, str) else session.id
        row = await self._reader.whole(await self._reader.session(id))
        return await self._reader.state(row.session_id)

    async def questions(self, *, follow: bool = False) -> AsyncGenerator[KeptQuestion, None]:
        """Yield the open questions, oldest first; with `follow`, then each new one."""
        for question in (asked := await self._open_questions()):
            yield question
        if not follow:
            return
        known = {question.id for question in asked}
        async with aclosing(self._reader.changes(0)) as changes:
            async for _ in changes:
                asked = await self._open_questions()
                for question in asked:
                    if question.id not in known:
                        yield question
                known = {question.id for question in asked}

    async def search(
        self,
        words: str,
        *,
        agent: str | None = None,
        cwd: str | os.PathLike[str] | None = None,
        limit: int = 20,
    ) -> list[SearchResult]:
        """Return where all words were said, newest first: words, "phrases in quotes", beginnings
        with a `*`. If nothing has all, conversations that have them together, or most of them, best
        first."""
        from acphold.client.advertised import absolute

        sought = Sought(
            words,
            agents=() if agent is None else (agent,),
            cwd=None if cwd is None else absolute(cwd),
            limit=limit,
        )
        return [
            SearchResult(
                *(it.session_id, it.agent, it.cwd, it.title, in_utc(it.at)),
                speaker=it.speaker,
                excerpt=it.excerpt,
                missing=it.missing,
            )
            for it in await self._reader.search(sought)
        ]

    async def usage(
        self,
        by: Literal["agent", "day", "folder", "model", "session"] = "day",
        *,
        since: datetime | None = None,
    ) -> Usage:
        """Return all usage, and its sums."""
        from acphold.client.advertised import in_ms

        if by not in get_args(Grouping):
            raise DeclarationError(
                f"usage is by one of {', '.join(get_args(Grouping))}, not {by!r}"
            )
        sums = await self._reader.usage(by, since=in_ms(since) or 0)
        return _usage(sums.total, tuple(map(_usage, sums.groups)))

    # -- questions ------------------------------------------------------------------------------

    async def _open_questions(self) -> list[KeptQuestion]:
        found = [(it, _about(it)) for it in await self._reader.questions()]
        return [KeptQuestion(self, it, about) for it, about in found if about is not None]

    async def _answer(self, question: KeptQuestion, answer: object, seconds: float) -> bool:
        from acphold.client import answers
        from acphold.client.connectors import connected_to
        from acphold.client.journal_endpoints import OwnerEndpoint

        match question.about:  # raises DeclarationError
            case answers.PermissionQuestion(options=options):
                answers.option_for(answer, options)  # type: ignore[arg-type]
            case answers.FormQuestion(form=form):
                answers.form_answer(answer, form)  # type: ignore[arg-type]
        is_asked = asyncio.Event()

        async def decide(asked: About) -> Any:
            if _identity(asked) != _identity(question.about):
                await asyncio.Future()  # it is for somebody else
            is_asked.set()
            return answer

        connection = connected_to(
            OwnerEndpoint(question.session.id, self._journal),
            on_permission=decide,
            on_form=decide,
            on_page=decide,
        )
        try:
            async with timeout(seconds), connection as agent:
                await agent.resume_session(question.session.id, question.session.cwd)
                while question.id in {it.question.id for it in await self._reader.questions()}:  # noqa: ASYNC110 - it is in another process
                    await asyncio.sleep(LOOK_SECONDS)
        except TimeoutError:
            raise AgentTimeoutError("an answer", seconds) from None
        return is_asked.is_set()


def _about(asked: InboxQuestion) -> About | None:
    """Return what a question asks; None for one of a later release."""
    from acphold.client.answers import FormQuestion, PageQuestion, PermissionQuestion

    id, raw = asked.row.session_id, asked.question.params
    if asked.question.method == REQUEST_PERMISSION.name:
        request = decode(REQUEST_PERMISSION.params, raw).value
        call = ToolCall(request.tool_call.tool_call_id, {**asked.call})
        return PermissionQuestion(id, call, request.options, request)
    if asked.question.method != CREATE_ELICITATION.name:
        return None
    form = decode(CREATE_ELICITATION.params, raw).value
    if isinstance(form.requested_schema, ElicitationSchema):
        return FormQuestion(form.message, form.requested_schema, id, form.tool_call_id)
    if form.url is UNSET or form.elicitation_id is UNSET:
        return None
    return PageQuestion(form.message, str(form.url), str(form.elicitation_id), id)


def _identity(asked: About) -> object:
    from acphold.client.answers import FormQuestion, PermissionQuestion

    if isinstance(asked, PermissionQuestion):
        return asked.tool_call.tool_call_id, asked.options
    return (asked.message, asked.form) if isinstance(asked, FormQuestion) else asked.id


# -- values ---------------------------------------------------------------------------------------


def _session(listed: ListedSession) -> KeptSession:
    row = listed.row
    return KeptSession(
        *(row.session_id, row.agent, row.cwd, row.title),
        created_at=in_utc(row.created_at),
        updated_at=in_utc(row.updated_at),
        status=listed.state,
        messages=row.message_count,
        tags=row.tags,
        archived=row.archived,
    )


def _usage(sums: UsageSum, groups: tuple[Usage, ...] = ()) -> Usage:
    name = sums.title or sums.name
    return Usage(name, sums.sessions, sums.tokens.total, {**sums.costs}, groups)


# -- opening --------------------------------------------------------------------------------------


@asynccontextmanager
async def open(where: str | os.PathLike[str] | None = None) -> AsyncIterator[KeptSessions]:
    """Read sessions in the block, without attaching to them.

        async with acphold.open() as history:
            async for session in history.sessions():
                print(session.updated_at, session.title)

    `where` is the path of a journal or the `postgresql://` URL of one; by default it is the journal
    that `acphold` uses. It is not created. Raises JournalError.
    """
    require_loop()
    name = journal_name(where)
    async with existing_journal(name) as journal:
        yield KeptSessions(LocalReader(journal, index_seconds=bounds.CATCH_UP_SECONDS), name)


def reader_of(history: KeptSessions) -> LocalReader:
    """Return the private part of a history: all that the commands need, and no release promises."""
    return history._reader
