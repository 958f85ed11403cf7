"""Cursor: its editor's databases, `state.vscdb`, and the `store.db` of its command line.

The editor has one key-value table for all folders, `globalStorage/state.vscdb`: a conversation is
`composerData:<id>`, each of its messages `bubbleId:<id>:<bubble>`, in the order of its headers. In
2024 a folder's own database, `workspaceStorage/*/state.vscdb`, held its conversations whole, in two
values: those of the composer, and tabs of a chat. Today it only lists the conversations held in the
folder.

A subagent's conversation names its parent, and its calls are told inside the call that started it.
Conversations of the command line are read by `cursor_store`.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Final

from acphold.imports import cursor_tools, databases
from acphold.imports.content_blocks import link, plan_entry, resource, text_block
from acphold.imports.cursor_store import read_store
from acphold.imports.readers import Reader
from acphold.imports.records import readable
from acphold.imports.scribe import Scribe, SubagentScribe
from acphold.imports.sources import Home, Source, files_below, note, source_of
from acphold.imports.tellings import AgentTelling
from acphold.imports.values import (
    Missed,
    Object,
    from_json,
    looked_up,
    milliseconds,
    number,
    obj,
    objects,
    strings,
    text,
)
from acphold.imports.vscode import opened_folder, path_of

NAME: Final = "cursor"
KEY: Final = "cursor-agent"
"""Cursor gives no name in `initialize`; so it is identified by its command."""

EDITORS: Final = (".config/Cursor/User", "Library/Application Support/Cursor/User")

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

_MESSAGES: Final = _AT.format(
    "coalesce(json_array_length(CAST(value AS TEXT), '$.fullConversationHeadersOnly'), 0)"
    " + coalesce(json_array_length(CAST(value AS TEXT), '$.conversation'), 0)"
)

_HUMAN, _AGENT = 1, 2
_ENDED: Final = {"aborted": "cancelled", "cancelled": "cancelled"}


# -- found ---------------------------------------------------------------------------------


def find(home: Home) -> Iterator[Source]:
    """Yield the conversations of the command line, then those of the editor; none of subagents."""
    moved = home.environment.get("CURSOR_DATA_DIR", "")
    folder = Path(moved) if moved else home.path / ".cursor"
    for below, pattern in (("acp-sessions", "*/store.db"), ("chats", "*/*/store.db")):
        for path in files_below(folder / below, pattern):
            beside = [path.with_name("store.db-wal"), path.with_name("meta.json")]
            if source := source_of(NAME, path.parent.name, [path, *beside]):
                yield source
    for user in (home.path / editor for editor in EDITORS):
        seen: set[str] = set()
        for state in files_below(user / "globalStorage", _STATE):
            columns = f"key, length(value), {_CHANGED}, {_PARENT}, {_MESSAGES}"
            for key, size, changed, parent, messages in databases.listed(
                state, "cursorDiskKV", columns, _OF_COMPOSERS
            ):
                composer = key.partition(":")[2]
                # An editor keeps an empty conversation at hand.
                if composer and parent is None and messages:
                    seen.add(composer)
                    yield databases.row_source(NAME, state, composer, changed, size)
        for state in files_below(user / "workspaceStorage", f"*/{_STATE}"):
            for key, told in _held_whole(state).items():
                if key not in seen:
                    seen.add(key)
                    changed = told.get("lastUpdatedAt") or told.get("lastSendTime")
                    changed, size = changed or told.get("createdAt"), len(_messages_in(told))
                    yield databases.row_source(NAME, state, key, changed, size)


def _held_whole(state: Path) -> dict[str, Object]:
    """Return the conversations stored in a folder's database, by id."""
    whole = [
        *objects(_item(state, _COMPOSERS), "allComposers"),
        *objects(_item(state, _TABS), "tabs"),
    ]
    found = {text(one, "composerId") or text(one, "tabId"): one for one in whole}
    return {key: one for key, one in found.items() if key and _messages_in(one)}


def _messages_in(told: Object) -> list[Object]:
    return objects(told, "conversation") or objects(told, "bubbles")


