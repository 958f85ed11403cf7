"""acpx: a client with its own store, `~/.acpx/sessions`, of what agents sent.

A session is a record and the journal of its wire, in both directions, in numbered segments that
rotate. The record's own messages are told only if the journal is gone. The conversation is the
agent's: it is stored under the agent's key and the agent's session id.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from acphold.conversation.history.entries import PARAMS, PROMPT, SETTINGS, TURN_END, UPDATE
from acphold.conversation.history.raw_update import (
    message_without_marks,
    params_without_marks,
    without_marks,
)
from acphold.conversation.history.timeline import end_entry
from acphold.imports.entry_writer import BY_WORDS, EntryWriter
from acphold.imports.readers import Reader, unreadable_document
from acphold.imports.records import document, record_lines, records
from acphold.imports.salvage import RowForm
from acphold.imports.sources import Home, Source, files_below, note, note_above, source_of
from acphold.imports.values import UNREADABLE, Missed, Object, decode, number, objects, text
from acphold.imports.zed import ZedConverter

ROWS: Final = RowForm(frozenset({"jsonrpc"}))

KEYS: Final = {
    "claude-acp": "@agentclientprotocol/claude-agent-acp",
    "claude-agent-acp": "@agentclientprotocol/claude-agent-acp",
    "claude-code-acp": "@agentclientprotocol/claude-agent-acp",
    "codex-acp": "codex-acp",
    "copilot": "Copilot",
    "gemini": "gemini-cli",
    "opencode": "OpenCode",
    "qwen": "qwen-code",
}
"""Names of agents by command, for journals whose beginning is gone."""

_OURS: Final = frozenset({"session/prompt", "session/new", "session/load", "session/resume"})
"""The client requests whose answers matter."""

_OWN: Final = frozenset({"segment", "turn_result", "turn_started"})
"""acpx's own records among the wire's."""

HEAD_LINES: Final = 20
"""Lines of a journal searched for the agent's introduction."""


_DECODED: Final = (b'"tool_call', b'"agent_message_chunk"', b'"session_info_update"')
"""Updates the writer has to decode to know the state of a turn."""


class _AcpxLine(Struct, gc=False):
    """The needed fields of a line of the wire; the rest stays raw."""

    id: int | str | None = None
    type: str = ""
    request_id: str | None = None
    method: str = ""
    params: Raw = Raw()
    result: Raw = Raw()
    error: Raw = Raw()


class _LineParams(Struct, gc=False):
    update: Raw = Raw()
    prompt: Raw = Raw()


_decode: Final = msgspec.json.Decoder(_AcpxLine).decode
_decode_params: Final = msgspec.json.Decoder(_LineParams).decode
_decode_names: Final = msgspec.json.Decoder(dict[str, Raw]).decode


def find(home: Home) -> Iterator[Source]:
    """Yield the sessions, by the ids that the agents use."""
    note_above(folder := home.path / ".acpx/sessions")
    for path in files_below(folder, "*.json"):
        record = document(path, missed := Missed())
        if not text(record, "schema").startswith("acpx.session."):
            continue
        session_id = text(record, "acp_session_id") or path.stem
        if missed.counts and "agent_command" not in record:  # cut: it could be anybody's
            note(unreadable_document(path))
            continue
        numbered: list[tuple[int, int, Path]] = []
        for segment in files_below(path.parent, f"{path.stem}.stream*.ndjson"):
            place = number(next(records(segment, Missed()), {}), "sequence")
            numbered.append((-1 if place is None else place, os.path.getsize(segment), segment))
        # Of several with one number, the others are copies.
        by_number = {it if it >= 0 else segment: segment for it, _, segment in sorted(numbered)}
        segments = list(by_number.values())
        # The name in the agent's introduction, otherwise from its command.
        begun = islice(records(segments[0], Missed()), HEAD_LINES) if segments else ()
        named = (text(line, "result", "agentInfo", "name") for line in begun)
        command = text(record, "agent_command")
        program = os.path.basename(command.split()[0]) if command.split() else ""
        agent = next(filter(None, named), "") or KEYS.get(program, command or "acpx")
        for source in source_of(session_id, [path, *segments]):
            yield replace(source, agent=agent)


