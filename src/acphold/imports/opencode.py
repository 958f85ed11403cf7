"""OpenCode: all sessions in one database, `~/.local/share/opencode/opencode.db`.

Before 1.2 each session, message and part was a file below `storage`, of the same shape; they stay
there after the migration. A subagent is a session with a parent, told inside the call `task`. A
reverted part is still there, after the message that `revert` names.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Protocol

from msgspec.structs import replace

from acphold.imports import databases
from acphold.imports.content_blocks import (
    content,
    diff,
    picture,
    plan_entry,
    resource,
    resource_link,
    text_block,
)
from acphold.imports.entry_writer import EntryWriter, SubagentWriter
from acphold.imports.readers import AgentConverter, Reader
from acphold.imports.records import document, readable
from acphold.imports.sources import Home, Source, file_sources, files_below
from acphold.imports.values import Missed, Object, milliseconds, number, obj, objects, text

NAME: Final = "opencode"
KEY: Final = "OpenCode"

KINDS: Final = {
    "bash": "execute",
    "edit": "edit",
    "glob": "search",
    "grep": "search",
    "list": "read",
    "patch": "edit",
    "read": "read",
    "task": "think",
    "webfetch": "fetch",
    "write": "edit",
}

REVERTED: Final = "reverted"
"""The item of a source that is told with its reverted part."""

_MADE_UP: Final = re.compile(r"(New session - |Child session - |ACP Session )")
"""The start of a placeholder title."""

_READ_FOR_IT: Final = re.compile(r"Called the Read tool with the following input: (\{.*\})")
_EMBEDDED: Final = re.compile(r"\[(/[^\]\n]+)\]\n(.*)", re.DOTALL)
_PASSED: Final = frozenset(
    {"agent", "compaction", "patch", "retry", "snapshot", "step-start", "subtask"}
)


# -- found ---------------------------------------------------------------------------------


class _OpencodeStore(Protocol):
    """The storage of sessions: rows of a database, or files."""

    def session(self, session_id: str) -> Object:
        """Return the session, empty if there is none."""

    def messages(self, session_id: str) -> Iterator[Object]:
        """Yield its messages, oldest first, each with its `id`."""

    def parts(self, message_id: str) -> Iterator[Object]:
        """Yield the parts of a message in order, each with its `id`."""


def find(home: Home) -> Iterator[Source]:
    """Yield the sessions of the database, then those that are only files; none of subagents."""
    yield from session_sources(NAME, home, "opencode", "OPENCODE_DB")


def session_sources(reader: str, home: Home, program: str, variable: str) -> Iterator[Source]:
    """Yield the sessions of OpenCode, or of a fork of it."""
    folder = home.data(program)
    moved = home.environment.get(variable, "")
    database = Path(moved) if moved.startswith("/") else folder / (moved or f"{program}.db")
    seen: set[str] = set()
    parts_of = "(SELECT count(*) FROM part WHERE session_id = session.id)"
    columns = f"id, time_updated, {parts_of}"
    for source in databases.sources(reader, database, "session", columns, "parent_id IS NULL"):
        seen.add(source.session_id)
        yield source
    paths = files_below(folder / "storage/session", "*/ses_*.json")
    yield from file_sources(
        reader,
        (
            it
            for it in paths
            if it.stem not in seen and not text(document(it, Missed()), "parentID")
        ),
    )


class _OpencodeRows:
    """The rows of today's database."""

    def __init__(self, path: Path, missed: Missed) -> None:
        self._path = path
        self._missed = missed

    def session(self, session_id: str) -> Object:
        names = ("directory", "title", "version", "revert", "time_created", "time_updated")
        found: Object = databases.row_by_id(self._path, "session", names, session_id)
        if not found:
            return {}
        found["time"] = {"created": found["time_created"], "updated": found["time_updated"]}
        found["revert"] = self._decode(found["revert"])
        return found

    def messages(self, session_id: str) -> Iterator[Object]:
        yield from self._objects("message", "session_id = ? ORDER BY id", session_id)

    def parts(self, message_id: str) -> Iterator[Object]:
        yield from self._objects("part", "message_id = ? ORDER BY id", message_id)

    def _objects(self, table: str, which: str, key: str) -> Iterator[Object]:
        for row_id, data in databases.rows_of(
            self._path, table, "id, data", which, self._missed, key
        ):
            yield self._decode(data) | {"id": row_id}

    def _decode(self, data: object) -> Object:
        if not isinstance(data, str):
            if data is not None:
                self._missed.add("rows without text", data)
            return {}
        return readable(data.encode(errors="replace"), self._missed) or {}


