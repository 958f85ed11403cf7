"""Cline: `~/.cline/data/sessions/<id>/`, and older tasks, `tasks/<id>/ui_messages.json`.

A session is a manifest and one document of messages. The document is rewritten with every message,
so a reader may find half of it. Subagents' messages are shown among the rest, and stored in
documents of their own.

A task, of the editor extensions, has the messages of their screen. A message was asked or said
(`type`), and is of the kind named in `ask` or `say`; calls and the tokens of a request are JSON
inside its `text`. The folder of a task is in a list of all tasks, in a file beside it, or in the
model's prompt. Roo Code and Kilo Code began as copies of Cline and use the same format, each below
the name of its extension. They add some kinds and tools, and an edit may be a whole patch there.
The model's side of a task lies beside that of the screen, `api_conversation_history.json`. If the
program was stopped while it wrote the screen's file, the model's has what was lost: what was said,
and the calls, as XML in a text or as blocks.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from acp_wire.workspace.regular_files import open_fd
from acphold.imports.content_blocks import (
    EditMarks,
    checklist,
    content,
    contents,
    diff,
    link,
    parts_of,
    picture,
    prompt_blocks,
    read_edits,
    text_block,
    text_blocks,
    unified_diffs,
)
from acphold.imports.entry_writer import BY_WORDS, EntryWriter
from acphold.imports.readers import (
    AgentConverter,
    Reader,
    main_document,
    token_counts,
    unreadable_document,
)
from acphold.imports.records import (
    SMALL_BYTES,
    TOO_LARGE,
    UNREAD,
    document,
    document_list,
    each_once,
)
from acphold.imports.sources import (
    Home,
    Source,
    Stamp,
    beside,
    files_below,
    source_of,
    stamp,
    without_copy_mark,
)
from acphold.imports.tools import call_fields, named_call_fields, tool_of
from acphold.imports.values import (
    Missed,
    Object,
    first_text,
    from_json,
    inner,
    number,
    obj,
    objects,
    squeeze,
    strings,
    tag_pairs,
    text,
    without,
)

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
        folder = home.folder(folder, variable, below)
    for path in files_below(folder, "*/*.messages.json"):
        name = without_copy_mark(path.parent.name)  # somebody may have copied the folder
        if path.name != f"{name}.messages.json":
            continue
        subagents = files_below(path.parent, "agent_*.messages.json")
        yield from source_of(name, [path, path.with_name(f"{name}.json"), *subagents])
    yield from task_sources(home, CLINE, own=folder.parent)
    yield from task_sources(home, NIGHTLY)


def read(source: Source, writer: EntryWriter) -> Iterator[None]:
    """Read the session; raises OSError if the document is incomplete."""
    path = source.path
    if path.name in TASK_FILES:
        yield from read_task(source, writer)
        return
    whole = main_document(path, writer.missed)
    manifest = document(beside(path, Path(source.paths[1]).name, writer.missed), Missed())
    writer.facts.cwd = text(manifest, "cwd")
    writer.facts.begun_as = text(manifest, "metadata", "fork", "forkedFromSessionId")
    writer.clock(manifest.get("started_at"))
    converter = _ClineConverter(writer, [Path(name) for name in source.paths[2:]])
    yield from converter.take_all(_messages(whole))
    converter.tell_stopped()
    title = " ".join(text(manifest, "metadata", "title").split())
    if title and title not in converter.first_prompt:
        writer.title(title)


def _messages(whole: Object) -> Iterable[Object]:
    """Return the messages of a session; of those that are there twice, with one id and time, the
    later one, in the place of the first."""
    messages: dict[object, Object] = {}
    for place, message in enumerate(objects(whole, "messages")):
        its = text(message, "id") or place
        messages[text(message, "role"), its, number(message, "ts")] = message
    return messages.values()


class _ClineConverter(AgentConverter):
    """Converts one session, or that of a subagent."""

    subagent_tools = frozenset({"spawn_agent"})
    subagents_speak = True

    def __init__(self, writer: EntryWriter, subagents: list[Path]) -> None:
        super().__init__(writer)
        self._subagents = subagents
        self.first_prompt = ""

    def take(self, message: Object) -> None:
        parts = parts_of(message.get("content"))
        self._writer.clock(message.get("ts"))
        if text(message, "role") == "user":
            self._user_said(text(message, "id"), parts)
        elif text(message, "role") == "assistant":
            self._answer(parts, text(message, "id"))
            self._writer.model(text(message, "modelInfo", "id"))
            self._writer.tokens(text(message, "id"), **token_counts(message.get("metrics")))
        else:
            self._missed.kind("messages", text(message, "role"), message)

    def _shown(self, name: str, arguments: Object, _part: Object) -> Object:
        # The title as on the program's screen, which shortens it.
        detail, most = text(arguments, "task"), TASK_CHARACTERS
        if not detail and arguments:
            detail, most = msgspec.json.encode(arguments).decode(), TITLE_CHARACTERS
        detail = detail if len(detail) <= most else f"{detail[: most - 3]}..."
        if commands := strings(arguments, "commands"):
            detail = ", ".join(commands)
        title = f"{name}: {detail}" if detail or commands else name
        kind = "other" if name == "apply_patch" else tool_of(name).kind
        return call_fields(title, kind, arguments)

    def _user_said(self, message_id: str, parts: list[Object]) -> None:
        results = self._take_results(parts)
        if self._writer.caller:
            return
        blocks: list[Object] = []
        for part in parts:
            if text(part, "type") not in ("text", "tool_result"):
                blocks += self._blocks([part])
                continue
            words = text(part, "text")
            typed = list(tag_pairs(words, _TYPED, widest=True))
            for begin, end in typed:
                self._writer.mode(begin["mode"] or "")
                blocks.append(text_block(words[begin.end() : end.start()]))
            if not typed and words and not results:
                blocks.append(text_block(words))
        words = " ".join("".join(text(block, "text") for block in blocks).split())
        self.first_prompt = self.first_prompt or words
        if blocks:
            self.tell_stopped()
        self._writer.prompt(prompt_blocks(blocks), turn=message_id)

    def _result(self, part: Object, call_id: str, name: str, arguments: Object) -> None:
        failed, output = part.get("is_error") is True, part.get("content")
        output = output if failed else from_json(output)
        # The text for people: that of each part.
        if isinstance(output, str):
            shown = output
        elif isinstance(output, dict):
            shown = first_text(output, ("text", "result", "error"))
        else:
            shown = "\n".join(text(one, "result") or text(one, "error") for one in objects(output))
        self._end_call(call_id, failed=failed, produced=contents(shown), rawOutput=output)

    def _find_subagent(self, call_id: str, arguments: Object, result: object) -> Path | None:
        """Return the document of a subagent with the task of this call."""
        task = text(arguments, "task")
        for path in self._subagents if task else ():
            first = next(iter(objects(document(path, Missed()), "messages")), {})
            asked = "".join(text(part, "text") for part in objects(first, "content"))
            if path not in self.told and task in asked:
                return path
        return None

    def _inside(self, child: Path) -> tuple[AgentConverter, Iterable[Object]]:
        return _ClineConverter(self._writer, []), _messages(document(child, self._missed))


# -- tasks of older versions, of Roo Code and of Kilo Code -----------------------------------

_HISTORY: Final = "api_conversation_history.json"
TASK_FILES: Final = ("ui_messages.json", "claude_messages.json", _HISTORY)
"""The files of a task: that of the screen, its name in 2024, and the model's side."""

