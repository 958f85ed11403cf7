"""VS Code's chat, which is GitHub Copilot's: files in its folder for each workspace.

`workspaceStorage/*/chatSessions/<id>.json` holds a conversation as one document of requests. Since
1.109 it is `<id>.jsonl`, a log: its first line is the document, every other one a change of it, by
path. A log that begins without the requests of the document beside it was emptied by the program.
Conversations in a window without a folder are in `globalStorage`.

A line that is lost may have added requests, which later changes count by index: as many as these
are short of are put in its place.

A request has its answer as parts: text, thoughts, calls as shown on screen. The model's arguments
and results are stored beside them, by ids with a suffix.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from errno import EFBIG
from functools import reduce
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from acphold.imports.content_blocks import (
    content,
    contents,
    link,
    resource,
    resource_link,
    text_blocks,
)
from acphold.imports.entry_writer import EntryWriter
from acphold.imports.readers import AgentConverter, Reader
from acphold.imports.record_tree import LAST, RecordTree, branches_of
from acphold.imports.records import DOCUMENT_BYTES, SMALL_BYTES, TOO_LONG, document, records
from acphold.imports.salvage import NOT_OBJECTS, RowForm
from acphold.imports.sources import Home, Source, beside, files_below, is_of_windows, source_of
from acphold.imports.tools import edit_diffs, tool_of
from acphold.imports.values import (
    Missed,
    Object,
    first_text,
    from_json,
    look_up,
    number,
    obj,
    objects,
    strings,
    text,
)

ROWS: Final = RowForm(frozenset({"k", "kind"}))

_PLACES: Final = (
    "workspaceStorage/*/chatSessions",
    "globalStorage/emptyWindowChatSessions",
    "globalStorage/transferredChatSessions",
)

_PASSED: Final = frozenset(
    {
        "autoModeResolution", "clearToPreviousToolInvocation", "codeblockUri", "command",
        "commandButton", "confirmation", "disabledClaudeHooks", "elicitation",
        "elicitationSerialized", "extensions", "externalToolInvocationUpdate", "hook",
        "mcpServersStarting", "move", "multiDiffData", "notebookEdit", "planReview",
        "prepareToolInvocation", "progressMessage", "progressTask", "progressTaskSerialized",
        "pullRequest", "questionCarousel", "systemNotification", "treeData", "undoStop",
        "workspaceEdit",
    }
)  # fmt: skip
"""Notices, buttons, button questions, and parts of an edit."""

_BESIDE_WORDS: Final = frozenset(
    {"agent", "command", "debugEvents", "directory", "generic", "implicit", "promptFile",
     "promptText", "sessionReference", "skill", "tool", "toolset", "workspace"}
)  # fmt: skip
"""Context VS Code adds to a prompt by itself, and entries without content."""

_SET, _PUSH, _DELETE = 1, 2, 3
_CANCELLED, _FAILED = 2, 3
_DENIED: Final = (0, 5)
"""A person's decision on a call: refused, or skipped."""

_DEEPEST: Final = 64
_LINKED: Final = re.compile(r"\[([^\]]*)\]\(([^)\s]*)\)")
_FENCES: Final = re.compile(r"[`\s]*")
_BEHIND_ID: Final = "__vscode"


# -- found ---------------------------------------------------------------------------------


def find(home: Home) -> Iterator[Source]:
    """Yield the conversations of each editor; if both forms exist, the log with the document."""
    for user in home.editors():
        for place in _PLACES:
            above, _, folder = place.partition("/")
            paths = dict.fromkeys(files_below(user / above, f"{folder}/*.json*"))
            for path in paths:
                log, older = path.with_suffix(".jsonl"), path.with_suffix(".json")
                if path == log:
                    yield from source_of(path.stem, [path, *({older} & paths.keys())])
                elif path == older and log not in paths:
                    yield from source_of(path.stem, [path])


# -- read ----------------------------------------------------------------------------------


