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
from typing import TYPE_CHECKING, Final, TypeGuard, Union, get_args, get_origin

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

    def count(self, more: int) -> None:
        """Count values; raises InvalidParamsError for too many: each takes some microseconds, in
        which nobody else is served."""
        self.values += more
        if self.values > bounds.PARED_VALUES:
            problem = f"the message has more than {bounds.PARED_VALUES:,} values; send it in parts"
            raise InvalidParamsError(problem, "$")


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
    from acp_wire.schema.salvage import split  # late: only for clients without `manage`

    raw = raw.strip()
    if isinstance(hint, dict):
        return _meta(hint, raw, path, pared) or b"null"
    kind, otherwise = split(hint)
    kinds = (*(get_args(kind) if get_origin(kind) is Union else (kind,)), otherwise.untagged)
    lists = [it for it in kinds if get_origin(it) in (tuple, list)]
    if lists and raw.startswith(b"["):
        item = get_args(lists[0])[0]
        found = items(raw)
        pared.count(len(found))
        return array([_value(item, it, f"{path}[{at}]", pared) for at, it in enumerate(found)])
    options = [it for it in kinds if _is_struct(it)]
    if options and raw.startswith(b"{"):
        given = members(raw)  # a repeated name only once
        pared.count(len(given))
        tags = [(it, it.__struct_config__.tag_field, it.__struct_config__.tag) for it in options]
        fits = [it for it, field, tag in tags if field and string(given.get(field)) == tag]
        fits = fits or [it for it, field, _ in tags if field is None]
        hints: dict[str, object] = {}
        for it in fits:
            hints |= _hints(it)
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
    is_free = any(it in (Raw, object) or get_origin(it) is dict for it in kinds)
    if raw[:1] in (b"{", b"[") and not is_free:
        pared.left_out.append(path)  # the protocol has something plain in this place
        return b"null"
    return raw


def _is_struct(kind: object) -> TypeGuard[type[Struct]]:
    return isinstance(kind, type) and issubclass(kind, Struct)


def _hints(kind: type[Struct]) -> dict[str, object]:
    """Return the types of the members of an object, by name; that of `_meta` has those that it
    knows."""
    from acp_wire.schema.salvage import field_types

    hints: dict[str, object] = {it.encode_name: hint for it, hint in field_types(kind)}
    if (tag_field := kind.__struct_config__.tag_field) is not None:
        hints[tag_field] = str
    if kind is QueueChange:
        hints["prompt"] = _hints(schema.PROMPT.params)["prompt"]
    if kind is schema.ClientCapabilities:
        shown = _tree(SHOWN)
        hints = {**shown, **hints, "_meta": shown["_meta"]}
    return hints


def _meta(hint: object, raw: bytes, path: str, pared: _Pared) -> bytes | None:
    """Return the `_meta` of an object, pared; None if nothing is left of it."""
    if not raw.strip().startswith(b"{"):
        return None
    known = hint if isinstance(hint, dict) else _hints(hint) if _is_struct(hint) else {}
    kept: dict[str, bytes | None] = {}
    given = members(raw)
    pared.count(len(given))
    for name, value in given.items():
        here = f"{path}.{name}"
        if passes(name, value):
            kept[name] = value
        elif name in known:
            kept[name] = _value(known[name], value, here, pared)
        else:
            pared.left_out.append(here)
    return splice(b"{}", kept) if kept else None