CLINE: Final = "saoudrizwan.claude-dev"
NIGHTLY: Final = "saoudrizwan.cline-nightly"
"""The names of the extension, and of its nightly version."""

_MARKS: Final = EditMarks(
    re.compile("[-<]{3,} SEARCH>?"),
    re.compile("={3,}"),
    re.compile("[+>]{3,} REPLACE>?"),
    place=re.compile(r":(?:start|end)_line: ?\d+|-{3,}"),
)

_FOLDER: Final = re.compile(
    rb"Current (?:Working|Workspace) Directory:? \(?((?:/|[A-Za-z]:)(?:[^\n\"\\)]|\\\\)+)\)?"
)
_ASKED_AT_THE_END: Final = " REQ_APP"
"""Follows a command that a person had to allow."""

_PASSED: Final = frozenset(
    {
        "api_req_deleted", "api_req_failed", "api_req_finished", "api_req_rate_limit_wait",
        "api_req_rate_limited", "api_req_retried", "api_req_retry_delayed",
        "auto_approval_max_req_reached", "browser_action_result", "browser_screenshot",
        "browser_session_status", "checkpoint_created", "checkpoint_restore", "checkpoint_saved",
        "clineignore_error", "command_output", "command_permission_denied",
        "condense_context_error", "conditional_rules_applied", "deleted_api_reqs", "diff_error",
        "error", "error_retry", "hook_output_stream", "hook_status", "info", "invalid_model",
        "load_mcp_documentation", "mcp_notification", "mcp_server_request_started",
        "mcp_server_response", "mistake_limit_reached", "new_task", "payment_required_prompt",
        "report_bug", "resume_completed_task", "resume_task", "rooignore_error",
        "shell_integration_warning", "shell_integration_warning_with_suggestion",
        "sliding_window_truncation", "subagent_usage", "too_many_tools_warning",
        "user_feedback_diff",
    }
)  # fmt: skip
"""Notices, button questions, messages that repeat others, and parts of a call."""


