"""OpenCode: all sessions of a channel in one database, `~/.local/share/opencode/opencode.db`.

Other channels (a build from source, a preview) have databases beside it, `opencode-*.db`. Before
1.2 each session, message and part was a file below `storage`; they stay there after the migration.
A subagent is a session with a parent, told inside the call `task`. A part that is reverted is there
until the next prompt, and told until then. See `opencode_store`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from acphold.imports import databases
from acphold.imports.codex_tools import event_diffs
from acphold.imports.content_blocks import (
    block_content,
    content,
    picture,
    resource,
    resource_link,
    text_block,
)
from acphold.imports.entry_writer import EntryWriter
from acphold.imports.opencode_store import (
    MESSAGES_OF,
    OpencodeFiles,
    OpencodeRows,
    OpencodeStore,
    existing_tables,
)
from acphold.imports.readers import AgentConverter, Reader, token_counts
from acphold.imports.records import document, readable
from acphold.imports.sources import Home, Source, file_sources, files_below
from acphold.imports.tools import edit_diffs, tool_of
from acphold.imports.values import (
    Missed,
    Object,
    first_text,
    number,
    obj,
    objects,
    text,
)

NAME: Final = "opencode"
KEY: Final = "OpenCode"

_PASSED_MESSAGES: Final = frozenset(
    {"agent-switched", "location-switched", "model-switched", "skill", "synthetic", "system"}
)
"""Messages of version 2 that the program wrote."""

_ABORTED: Final = re.compile("abort|interrupt", re.IGNORECASE)

_MADE_UP: Final = re.compile(r"(New session - |Child session - |ACP Session )")
"""The start of a placeholder title."""

_READ_FOR_IT: Final = re.compile(r"Called the Read tool with the following input: (\{.*\})")
_EMBEDDED: Final = re.compile(r"\[(/[^\]\n]+)\]\n(.*)", re.DOTALL)
_PASSED: Final = frozenset(
    {"agent", "compaction", "patch", "retry", "snapshot", "step-start", "subtask"}
)


# -- found ---------------------------------------------------------------------------------


def find(home: Home) -> Iterator[Source]:
    """Yield the sessions of the database, then those that are only files; none of subagents."""
    yield from session_sources(NAME, home, "opencode", "OPENCODE_DB")


def session_sources(reader: str, home: Home, program: str, variable: str) -> Iterator[Source]:
    """Yield the sessions of OpenCode, or of a fork of it."""
    folder = home.data(program)
    moved = home.environment.get(variable, "")
    own = Path(moved) if moved.startswith("/") else folder / (moved or f"{program}.db")
    channels = [] if moved else files_below(folder, f"{program}-*.db")
    seen: set[str] = set()
    for database in (own, *channels):
        found: dict[str, Source] = {}
        for table in existing_tables(database):
            parts = "part" if table == "session" else MESSAGES_OF[table]
            columns = (
                f"id, time_updated, (SELECT count(*) FROM {parts} WHERE session_id = {table}.id)"
            )
            for it in databases.sources(reader, database, table, columns, "parent_id IS NULL"):
                if before := found.get(it.session_id):
                    changed = max(it.changed_at, before.changed_at)
                    it = replace(it, size=it.size + before.size, changed_at=changed)
                found[it.session_id] = it
        seen.update(found)
        yield from found.values()
    paths = files_below(folder / "storage/session", "*/ses_*.json")
    yield from file_sources(
        reader,
        (
            it
            for it in paths
            if it.stem not in seen and not text(document(it, Missed()), "parentID")
        ),
    )


# -- read ----------------------------------------------------------------------------------


def read(source: Source, writer: EntryWriter) -> Iterator[None]:
    """Read the session."""
    path, session_id = source.path, source.session_id
    store: OpencodeStore = OpencodeRows(path, writer.missed)
    if path.suffix == ".json":
        store = OpencodeFiles(path, writer.missed)
    session = store.session(session_id)
    facts = writer.facts
    facts.cwd, facts.begun_as = text(session, "directory"), text(session, "fork_session_id")
    writer.clock(obj(session, "time").get("created"))
    version = [int(part) for part in re.findall(r"\d+", text(session, "version"))]
    converter = _OpencodeConverter(store, writer, session_id, is_old=(version or [99])[:2] < [1, 2])
    for message in store.messages(session_id):
        converter.message(message)
        yield
    title = text(session, "title")
    if not _MADE_UP.match(title):
        writer.title(title)


class _OpencodeConverter(AgentConverter):
    """Converts one session, or that of a subagent."""

    def __init__(
        self, store: OpencodeStore, writer: EntryWriter, session_id: str, *, is_old: bool
    ) -> None:
        super().__init__(writer)
        self._store = store
        self._session_id = session_id
        self._is_old = is_old

    def message(self, message: Object) -> None:
        message_id, role = text(message, "id"), text(message, "role")
        self._writer.clock(obj(message, "time").get("created"))
        if role == "user":
            if not self._writer.caller:
                self._prompt(message_id, self._store.parts(message))
            return
        if role != "assistant":
            if not self._writer.caller:
                self._other(role, message)
            return
        self._cwd = text(message, "path", "cwd") or self._writer.facts.cwd
        self._answer(self._store.parts(message), message_id)
        if self._writer.caller:
            return
        tokens = obj(message, "tokens")
        self._writer.model(text(message, "modelID"))
        # A fork has copies of messages, with ids of its own.
        at = number(message, "time", "created")
        reply = f"{at} {number(tokens, 'output')}" if at else ""
        names = ("input", "output", "cache.read", "cache.write", "reasoning")
        self._writer.tokens(reply, **token_counts(tokens, *names))
        error = text(message, "error", "name")
        if _ABORTED.search(error):
            self._writer.end_turn("cancelled")
        elif error:
            self._writer.fail_turn(text(message, "error", "data", "message") or error)
        elif text(message, "finish") == "stop":
            self._writer.finish_answer()

    def _other(self, role: str, message: Object) -> None:
        """Write what neither the person nor the model said, in version 2."""
        message_id, outcome = text(message, "id"), text(message, "outcome")
        if role == "shell":
            self._writer.prompt([text_block(f"! {text(message, 'command')}")], turn=message_id)
            output = text(message, "output") or text(message, "output", "output")
            self._writer.say(output, message_id)
            self._writer.finish_answer()
        elif role == "compaction":
            if text(message, "reason") == "manual":
                self._writer.prompt([text_block("/compact")], turn=message_id)
            if summary := text(message, "summary"):
                self._writer.compaction(message_id, summary)
            elif text(message, "status") == "failed":
                self._writer.fail_turn(text(message, "error", "message"))
        elif role == "idle" and outcome == "interrupted":
            self._writer.end_turn("cancelled")
        elif role == "idle" and outcome == "succeeded":
            self._writer.finish_answer()
        elif role != "idle" and role not in _PASSED_MESSAGES:
            self._missed.kind("messages", role, message)

    def _prompt(self, message_id: str, parts: Iterator[Object]) -> None:
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
        blocks = [block for block in blocks if block.get("text") != ""]
        self._writer.prompt(blocks, turn=message_id)

    def _other_part(self, kind: str, part: Object, message_id: str) -> None:
        if kind == "file":
            if found := picture(text(part, "url")):
                self._writer.show(found, message_id)
        elif kind not in _PASSED and kind != "step-finish":
            super()._other_part(kind, part, message_id)

    def _call(self, part: Object) -> None:
        """Write a call, its subagent's calls, and its result."""
        cwd = self._cwd
        call_id, name = text(part, "callID"), text(part, "tool")
        state, arguments = obj(part, "state"), obj(part, "state", "input")
        has_folder = name in ("bash", "shell") and not self._is_old and bool(cwd)
        path = text(arguments, "filePath") or text(arguments, "path")
        place = path or (cwd if has_folder else "")
        is_other = name == "todowrite" or (self._is_old and name == "task")
        kind = "other" if is_other else tool_of(name).kind
        fields: Object = {
            "status": "in_progress",
            "title": (text(arguments, "command") if has_folder else "") or name,
            "kind": kind,
            "rawInput": arguments | {"cwd": cwd} if has_folder else arguments,
            "locations": [{"path": place}] if place else [],
        }
        self._writer.call(call_id, fields)
        if name == "todowrite" and text(state, "status") == "completed":
            self._writer.plan(objects(arguments, "todos"))
        if name in ("task", "subagent"):
            self._tell_subagent(call_id, self._subagent(state))
        # How it ended; of one without an end, its output so far.
        status, about = text(state, "status"), obj(state, "metadata")
        if status == "completed":
            output = text(state, "output")
            shown = text(about, "display", "text") if name == "read" else ""
            produced = [content(shown or output)]
            for file in objects(state, "files"):
                found = picture(text(file, "uri"))
                link = resource_link(text(file, "name"), text(file, "uri"))
                produced.append(block_content(found or link))
            if name != "patch" and kind == "edit":
                produced += edit_diffs(path, arguments)
            elif name == "patch":
                for file in objects(about, "files"):
                    patched = {"type": "update", "unified_diff": text(file, "patch")}
                    produced += event_diffs({text(file, "file"): patched})
            more: Object = {"rawOutput": {"output": output, "metadata": about}}
            if "title" in state:
                more["title"] = text(state, "title") or name
            self._end_call(call_id, failed=False, produced=produced, **more)
        elif status == "error":
            error = text(state, "error")
            raw: Object = {"error": error} | ({"metadata": about} if about else {})
            self._end_call(call_id, failed=True, produced=[content(error)], rawOutput=raw)
        elif printed := text(about, "output"):
            self._writer.update(call_id, {"content": [content(printed)]})

    def _subagent(self, state: Object) -> str:
        """Return the session of a call's subagent; a later call may go on with it.

        One that was stopped at once is not named in its call yet.
        """
        child = first_text(obj(state, "metadata"), ("sessionId", "sessionID"))
        if child or text(state, "status") in ("completed", "error") or self._writer.caller:
            return child
        asked = text(state, "input", "description")
        children = self._store.children(self._session_id)
        named = (it for it, title in children if asked and title.startswith(asked))
        return next((it for it in named if it not in self.told), "")

    def _tell(self, child: str) -> None:
        converter = _OpencodeConverter(self._store, self._writer, child, is_old=self._is_old)
        for message in self._store.messages(child):
            converter.message(message)


READER: Final = Reader(NAME, KEY, find, read)
