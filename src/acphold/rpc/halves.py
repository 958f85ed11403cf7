r"""Halves of surrogate pairs ("\ud83d"), which JSON can spell and no text in UTF-8 can hold.

Programs that cut text between UTF-16 units send them, and many readers, ours and those of editors,
refuse the whole line. So none comes further than this: where one chunk of a message ends in a first
half and a later one begins with a second, they meet in the later one; a half that is left alone is
U+FFFD, or nothing where it is the last that was said.
"""

from __future__ import annotations

import re

from acphold.schema.slow_json import repaired

FIRST_AT_END = re.compile(rb'(?<!\\)((?:\\\\)*+)(\\u[dD][89abAB][0-9a-fA-F]{2})(?=")')
SECOND_AT_BEGINNING = re.compile(rb':\s*"(?=\\u[dD][c-fC-F][0-9a-fA-F]{2})')
CHUNK = b'_chunk"'


class Halves:
    """What the lines of one connection have cut in the middle."""

    def __init__(self) -> None:
        self._first = b""

    def joined(self, line: bytes) -> bytes:
        """A line of JSON, without any half."""
        if self._first and (meeting := SECOND_AT_BEGINNING.search(line)):
            line = line[: meeting.end()] + self._first + line[meeting.end() :]
            self._first = b""
        if CHUNK in line and (left := FIRST_AT_END.search(line)):
            self._first = left[2]
            line = line[: left.start(2)] + line[left.end() :]
        return repaired(line)
