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

from collections.abc import Collection, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Final, Union, get_args, get_origin

from msgspec import Raw, Struct

from acp_wire import schema
from acp_wire.errors import InvalidParamsError
from acp_wire.schema import CLIENT_METHODS, Method, items, members, splice
from acp_wire.schema.splice import json_value
from acphold.conversation.history.display_terminals import PRINTED
from acphold.conversation.history.prompt_queue import QueueChange
from acphold.conversation.history.raw_update import OFFERS, array
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

    A type that is a dict is that of a `_meta`: the types of its members. Raises InvalidParamsError
    for more than PARED_VALUES: each takes some microseconds, in which nobody else is served.
    """

    left_out: list[str] = []
    _values: int = 0

    def pare(self, hint: object, raw: bytes, path: str = "") -> bytes:
        """Return a value of this type, pared."""
        raw = raw.strip()
        if isinstance(hint, dict):
            return self._pare_meta(hint, raw, path) or b"null"
        shape = _shape(hint)
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
            for each in _shape(hint).variants:
                known |= each.hints
        kept: dict[str, bytes | None] = {}
        for name, value in given.items():
            here = f"{path}.{name}"
            if passes(name, value):
                kept[name] = value
            elif name in known:
                kept[name] = self.pare(known[name], value, here)
            else:
                self.left_out.append(here)
        return splice(b"{}", kept) if kept else None

    def _count(self, found: Mapping[str, bytes] | Sequence[bytes]) -> None:
        self._values += len(found)
        if self._values > (most := bounds.PARED_VALUES):
            problem = f"the message has more than {most:,} values; send it in parts"
            raise InvalidParamsError(problem, "$")


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


@cache
def _shape(hint: object) -> JsonShape:
    """Return the shape of a type."""
    from acp_wire.schema.salvage import field_types, split  # late: only without `manage`

    def variant(kind: type[Struct]) -> Variant:
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
        return Variant(config.tag_field, config.tag, hints)

    kind, otherwise = split(hint)
    kinds = (*(get_args(kind) if get_origin(kind) is Union else (kind,)), otherwise.untagged)
    lists = [it for it in kinds if get_origin(it) in (tuple, list)]
    return JsonShape(
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
    paring = Paring()
    return paring.pare(kind, raw), tuple(paring.left_out)
