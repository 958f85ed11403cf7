"""A session's memory in its journal: the values its author keeps, and the conversation."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterator, MutableMapping
from math import isfinite
from time import monotonic
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Raw, Struct

from acphold.errors import DeclarationError
from acphold.library import bounds
from acphold.record.history.entries import PROMPT, TURN_END, Entry
from acphold.record.history.fold import EMPTY, Fold
from acphold.record.journal.journal import history

if TYPE_CHECKING:
    from acphold.library.outbox import Outbox
    from acphold.record.history import SessionState
    from acphold.record.journal import Journal

STORE = "store"
"""The kind of journal entry that keeps a value, a `_StoredChange`. No client is shown it."""


class _StoredChange(Struct, omit_defaults=True):
    """`value` replaces the key's value, `item` is added to its list; without both, the key goes."""

    key: str
    value: Raw = Raw()
    item: Raw = Raw()


_decode = msgspec.json.Decoder(_StoredChange).decode


def encoded(value: Any) -> bytes:
    """Return `value` as JSON; TypeError for a value that JSON cannot hold.

    Such a value would come back as another one: bytes, dates, sets, objects; keys that are not
    strings; NaN and infinities; half a surrogate pair. A tuple comes back as a list.
    """
    try:
        _check(value, "")
        return msgspec.json.encode(value)
    except (UnicodeEncodeError, RecursionError) as exc:
        raise TypeError(f"JSON cannot hold this value: {exc}") from None


def _check(value: Any, where: str) -> None:
    match value:
        case None | bool() | int() | str():
            return
        case float() if isfinite(value):
            return
        case list() | tuple():
            for index, item in enumerate(value):
                _check(item, f"{where}[{index}]")
        case dict():
            for key, item in value.items():
                if not isinstance(key, str):
                    raise TypeError(f"JSON cannot hold the key {key!r}: keys must be strings")
                _check(item, f"{where}[{key!r}]")
        case _:
            kind = value if isinstance(value, float) else f"a {type(value).__name__}"
            place = f" at {where}" if where else ""
            raise TypeError(f"JSON cannot hold {kind}{place}")


class Store(MutableMapping[str, Any]):
    """JSON values that live as long as the session: `session.store["key"] = value`.

    A value is written when it is set and decoded anew each time it is read: changing a list
    that was read changes nothing, setting it does. Use `append` for lists that grow.
    A value that JSON cannot hold, and that would come back as another one, raises TypeError at the
    line that sets it.
    """

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self._values: dict[str, bytes | list[bytes]] = {}

    def __repr__(self) -> str:
        return f"<Store with {', '.join(map(repr, self)) or 'nothing'}>"

    def __getitem__(self, key: str) -> Any:
        value = self._values[key]
        if isinstance(value, list):
            value = b"[%b]" % b",".join(value)
        return msgspec.json.decode(value)

    def __setitem__(self, key: str, value: Any) -> None:
        raw = encoded(value)
        self._keep(_StoredChange(key, value=Raw(raw)))
        self._values[key] = raw

    def __delitem__(self, key: str) -> None:
        del self._values[key]
        self._keep(_StoredChange(key))

    def __iter__(self) -> Iterator[str]:
        return iter(tuple(self._values))

    def __len__(self) -> int:
        return len(self._values)

    def append(self, key: str, item: Any) -> None:
        """Add `item` to the list under `key`, which is created if it is missing.

        Only the item is written, however long the list is. DeclarationError if the value there is
        not a list.
        """
        raw, items = encoded(item), self._list(key)
        self._keep(_StoredChange(key, item=Raw(raw)))
        items.append(raw)
        self._values[key] = items

    async def save(self) -> None:
        """Wait until all values that were set are in the journal; raises JournalError.

        The end of a turn does so too. Values that a hook sets while a session opens are written
        once the session is open; this does not wait for it there.
        """
        await self._outbox.flush()

    def restore(self, raw: bytes) -> None:
        """Apply one entry of the journal."""
        entry = _decode(raw)
        if value := bytes(entry.value):
            self._values[entry.key] = value
        elif item := bytes(entry.item):
            items = self._values[entry.key] = self._list(entry.key)
            items.append(item)
        else:
            self._values.pop(entry.key, None)

    def _list(self, key: str) -> list[bytes]:
        """Return the items under `key`; none if it is missing."""
        value = self._values.get(key, [])
        if isinstance(value, list):
            return value
        if not value.startswith(b"["):
            raise DeclarationError(
                f"cannot append to {key!r}: its value in the store is not a list"
            )
        return [bytes(known) for known in msgspec.json.decode(value, type=list[Raw])]

    def _keep(self, entry: _StoredChange) -> None:
        if not isinstance(entry.key, str):
            raise TypeError(f"keys of the store must be strings, not {entry.key!r}")
        try:
            raw = msgspec.json.encode(entry)
        except UnicodeEncodeError as exc:
            raise TypeError(f"the store cannot keep the key {entry.key!r}: {exc}") from None
        self._outbox.keep(STORE, raw)


