"""The slow path of decoding: JSON that msgspec refuses, values that the decoder refuses.

msgspec rejects a lone half of a surrogate pair ("\\ud83d"), even in parts that it only skips.
Programs that cut text between UTF-16 units send such escapes, and JSON's grammar allows them.

A value that the strict decoder refuses is put together from its parts. This works on bytes, not on
decoded values: valid parts are still decoded strictly, and an unknown variant keeps its very bytes.
A part is read once for each level of nesting, of which types have few.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from types import NoneType, UnionType
from typing import Annotated, TypeVar, Union, get_args, get_origin, get_type_hints

from msgspec import Raw, Struct, UnsetType, to_builtins
from msgspec.structs import FieldInfo, fields as struct_fields

from acp_wire.errors import InvalidParamsError
from acp_wire.schema.shapes import REFUSED, Lenience, Otherwise, decoder
from acp_wire.schema.splice import items, members

P = TypeVar("P")

HALF = re.compile(
    rb"\\u[dD](?:[89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])"  # a first half without a second
    rb"|(?<!\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD])[c-fC-F][0-9a-fA-F]{2})"  # and the reverse
)
"""Half a pair, where each backslash begins an escape. The pattern begins with plain letters and
its replacement is plain, too: both save much time where there are a million halves."""

ESCAPED, HIDDEN = rb"\\", b"\xff\xff"
"""An escaped backslash, and bytes of the same length that no UTF-8 has."""


def repair(raw: bytes) -> bytes:
    """Return JSON with U+FFFD for halves of surrogate pairs and for bytes that are not UTF-8."""
    if not raw.isascii():
        raw = raw.decode("utf-8", "replace").encode()
    return HALF.sub(rb"\\ufffd", raw.replace(ESCAPED, HIDDEN)).replace(HIDDEN, ESCAPED)


def encode_repaired(value: object, enc_hook: Callable[[object], Raw]) -> bytes:
    """Return the JSON of a value with U+FFFD for the lone surrogates in its texts."""
    plain = to_builtins(value, enc_hook=lambda other: json.loads(bytes(enc_hook(other))))
    return repair(json.dumps(plain, separators=(",", ":")).encode())


# -- values that the decoder refuses ----------------------------------------------------------

MAX_PARTS = 100_000
"""Parts of one value that are examined, at some 10 us each.

