"""GitHub Copilot CLI: `~/.copilot/session-state/<id>/`, a chain of events and metadata.

Subagents' events are among the rest, marked with the call that started them, or with their id.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from acphold.imports.content_blocks import (
    contents,
    image,
    resource,
    resource_link,
    text_block,
    text_blocks,
)
from acphold.imports.entry_writer import EntryWriter
from acphold.imports.readers import AgentConverter, Reader, token_counts
from acphold.imports.record_tree import LAST, RecordTree, branches_of, rewound
from acphold.imports.records import placed_records, small_text
from acphold.imports.salvage import RowForm
from acphold.imports.sources import Home, Source, beside, file_sources, files_below, source_of
from acphold.imports.tools import call_fields, tool_of
from acphold.imports.values import Object, first_text, from_json, number, obj, objects, text

ROWS: Final = RowForm(frozenset({"data", "id", "timestamp", "type"}), has_moment=True)

_PASSED: Final = re.compile(
    r"model\.|hook\.|system\.|permission\.|subagent\.|skill\.|assistant\.turn|assistant\.usage|"
    r"tool\.execution_partial|tool\.user_requested|session\.(?!error|warning|info|compaction)"
)
"""The program's own events, and those told together with others."""

_REWOUND: Final = b'"session.snapshot_rewind"'

_YAML_VALUE: Final = re.compile(r"^(\w+):(.*(?:\n  .*)*)", re.MULTILINE)
_YAML_BLOCK: Final = re.compile(r"^ [|>][-+]?$", re.MULTILINE)

_ABOUT: Final = "workspace.yaml"


def find(home: Home) -> Iterator[Source]:
    """Yield the sessions; older ones are a file without a folder."""
    folder = home.folder(".copilot", "COPILOT_HOME")
    for path in files_below(folder / "session-state", "*/events.jsonl"):
        yield from source_of(path.parent.name, [path, path.with_name(_ABOUT)])
    for pattern in ("session-state", "history-session-state"):
        yield from file_sources(files_below(folder / pattern, "*.jsonl"))


def read(source: Source, writer: EntryWriter) -> Iterator[None]:
    """Read the session."""
    is_alone = len(source.paths) == 1
    about = {} if is_alone else workspace(beside(source.path, _ABOUT, writer.missed))
    writer.facts.enter(about.get("cwd", ""))
    converter = _CopilotConverter(writer)
    tree = _tree(source)
    tree.choose(source.item, writer.missed)
    for offset, event in placed_records(source.path, writer.missed, ROWS, source.begin):
        writer.offset = offset
        if tree.tells(text(event, "id")):
            converter.take(event)
        yield
    writer.title(about.get("name", ""))


def _tree(source: Source) -> RecordTree:
    """Return the tree of a session's events; empty if nobody went back.

    The program takes those out of the file that the person went back from; where it did not, an
    event names the first one.
    """
    tree = RecordTree()
    for event in rewound([source.path], _REWOUND, ROWS, source.begin):
        kind, data = text(event, "type"), obj(event, "data")
        if kind == "session.snapshot_rewind":
            tree.go_back(text(data, "upToEventId"))
        said, is_answer = text(data, "content"), kind == "assistant.message"
        tree.add(text(event, "id"), LAST, typed=_is_prompt(event), answers=is_answer, words=said)
    return tree


def _is_prompt(event: Object) -> bool:
    """Return True if a person wrote it: not the program, nor the caller of a subagent."""
    above = first_text(obj(event, "data"), ("source", "parentToolCallId")) or text(event, "agentId")
    return text(event, "type") == "user.message" and not above


def workspace(path: Path) -> dict[str, str]:
    """Return the plain values in a YAML file that has only names and values, which may be texts
    over several lines."""
    values: dict[str, str] = {}
    for name, value in _YAML_VALUE.findall(small_text(path)):
        value = " ".join(map(str.strip, _YAML_BLOCK.sub("", value).splitlines())).strip()
        if value.startswith("'") and value.endswith("'") and len(value) > 1:
            value = value[1:-1].replace("''", "'")
        elif value.startswith('"'):
            inner = from_json(value)
            value = value.strip('"') if inner == value else str(inner)
        values[name] = value
    return values


