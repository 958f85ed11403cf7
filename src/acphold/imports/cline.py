"""Cline: `~/.cline/data/sessions/<id>/`, a manifest and one document of messages.

The document is rewritten with every message, so a reader may find half of it. Subagents' messages
are shown among the rest, and stored in documents of their own. The editor extensions use another
format.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from acphold.imports.cline_tasks import CLINE, SCREEN, read_task, task_sources
from acphold.imports.content_blocks import content, image, prompt_blocks, text_block
from acphold.imports.readers import Reader
from acphold.imports.records import document
from acphold.imports.scribe import Scribe, SubagentScribe
from acphold.imports.sources import Home, Source, files_below, source_of
from acphold.imports.tags import enclosed
from acphold.imports.tellings import AgentTelling, counted, whole_document
from acphold.imports.values import (
    Missed,
    Object,
    from_json,
    milliseconds,
    obj,
    objects,
    strings,
    text,
)

NAME: Final = "cline"
KEY: Final = "cline"

KINDS: Final = {
    "fetch_web_content": "fetch",
    "read_files": "read",
    "run_commands": "execute",
    "search_codebase": "search",
    "spawn_agent": "think",
}

TITLE_CHARACTERS: Final = 60
"""Characters of an input in a call's title; 50 of a task."""

TASK_CHARACTERS: Final = 50

_TYPED: Final = re.compile(
    r'<(?P<opens>user_input)(?: mode="(?P<mode>\w+)")?>|</(?P<closes>user_input)>'
)


def find(home: Home) -> Iterator[Source]:
    """Yield the sessions, each with the documents of its subagents."""
    folder = home.path / ".cline/data/sessions"
    variables = (("CLINE_DIR", "data/sessions"), ("CLINE_DATA_DIR", "sessions"))
    for variable, below in (*variables, ("CLINE_SESSION_DATA_DIR", "")):
        if moved := home.environment.get(variable):
            folder = Path(moved, below)
    for path in files_below(folder, "*/*.messages.json"):
        name = path.parent.name
        if path.name != f"{name}.messages.json":
            continue
        subagents = files_below(path.parent, "agent_*.messages.json")
        if source := source_of(NAME, name, [path, path.with_name(f"{name}.json"), *subagents]):
            yield source
    yield from task_sources(NAME, home.path, CLINE, own=folder.parent)


def read(source: Source, scribe: Scribe) -> Iterator[None]:
    """Tell the session; raises OSError if the document is incomplete."""
    path = Path(source.paths[0])
    if path.name == SCREEN:
        yield from read_task(source, scribe)
        return
    whole = whole_document(path)
    manifest = document(Path(source.paths[1]), Missed()) if len(source.paths) > 1 else {}
    scribe.facts.cwd = text(manifest, "cwd")
    scribe.clock(milliseconds(manifest.get("started_at")))
    telling = _ClineTelling(scribe, [Path(name) for name in source.paths[2:]])
    for message in objects(whole, "messages"):
        telling.message(message)
        yield
    title = " ".join(text(manifest, "metadata", "title").split())
    if title and title not in telling.first_prompt:
        scribe.title(title)


class _ClineTelling(AgentTelling):
    """Tells one session, or with a SubagentScribe that subagent's."""

    def __init__(self, scribe: Scribe, subagents: list[Path]) -> None:
        super().__init__(scribe)
        self._subagents = subagents
        self.first_prompt = ""

    def message(self, message: Object) -> None:
        parts = message.get("content")
        parts = objects([text_block(parts)] if isinstance(parts, str) else parts)
        self._scribe.clock(milliseconds(message.get("ts")))
        if text(message, "role") == "user":
            self._user_said(parts)
        elif text(message, "role") == "assistant":
            for part in parts:
                kind = text(part, "type")
                if kind == "tool_use":
                    call_id, name, given = text(part, "id"), text(part, "name"), obj(part, "input")
                    self._calls[call_id] = name, given
                    shown: Object = {"title": _title(name, given), "rawInput": given}
                    self._scribe.call(call_id, shown | {"kind": KINDS.get(name, "other")})
                elif kind == "text":
                    self._scribe.say(text(part, "text"), text(message, "id"))
                elif kind == "thinking":
                    self._scribe.think(text(part, "thinking"), text(message, "id"))
                elif kind != "redacted_thinking":
                    self._missed.kind("parts", kind, part)
            names = ("inputTokens", "outputTokens", "cacheReadTokens", "cacheWriteTokens")
            self._scribe.model(text(message, "modelInfo", "id"))
            self._scribe.tokens(**counted(message.get("metrics"), *names))
        else:
            self._missed.kind("messages", text(message, "role"), message)

    def _user_said(self, parts: list[Object]) -> None:
        results = [part for part in parts if text(part, "type") == "tool_result"]
        for part in results:
            self._result(part)
        if self._scribe.caller:
            return
        blocks: list[Object] = []
        for part in parts:
            if text(part, "type") == "image":
                source = obj(part, "source")
                data = text(source, "data") or text(part, "data")
                blocks.append(image(data, text(source, "media_type") or text(part, "mediaType")))
                continue
            if text(part, "type") not in ("text", "tool_result"):
                self._missed.kind("parts of prompts", text(part, "type"), part)
                continue
            words = text(part, "text")
            typed = list(enclosed(words, _TYPED))
            for begin, end in typed:
                self._scribe.mode(begin["mode"] or "")
                blocks.append(text_block(words[begin.end() : end.start()]))
            if not typed and words and not results:
                blocks.append(text_block(words))
        words = " ".join("".join(text(block, "text") for block in blocks).split())
        self.first_prompt = self.first_prompt or words
        self._scribe.prompt(prompt_blocks(blocks))

    def _result(self, part: Object) -> None:
        call_id = text(part, "tool_use_id")
        name, given = self._tool_of(call_id, part)
        if not name:
            return
        if name == "spawn_agent" and (task := text(given, "task")):
            # Find the document of the subagent with that task; each is told once.
            for path in list(self._subagents):
                messages = objects(document(path, self._missed), "messages")
                asked = objects(messages[0], "content") if messages else []
                if task in "".join(text(one, "text") for one in asked):
                    self._subagents.remove(path)
                    telling = _ClineTelling(SubagentScribe(self._scribe, call_id, speaks=True), [])
                    for message in messages:
                        telling.message(message)
                    break
        failed, output = part.get("is_error") is True, part.get("content")
        output = output if failed else from_json(output)
        # The text for people: that of each part.
        if isinstance(output, str):
            shown = output
        elif isinstance(output, dict):
            shown = text(output, "text") or text(output, "result") or text(output, "error")
        else:
            shown = "\n".join(text(one, "result") or text(one, "error") for one in objects(output))
        produced = [content(shown)] if shown else []
        self._ended(call_id, failed=failed, produced=produced, rawOutput=output)


def _title(name: str, given: Object) -> str:
    """Return the title as on the program's screen, which shortens it."""
    commands, shown, size = strings(given, "commands"), text(given, "task"), TASK_CHARACTERS
    if commands:
        return f"{name}: {', '.join(commands)}"
    if not shown:
        shown, size = msgspec.json.encode(given).decode() if given else "", TITLE_CHARACTERS
    shown = shown if len(shown) <= size else f"{shown[: size - 3]}..."
    return f"{name}: {shown}" if shown else name


READER: Final = Reader(NAME, KEY, find, read)