def read(source: Source, writer: EntryWriter) -> Iterator[None]:
    """Read the conversation; raises OSError if it is too large."""
    whole = _whole(source, writer.missed)
    writer.facts.cwd = folder_of(source.path.parent, writer.missed)
    writer.clock(whole.get("creationDate"))
    named: dict[object, Object] = {}
    for place, request in enumerate(objects(whole, "requests")):
        named.setdefault(text(request, "requestId") or place, request)
    requests = [*named.values()]
    tree = _tree(requests)
    tree.choose(source.item, writer.missed)
    for request in requests:
        if not request:
            writer.missed.add(LOST, 0)
        elif tree.tells(text(request, "requestId")):
            _VscodeConverter(writer, request).tell()
            yield
    writer.title(text(whole, "customTitle") or text(whole, "computedTitle"))


def _whole(source: Source, missed: Missed) -> Object:
    path = source.path
    if source.size > DOCUMENT_BYTES:
        raise OSError(EFBIG, "it is too large to read", str(path))
    if path.suffix == ".jsonl":
        return read_log(path, [Path(file) for file in source.paths[1:]], missed)
    return document(path, missed)


def _tree(requests: list[Object]) -> RecordTree:
    """Return the tree of requests: those that are to be removed at the next one are taken back."""
    tree = RecordTree()
    for request in requests:
        undone = request.get("shouldBeRemovedOnSend") or request.get("isHidden")
        tree.add(
            text(request, "requestId"),
            LAST,
            typed=request.get("isSystemInitiated") is not True,
            taken_back=bool(undone) and not look_up(undone, "afterUndoStop"),
        )
    return tree


LOST: Final = "requests whose line is damaged"

_GAPS: Final = 3
"""Damaged lines that may have added requests."""

_MOST: Final = 100
"""Requests that one of them may have added."""


def read_log(path: Path, documents: list[Path], missed: Missed) -> Object:
    """Return the document that a log describes, with what it was emptied of."""
    older = [one for file in documents for one in objects(document(file, missed), "requests")]
    log = _Log(path, missed)
    requests = objects(log.whole, "requests")
    kept = log.begun_with | {text(request, "requestId") for request in requests}
    emptied = [one for one in older if text(one, "requestId") not in kept]
    return log.whole | {"requests": [*emptied, *requests]}


