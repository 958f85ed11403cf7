"""What a session remembers in its journal: the values its author keeps, and the conversation."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, MutableMapping
from math import isfinite
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Raw, Struct

from acphold.errors import DeclarationError
from acphold.history.entries import PROMPT, TURN_END
from acphold.history.fold import EMPTY, fold
from acphold.journal.journal import history

if TYPE_CHECKING:
    from acphold.history import SessionState
    from acphold.journal import Journal
    from acphold.library.outbox import Outbox

STORE = "store"
"""The kind of journal entry that keeps a value; its body is a `_Kept`. No client is shown it."""


class _Kept(Struct, omit_defaults=True):
    """`value` replaces what the key had, `item` is added to its list; without both it is gone."""

    key: str
    value: Raw = Raw()
    item: Raw = Raw()


_decode = msgspec.json.Decoder(_Kept).decode


def encoded(value: Any) -> bytes:
    """`value` as JSON; TypeError for what JSON cannot hold.

    That is what would come back as something else: bytes, dates, sets, objects; keys that are no
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
                    raise TypeError(f"JSON cannot hold the key {key!r}: keys are strings")
                _check(item, f"{where}[{key!r}]")
        case _:
            found = value if isinstance(value, float) else f"a {type(value).__name__}"
            raise TypeError(f"JSON cannot hold {found}{where and ', which is at '}{where}")


class Store(MutableMapping[str, Any]):
    """JSON values that live as long as the session: `session.store["key"] = value`.

    A value is written when it is set and read anew each time it is asked for: changing a list
    that was read changes nothing, setting it does. For lists that grow there is `append`.
    TypeError, at the line that set it, for what JSON cannot hold: it would come back as something
    else.
    """

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self._values: dict[str, bytes | list[bytes]] = {}

    def __getitem__(self, key: str) -> Any:
        value = self._values[key]
        if isinstance(value, list):
            value = b"[%b]" % b",".join(value)
        return msgspec.json.decode(value)

    def __setitem__(self, key: str, value: Any) -> None:
        raw = encoded(value)
        self._keep(_Kept(key, value=Raw(raw)))
        self._values[key] = raw

    def __delitem__(self, key: str) -> None:
        del self._values[key]
        self._keep(_Kept(key))

    def __iter__(self) -> Iterator[str]:
        return iter(tuple(self._values))

    def __len__(self) -> int:
        return len(self._values)

    def append(self, key: str, item: Any) -> None:
        """Add `item` to the list under `key`, which is made if it is missing.

        Only the item is written, however long the list is. DeclarationError when something else
        than a list is there.
        """
        raw, items = encoded(item), self._list(key)
        self._keep(_Kept(key, item=Raw(raw)))
        items.append(raw)
        self._values[key] = items

    async def save(self) -> None:
        """Wait until everything that was set is in the journal; raises JournalError.

        The end of a turn does it too. What a hook sets while a session opens is written once the
        session is open; this does not wait for it there.
        """
        await self._outbox.flush()

    def restore(self, raw: bytes) -> None:
        """Take over one journalled entry."""
        entry = _decode(raw)
        if value := bytes(entry.value):
            self._values[entry.key] = value
        elif item := bytes(entry.item):
            items = self._values[entry.key] = self._list(entry.key)
            items.append(item)
        else:
            self._values.pop(entry.key, None)

    def _list(self, key: str) -> list[bytes]:
        """The items under `key`; none if it is missing."""
        value = self._values.get(key, [])
        if isinstance(value, list):
            return value
        if not value.startswith(b"["):
            raise DeclarationError(f"the store has no list under {key!r} to append to")
        return [bytes(known) for known in msgspec.json.decode(value, type=list[Raw])]

    def _keep(self, entry: _Kept) -> None:
        if not isinstance(entry.key, str):
            raise TypeError(f"keys of the store are strings, not {entry.key!r}")
        try:
            raw = msgspec.json.encode(entry)
        except UnicodeEncodeError as exc:
            raise TypeError(f"the store cannot keep the key {entry.key!r}: {exc}") from None
        self._outbox.keep(STORE, raw)


class History:
    """One session's entries, folded as far as somebody wanted to know.

    Most turns never ask, and a long one is cheaper to read when it has been compacted.
    """

    def __init__(self, journal: Journal, session_id: str) -> None:
        self._journal = journal
        self._session_id = session_id
        self._state = EMPTY
        self._folded = 0
        self._reading = asyncio.Lock()

    async def read(self) -> SessionState:
        """The conversation up to the prompt that is answered now, or to its end between turns."""
        async with self._reading:
            news = history(self._journal, self._session_id, self._folded)
            entries = [entry async for segment in news for entry in segment.entries()]
            for index in range(len(entries) - 1, -1, -1):
                if entries[index].kind == TURN_END:
                    break
                if entries[index].kind == PROMPT:  # the one that is answered now
                    del entries[index:]
                    break
            if entries:
                self._state = fold(entries, self._state)
                self._folded = entries[-1].seq
            return self._state

    async def restore(self, store: Store) -> bytes | None:
        """Put what was kept into `store`; the commands the client was last shown, a JSON array."""
        async for segment in history(self._journal, self._session_id):
            if segment.kind == STORE:
                for raw in segment.raw.split(b"\n"):
                    store.restore(raw)
        return (await self._journal.summary(self._session_id)).attributes.commands
