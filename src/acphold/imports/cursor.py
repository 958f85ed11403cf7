"""Cursor's editor: its databases, `state.vscdb`, and the fields of its tool calls.

The editor has one key-value table for all folders, `globalStorage/state.vscdb`: a conversation is
`composerData:<id>`, each of its messages `bubbleId:<id>:<bubble>`, in the order of its headers. In
2024 a folder's own database, `workspaceStorage/*/state.vscdb`, held its conversations whole, in two
values: those of the composer, and tabs of a chat. Today it only lists the conversations held in the
folder.

A subagent's conversation names its parent, and its calls are told inside the call that started it.
Conversations of the command line are read by `cursor_store`.

In a call, `rawArgs` is the model's input, `params` Cursor's version of it, `result` the output:
JSON in strings. A name that ends in `_v2` means the same as the name without it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from errno import ENOENT
from functools import lru_cache
from pathlib import Path
from typing import Final

from acphold.imports import databases
from acphold.imports.content_blocks import contents, diff, link, resource, sides, text_blocks
from acphold.imports.cursor_store import read_store
from acphold.imports.entry_writer import EntryWriter
from acphold.imports.readers import AgentConverter, Reader, token_counts
from acphold.imports.records import readable
from acphold.imports.sources import Home, Source, files_below, note, source_of
from acphold.imports.tools import call_fields, edit_diffs, tool_of
from acphold.imports.values import (
    Missed,
    Object,
    as_bytes,
    first_text,
    from_json,
    look_up,
    obj,
    objects,
    strings,
    text,
)
from acphold.imports.vscode import folder_of, path_of

_STATE: Final = "state.vscdb"
_COMPOSERS: Final = "composer.composerData"
_HEADERS: Final = "composer.composerHeaders"
_TABS: Final = "workbench.panel.aichat.view.aichat.chatdata"

_OF_COMPOSERS: Final = "key >= 'composerData:' AND key < 'composerData;'"
_AT: Final = "CASE WHEN json_valid(CAST(value AS TEXT)) THEN {} END"
_CHANGED: Final = _AT.format(
    "coalesce(json_extract(CAST(value AS TEXT), '$.lastUpdatedAt'),"
    " json_extract(CAST(value AS TEXT), '$.createdAt'))"
)
_PARENT: Final = _AT.format("json_extract(CAST(value AS TEXT), '$.subagentInfo.parentComposerId')")

_OF_BUBBLES: Final = "{0} >= 'bubbleId:' || {1} || ':' AND {0} < 'bubbleId:' || {1} || ';'"
_SAID_AT: Final = _AT.format("json_extract(CAST(value AS TEXT), '$.createdAt')")
_MESSAGES: Final = _AT.format(
    "coalesce(json_array_length(CAST(value AS TEXT), '$.fullConversationHeadersOnly'), 0)"
    " + coalesce(json_array_length(CAST(value AS TEXT), '$.conversation'), 0)"
    " + coalesce((SELECT 1 FROM cursorDiskKV AS b WHERE"
    f" {_OF_BUBBLES.format('b.key', 'substr(cursorDiskKV.key, 14)')} LIMIT 1), 0)"
)
_COMPOSER: Final = "substr(step.key, 10, instr(substr(step.key, 10) || ':', ':') - 1)"
_WITH_BUBBLES: Final = f"""
    WITH RECURSIVE {databases.REPEATED} (key) AS (
        SELECT min(key) FROM cursorDiskKV WHERE key >= 'bubbleId:' AND key < 'bubbleId;'
        UNION SELECT (
            SELECT min(b.key) FROM cursorDiskKV AS b
            WHERE b.key >= 'bubbleId:' || {_COMPOSER} || ';' AND b.key < 'bubbleId;'
        ) FROM {databases.REPEATED} AS step WHERE step.key IS NOT NULL
    ) SELECT {_COMPOSER} FROM {databases.REPEATED} AS step WHERE step.key IS NOT NULL
