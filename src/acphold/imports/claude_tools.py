"""Claude Code's tools in the words of the protocol, as its ACP adapter tells them.

Two styles: the adapter of today, and that of the 1.x transcripts, which named calls otherwise.
What its subagents did lies in files of their own, or amid the rest.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

import msgspec

from acphold.imports.content_blocks import content, diff, image
from acphold.imports.missed import Missed
from acphold.imports.records import document, records
from acphold.imports.sources import Source
from acphold.imports.tags import without
from acphold.imports.values import Object, looked_up, number, obj, objects, strings, text

SUBAGENT_TOOLS: Final = frozenset({"Agent", "Task"})

PLAN_TOOLS: Final = frozenset({"TodoWrite", "TaskCreate", "TaskUpdate", "TaskList", "TaskGet"})
"""Their calls are shown as the plan, not as calls."""

_REMINDER: Final = re.compile(
    r"(?<!\n)\n*<(?P<opens>system-reminder)>|</(?P<closes>system-reminder)>\n?"
)
_EMPTY_LAST_LINE: Final = re.compile(r"\n[ \t]*\d+[\t→]$")

Described = tuple[str, str, list[Object], list[Object]]
"""Title, kind, content and locations of a call."""


def call_fields(name: str, given: Object, cwd: str, *, old: bool) -> Object:
    """The fields of a call of the tool `name` with this input."""
    describe = _TOOLS.get(name)
    title, kind, shown, places = (
        (name or "Unknown Tool", "other", [], [])
        if describe is None
        else describe(given, _Style(cwd, old))
    )
    fields: Object = {"title": title, "kind": kind, "rawInput": given, "content": shown}
    if places:
        fields["locations"] = places
    return fields


class _Style:
    """How paths and commands are written: relative to the folder, or in back quotes."""

    def __init__(self, cwd: str, old: bool) -> None:
        self._cwd = cwd
        self.old = old

    def path(self, path: str) -> str:
        if self.old:
            return f"`{path}`"
        inside = self._cwd and (path == self._cwd or path.startswith(f"{self._cwd}/"))
        return os.path.relpath(path, self._cwd) if inside else path

    def command(self, command: str) -> str:
        return f"`{command}`" if self.old else command


def _task(given: Object, style: _Style) -> Described:
    prompt = text(given, "prompt")
    return text(given, "description") or "Task", "think", [content(prompt)] if prompt else [], []


def _bash(given: Object, style: _Style) -> Described:
    command, why = text(given, "command"), text(given, "description")
    title = style.command(command) if command else "Terminal"
    return title, "execute", [content(why)] if why else [], []


def _read(given: Object, style: _Style) -> Described:
    path = text(given, "file_path")
    first, count = number(given, "offset"), number(given, "limit")
    part = ""
    if count and count > 0:
        part = f" ({first or 1} - {(first or 1) + count - 1})"
    elif first:
        part = f" (from line {first})"
    name = style.path(path) if path and not style.old else "File"
    line = first if first is not None else 0 if style.old else 1
    return f"Read {name}{part}", "read", [], [{"path": path, "line": line}] if path else []


def _write(given: Object, style: _Style) -> Described:
    path = text(given, "file_path")
    shown = [diff(path, None, text(given, "content"))] if path else []
    title = f"Write {style.path(path)}" if path else "Write"
    return title, "edit", shown, [{"path": path}] if path else []


def _edit(given: Object, style: _Style) -> Described:
    path = text(given, "file_path")
    edits = objects(given, "edits") or [given]
    shown = [
        diff(path, text(edit, "old_string") or None, text(edit, "new_string"))
        for edit in edits
        if path and (text(edit, "old_string") or text(edit, "new_string"))
    ]
    title = f"Edit {style.path(path)}" if path else "Edit"
    return title, "edit", shown, [{"path": path}] if path else []


def _notebook(given: Object, style: _Style) -> Described:
    path = text(given, "notebook_path")
    shown = [content(text(given, "new_source"))] if text(given, "new_source") else []
    title = f"Edit Notebook {style.path(path)}" if path else "Edit Notebook"
    return title, "edit", shown, [{"path": path}] if path else []


def _glob(given: Object, style: _Style) -> Described:
    words = [f" `{text(given, name)}`" for name in ("path", "pattern") if text(given, name)]
    path = text(given, "path")
    return "Find" + "".join(words), "search", [], [{"path": path}] if path else []


def _grep(given: Object, style: _Style) -> Described:
    words = ["grep"]
    words += [flag for flag in ("-i", "-n") if given.get(flag)]
    words += [f"{flag} {given[flag]}" for flag in ("-A", "-B", "-C") if flag in given]
    mode = text(given, "output_mode")
    words += {"files_with_matches": ["-l"], "count": ["-c"]}.get(mode, [])
    if "head_limit" in given:
        words.append(f"| head -{given['head_limit']}")
    words += [f'--include="{text(given, "glob")}"'] if text(given, "glob") else []
    words += [f"--type={text(given, 'type')}"] if text(given, "type") else []
    words += ["-P"] if given.get("multiline") else []
    words += [f'"{text(given, "pattern")}"'] if text(given, "pattern") else []
    words += [text(given, "path")] if text(given, "path") else []
    return " ".join(words), "search", [], []


def _fetch(given: Object, style: _Style) -> Described:
    url, prompt = text(given, "url"), text(given, "prompt")
    return f"Fetch {url}" if url else "Fetch", "fetch", [content(prompt)] if prompt else [], []


def _web_search(given: Object, style: _Style) -> Described:
    title = f'"{text(given, "query")}"'
    for word, name in (("allowed", "allowed_domains"), ("blocked", "blocked_domains")):
        if domains := strings(given, name):
            title += f" ({word}: {', '.join(domains)})"
    return title, "fetch", [], []


def _exit_plan(given: Object, style: _Style) -> Described:
    plan = text(given, "plan")
    return "Ready to code?", "switch_mode", [content(plan)] if plan else [], []


_TOOLS: Final[dict[str, Callable[[Object, _Style], Described]]] = {
    "Agent": _task,
    "Task": _task,
    "Bash": _bash,
    "Read": _read,
    "Write": _write,
    "Edit": _edit,
    "MultiEdit": _edit,
    "NotebookEdit": _notebook,
    "Glob": _glob,
    "Grep": _grep,
    "WebFetch": _fetch,
    "WebSearch": _web_search,
    "ExitPlanMode": _exit_plan,
}


def result_fields(name: str, result: Object, details: object, *, old: bool) -> Object:
    """The fields that a `tool_result` block changes; `details` is the record's `toolUseResult`."""
    failed = result.get("is_error") is True
    produced = result.get("content")
    fields: Object = {"status": "failed" if failed else "completed"}
    if not old and produced is not None:
        fields["rawOutput"] = produced
    if failed:
        shown = _shown(produced, _fenced)
    elif name == "Read":
        cut = not old and bool(obj(details, "file"))
        shown = _shown(produced, lambda words: _read_text(words, cut=cut))
    elif name == "Bash" and not old:
        shown = _shown(produced, _console)
    elif name in ("Edit", "MultiEdit", "Write"):
        shown = [] if old else _patch(details, fields)
    elif name in SUBAGENT_TOOLS and objects(details, "content"):
        shown = _shown(looked_up(details, "content"), str)
    elif name == "ExitPlanMode":
        fields["title"], shown = "Exited Plan Mode", []
    else:
        shown = _shown(produced, str)
    if shown:
        fields["content"] = shown
    return fields