def _item(state: Path, key: str) -> Object:
    """Return an editor's value for a key; empty if it is missing or unreadable."""
    try:
        return _value(state, "ItemTable", key, Missed())
    except OSError as error:
        note(error)
        return {}


def _value(state: Path, table: str, key: str, missed: Missed) -> Object:
    """Return the value of a key; empty if it is missing."""
    for (value,) in databases.rows_of(state, table, "value", "key = ?", missed, key):
        if value is not None:
            raw = value if isinstance(value, bytes) else str(value).encode(errors="replace")
            return readable(raw, missed) or {}
    return {}


# -- read ----------------------------------------------------------------------------------


def read(source: Source, scribe: Scribe) -> Iterator[None]:
    """Tell the conversation."""
    state = Path(source.paths[0])
    if state.name != _STATE:
        yield from read_store(source, scribe)
        return
    missed = scribe.missed
    is_global = state.parent.name == "globalStorage"
    if is_global:
        # Looked up first: reading other databases later would have this one copied again.
        cwd = _folders(state.parent.parent).get(source.item, "")
        composer = _value(state, "cursorDiskKV", f"composerData:{source.item}", missed)
        bubbles = _bubbles(state, composer, source.item, missed)
    else:
        cwd = opened_folder(state.parent)
        composer = _held_whole(state).get(source.item, {})
        bubbles = iter(_messages_in(composer))
    scribe.facts.cwd = cwd or path_of(looked_up(composer, "workspaceIdentifier", "uri"))
    scribe.clock(milliseconds(composer.get("createdAt")))
    telling = _CursorTelling(state, composer, scribe)
    for bubble in bubbles:
        telling.bubble(bubble)
        yield
    scribe.clock(milliseconds(composer.get("lastUpdatedAt")))
    if ended := _ENDED.get(text(composer, "status")):
        scribe.end_turn(ended)
    scribe.title(text(composer, "name") or text(composer, "chatTitle"))


def _bubbles(state: Path, composer: Object, composer_id: str, missed: Missed) -> Iterator[Object]:
    """Yield the messages of a conversation: one per row, or all in one value."""
    if whole := objects(composer, "conversation"):
        yield from whole
        return
    within = obj(composer, "conversationMap")
    for header in objects(composer, "fullConversationHeadersOnly"):
        bubble_id = text(header, "bubbleId")
        if bubble := obj(within, bubble_id):
            yield bubble
            continue
        key = f"bubbleId:{composer_id}:{bubble_id}"
        yield _value(state, "cursorDiskKV", key, missed)


@lru_cache(maxsize=4)
def _folders(user: Path) -> dict[str, str]:
    """Return the folders of conversations by id, cached for all of them."""
    found: dict[str, str] = {}
    for state in files_below(user / "workspaceStorage", f"*/{_STATE}"):
        if cwd := opened_folder(state.parent):
            for header in objects(_item(state, _COMPOSERS), "allComposers"):
                found[text(header, "composerId")] = cwd
    for header in objects(_item(user / "globalStorage" / _STATE, _HEADERS), "allComposers"):
        if cwd := path_of(looked_up(header, "workspaceIdentifier", "uri")):
            found[text(header, "composerId")] = cwd
    return found