"""
"""The ids of the conversations with messages in rows; each is one step of an index."""

_HUMAN, _AGENT = 1, 2
_ENDED: Final = {"aborted": "cancelled", "cancelled": "cancelled"}


# -- found ---------------------------------------------------------------------------------


def find(home: Home) -> Iterator[Source]:
    """Yield the conversations of the command line, then those of the editor; none of subagents."""
    folder = home.folder(".cursor", "CURSOR_DATA_DIR")
    for below, pattern in (("acp-sessions", "*/store.db"), ("chats", "*/*/store.db")):
        for path in files_below(folder / below, pattern):
            beside = [path.with_name("store.db-wal"), path.with_name("meta.json")]
            yield from source_of(path.parent.name, [path, *beside])
    for user in home.editors("Cursor*"):  # each channel, such as `Cursor Nightly`
        seen: set[str] = set()
        known = {""}
        for state in files_below(user / "globalStorage", _STATE):
            columns = f"key, length(value), {_CHANGED}, {_PARENT}, {_MESSAGES}"
            for key, size, changed, parent, messages in databases.sessions_of(
                state, "cursorDiskKV", columns, _OF_COMPOSERS
            ):
                composer = key.partition(":")[2]
                known.update([] if messages is None else [composer])
                # An editor keeps an empty conversation at hand.
                if composer and parent is None and messages:
                    seen.add(composer)
                    yield databases.row_source(state, composer, changed, size)
            _note_others(state, known, "conversations without their record")
        # It is as at the last end of the editor, so it rarely has any.
        for backup in files_below(user / "globalStorage", f"{_STATE}.backup"):
            _note_others(backup, known, f"conversations that are not in {_STATE}")
        for state in files_below(user / "workspaceStorage", f"*/{_STATE}"):
            for key, conversation in _whole_conversations(state).items():
                if key not in seen:
                    seen.add(key)
                    times = ("lastUpdatedAt", "lastSendTime", "createdAt")
                    changed = next(filter(None, map(conversation.get, times)), None)
                    size = len(_messages_in(conversation))
                    yield databases.row_source(state, key, changed, size)


def _note_others(state: Path, known: set[str], what: str) -> None:
    """Note how many conversations with messages in a database are not among the known ones."""
    with suppress(OSError):  # it is noted where it is read
        found = databases.rows(state, _WITH_BUBBLES)
        if count := sum(composer not in known for (composer,) in found):
            note(OSError(ENOENT, f"{what}: {count}", str(state)))


def _whole_conversations(state: Path) -> dict[str, Object]:
    """Return the conversations stored in a folder's database, by id."""
    whole = [
        *objects(_item(state, _COMPOSERS), "allComposers"),
        *objects(_item(state, _TABS), "tabs"),
    ]
    found = {text(one, "composerId") or text(one, "tabId"): one for one in whole}
    return {key: one for key, one in found.items() if key and _messages_in(one)}


def _messages_in(conversation: Object) -> list[Object]:
    return objects(conversation, "conversation") or objects(conversation, "bubbles")


def _item(state: Path, key: str) -> Object:
    """Return an editor's value for a key; empty if it is missing or unreadable."""
    try:
        return _value(databases.AgentTables(state, Missed()), "ItemTable", key)
    except OSError as error:
        note(error)
        return {}


def _value(tables: databases.AgentTables, table: str, key: str) -> Object:
    """Return the value of a key; empty if it is missing."""
    value = tables.first(table, "value", "key = ?", key)
    return {} if value is None else readable(as_bytes(value), tables.missed) or {}


# -- read ----------------------------------------------------------------------------------


def read(source: Source, writer: EntryWriter) -> Iterator[None]:
    """Read the conversation."""
    state = source.path
    if state.name != _STATE:
        yield from read_store(source, writer)
        return
    tables = databases.AgentTables(state, writer.missed)
    if state.parent.name == "globalStorage":
        # Looked up first: reading other databases later would have this one copied again.
        cwd = _folders(state.parent.parent).get(source.item, "")
        composer = _value(tables, "cursorDiskKV", f"composerData:{source.item}")
        bubbles = _bubbles(tables, composer, source.item)
    else:
        cwd = folder_of(state, writer.missed)
        composer = _whole_conversations(state).get(source.item, {})
        bubbles = iter(_messages_in(composer))
    writer.facts.cwd = cwd or path_of(look_up(composer, "workspaceIdentifier", "uri"))
    writer.clock(composer.get("createdAt"))
    converter = _CursorConverter(tables, composer, writer)
    yield from converter.take_all(bubbles)
    writer.clock(composer.get("lastUpdatedAt"))
    if ended := _ENDED.get(text(composer, "status")):
        writer.end_turn(ended)
    writer.title(text(composer, "name") or text(composer, "chatTitle"))


