"""A prompt of many megabytes is gone through a few times, not once for each who asks about it."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from types import FrameType

import pytest

import acphold
from tests.editor import prompt_params
from tests.hub.shared import Shared

OURS = str(Path(acphold.__file__).parent)
LONG = 1 << 20

PASSES = {
    *("decode", "json_decode", "encode", "join", "split", "find", "count", "replace"),
    *("translate", "execute", "isascii", "splitlines", "search", "match", "strip"),
}
"""The names of C functions that go through all of what they are given."""


class Passes(Counter[str]):
    """Counts calls of such functions by code of ours that has a long message at hand."""

    def profile(self, frame: FrameType, event: str, arg: object) -> None:
        name = getattr(arg, "__name__", "")
        if event != "c_call" or name not in PASSES or not frame.f_code.co_filename.startswith(OURS):
            return
        values = frame.f_locals.values()
        if any(isinstance(it, bytes | bytearray) and len(it) >= LONG for it in values):
            self[f"{Path(frame.f_code.co_filename).name}:{frame.f_code.co_name} {name}"] += 1


@pytest.mark.of_a_file
async def test_a_long_prompt_is_gone_through_a_bounded_number_of_times(house: Shared) -> None:
    client, session = await house.talked("short", "answer")
    passes = Passes()
    sys.setprofile(passes.profile)
    try:
        turn = client.begin("session/prompt", prompt_params(session, "x" * 4 * LONG))
        await house.agent.prompted(session)
        await house.agent.say(session, "seen")
    finally:
        sys.setprofile(None)
    await house.ended(session, turn)
    assert passes.total() <= 2, passes
