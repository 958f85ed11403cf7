"""Members of requests that need no right but that of the method; all others need `manage`.

Whoever has `manage` in a session may say anything to its agent: agents take programs, hooks and
environments from members of their own. Anybody else may say this:

    member                                            why
    ------------------------------------------------  -------------------------------------------
    a member of the protocol, or of our own methods   the scope of the method permits it
    traceparent, tracestate, baggage, in `_meta`      they name a trace (ACP v1, Extensibility)
    `acphold/…`, in `_meta`                           it is said to us
    terminals and kinds of updates that a client      it only says what the client can show
    offers to show, where it introduces itself
    `steering`, in `_meta` of a steering request      it says that nothing is to begin

The same holds within a member, for example in a content block, and for the answers of clients. A
variant newer than this release keeps all but its `_meta`: its other members are content.

Requests that open a session have a table of their own: see `server.open_params`.
"""

# See docs/decisions.md, 20.

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import cache
from typing import TYPE_CHECKING, Final, Union, get_args, get_origin

from msgspec import Raw, Struct

from acp_conversation.history.display_terminals import PRINTED
from acp_conversation.history.prompt_queue import QueueChange
from acp_conversation.history.raw_update import string
from acp_wire import schema
from acp_wire.schema.methods import CLIENT_METHODS, Method
from acp_wire.schema.splice import array, items, members, splice
from acp_wire.schema.updates import OFFERS
from acphold.errors import InvalidParamsError
from acphold.live.server import bounds
from acphold.live.server.methods import method_of
from acphold.live.server.open_params import names_trace

if TYPE_CHECKING:
    from acphold.journal.access import Scope

OURS: Final = "acphold/"
"""The beginning of the members of `_meta` that are said to us."""

ANSWERS: Final[Mapping[str, type[Struct]]] = {
    it.name: it.result for it in CLIENT_METHODS.values() if isinstance(it, Method)
}
"""The members of a client's answer to each request of an agent."""

SHOWN: Final = OFFERS | {("_meta", name) for name in PRINTED}
"""The places in `clientCapabilities` that say what the client can show."""


class _Offered(Struct):
    """A capability with no members that we know."""


def _tree(places: Collection[tuple[str, ...]]) -> dict[str, object]:
    """Return the types of the members on the way to these places, by name."""
    found: dict[str, object] = {}
    for name in {place[0] for place in places}:
        below = [place[1:] for place in places if place[0] == name and place[1:]]
        found[name] = _tree(below) if below else _OFFER
    return found


_OFFER: Final[object] = _Offered | bool | tuple[str, ...]


class _Pared(Struct):
    """The names of what was left out, and the number of values that were looked at."""

    left_out: list[str] = []
    values: int = 0

    def open(self, raw: bytes) -> dict[str, bytes] | list[bytes] | None:
        """Return the members of an object, a repeated name only once, or the items of an array;
        None for anything else.

        Raises InvalidParamsError for too many values: each takes some microseconds, in which nobody
        else is served.
        """
        found: dict[str, bytes] | list[bytes]
        if raw.startswith(b"{"):
            found = members(raw)
        elif raw.startswith(b"["):
            found = items(raw)
        else:
            return None
        self.values += len(found)
        if self.values > bounds.PARED_VALUES:
            problem = f"the message has more than {bounds.PARED_VALUES:,} values; send it in parts"
            raise InvalidParamsError(problem, "$")
        return found


class _Variant(Struct, frozen=True):
    """An object that may stand in a place: the member that tells it, with its value, and the types
    of its members, by name."""

    tag_field: str | None
    tag: object
    hints: Mapping[str, object]


class _Shape(Struct, frozen=True):
    """What may stand in a place: a list of these items, None for no list; one of these objects; and
    with `is_free` anything."""

    item: object
    variants: tuple[_Variant, ...]
    is_free: bool


