"""What Cline's extensions of editors keep: `tasks/<id>/ui_messages.json`, what stood on the screen.

A message was asked or said (`type`), and is of the kind that `ask` or `say` names; calls and the
tokens of a request stand as JSON inside its `text`. Where the conversation was held is in a list of
all tasks, or in what the model was told.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from acphold.imports.content_blocks import checklist, content, diff, picture, text_block
from acphold.imports.missed import Missed
from acphold.imports.records import document_list
from acphold.imports.scribe import Scribe
from acphold.imports.sources import Source, files_below, source_of
from acphold.imports.values import Object, from_json, milliseconds, number, strings, text
from acphold.workspace import regular_files

SCREEN: Final = "ui_messages.json"

EDITORS: Final = (
    ".config/*/User/globalStorage/saoudrizwan.claude-dev",
    "Library/Application Support/*/User/globalStorage/saoudrizwan.claude-dev",
    ".vscode-server/data/User/globalStorage/saoudrizwan.claude-dev",
)
"""Where editors keep what their extension writes, below a home folder."""

TOOLS: Final = {
    "editedExistingFile": ("Edit", "edit"),
    "fileDeleted": ("Delete", "delete"),
    "listCodeDefinitionNames": ("List definitions in", "search"),
    "listFilesRecursive": ("List", "read"),
    "listFilesTopLevel": ("List", "read"),
    "newFileCreated": ("Create", "edit"),
    "readFile": ("Read", "read"),
    "searchFiles": ("Search", "search"),
    "summarizeTask": ("Compact conversation", "think"),
    "webFetch": ("Fetch", "fetch"),
    "webSearch": ("Search", "fetch"),
}
"""What a tool is called on a screen, and its kind."""

_OLD, _NEW, _END = (
    re.compile(pattern) for pattern in ("[-<]{3,} SEARCH>?", "={3,}", "[+>]{3,} REPLACE>?")
)
"""The lines around what an edit replaced, and what it put there."""
_FOLDER: Final = re.compile(rb"Current Working Directory:? \(?(/[^\n\"\\)]+)\)?")
_ASKED_AT_THE_END: Final = " REQ_APP"
"""What stands behind a command that a person had to allow."""

_PASSED: Final = frozenset(
    {
        "api_req_deleted", "api_req_failed", "api_req_finished", "api_req_retried",
        "api_req_retry_delayed", "auto_approval_max_req_reached", "browser_action_result",
        "browser_screenshot", "checkpoint_created", "checkpoint_saved", "clineignore_error",
        "command_output", "command_permission_denied", "conditional_rules_applied",
        "deleted_api_reqs", "diff_error", "error", "hook_output_stream", "hook_status", "info",
        "load_mcp_documentation", "mcp_notification", "mcp_server_request_started",
        "mcp_server_response", "mistake_limit_reached", "new_task", "report_bug",
        "resume_completed_task", "resume_task", "shell_integration_warning",
        "shell_integration_warning_with_suggestion", "subagent_usage", "user_feedback_diff",
    }
)  # fmt: skip
"""Notices, questions with buttons, what repeats other messages, and what belongs to a call."""


def task_sources(reader: str, home: Path, own: Path) -> Iterator[Source]:
    """The tasks in Cline's own folder, and those of editors that are not there."""
    seen: set[str] = set()
    roots = [own, *(root for pattern in EDITORS for root in sorted(home.glob(pattern)))]
    for root in roots:
        for path in files_below(root / "tasks", f"*/{SCREEN}"):
            if path.parent.name in seen:
                continue
            seen.add(path.parent.name)
            listed = root / "state/taskHistory.json"
            if source := source_of(reader, path.parent.name, [path]):
                yield replace(source, paths=(str(path), str(listed)))


def read_task(source: Source, scribe: Scribe) -> Iterator[None]:
    """Tell the task; raises OSError for half a document."""
    path, listed = map(Path, source.paths)
    missed = Missed()
    messages = document_list(path, missed)
    if missed.counts:
        raise OSError(f"{path} is being written, too large, or no JSON")
    changed_at = 0
    with suppress(OSError):
        changed_at = listed.stat().st_mtime_ns
    scribe.facts.cwd = _folders(listed, changed_at).get(path.parent.name, "")
    if not scribe.facts.cwd:
        with suppress(OSError):
            told = regular_files.opened(path.with_name("api_conversation_history.json"))
            with open(told, "rb") as file:
                if found := _FOLDER.search(file.read(1 << 20)):
                    scribe.facts.cwd = found[1].decode(errors="replace")
    telling = _Telling(scribe)
    for message in messages:
        telling.take(message)
        yield
    telling.end_command()


@lru_cache(maxsize=8)
def _folders(listed: Path, _changed_at: int) -> dict[str, str]:
    """Where the tasks in a list were held, by their ids: read once for all of them."""
    return {
        text(task, "id"): text(task, "cwdOnTaskInitialization")
        for task in document_list(listed, Missed())
    }


