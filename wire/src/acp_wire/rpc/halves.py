r"""Halves of surrogate pairs ("\ud83d"), which JSON can spell and no text in UTF-8 can hold.

Programs that cut text between UTF-16 units send them, and many readers, ours and those of editors,
refuse the whole line. So they stop here. If one chunk of a message ends in a first half and a later
one begins with a second, they are joined in the later one. A half left alone becomes U+FFFD, or
nothing at the very end.
"""

from __future__ import annotations

import re

from acp_wire.schema.salvage import repair

FIRST_AT_END = re.compile(rb'(?<!\\)((?:\\\\)*+)(\\u[dD][89abAB][0-9a-fA-F]{2})(?=")')
SECOND_AT_BEGINNING = re.compile(rb':\s*"(?=\\u[dD][c-fC-F][0-9a-fA-F]{2})')
CHUNK = b'_chunk"'


class Halves:
    """Joins the halves in the lines of one connection."""

    def __init__(self) -> None:
        self._first = b""

    def join(self, line: bytes) -> bytes:
        """Return a line of JSON without any half."""
        if self._first and (meeting := SECOND_AT_BEGINNING.search(line)):
            line = line[: meeting.end()] + self._first + line[meeting.end() :]
            self._first = b""
        if CHUNK in line and (left := FIRST_AT_END.search(line)):
            self._first = left[2]
            line = line[: left.start(2)] + line[left.end() :]
        return repair(line)
