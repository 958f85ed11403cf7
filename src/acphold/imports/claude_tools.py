"""Claude Code's tools in terms of the protocol, as its ACP adapter reports them.

Two styles: today's adapter, and that of the 1.x transcripts, with other titles. Subagents' records
are in files of their own, or among the rest.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Container, Mapping
from pathlib import Path
from typing import Final

import msgspec

from acphold.imports.content_blocks import block_content, contents, diff, picture_of, sides
from acphold.imports.records import document, records
from acphold.imports.salvage import RowForm
from acphold.imports.sources import Source, beside
from acphold.imports.tools import PATHS, edit_diffs, named_call_fields, tool_of
from acphold.imports.values import (
    Missed,
    Object,
    first_text,
    look_up,
    number,
    obj,
    objects,
    strings,
    text,
    without,
)

ROWS: Final = RowForm(
    frozenset({"isSidechain", "parentUuid", "sessionId", "timestamp", "type", "uuid"}), "sessionId"
)

SUBAGENT_TOOLS: Final = frozenset({"Agent", "Task"})

PLAN_TOOLS: Final = frozenset({"TodoWrite", "TaskCreate", "TaskUpdate", "TaskList", "TaskGet"})
"""Their calls are shown as the plan, not as calls."""

_REMINDER: Final = re.compile(
    r"(?<!\n)\n*<(?P<opens>system-reminder)>|</(?P<closes>system-reminder)>\n?"
)
_EMPTY_LAST_LINE: Final = re.compile(r"\n[ \t]*\d+[\t→]$")


def call_fields(name: str, arguments: Object, cwd: str, *, old: bool) -> Object:
    """Return the fields of a call of the tool `name` with this input."""
    title, kind = name or "Unknown Tool", "other"
    shown: list[Object] = []
    place: Object = {}  # beside its path
    path, prompt = text(arguments, "file_path"), text(arguments, "prompt")
    match name:
        case "Agent" | "Task":
            title, kind = text(arguments, "description") or "Task", "think"
            shown = contents(prompt)
        case "Bash":
            command, why = text(arguments, "command"), text(arguments, "description")
            title, kind = (f"`{command}`" if old and command else command) or "Terminal", "execute"
            shown = contents(why)
        case "Read":
            first, count = number(arguments, "offset"), number(arguments, "limit")
            part = f" (from line {first})" if first else ""
            if count and count > 0:
                part = f" ({first or 1} - {(first or 1) + count - 1})"
            title = f"Read {'File' if old or not path else _title_path(path, cwd, old=old)}{part}"
            kind, line = "read", first if first is not None else 0 if old else 1
            place = {"line": line}
        case "ExitPlanMode":
            title, kind = "Ready to code?", "switch_mode"
            shown = contents(text(arguments, "plan"))
        case _ if tool_of(name).kind != "other":
            named = {"file_path": _title_path(path, cwd, old=old)} if path else {}
            fields = named_call_fields(name, arguments | named)
            title, kind = text(fields, "title"), text(fields, "kind")
            shown = edit_diffs(path, arguments) if path and kind == "edit" else []
            path = first_text(arguments, PATHS)
    fields = {"title": title, "kind": kind, "rawInput": arguments, "content": shown}
    return fields | ({"locations": [{"path": path} | place]} if path else {})


def _title_path(path: str, cwd: str, *, old: bool) -> str:
    """Return a path as shown in titles: relative to the folder, or in back quotes."""
    if old:
        return f"`{path}`"
    return os.path.relpath(path, cwd) if cwd and f"{path}/".startswith(f"{cwd}/") else path


def result_fields(name: str, result: Object, details: object, *, old: bool) -> Object:
    """Return the fields changed by a `tool_result`; `details` is the record's `toolUseResult`."""
    failed = result.get("is_error") is True
    produced = result.get("content")
    fields: Object = {"status": "failed" if failed else "completed"}
    if not old and produced is not None:
        fields["rawOutput"] = produced
    if failed:
        shown = _result_blocks(produced, "```\n{}\n```".format)
    elif name == "Read":
        cut = not old and bool(obj(details, "file"))

        def in_fence(words: str) -> str:
            """Return the text read, in a fence longer than any in it."""
            if "<system-reminder>" in words:  # a file may be long
                words = without(words, _REMINDER)
            words = _EMPTY_LAST_LINE.sub("", words) if cut else words
            fences = re.findall(r"^```+", words, re.MULTILINE) if "```" in words else ()
            longest = max(map(len, fences), default=2)
            fence, end = "`" * (longest + 1), "" if words.endswith("\n") else "\n"
            return f"{fence}\n{words}{end}{fence}"

        shown = _result_blocks(produced, in_fence)
    elif name == "Bash" and not old:
        shown = _result_blocks(
            produced, lambda words: f"```console\n{words.rstrip()}\n```" if words.strip() else ""
        )
    elif name in ("Edit", "MultiEdit", "Write"):
        shown, places = [], []
        path = "" if old else text(details, "filePath")
        # Hunks with context lines, which the call did not have.
        for hunk in objects(details, "structuredPatch") if path else []:
            lines = strings(hunk, "lines")
            before, after = map("\n".join, sides(lines))
            if lines:
                places.append({"path": path, "line": number(hunk, "newStart") or 1})
                shown.append(diff(path, before or None, after))
        if places:
            fields["locations"] = places
    elif name in SUBAGENT_TOOLS and objects(details, "content"):
        shown = _result_blocks(look_up(details, "content"), str)
    elif name == "ExitPlanMode":
        fields["title"], shown = "Exited Plan Mode", []
    else:
        shown = _result_blocks(produced, str)
    if shown:
        fields["content"] = shown
    return fields