class _Pace:
    """Lets other tasks run now and then, during long work."""

    def __init__(self) -> None:
        self._until = monotonic() + bounds.SLICE_SECONDS

    async def step(self) -> None:
        """Let other tasks run if the work has taken long enough."""
        if monotonic() >= self._until:
            await asyncio.sleep(0)
            self._until = monotonic() + bounds.SLICE_SECONDS


class History:
    """One session's entries, read and folded on request.

    Most turns never need them, and a long history is cheaper to read after it was compacted. A
    short conversation stays in memory for the next read, a long one does not.
    """

    def __init__(self, journal: Journal, session_id: str) -> None:
        self._journal = journal
        self._session_id = session_id
        self._state = EMPTY
        self._folded = 0
        self._bytes = 0
        self._reading = asyncio.Lock()

    async def read(self, last: int | None = None) -> SessionState:
        """Return the conversation up to the prompt being answered, or to its end between turns.

        With `last`, only that many of the newest turns; DeclarationError for less than one.
        """
        if last is not None:
            return await self._last(last)
        async with self._reading:
            pace, folding = _Pace(), Fold(self._state)
            folded, size = self._folded, self._bytes
            async for entry in self._finished(folded, pace):
                folding.add(entry)
                folded, size = entry.seq, size + len(entry.raw)
                await pace.step()
            state = folding.state()
            if size <= bounds.KEPT_BYTES:
                self._state, self._folded, self._bytes = state, folded, size
            else:
                self._state, self._folded, self._bytes = EMPTY, 0, 0
            return state

    async def _last(self, number: int) -> SessionState:
        if number < 1:
            raise DeclarationError(f"the number of last turns must be at least 1, not {number}")
        pace, folding = _Pace(), Fold()
        turns: deque[list[Entry]] = deque([[]], maxlen=number)
        async for entry in self._finished(0, pace):
            if entry.kind == PROMPT:
                turns.append([])
            turns[-1].append(entry)
            await pace.step()
        for turn in turns:
            for entry in turn:
                folding.add(entry)
                await pace.step()
        return folding.state()

    async def _finished(self, after: int, pace: _Pace) -> AsyncIterator[Entry]:
        """Yield the entries above `after`, up to the prompt that is being answered now.

        A turn's entries are held back until its end, or the next prompt, shows that it is over.
        """
        held: list[Entry] | None = None
        async for segment in history(self._journal, self._session_id, after):
            for entry in segment.entries():
                if entry.kind == PROMPT:
                    for earlier in held or ():
                        yield earlier
                    held = []
                if held is None:
                    yield entry
                    continue
                held.append(entry)
                await pace.step()
                if entry.kind == TURN_END:
                    for earlier in held:
                        yield earlier
                    held = None

    async def restore(self, store: Store) -> bytes | None:
        """Restore `store`; returns the commands last shown to the client, a JSON array."""
        pace = _Pace()
        async for segment in history(self._journal, self._session_id):
            if segment.kind == STORE:
                for raw in segment.raw.split(b"\n"):
                    store.restore(raw)
            await pace.step()
        return (await self._journal.summary(self._session_id)).attributes.commands
