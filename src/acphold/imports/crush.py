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
    picture,
    resource_link,
    text_block,
    text_blocks,
)
from acphold.imports.entry_writer import EntryWriter, SubagentWriter
from acphold.imports.readers import AgentConverter, Reader
from acphold.imports.records import SMALL_BYTES, document, list_in
from acphold.imports.sources import Home, Source, files_of_projects
from acphold.imports.tools import PATHS, edit_diffs, named_call_fields, tool_of
from acphold.imports.values import (
    Missed,
    Object,
    first_text,
    from_json,
    milliseconds,
    number,
    obj,
    objects,
    text,
)

NAME: Final = "crush"
KEY: Final = "crush"

_UNNAMED: Final = frozenset({"New Session", "Untitled Session"})
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
    columns = "id, updated_at, message_count"
    which = "parent_session_id IS NULL"
    for source in databases.sources(NAME, database, "sessions", columns, which):
        yield replace(source, paths=(str(database), str(folder)))


def read(source: Source, writer: EntryWriter) -> Iterator[None]:
    """Read the session."""
    database, folder = map(Path, source.paths)
    writer.facts.cwd = str(folder)
    about = databases.row_by_id(database, "sessions", _ABOUT, source.item)
    if not about:
        return
    writer.clock(milliseconds(about["created_at"]))
    yield from _CrushConverter(database, writer).session(source.item)
    writer.clock(milliseconds(about["updated_at"]))
    writer.spend(about["cost"])
    title = about["title"]
    if isinstance(title, str) and title not in _UNNAMED:
        writer.title(title)


_ABOUT: Final = ("title", "created_at", "updated_at", "cost")


class _CrushConverter(AgentConverter):
    """Converts one session, or with a SubagentWriter that subagent's."""

    def __init__(self, database: Path, writer: EntryWriter) -> None:
        super().__init__(writer)
        self._database = database
        self._session_id = ""
        self._told: set[str] = set()
        """The calls whose subagents are told."""

    def session(self, session_id: str) -> Iterator[None]:
        """Write the messages of a session."""
        self._session_id = session_id
        (summary, *_) = (
            *databases.columns_of(self._database, "messages", ["is_summary_message"]),
            "0",
        )
        for message_id, role, raw, model, created, is_summary in databases.rows_of(
            self._database,
            "messages",
            f"id, role, parts, model, created_at, {summary}",
            "session_id = ? ORDER BY rowid",
            self._missed,
            session_id,
        ):
            parts = list_in(raw, self._missed)
            self._writer.clock(milliseconds(created))
            if is_summary and role == "assistant":
                said = "".join(text(part, "data", "text") for part in parts)
                self._writer.compaction(f"compacted-{message_id}", said)
            elif role == "user":
                if not self._writer.caller:
                    self._tell_stopped()
                    self._writer.prompt(self._prompt(parts), turn=str(message_id))
            elif role in ("assistant", "tool"):
                if model:
                    self._writer.model(str(model))
                for part in parts:
                    self._part(text(part, "type"), obj(part, "data"), str(message_id))
            elif role != "system":
                self._missed.kind("messages", str(role), parts)
            yield
        self._tell_stopped()

    def _prompt(self, parts: list[Object]) -> list[Object]:
        blocks: list[Object] = []
        for part in parts:
            kind, data = text(part, "type"), obj(part, "data")
            if kind == "text":
                blocks += text_blocks(text(data, "text"))
            elif kind == "binary":
                mime = text(data, "MIMEType")
                is_picture = mime.startswith("image/") and text(data, "Data")
                path = text(data, "Path")
                blocks.append(image(text(data, "Data"), mime) if is_picture else link(path))
            elif kind == "image_url":
                url = text(data, "url")
                blocks.append(picture(url) or resource_link(url, url))
            elif kind == "shell_command":
                blocks.append(text_block(f"! {text(data, 'command')}"))
            elif kind != "finish":
                self._missed.kind("parts of prompts", kind, part)
        return blocks

    def _part(self, kind: str, data: Object, message_id: str) -> None:
        if kind == "text":
            self._writer.say(text(data, "text"), message_id)
        elif kind == "reasoning":
            self._writer.think(text(data, "thinking"), message_id)
        elif kind == "tool_call":
            call_id, name = text(data, "id"), text(data, "name")
            arguments = obj(from_json(text(data, "input")))
            self._calls[call_id] = name, arguments
            fields = named_call_fields(name, arguments, self._place(arguments))
            self._writer.call(call_id, fields)
            if name == "todos":
                self._plan(objects(arguments, "todos"))
        elif kind == "tool_result":
            if call := self._call_of(text(data, "tool_call_id"), data):
                self._result(data, *call)
        elif kind == "finish":
            reason = text(data, "reason")
            if reason == "error":
                said = [text(data, "message"), text(data, "details")]
                self._writer.fail_turn(": ".join(filter(None, said)) or "The request failed")
            elif reason in _ENDED:
                self._writer.end_turn(_ENDED[reason])
            elif reason == "end_turn":
                self._writer.finish_answer()
        elif kind not in ("binary", "image_url", "shell_command"):
            self._missed.kind("parts", kind, data)

    def _place(self, arguments: Object) -> str:
        return self._absolute(first_text(arguments, PATHS))

    def _tell_stopped(self) -> None:
        """Tell the subagents that were stopped: their calls have no result."""
        for call_id, (name, _) in self._calls.items():
            self._tell_subagent(call_id, name)

    def _tell_subagent(self, call_id: str, name: str) -> None:
        """Tell the calls of the subagent's session, once."""
        has_none = tool_of(name).kind not in ("think", "fetch")
        if self._writer.caller or has_none or call_id in self._told:
            return
        self._told.add(call_id)
        for session_id, _ in databases.rows_of(
            self._database,
            "sessions",
            "id, title",
            "parent_session_id = ? AND (id = ? OR substr(id, -length(?)) = ?)",
            self._missed,
            self._session_id,
            call_id,
            f"$${call_id}",
            f"$${call_id}",
        ):
            converter = _CrushConverter(self._database, SubagentWriter(self._writer, call_id))
            for _ in converter.session(str(session_id)):
                pass

    def _result(self, result: Object, call_id: str, name: str, arguments: Object) -> None:
        self._tell_subagent(call_id, name)
        about = from_json(text(result, "metadata"))
        failed = result.get("is_error") is True
        produced: list[Object] = []
        path = self._place(arguments)
        if not failed and path and tool_of(name).kind == "edit":
            produced = edit_diffs(path, about) or edit_diffs(path, arguments)
        words = text(about, {"bash": "output", "view": "content"}.get(name, ""))
        words = words or text(result, "content")
        produced = produced or contents(words)
        mime = text(result, "mime_type")
        if mime.startswith("image/") and (data := text(result, "data")):
            produced.append(block_content(image(data, mime)))
        code = number(about, "exit_code")
        raw: Object = {} if code is None else {"rawOutput": {"exitCode": code}}
        self._end_call(call_id, failed=failed, produced=produced, **raw)


READER: Final = Reader(NAME, KEY, find, read)
