"""Files as the client's editor sees them, unsaved changes included. Paths are absolute."""

from __future__ import annotations

from acphold.schema.shapes import Extensible, UInt32


class ReadTextFileRequest(Extensible, frozen=True):
    """`fs/read_text_file`: `limit` lines from `line`, which counts from 1; all without them."""

    session_id: str
    path: str
    line: UInt32 | None = None
    limit: UInt32 | None = None


class ReadTextFileResponse(Extensible, frozen=True):
    """The text."""

    content: str


class WriteTextFileRequest(Extensible, frozen=True):
    """`fs/write_text_file`: the whole new text; the file is made if there is none."""

    session_id: str
    path: str
    content: str


class WriteTextFileResponse(Extensible, frozen=True):
    """The file is written."""