class _Log:
    """A log read to its end, with empty requests in the place of damaged lines."""

    def __init__(self, path: Path, missed: Missed) -> None:
        self.whole: Object = {}
        self.begun_with: set[str] = set()
        self._pushed: set[str] = set()
        self._gap: int | None = None
        """The number of requests before a damaged line that may have added some."""
        self._gaps = damaged = 0
        for entry in records(path, missed, ROWS):
            lines = missed.counts[NOT_OBJECTS] + missed.counts[TOO_LONG]
            if lines > damaged:
                requests = self.whole.get("requests")
                damaged, self._gap = lines, len(requests) if isinstance(requests, list) else 0
            kind = number(entry, "kind")
            if kind == 0:
                self.whole, self._gap = obj(entry, "v"), None  # it has all from before
                self._pushed = _ids(objects(self.whole, "requests"))
                self.begun_with |= self._pushed
            elif not (self._apply(kind, entry) or self._apply_behind_gap(kind, entry)):
                missed.kind("changes", str(kind), entry)

    def _apply_behind_gap(self, kind: int | None, entry: Object) -> bool:
        """Put empty requests into the gap, if a change is of one behind the last one, and apply it;
        False if it is of another."""
        keys, requests = entry.get("k"), self.whole.setdefault("requests", [])
        if not isinstance(keys, list) or len(keys) < 2 or keys[0] != "requests":
            return False
        if self._gap is None or self._gaps == _GAPS or not isinstance(requests, list):
            return False
        too_few = keys[1] + 1 - len(requests) if isinstance(keys[1], int) else 0
        if not 0 < too_few <= _MOST:
            return False
        requests[self._gap : self._gap] = ({} for _ in range(too_few))
        self._gap, self._gaps = None, self._gaps + 1
        return self._apply(kind, entry)

    def _apply(self, kind: int | None, entry: Object) -> bool:
        """Apply a change to the document; False if there is nothing to change at its path."""
        keys = entry.get("k")
        if not isinstance(keys, list) or not 0 < len(keys) <= _DEEPEST:
            return False
        if not all(isinstance(key, str | int) for key in keys):
            return False
        *above, last = keys
        place: Any = reduce(_inside, above, self.whole)
        if kind == _PUSH:
            if isinstance(place, dict):
                place.setdefault(last, [])
            return self._push(_inside(place, last), entry, are_requests=keys == ["requests"])
        if kind == _SET and (isinstance(place, dict) or _has(place, last)):
            place[last] = entry.get("v")
        elif kind == _DELETE and isinstance(place, dict):
            place.pop(last, None)
        else:
            return False
        return True

    def _push(self, into: object, entry: Object, *, are_requests: bool) -> bool:
        """Add values to a list, behind the first ones if their number is given; a request once, as
        a line that adds one may be there twice."""
        pushed = entry.get("v") or []
        if not isinstance(into, list) or not isinstance(pushed, list):
            return False
        gone: list[Any] = []
        if (end := number(entry, "i")) is not None and end >= 0:
            gone, into[end:] = into[end:], []
        if not are_requests:
            into += pushed
            return True
        self._pushed -= _ids(gone)
        for one in pushed:
            its = text(one, "requestId")
            if not its or its not in self._pushed:
                into.append(one)
                self._pushed.add(its)
        return True


def _ids(requests: list[Object]) -> set[str]:
    return {text(request, "requestId") for request in requests}


def _inside(place: Any, key: str | int) -> Any:
    if isinstance(place, dict):
        return place.get(key)
    return place[key] if _has(place, key) else None


def _has(place: object, key: str | int) -> bool:
    return isinstance(place, list) and isinstance(key, int) and 0 <= key < len(place)