_REPORTS: Final = {
    "compaction": "Compact conversation",
    "condense": "Compact conversation",
    "subagent": "Subagents",
    "subtask_result": "Result of a task",
    "summarize_task": "Compact conversation",
    "use_subagents": "Subagents",
}
"""Messages whose text is shown as the content of a call, and the call's title."""


def task_sources(home: Home, extension: str, own: Path | None = None) -> Iterator[Source]:
    """Yield the tasks in the agent's own folder, then those of editors."""
    roots = [own] if own else []
    roots += [user / "globalStorage" / extension for user in home.editors()]
    for root in roots:
        tasks: dict[Path, Path] = {}
        for name in TASK_FILES:
            for path in files_below(root / "tasks", f"*/{name}"):
                tasks.setdefault(path.parent, path)
        for folder, path in tasks.items():
            yield from source_of(folder.name, [path])


def read_task(source: Source, writer: EntryWriter) -> Iterator[None]:
    """Read the task; raises OSError if there is nothing to read.

    What the screen's messages lost, when their writer was stopped, is told from the model's side.
    """
    path, missed = source.path, writer.missed
    messages = document_list(path, missed) if path.name != _HISTORY else []
    history: list[TaskStep] = []
    is_cut = bool(missed.counts) or not messages
    steps_file = path if path.name == _HISTORY else beside(path, _HISTORY, missed)
    if is_cut:
        history = [*steps(document_list(steps_file, Missed()))]
    if missed.counts.keys() & {TOO_LARGE, UNREAD} and not history:
        raise unreadable_document(path)
    about = document(beside(path, "history_item.json", missed), Missed(), SMALL_BYTES)
    listed = beside(path.parent.parent, "state/taskHistory.json", missed)
    cwd = _folders(listed, stamp(str(listed))).get(path.parent.name, "") or text(about, "workspace")
    writer.facts.cwd = cwd
    if not cwd:
        with suppress(OSError):
            descriptor = open_fd(steps_file)
            with open(descriptor, "rb") as file:
                if found := _FOLDER.search(file.read(1 << 20)):
                    cwd = found[1].decode(errors="replace").replace("\\\\", "\\")
                    writer.facts.cwd = cwd
    converter = _ClineTasksConverter(writer, source.session_id)
    yield from converter.take_all(each_once(messages, "ts"))
    converter.end_command()
    if is_cut:
        for step in steps_after(history, converter.texts):
            converter.take_step(step)
            yield


@lru_cache(maxsize=8)
def _folders(listed: Path, _: Stamp) -> dict[str, str]:
    """Return the folders of the tasks in a list, by id: cached for all of them."""
    return {
        text(task, "id"): text(task, "cwdOnTaskInitialization")
        for task in document_list(listed, Missed())
    }


