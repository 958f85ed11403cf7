"""Crush: a database for each project, `.crush/crush.db`, and a list of the projects it was used in.

A message has its parts as JSON; results are in messages of role tool. A subagent is a session with
a parent, named by the call that started it. The database has the current context size in tokens,
and the total cost.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from acphold.imports import databases
from acphold.imports.content_blocks import (
    block_content,
    contents,
    image,
    link,
    resource_link,
    text_block,
)
from acphold.imports.entry_writer import EntryWriter
from acphold.imports.readers import AgentConverter, Reader
from acphold.imports.records import SMALL_BYTES, document, list_in
from acphold.imports.sources import Home, Source, files_of_projects
from acphold.imports.values import Missed, Object, from_json, number, obj, objects, text

_ENDED: Final = {"canceled": "cancelled", "content_filter": "refusal", "max_tokens": "max_tokens"}


def find(home: Home) -> Iterator[Source]:
    """Yield the sessions of the projects Crush lists, then of others; none of subagents."""
    seen: set[Path] = set()
    listed = home.folder(home.data("crush"), "CRUSH_GLOBAL_DATA") / "projects.json"
    listing = document(listed, Missed(), SMALL_BYTES) if listed.exists() else {}
    # A list in somebody else's folder names paths of another machine, not of this one.
    for project in [] if home.is_given else objects(listing, "projects"):
        folder = Path(text(project, "path"))
        database = folder / (text(project, "data_dir") or ".crush") / "crush.db"
        if database.is_absolute() and database not in seen:
            seen.add(database)
            yield from _sessions(database, folder)
    for database in files_of_projects(home, ".crush/crush.db"):
        if database not in seen:
            # The database's author may have given its sessions any id.
            found = _sessions(database, database.parent.parent)
            yield from (replace(source, given=True) for source in found)


def _sessions(database: Path, folder: Path) -> Iterator[Source]:
    # Crush writes a message without its session, and had no count of messages in some versions.
    of_messages = "(SELECT {} FROM messages WHERE session_id = sessions.id)"
    newest = f"coalesce({of_messages.format('max(updated_at)')}, 0)"
    columns = f"id, max(updated_at, {newest}), {of_messages.format('count(*)')}"
    which = "parent_session_id IS NULL"
    for source in databases.sources(database, "sessions", columns, which):
        yield replace(source, paths=(str(database), str(folder)))


def read(source: Source, writer: EntryWriter) -> Iterator[None]:
    """Read the session."""
    database, folder = map(Path, source.paths)
    writer.facts.cwd = str(folder)
    about = databases.row_by_id(database, "sessions", _ABOUT, source.item)
    if not about:
        return
    writer.clock(about["created_at"])
    converter = _CrushConverter(databases.AgentTables(database, writer.missed), writer, source.item)
    yield from converter.take_all(converter.messages())
    converter.tell_stopped()
    writer.clock(about["updated_at"])
    writer.spend(about["cost"])
    writer.title(text(about, "title"))


_ABOUT: Final = ("title", "created_at", "updated_at", "cost")
_MESSAGE: Final = ("id", "role", "parts", "model", "created_at", "is_summary_message")


class _CrushConverter(AgentConverter):
    """Converts one session, or that of a subagent."""

    subagent_tools = frozenset({"agent", "agentic_fetch"})

    def __init__(self, tables: databases.AgentTables, writer: EntryWriter, session_id: str) -> None:
        super().__init__(writer)
        self._tables, self._session_id = tables, session_id

    def messages(self) -> Iterator[Object]:
        """Yield the messages of the session."""
        where = "session_id = ? ORDER BY rowid"
        return self._tables.objects("messages", _MESSAGE, where, self._session_id)

    def take(self, message: Object) -> None:
        message_id, role = str(message["id"]), text(message, "role")
        parts = list_in(message["parts"], self._missed)
        told = [obj(part, "data") | {"type": text(part, "type")} for part in parts]
        self._writer.clock(message["created_at"])
        if message.get("is_summary_message") and role == "assistant":
            said = "".join(text(part, "text") for part in told)
            self._writer.compaction(f"compacted-{message_id}", said)
        elif role == "user":
            self.tell_stopped()
            self._writer.prompt(self._blocks(told), turn=message_id)
        elif role in ("assistant", "tool"):
            self._writer.model(text(message, "model"))
            self._answer(told, message_id)
        elif role != "system":
            self._missed.kind("messages", role, parts)

    def _other_block(self, kind: str, part: Object, of: str) -> list[Object]:
        if kind == "binary":
            mime, data = text(part, "MIMEType"), text(part, "Data")
            is_picture = mime.startswith("image/") and data
            return [image(data, mime) if is_picture else link(text(part, "Path"))]
        if kind == "image_url":
            return [resource_link(text(part, "url"), text(part, "url"))]
        if kind == "shell_command":
            return [text_block(f"! {text(part, 'command')}")]
        return [] if kind == "finish" else super()._other_block(kind, part, of)

    def _other_part(self, kind: str, part: Object, message_id: str) -> None:
        if kind == "finish":
            reason = text(part, "reason")
            if reason == "error":
                self._writer.fail_turn(text(part, "message"), text(part, "details"))
            elif reason in _ENDED:
                self._writer.end_turn(_ENDED[reason])
            elif reason == "end_turn":
                self._writer.finish_answer()
        elif kind not in ("binary", "image_url", "shell_command"):
            super()._other_part(kind, part, message_id)

    def _find_subagent(self, call_id: str, arguments: Object, result: object) -> str | None:
        which = "parent_session_id = ? AND (id = ? OR substr(id, -length(?)) = ?)"
        named = self._session_id, call_id, f"$${call_id}", f"$${call_id}"
        child = self._tables.first("sessions", "id", which, *named)
        return None if child is None else str(child)

    def _inside(self, child: str) -> tuple[AgentConverter, Iterator[Object]]:
        converter = _CrushConverter(self._tables, self._writer, child)
        return converter, converter.messages()

    def _result(self, result: Object, call_id: str, name: str, arguments: Object) -> None:
        about = from_json(text(result, "metadata"))
        failed = result.get("is_error") is True
        path = self._place(name, arguments)
        produced = [] if failed else self._changes_by(name, path, about, arguments)
        words = text(about, {"bash": "output", "view": "content"}.get(name, ""))
        words = words or text(result, "content")
        produced = produced or contents(words)
        mime = text(result, "mime_type")
        if mime.startswith("image/") and (data := text(result, "data")):
            produced.append(block_content(image(data, mime)))
        code = number(about, "exit_code")
        raw = None if code is None else {"exitCode": code}
        self._end_call(call_id, failed=failed, produced=produced, rawOutput=raw)


READER: Final = Reader("crush", "crush", find, read)
