"""goose: all sessions in one database, `~/.local/share/goose/sessions/sessions.db`.

A reply may be several rows; results are in rows of the user. Rows hidden from the person are the
summary of a compaction. Before 1.10 a session was a file of lines, `<id>.jsonl`: metadata, then its
messages. A step whose tool was running when goose was killed is missing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from errno import EINVAL
from pathlib import Path
from typing import Final

from acphold.imports import databases
from acphold.imports.content_blocks import (
    block_content,
    checklist,
    content,
    contents,
    link,
    picture_of,
    resource,
)
from acphold.imports.entry_writer import EntryWriter
from acphold.imports.readers import AgentConverter, Reader
from acphold.imports.records import list_in, placed_records, readable, records
from acphold.imports.salvage import RowForm
from acphold.imports.sources import Home, Source, file_sources, files_below, note, note_above
from acphold.imports.tools import tool_of
from acphold.imports.values import Object, milliseconds, number, obj, objects, text

ROWS: Final = RowForm(frozenset({"content", "created", "role"}), has_moment=True)

_ANSWERS_ASKED: Final = ("toolConfirmationRequest", "toolConfirmationResponse", "actionRequired")
"""Parts about questions of the program and their answers."""

_DEVELOPERS: Final = frozenset({"edit", "read", "shell", "text_editor", "write"})
"""The tools that it shows with what they are about."""

_LINKED: Final = re.compile(r"\n*# (/[^\n]+)\n```\n(.*)\n```\n*", re.DOTALL)
_EMBEDDED: Final = re.compile(r"--- Resource: (\S+) ---\n(.*?)\n?\n---\n*", re.DOTALL)


def find(home: Home) -> Iterator[Source]:
    """Yield the sessions of the database, then the older files; none of subagents."""
    folder = home.folder(home.data("goose"), "GOOSE_PATH_ROOT", "data") / "sessions"
    note_above(folder)
    database = folder / "sessions.db"
    messages_of = "(SELECT count(*) FROM messages WHERE session_id = sessions.id)"
    columns = f"id, updated_at || 'Z', {messages_of}"
    yield from databases.sources(database, "sessions", columns, "session_type != 'sub_agent'")
    yield from file_sources(files_below(folder, "*.jsonl"))
    with suppress(OSError):  # noted above
        _note_threads(database)


def _note_threads(database: Path) -> None:
    """Note the threads of 1.31 to 1.33 with messages that no session has."""
    wanted = ("thread_id", "session_id")
    if len(databases.columns_of(database, "thread_messages", wanted)) == len(wanted):
        in_sessions = "session_id IN (SELECT session_id FROM messages) AND thread_id IS NOT NULL"
        told = f"SELECT thread_id FROM thread_messages WHERE {in_sessions}"
        query = "SELECT count(DISTINCT thread_id) FROM thread_messages WHERE thread_id NOT IN "
        if count := databases.rows(database, f"{query}({told})")[0][0]:
            why = f"threads of an unknown form: {count}"
            note(OSError(EINVAL, why, str(database)))


_MESSAGE: Final = (
    "id", "message_id", "role", "content_json", "metadata_json", "created_timestamp",
)  # fmt: skip


def _rows(source: Source, session_id: str, writer: EntryWriter) -> Iterator[Object]:
    """Yield the messages of a session; those of a database as files have them."""
    missed = writer.missed
    path = source.path
    if path.suffix == ".jsonl":
        for writer.offset, line in placed_records(path, missed, ROWS, source.begin):
            if text(line, "role"):
                yield line
        return
    where = "session_id = ? ORDER BY id"
    for row in databases.AgentTables(path, missed).objects("messages", _MESSAGE, where, session_id):
        about = str(row.get("metadata_json") or "{}").encode(errors="replace")
        yield {
            "id": str(row.get("message_id") or row["id"]),
            "role": str(row["role"]),
            "created": row["created_timestamp"],
            "content": list_in(row["content_json"], missed),
            "metadata": readable(about, missed),
        }


def read(source: Source, writer: EntryWriter) -> Iterator[None]:
    """Read the session."""
    path = source.path
    converter = _GooseConverter(source, writer)
    if path.suffix == ".jsonl":
        first = next(records(path, writer.missed), {})
        writer.facts.cwd, title = text(first, "working_dir"), text(first, "description")
    else:
        columns = ("name", "description", "working_dir", "created_at")
        found = databases.row_by_id(path, "sessions", columns, source.item)
        writer.facts.cwd = str(found.get("working_dir") or "")
        title = str(found.get("name") or found.get("description") or "")
        created = found.get("created_at")
        writer.clock(milliseconds(f"{created}Z") if isinstance(created, str) else None)
    yield from converter.take_all(_rows(source, source.session_id, writer))
    if path.suffix != ".jsonl":
        # goose only keeps the sums of each session; as far as this version has columns for them.
        for session_id in (source.item, *map(str, converter.told)):
            sums = databases.row_by_id(path, "sessions", (*_COUNTED, _COST), session_id)
            counts = {told: number(sums.get(name)) for name, told in _COUNTED.items()}
            writer.spend(sums.get(_COST), **counts)
    writer.title(title)


_COUNTED: Final = {
    "accumulated_input_tokens": "inputTokens",
    "accumulated_output_tokens": "outputTokens",
    "accumulated_total_tokens": "totalTokens",
}
_COST: Final = "accumulated_cost"


def _attached(block: Object) -> Object:
    """Return a file that was inserted as text as a link, or a resource, again."""
    words = text(block, "text")
    if linked := _LINKED.fullmatch(words):
        return link(linked[1])
    embedded = _EMBEDDED.fullmatch(words)
    return resource(embedded[1], embedded[2]) if embedded else block


class _GooseConverter(AgentConverter):
    """Converts one session, or that of a subagent."""

    def __init__(self, source: Source, writer: EntryWriter) -> None:
        super().__init__(writer)
        self._source = source
        self._summary = ""

    def take(self, message: Object) -> None:
        message_id, role = text(message, "id"), text(message, "role")
        parts = objects(message, "content")
        if obj(message, "metadata").get("userVisible") is False:
            if role == "user":
                self._summary = "".join(text(part, "text") for part in parts)
            return
        self._writer.clock(message.get("created"))
        responses = self._take_results(parts)
        if role == "assistant":
            self._answer(parts, message_id)
            if [text(part, "type") for part in parts[-1:]] == ["text"]:
                self._writer.finish_answer()
        elif role != "user":
            self._missed.kind("messages", role, parts)
        elif not responses and not self._writer.caller:
            parts = [part for part in parts if text(part, "type") not in _ANSWERS_ASKED]
            self._writer.prompt([*map(_attached, self._blocks(parts))], turn=message_id)

    def _call(self, part: Object) -> None:
        super()._call(part | obj(part, "toolCall", "value"))

    def _shown(self, name: str, arguments: Object, _part: Object) -> Object:
        short = name.rpartition("__")[2]
        title = name.replace("__", ": ").replace("_", " ") if "__" in name else name
        fields: Object = {"title": title, "rawInput": arguments}
        if short in _DEVELOPERS:
            fields["kind"] = kind = tool_of(short).kind
            if detail := text(arguments, "command" if kind == "execute" else "path"):
                fields["title"] = f"{short} · {detail}"
        fields["_meta"] = {"goose": {"toolCall": {"toolName": name}}}
        return fields

    def _steps(self, name: str, arguments: Object) -> list[Object] | None:
        return checklist(text(arguments, "content")) if name.endswith("todo_write") else None

    def _other_part(self, kind: str, part: Object, message_id: str) -> None:
        if kind == "systemNotification":
            if self._summary:
                output: Object = {"rawOutput": text(part, "msg")}
                self._writer.compaction(f"compacted-{message_id}", self._summary, output)
                self._summary = ""
        elif found := picture_of(part):
            self._writer.show(found, message_id)
        elif kind not in _ANSWERS_ASKED:
            super()._other_part(kind, part, message_id)

    def _inside(self, child: str) -> tuple[AgentConverter, Iterator[Object]]:
        rows = _rows(self._source, child, self._writer)
        return _GooseConverter(self._source, self._writer), rows

    def _result(self, part: Object, call_id: str, name: str, arguments: Object) -> None:
        result, value = obj(part, "toolResult"), obj(part, "toolResult", "value")
        self._tell_subagent(call_id, text(value, "_meta", "subagent_session_id"))
        failed = value.get("isError") is True or text(result, "status") == "error"
        shown: list[Object] = []
        # Before 1.20 the value was the content itself.
        for part in objects(value, "content") or objects(result, "value"):
            found = picture_of(part)
            words = text(part, "text") or text(part, "resource", "text")
            shown.append(block_content(found) if found else content(words))
        shown += contents(text(result, "error"))
        fields: Object = {}
        short, path = name.rpartition("__")[2], text(arguments, "path")
        if path and short in _DEVELOPERS:
            fields["locations"] = [{"path": path}]
            # The result of an edit does not contain the change.
            shown += [] if failed else self._changes_by(short, path, arguments)
        raw = value.get("structuredContent")
        self._end_call(call_id, failed=failed, produced=shown, rawOutput=raw, **fields)


READER: Final = Reader("goose", "goose acp", find, read)
"""goose gives no name in `initialize`; so it is identified by its command."""
