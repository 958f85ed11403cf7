"""The tables of a journal over one connection, for the statements in this folder.

A statement names its tables with their schema, `acphold.sessions`, and has `%s` in the place of
each value; each store runs it as its database wants it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing
from functools import partial
from itertools import islice
from typing import Any, ClassVar, Final, Protocol, TypeAlias, TypeVar

from acphold.conversation.history.entries import (
    HEAD_BYTES,
    KINDS,
    LONG_BYTES,
    NEWLINE,
    PROMPT,
    TURN_END,
    UPDATE,
    Segment,
)
from acphold.conversation.history.fold import Fold, SessionState, Summary, fold
from acphold.conversation.history.raw_update import CHUNK_STARTS
from acphold.errors import UnknownSessionError
from acphold.journal import bounds
from acphold.journal.access import AccessChanges
from acphold.journal.journal import Identity, Lease, Outcomes
from acphold.journal.rows import ListFilter, ListKey, NewSession, SessionRow
from acphold.journal.stored_history import (
    END,
    FRAME,
    DamagedRowError,
    Settled,
    begun,
    going_on,
    messages,
    plain,
)

Key: TypeAlias = int | str
"""The key of a session in the tables of a store: its number, or its id."""


T = TypeVar("T")


def batches(values: Iterable[T], size: int = bounds.IDS_AT_ONCE) -> Iterator[tuple[T, ...]]:
    """Yield these values in pieces, such as ids for a statement each."""
    remaining = iter(values)
    while some := tuple(islice(remaining, size)):
        yield some


class Found(Protocol):
    """The result of a statement."""

    @property
    def rowcount(self) -> int:
        """The number of rows written."""

    def fetchone(self) -> Any:
        """The next row; None after the last."""

    def fetchall(self) -> list[Any]:
        """All other rows."""

    def __iter__(self) -> Iterator[Any]:
        """Yield all other rows."""

    def close(self) -> None:
        """Leave the other rows unread."""


CODES: Final = {kind: code for code, kind in enumerate(KINDS)}
"""The number of a kind in its row, for SQLite; 0, for updates, takes no byte at all, and nearly
every row is one."""

_NAMES: Final = dict(enumerate(KINDS))
"""The reverse of CODES; a row of any other kind has its name instead of a number."""


def lone_chunk(kind: int | str, last: str, form: str) -> str:
    """Return `LONE_CHUNK`, from SQL: the kind of updates, the number of a segment's `last` entry,
    and the `form` of bytes in hex."""
    spans = (
        f"raw >= {form.format(start.hex())} AND raw < {form.format((start + b'~').hex())}"
        for start in CHUNK_STARTS
    )
    return f"kind = {kind} AND first_seq = {last} AND ({' OR '.join(spans)})"


def segment_of_row(last: int, first: int, at: int, kind: Any, raw: bytes) -> Segment:
    """The segment in the columns `Tables.segment` of a row."""
    return Segment(first, last, _NAMES.get(kind, kind), at, plain(raw))


class Tables(ABC):
    """See the module. May raise the errors of its database."""

    KEY: ClassVar[str]
    """The column with the key of a session, in the tables of what belongs to one."""

    OWN_KEY: ClassVar[str]
    """The same in the table of sessions."""

    LINEAGE: ClassVar[str]
    """An expression for the era of the journal; NULL before the first one."""

    SHARED_WITH: ClassVar[str]
    """An expression for the tenants that a session is shared with, as a JSON object."""

    HANDED_ON: ClassVar[str] = ""
    """A condition for sessions that another agent had before, if these are found by an index."""

    LAST_OF_LINK: ClassVar[str]
    """Joins the last segment of the session of each link."""

    PLACE: ClassVar[Sequence[str]]
    """The columns of `place`: the primary key of a segment."""

    END: ClassVar[str]
    """The number of a segment's last entry."""

    ORDER: ClassVar[str]
    """The segments of one session are in the order of this."""

    IN_SPAN: ClassVar[str]
    """A condition for the segments in a `span`."""

    OF_SESSION: ClassVar[str]
    """A condition for the segments of the session in the row of a query around it."""

    CODES: ClassVar[Mapping[str, int]] = {}
    """The kinds that a segment has as a number."""

    LONE_CHUNK: ClassVar[str]
    """A condition for segments that hold nothing but one chunk, as most of a turn do."""

    FIRST: ClassVar[str] = " LIMIT 1"
    """Ends a query for one value: its first row counts."""

    LOCKING_LEASE: ClassVar[str] = ""
    """Appended to a query of leases: what it finds stands until the transaction ends."""

    LOCKING_LEASE_ALONE: ClassVar[str] = ""
    """The same, and nobody else has the lease locked."""

    LOCKING_ROW: ClassVar[str] = ""
    """Appended to a query of a session: nobody else changes its row until the transaction ends."""

    DELETED: ClassVar[str]
    """The table with the ids of deleted sessions; it may have others, too."""

    CHANGED: ClassVar[Sequence[str]] = ()
    """Assignments that mark the row of a session as changed, where a trigger does not."""

    TIME: ClassVar[str] = "%s"
    """A value for a time; None may stand for now."""

    SESSIONS_AT_ONCE: ClassVar[int] = bounds.IDS_AT_ONCE
    """Sessions that one transaction may add."""

    TOLD: ClassVar[str]
    """A statement that marks the row of the session with this key as changed."""

    NOTED: ClassVar[str]
    """A statement that notes in the log of changes that this kind and subject has changed."""

    @classmethod
    def segment(cls) -> str:
        """The columns of a segment, for `segment_of_row`."""
        return f"{cls.END}, first_seq, at, kind, raw"

    @classmethod
    def begun_segment(cls) -> str:
        """The columns of a segment of which a long update need not be whole, for `_begun`."""
        kind = repr(cls.CODES.get(UPDATE, UPDATE))
        return (
            f"{cls.END}, first_seq, at, kind, CASE WHEN kind = {kind} AND length(raw) >"
            f" {LONG_BYTES} THEN substr(raw, 1, {HEAD_BYTES}) ELSE raw END, length(raw)"
        )

    @classmethod
    def last_seq(cls) -> str:
        """An expression for the number of a session's last entry; 0 if it has none."""
        return (
            f"coalesce((SELECT {cls.END} FROM acphold.segments WHERE {cls.OF_SESSION}"
            f" ORDER BY {cls.ORDER} DESC{cls.FIRST}), 0)"
        )

    @classmethod
    def last_end(cls) -> str:
        """An expression for the end of a session's last turn, as its row stores it; NULL if that
        has not ended. Both databases go backwards and stop at the first; to sort again, they would
        read all that may be behind it."""
        prompt, end = (repr(cls.CODES.get(kind, kind)) for kind in (PROMPT, TURN_END))
        return f"""(
            SELECT CASE WHEN kind = {end} THEN raw END FROM (
                SELECT kind, raw FROM acphold.segments WHERE {cls.OF_SESSION}
                ORDER BY {cls.ORDER} DESC LIMIT {bounds.SEGMENTS_BEHIND_A_TURN}
            ) AS behind WHERE kind IN ({prompt}, {end}){cls.FIRST}
        )"""

    @abstractmethod
    def refuse_newer(self) -> None:
        """Raise NewerJournalError if a newer release has upgraded the journal."""

    @abstractmethod
    def identity(self) -> Identity:
        """Like `Journal.identity`."""

    @abstractmethod
    def execute(self, statement: str, values: Sequence[Any] | Mapping[str, Any] = ()) -> Found:
        """Execute a statement; with a mapping, `%(name)s` stands for each value."""

    @abstractmethod
    def executemany(self, statement: str, rows: Iterable[Sequence[Any]]) -> int:
        """Execute a statement for each of these; return the number of rows written."""

    @abstractmethod
    def access_changes(self, after: str | None) -> AccessChanges:
        """Like `Access.changes`."""

    @abstractmethod
    def among(self, column: str, name: str) -> str:
        """A condition: the value of a column is in the `array` of this name."""

    @abstractmethod
    def each(self, name: str) -> str:
        """A query for the texts in the `array` of this name, each as `it`."""

    @abstractmethod
    def array(self, values: Iterable[int | str]) -> object:
        """These values as one parameter of a statement."""

    @abstractmethod
    def reading(self) -> AbstractContextManager[object]:
        """All reads in a block see the journal as of one moment."""

    @abstractmethod
    def writing(self) -> AbstractContextManager[object]:
        """A transaction that writes, for the length of a block."""

    @abstractmethod
    def now(self) -> int:
        """The time in ms since the epoch."""

    @abstractmethod
    def own_key(self, session_id: str, number: int) -> Key:
        """The key of a session, from its id and the journal's number of it."""

    def key(self, lease: Lease) -> Key:
        """The key of the session of a lease."""
        return self.own_key(lease.session_id, lease.number)

    def find_settled(self, session_id: str) -> tuple[Any, int]:
        """The key of a session, and its last settled entry; raises UnknownSessionError."""
        row = self.execute(
            f"SELECT {self.OWN_KEY}, settled_through FROM acphold.sessions WHERE session_id = %s",
            (session_id,),
        ).fetchone()
        if row is None:
            raise UnknownSessionError(session_id)
        return row[0], row[1]

    @abstractmethod
    def day(self, wanted: str, values: dict[str, Any]) -> tuple[str, Mapping[str, str]]:
        """The day of `slot` of the sums, or of `updated_at` without a slot, in SQL, as this process
        counts days, and the names of days that it calls otherwise. May add to the `values` of
        `wanted`, a condition for the sessions in question."""

    @abstractmethod
    def place(self, key: Any, seq: int) -> tuple[int | str, ...]:
        """The primary key of the segment of a session that ends with this entry."""

    @abstractmethod
    def span(self, key: Any, first: int, last: int) -> tuple[int | str, ...]:
        """The values of IN_SPAN for the segments of a session that end from `first` to `last`."""

    @abstractmethod
    def segments(self, key: Any) -> KeptSegments:
        """The segments of a session."""

    @abstractmethod
    def rows_with(
        self, places: Sequence[tuple[Any, int]]
    ) -> Generator[tuple[Any, ...], None, None]:
        """Yield the row of a segment with each of these entries, by the keys of their sessions and
        their numbers; before it the row with the entry before, if that names an author. Each begins
        with the place of the entry in question. It is closed after use, and one row in memory."""

    @abstractmethod
    def keep_settled_state(self, key: Any, settled: Settled) -> None:
        """Store the settled state of a session, replacing the former one."""

    def update(self, key: Key, parts: Sequence[str], values: Sequence[object]) -> None:
        """Change the row of a session by SQL assignments, if there are any."""
        if parts:
            changes = ", ".join([*parts, *self.CHANGED])
            self.execute(
                f"UPDATE acphold.sessions SET {changes} WHERE {self.OWN_KEY} = %s", (*values, key)
            )

    @abstractmethod
    def create(self, new: NewSession) -> Key:
        """Insert a session without an owner; raises SessionExistsError."""

    @abstractmethod
    def link(self, agent: str, downstream_id: str, key: Any) -> None:
        """Make `downstream_id` the newest id of a session; None makes a tombstone."""

    @abstractmethod
    def page(
        self,
        filter: ListFilter,
        after: ListKey | None,
        limit: int,
        outcomes: Outcomes | None = None,
        *,
        counted: bool = True,
    ) -> list[SessionRow]:
        """Like `Journal.page`, with unsettled messages if `counted`."""

    def tell(self, session_id: str) -> Key:
        """Mark the row of a session as changed, for followers of the list; return its key. Raises
        UnknownSessionError."""
        key: Key = self.find_settled(session_id)[0]
        self.execute(self.TOLD, (key,))
        return key


