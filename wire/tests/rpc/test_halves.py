"""Halves of surrogate pairs: they meet where two chunks cut a pair, and go nowhere alone."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, strategies as st

from acp_wire.rpc import NotificationReceived, Protocol

texts = st.text(st.sampled_from('a"\\ \ud83d\ude00\U0001f600'), max_size=8)


def said(*texts: str, kind: str = "agent_message_chunk") -> list[str]:
    """Chunks with these texts, as a connection delivers them."""
    protocol = Protocol()
    heard = []
    for text in texts:
        update = {"sessionUpdate": kind, "content": {"type": "text", "text": text}}
        message = {"jsonrpc": "2.0", "method": "session/update", "params": {"update": update}}
        (event,) = protocol.feed(json.dumps(message).encode() + b"\n")
        assert isinstance(event, NotificationReceived)
        heard.append(json.loads(event.params)["update"]["content"]["text"])
    return heard


@pytest.mark.parametrize("between", [(), ("and ",), ("", "more")])
def test_a_pair_that_two_chunks_have_cut_is_whole_in_the_later_one(
    between: tuple[str, ...],
) -> None:
    assert said("ok \ud83d", *between, "\ude00!") == ["ok ", *between, "\U0001f600!"]


def test_what_meets_no_other_half_is_a_replacement_character() -> None:
    assert said("\ude00a\ud83db", "\ude00") == ["\ufffda\ufffdb", "\ufffd"]
    assert said("a\ud83d", kind="session_info_update") == ["a\ufffd"]


def test_what_looks_like_the_beginning_of_a_text_inside_of_one_is_not() -> None:
    assert said("a\ud83d", 'x:"\ude00"', "\ude00") == ["a", 'x:"\ufffd"', "\U0001f600"]


@given(st.lists(texts, max_size=4))
def test_no_half_comes_through_whatever_is_said(pieces: list[str]) -> None:
    heard = "".join(said(*pieces))
    assert heard == heard.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
