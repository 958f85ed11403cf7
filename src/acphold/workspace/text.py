"""Lines, line endings and encodings, as bytes in and out of files; without I/O."""

from __future__ import annotations

from acphold.errors import NotTextError

PROBE_BYTES = 8000
"""The beginning of a file, where a NUL makes it a binary one; git looks at as much."""


class LineWindow:
    """Cuts `limit` lines out of bytes that come in pieces, from line `first` (1 is the first).

    A line ends behind its newline. None for `limit` takes all lines to the end.
    """

    def __init__(self, first: int = 1, limit: int | None = None) -> None:
        self._skip = first - 1
        self._left = limit
        self._kept: list[bytes] = []
        self.size = 0

    @property
    def complete(self) -> bool:
        """Whether further pieces would change nothing."""
        return self._left == 0

    def feed(self, data: bytes) -> None:
        """Take the next piece."""
        if self._skip:
            data, self._skip = _behind(data, self._skip)
        if self._left is not None:
            rest, self._left = _behind(data, self._left)
            data = data[: len(data) - len(rest)]
        self._kept.append(data)
        self.size += len(data)

    def lines(self) -> bytes:
        """What has been cut out so far."""
        return b"".join(self._kept)


def _behind(data: bytes, lines: int) -> tuple[bytes, int]:
    """What comes after `lines` newlines in `data`, and how many of them were not in it."""
    there = data.count(b"\n")
    if there < lines:
        return b"", lines - there
    return data.split(b"\n", lines)[-1] if lines else data, 0


def decoded(data: bytes, first: int, path: str) -> str:
    """The text of lines that begin with line `first` of `path`; raises NotTextError."""
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        line = first + data.count(b"\n", 0, error.start)
        raise NotTextError(
            f"{path!r} is not text in UTF-8: byte 0x{data[error.start]:02x} in line {line}"
        ) from None


def refuse_binary(beginning: bytes, path: str) -> None:
    """Raise NotTextError if the file that begins so is none to be read as text."""
    if beginning.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise NotTextError(f"{path!r} is not text in UTF-8: it looks like UTF-16")
    if b"\0" in beginning[:PROBE_BYTES]:
        raise NotTextError(f"{path!r} is a binary file, not text")


def has_crlf(text: bytes) -> bool:
    """Whether there are lines, and each of them ends with CR LF."""
    return 0 < text.count(b"\n") == text.count(b"\r\n")


def with_crlf(text: bytes) -> bytes:
    """`text` with CR LF at the end of each line, also where it was there already."""
    return text.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n")
