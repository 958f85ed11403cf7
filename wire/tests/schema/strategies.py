"""Values of our types, drawn from the types themselves."""

from __future__ import annotations

from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from hypothesis import strategies as st
from msgspec import UNSET, Meta, Struct, UnsetType
from msgspec.structs import fields as struct_fields

import acp_wire.schema as ours
from acp_wire.schema.shapes import KnownValues, Nothing, Otherwise

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
json_values: st.SearchStrategy[object] = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=4,
)
PLAIN: dict[object, st.SearchStrategy[Any]] = {
    NoneType: st.none(),
    UnsetType: st.just(UNSET),
    str: texts,
    bool: st.booleans(),
    int: st.integers(-(2**63), 2**63 - 1),
    float: st.floats(allow_nan=False, allow_infinity=False),
    object: json_values,
}


@cache  # a strategy is put together and checked once, which takes longer than drawing from it
def instances(kind: type[Struct]) -> st.SearchStrategy[Any]:
    """Instances of a Struct, those optional fields given that the draw says."""
    return st.deferred(lambda: _instances(kind))


def _instances(kind: type[Struct]) -> st.SearchStrategy[Any]:
    if kind is ours.CreateElicitationRequest:
        return _elicitations()
    if kind is ours.SetSessionConfigOptionRequest:
        ids = {"session_id": texts, "config_id": texts}
        return st.builds(kind, **ids, value=texts) | st.builds(
            kind, **ids, value=st.booleans(), type=st.just("boolean")
        )
    hints = get_type_hints(kind, include_extras=True)
    known = {info.name: values(hints[info.name]) for info in struct_fields(kind) if info.required}
    optional = {
        info.name: values(hints[info.name]) for info in struct_fields(kind) if not info.required
    }
    return st.fixed_dictionaries(known, optional=optional).map(lambda given: kind(**given))


def _elicitations() -> st.SearchStrategy[ours.CreateElicitationRequest]:
    ids: st.SearchStrategy[Any] = st.none() | texts | st.integers(-(2**63), 2**63 - 1)
    scopes: st.SearchStrategy[Any] = st.one_of(
        st.builds(dict, session_id=texts, tool_call_id=st.none() | texts),
        st.builds(dict, request_id=ids),
    )
    forms = instances(ours.ElicitationSchema)
    url = st.just("https://example.com/a")
    modes: st.SearchStrategy[Any] = st.one_of(
        st.builds(dict, mode=st.just("form"), requested_schema=forms),
        st.builds(dict, mode=st.just("url"), elicitation_id=texts, url=url),
    )
    return st.builds(
        lambda message, scope, mode: ours.CreateElicitationRequest(message, **scope, **mode),
        texts,
        scopes,
        modes,
    )


@cache
def values(hint: object) -> st.SearchStrategy[Any]:
    """Values of a field's type; of open unions, the variants that are known."""
    marks: list[object] = []
    if get_origin(hint) is Annotated:
        hint, *marks = get_args(hint)
    for mark in marks:
        if isinstance(mark, KnownValues):
            return st.sampled_from(mark.values) | (texts if hint is str else st.nothing())
        if isinstance(mark, Otherwise) and mark.untagged is not None:
            return values(hint) | values(mark.untagged)
        if isinstance(mark, Meta) and hint is int:
            return st.integers(mark.ge, 2**64 - 1 if mark.le is None else mark.le)  # type: ignore[arg-type]
        if isinstance(mark, Meta):
            return st.text(st.characters(codec="ascii"), min_size=1, max_size=5)
    origin, options = get_origin(hint), get_args(hint)
    if origin is Literal:
        return st.sampled_from(options)
    if origin in (Union, UnionType):
        return st.one_of([values(option) for option in options if option is not Nothing])
    if origin is tuple:
        return st.lists(values(options[0]), max_size=3).map(tuple)
    if origin is dict:
        return st.dictionaries(texts, values(options[1]), max_size=2)
    if isinstance(hint, type) and issubclass(hint, Struct):
        return instances(hint)
    return PLAIN[hint]