class _CursorTelling(AgentTelling):
    """Tells one conversation, or with a SubagentScribe that subagent's."""

    def __init__(self, state: Path, composer: Object, scribe: Scribe) -> None:
        super().__init__(scribe)
        self._state = state
        self._model = text(composer, "modelConfig", "modelName")
        self._children = strings(composer, "subagentComposerIds")

    def bubble(self, bubble: Object) -> None:
        """Take the next message."""
        at = bubble.get("createdAt") or looked_up(bubble, "timingInfo", "clientStartTime")
        self._scribe.clock(milliseconds(at))
        kind = bubble.get("type")
        if kind in (_HUMAN, "user"):
            if not self._scribe.caller:
                self._prompt(bubble)
        elif kind in (_AGENT, "ai"):
            self._answer(bubble)
        elif bubble:
            self._missed.kind("messages", str(kind), bubble)

    def _prompt(self, bubble: Object) -> None:
        if not self._scribe.facts.cwd:
            folders = [path_of(uri) for uri in strings(bubble, "workspaceUris")]
            self._scribe.facts.cwd = next(filter(None, folders), "")
        words = text(bubble, "text")
        blocks = [text_block(words)] if words else []
        told = obj(bubble, "context") or bubble
        for chosen in objects(told, "fileSelections"):
            # A file that was not mentioned is there because it was open.
            path = path_of(chosen.get("uri"))
            if path and chosen.get("addedWithoutMention") is not True:
                blocks.append(link(path))
        for chosen in objects(told, "selections"):
            path = path_of(chosen.get("uri"))
            if path and (marked := text(chosen, "rawText") or text(chosen, "text")):
                blocks.append(resource(f"file://{path}", marked))
        pictures = (text(chosen, "path") for chosen in objects(told, "selectedImages"))
        blocks += [link(path) for path in pictures if path]
        self._scribe.prompt(blocks)
        self._scribe.model(text(bubble, "modelInfo", "modelName") or self._model)

    def _answer(self, bubble: Object) -> None:
        message_id = text(bubble, "bubbleId") or text(bubble, "id")
        self._scribe.model(text(bubble, "modelType"))
        self._scribe.tokens(
            inputTokens=number(bubble, "tokenCount", "inputTokens"),
            outputTokens=number(bubble, "tokenCount", "outputTokens"),
        )
        call = obj(bubble, "toolFormerData")
        if not self._scribe.caller:
            thoughts = [obj(bubble, "thinking")] if bubble.get("thinking") else []
            for thought in thoughts or objects(bubble, "allThinkingBlocks"):
                self._scribe.think(text(thought, "text"), message_id)
            self._scribe.say(text(bubble, "text"), message_id)
        if text(call, "name"):
            self._call(call, message_id)
        if wrong := obj(bubble, "errorDetails"):
            told = looked_up(wrong, "error", "details")
            said = [text(told, "title"), text(told, "detail"), text(wrong, "message")]
            self._scribe.fail_turn(": ".join(filter(None, said)) or "The request failed")

    def _call(self, call: Object, message_id: str) -> None:
        call_id = text(call, "toolCallId").partition("\n")[0] or f"call-{message_id}"
        cwd = self._scribe.facts.cwd
        self._scribe.call(call_id, cursor_tools.asked(call, cwd))
        name = cursor_tools.short(text(call, "name"))
        if name == "todo_write" and not self._scribe.caller:
            steps = objects(from_json(text(call, "result")), "finalTodos")
            steps = steps or objects(cursor_tools.given(call), "todos")
            entries = [
                plan_entry(
                    text(step, "content"),
                    text(step, "status").removeprefix("TODO_STATUS_").lower(),
                )
                for step in steps
            ]
            if entries:
                self._scribe.plan(entries)
        if name == "task" and not self._scribe.caller:
            for child in self._children:
                key = f"composerData:{child}"
                composer = _value(self._state, "cursorDiskKV", key, self._missed)
                if text(composer, "subagentInfo", "toolCallId").partition("\n")[0] == call_id:
                    scribe = SubagentScribe(self._scribe, call_id)
                    telling = _CursorTelling(self._state, composer, scribe)
                    for bubble in _bubbles(self._state, composer, child, self._missed):
                        telling.bubble(bubble)
        if fields := cursor_tools.answered(call, cwd, self._kept):
            self._scribe.update(call_id, fields)

    def _kept(self, content_id: str) -> str | None:
        """Return a file's content by its content id; it is stored once for all references."""
        for (value,) in databases.rows_of(
            self._state, "cursorDiskKV", "value", "key = ?", self._missed, content_id
        ):
            return value.decode(errors="replace") if isinstance(value, bytes) else str(value)
        return None


READER: Final = Reader(NAME, KEY, find, read)
