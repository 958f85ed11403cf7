"""The official Python SDK reads our messages, and we read its messages."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from hypothesis import assume, given, settings, strategies as st
from msgspec import Struct

from acp_wire.schema import (
    AGENT_METHODS,
    CLIENT_METHODS,
    CompactionSummaryChunk,
    CompactionUpdate,
    Method,
    Notice,
    SessionNotification,
    decode,
    encode,
)
from tests.schema.strategies import instances

if TYPE_CHECKING:
    import pydantic

NEWER = (Notice, CompactionUpdate, CompactionSummaryChunk)
"""Updates that release 0.12.1 of the SDK does not have yet."""


@cache
def in_both() -> dict[type[Struct], pydantic.TypeAdapter[object]]:
    """The SDK's reader of each of our params and results, as far as it has one of that name."""
    import acp.schema  # half a second, which each worker would take to collect the tests
    import pydantic

    found: dict[type[Struct], pydantic.TypeAdapter[object]] = {}
    for method in (*AGENT_METHODS.values(), *CLIENT_METHODS.values()):
        kinds = [method.params, *([method.result] if isinstance(method, Method) else [])]
        for kind in kinds:
            model = getattr(acp.schema, kind.__name__, None)
            if model is not None:
                found[kind] = pydantic.TypeAdapter(model)
    return found


def test_the_sdk_has_nearly_all_of_our_messages() -> None:
    assert len(in_both()) >= 40


@given(
    data=st.data(),
    kind=st.deferred(lambda: st.sampled_from(list(in_both()))) | st.just(SessionNotification),
)
@settings(max_examples=200)
def test_messages_travel_through_the_sdk_and_back(data: st.DataObject, kind: type[Struct]) -> None:
    value = data.draw(instances(kind))
    assume(not (isinstance(value, SessionNotification) and isinstance(value.update, NEWER)))
    sdk = in_both()[kind]
    read = sdk.validate_json(encode(value))
    sent = sdk.dump_json(read, by_alias=True, exclude_unset=True)
    returned = decode(kind, sent)
    assert returned.flaws == ()
    # Compared as the SDK sees them: it leaves out newer fields.
    assert sdk.validate_json(encode(returned.value)) == read
