"""JSON objects as the bytes of their members: read one, change another, keep or pare the rest.

Messages that acphold only forwards are not decoded and encoded again, so that unknown fields
survive byte for byte.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from msgspec import DecodeError, MsgspecError, Raw, Struct
from msgspec.json import Decoder, decode, encode

from acp_wire.errors import InvalidParamsError

T = TypeVar("T")

_OBJECT = Decoder(dict[str, Raw])
_ARRAY = Decoder(list[Raw])

UNREADABLE = (DecodeError, UnicodeDecodeError, RecursionError)
"""Exceptions of msgspec for bytes that it cannot read."""


def members(raw: bytes) -> dict[str, bytes]:
    """Return the members of a JSON object, in order: decoded name to the bytes of the value.

    For a repeated name, the last value. Raises InvalidParamsError if `raw` is no object.
    """
    try:
        return {name: bytes(value) for name, value in _OBJECT.decode(raw).items()}
    except UNREADABLE as error:
        raise InvalidParamsError(str(error), "$") from None


def items(raw: bytes) -> list[bytes]:
    """Return the items of a JSON array, as bytes; raises InvalidParamsError if it is none."""
    try:
        return [bytes(item) for item in _ARRAY.decode(raw)]
    except UNREADABLE as error:
        raise InvalidParamsError(str(error), "$") from None


def json_value(raw: bytes | None, kind: type[T]) -> T | None:
    """Return the value of this kind that `raw` is, or None."""
    try:
        return None if raw is None else decode(raw, type=kind)
    except UNREADABLE:
        return None


def array(items: Sequence[bytes]) -> bytes:
    """Return a JSON array of items that are JSON already."""
    return b"[" + b",".join(items) + b"]"


def in_meta(raw: bytes, key: str) -> bytes | None:
    """Return the value of this key in the `_meta` of the object `raw`; None if there is none."""
    meta = members(raw).get("_meta", b"")
    return members(meta).get(key) if meta.startswith(b"{") else None


def without_meta(raw: bytes, *keys: str) -> bytes:
    """Return the object `raw` without these keys in its `_meta`, and without an empty one."""
    meta = splice(members(raw).get("_meta", b"{}"), dict.fromkeys(keys))
    return splice(raw, {"_meta": meta if members(meta) else None})


def with_meta(raw: bytes, key: str, value: bytes) -> bytes:
    """Return the object `raw` with this key in its `_meta`, replacing a `_meta` that is no
    object.
    """
    meta = members(raw).get("_meta", b"")
    return splice(raw, {"_meta": splice(meta if meta.startswith(b"{") else b"{}", {key: value})})


def splice(raw: bytes, replacements: Mapping[str, bytes | None]) -> bytes:
    """Return the object `raw` with these members replaced in place, appended, or removed (None).

    The values of all other members keep their bytes and their order; white space between members is
    dropped. Raises InvalidParamsError if `raw` is no object.
    """
    try:
        found = _OBJECT.decode(raw)
    except UNREADABLE as error:
        raise InvalidParamsError(str(error), "$") from None
    for name, value in replacements.items():
        if value is None:
            found.pop(name, None)
        else:
            found[name] = Raw(value)
    return encode(found)


class _About(Struct, gc=False):
    sessionId: str | None = None


_decode = Decoder(_About).decode
_text = Decoder(str).decode


def session_id_in(message: bytes) -> str | None:
    """Return the `sessionId` of params or a result; None if there is none, or it is no text.

    If it occurs twice the last one counts, as for everybody who acts on the message: the first may
    have a wrong type, and must not hide anything.
    """
    try:
        return _decode(message or b"{}").sessionId
    except (MsgspecError, UnicodeDecodeError, RecursionError):
        pass
    try:
        return _text(members(message).get("sessionId", b"null"))
    except (InvalidParamsError, MsgspecError, UnicodeDecodeError):
        return None


class Variant(Struct, frozen=True):
    """An object that may stand in a place: the member that tells it, with its value, and the types
    of its members, by name."""

    tag_field: str | None
    tag: object
    hints: Mapping[str, object]


class JsonShape(Struct, frozen=True):
    """The values that may stand in a place: a list of these items, None for no list; one of these
    objects; and with `is_free` anything."""

    item: object
    variants: tuple[Variant, ...]
    is_free: bool


class Paring(Struct):
    """Leaves out of a JSON value what its type does not know, with the names of that in `left_out`.

    `shape_of` returns the shape of a type, `stays` True for a member of a `_meta` that may always
    be there. A type that is a dict is that of a `_meta`: the types of its members. Raises
    InvalidParamsError for more than `most` values: each takes some microseconds, in which nobody
    else is served.
    """

    shape_of: Callable[[object], JsonShape]
    stays: Callable[[str, bytes], bool]
    most: int
    left_out: list[str] = []
    _values: int = 0

    def pare(self, hint: object, raw: bytes, path: str = "") -> bytes:
        """Return a value of this type, pared."""
        raw = raw.strip()
        if isinstance(hint, dict):
            return self._pare_meta(hint, raw, path) or b"null"
        shape = self.shape_of(hint)
        is_object, is_list = raw.startswith(b"{"), raw.startswith(b"[")
        if is_object and shape.variants:
            return self._pare_object(shape.variants, raw, path)
        if is_list and shape.item is not None:
            given = items(raw)
            self._count(given)
            return array(
                [self.pare(shape.item, it, f"{path}[{at}]") for at, it in enumerate(given)]
            )
        if (is_object or is_list) and not shape.is_free:
            self.left_out.append(path)  # the protocol has something plain in this place
            return b"null"
        return raw

    def _pare_object(self, variants: Sequence[Variant], raw: bytes, path: str) -> bytes:
        given = members(raw)
        self._count(given)
        fits = [
            it
            for it in variants
            if it.tag_field and json_value(given.get(it.tag_field), str) == it.tag
        ]
        fits = fits or [it for it in variants if it.tag_field is None]
        hints: dict[str, object] = {}
        for each in fits:
            hints |= each.hints
        kept: dict[str, bytes | None] = {}
        for name, value in given.items():
            here = f"{path}.{name}" if path else name
            if name == "_meta":
                kept[name] = self._pare_meta(hints.get(name), value, here)
            elif name in hints:
                kept[name] = self.pare(hints[name], value, here)
            elif fits:
                self.left_out.append(here)
            else:
                kept[name] = value  # of a variant newer than this release
        return splice(b"{}", kept)

    def _pare_meta(self, hint: object, raw: bytes, path: str) -> bytes | None:
        """Return the `_meta` of an object, pared; None if nothing is left of it."""
        if not raw.strip().startswith(b"{"):
            return None
        given = members(raw)
        self._count(given)
        known: dict[str, object] = {}
        if isinstance(hint, dict):
            known = hint
        elif hint is not None:
            for each in self.shape_of(hint).variants:
                known |= each.hints
        kept: dict[str, bytes | None] = {}
        for name, value in given.items():
            here = f"{path}.{name}"
            if self.stays(name, value):
                kept[name] = value
            elif name in known:
                kept[name] = self.pare(known[name], value, here)
            else:
                self.left_out.append(here)
        return splice(b"{}", kept) if kept else None

    def _count(self, found: Mapping[str, bytes] | Sequence[bytes]) -> None:
        self._values += len(found)
        if self._values > self.most:
            problem = f"the message has more than {self.most:,} values; send it in parts"
            raise InvalidParamsError(problem, "$")
