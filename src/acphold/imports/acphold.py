"""Our own lines, as `acphold export --format jsonl` and `acphold show --json` print them.

Only searched for in a folder named with `--from`, not in the home folder. A line `{"session": {…}}`
describes the session of the lines after it: see `exports.forms`. Lines without one above them
belong to a session named like the file.

They are told byte for byte and with their numbers; only a missing end of a turn is added. So the
session is the same as it was.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from typing import Final

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from acp_wire.schema.salvage import repair
from acphold.conversation.history.children import within
from acphold.conversation.history.entries import PARAMS, PROMPT, UPDATE, Origin
from acphold.conversation.history.raw_update import (
    members,
    params_without_marks,
    update_kind,
    without_marks,
)
from acphold.imports.entry_writer import EntryWriter
from acphold.imports.readers import Reader
from acphold.imports.records import readable, record_lines
from acphold.imports.salvage import RowForm
from acphold.imports.session_writer import IMPORTED
from acphold.imports.sources import ExportedState, Home, Source, files_below, source_of
from acphold.imports.values import UNREADABLE, Missed, Object, milliseconds, obj, strings, text

ROWS: Final = RowForm(frozenset({"kind", "seq", "update"}))

HEAD: Final = b'{"session"'
"""The start of the first line of a session."""

NUMBERS: Final = 1 << 31
"""Highest entry number that is accepted: the journal has room for twice as many."""


class _ExportedLine(Struct, gc=False):
    """An entry as `show --json` prints it."""

    kind: str
    update: Raw
    at: str = ""
    seq: int = 0


class _ImportedPrompt(Struct, gc=False):
    prompt: Raw


_decode: Final = msgspec.json.Decoder(_ExportedLine).decode
_decode_prompt: Final = msgspec.json.Decoder(_ImportedPrompt).decode
_decode_origins: Final = msgspec.json.Decoder(tuple[Origin, ...]).decode


# -- finding ----------------------------------------------------------------------------------


def find(home: Home) -> Iterator[Source]:
    """Yield our sessions in the line files of the folder itself."""
    for path in files_below(home.path, "*.jsonl") if home.is_given else ():
        for number, line in enumerate(record_lines(path, Missed(), ROWS)):
            if number and not line.raw.startswith(HEAD):
                continue
            head = readable(line.raw, Missed()) or {}
            if "session" in head or (not number and head.keys() >= {"seq", "kind"}):
                about = obj(head, "session")
                session_id = text(about, "sessionId") or path.stem
                agents_id = text(about, "agentSessionId") or session_id
                item = str(line.offset) if line.offset else ""
                for source in source_of(agents_id, [path], item):
                    yield replace(source, agent=text(about, "agent"), kept_as=session_id)
            elif not number:
                break  # the file is not ours


# -- reading ----------------------------------------------------------------------------------


def read(source: Source, writer: EntryWriter) -> Iterator[None]:
    """Read the entries of one session: from its head to the head of the next one."""
    head: Object = {}
    begin = int(source.item or "0")
    seen: set[int] = set()
    for line in record_lines(source.path, writer.missed, ROWS):
        if line.offset < begin or (row := hash(line.raw.rstrip())) in seen:
            continue  # a file may contain itself
        seen.add(row)
        if line.raw.startswith(HEAD):
            if line.offset > begin:
                break
            head = obj(readable(line.raw, Missed()), "session")
            # An export may have replaced the home folder by `~`; here it is the importing user's.
            writer.facts.cwd = os.path.expanduser(text(head, "cwd"))
            writer.facts.created_at = milliseconds(head.get("createdAt"))
            origins: tuple[Origin, ...] = ()
            with suppress(msgspec.ValidationError):
                origins = _decode_origins(msgspec.json.encode(head.get("origins", [])))
            writer.facts.kept = ExportedState(
                source.kept_as,
                tuple(strings(head, "additionalDirectories")),
                head.get("renamed") is True,
                head.get("archived") is True,
                origins,
            )
            writer.set_list_title(text(head, "title"))
            continue
        try:
            entry = _entry(line.raw)
        except UNREADABLE:
            writer.missed.add("lines that are not entries", line.raw)
            continue
        writer.clock(entry.at)
        raw = bytes(entry.update)
        if entry.kind == UPDATE and update_kind(raw) == "notice":
            raw = without_marks(raw)  # only acphold itself may set its marks
        elif entry.kind == PARAMS and update_kind(members(raw).get("update", b"")) == "notice":
            raw = params_without_marks(raw)
        elif entry.kind == PROMPT and raw[:1] == b"{":
            try:
                raw = bytes(_decode_prompt(raw).prompt)
            except UNREADABLE:
                raw = members(raw).get("prompt", b"[]")
        if entry.kind != IMPORTED:
            seq = entry.seq if 0 < entry.seq < NUMBERS else 0
            writer.relay(entry.kind, within(source.kept_as, entry.kind, raw), seq)
        yield
    if updated_at := milliseconds(head.get("updatedAt")):
        writer.facts.updated_at = updated_at


def _entry(raw: bytes) -> _ExportedLine:
    """Return the entry in a line; raises one of UNREADABLE. As in `decode`, half a surrogate pair
    is repaired."""
    if not raw.isascii():
        raw.decode()
    try:
        return _decode(raw)
    except msgspec.ValidationError:
        raise
    except msgspec.DecodeError:
        return _decode(repair(raw))


READER: Final = Reader("acphold", "acphold", find, read)