class KeptSegments(ABC):
    """The rows of one session's segments."""

    def __init__(self, tables: Tables, key: Key) -> None:
        self._tables = tables
        self._key = key

    def read(
        self,
        after: int,
        limit_bytes: int,
        through: int = END,
        *,
        lone_chunks: bool = True,
        brief: int | None = None,
    ) -> list[Segment]:
        """Return segments that end above `after` and not above `through`, oldest first.

        Unless `lone_chunks` are asked for, it leaves out most that hold nothing but one chunk. For
        `brief` see `Entries.read`; it is the number of the last settled entry.
        Returns about `limit_bytes`, but at least one segment if there is one; none from a damaged
        one on. Raises DamagedRowError if the first is damaged.
        """
        found: list[Segment] = []
        try:
            found.extend(self._next(after, limit_bytes, through, lone_chunks, brief))
        except DamagedRowError:
            if not found:  # otherwise those before it were added
                raise
        return found

    @abstractmethod
    def _next(
        self, after: int, limit_bytes: int, through: int, lone_chunks: bool, brief: int | None
    ) -> Iterator[Segment]:
        """Yield what `read` returns; raises DamagedRowError."""

    def _columns(self, brief: int | None) -> tuple[str, Callable[..., Segment]]:
        """Return the columns to read, and what makes a segment of them."""
        if brief is None:
            return self._tables.segment(), segment_of_row
        return self._tables.begun_segment(), partial(self._begun, brief)

    def _begun(
        self, settled: int, last: int, first: int, at: int, kind: Any, raw: bytes, length: int
    ) -> Segment:
        """Return a segment; a long update only begun, if that can be read."""
        is_whole = len(raw) == length
        if is_whole and (_NAMES.get(kind, kind) != UPDATE or not raw.startswith(FRAME)):
            return segment_of_row(last, first, at, kind, raw)
        head, size = begun(raw, length)
        # Settled entries of that length have a row to themselves.
        if size > LONG_BYTES and (first == last or last <= settled) and NEWLINE not in head:
            # Late, for a quick start.
            from acphold.conversation.history.beginnings import beginning

            cut = beginning(head, size)
            if cut is not None:
                return Segment(first, last, UPDATE, at, cut)
        if not is_whole:
            (raw,) = self._select("raw", last, last).fetchone()
        return segment_of_row(last, first, at, kind, raw)

    def read_all(self, after: int) -> Iterator[Segment]:
        """Yield all segments that end above `after`, oldest first, with some in memory at a
        time."""
        while found := self.read(after, bounds.READ_BYTES):
            yield from found
            after = found[-1].last_seq

    def backwards(
        self, through: int, kinds: Sequence[str] = (), *, brief: int | None = None
    ) -> Iterator[Segment]:
        """Yield the segments that end by `through`, newest first; of these kinds, if any are
        named. For `brief` see `read`."""
        while found := self.read_back(through, bounds.BACK_SEGMENTS, kinds, brief=brief):
            yield from reversed(found)
            through = found[0].first_seq - 1

    def tail(self, after: int, limit_bytes: int) -> list[Segment]:
        """Return the last segments that end above `after`, about `limit_bytes`, oldest first."""
        found: list[Segment] = []
        for segment in self.backwards(END):
            if segment.last_seq <= after or limit_bytes <= 0:
                break
            found.append(segment)
            limit_bytes -= len(segment.raw)
        return found[::-1]

    def summary(self, kept: Summary, after: int, limit_bytes: float) -> Summary | None:
        """Combine the summary kept at `after` with the entries after it; None if it has to read
        `limit_bytes` for that."""
        folding = Fold(going_on(kept))
        # Chunks add to the timeline alone. The database passes over those that have a row each.
        while found := self.read(after, bounds.READ_BYTES, lone_chunks=False):
            after = found[-1].last_seq
            for segment in found:
                limit_bytes -= len(segment.raw)
                if not all(raw.startswith(CHUNK_STARTS) for raw in segment.raw.split(b"\n")):
                    for entry in segment.entries():
                        folding.add(entry)
            if limit_bytes <= 0:
                return None
        return folding.summary()

    def late_context(self, settled: int) -> SessionState:
        """The state after the last segments up to `settled`, as far as it matters for a late chunk
        of a message that is already counted."""
        before = self.read_back(settled, bounds.CONTEXT_SEGMENTS)
        entries = [entry for segment in before for entry in segment.entries()]
        return fold(entries[-bounds.CONTEXT_ENTRIES :])

    def messages_after(self, settled: int) -> int:
        """The number of messages after `settled`: of a running turn, or of one that a crash cut
        off."""
        before, found = self.late_context(settled), self.read(settled, bounds.COUNTED_BYTES)
        state = fold((entry for segment in found for entry in segment.entries()), before)
        return messages(state) - messages(before)

    def read_back(
        self, through: int, limit: int, kinds: Sequence[str] = (), *, brief: int | None = None
    ) -> list[Segment]:
        """Return the last `limit` segments that end by `through`, oldest first; of these kinds, if
        any are named. For `brief` see `read`."""
        codes = [self._tables.CODES.get(kind, kind) for kind in kinds]
        of_kinds = f" AND kind IN ({', '.join(['%s'] * len(codes))})" if codes else ""
        order = f"{of_kinds} ORDER BY {self._tables.ORDER} DESC LIMIT %s"
        columns, made = self._columns(brief)
        rows = self._select(columns, 0, through, order, *codes, limit)
        return [made(*row) for row in reversed(rows.fetchall())]

    def size(self, after: int) -> int:
        """The stored bytes of the segments that end above `after`."""
        (size,) = self._select("coalesce(sum(length(raw)), 0)", after + 1, END).fetchone()
        return int(size)

    def have(self, kind: str, after: int) -> bool:
        """True if segments of this kind end above `after`."""
        code = self._tables.CODES.get(kind, kind)
        found = self._select("1", after + 1, END, " AND kind = %s LIMIT 1", code)
        return found.fetchone() is not None

    def is_alone(self, seq: int) -> bool:
        """True if an entry has a row to itself, and stands for no other number."""
        row = self._select("first_seq", seq, seq).fetchone()
        return row is not None and bool(row[0] == seq)

    def row_with(self, seq: int) -> tuple[int, int, bytes]:
        """The row that holds an entry: its last number, its first, and the bytes that it stores."""
        rest = f" ORDER BY {self._tables.ORDER} LIMIT 1{self._tables.LOCKING_ROW}"
        found = self._select(f"{self._tables.END}, first_seq, raw", seq, END, rest)
        row: tuple[int, int, bytes] = found.fetchone()
        return row

    def rows(self, after: int, through: int) -> Iterator[tuple[int, int, bytes]]:
        """Yield the last number, the time and the stored bytes of the next rows, some at least."""
        columns, order = f"{self._tables.END}, at, raw", f" ORDER BY {self._tables.ORDER} LIMIT %s"
        # An unfinished statement would keep SQLite's write-ahead log from starting over.
        with closing(self._select(columns, after + 1, through, order, bounds.PACKED_ROWS)) as rows:
            yield from rows

    def _select(
        self, columns: str, first: int, last: int, rest: str = "", *values: object
    ) -> Found:
        """The rows of the segments that end from `first` to `last`; `rest` ends the statement."""
        return self._tables.execute(
            f"SELECT {columns} FROM acphold.segments WHERE {self._tables.IN_SPAN}{rest}",
            (*self._tables.span(self._key, first, last), *values),
        )

    def insert(self, segments: Iterable[Segment]) -> None:
        """Write the rows of segments."""
        columns = (*self._tables.PLACE, "first_seq", "at", "kind", "raw")
        self._tables.executemany(
            f"INSERT INTO acphold.segments ({', '.join(columns)})"
            f" VALUES ({', '.join(['%s'] * len(columns))})",
            [
                (
                    *self._tables.place(self._key, it.last_seq),
                    *(it.first_seq, it.at, self._tables.CODES.get(it.kind, it.kind), it.raw),
                )
                for it in segments
            ],
        )

    def remove(self, segments: Iterable[Segment]) -> None:
        """Delete the rows of segments."""
        spans: list[tuple[int, int]] = []
        for it in segments:  # most follow each other
            if spans and spans[-1][1] == it.first_seq - 1:
                spans[-1] = spans[-1][0], it.last_seq
            else:
                spans.append((it.last_seq, it.last_seq))
        self._tables.executemany(
            f"DELETE FROM acphold.segments WHERE {self._tables.IN_SPAN}",
            [self._tables.span(self._key, *span) for span in spans],
        )

    def rewrite(self, rows: Iterable[tuple[bytes, int, int]]) -> None:
        """Store other bytes in rows, by their last numbers, if their length still is the one
        given."""
        place = " AND ".join(f"{column} = %s" for column in self._tables.PLACE)
        self._tables.executemany(
            f"UPDATE acphold.segments SET raw = %s WHERE {place} AND length(raw) = %s",
            [(raw, *self._tables.place(self._key, seq), length) for raw, seq, length in rows],
        )
