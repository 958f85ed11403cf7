"""goose: all sessions in one database, `~/.local/share/goose/sessions/sessions.db`.

A reply may be several rows; results stand in rows of the user. Rows that a person does not see
are the summary of a compaction. Before 1.10 a session was a file of lines, `<id>.jsonl`: what the
session is, then its messages. A step whose tool was running at a kill was never written.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from acphold.imports import databases
from acphold.imports.content_blocks import checklist, content, diff, image, text_block
from acphold.imports.readers import Reader
from acphold.imports.records import readable, records
from acphold.imports.scribe import PARENT, Scribe
from acphold.imports.sources import Home, Source, files_below, source_of
from acphold.imports.values import Object, milliseconds, number, obj, objects, text

NAME: Final = "goose"
KEY: Final = "goose acp"
"""goose does not say in `initialize` what it is called; so it is known by its command."""

KINDS: Final = {"edit": "edit", "shell": "execute", "text_editor": "edit", "write": "edit"}

_SHOWN: Final = {"edit": "path", "shell": "command", "text_editor": "path", "write": "path"}
"""The argument that stands in the title of a call."""

_MADE_UP: Final = re.compile(r"(New (Chat|Session)|ACP Session)", re.IGNORECASE)
_LINKED: Final = re.compile(r"\n*# (/[^\n]+)\n```\n(.*)\n```\n*", re.DOTALL)
_EMBEDDED: Final = re.compile(r"--- Resource: (\S+) ---\n(.*?)\n?\n---\n*", re.DOTALL)


def find(home: Home) -> Iterator[Source]:
    """The sessions of the database, then the older files; none of subagents."""
    root = home.environment.get("GOOSE_PATH_ROOT", "")
    folder = (Path(root, "data") if root else home.data("goose")) / "sessions"
    database = folder / "sessions.db"
    messages_of = "(SELECT count(*) FROM messages WHERE session_id = sessions.id)"
    for session_id, updated, messages in databases.listed(
        database, "sessions", f"id, updated_at, {messages_of}", "session_type != 'sub_agent'"
    ):
        changed = (_utc(updated) or 0) * 1_000_000
        yield Source(NAME, session_id, (str(database),), messages, changed, session_id)
    for path in files_below(folder, "*.jsonl"):
        if source := source_of(NAME, path.stem, [path]):
            yield source


def _utc(words: object) -> int | None:
    return milliseconds(f"{words}Z") if isinstance(words, str) else None


class _Row(NamedTuple):
    """A message, wherever it was kept."""

    message_id: str
    role: str
    at: int | None
    content: list[Object]
    is_seen: bool


def _rows(source: Source, session_id: str, scribe: Scribe) -> Iterator[_Row]:
    missed = scribe.missed
    path = Path(source.paths[0])
    if path.suffix == ".jsonl":
        for line in records(path, missed):
            if "role" in line:
                at = milliseconds(line.get("created"))
                parts = objects(line, "content")
                yield _Row(text(line, "id"), text(line, "role"), at, parts, is_seen=True)
        return
    for row_id, message_id, role, words, about, created in databases.rows_of(
        path,
        "messages",
        "id, message_id, role, content_json, metadata_json, created_timestamp",
        "session_id = ? ORDER BY created_timestamp, id",
        missed,
        session_id,
    ):
        found = readable(b'{"content":%b}' % str(words).encode(errors="replace"), missed) or {}
        seen = readable(str(about or "{}").encode(errors="replace"), missed) or {}
        yield _Row(
            str(message_id or row_id),
            str(role),
            milliseconds(created),
            objects(found, "content"),
            is_seen=seen.get("userVisible") is not False,
        )


def read(source: Source, scribe: Scribe) -> Iterator[None]:
    """Tell the session."""
    title = _head(source, scribe)
    telling = _Telling(source, scribe)
    for row in _rows(source, source.session_id, scribe):
        telling.row(row)
        yield
    telling.end()
    if title and not _MADE_UP.match(title):
        scribe.title(title)


def _head(source: Source, scribe: Scribe) -> str:
    """Note what is known of the session; its title."""
    path = Path(source.paths[0])
    if path.suffix == ".jsonl":
        first = next(records(path, scribe.missed), {})
        scribe.facts.cwd = text(first, "working_dir")
        return text(first, "description")
    query = "SELECT name, description, working_dir, created_at FROM sessions WHERE id = ?"
    found = databases.rows(path, query, source.item)
    name, description, cwd, created = found[0] if found else ("", "", "", None)
    scribe.facts.cwd = str(cwd or "")
    scribe.clock(_utc(created))
    return str(name or description or "")


_COUNTED: Final = (
    "accumulated_input_tokens",
    "accumulated_output_tokens",
    "accumulated_total_tokens",
)
_COST: Final = "accumulated_cost"


def _sums(path: Path, session_id: str) -> Object:
    """What a session came to, as far as this version has columns for it."""
    columns = databases.rows(path, "SELECT name FROM pragma_table_info('sessions')")
    names = [name for (name,) in columns if name in (*_COUNTED, _COST)]
    if not names:
        return {}
    query = f"SELECT {', '.join(names)} FROM sessions WHERE id = ?"
    found = databases.rows(path, query, session_id)
    return dict(zip(names, found[0], strict=True)) if found else {}


class _Telling:
    """One session; with `caller`, that of the subagent which this call started."""

    def __init__(self, source: Source, scribe: Scribe, caller: str = "") -> None:
        self._source = source
        self._scribe = scribe
        self._missed = scribe.missed
        self._caller = caller
        self._meta: Object = {PARENT: caller} if caller else {}
        self._calls: dict[str, tuple[str, Object]] = {}
        self._children: list[str] = []
        self._summary = ""

    def end(self) -> None:
        """What it came to, with the subagents' part: goose keeps the sums only."""
        path = Path(self._source.paths[0])
        if path.suffix == ".jsonl":
            return
        for session_id in (self._source.item, *self._children):
            sums = _sums(path, session_id)
            given, made, total = (number(sums.get(name)) for name in _COUNTED)
            cost = sums.get(_COST)
            self._scribe.spent(
                cost if isinstance(cost, float) else None,
                inputTokens=given,
                outputTokens=made,
                totalTokens=total,
            )

    def row(self, row: _Row) -> None:
        if not row.is_seen:
            if row.role == "user":
                self._summary = "".join(text(part, "text") for part in row.content)
            return
        if not self._caller:
            self._scribe.clock(row.at)
        responses = [part for part in row.content if text(part, "type") == "toolResponse"]
        for part in responses:
            self._result(text(part, "id"), obj(part, "toolResult"))
        if row.role == "user" and not responses and not self._caller:
            self._scribe.prompt(self._prompt(row.content))
        elif row.role == "assistant":
            for part in row.content:
                self._part(row.message_id, part)
        elif row.role != "user":
            self._missed.kind("messages", row.role, row.content)

    def _prompt(self, parts: list[Object]) -> list[Object]:
        """What a person sent: files that goose put in as text are links and resources again."""
        blocks: list[Object] = []
        for part in parts:
            words = text(part, "text")
            if text(part, "type") == "image":
                blocks.append(image(text(part, "data"), text(part, "mimeType")))
            elif linked := _LINKED.fullmatch(words):
                path = linked[1]
                name = path.rpartition("/")[2]
                blocks.append({"type": "resource_link", "name": name, "uri": f"file://{path}"})
            elif embedded := _EMBEDDED.fullmatch(words):
                resource = {"uri": embedded[1], "text": embedded[2]}
                blocks.append({"type": "resource", "resource": resource})
            elif words:
                blocks.append(text_block(words))
            elif text(part, "type") not in ("text", "toolConfirmationResponse"):
                self._missed.kind("parts of prompts", text(part, "type"), part)
        return blocks

    def _part(self, message_id: str, part: Object) -> None:
        kind = text(part, "type")
        if kind == "toolRequest":
            self._call(part)
        elif kind == "systemNotification":
            self._noticed(message_id, part)
        elif self._caller:
            return
        elif kind == "text":
            self._scribe.say(text(part, "text"), message_id)
            self._scribe.done()
        elif kind == "thinking":
            self._scribe.think(text(part, "thinking"), message_id)
        elif kind == "image":
            self._scribe.show(image(text(part, "data"), text(part, "mimeType")), message_id)
        elif kind not in ("redactedThinking", "toolConfirmationRequest"):
            self._missed.kind("parts", kind, part)

    def _noticed(self, message_id: str, part: Object) -> None:
        if not self._summary or self._caller:
            return
        fields: Object = {"title": "Compact conversation", "kind": "think", "status": "completed"}
        fields["content"] = [content(self._summary)]
        fields["rawOutput"] = text(part, "msg")
        self._scribe.call(f"compacted-{message_id}", fields)
        self._scribe.done()
        self._summary = ""

    def _call(self, part: Object) -> None:
        call_id, asked = text(part, "id"), obj(part, "toolCall", "value")
        name, given = text(asked, "name"), obj(asked, "arguments")
        self._calls[call_id] = name, given
        short = name.rpartition("__")[2]
        title = name.replace("__", ": ").replace("_", " ") if "__" in name else name
        if detail := text(given, _SHOWN.get(short, "")):
            title = f"{short} · {detail}"
        meta = {"goose": {"toolCall": {"toolName": name}}}
        fields: Object = {"title": title, "rawInput": given, "_meta": meta | self._meta}
        if short in KINDS:
            fields["kind"] = KINDS[short]
        self._scribe.call(call_id, fields)
        if short == "todo_write" and not self._caller:
            self._scribe.plan(checklist(text(given, "content")))

    def _result(self, call_id: str, result: Object) -> None:
        name, given = self._calls.pop(call_id, ("", {}))
        if not name:
            self._missed.add("results of unknown calls", result)
            return
        value = obj(result, "value")
        if child := text(value, "_meta", "subagent_session_id"):
            self._subagent(call_id, child)
        # Before 1.20 the value was the content itself.
        produced = objects(value, "content") or objects(result, "value")
        failed = value.get("isError") is True or text(result, "status") == "error"
        shown: list[Object] = [{"type": "content", "content": _block(part)} for part in produced]
        if error := text(result, "error"):
            shown.append(content(error))
        fields: Object = {"status": "failed" if failed else "completed"}
        fields["content"] = shown + ([] if failed else _change(name, given))
        if "structuredContent" in value:
            fields["rawOutput"] = value["structuredContent"]
        if KINDS.get(name.rpartition("__")[2]) == "edit" and text(given, "path"):
            fields["locations"] = [{"path": text(given, "path"), "line": 1}]
        self._scribe.update(call_id, fields)

    def _subagent(self, call_id: str, session_id: str) -> None:
        if not self._caller:
            self._children.append(session_id)
            telling = _Telling(self._source, self._scribe, caller=call_id)
            for row in _rows(self._source, session_id, self._scribe):
                telling.row(row)


def _block(part: Object) -> Object:
    if text(part, "type") == "image":
        return image(text(part, "data"), text(part, "mimeType"))
    return text_block(text(part, "text") or text(part, "resource", "text"))


def _change(name: str, given: Object) -> list[Object]:
    """What an edit did, which its result does not say."""
    path, short = text(given, "path"), name.rpartition("__")[2]
    if KINDS.get(short) != "edit" or not path:
        return []
    old = text(given, "before") or text(given, "old_str")
    new = text(given, "after") or text(given, "new_str")
    new = new or text(given, "content") or text(given, "file_text")
    return [diff(path, old or None, new)] if old or new else []


READER: Final = Reader(NAME, KEY, find, read)