class _OpencodeFiles:
    """The files of versions before 1.2."""

    def __init__(self, path: Path, missed: Missed) -> None:
        self._session = path
        self._folder = path.parent.parent.parent
        self._missed = missed

    def session(self, session_id: str) -> Object:
        return document(self._session.with_name(f"{session_id}.json"), self._missed)

    def messages(self, session_id: str) -> Iterator[Object]:
        yield from self._documents("message", session_id)

    def parts(self, message_id: str) -> Iterator[Object]:
        yield from self._documents("part", message_id)

    def _documents(self, kind: str, name: str) -> Iterator[Object]:
        if re.fullmatch(r"[\w-]+", name):
            for path in files_below(self._folder / kind / name, "*.json"):
                yield document(path, self._missed) | {"id": path.stem}


# -- read ----------------------------------------------------------------------------------


def _store(source: Source, missed: Missed) -> _OpencodeStore:
    path = source.path
    return _OpencodeFiles(path, missed) if path.suffix == ".json" else _OpencodeRows(path, missed)


def branches(source: Source) -> Iterator[Source]:
    """Yield the session with its reverted part, as a conversation of its own."""
    store = _store(source, Missed())
    if text(store.session(source.session_id), "revert", "messageID"):
        yield replace(source, session_id=f"{source.session_id}~{REVERTED}", item=REVERTED)


def read(source: Source, writer: EntryWriter) -> Iterator[None]:
    """Read the session."""
    store = _store(source, writer.missed)
    session_id = source.session_id.removesuffix(f"~{REVERTED}")
    session = store.session(session_id)
    facts = writer.facts
    facts.cwd = text(session, "directory")
    writer.clock(milliseconds(obj(session, "time").get("created")))
    end = "" if source.item == REVERTED else text(session, "revert", "messageID")
    version = [int(part) for part in re.findall(r"\d+", text(session, "version"))]
    converter = _OpencodeConverter(store, writer, is_old=(version or [99])[:2] < [1, 2])
    for message in store.messages(session_id):
        if end and text(message, "id") >= end:
            writer.missed.count_abandoned(text(message, "role") == "user")
            continue
        converter.message(message)
        yield
    title = text(session, "title")
    if not _MADE_UP.match(title):
        writer.title(title)


