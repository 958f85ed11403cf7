"""Cursor's command line: a database, `store.db`, of blobs by hash, many in Protocol Buffers.

`meta` names the root, a Protocol Buffers message. It lists turns, and a turn its prompt and steps,
each by its hash, unaffected by summaries for the model. Early versions have no turns: the root
lists the model's messages, in JSON, in which prompts are marked.

There is no schema. Field numbers are those of `agent.v1` in Cursor's published SDK, npm
`@cursor/sdk` 1.0.18. Unexpected values count as missing, and only requested fields are decoded
further. Sessions held over ACP are in `acp-sessions`, those of a terminal in `chats`. Their folder
is in `meta.json`, otherwise in the root.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Callable, Iterator
from typing import Final
from urllib.parse import unquote, urlsplit

from acphold.imports.content_blocks import (
    content,
    contents,
    diff,
    image,
    link,
    parts_of,
    resource,
    resource_link,
    text_block,
    text_blocks,
)
from acphold.imports.databases import AgentTables
from acphold.imports.entry_writer import EntryWriter
from acphold.imports.readers import AgentConverter
from acphold.imports.records import SMALL_BYTES, document, readable
from acphold.imports.sources import Source, beside
from acphold.imports.tools import PATHS, call_fields, named_call_fields
from acphold.imports.values import Object, as_bytes, first_text, inner, objects, text

# -- Protocol Buffers ----------------------------------------------------------------------------

Fields = dict[int, list[int | bytes]]
"""A message's values by field number, in order."""

_VARINT: Final = 0
_FIXED_64: Final = 1
_BYTES: Final = 2
_FIXED_32: Final = 5


def fields(data: bytes) -> Fields:
    """Return the fields of a message; raises ValueError for invalid bytes."""
    found: Fields = {}
    place = 0
    while place < len(data):
        tag, place = _varint(data, place)
        value: int | bytes
        if (kind := tag & 7) == _VARINT:
            value, place = _varint(data, place)
        elif kind in (_BYTES, _FIXED_64, _FIXED_32):
            size = 8 if kind == _FIXED_64 else 4
            if kind == _BYTES:
                size, place = _varint(data, place)
            value = data[place : place + size]
            place += size
            if place > len(data):
                raise ValueError("a field ends after its message")
        else:
            raise ValueError(f"no field is of kind {kind}")
        found.setdefault(tag >> 3, []).append(value)
    return found


def inside(message: Fields, *path: int) -> Fields:
    """Return the message at `path`; empty if there is none."""
    for number in path:
        message = ([{}, *messages(message, number)])[-1]
    return message


def messages(message: Fields, number: int) -> list[Fields]:
    """Return the messages of a repeated field; an invalid one is empty."""
    found: list[Fields] = []
    for data in several(message, number):
        try:
            found.append(fields(data))
        except ValueError:
            found.append({})
    return found


def several(message: Fields, number: int) -> list[bytes]:
    """Return the bytes of a repeated field."""
    return [value for value in message.get(number, []) if isinstance(value, bytes)]


def texts(message: Fields, number: int) -> list[str]:
    """Return the texts of a repeated field."""
    return [value.decode(errors="replace") for value in several(message, number)]


def raw(message: Fields, number: int) -> bytes:
    """Return the bytes of a field; the last one counts."""
    return (several(message, number) or [b""])[-1]


def words(message: Fields, number: int) -> str:
    """Return the text of a field."""
    return raw(message, number).decode(errors="replace")


def count(message: Fields, number: int) -> int:
    """Return the number in a field."""
    return ([value for value in message.get(number, []) if isinstance(value, int)] or [0])[-1]


def _varint(data: bytes, place: int) -> tuple[int, int]:
    """Return a varint (seven bits a byte), and the place where it ends."""
    value = 0
    for shift in range(0, 70, 7):
        if place >= len(data):
            break
        byte = data[place]
        place += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, place
    raise ValueError("a number has no end")


# -- the conversation ------------------------------------------------------------------------------

