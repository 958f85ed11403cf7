"""Auggie: `~/.augment/sessions/<id>.json`, a conversation as one document of exchanges.

An exchange has request nodes and response nodes, each with a numbered kind. Results of calls are
request nodes of the next exchange. A summary of earlier exchanges is an exchange of its own; the
originals stay.

The numbers are those of Auggie's published program, npm `@augmentcode/auggie` 0.36.0.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import count
from typing import Final

from acphold.imports.content_blocks import block_content, content, image, resource_link, text_block
from acphold.imports.entry_writer import EntryWriter
from acphold.imports.readers import AgentConverter, Reader, main_document, token_counts
from acphold.imports.records import each_once
from acphold.imports.sources import Home, Source, file_sources, files_below, note_above
from acphold.imports.tools import named_call_fields, tool_of
from acphold.imports.values import Object, first_text, number, obj, objects, strings, text

_WORDS, _RESULT, _PICTURE, _WHERE, _FILE = 0, 1, 2, 4, 8
_ASKED_BESIDE: Final = frozenset({3, 5, 6, 7, 9, 10, 11})
"""Request nodes that no person typed: places and edits in an editor, summaries."""
_SAID, _CALLED, _THOUGHT, _SPENT = 0, 5, 8, 10
_SAID_BESIDE: Final = frozenset({1, 2, 3, 4, 6, 7, 9, 11})
"""Response nodes that repeat an answer or frame it: its end, suggestions, its cost."""

_FORMATS: Final = {1: "image/png", 2: "image/jpeg", 3: "image/gif", 4: "image/webp"}
_OF_THE_PROGRAM: Final = "<supervisor>"
_PART: Final = re.compile(r"old_str(_\d+)?")
_PARTS: Final = ("old_str", "new_str")


def find(home: Home) -> Iterator[Source]:
    """Yield the conversations of the command line."""
    note_above(folder := home.path / ".augment/sessions")
    yield from file_sources(files_below(folder, "*.json"))


def read(source: Source, writer: EntryWriter) -> Iterator[None]:
    """Read the conversation; raises OSError if the document is incomplete."""
    whole = main_document(source.path, writer.missed)
    history = [*each_once(objects(whole, "chatHistory"), "finishedAt")]
    writer.facts.cwd = _folder(history)
    writer.clock(whole.get("created"))
    converter = _AuggieConverter(writer, text(whole, "agentState", "modelId"))
    yield from converter.take_all(history)
    writer.clock(whole.get("modified"))
    writer.title(text(whole, "customTitle") or text(whole, "title"))


def _folder(history: list[Object]) -> str:
    """Return the folder named in the first exchange that has one."""
    for one in history:
        for node in objects(one, "exchange", "request_nodes"):
            where = obj(node, "ide_state_node")
            for folder in objects(where, "workspace_folders"):
                if named := first_text(folder, ("folder_root", "repository_root")):
                    return named
            if named := text(where, "current_terminal", "current_working_directory"):
                return named
    return ""


class _AuggieConverter(AgentConverter):
    """Converts one conversation, exchange by exchange."""

    def __init__(self, writer: EntryWriter, model: str) -> None:
        super().__init__(writer)
        self._model = model
        self._places = count()

    def take(self, record: Object) -> None:
        """Write one exchange: request and response."""
        exchange = obj(record, "exchange")
        self._writer.clock(record.get("finishedAt"))  # the only time it has
        place = next(self._places)
        message_id = text(exchange, "request_id") or f"exchange-{place}"
        asked = objects(exchange, "request_nodes")
        if record.get("isHistorySummary") is True:
            said = first_text(exchange, ("request_message", "response_text"))
            self._writer.compaction(f"compacted-{message_id}", said)
            return
        for node in asked:
            if number(node, "type") == _RESULT:
                result = obj(node, "tool_result_node")
                self._take_result(text(result, "tool_use_id"), result)
        if blocks := self._prompt(exchange, asked):
            self._calls.clear()
            self._writer.prompt(blocks, turn=text(exchange, "request_id"))
            self._writer.model(text(exchange, "model_id") or self._model)
        answered = objects(exchange, "response_nodes")
        is_told = any(number(n, "type") == _SAID and text(n, "content") for n in answered)
        if not is_told:
            self._writer.say(text(exchange, "response_text"), message_id)
        for node in answered:
            kind = number(node, "type")
            if kind == _SAID:
                self._writer.say(text(node, "content"), message_id)
            elif kind == _THOUGHT:
                thought = first_text(node.get("thinking"), ("content", "summary"))
                self._writer.think(thought, message_id)
            elif kind == _CALLED:
                self._call(obj(node, "tool_use"))
            elif kind == _SPENT:
                spent = token_counts(node.get("token_usage"))
                self._writer.tokens(text(exchange, "request_id"), **spent)
            elif kind not in _SAID_BESIDE:
                self._missed.kind("parts", str(kind), node)
        if record.get("completed") is True and not self._calls:
            self._writer.finish_answer()

    def _prompt(self, exchange: Object, asked: list[Object]) -> list[Object]:
        """Return a person's text and attachments; empty if there are only results."""
        blocks: list[Object] = []
        words = text(exchange, "request_message")
        if not words:
            nodes = (text(n, "text_node", "content") for n in asked if number(n, "type") == _WORDS)
            words = next((said for said in nodes if not said.startswith(_OF_THE_PROGRAM)), "")
        if words.strip() and not words.startswith(_OF_THE_PROGRAM):
            blocks.append(text_block(words))
        for node in asked:
            kind = number(node, "type")
            if kind == _PICTURE:
                shown = obj(node, "image_node")
                mime = _FORMATS.get(number(shown, "format") or 0, "image/png")
                if data := text(shown, "image_data"):
                    blocks.append(image(data, mime))
            elif kind == _FILE:
                name = text(node, "file_node", "file_name") or "file"
                blocks.append(resource_link(name, f"context:{name}"))
            elif kind not in (_WORDS, _RESULT, _WHERE) and kind not in _ASKED_BESIDE:
                self._missed.kind("parts of prompts", str(kind), node)
        return blocks

    def _shown(self, name: str, arguments: Object, _part: Object) -> Object:
        several = strings(arguments, "file_paths")
        is_place = tool_of(name).kind in ("edit", "read", "delete")
        named = [text(arguments, "path"), *several] if is_place else []
        fields = named_call_fields(name, arguments, *map(self._absolute, named))
        if several:
            fields["title"] = f"{tool_of(name).verb} {', '.join(several)}"
        if name.startswith("sub-agent"):
            fields["kind"] = "think"
        return fields

    def _result(self, result: Object, call_id: str, name: str, arguments: Object) -> None:
        failed = result.get("is_error") is True
        path = self._absolute(text(arguments, "path"))
        numbered = (found[1] or "" for found in map(_PART.fullmatch, arguments) if found)
        several: Object = {
            "edits": [{it: text(arguments, it + at) for it in _PARTS} for at in numbered]
        }
        produced = [] if failed else self._changes_by(name, path, several, arguments)
        inside = objects(result, "content_nodes")
        words = text(result, "content") or "\n".join(
            filter(None, (text(node, "text_content") for node in inside))
        )
        if words and not produced:
            produced.append(content(words))
        shown = filter(None, (text(node, "image_content", "image_data") for node in inside))
        produced += (block_content(image(data, "image/png")) for data in shown)
        self._end_call(call_id, failed=failed, produced=produced)


READER: Final = Reader("auggie", "auggie", find, read)
