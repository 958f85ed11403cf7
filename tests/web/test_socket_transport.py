"""Framing of WebSocket messages that bypass ASGI."""

from __future__ import annotations

import pytest
from websockets.frames import Frame, Opcode

from acphold.web.socket_transport import in_frame


@pytest.mark.parametrize("size", [0, 1, 125, 126, 127, 65_535, 65_536, 1 << 20])
def test_a_message_of_any_length_is_framed_as_the_library_frames_it(size: int) -> None:
    text = b"x" * size
    assert in_frame(text) == Frame(Opcode.TEXT, text).serialize(mask=False)