class _OpencodeConverter(AgentConverter):
    """Converts one session, or with a SubagentWriter that subagent's."""

    def __init__(self, store: _OpencodeStore, writer: EntryWriter, *, is_old: bool) -> None:
        super().__init__(writer)
        self._store = store
        self._is_old = is_old

    def message(self, message: Object) -> None:
        message_id = text(message, "id")
        self._writer.clock(milliseconds(obj(message, "time").get("created")))
        if text(message, "role") == "user":
            if not self._writer.caller:
                self._prompt(self._store.parts(message_id))
            return
        if text(message, "role") != "assistant":
            self._missed.kind("messages", text(message, "role"), message)
            return
        for part in self._store.parts(message_id):
            kind = text(part, "type")
            if kind == "tool":
                self._call(part, text(message, "path", "cwd"))
            elif self._writer.caller:
                continue
            elif kind == "text":
                self._writer.say(text(part, "text"), message_id)
            elif kind == "reasoning":
                self._writer.think(text(part, "text"), text(part, "id"))
            elif kind == "file":
                if found := picture(text(part, "url")):
                    self._writer.show(found, message_id)
            elif kind not in _PASSED and kind != "step-finish":
                self._missed.kind("parts", kind, part)
        if self._writer.caller:
            return
        tokens = obj(message, "tokens")
        self._writer.model(text(message, "modelID"))
        self._writer.tokens(
            inputTokens=number(tokens, "input"),
            outputTokens=number(tokens, "output"),
            thoughtTokens=number(tokens, "reasoning"),
            cachedReadTokens=number(tokens, "cache", "read"),
            cachedWriteTokens=number(tokens, "cache", "write"),
        )
        error = text(message, "error", "name")
        if error == "MessageAbortedError":
            self._writer.end_turn("cancelled")
        elif error:
            self._writer.fail_turn(text(message, "error", "data", "message") or error)
        elif text(message, "finish") == "stop":
            self._writer.finish_answer()

    def _prompt(self, parts: Iterator[Object]) -> None:
        """Write a person's prompt: without file contents the program read, links as links."""
        blocks: list[Object] = []
        read_for_it = ""
        for part in parts:
            kind, words = text(part, "type"), text(part, "text")
            if kind == "compaction" and part.get("auto") is not True:
                blocks.append(text_block("/compact"))
            elif kind == "text" and part.get("synthetic") is True:
                if found := _READ_FOR_IT.match(words):
                    read_for_it = text(readable(found[1].encode(), Missed()), "filePath")
            elif kind == "text" and (embedded := _EMBEDDED.fullmatch(words)):
                blocks.append(resource(f"file://{embedded[1]}", embedded[2]))
            elif kind == "text":
                blocks.append(text_block(words))
            elif kind == "file":
                url, name = text(part, "url"), text(part, "filename")
                is_image = text(part, "mime").startswith("image/")
                uri = name if url.startswith("data:") else url
                uri = f"file://{read_for_it}" if read_for_it else uri
                block = picture(url) if is_image else None
                blocks.append(block or resource_link(name, uri))
                read_for_it = ""
            elif kind not in _PASSED:
                self._missed.kind("parts of prompts", kind, part)
        self._writer.prompt([block for block in blocks if block.get("text") != ""])

    def _call(self, part: Object, cwd: str) -> None:
        """Write a call, its subagent's calls, and its result."""
        call_id, name = text(part, "callID"), text(part, "tool")
        state, arguments = obj(part, "state"), obj(part, "state", "input")
        has_folder = name == "bash" and not self._is_old and bool(cwd)
        path = text(arguments, "path" if name in ("glob", "grep", "list") else "filePath")
        place = path or (cwd if has_folder else "")
        kind = "other" if self._is_old and name == "task" else KINDS.get(name, "other")
        fields: Object = {
            "status": "in_progress",
            "title": (text(arguments, "command") if has_folder else "") or name,
            "kind": kind,
            "rawInput": arguments | {"cwd": cwd} if has_folder else arguments,
            "locations": [{"path": place}] if place else [],
        }
        self._writer.call(call_id, fields)
        if name == "todowrite" and text(state, "status") == "completed" and not self._writer.caller:
            todos = [
                plan_entry(text(todo, "content"), text(todo, "status"), text(todo, "priority"))
                for todo in objects(arguments, "todos")
            ]
            self._writer.plan(todos)
        child = text(state, "metadata", "sessionId")
        if child and not self._writer.caller:
            below = SubagentWriter(self._writer, call_id)
            converter = _OpencodeConverter(self._store, below, is_old=self._is_old)
            for message in self._store.messages(child):
                converter.message(message)
        # How it ended; of one without an end, its output so far.
        status, about = text(state, "status"), obj(state, "metadata")
        if status == "completed":
            output = text(state, "output")
            shown = text(about, "display", "text") if name == "read" else ""
            produced = [content(shown or output)]
            if KINDS.get(name) == "edit" and (path := text(arguments, "filePath")):
                new = text(arguments, "newString") or text(arguments, "content")
                produced.append(diff(path, text(arguments, "oldString") or None, new))
            fields = {"status": "completed", "title": text(state, "title") or name}
            fields["content"] = produced
            fields["rawOutput"] = {"output": output, "metadata": about}
            self._writer.update(call_id, fields)
        elif status == "error":
            error = text(state, "error")
            raw: Object = {"error": error} | ({"metadata": about} if about else {})
            fields = {"status": "failed", "content": [content(error)], "rawOutput": raw}
            self._writer.update(call_id, fields)
        elif printed := text(about, "output"):
            self._writer.update(call_id, {"content": [content(printed)]})


READER: Final = Reader(NAME, KEY, find, read, branches)
