"""Zed's own agent: all threads in one database, `~/.local/share/zed/threads/threads.db`.

A thread is one JSON document in its row, packed with zstd. Since 0.3.0 a message is named by its
speaker, and calls with their results are in the agent's. Before, messages had a role, segments, and
calls and results beside them. A subagent is a thread with a parent. Times of messages are not
stored, nor ends of turns. Agents that Zed runs over ACP store their own messages.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import Final

from acphold.imports import databases
from acphold.imports.content_blocks import (
    block_content,
    link,
    resource,
    resource_link,
    text_blocks,
)
from acphold.imports.entry_writer import EntryWriter
from acphold.imports.readers import AgentConverter, Reader, token_counts
from acphold.imports.records import UNPACKED_BYTES, readable
from acphold.imports.sources import Home, Source, note, note_above
from acphold.imports.values import Object, as_bytes, milliseconds, obj, objects, text

_COLUMNS: Final = (
    "data_type", "data", "parent_id", "folder_paths", "folder_paths_order", "created_at",
)  # fmt: skip
"""A thread, and columns of newer versions beside it."""


def find(home: Home) -> Iterator[Source]:
    """Yield the threads of the database; none of subagents."""
    folders = [home.data("zed"), home.path / "Library/Application Support/Zed"]
    folders.append(home.path / ".var/app/dev.zed.Zed/data/zed")
    for database in (folder / "threads/threads.db" for folder in folders):
        note_above(database.parent)
        if not database.exists():
            continue
        try:
            names = databases.columns_of(database, "threads", _COLUMNS)
        except OSError as error:
            note(error)
            continue
        which = "parent_id IS NULL" if "parent_id" in names else "1"
        columns = "id, updated_at, length(data)"
        yield from databases.sources(database, "threads", columns, which)


def read(source: Source, writer: EntryWriter) -> Iterator[None]:
    """Read the thread; raises OSError if it cannot be read."""
    tables = databases.AgentTables(source.path, writer.missed)
    thread, about = _thread(tables, source.item)
    # The first folder of the project, in the person's order.
    paths = str(about.get("folder_paths") or "").split("\n")
    order = str(about.get("folder_paths_order") or "").split(",")
    first = next((place for place, rank in enumerate(order) if rank.strip() == "0"), 0)
    snapshots = objects(thread, "initial_project_snapshot", "worktree_snapshots")
    cwd = paths[first if first < len(paths) else 0]
    writer.facts.cwd = cwd or next((text(one, "worktree_path") for one in snapshots), "")
    writer.clock(about.get("created_at"))
    writer.facts.created_at = writer.facts.created_at or milliseconds(thread.get("updated_at"))
    converter = ZedConverter(writer, thread, tables, source.item if "parent_id" in about else "")
    told = objects(thread, "messages")
    asked = [place for place, message in enumerate(told) if text(message, "User", "id")]
    for place, message in enumerate(told):
        if asked[-1:] == [place]:  # of the others no time is known
            writer.clock(thread.get("updated_at"))
        converter.take(message)
        yield
    converter.tell_stopped()
    writer.clock(thread.get("updated_at"))
    writer.spend(None, **token_counts(thread.get("cumulative_token_usage")))
    writer.title(text(thread, "title") or text(thread, "summary"))


def _thread(tables: databases.AgentTables, thread_id: str) -> tuple[Object, Object]:
    """Return a thread and its columns; empty if it is missing."""
    missed = tables.missed
    for about in tables.objects("threads", _COLUMNS, "id = ?", thread_id):
        raw = as_bytes(about["data"])
        if about["data_type"] == "zstd":
            from acphold.journal.compression import WINDOW, zstd

            packed = raw
            try:
                raw = zstd.ZstdDecompressor(options=WINDOW).decompress(packed, UNPACKED_BYTES + 1)
            except zstd.ZstdError:
                missed.add("damaged threads", packed)
                raw = b"{}"
            if len(raw) > UNPACKED_BYTES:
                missed.add("threads that are too large when unpacked", packed)
                raw = b"{}"
        return readable(raw, missed) or {}, about
    return {}, {}


class ZedConverter(AgentConverter):
    """Converts one thread, or that of a subagent."""

    subagent_tools = frozenset({"spawn_agent", "subagent"})

    def __init__(
        self,
        writer: EntryWriter,
        thread: Object | None = None,
        tables: databases.AgentTables | None = None,
        thread_id: str = "",
    ) -> None:
        """`thread_id` is its own if subagents can be found by that."""
        super().__init__(writer)
        self._tables = tables
        self._model = text(thread, "model", "model")
        self._thread_id = thread_id
        self._compactions = 0

    def take(self, message: Object) -> None:
        if "role" in message:
            self._take_older(message)
            return
        for who, told in message.items():
            parts = (_part(*it) for part in objects(told, "content") for it in part.items())
            if who == "User":
                self._prompt(parts, str(obj(told).get("id", "")))
            elif who == "Agent":
                self._answer(parts, "")
                for call_id, value in obj(told, "tool_results").items():
                    self._take_result(call_id, obj(value))
            elif who == "Compaction":
                self._compactions += 1
                self._writer.compaction(f"compacted-{self._compactions}", text(told, "Summary"))
            else:
                self._missed.kind("messages", who, message)

    def _take_older(self, message: Object) -> None:
        """Take a message as it was written before 0.3.0."""
        role = text(message, "role").lower()
        if message.get("is_hidden") is True or role == "system":
            return
        said = objects(message, "segments") or text_blocks(text(message, "text"))
        if role == "user":
            attached = text(message, "context")
            self._prompt([*said, {"type": "Context", "text": attached}] if attached else said, "")
            said = []
        calls = ({"type": "tool_use"} | call for call in objects(message, "tool_uses"))
        self._answer([*said, *calls], "")
        for result in objects(message, "tool_results"):
            self._take_result(text(result, "tool_use_id"), result)

    def _prompt(self, parts: Iterable[Object], turn: str) -> None:
        if not self._writer.caller:
            self.tell_stopped()
            self._writer.prompt(self._blocks(parts), turn=turn)
            self._writer.model(self._model)

    def _other_block(self, kind: str, part: Object, of: str) -> list[Object]:
        if kind == "Mention":
            return [_mention_block(part)]
        if kind == "Context":
            return [resource("context:attached", text(part, "text"))]
        return super()._other_block(kind, part, of)

    def _place(self, _name: str, arguments: Object) -> str:
        return self._path(text(arguments, "path"))

    def _find_subagent(self, call_id: str, arguments: Object, result: Object | None) -> str | None:
        """Return the thread that a result names; of a stopped subagent the first that is not told
        yet."""
        if result is not None:
            done = obj(result, "output", "Success") or obj(result, "output")
            return text(done, "session_id")
        if self._tables is None or not self._thread_id:
            return None
        del self._calls[call_id]  # of the next call it is the next one
        which = "parent_id = ? ORDER BY rowid"
        found = self._tables.rows("threads", "id", which, self._thread_id)
        return next((str(child) for (child,) in found if child not in self.told), None)

    def _inside(self, child: str) -> tuple[AgentConverter, Iterable[Object]]:
        thread, _ = _thread(self._tables, child) if self._tables else ({}, {})
        return ZedConverter(self._writer, thread, self._tables), objects(thread, "messages")

    def _result(self, result: Object, call_id: str, name: str, arguments: Object) -> None:
        output = result.get("output")
        failed = result.get("is_error") is True
        path = self._path(text(output, "input_path") or text(arguments, "path"))
        produced = [] if failed else self._changes_by(name, path, output)
        if not produced:
            # As the model got it: one text or picture, or several.
            told = result.get("content")
            for part in told if isinstance(told, list) else [told]:
                its = {"Text": part} if isinstance(part, str) else obj(part)
                produced += map(block_content, self._blocks(_part(*it) for it in its.items()))
        self._end_call(call_id, failed=failed, produced=produced, rawOutput=output)

    def _path(self, path: str) -> str:
        """Return the absolute form of a project path, which begins with the name of its folder."""
        cwd = self._writer.facts.cwd
        if path and cwd and path.partition("/")[0] == os.path.basename(cwd):
            return os.path.join(os.path.dirname(cwd), path)
        return path


_KINDS: Final = {
    "Text": "text",
    "Thinking": "thinking",
    "RedactedThinking": "redacted_thinking",
    "ToolUse": "tool_use",
    "Image": "image",
}


def _part(kind: str, value: object) -> Object:
    """Return a part of a message, which is named by its kind, in the form of other programs."""
    if kind == "Image":
        return {"type": "image", "data": text(value, "source"), "mimeType": "image/png"}
    told: Object = {"text": value} if isinstance(value, str) else obj(value)
    return told | {"type": _KINDS.get(kind, kind)}


def _mention_block(mention: Object) -> Object:
    """Return a mention in a prompt, with its content if that is stored."""
    uri = mention.get("uri")
    kind, about = next(iter(obj(uri).items()), (uri if isinstance(uri, str) else "", {}))
    path, said = text(about, "abs_path"), text(mention, "content")
    if path and kind == "Directory":
        return link(path)
    if path:
        return resource(f"file://{path}", said) if said else link(path)
    where = text(about, "url") or f"context:{str(kind).lower()}"
    name = text(about, "name") or where
    return resource(where, said) if said else resource_link(name, where)


READER: Final = Reader("zed", "zed", find, read)
