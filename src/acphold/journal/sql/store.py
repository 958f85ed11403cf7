"""The part of a journal in SQL that is the same in both databases."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Mapping
from functools import cached_property
from typing import Any, Concatenate, ParamSpec, TypeVar

from acphold.errors import UnknownSessionError
from acphold.journal.access import Access
from acphold.journal.in_file import InFile
from acphold.journal.journal import Journal, Links
from acphold.journal.snapshots import Snapshots
from acphold.journal.sql import access_rows, history, link_rows, session_rows, snapshot_rows
from acphold.journal.sql.tables import Tables
from acphold.journal.transcripts import Transcripts

T = TypeVar("T")
P = ParamSpec("P")


def asked(
    question: Callable[Concatenate[Tables, P], T],
) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]:
    """Make a method of a quick question, which writes nothing."""

    async def method(its: Any, /, *args: P.args, **named: P.kwargs) -> T:
        answer: T = await its._asked(lambda tables: question(tables, *args, **named))
        return answer

    return method


def at_one_moment(
    question: Callable[Concatenate[Tables, P], T],
) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]:
    """Make a method of a question whose statements all see the journal as of one moment."""

    async def method(its: Any, /, *args: P.args, **named: P.kwargs) -> T:
        answer: T = await its._at_one_moment(lambda tables: question(tables, *args, **named))
        return answer

    return method


def written(
    work: Callable[Concatenate[Tables, P], T],
) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]:
    """Make a method of work that is a transaction."""

    async def method(its: Any, /, *args: P.args, **named: P.kwargs) -> T:
        done: T = await its._written(lambda tables: work(tables, *args, **named))
        return done

    return method


class SqlJournal(Journal, ABC):
    """See the module; a store has the rest of `Journal`."""

    file: InFile | None = None
    _transcripts: Transcripts
    _cursor_secret: bytes | None = None

    @abstractmethod
    async def _asked(self, question: Callable[[Tables], T]) -> T:
        """Return the answer to a quick question, which writes nothing."""

    @abstractmethod
    async def _at_one_moment(self, question: Callable[[Tables], T]) -> T:
        """Return the answer to a question whose statements all see the journal as of one moment."""

    @abstractmethod
    async def _written(self, work: Callable[[Tables], T]) -> T:
        """Run `work` in a transaction, all or nothing; return its result."""

    async def cursor_secret(self) -> bytes:
        def secret(tables: Tables) -> bytes:
            statement = "SELECT value FROM acphold.meta WHERE name = 'cursor_secret'"
            return bytes(tables.execute(statement).fetchone()[0])

        if self._cursor_secret is None:
            self._cursor_secret = await self._asked(secret)
        return self._cursor_secret

    session = asked(session_rows.find)
    resolve = asked(session_rows.resolve)
    short_ids = asked(session_rows.short_ids)
    count = asked(session_rows.count)
    change = written(session_rows.change)

    read = at_one_moment(history.read)
    read_back = at_one_moment(history.read_back)
    is_exact = at_one_moment(history.is_exact)
    summary = at_one_moment(history.summary)

    async def complete(self, session_id: str) -> None:
        try:
            row = await self.session(session_id)
        except UnknownSessionError:
            return
        if row.is_unread:
            await self._transcripts.read(session_id)

    @cached_property
    def links(self) -> Links:
        return SqlLinks(self)

    @cached_property
    def access(self) -> Access:
        return SqlAccess(self)

    @cached_property
    def snapshots(self) -> Snapshots:
        return SqlSnapshots(self)


class Part:
    """A part of a journal that is an object of its own."""

    def __init__(self, journal: SqlJournal) -> None:
        self._asked = journal._asked
        self._at_one_moment = journal._at_one_moment
        self._written = journal._written


class SqlLinks(Part, Links):
    """The links of a journal."""

    link = written(link_rows.link)
    linked = asked(link_rows.linked)
    of = at_one_moment(link_rows.of)
    last_entries = at_one_moment(link_rows.last_entries)

    async def went_on(self, agent: str, times: Mapping[str, int]) -> None:
        if later := await self._asked(lambda tables: link_rows.used_later(tables, agent, times)):
            await self._written(lambda tables: link_rows.move_up(tables, later))


class SqlAccess(Part, Access):
    """The tokens, deeds, shares and rules of a journal."""

    tokens = asked(access_rows.tokens)
    keep_token = written(access_rows.keep_token)
    shares = asked(access_rows.shares)
    keep_share = written(access_rows.keep_share)
    end_share = written(access_rows.end_share)
    deeds = asked(access_rows.deeds)
    keep_deeds = written(access_rows.keep_deeds)
    rules = asked(access_rows.rules)
    add_rule = written(access_rows.add_rule)
    change_rules = written(access_rows.change_rules)


class SqlSnapshots(Part, Snapshots):
    """The snapshots of a journal."""

    keep = written(snapshot_rows.keep)
    of = asked(snapshot_rows.of)
    newest = asked(snapshot_rows.newest)
    named = asked(snapshot_rows.named)
    drop = written(snapshot_rows.drop)
