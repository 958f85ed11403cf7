"""Small values that an author keeps with a session, in its journal."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Raw, Struct

from acphold.errors import DeclarationError

if TYPE_CHECKING:
    from acphold.library.outbox import Outbox

ALLOWED = "permission/"
"""What the keys begin with of the answers that are to hold for always."""

STORE = "store"
"""The kind of journal entry that keeps a value; its body is a `_Kept`. No client is shown it."""


class _Kept(Struct, omit_defaults=True):
    """`value` replaces what the key had, `item` is added to its list; without both it is gone."""

    key: str
    value: Raw = Raw()
    item: Raw = Raw()


_decode = msgspec.json.Decoder(_Kept).decode


class Store(MutableMapping[str, Any]):
    """JSON values that live as long as the session: `session.store["key"] = value`.

    A value is written when it is set and read anew each time it is asked for: changing a list
    that was read changes nothing, setting it does. For lists that grow there is `append`.
    TypeError for what is no JSON, at the line that set it.
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
        raw = msgspec.json.encode(value)
        self._values[key] = raw
        self._keep(_Kept(key, value=Raw(raw)))

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
        raw = msgspec.json.encode(item)
        self._grow(key, raw)
        self._keep(_Kept(key, item=Raw(raw)))

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
            self._grow(entry.key, item)
        else:
            self._values.pop(entry.key, None)

    def _grow(self, key: str, item: bytes) -> None:
        value = self._values.setdefault(key, [])
        if isinstance(value, bytes):
            if not value.startswith(b"["):
                raise DeclarationError(f"the store has no list under {key!r} to append to")
            value = [bytes(known) for known in msgspec.json.decode(value, type=list[Raw])]
            self._values[key] = value
        value.append(item)

    def _keep(self, entry: _Kept) -> None:
        self._outbox.keep(STORE, msgspec.json.encode(entry))