class _VscodeConverter(AgentConverter):
    """Converts one request and its answer."""

    def __init__(self, writer: EntryWriter, request: Object) -> None:
        super().__init__(writer)
        self._request = request
        self._count = 0
        about = obj(request, "result", "metadata")
        turns = objects(about, "toolCallRounds")
        asked = (call for turn in turns for call in objects(turn, "toolCalls"))
        self._asked = {text(call, "id").partition(_BEHIND_ID)[0]: call for call in asked}
        answers = obj(about, "toolCallResults").items()
        self._answers = {its_id.partition(_BEHIND_ID)[0]: obj(it) for its_id, it in answers}
        self._changed: set[str] = set()

    def tell(self) -> None:
        request, writer = self._request, self._writer
        writer.clock(request.get("timestamp"))
        about = obj(request, "result", "metadata")
        if request.get("isSystemInitiated") is not True:
            said = request.get("message")
            blocks = text_blocks(text(said) or text(said, "text"))
            for attached in objects(request, "variableData", "variables"):
                kind, name = text(attached, "kind"), text(attached, "name")
                value = attached.get("value")
                path = path_of(value) or path_of(look_up(value, "uri"))
                if kind in _BESIDE_WORDS:
                    continue
                if path:
                    blocks.append(link(path))
                elif kind in ("paste", "string", "terminalCommand"):
                    words = text(attached, "code") or text(value)
                    blocks.append(resource(f"context:{name}", words))
                elif kind in ("", "file", "image", "symbol"):
                    blocks.append(resource_link(name, f"context:{name}"))
                else:
                    self._missed.kind("attachments", kind, attached)
            writer.prompt(blocks, turn=text(request, "requestId"))
        for part in objects(request, "response"):
            self._part(part)
        model = text(about, "resolvedModel") or text(request, "modelId").rpartition("/")[2]
        writer.model(model)
        made = number(about, "outputTokens") or number(request, "completionTokens")
        writer.tokens(inputTokens=number(about, "promptTokens"), outputTokens=made)
        writer.clock(look_up(request, "modelState", "completedAt"))
        state = number(request, "modelState", "value")
        wrong = obj(request, "result", "errorDetails") or obj(request, "responseErrorDetails")
        if state == _CANCELLED or request.get("isCanceled") is True:
            writer.end_turn("cancelled")
        elif wrong or state == _FAILED:
            writer.fail_turn(text(wrong, "message"))
        elif state is not None or request.get("result"):
            writer.finish_answer()

    # -- the answer ------------------------------------------------------------------------

    def _part(self, part: Object) -> None:
        kind = text(part, "kind")
        # Text after a call is another message. The first versions gave neither an id.
        its = first_text(self._request, ("responseId", "requestId"))
        said = f"{its}-{self._count}" if its else ""
        if kind in ("", "markdownContent", "markdownVuln"):
            words = text(part, "value") or _words(part.get("content"))
            # An edit is between two fences, which are not shown.
            if not (_FENCES.fullmatch(words) and "`" in words):
                self._writer.say(words, said)
        elif kind == "inlineReference":
            target = part.get("inlineReference")
            path = path_of(target) or path_of(look_up(target, "uri"))
            name = text(part, "name") or text(target, "name")
            self._writer.say(f"`{name or _last(path) or path or '?'}`", said)
        elif kind == "thinking":
            thought = text(part, "value") or "".join(strings(part, "value"))
            self._writer.think(thought, said)
        elif kind == "warning":
            self._writer.say(_words(part.get("content")), said)
        elif kind == "toolInvocationSerialized":
            self._call(part)
        elif kind in ("textEditGroup", "notebookEditGroup"):
            # An edit that had no call.
            path = path_of(part.get("uri"))
            if not path or path in self._changed:
                return
            pieces = part.get("edits")
            edits: list[Object] = []
            for group in pieces if isinstance(pieces, list) else []:
                edits += objects(group) if isinstance(group, list) else [obj(group)]
            written = [words for edit in edits if (words := text(edit, "text"))]
            fields: Object = {"title": f"Edit {path}", "kind": "edit", "status": "completed"}
            fields["locations"] = [{"path": path}]
            if written:
                fields["content"] = [content(words) for words in written]
            self._count += 1
            call_id = f"edit-{text(self._request, 'requestId')}-{self._count}"
            self._changed.add(path)
            self._writer.call(call_id, fields)
        elif kind not in _PASSED:
            self._missed.kind("parts", kind, part)

    def _call(self, part: Object) -> None:
        self._count += 1
        call_id = text(part, "toolCallId").partition(_BEHIND_ID)[0]
        name = text(part, "toolId").removeprefix("copilot_")
        about = obj(part, "toolSpecificData")
        details = part.get("resultDetails")
        arguments = from_json(text(self._asked.get(call_id), "arguments"))
        if not isinstance(arguments, dict) or not arguments:
            arguments = from_json(text(details, "input")) or obj(about, "rawInput")
        line = obj(about, "commandLine")
        command = first_text(line, ("toolEdited", "original"))
        command = command or text(about, "command") or text(arguments, "command")
        shown = _words(part.get("pastTenseMessage")) or _words(part.get("invocationMessage"))
        shown = shown or name
        if about.get("kind") == "terminal" or tool_of(name).kind == "execute":
            shown = command.strip() or shown
        fields: Object = {
            "title": _LINKED.sub(lambda found: found[1] or _last(found[2]), shown),
            "kind": tool_of(name).kind,
            "rawInput": arguments,
        }
        if path := text(arguments, "filePath") or text(arguments, "path"):
            fields["locations"] = [{"path": path}]
        caller = text(part, "subAgentInvocationId")
        with self._writer.within(caller if caller != call_id else ""):
            self._writer.call(call_id, fields)
            if about.get("kind") == "todoList":
                self._writer.plan(objects(about, "todoList"))
        decided = part.get("isConfirmed")
        refused = decided is False or number(decided, "type") in _DENIED
        exit_code = number(about, "terminalCommandState", "exitCode")
        is_wrong = look_up(details, "isError") is True or bool(exit_code)
        failed = refused or is_wrong or part.get("isComplete") is False
        produced = [] if failed else self._changes(name, arguments)
        produced = produced or contents(self._output(call_id, about, details))
        raw = None if exit_code is None else {"exitCode": exit_code}
        self._end_call(call_id, failed=failed, produced=produced, rawOutput=raw)

    def _changes(self, name: str, arguments: object) -> list[Object]:
        """Return the changes of an edit, as far as its arguments contain them."""
        if tool_of(name).kind != "edit":
            return []
        found = edit_diffs(text(arguments, "filePath"), arguments)
        self._changed.update(text(one, "path") for one in found)
        if not found and (patch := text(arguments, "input")):
            found = contents(patch)
            self._changed.update(re.findall(r"^\*\*\* \w+ File: (.+)$", patch, re.MULTILINE))
        return found

    def _output(self, call_id: str, about: Object, details: object) -> str:
        """Return the output of a call."""
        outputs = [text(one, "value") for one in objects(details, "output") if one.get("isText")]
        outputs = outputs or [text(about, "terminalCommandOutput", "text"), text(about, "result")]
        if found := "\n".join(filter(None, outputs)):
            return found
        parts = objects(self._answers.get(call_id), "content")
        return "\n".join(filter(None, (_result_text(part.get("value")) for part in parts)))