A value with more counts as no message at all rather than one with flaws, so that nobody else waits
for it.
"""


class _TooMuchError(Exception):
    """More than MAX_PARTS; forgiven by no mark."""


class _UnknownTagError(InvalidParamsError):
    """A union has no variant of this tag; None if there is no tag."""

    def __init__(self, path: str, tag: str | None) -> None:
        said = "is missing" if tag is None else f"has the unknown value {tag!r}"
        super().__init__(f"{path} {said}", path)
        self.tag = tag


def salvage_value(kind: object, raw: bytes) -> tuple[object, tuple[str, ...]]:
    """Return the value of `raw`, and the path of each field set to its default or item left out.

    Raises InvalidParamsError for errors that the marks do not forgive.
    """
    salvage = _Salvage()
    try:
        return salvage.value(kind, raw, "$"), tuple(salvage.flaws)
    except _TooMuchError:
        problem = f"more than {MAX_PARTS} parts of it cannot be read as they are"
        raise InvalidParamsError(problem, "$") from None


class _Salvage:
    """One second pass: the losses so far, and the number of parts that may still be examined."""

    def __init__(self) -> None:
        self.flaws: list[str] = []
        self._left = MAX_PARTS

    def value(self, kind: object, raw: bytes, path: str) -> object:
        """Return the value of `raw`; if it raises InvalidParamsError, it adds no flaws."""
        try:
            return decoder(kind).decode(raw)
        except REFUSED as error:
            reason = _reason(error)
        self._left -= 1
        if self._left < 0:
            raise _TooMuchError
        before = len(self.flaws)
        bare, otherwise = split(kind)
        try:
            return self._rebuilt(bare, raw, path, reason)
        except InvalidParamsError as error:
            del self.flaws[before:]
            tag = error.tag if isinstance(error, _UnknownTagError) else None
            if otherwise.untagged is not None:
                try:
                    return self.value(otherwise.untagged, raw, path)
                except InvalidParamsError as second:
                    if isinstance(error, _UnknownTagError):
                        error = second
            if otherwise.unknown is not None and tag is not None:
                return otherwise.unknown(tag, raw)
            raise error

    def _rebuilt(self, kind: object, raw: bytes, path: str, reason: str) -> object:
        """Return the value of `raw`, assembled from its parts."""
        origin, options = get_origin(kind), get_args(kind)
        structs = [
            option
            for option in options or (kind,)
            if isinstance(option, type) and issubclass(option, Struct)
        ]
        if origin in (None, Union) and structs:
            parts = _cut(members, raw, path, reason)
            struct = structs[0]
            if len(structs) > 1:  # the one that the tag names
                tag_field = structs[0].__struct_config__.tag_field or ""
                try:
                    tag = decoder(str).decode(parts[tag_field])
                except (KeyError, *REFUSED):
                    raise _UnknownTagError(f"{path}.{tag_field}", None) from None
                named = [it for it in structs if it.__struct_config__.tag == tag]
                if not named:
                    raise _UnknownTagError(f"{path}.{tag_field}", tag)
                struct = named[0]
            return self._struct(struct, parts, path)
        if origin is tuple:
            pieces = _cut(items, raw, path, reason)
            return tuple(
                self.value(options[0], piece, f"{path}[{index}]")
                for index, piece in enumerate(pieces)
            )
        if origin is dict:
            return {
                name: self.value(options[1], piece, f"{path}.{name}")
                for name, piece in _cut(members, raw, path, reason).items()
            }
        raise InvalidParamsError(f"{path}: {reason}", path)

    def _struct(self, kind: type[Struct], parts: dict[str, bytes], path: str) -> Struct:
        values: dict[str, object] = {}
        for info, hint in field_types(kind):
            here = f"{path}.{info.encode_name}"
            raw = parts.get(info.encode_name)
            if raw is not None:
                lenience = lenience_of(hint)
                read = self._good_items if lenience.skip_items else self.value
                try:
                    values[info.name] = read(hint, raw, here)
                    continue
                except InvalidParamsError:
                    if not (lenience.on_error or (lenience.on_null and raw == b"null")):
                        raise
                    self.flaws.append(here)  # the field gets its default
                if info.required:
                    values[info.name] = ()  # only arrays are required and forgiven
            elif info.required:
                raise InvalidParamsError(f"{here} is missing", here)
        try:
            return kind(**values)
        except ValueError as error:
            raise InvalidParamsError(f"{path}: {error}", path) from None

    def _good_items(self, hint: object, raw: bytes, path: str) -> object:
        """Return the valid items, in order."""
        try:
            return decoder(hint).decode(raw)
        except REFUSED as error:
            pieces = _cut(items, raw, path, _reason(error))
        item = get_args(split(hint)[0])[0]
        good: list[object] = []
        for index, piece in enumerate(pieces):
            here = f"{path}[{index}]"
            try:
                good.append(self.value(item, piece, here))
            except InvalidParamsError:
                self.flaws.append(here)
        return tuple(good)


def split(kind: object) -> tuple[object, Otherwise]:
    """Return a type without its marks, None and UNSET; and the mark on its other variants."""
    otherwise = Otherwise()
    while True:
        if get_origin(kind) is Annotated:
            kind, *marks = get_args(kind)
            otherwise = next((mark for mark in marks if isinstance(mark, Otherwise)), otherwise)
        elif get_origin(kind) in (Union, UnionType):
            rest = [option for option in get_args(kind) if option not in (NoneType, UnsetType)]
            if len(rest) > 1:
                return Union[tuple(rest)], otherwise  # noqa: UP007  the options are only known now
            kind = rest[0]
        else:
            return kind, otherwise


def lenience_of(hint: object) -> Lenience:
    """Return the mark on the type of a field; one that forgives nothing if it has none."""
    marks = get_args(hint)[1:] if get_origin(hint) is Annotated else ()
    return next((mark for mark in marks if isinstance(mark, Lenience)), Lenience())


def _cut(into: Callable[[bytes], P], raw: bytes, path: str, reason: str) -> P:
    """Return the members or items of `raw`; raises the strict decoder's reason if it is neither."""
    try:
        return into(raw)
    except InvalidParamsError:
        raise InvalidParamsError(f"{path}: {reason}", path) from None


def _reason(error: Exception) -> str:
    """Return msgspec's message without its path, which begins in the middle."""
    said = str(error).partition(" - at `")[0]
    return said.replace("Expected", "expected", 1)


_known_fields: dict[type[Struct], list[tuple[FieldInfo, object]]] = {}


def field_types(kind: type[Struct]) -> list[tuple[FieldInfo, object]]:
    """Return the fields of a Struct, with their types."""
    found = _known_fields.get(kind)
    if found is None:
        hints = get_type_hints(kind, include_extras=True)
        found = _known_fields[kind] = [(info, hints[info.name]) for info in struct_fields(kind)]
    return found
