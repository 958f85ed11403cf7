"""Qwen Code: `~/.qwen/projects/<folder>/chats/<session>.jsonl`, a tree of records.

Messages have Gemini's parts. Version 0.1 kept its sessions as Gemini CLI did then. Subagents'
messages are shown among the rest, and stored in files of their own, named by the call.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from acphold.imports import gemini
from acphold.imports.entry_writer import EntryWriter, NotStraightError
from acphold.imports.gemini import GeminiForm, kind_of, parts_text, session_sources
from acphold.imports.readers import AgentConverter, Reader, token_counts
from acphold.imports.record_tree import RecordTree, branches_of
from acphold.imports.records import OBJECTS, document, records
from acphold.imports.salvage import RowForm
from acphold.imports.sources import Home, Source, beside, files_below, source_of
from acphold.imports.values import Missed, Object, first_text, number, obj, objects, text

_DISPLAY: Final = {
    "grep_search": "Grep",
    "list_directory": "ListFiles",
    "run_shell_command": "Shell",
}
_OWN: Final = ("exit_plan_mode", "skill", "tool_search")
"""Names on the program's screen; its other tools, as `read_file`, are shown as `ReadFile`."""

ROWS: Final = RowForm(
    frozenset({"parentUuid", "sessionId", "timestamp", "type", "uuid"}), "sessionId"
)

_PASSED: Final = frozenset(
    {
        "attribution_snapshot", "branch_checkpoint", "custom_title", "file_history_snapshot",
        "goal_state", "goal_turn_end", "parent_session", "rewind", "session_artifact_event",
        "session_artifact_snapshot", "session_model", "session_recording_degraded",
        "session_source", "session_sources_snapshot", "turn_result", "ui_telemetry",
        "user_text_elements",
    }
)  # fmt: skip


def find(home: Home) -> Iterator[Source]:
    """Yield the sessions of today's format, also the archived ones, and those of 0.1."""
    folder = home.folder(".qwen", "QWEN_HOME")
    runtime = home.folder(folder, "QWEN_RUNTIME_DIR")
    for archive in ("", "archive/"):
        for path in files_below(runtime / "projects", f"*/chats/{archive}*.jsonl"):
            if path.stem.endswith(".ledger"):  # of the program's own prompts
                continue
            project = path.parents[2 if archive else 1]
            below = project / "subagents" / path.stem
            subagents = files_below(below, "agent-*.jsonl", project)
            yield from source_of(path.stem, [path, *subagents])
    yield from session_sources(folder)


def _is_typed(record: Object) -> bool:
    """Return True if a person wrote it."""
    return text(record, "type") == "user" and text(record, "provenance") in ("", "real_user")


def _tree(source: Source) -> RecordTree:
    tree = RecordTree(ROWS, begin=source.begin)
    if _is_old(source.path):
        return tree
    way: list[str] = []  # the messages
    begun = ""  # a going back to the beginning
    for _, found in tree.heads(source.path, OBJECTS):
        record = found or {}
        if source.begin and text(record, "subtype") == "chat_compression":
            raise NotStraightError  # they are numbered
        uuid, parent = text(record, "uuid"), text(record, "parentUuid")
        said = obj(record, "message").get("parts")
        if "message" in record:
            way.append(uuid)
        elif text(record, "subtype") == "rewind":
            # After a resume, the program may not know where the turns began that it goes back to.
            gone = number(record, "systemPayload", "truncatedCount") or 0
            del way[max(len(way) - gone, 0) :]
            parent = parent or next(reversed(way), "")
            begun = begun if parent else uuid
        parent = "" if parent == begun else parent
        is_answer = text(record, "type") == "assistant"
        tree.add(uuid, parent, typed=_is_typed(record), answers=is_answer, words=said)
    return tree


def _is_old(path: Path) -> bool:
    return path.name.startswith("session-")


def read(source: Source, writer: EntryWriter) -> Iterator[None]:
    """Read the session."""
    path = source.path
    if _is_old(path):
        yield from gemini.read(source, writer, speaker="qwen")
        return
    converter = _QwenConverter(source, writer)
    yield from _tree(source).read(source, writer, converter.take)
    converter.tell_stopped()