def _words(said: object) -> str:
    """Return a text, which may be Markdown inside an object."""
    return text(said, "value") or text(said)


def _result_text(value: object) -> str:
    """Return the text of a result for the model: a string, or a tree of them."""
    if isinstance(value, str):
        return value
    said: list[str] = []
    waiting = [obj(value, "node")]
    while waiting:
        node = waiting.pop()
        if words := text(node, "text"):
            said.append("\n" + words if node.get("lineBreakBefore") is True and said else words)
        waiting += reversed(objects(node, "children"))
    return "".join(said)


def _last(uri: str) -> str:
    """Return the last part of a path or URI, without the fragment after `#`."""
    return os.path.basename(unquote(uri.partition("#")[0]).rstrip("/"))


# -- folders and URIs of VS Code and its forks ---------------------------------------------


def path_of(uri: object) -> str:
    """Return the path of a URI; of Windows for one of its own; empty if it is no local file."""
    if isinstance(uri, dict):
        if external := text(uri, "external"):
            return path_of(external)
        is_file = text(uri, "scheme") in ("", "file")
        return (text(uri, "fsPath") or text(uri, "path")) if is_file else ""
    if not isinstance(uri, str):
        return ""
    try:
        parts = urlsplit(uri)
    except ValueError:
        return ""
    host, path = unquote(parts.netloc), unquote(parts.path)
    if parts.scheme == "vscode-remote" and host.startswith("wsl+"):
        host = f"wsl.localhost/{host.removeprefix('wsl+')}"
    elif parts.scheme != "file":
        return ""
    if host:
        return f"//{host}{path}".replace("/", "\\")
    return path[1:] if is_of_windows(path[1:]) else path


def folder_of(inside: Path, missed: Missed) -> str:
    """Return the folder that a `workspaceStorage/*` folder belongs to, by a path in it."""
    path = beside(inside, "workspace.json", missed)
    told = document(path, Missed(), SMALL_BYTES) if path.exists() else {}
    return path_of(text(told, "folder"))


READER: Final = Reader(
    "vscode",
    "Copilot",
    find,
    read,
    branches_of(lambda source: _tree(objects(_whole(source, Missed()), "requests"))),
)
"""The key of Copilot's command line: the same agent, so it continues what is handed over."""