def _bubbles(tables: databases.AgentTables, composer: Object, composer_id: str) -> Iterator[Object]:
    """Yield the messages of a conversation: one per row, or all in one value."""
    if whole := objects(composer, "conversation"):
        yield from whole
        return
    within = obj(composer, "conversationMap")
    headers = objects(composer, "fullConversationHeadersOnly")
    if not headers:  # the editor lost them, or the person went back to the beginning
        where = f"{_OF_BUBBLES.format('key', '?1')} ORDER BY {_SAID_AT}, rowid"
        for (value,) in tables.rows("cursorDiskKV", "value", where, composer_id):
            yield readable(as_bytes(value), tables.missed) or {}
    for bubble_id in dict.fromkeys(text(header, "bubbleId") for header in headers):
        if bubble := obj(within, bubble_id):
            yield bubble
            continue
        key = f"bubbleId:{composer_id}:{bubble_id}"
        before = tables.missed.counts.total()
        bubble = _value(tables, "cursorDiskKV", key)
        if not bubble and tables.missed.counts.total() == before:
            tables.missed.add(databases.MISSING_ROWS, 0)
        yield bubble


@lru_cache(maxsize=4)
def _folders(user: Path) -> dict[str, str]:
    """Return the folders of conversations by id, cached for all of them."""
    found: dict[str, str] = {}
    for state in files_below(user / "workspaceStorage", f"*/{_STATE}"):
        if cwd := folder_of(state, Missed()):
            for header in objects(_item(state, _COMPOSERS), "allComposers"):
                found[text(header, "composerId")] = cwd
    for header in objects(_item(user / "globalStorage" / _STATE, _HEADERS), "allComposers"):
        if cwd := path_of(look_up(header, "workspaceIdentifier", "uri")):
            found[text(header, "composerId")] = cwd
    return found