class _CopilotConverter(AgentConverter):
    """Converts one session, event by event."""

    def __init__(self, writer: EntryWriter) -> None:
        super().__init__(writer)
        self._pictures: dict[str, Object] = {}
        self._notices: list[str] = []
        self._agents: dict[str, str] = {}
        """The calls that started subagents, by their ids."""

    def take(self, event: Object) -> None:
        """Take the next event."""
        data, agent = obj(event, "data"), text(event, "agentId")
        if text(event, "type") == "subagent.started":
            self._agents[agent] = text(data, "toolCallId")
        caller = text(data, "parentToolCallId") or self._agents.get(agent, "") or agent
        self._writer.clock(event.get("timestamp"))
        with self._writer.within(caller, speaks=True):
            self._event(event)

    def _event(self, event: Object) -> None:
        kind, data, writer = text(event, "type"), obj(event, "data"), self._writer
        match kind:
            case "session.start" | "session.resume":
                writer.end_turn()
                writer.facts.enter(text(data, "context", "cwd"))
            case "user.message":
                if _is_prompt(event):
                    self._prompt(data, text(event, "id"))
            case "assistant.message":
                message_id = text(data, "messageId")
                writer.think(text(data, "reasoningText"), message_id)
                writer.say(text(data, "content"), message_id)
                if not objects(data, "toolRequests"):
                    writer.finish_answer()
            case "assistant.reasoning":
                writer.think(text(data, "content"), text(data, "reasoningId"))
            case "tool.execution_start":
                self._call(data)
            case "tool.execution_complete":
                self._take_result(text(data, "toolCallId"), data)
            case "abort":
                writer.end_turn("cancelled")
            case "session.error":
                writer.fail_turn(text(data, "message"))
            case "session.warning" | "session.info":
                # The program's own notice: shown with the agent's next message.
                notice = f"{kind.rpartition('.')[2].capitalize()}: {text(data, 'message')}"
                if writer.in_turn:
                    writer.say(notice)
                elif kind == "session.warning":
                    self._notices.append(notice)
            case "session.usage_record":
                usage = obj(data, "usage")
                writer.model(text(usage, "model"))
                reply = text(usage, "apiCallId") or text(event, "id")
                writer.tokens(reply, **token_counts(usage, together=True))
            case "session.binary_asset":
                if raw := text(data, "data") or text(data, "base64"):
                    asset_id = text(data, "assetId") or text(data, "id")
                    self._pictures[asset_id] = image(raw, text(data, "mimeType"))
            case "session.compaction_start":
                if text(data, "trigger") == "manual":
                    writer.prompt([text_block("/compact")])
            case "session.compaction_complete":
                writer.compaction(f"compacted-{text(event, 'id')}", text(data, "summaryContent"))
                removed, tokens = number(data, "messagesRemoved"), number(data, "tokensRemoved")
                if removed is not None and tokens is not None:
                    writer.say(
                        f"Compacted conversation history and removed {removed} messages"
                        f" and {tokens} tokens."
                    )
                    writer.finish_answer()
            case _ if not _PASSED.match(kind):
                self._missed.kind("events", kind, event)

    def _result(self, data: Object, call_id: str, name: str, arguments: Object) -> None:
        result = obj(data, "result")
        if data.get("success") is True:
            produced = self._changes_by(name, text(arguments, "path"), arguments)
            produced = produced or contents(text(result, "content"))
            self._end_call(call_id, failed=False, produced=produced, rawOutput=result)
        else:
            self._end_call(call_id, failed=True, rawOutput=data.get("error") or result)

    def _prompt(self, data: Object, event_id: str) -> None:
        words = text(data, "content")
        blocks = text_blocks(words)
        for attached in objects(data, "attachments"):
            asset = self._pictures.get(text(attached, "assetId"))
            raw, path, words = (text(attached, name) for name in ("data", "path", "text"))
            uri = text(attached, "uri") or (f"file://{path}" if path else "")
            if asset or raw:
                blocks.append(asset or image(raw, text(attached, "mimeType")))
            elif words and uri:
                blocks.append(resource(uri, words))
            elif uri:
                name = text(attached, "displayName") or uri.rpartition("/")[2]
                blocks.append(resource_link(name, uri))
            else:
                self._missed.kind("attachments", text(attached, "type"), attached)
        self._writer.prompt(blocks, turn=event_id)
        for place, notice in enumerate(self._notices):
            self._writer.say(notice, f"{text(data, 'messageId')}-notice-{place}")
        self._notices = []

    def _shown(self, name: str, arguments: Object, part: Object) -> Object:
        kind = tool_of(name).kind
        # As the program shows it: the purpose of a command, otherwise the action on a file.
        title, path = text(part, "toolTitle"), text(arguments, "path")
        if title.endswith(" file") and path:
            title = f"{title.removesuffix('file')}{path}"
        title = text(arguments, "description") or title or name
        fields = call_fields(title, kind, arguments, path if kind in ("edit", "read") else "")
        if changes := self._changes_by(name, path, arguments):
            fields["content"] = changes
        return fields


READER: Final = Reader("copilot", "Copilot", find, read, branches_of(_tree))