class _ClineTasksConverter(AgentConverter):
    """Converts one task, message by message."""

    def __init__(self, writer: EntryWriter, task: str) -> None:
        super().__init__(writer)
        self._task = task
        self._said = ""
        self._command = ""
        self._printed = ""
        self._count = 0
        self._has_begun = False
        self.texts: list[tuple[str, str]] = []
        """The last texts told, each with its role."""

    def take_step(self, step: TaskStep) -> None:
        """Take a step of the model's side."""
        if step.role == "user":
            self._writer.prompt(text_blocks(step.words), turn=BY_WORDS)
        elif step.call is not None:
            self._shown_call(step.call)
        else:
            self._say(step.words)
            self._writer.finish_answer()

    def take(self, message: Object) -> None:
        """Take the next message; a text that was asked and then said is written once."""
        self._writer.clock(message.get("ts"))
        kind = text(message, "say") or text(message, "ask")
        words = text(message, "text")
        if kind in ("command_output", "mcp_server_response"):
            self._printed += words
        if kind in _PASSED:
            return
        self.end_command()
        about = from_json(words)
        is_first, self._has_begun = not self._has_begun, True
        # Older versions had no kind of their own for the first message of a task.
        if kind in ("task", "user_feedback") or (kind == "text" and is_first):
            pictures = filter(None, map(picture, strings(message, "images")))
            turn = f"{self._task} {message.get('ts')}"
            self._writer.prompt([*text_blocks(words), *pictures], turn=turn)
            self.texts.append(("user", words))
        elif kind == "api_req_started":
            self._said = ""
            self._writer.model(text(message, "modelInfo", "modelId"))
            self._writer.tokens(**token_counts(about))
            if text(about, "cancelReason") == "user_cancelled":
                self._writer.end_turn("cancelled")
        elif kind == "task_progress":
            self._writer.plan(checklist(words))
        elif kind == "reasoning":
            self._writer.think(words)
        elif kind == "text":
            self._say(words)
        elif kind in ("followup", "plan_mode_respond", "act_mode_respond"):
            self._say(first_text(about, ("question", "response")) or words)
            self._writer.finish_answer()
        elif kind in ("completion_result", "plan_completion_result"):
            self._say(words)
            self._writer.finish_answer()
        else:
            self._take_call(kind, message, words, about)

    def _take_call(self, kind: str, message: Object, words: str, about: object) -> None:
        """Write a message about a call."""
        if kind == "command":
            command = words.removesuffix(_ASKED_AT_THE_END)
            fields = call_fields(command, "execute", {"command": command})
            self._command = self._shown_call(fields | {"status": "in_progress"})
        elif kind == "user_edit_todos" or text(about, "tool") == "updateTodoList":
            self._writer.plan(objects(about, "todos"))
        elif kind == "tool":
            self._shown_call(_tool(about))
        elif kind == "codebase_search_result":
            found = objects(about, "content", "results")
            chunks = [
                content(f"{text(one, 'filePath')}\n{text(one, 'codeChunk')}") for one in found
            ]
            self._done_call("Search results", "search", content=chunks, rawOutput=about)
        elif kind == "image":
            self._writer.show(link(text(about, "imagePath")))
        elif kind == "condense_context":
            # It is also shown while in progress.
            if summary := text(message, "contextCondense", "summary"):
                self._count += 1
                self._writer.compaction(f"call-{self._count}", summary)
        elif kind == "use_mcp_server":
            name = text(about, "toolName") or text(about, "uri")
            arguments = from_json(text(about, "arguments"))
            title = f"{text(about, 'serverName')}: {name}"
            self._command = self._shown_call(call_fields(title, "other", arguments))
        elif kind in ("browser_action_launch", "browser_action"):
            title = f"Browse {text(about, 'action') or words}"
            self._done_call(title, "fetch")
        elif kind in _REPORTS:
            self._done_call(_REPORTS[kind], "think", content=contents(words))
        else:
            self._writer.missed.add(f"messages of kind {kind[:40]!r}", message)

    def _say(self, words: str) -> None:
        if words and words != self._said:
            self._said = words
            self._writer.say(words)
            self.texts.append(("agent", words))

    def _shown_call(self, fields: Object) -> str:
        self._count += 1
        call_id = f"call-{self._count}"
        self._writer.call(call_id, fields)
        return call_id

    def _done_call(self, title: str, kind: str, **more: object) -> None:
        self._shown_call({"title": title, "kind": kind, "status": "completed", **more})

    def end_command(self) -> None:
        """End the last command: no more output follows."""
        if self._command:
            output: Object = {"content": [content(self._printed)]} if self._printed else {}
            self._writer.update(self._command, {"status": "completed"} | output)
        self._command = self._printed = ""


def _tool(asked: object) -> Object:
    """Return the fields of a call of a tool of Cline's, which is finished when shown."""
    name, words = text(asked, "tool"), text(asked, "content")
    several = objects(asked, "batchFiles") or objects(asked, "batchDiffs")
    paths = [text(one, "path") for one in several or [obj(asked)]]
    fields = named_call_fields(name, obj(asked), *paths)
    verb, kind = tool_of(name)
    if several:
        fields["title"] = f"{verb} {', '.join(paths)}"
    if kind == "edit":
        fields["content"] = [
            change
            for file in several or [obj(asked)]
            for change in _changes(file, is_new=name == "newFileCreated")
        ]
    elif words and name != "readFile":  # readFile only has the whole path there
        fields["content"] = [content(words)]
    return fields | {"status": "completed"}