class _CursorConverter(AgentConverter):
    """Converts one conversation, or that of a subagent."""

    def __init__(
        self, tables: databases.AgentTables, composer: Object, writer: EntryWriter
    ) -> None:
        super().__init__(writer)
        self._tables = tables
        self._model = text(composer, "modelConfig", "modelName")
        self._children = strings(composer, "subagentComposerIds")

    def take(self, bubble: Object) -> None:
        at = bubble.get("createdAt") or look_up(bubble, "timingInfo", "clientStartTime")
        self._writer.clock(at)
        kind = bubble.get("type")
        if kind in (_HUMAN, "user"):
            if self._writer.caller:
                return
            if not self._writer.facts.cwd:
                folders = [path_of(uri) for uri in strings(bubble, "workspaceUris")]
                self._writer.facts.cwd = next(filter(None, folders), "")
            blocks = text_blocks(text(bubble, "text"))
            context = obj(bubble, "context") or bubble
            for chosen in objects(context, "fileSelections"):
                # A file that was not mentioned is there because it was open.
                path = path_of(chosen.get("uri"))
                if path and chosen.get("addedWithoutMention") is not True:
                    blocks.append(link(path))
            for chosen in objects(context, "selections"):
                path = path_of(chosen.get("uri"))
                if path and (marked := text(chosen, "rawText") or text(chosen, "text")):
                    blocks.append(resource(f"file://{path}", marked))
            pictures = (text(chosen, "path") for chosen in objects(context, "selectedImages"))
            blocks += [link(path) for path in pictures if path]
            self._writer.prompt(blocks, turn=text(bubble, "bubbleId"))
            self._writer.model(text(bubble, "modelInfo", "modelName") or self._model)
        elif kind in (_AGENT, "ai"):
            message_id = text(bubble, "bubbleId") or text(bubble, "id")
            self._writer.model(text(bubble, "modelType"))
            self._writer.tokens(**token_counts(bubble.get("tokenCount")))
            call = obj(bubble, "toolFormerData")
            if not self._writer.caller:
                thoughts = [obj(bubble, "thinking")] if bubble.get("thinking") else []
                for thought in thoughts or objects(bubble, "allThinkingBlocks"):
                    self._writer.think(text(thought, "text"), message_id)
                self._writer.say(text(bubble, "text"), message_id)
            if text(call, "name"):
                self._take_call(call, message_id)
            if wrong := obj(bubble, "errorDetails"):
                details = look_up(wrong, "error", "details")
                said = text(details, "title"), text(details, "detail")
                self._writer.fail_turn(*said, text(wrong, "message"))
        elif bubble:
            self._missed.kind("messages", str(kind), bubble)

    def _take_call(self, call: Object, message_id: str) -> None:
        call_id = text(call, "toolCallId").partition("\n")[0] or f"call-{message_id}"
        # A newer version of a tool means the same.
        name = text(call, "name").removesuffix("_v2")
        asked, made = from_json(text(call, "rawArgs")), from_json(text(call, "params"))
        values = {**obj(made), **obj(asked)}
        self._writer.call(call_id, self._shown(name, values, call))
        result = from_json(text(call, "result"))
        steps = objects(result, "finalTodos") or objects(values, "todos")
        if name == "todo_write" and steps:
            self._writer.plan(steps)
        for child in self._children if name == "task" else ():
            composer = self._composer(child)
            if text(composer, "subagentInfo", "toolCallId").partition("\n")[0] == call_id:
                self._tell_subagent(call_id, child)
        # How the call ended, if it has.
        status, refused = text(call, "status"), text(call, "userDecision") == "rejected"
        if status not in ("completed", "error", "cancelled") and not refused:
            return
        is_done = status == "completed" and not refused
        produced: list[Object] = []
        if is_done and tool_of(name).kind == "edit":
            produced = self._changes(self._place(name, values), values, result)
        produced = produced or contents(_output(result))
        produced += contents(first_text(from_json(text(call, "error")), _ERRORS))
        self._end_call(call_id, failed=not is_done, produced=produced, rawOutput=result or None)

    def _shown(self, name: str, arguments: Object, part: Object) -> Object:
        if name.startswith(("mcp-", "mcp_")):
            (tool, *_) = objects(arguments, "tools") or [arguments]
            server = text(tool, "serverName") or text(tool, "server")
            title = f"{server}: {text(tool, 'name')}" if server else name
            arguments = obj(from_json(text(tool, "parameters"))) or arguments
            return call_fields(title, "other", arguments)
        fields = super()._shown(name, arguments, part)
        return fields | {"rawInput": arguments or text(part, "rawArgs")}

    def _composer(self, composer_id: str) -> Object:
        return _value(self._tables, "cursorDiskKV", f"composerData:{composer_id}")

    def _inside(self, child: str) -> tuple[AgentConverter, Iterator[Object]]:
        composer = self._composer(child)
        bubbles = _bubbles(self._tables, composer, child)
        return _CursorConverter(self._tables, composer, self._writer), bubbles

    def _changes(self, path: str, values: Object, result: object) -> list[Object]:
        """Return the diffs of an edit: from both file versions, its chunks, or its arguments."""
        if not path:
            return []
        if after := text(result, "afterContentId"):
            before = text(result, "beforeContentId")
            old, new = self._content_of(before) if before else None, self._content_of(after)
            if new is not None:
                return [diff(path, old, new)]
        chunks = objects(look_up(result, "diff"), "chunks") or objects(result, "chunks")
        found: list[Object] = []
        for chunk in chunks:
            lines = text(chunk, "diffString").split("\n")
            found.append(diff(path, *map("\n".join, sides(lines, mark_characters=2))))
        return found or edit_diffs(path, values)

    def _content_of(self, content_id: str) -> str | None:
        """Return a file's content by its content id; it is stored once for all references."""
        value = self._tables.first("cursorDiskKV", "value", "key = ?", content_id)
        return None if value is None else as_bytes(value).decode(errors="replace")


_PRINTED: Final = ("output", "contents", "content", "results", "markdown", "message", "result")
"""Names of a result's text."""

_ERRORS: Final = ("clientVisibleErrorMessage", "modelVisibleErrorMessage", "message")


def _output(result: object) -> str:
    if isinstance(result, str):
        return result
    words = first_text(result, _PRINTED)
    if parts := objects(from_json(words), "content"):  # of an MCP tool, maybe only a picture
        return "\n".join(filter(None, (text(part, "text") for part in parts)))
    return words


READER: Final = Reader("cursor", "cursor-agent", find, read)
"""Cursor gives no name in `initialize`; so it is identified by its command."""