def _result_blocks(produced: object, written: Callable[[str], str]) -> list[Object]:
    """Return a tool's results; `written` formats the texts."""
    if isinstance(produced, str):
        return contents(written(produced)) if produced else []
    shown: list[Object] = []
    for block in objects([produced] if isinstance(produced, dict) else produced):
        match text(block, "type"):
            case "image" if picture := picture_of(block):
                shown.append(block_content(picture))
                continue
            case "image":
                words = f"[image: {text(block, 'source', 'url') or 'file reference'}]"
            case "text":
                words = text(block, "text")
            case "tool_reference":
                words = f"Tool: {text(block, 'tool_name')}"
            case "web_search_result":
                words = f"{text(block, 'title')} ({text(block, 'url')})"
            case _:
                words = msgspec.json.encode(block).decode()
        shown += contents(written(words))
    return shown


def document_of(block: Object) -> Object | None:
    """Return the file of a document block as a content block; None for other blocks."""
    source = obj(block, "source")
    if text(block, "type") != "document" or not text(source, "data"):
        return None
    about: Object = {"uri": f"document:{text(block, 'title')}"}
    about["mimeType"] = text(source, "media_type")
    about["blob" if text(source, "type") == "base64" else "text"] = text(source, "data")
    return {"type": "resource", "resource": about}


class Tasks:
    """The plan, assembled from the calls that make and change it."""

    def __init__(self) -> None:
        self._tasks: dict[str, Object] = {}

    def plan(self, name: str, arguments: Object, details: object) -> list[Object] | None:
        """Return the steps after this call; None if it changes none."""
        if name == "TaskCreate":
            task_id = text(details, "task", "id") or str(len(self._tasks) + 1)
            self._tasks[task_id] = {"status": "pending"} | arguments
        elif name == "TaskUpdate" and text(arguments, "taskId") in self._tasks:
            task_id = text(arguments, "taskId")
            if text(arguments, "status") == "deleted":
                del self._tasks[task_id]
            else:
                self._tasks[task_id] |= arguments
        else:
            return None
        steps: list[Object] = []
        for task in self._tasks.values():
            doing = text(task, "status") == "in_progress" and text(task, "activeForm")
            steps.append(task | {"content": doing or text(task, "subject")})
        return steps


# -- subagents ------------------------------------------------------------------------------


class Subagents:
    """Finds subagents' records by the call that started them."""

    def __init__(self, source: Source, missed: Missed) -> None:
        self._main = source.path
        self._by_call: dict[str, Path] = {}
        self._callers: dict[str, str] = {}
        self._others = [Path(name) for name in source.paths[1:] if name.endswith(".jsonl")]
        for path in self._others:
            about = beside(path, f"{path.stem}.meta.json", missed)
            if about.is_file():
                call_id = text(document(about, Missed()), "toolUseId")
                self._by_call.setdefault(call_id, path)

    def file(self, call_id: str, agent: str, prompt: str, told: Container[object]) -> Path | None:
        """Return the subagent's own file, if there is one.

        A subagent that was stopped has no result with the name of its file. Without a file that
        names the call, it is the one that begins with the same prompt.
        """
        path = self._by_call.pop(call_id, None)
        if path is None and re.fullmatch(r"[\w-]{1,80}", agent):
            folders = (self._main.with_suffix("") / "subagents", self._main.parent)
            places = [folder / f"agent-{agent}.jsonl" for folder in folders]
            path = next((place for place in places if place.is_file()), None)
        if path is None and not agent and prompt:
            others = (it for it in self._others if it not in told)
            path = next((it for it in others if self._is_asked(it, prompt)), None)
        is_ours = path and path.resolve().is_relative_to(self._main.parent.resolve())
        return path if is_ours else None

    def _is_asked(self, path: Path, prompt: str) -> bool:
        """Return True if a subagent's records begin with this prompt, and no file names its
        call."""
        if path in self._by_call.values():
            return False
        first = next(records(path, Missed()), {})
        return text(first, "message", "content") == prompt

    def caller(self, record: Object, calls: Mapping[str, tuple[str, Object]]) -> str:
        """Return the caller of a record in the same file: by its prompt, else the last call."""
        above = text(record, "parentUuid")
        caller = self._callers.get(above, "")
        if not caller:
            asked = text(record, "message", "content")
            waiting = [call for call, (name, _) in calls.items() if name in SUBAGENT_TOOLS]
            same = [call for call in waiting if text(calls[call][1], "prompt") == asked]
            caller = (same or waiting[-1:] or [""])[0]
        self._callers[text(record, "uuid")] = caller
        return caller
