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

from acp_wire import schema
from acp_wire.schema import CLIENT_METHODS, Method
from acp_wire.schema.splice import JsonShape, Paring, Variant
from acphold.conversation.history.display_terminals import PRINTED
from acphold.conversation.history.prompt_queue import QueueChange
from acphold.conversation.history.update_kinds import OFFERS
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
    paring = Paring(_shape, passes, bounds.PARED_VALUES)
    return paring.pare(kind, raw), tuple(paring.left_out)