def read(source: Source, writer: EntryWriter) -> Iterator[None]:
    """Read the session: the journal of its wire, otherwise the messages of its record."""
    record = document(source.path, writer.missed)
    writer.facts.cwd = text(record, "cwd")
    writer.clock(record.get("created_at"))
    segments = [Path(path) for path in source.paths[1:]]
    converter = _AcpxWire(writer, record)
    for path in segments:
        for line in record_lines(path, writer.missed, ROWS):
            converter.line(line.raw)
            yield
    if not segments:  # the messages are in the form of Zed's
        messages = _RecordConverter(writer)
        for message in objects(record, "messages"):
            messages.take(message)
            if "Agent" in message:
                writer.finish_answer()
            yield
    writer.clock(record.get("last_used_at"))
    writer.title(text(record, "title"))


class _AcpxWire:
    """The wire of a session, line by line. Replayed updates of a load are skipped.

    A time is only known of the last prompt.
    """

    def __init__(self, writer: EntryWriter, record: Object) -> None:
        self._writer = writer
        self._record = record
        self._turn = BY_WORDS  # unless a line before the prompt has its id
        self._request = ""
        self._told: set[tuple[str, bytes]] = set()
        self._open: tuple[str, bytes] | None = None
        self._is_copy = False
        """True in a turn that was told before: a stream may contain itself."""
        self._asked: dict[int | str, str] = {}
        self._asked_by_agent: dict[int | str, str] = {}

    def line(self, raw: bytes) -> None:
        """Take the next line."""
        try:
            message = _decode(raw)
            if message.type == "turn_started":
                self._is_copy = False
            elif message.method == "session/prompt" and self._request:
                asked_as = self._request, raw
                if asked_as == self._open and self._writer.in_turn:
                    return  # its line is there twice
                self._is_copy = asked_as in self._told
                self._open = None if self._is_copy else asked_as
                self._told.add(asked_as)
            if self._is_copy:
                return
            if message.method == "session/update":
                # It is the agent's: only acphold itself may set its marks.
                update = without_marks(bytes(_decode_params(message.params).update))
                if not update or "session/load" in self._asked.values():
                    return
                content: Object = {}
                if any(mark in update for mark in _DECODED):
                    with suppress(*UNREADABLE):
                        content = decode(update)
                if _decode_names(message.params).keys() <= {"sessionId", "update"}:
                    self._writer.relay_update(update, UPDATE, content)
                else:
                    params = params_without_marks(bytes(message.params))
                    self._writer.relay_update(params, PARAMS, content)
            elif message.id is not None and message.method:
                # Both sides number their requests: of an agent's, note only that it is pending.
                asked = self._asked if message.method in _OURS else self._asked_by_agent
                asked[message.id] = message.method
                if message.method == "session/prompt" and (
                    prompt := bytes(_decode_params(message.params).prompt)
                ):
                    self._writer.end_turn()
                    self._writer.relay(PROMPT, prompt, turn=self._turn)
                    self._turn = BY_WORDS
            elif message.id is not None:
                result, error = bytes(message.result), bytes(message.error)
                # A request of the agent may have the number of one of the client: only the answer
                # to a prompt has a stop reason, and any other is the client's, while it owes one.
                is_prompt = self._asked.get(message.id) == "session/prompt"
                ends_turn = is_prompt and b'"stopReason"' in result
                is_of_client = message.id in self._asked_by_agent and not ends_turn
                asked = self._asked_by_agent if is_of_client else self._asked
                method = asked.pop(message.id, "")
                if method == "session/prompt" and self._writer.in_turn:
                    told = end_entry(message_without_marks(result))
                    self._writer.relay(TURN_END, b'{"error":%b}' % error if error else told)
                elif method in _OURS and result:
                    found = _decode_names(result)
                    names = ("modes", "configOptions")
                    kept = {name: found[name] for name in names if name in found}
                    if kept:
                        self._writer.relay(SETTINGS, msgspec.json.encode(kept))
            elif message.type == "turn_started":
                self._request = message.request_id or ""
                self._turn = self._request or BY_WORDS
                if self._turn == text(self._record, "last_request_id"):
                    self._writer.clock(self._record.get("last_prompt_at"))
            elif not message.method and message.type not in _OWN:
                self._writer.missed.kind("records", message.type, raw)
        except UNREADABLE:
            self._writer.missed.add("lines that cannot be read", raw)


class _RecordConverter(ZedConverter):
    """Converts the messages of a record, in which a call is named by its title."""

    def _shown(self, name: str, arguments: Object, part: Object) -> Object:
        return {"title": name, "rawInput": part.get("input")}


READER: Final = Reader("acpx", "acpx", find, read)