_TOOLS: Final = {
    1: ("shell", {1: "command", 2: "working_directory", 15: "description"}),
    3: ("delete", {1: "path"}),
    4: ("glob", {1: "target_directory", 2: "glob_pattern"}),
    5: ("grep", {1: "pattern", 2: "path", 3: "glob", 4: "output_mode"}),
    8: ("read", {1: "path"}),
    9: ("todos", {}),
    10: ("view_tasklist", {}),
    12: ("edit", {1: "path"}),
    13: ("ls", {1: "path"}),
    14: ("read_lints", {}),
    15: ("mcp", {}),
    16: ("semantic_search", {1: "query", 3: "explanation"}),
    17: ("create_plan", {1: "plan", 3: "overview", 4: "name"}),
    18: ("web_search", {1: "search_term"}),
    19: ("task", {1: "description", 2: "prompt", 4: "model"}),
    22: ("apply_diff", {}),
    23: ("ask", {1: "title"}),
    24: ("fetch", {1: "url"}),
    25: ("switch_mode", {1: "target_mode_id", 2: "explanation"}),
    28: ("make a picture:", {1: "description", 2: "file_path"}),
    31: ("write_bash", {}),
    37: ("web_fetch", {1: "url"}),
}
"""A tool's name, and the names of its text arguments, by field number."""

_SHELL, _TODOS, _EDIT, _MCP, _TASK = 1, 9, 12, 15, 19


def _grepped(done: Fields) -> str:
    lines: list[str] = []
    for entry in messages(done, 4):
        union = inside(entry, 2)
        lines += texts(inside(union, 2), 1)
        for file in messages(inside(union, 3), 1):
            at = words(file, 1)
            lines += [f"{at}:{count(it, 1)}: {words(it, 2)}" for it in messages(file, 2)]
    return "\n".join(lines)


def _said(done: Fields) -> list[str]:
    return [said for part in messages(done, 1) if (said := words(inside(part, 1), 1))]


_PRINTED: Final[dict[int, Callable[[Fields], str]]] = {
    4: lambda done: "\n".join(texts(done, 3)),
    5: _grepped,
    8: lambda done: words(done, 1),
    _MCP: lambda done: "\n".join(_said(done)),
    16: lambda done: words(done, 1),
    18: lambda done: "\n".join(f"{words(it, 1)}: {words(it, 2)}" for it in messages(done, 1)),
    _TASK: lambda done: "".join(_said(done)),
    24: lambda done: words(done, 2),
    37: lambda done: words(done, 2),
}
"""The text of a result, by the tool's field number."""

_CALL_ID: Final = 57
_BESIDE_A_CALL: Final = frozenset({54, _CALL_ID})

_STATUS: Final = {2: "in_progress", 3: "completed"}
_QUERY: Final = re.compile(r"<(?P<opens>user_query)>\n?|\n?</(?P<closes>user_query)>")

_BESIDE_WORDS: Final = frozenset({2, 10, 12, 14, 15, 19})
"""Context that Cursor adds by itself, or that names no file: rules, commands, chats …"""