def _changes(file: Object, *, is_new: bool) -> Iterator[Object]:
    """Yield the changes of a file: written as a patch, as a new file, or between marks."""
    path = text(file, "path")
    for changed in objects(file, "diffs") or [file]:
        edited = text(changed, "diff") or text(changed, "content") or text(file, "content")
        found = unified_diffs(path, edited)
        if is_new and not found:
            found = [diff(path, None, edited)]
        edits = () if found else read_edits(edited.splitlines(keepends=True), _MARKS)
        found += (diff(path, "".join(old), "".join(new)) for _, old, new in edits)
        yield from found or contents(edited)


# -- the model's side of a task ---------------------------------------------------------------

_SAYING: Final = ("ask_followup_question", "attempt_completion", "plan_mode_respond")
"""Tools that only say something."""

_SAID: Final = ("result", "question", "response")
"""Arguments that are said."""

_SENT: Final = re.compile(
    r"<(?P<opens>task|feedback|user_message|answer)>|</(?P<closes>task|feedback|user_message|answer)>"
)
_NAMED_TOOLS: Final = "|".join(
    (*_SAYING, "apply_diff", "browser_action", "execute_command", "insert_content",
     "list_code_definition_names", "list_files", "new_task", "read_file", "replace_in_file",
     "search_files", "switch_mode", "use_mcp_tool", "write_to_file")
)  # fmt: skip
_CALLED: Final = re.compile(rf"<(?P<opens>{_NAMED_TOOLS})>|</(?P<closes>{_NAMED_TOOLS})>")
_ARGUMENT: Final = re.compile(r"<(?P<opens>[a-z_]+)>|</(?P<closes>[a-z_]+)>")
_THOUGHT: Final = re.compile(r"<(?P<opens>thinking)>|</(?P<closes>thinking)>\s*")


class TaskStep(NamedTuple):
    """A step of a task: the words of the `user` or the `agent`, or a call with its fields."""

    role: str
    words: str
    call: Object | None = None


def steps(messages: Iterable[Object]) -> Iterator[TaskStep]:
    """Yield the steps in the messages."""
    for message in messages:
        for block in parts_of(message.get("content")):
            words = text(block, "text")
            if text(message, "role") == "user":
                for begin, end in tag_pairs(words, _SENT, widest=True):
                    yield TaskStep("user", words[begin.end() : end.start()].strip())
            elif text(block, "type") == "tool_use":
                yield _call_step(text(block, "name"), obj(block, "input"))
            else:
                yield from _answer_steps(words)


def _answer_steps(words: str) -> Iterator[TaskStep]:
    """Yield what was said in a text of the model, and the calls in it."""
    words = without(words, _THOUGHT)
    place = 0
    for begin, end in tag_pairs(words, _CALLED):
        if said := words[place : begin.start()].strip():
            yield TaskStep("agent", said)
        yield _call_step(begin["opens"], dict(inner(words[begin.end() : end.start()], _ARGUMENT)))
        place = end.end()
    if said := words[place:].strip():
        yield TaskStep("agent", said)


def _call_step(name: str, arguments: Object) -> TaskStep:
    if name in _SAYING:
        return TaskStep("agent", first_text(arguments, _SAID).strip())
    return TaskStep("call", "", named_call_fields(name, arguments) | {"status": "completed"})


def steps_after(found: Sequence[TaskStep], told: Sequence[tuple[str, str]]) -> Sequence[TaskStep]:
    """Return the steps behind the last text that the screen told, a role and words each.

    All if the screen told none; none if no text of it is among the steps.
    """
    if not told:
        return found
    known = [(role, squeeze(words)) for role, words in told]
    while known:
        last, seen = known[-1], Counter(known)[known[-1]]
        for place, step in enumerate(found, 1):
            seen -= (step.role, squeeze(step.words)) == last
            if not seen:
                return found[place:]
        known.pop()
    return []


READER: Final = Reader("cline", "cline", find, read)


# -- Roo Code ----------------------------------------------------------------------------------

EXTENSIONS: Final = ("rooveterinaryinc.roo-cline", "rooveterinaryinc.roo-code-nightly")


def _find_roo(home: Home) -> Iterator[Source]:
    """Yield the tasks of its command line, and of the extension and its nightly version."""
    own = home.path / ".vscode-mock/global-storage"
    yield from task_sources(home, EXTENSIONS[0], own)
    yield from task_sources(home, EXTENSIONS[1])


ROO: Final = Reader("roo", "roo", _find_roo, read_task)
"""Its key is a name of ours: it is no ACP agent."""