class _QwenConverter(GeminiForm):
    """Converts one session, or that of a subagent, record by record."""

    subagent_tools = frozenset({"agent", "task"})
    plan_tools = frozenset({"todo_write"})

    def __init__(self, source: Source, writer: EntryWriter) -> None:
        super().__init__(writer)
        self._source = source

    def take(self, record: Object) -> None:
        self._begin(record)
        kind = text(record, "type")
        if kind == "user":
            if _is_typed(record) and not self._writer.caller:
                self.tell_stopped()
                parts = obj(record, "message").get("parts")
                self._prompt(parts, text(record, "uuid"))
        elif kind == "assistant":
            self._agent_said(record)
        elif kind == "tool_result":
            about = obj(record, "toolCallResult")
            for part in objects(record, "message", "parts"):
                result = obj(part, "functionResponse")
                if call_id := text(result, "id") or text(about, "callId"):
                    self._take_result(call_id, {"about": about} | result)
        elif kind == "system":
            subtype, payload = text(record, "subtype"), obj(record, "systemPayload")
            if subtype == "chat_compression":
                history = objects(payload, "compressedHistory")
                summary = parts_text(history[0].get("parts")) if history else ""
                shown: Object = {"rawOutput": obj(payload, "info")}
                self._writer.compaction("", summary, shown)
            elif subtype == "slash_command":
                # The output of one of the program's own commands: its steps as separate messages.
                for place, item in enumerate(objects(payload, "outputHistoryItems")):
                    words = text(item, "text")
                    steps = words.splitlines() if "contextCompression" in item else [words]
                    for step, line in enumerate(steps):
                        self._writer.say(line, f"{text(record, 'uuid')}-{place}-{step}")
                    self._writer.finish_answer()
            elif subtype not in _PASSED:
                self._missed.kind("system records", subtype, record)
            if title := text(payload, "customTitle"):
                self._writer.title(title)
        else:
            self._missed.kind("records", kind, record)

    def _agent_said(self, record: Object) -> None:
        message_id = text(record, "uuid")
        called = False
        for part in objects(record, "message", "parts"):
            if part.get("thought") is True:
                self._writer.think(text(part, "text"), message_id)
            elif "functionCall" in part:
                called = True
                self._call(obj(part, "functionCall"))
            elif "text" in part:
                self._writer.say(text(part, "text"), message_id)
            else:
                self._missed.kind("parts", next(iter(part), ""), part)
        usage = obj(record, "usageMetadata")
        self._writer.model(text(record, "model"))
        spent = token_counts(usage, "thoughtsTokenCount", together=True)
        self._writer.tokens(message_id, **spent)
        size = number(record, "contextWindowSize")
        if size and usage and not self._writer.caller:
            self._writer.usage(number(usage, "totalTokenCount") or 0, size)
        if not called:
            self._writer.finish_answer()

    def _steps(self, name: str, arguments: Object) -> None:
        """A plan is told by the result."""

    def _shown(self, name: str, arguments: Object, _part: Object) -> Object:
        # The title as on the program's screen: `ReadFile: notes.txt`.
        cwd, title = self._writer.facts.cwd, name
        if name in _OWN or kind_of(name) != "other" or name == "agent":
            title = _DISPLAY.get(name) or name.title().replace("_", "")
        detail = first_text(arguments, ("query", "pattern", "url"))
        if path := text(arguments, "file_path") or text(arguments, "path"):
            detail = path.removeprefix(f"{cwd}/") if cwd else path
        if command := text(arguments, "command"):
            why = text(arguments, "description")
            detail = f"{command} ({why})" if why else command
        elif name in ("agent", "task"):
            detail = text(arguments, "description")
        return {
            "title": f"{title}: {detail}" if detail else title,
            "kind": kind_of(name),
            "rawInput": arguments,
            "locations": self._places(name, arguments),
            "_meta": {"toolName": name},
        }

    def _result(self, result: Object, call_id: str, name: str, arguments: Object) -> None:
        response, about = obj(result, "response"), obj(result, "about")
        caller, display = self._writer.caller, about.get("resultDisplay")
        if name == "todo_write":
            self._writer.plan(objects(display, "todos"))
            return
        self._tell_subagent(call_id, self._find_subagent(call_id, arguments, result))
        failed = text(about, "status") not in ("success", "") or "error" in response
        produced = self._result_contents(display, response)
        raw: Object = {} if display is None else {"rawOutput": display}
        if caller and not failed:
            raw = {"rawOutput": ""} | raw  # as the program shows a subagent's call
        self._end_call(call_id, failed=failed, produced=produced, **raw)

    def _find_subagent(self, call_id: str, arguments: Object, result: object) -> Path | None:
        paths = map(Path, self._source.paths[1:])
        return next((path for path in paths if path.stem.endswith(f"-{call_id}")), None)

    def _tell(self, child: Path) -> None:
        about = beside(child, f"{child.stem}.meta.json", self._missed)
        kind = text(document(about, Missed()), "agentType")
        caller = self._writer.caller
        marks: Object = {"parentToolCallId": caller}
        marks |= {"subagentType": kind} if kind else {}
        with self._writer.within(caller, marks, speaks=True):
            super()._tell(child)

    def _inside(self, child: Path) -> tuple[AgentConverter, Iterator[Object]]:
        converter = _QwenConverter(self._source, self._writer)
        return converter, records(child, self._missed, ROWS)


READER: Final = Reader("qwen", "qwen-code", find, read, branches_of(_tree))