def read_store(source: Source, writer: EntryWriter) -> Iterator[None]:
    """Read the conversation; raises OSError if it cannot be read."""
    store = source.path
    missed = writer.missed
    listed = beside(store, "meta.json", missed)
    about = document(listed, missed, SMALL_BYTES) if listed.is_file() else {}
    meta: Object = {}
    tables = AgentTables(store, missed)
    if (value := tables.first("meta", "value", "key = '0'")) is not None:
        try:
            meta = readable(bytes.fromhex(str(value)), missed) or {}
        except ValueError:
            meta = readable(as_bytes(value), missed) or {}
    converter = _CursorStoreConverter(tables, writer, text(meta, "lastUsedModel"))
    root = converter.message(text(meta, "latestRootBlobId"))
    folders = [*map(urlsplit, texts(root, 9))]
    named = next((unquote(uri.path) for uri in folders if uri.scheme == "file"), "")
    writer.facts.cwd = text(about, "cwd") or named
    writer.clock(meta.get("createdAt"))
    timings = messages(root, 14)
    for place, turn in enumerate(several(root, 8)):
        if place < len(timings):
            writer.clock(count(timings[place], 2))
        yield from converter.turn(converter.message(turn.hex()))
    if 8 not in root:
        for told in several(root, 1):
            converter.model_message(told.hex())
            yield
    writer.clock(source.changed_at // 1_000_000)
    if used := count(inside(root, 5), 1):
        writer.usage(used, count(inside(root, 5), 2))
    writer.title(text(meta, "name") or text(about, "title"))


class _CursorStoreConverter(AgentConverter):
    """Converts one conversation."""

    def __init__(self, tables: AgentTables, writer: EntryWriter, model: str) -> None:
        super().__init__(writer)
        self._tables = tables
        self._model = model
        self._count = self._messages = 0
        self._called: set[str] = set()

    def blob(self, blob_id: str) -> bytes:
        """Return the blob with this hash; empty if it is lost."""
        return as_bytes(self._tables.first("blobs", "data", "id = ?", blob_id) or b"")

    def message(self, blob_id: str) -> Fields:
        """Return the message with this hash; empty, and counted, if there is none."""
        data = self.blob(blob_id)
        try:
            return fields(data)
        except ValueError:
            self._missed.add("blobs that cannot be read", data)
            return {}

    def turn(self, turn: Fields) -> Iterator[None]:
        """Write a prompt and its steps, or a command that the person ran."""
        if 2 in turn:
            shell = inside(turn, 2)
            ran = words(self.message(raw(shell, 1).hex()), 1)
            output = self.message(raw(shell, 2).hex())
            printed = words(output, 1) + words(output, 2)
            self._writer.prompt([text_block(f"! {ran}")])
            self._write_call({"title": ran, "kind": "execute", "rawInput": {"command": ran}})
            called = f"call-{self._count}"
            self._end_call(called, failed=bool(count(output, 3)), produced=[content(printed)])
            self._writer.finish_answer()
            yield
            return
        held = inside(turn, 1)
        said = self.message(raw(held, 1).hex())
        if said and not count(said, 5):  # otherwise Cursor inserted it
            self._writer.prompt(self._prompt(said), turn=raw(held, 1).hex())
            self._writer.model(self._model)
        for step_id in map(bytes.hex, several(held, 2)):
            step = self.message(step_id)
            if 1 in step:
                self._writer.say(words(inside(step, 1), 1), self._message_id(step_id))
            elif 3 in step:
                self._writer.think(words(inside(step, 3), 1), self._message_id(step_id))
            elif 2 in step:
                self._tool(inside(step, 2))
            elif step:
                self._missed.kind("steps", str(next(iter(step))), sum(map(len, several(step, 1))))
            yield

    def _message_id(self, blob_id: str) -> str:
        """Return the id of the next message: another one where equal ones have one hash."""
        self._messages += 1
        return f"{blob_id}-{self._messages}"

    def _prompt(self, said: Fields) -> list[Object]:
        typed = words(said, 1) or self.blob(raw(said, 18).hex()).decode(errors="replace")
        blocks = text_blocks(typed)
        beside = inside(said, 3)
        for number in beside:
            for chosen in messages(beside, number):
                if number == 1:
                    data = raw(chosen, 8) or self.blob(raw(chosen, 1).hex())
                    shown = b64encode(data).decode()
                    if shown:
                        blocks.append(image(shown, words(chosen, 7) or "image/png"))
                elif number in (4, 5):
                    blocks.append(resource(f"file://{words(chosen, 2)}", words(chosen, 1)))
                elif number == 8:
                    blocks.append(link(words(chosen, 1)))
                elif number == 9:
                    blocks.append(resource_link(words(chosen, 1), words(chosen, 1)))
                elif number not in _BESIDE_WORDS:
                    self._missed.kind("parts of prompts", str(number), words(chosen, 1))
        return blocks

    # -- calls -------------------------------------------------------------------------------

    def _tool(self, call: Fields) -> None:
        """Write a call."""
        kind = next((number for number in call if number not in _BESIDE_A_CALL), 0)
        arguments, result = inside(call, kind, 1), inside(call, kind, 2)
        name, names = _TOOLS.get(kind, (f"tool {kind}", {}))
        values: Object = {
            name: said for number, name in names.items() if (said := words(arguments, number))
        }
        asked = named_call_fields(name, values, first_text(values, PATHS))
        if kind == _MCP:
            server, name = words(arguments, 4), words(arguments, 5) or words(arguments, 1)
            title = f"{server}: {name}" if server else name or "MCP"
            asked = call_fields(title, "other", {"server": server, "tool": name})
        if kind not in _TOOLS:
            self._missed.kind("tool calls", str(kind), raw(call, kind))
        call_id = self._write_call(asked, words(call, _CALL_ID))
        if kind == _TODOS and (steps := messages(inside(result, 1) or arguments, 1)):
            self._writer.plan(
                {"content": words(it, 2), "status": _STATUS.get(count(it, 3))} for it in steps
            )
        if kind == _TASK and not self._writer.caller:
            with self._writer.within(call_id):
                for step in messages(inside(result, 1), 1):
                    if 2 in step:
                        self._tool(inside(step, 2))
        if result:
            self._done(call_id, kind, arguments, result)

    def _write_call(self, asked: Object, call_id: str = "") -> str:
        self._count += 1
        call_id = call_id.partition("\n")[0]
        if not call_id or call_id in self._called:
            call_id = f"call-{self._count}"
        self._called.add(call_id)
        self._writer.call(call_id, asked)
        return call_id

    def _done(self, call_id: str, kind: int, arguments: Fields, result: Fields) -> None:
        """Write how a call ended: field 1 of its result is success, any other a failure."""
        done = inside(result, 1)
        produced: list[Object] = []
        printed = _PRINTED[kind](done) if kind in _PRINTED else ""
        if kind == _SHELL:
            ran = done or inside(result, 2) or inside(result, 3)
            printed = words(ran, 10) or words(ran, 9) or words(ran, 5) + words(ran, 6)
            printed = printed or words(inside(result, 4), 3)
        elif kind == _EDIT and done:
            path = words(done, 1) or words(arguments, 1)
            if 7 in done or 6 in done:
                produced.append(diff(path, words(done, 6) if 6 in done else None, words(done, 7)))
            else:
                printed = words(done, 5) or words(arguments, 6)
        refused = [number for number in result if number not in (1, 101, 102, 103, 104)]
        if not printed and refused and kind != _SHELL:
            why = inside(result, refused[0])
            printed = words(why, 2) or words(why, 1)
        is_done = 1 in result and not (kind == _MCP and count(done, 2))
        produced += contents(printed)
        raw = {"exitCode": count(done or inside(result, 2), 3)} if kind == _SHELL else None
        self._end_call(call_id, failed=not is_done, produced=produced, rawOutput=raw)

    # -- versions without turns -----------------------------------------------------------------

    def model_message(self, blob_id: str) -> None:
        """Write a message to or from the model."""
        data = self.blob(blob_id)
        if not (message := readable(data, self._missed)):
            return
        role = text(message, "role")
        parts = objects(message, "content") or [text_block(text(message, "content"))]
        if role == "user":
            said = "".join(text(part, "text") for part in parts)
            if typed := inner(said, _QUERY):
                self._writer.prompt(text_blocks(typed["user_query"]))
                self._writer.model(self._model)
        elif role in ("assistant", "tool"):
            self._answer(parts, self._message_id(blob_id))
        elif role != "system":
            self._missed.kind("messages", role, data)

    def _result(self, part: Object, call_id: str, name: str, arguments: Object) -> None:
        printed = "\n".join(filter(None, (text(it, "text") for it in parts_of(part.get("result")))))
        failed = part.get("isError") is True
        self._end_call(call_id, failed=failed, produced=[content(printed)])