@cache
def _shape(hint: object) -> _Shape:
    """Return the shape of a type."""
    from acp_wire.schema.salvage import field_types, split  # late: only without `manage`

    def variant(kind: type[Struct]) -> _Variant:
        config = kind.__struct_config__
        hints: dict[str, object] = {it.encode_name: hint for it, hint in field_types(kind)}
        if config.tag_field is not None:
            hints[config.tag_field] = str
        if kind is QueueChange:
            [words] = _shape(schema.PROMPT.params).variants
            hints["prompt"] = words.hints["prompt"]
        if kind is schema.ClientCapabilities:
            shown = _tree(SHOWN)
            hints = {**shown, **hints, "_meta": shown["_meta"]}
        return _Variant(config.tag_field, config.tag, hints)

    kind, otherwise = split(hint)
    kinds = (*(get_args(kind) if get_origin(kind) is Union else (kind,)), otherwise.untagged)
    lists = [it for it in kinds if get_origin(it) in (tuple, list)]
    return _Shape(
        get_args(lists[0])[0] if lists else None,
        tuple(variant(it) for it in kinds if isinstance(it, type) and issubclass(it, Struct)),
        any(it in (Raw, object) or get_origin(it) is dict for it in kinds),
    )


def passes(key: str, raw: bytes) -> bool:
    """Return True if anybody may send this member of `_meta`."""
    return key.startswith(OURS) or names_trace(key, raw)


def restrict(method: str, params: bytes, scopes: frozenset[Scope]) -> tuple[bytes, tuple[str, ...]]:
    """Return so much of a request as its sender may say, with these scopes in its session; and the
    names of what was left out.

    Raises InvalidParamsError if the params cannot be read.
    """
    return _pare(method_of(method).params, params, scopes)


def restrict_answer(
    method: str, result: bytes, scopes: frozenset[Scope]
) -> tuple[bytes, tuple[str, ...]]:
    """Return the same of a client's answer to an agent; of an extension's method, all of it."""
    if method not in ANSWERS:
        return result, ()
    return _pare(ANSWERS[method], result, scopes)


def _pare(
    kind: type[Struct], raw: bytes, scopes: frozenset[Scope]
) -> tuple[bytes, tuple[str, ...]]:
    if "manage" in scopes or not raw:
        return raw, ()
    pared = _Pared()
    return _value(kind, raw, "", pared), tuple(pared.left_out)


def _value(hint: object, raw: bytes, path: str, pared: _Pared) -> bytes:
    """Return a value of this type, pared."""
    raw = raw.strip()
    if isinstance(hint, dict):
        return _meta(hint, raw, path, pared) or b"null"
    shape = _shape(hint)
    is_object, is_list = raw.startswith(b"{"), raw.startswith(b"[")
    if not (is_object and shape.variants) and not (is_list and shape.item is not None):
        if (is_object or is_list) and not shape.is_free:
            pared.left_out.append(path)  # the protocol has something plain in this place
            return b"null"
        return raw
    given = pared.open(raw)
    if isinstance(given, list):
        return array(
            [_value(shape.item, it, f"{path}[{at}]", pared) for at, it in enumerate(given)]
        )
    assert given is not None
    fits = [it for it in shape.variants if it.tag_field and _has_tag(it, given)]
    fits = fits or [it for it in shape.variants if it.tag_field is None]
    hints: dict[str, object] = {}
    for each in fits:
        hints |= each.hints
    kept: dict[str, bytes | None] = {}
    for name, value in given.items():
        here = f"{path}.{name}" if path else name
        if name == "_meta":
            kept[name] = _meta(hints.get(name), value, here, pared)
        elif name in hints:
            kept[name] = _value(hints[name], value, here, pared)
        elif fits:
            pared.left_out.append(here)
        else:
            kept[name] = value  # of a variant newer than this release
    return splice(b"{}", kept)


def _has_tag(variant: _Variant, given: Mapping[str, bytes]) -> bool:
    return string(given.get(variant.tag_field or "")) == variant.tag


def _meta(hint: object, raw: bytes, path: str, pared: _Pared) -> bytes | None:
    """Return the `_meta` of an object, pared; None if nothing is left of it."""
    given = pared.open(raw.strip())
    if not isinstance(given, dict):
        return None
    known = hint if isinstance(hint, dict) else _members_of(hint)
    kept: dict[str, bytes | None] = {}
    for name, value in given.items():
        here = f"{path}.{name}"
        if passes(name, value):
            kept[name] = value
        elif name in known:
            kept[name] = _value(known[name], value, here, pared)
        else:
            pared.left_out.append(here)
    return splice(b"{}", kept) if kept else None


def _members_of(hint: object) -> Mapping[str, object]:
    """Return the types of the members of the objects of a type, by name."""
    found: dict[str, object] = {}
    for each in () if hint is None else _shape(hint).variants:
        found |= each.hints
    return found
