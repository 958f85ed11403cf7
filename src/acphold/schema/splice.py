"""JSON objects as the bytes of their members: read one, change another, keep the rest.

What acphold only passes on is not decoded and encoded again, so that fields it does not know
survive byte for byte.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import DecodeError, Raw, ValidationError
from msgspec.json import Decoder, encode

from acphold.errors import InvalidParamsError

_OBJECT = Decoder(dict[str, Raw])
_ARRAY = Decoder(list[Raw])


def members(raw: bytes) -> dict[str, bytes]:
    """The members of a JSON object, in order: decoded name to the bytes of the value.

    Of a name that comes twice, the last value. Raises InvalidParamsError if `raw` is no object.
    """
    try:
        return {name: bytes(value) for name, value in _OBJECT.decode(raw).items()}
    except (ValidationError, RecursionError) as error:
        raise InvalidParamsError(str(error), "$") from None
    except (DecodeError, UnicodeDecodeError):
        return {name: value for name, (_, value) in _scanned(raw).items()}


def items(raw: bytes) -> list[bytes]:
    """The items of a JSON array, as bytes. Raises InvalidParamsError if `raw` is no array."""
    try:
        return [bytes(item) for item in _ARRAY.decode(raw)]
    except (ValidationError, RecursionError) as error:
        raise InvalidParamsError(str(error), "$") from None
    except (DecodeError, UnicodeDecodeError):
        from acphold.schema.slow_json import scan_items

        return scan_items(raw)


def array(items: Sequence[bytes]) -> bytes:
    """A JSON array of items that are JSON already."""
    return b"[" + b",".join(items) + b"]"


def splice(raw: bytes, replacements: Mapping[str, bytes | None]) -> bytes:
    """The object `raw` with these members replaced in place, added at its end, or removed (None).

    The values of all other members keep their bytes and their order; white space between members
    goes. Raises InvalidParamsError if `raw` is no object.
    """
    try:
        found = _OBJECT.decode(raw)
    except (ValidationError, RecursionError) as error:
        raise InvalidParamsError(str(error), "$") from None
    except (DecodeError, UnicodeDecodeError):
        return _splice_scanned(raw, replacements)
    for name, value in replacements.items():
        if value is None:
            found.pop(name, None)
        else:
            found[name] = Raw(value)
    return encode(found)


def _scanned(raw: bytes) -> dict[str, tuple[bytes, bytes]]:
    from acphold.schema.slow_json import scan_object

    return {name: (spelled, value) for name, spelled, value in scan_object(raw)}


def _splice_scanned(raw: bytes, replacements: Mapping[str, bytes | None]) -> bytes:
    found = _scanned(raw)
    for name, value in replacements.items():
        if value is None:
            found.pop(name, None)
        else:
            spelled = found[name][0] if name in found else encode(name)
            found[name] = (spelled, value)
    return b"{" + b",".join(b"%b:%b" % member for member in found.values()) + b"}"
