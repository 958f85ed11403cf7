"""GitHub Copilot CLI: `~/.copilot/session-state/<id>/`, a chain of events and what it is about.

What a subagent did stands amid the rest, marked with the call that started it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from acphold.imports.content_blocks import content, diff, image, text_block
from acphold.imports.readers import Reader
from acphold.imports.records import records, small_text
from acphold.imports.scribe import PARENT, Scribe
from acphold.imports.sources import Home, Source, files_below, source_of
from acphold.imports.values import Object, milliseconds, number, obj, objects, text

NAME: Final = "copilot"
KEY: Final = "Copilot"

KINDS: Final = {
    "apply_patch": "edit",
    "bash": "execute",
    "create": "edit",
    "edit": "edit",
    "glob": "search",
    "grep": "search",
    "read_bash": "execute",
    "rg": "search",
    "stop_bash": "execute",
    "str_replace": "edit",
    "str_replace_editor": "edit",
    "view": "read",
    "web_fetch": "fetch",
    "web_search": "fetch",
    "write_bash": "execute",
}

_PASSED: Final = re.compile(
    r"model\.|hook\.|system\.|permission\.|subagent\.|skill\.|assistant\.turn|assistant\.usage|"
    r"tool\.execution_partial|tool\.user_requested|session\.(?!error|warning|info|compaction)"
)
"""Events that are the program's own, or are told with others."""

_YAML_LINE: Final = re.compile(r"(\w+):(?: (.*))?")


def find(home: Home) -> Iterator[Source]:
    """The sessions; older ones are a file without a folder."""
    folder = home.folder(".copilot", "COPILOT_HOME")
    for path in files_below(folder / "session-state", "*/events.jsonl"):
        beside = path.with_name("workspace.yaml")
        if source := source_of(NAME, path.parent.name, [path, beside]):
            yield source
    for pattern in ("session-state", "history-session-state"):
        for path in files_below(folder / pattern, "*.jsonl"):
            if source := source_of(NAME, path.stem, [path]):
                yield source


def read(source: Source, scribe: Scribe) -> Iterator[None]:
    """Tell the session."""
    about = workspace(Path(source.paths[1])) if len(source.paths) > 1 else {}
    scribe.facts.cwd = about.get("cwd", "")
    telling = _Telling(scribe)
    for event in records(Path(source.paths[0]), scribe.missed):
        telling.take(event)
        yield
    scribe.title(about.get("name", ""))


def workspace(path: Path) -> dict[str, str]:
    """The plain values in a file of YAML that holds no more than names and values."""
    values: dict[str, str] = {}
    name = ""
    for line in small_text(path).splitlines():
        if found := _YAML_LINE.fullmatch(line):
            name, value = found[1], (found[2] or "").strip()
            values[name] = "" if value in ("|", "|-", ">", ">-", ">+", "|+") else _unquoted(value)
        elif name and line.startswith("  "):  # a text over several lines
            values[name] = f"{values[name]} {line.strip()}".strip()
    return values


def _unquoted(value: str) -> str:
    if value.startswith("'") and value.endswith("'") and len(value) > 1:
        return value[1:-1].replace("''", "'")
    if value.startswith('"'):
        try:
            return str(json.loads(value))
        except ValueError:
            return value.strip('"')
    return value