class _Telling:
    """One task, message by message."""

    def __init__(self, scribe: Scribe) -> None:
        self._scribe = scribe
        self._said = ""
        self._command = ""
        self._printed = ""
        self._count = 0

    def take(self, message: Object) -> None:
        """The next message; one that was asked and then said is told once."""
        self._scribe.clock(milliseconds(message.get("ts")))
        kind = text(message, "say") or text(message, "ask")
        words = text(message, "text")
        if kind in ("command_output", "mcp_server_response"):
            self._printed += words
        if kind in _PASSED:
            return
        self.end_command()
        about = from_json(words)
        if kind in ("task", "user_feedback"):
            pictures = filter(None, map(picture, strings(message, "images")))
            self._scribe.prompt([*([text_block(words)] if words else []), *pictures])
        elif kind == "api_req_started":
            self._said = ""
            self._scribe.model(text(message, "modelInfo", "modelId"))
            self._scribe.tokens(
                inputTokens=number(about, "tokensIn"),
                outputTokens=number(about, "tokensOut"),
                cachedReadTokens=number(about, "cacheReads"),
                cachedWriteTokens=number(about, "cacheWrites"),
            )
            if text(about, "cancelReason") == "user_cancelled":
                self._scribe.end_turn("cancelled")
        elif kind == "task_progress":
            self._scribe.plan(checklist(words))
        elif kind == "reasoning":
            self._scribe.think(words)
        elif kind == "text":
            self._say(words)
        elif kind in ("followup", "plan_mode_respond", "act_mode_respond"):
            self._say(text(about, "question") or text(about, "response") or words)
            self._scribe.done()
        elif kind in ("completion_result", "plan_completion_result"):
            self._say(words)
            self._scribe.done()
        elif kind == "command":
            command = words.removesuffix(_ASKED_AT_THE_END)
            fields: Object = {"title": command, "kind": "execute", "status": "in_progress"}
            self._command = self._call(fields | {"rawInput": {"command": command}})
        elif kind == "tool":
            self._call(_tool(about))
        elif kind == "use_mcp_server":
            name = text(about, "toolName") or text(about, "uri")
            given = from_json(text(about, "arguments"))
            title = f"{text(about, 'serverName')}: {name}"
            self._command = self._call({"title": title, "kind": "other", "rawInput": given})
        elif kind in ("browser_action_launch", "browser_action"):
            title = f"Browse {text(about, 'action') or words}"
            self._call({"title": title, "kind": "fetch", "status": "completed"})
        elif kind in ("condense", "summarize_task", "compaction", "use_subagents", "subagent"):
            title = "Subagents" if "subagent" in kind else "Compact conversation"
            told = [content(words)] if words else []
            self._call({"title": title, "kind": "think", "status": "completed", "content": told})
        else:
            self._scribe.missed.add(f"messages of kind {kind[:40]!r}", message)

    def _say(self, words: str) -> None:
        if words and words != self._said:
            self._said = words
            self._scribe.say(words)

    def _call(self, fields: Object) -> str:
        self._count += 1
        call_id = f"call-{self._count}"
        self._scribe.call(call_id, fields)
        return call_id

    def end_command(self) -> None:
        """Nothing more comes of the last command."""
        if self._command:
            told: Object = {"content": [content(self._printed)]} if self._printed else {}
            self._scribe.update(self._command, {"status": "completed"} | told)
        self._command = self._printed = ""


def _tool(asked: object) -> Object:
    """The fields of a call of one of Cline's own tools, which is over when it is shown."""
    name, path, words = text(asked, "tool"), text(asked, "path"), text(asked, "content")
    verb, kind = TOOLS.get(name, (name, "other"))
    what = text(asked, "regex") or path
    fields: Object = {"title": f"{verb} {what}".strip() or "Tool", "kind": kind}
    if path:
        fields["locations"] = [{"path": path}]
    if name == "newFileCreated":
        fields["content"] = [diff(path, None, words)]
    elif name == "editedExistingFile":
        changed = text(asked, "diff") or words
        found = [diff(path, old, new) for old, new in _replaced(changed)]
        fields["content"] = found or [content(changed)]
    elif words and name != "readFile":  # which has only the whole path there
        fields["content"] = [content(words)]
    return fields | {"status": "completed", "rawInput": asked}


def _replaced(changed: str) -> Iterator[tuple[str, str]]:
    """What an edit took out, and what it put there, each time."""
    old: list[str] | None = None
    new: list[str] | None = None
    for line in changed.splitlines(keepends=True):
        mark = line.rstrip("\n")
        if _OLD.fullmatch(mark):
            old, new = [], None
        elif old is None:
            continue
        elif new is None and _NEW.fullmatch(mark):
            new = []
        elif new is not None and _END.fullmatch(mark):
            yield "".join(old), "".join(new)
            old = new = None
        else:
            (old if new is None else new).append(line)
