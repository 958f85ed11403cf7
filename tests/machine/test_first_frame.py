"""What a front says when it hands its streams over."""

from __future__ import annotations

import os
import random
from contextlib import suppress

import pytest

from acp_wire.surroundings import NO_LIMITS, Surroundings, limits_here
from acphold.machine.first_frame import (
    BRIEF,
    HANDED_OVER,
    LARGEST,
    FirstFrame,
    decode_frame,
)


def frame(**env: str) -> FirstFrame:
    within = Surroundings(env, "/w", 0o027, limits_here())
    return FirstFrame("1.0", ["--name", "", "--", "agent"], ["agent", "-x"], within)


def test_everything_that_a_front_says_arrives() -> None:
    broken = os.fsdecode(b"caf\xe9")  # no UTF-8: a variable may have any bytes
    sent = frame(PATH="/bin:/usr/bin", EMPTY="", EQUALS="a=b=c", WORD=broken)
    raw = sent.encode()
    assert raw.startswith(HANDED_OVER)
    assert int.from_bytes(raw[1:5], "big") == len(raw) - 5
    got = decode_frame(raw[5:])
    assert got.identity == sent.identity
    assert (got.release, got.words, got.command) == (sent.release, sent.words, sent.command)
    assert dict(got.surroundings.env) == dict(sent.surroundings.env)


def test_a_front_without_umask_and_limits_leaves_those_of_the_process() -> None:
    got = decode_frame(FirstFrame("1", [], [], Surroundings({}, "/")).encode()[5:])
    assert (got.surroundings.umask, got.surroundings.limits) == (None, NO_LIMITS)


SHARE = 18
"""Bytes of the last field, the share of the machine, where it is unknown."""


def test_the_front_of_an_earlier_release_is_not_brief() -> None:
    within = Surroundings({"A": "1"}, "/w")
    raw = FirstFrame("1", ["x"], ["y"], within, kind=BRIEF).encode()[5:]
    assert decode_frame(raw).is_brief
    earlier = raw[: -SHARE - 4 - len(b"brief")]
    assert decode_frame(earlier).identity == FirstFrame("1", ["x"], ["y"], within).identity
    assert decode_frame(raw[:-SHARE]).identity == decode_frame(raw).identity


def test_fields_of_a_newer_release_are_left_unread() -> None:
    raw = frame().encode()[5:]
    newer = raw + len(b"more").to_bytes(4, "big") + b"more"
    assert decode_frame(newer).identity == frame().identity


def test_fronts_that_differ_in_anything_want_different_agents() -> None:
    within = Surroundings({"A": "1"}, "/w", 0o027)
    one = FirstFrame("1", ["x"], ["y"], within)
    others = [
        FirstFrame("1", ["x"], ["y"], within, kind=BRIEF),
        FirstFrame("1", ["z"], ["y"], within),
        FirstFrame("1", ["x"], ["z"], within),
        FirstFrame("1", ["x"], ["y"], Surroundings({"A": "2"}, "/w", 0o027)),
        FirstFrame("1", ["x"], ["y"], Surroundings({"A": "1"}, "/v", 0o027)),
        FirstFrame("1", ["x"], ["y"], Surroundings({"A": "1"}, "/w", 0o022)),
        FirstFrame(
            "1", ["x"], ["y"], Surroundings({"A": "1"}, "/w", 0o027, (((7, 1, 1),), 0, 0, None))
        ),
        FirstFrame("1", ["x"], ["y"], Surroundings({"A": "1"}, "/w", 0o027, ((), 5, 0, None))),
    ]
    assert one.identity not in [other.identity for other in others]
    assert FirstFrame("2", ["x"], ["y"], within).identity == one.identity


def test_an_environment_that_is_too_large_is_refused_with_what_to_do() -> None:
    with pytest.raises(ValueError, match="unset large variables"):
        frame(LARGE="x" * LARGEST).encode()


def test_what_is_no_frame_is_refused_and_never_read_past_its_end() -> None:
    raw, choice = frame(A="b").encode()[5:], random.Random(7)
    _, niceness, cpus, oom = limits_here()
    share = 4 * 4 + len(f"{niceness}{cpus:x}{'' if oom is None else oom}")
    newest = {len(raw) - share, len(raw) - share - 4}  # earlier releases do not send these fields
    for cut in {*range(len(raw))} - newest:
        with pytest.raises(ValueError, match=r"frame"):
            decode_frame(raw[:cut])
    for _ in range(2000):
        broken = bytearray(raw)
        broken[choice.randrange(len(broken))] = choice.randrange(256)
        with suppress(ValueError):  # and nothing else
            decode_frame(bytes(broken))