class _Telling:
    """One session, event by event."""

    def __init__(self, scribe: Scribe) -> None:
        self._scribe = scribe
        self._missed = scribe.missed
        self._pictures: dict[str, Object] = {}
        self._notices: list[str] = []
        self._inputs: dict[str, tuple[str, Object]] = {}

    def take(self, event: Object) -> None:
        kind, data = text(event, "type"), obj(event, "data")
        self._scribe.clock(milliseconds(event.get("timestamp")))
        match kind:
            case "session.start" | "session.resume":
                self._scribe.end_turn()
                cwd = text(data, "context", "cwd")
                self._scribe.facts.cwd = self._scribe.facts.cwd or cwd
            case "user.message":
                self._typed(data)
            case "assistant.message":
                self._said(data)
            case "assistant.reasoning":
                caller = text(data, "parentToolCallId")
                meta: Object = {PARENT: caller} if caller else {}
                self._scribe.think(text(data, "content"), text(data, "reasoningId"), meta)
            case "tool.execution_start":
                self._called(data)
            case "tool.execution_complete":
                self._answered(data)
            case "abort":
                self._scribe.end_turn("cancelled")
            case "session.error":
                self._scribe.fail_turn(text(data, "message"))
            case "session.warning" | "session.info":
                self._notice(kind.rpartition(".")[2], text(data, "message"))
            case "session.usage_record":
                self._count(obj(data, "usage"))
            case "session.binary_asset":
                self._picture(data)
            case "session.compaction_start":
                if text(data, "trigger") == "manual":
                    self._scribe.prompt([text_block("/compact")])
            case "session.compaction_complete":
                self._compacted(text(event, "id"), data)
            case _ if not _PASSED.match(kind):
                self._missed.kind("events", kind, event)

    # -- messages --------------------------------------------------------------------------

    def _typed(self, data: Object) -> None:
        if text(data, "source") or text(data, "parentToolCallId"):
            return
        words = text(data, "content")
        blocks = [text_block(words)] if words else []
        blocks += filter(None, map(self._attached, objects(data, "attachments")))
        self._scribe.prompt(blocks)
        for number_, notice in enumerate(self._notices):
            self._scribe.say(notice, f"{text(data, 'messageId')}-notice-{number_}")
        self._notices = []

    def _attached(self, attachment: Object) -> Object | None:
        asset = self._pictures.get(text(attachment, "assetId"))
        data = text(attachment, "data")
        if asset or data:
            return asset or image(data, text(attachment, "mimeType"))
        path, words = text(attachment, "path"), text(attachment, "text")
        uri = text(attachment, "uri") or (f"file://{path}" if path else "")
        if words and uri:
            return {"type": "resource", "resource": {"uri": uri, "text": words}}
        if not uri:
            self._missed.kind("attachments", text(attachment, "type"), attachment)
            return None
        name = text(attachment, "displayName") or uri.rpartition("/")[2]
        return {"type": "resource_link", "name": name, "uri": uri}

    def _picture(self, data: Object) -> None:
        asset_id = text(data, "assetId") or text(data, "id")
        if raw := text(data, "data") or text(data, "base64"):
            self._pictures[asset_id] = image(raw, text(data, "mimeType"))

    def _notice(self, kind: str, words: str) -> None:
        """What the program itself said: shown with what the agent says next."""
        shown = f"{kind.capitalize()}: {words}"
        if self._scribe.in_turn:
            self._scribe.say(shown)
        elif kind == "warning":
            self._notices.append(shown)

    def _said(self, data: Object) -> None:
        caller, message_id = text(data, "parentToolCallId"), text(data, "messageId")
        meta: Object = {PARENT: caller} if caller else {}
        self._scribe.think(text(data, "reasoningText"), message_id, meta)
        self._scribe.say(text(data, "content"), message_id, meta)
        if not objects(data, "toolRequests") and not caller:
            self._scribe.done()

    def _count(self, usage: Object) -> None:
        read = number(usage, "cacheReadTokens") or 0
        self._scribe.model(text(usage, "model"))
        self._scribe.tokens(
            inputTokens=(number(usage, "inputTokens") or 0) - read,
            outputTokens=number(usage, "outputTokens"),
            cachedReadTokens=read,
            cachedWriteTokens=number(usage, "cacheWriteTokens"),
        )

    def _compacted(self, event_id: str, data: Object) -> None:
        fields: Object = {"title": "Compact conversation", "kind": "think", "status": "completed"}
        if summary := text(data, "summaryContent"):
            fields["content"] = [content(summary)]
        self._scribe.call(f"compacted-{event_id}", fields)
        removed, tokens = number(data, "messagesRemoved"), number(data, "tokensRemoved")
        if removed is not None and tokens is not None:
            self._scribe.say(
                f"Compacted conversation history and removed {removed} messages"
                f" and {tokens} tokens."
            )
        self._scribe.done()

    # -- tools -----------------------------------------------------------------------------

    def _called(self, data: Object) -> None:
        call_id, name = text(data, "toolCallId"), text(data, "toolName")
        given = obj(data, "arguments")
        self._inputs[call_id] = name, given
        fields: Object = {
            "title": _title(data, name, given),
            "kind": KINDS.get(name, "other"),
            "rawInput": given,
        }
        if (path := text(given, "path")) and KINDS.get(name) in ("edit", "read"):
            fields["locations"] = [{"path": path}]
        if changes := _changes(name, given):
            fields["content"] = changes
        if parent := text(data, "parentToolCallId"):
            fields["_meta"] = {PARENT: parent}
        self._scribe.call(call_id, fields)

    def _answered(self, data: Object) -> None:
        call_id = text(data, "toolCallId")
        name, given = self._inputs.pop(call_id, ("", {}))
        if not name:
            self._missed.add("results of unknown calls", data)
            return
        result = obj(data, "result")
        if data.get("success") is not True:
            failure = data.get("error")
            self._scribe.update(call_id, {"status": "failed", "rawOutput": failure or result})
            return
        fields: Object = {"status": "completed", "rawOutput": result}
        if changes := _changes(name, given):
            fields["content"] = changes
        elif words := text(result, "content"):
            fields["content"] = [content(words)]
        self._scribe.update(call_id, fields)


def _title(data: Object, name: str, given: Object) -> str:
    """As the program tells it: what a command is for, else what is done to which file."""
    title, path = text(data, "toolTitle"), text(given, "path")
    if title.endswith(" file") and path:
        title = f"{title.removesuffix('file')}{path}"
    return text(given, "description") or title or name


def _changes(name: str, given: Object) -> list[Object]:
    path = text(given, "path")
    if KINDS.get(name) != "edit" or not path:
        return []
    old, new = text(given, "old_str"), text(given, "new_str") or text(given, "file_text")
    return [diff(path, old or None, new)] if old or new else []


READER: Final = Reader(NAME, KEY, find, read)
