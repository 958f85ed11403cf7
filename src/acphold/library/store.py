"""The values that an author keeps with a session, in its journal."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from math import isfinite
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Raw, Struct

from acphold.errors import DeclarationError

if TYPE_CHECKING:
    from acphold.library.outbox import Outbox

STORE = "store"
"""The kind of journal entry that keeps a value, a `_StoredChange`. No client is shown it."""


class _StoredChange(Struct, omit_defaults=True):
    """`value` replaces the key's value, `item` is added to its list; without both, the key goes."""

    key: str
    value: Raw = Raw()
    item: Raw = Raw()


_decode = msgspec.json.Decoder(_StoredChange).decode


def to_json(value: Any) -> bytes:
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

    You read copies: to change a value, set it again; use `append` for lists that grow. A value that
    would not come back from JSON the same raises TypeError when it is set.
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
        raw = to_json(value)
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

        Only the item is written. DeclarationError if the value there is not a list.
        """
        raw, items = to_json(item), self._list(key)
        self._keep(_StoredChange(key, item=Raw(raw)))
        items.append(raw)
        self._values[key] = items

    async def save(self) -> None:
        """Wait until all values that were set are in the journal; raises JournalError.

        The end of a turn does so too. In a hook that opens a session it does not wait: values are
        written once the session is open.
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