def _read_text(words: str, *, cut: bool) -> str:
    words = without(words, _REMINDER)
    return _escaped(_EMPTY_LAST_LINE.sub("", words) if cut else words)


def _fenced(words: str) -> str:
    return f"```\n{words}\n```"


def _console(words: str) -> str:
    return f"```console\n{words.rstrip()}\n```" if words.strip() else ""


def _escaped(words: str) -> str:
    """In a fence that is longer than any in the text."""
    longest = max(map(len, re.findall(r"^```+", words, re.MULTILINE)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}\n{words}{'' if words.endswith(chr(10)) else chr(10)}{fence}"


def _shown(produced: object, written: Callable[[str], str]) -> list[Object]:
    """What a tool produced, its texts written as `written` has them."""
    if isinstance(produced, str):
        words = written(produced) if produced else ""
        return [content(words)] if words else []
    shown: list[Object] = []
    for block in objects([produced] if isinstance(produced, dict) else produced):
        picture = picture_of(block)
        if picture is not None:
            shown.append({"type": "content", "content": picture})
        elif words := written(_block_text(block)):
            shown.append(content(words))
    return shown


def picture_of(block: Object) -> Object | None:
    """The block with a picture that an image block is; None for other blocks."""
    if text(block, "type") != "image" or not text(block, "source", "data"):
        return None
    return image(text(block, "source", "data"), text(block, "source", "media_type"))


def document_of(block: Object) -> Object | None:
    """The block with a file that a document block is; None for other blocks."""
    source = obj(block, "source")
    if text(block, "type") != "document" or not text(source, "data"):
        return None
    about: Object = {"uri": f"document:{text(block, 'title')}"}
    about["mimeType"] = text(source, "media_type")
    about["blob" if text(source, "type") == "base64" else "text"] = text(source, "data")
    return {"type": "resource", "resource": about}


def _block_text(block: Object) -> str:
    kind = text(block, "type")
    if kind == "text":
        return text(block, "text")
    if kind == "tool_reference":
        return f"Tool: {text(block, 'tool_name')}"
    if kind == "web_search_result":
        return f"{text(block, 'title')} ({text(block, 'url')})"
    if kind == "image":
        return f"[image: {text(block, 'source', 'url') or 'file reference'}]"
    return msgspec.json.encode(block).decode()


def _patch(details: object, fields: Object) -> list[Object]:
    """The hunks of an edit, with the lines around them; their places go into `fields`."""
    path = text(details, "filePath")
    shown: list[Object] = []
    places: list[Object] = []
    for hunk in objects(details, "structuredPatch") if path else []:
        lines = strings(hunk, "lines")
        old = "\n".join(line[1:] for line in lines if not line.startswith(("+", "\\")))
        new = "\n".join(line[1:] for line in lines if not line.startswith(("-", "\\")))
        if lines:
            places.append({"path": path, "line": number(hunk, "newStart") or 1})
            shown.append(diff(path, old or None, new))
    if places:
        fields["locations"] = places
    return shown


class Tasks:
    """The plan, put together from the calls that make and change it."""

    def __init__(self) -> None:
        self._tasks: dict[str, Object] = {}

    def plan(self, name: str, given: Object, details: object) -> list[Object] | None:
        """The entries after this call; None when it changes none."""
        if name == "TodoWrite":
            return [_entry(todo, text(todo, "content")) for todo in objects(given, "todos")]
        if name == "TaskCreate":
            task_id = text(details, "task", "id") or str(len(self._tasks) + 1)
            self._tasks[task_id] = {"status": "pending"} | given
        elif name == "TaskUpdate" and text(given, "taskId") in self._tasks:
            task_id = text(given, "taskId")
            if text(given, "status") == "deleted":
                del self._tasks[task_id]
            else:
                self._tasks[task_id] |= given
        else:
            return None
        return [_entry(task, _task_words(task)) for task in self._tasks.values()]


def _task_words(task: Object) -> str:
    doing = text(task, "status") == "in_progress" and text(task, "activeForm")
    return doing or text(task, "subject")


def _entry(source: Object, words: str) -> Object:
    status = text(source, "status")
    known = status if status in ("pending", "in_progress", "completed") else "pending"
    return {"content": words, "status": known, "priority": "medium"}


# -- subagents ------------------------------------------------------------------------------


class Subagents:
    """Where the records of subagents are, by the call that started them."""

    def __init__(self, source: Source) -> None:
        self._main = Path(source.paths[0])
        self._by_call: dict[str, Path] = {}
        self._callers: dict[str, str] = {}
        for name in source.paths[1:]:
            path = Path(name)
            about = path.with_suffix(".meta.json")
            if path.suffix == ".jsonl" and about.is_file():
                call_id = text(document(about, Missed()), "toolUseId")
                self._by_call.setdefault(call_id, path)

    def records(self, call_id: str, agent: str, missed: Missed) -> Iterator[Object]:
        """What the subagent of this call left in a file of its own."""
        path = self._by_call.pop(call_id, None)
        if path is None and re.fullmatch(r"[\w-]{1,80}", agent):
            folders = (self._main.with_suffix("") / "subagents", self._main.parent)
            places = [folder / f"agent-{agent}.jsonl" for folder in folders]
            path = next((place for place in places if place.is_file()), None)
        if path is not None and path.resolve().is_relative_to(self._main.parent.resolve()):
            yield from records(path, missed)

    def caller(self, record: Object, calls: Mapping[str, tuple[str, Object]]) -> str:
        """The call behind a record in the same file: that with the same prompt, else the last."""
        above = text(record, "parentUuid")
        caller = self._callers.get(above, "")
        if not caller:
            asked = text(record, "message", "content")
            waiting = [call for call, (name, _) in calls.items() if name in SUBAGENT_TOOLS]
            same = [call for call in waiting if text(calls[call][1], "prompt") == asked]
            caller = (same or waiting[-1:] or [""])[0]
        self._callers[text(record, "uuid")] = caller
        return caller


def agent_id(details: object) -> str:
    """The subagent that a call started, as the record of its result names it."""
    return text(details, "agentId")
