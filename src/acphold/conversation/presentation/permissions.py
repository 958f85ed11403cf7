"""The scene of a permission request, the same for every face: its blocks, and each answer's effect.

Agents say a command in the title of its call, in its content, and in several arguments. It is shown
once, and yet no argument is left out: one that repeats a text says which other one has it. Only the
file of a diff that is shown, and the same change as a unified diff, are not said again; nor are
folders outside of the session's, which each face names in its own words.

A path of the call's `locations` is shown unless something else has it. A text that a diff shows is
not said again: of a file as it is all of it, of another one what has all its lines in sight.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from acp_wire.schema import Diff
from acp_wire.schema.splice import UNREADABLE
from acphold.conversation.history.raw_update import items, members, string
from acphold.conversation.history.timeline import ToolCall
from acphold.conversation.presentation.blocks import (
    Block,
    argument_block,
    command_block,
    diff_block,
    path_blocks,
    text_block,
    title_block,
)
from acphold.conversation.presentation.diffs import diff_lines, is_shown, visible_lines
from acphold.conversation.presentation.present_diffs import PresentDiff
from acphold.conversation.presentation.scenes import says_more, without_fence
from acphold.conversation.presentation.visible_text import exact, on_one_line
from acphold.safety.budget import Budget

OFFERED: Final = {
    "allow_once": "allow once",
    "allow_always": "allow always",
    "reject_once": "reject",
    "reject_always": "reject always",
}
"""The effect of an answer, by its kind."""


WANTS: Final = {
    "execute": "wants to run",
    "edit": "wants to change files",
    "delete": "wants to delete",
    "move": "wants to move files",
    "read": "wants to read",
    "search": "wants to search",
    "fetch": "wants to fetch",
}
"""Words for a call that an agent asks about, by its kind."""

ACCEPTS_EDITS: Final = frozenset({"acceptedits", "autoaccept", "autoedit"})
"""Modes of agents in which they ask about commands, and no edit: an id or a name in small letters
without marks. Claude Code, Qwen Code and Gemini CLI have one."""

WRITTEN: Final = {"yes": "y", "ok": "y", "allow": "y", "no": "n", "reject": "n"}
"""Words that answer nothing and are not sent below a question, and the keys that were meant."""

Part = Literal["what", "where", ""]
"""The question about a call that an argument answers: what will happen, or where; "" for others."""

PARTS: Final[Mapping[str, Part]] = {
    **dict.fromkeys(("command", "cmd", "script"), "what"),
    **dict.fromkeys(
        ("cwd", "workdir", "path", "file_path", "filePath", "filepath", "directory"), "where"
    ),
}
"""The names by which agents call such arguments."""

CHANGES: Final = ("diff", "patch")
"""The names by which agents give a change as a unified diff."""

SIDES: Final = frozenset(
    {
        *("content", "contents", "file_text", "newText", "new_str", "new_string", "new"),
        *("oldText", "old_str", "old_string", "old"),
    }
)
"""The names by which agents give a side of a diff, which need not be named beside it."""

AS_SAID: Final = "as the agent says"
"""Said of a diff that could not be compared with its file."""

NO_CHANGE: Final = "The agent does not show the change."
"""Said where a call is to change a file, and has no diff and no arguments that could be one."""

ORDER: Final[Sequence[Part]] = ("what", "where", "")

NOTHING_PRESENT: Final[Mapping[int, PresentDiff]] = {}

STEPS: Final = 4_000_000
VALUE_STEPS: Final = 40
"""Steps to make a scene, a third of a second at most; and those for each line and each value."""

TOO_LONG: Final = "This is too long to show here, so it cannot be allowed here."
"""Said of a call whose scene would take more steps: whatever asks about it offers no yes."""


def is_too_long(tool: ToolCall, present: Mapping[int, PresentDiff] = NOTHING_PRESENT) -> bool:
    """Return True if the scene of a call would take too many steps."""
    return _steps(tool, present) > STEPS


def _steps(tool: ToolCall, present: Mapping[int, PresentDiff]) -> int:
    raws = tool.fields.values()
    texts = [text for diff in present.values() for text in (diff.old_text, diff.new_text)]
    marks = sum(raw.count(mark) for raw in raws for mark in (b"\\n", b"{", b","))
    lines = sum(text.count("\n") for text in texts)
    return sum(map(len, (*raws, *texts))) + VALUE_STEPS * (marks + lines)


class Argument(Struct, frozen=True, omit_defaults=True):
    """An argument of the call; without a name if it is the only one."""

    name: str
    text: str
    part: Part = ""


NAME_CHARACTERS: Final = 120
"""Longest name of an answer; of a longer one the beginning is shown."""

LONG_NAME: Final = 16
"""Most characters of an answer's name that stands beside another answer on a phone."""


class Offer(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """An answer that the agent offers: its effect in our words, and the agent's name for it.

    Both are finished; `name` is "" if it says no more than the effect.
    """

    option_id: str
    kind: str
    words: str
    name: str
    is_long: bool = False

    def __str__(self) -> str:
        return f"{self.words}: {self.name}" if self.name else self.words


class Permission(Struct, frozen=True):
    """The scene of a permission request: what the agent wants, in words; all that it would do; and
    the answers."""

    wants: str
    blocks: tuple[Block, ...]
    options: tuple[Offer, ...]


def offer(option_id: str, kind: str, name: str) -> Offer:
    """Return an answer from the agent's description of it."""
    words = OFFERED.get(kind, f"of the unknown kind {kind}")
    told = exact(on_one_line(name)) if says_more(kind, name) else ""
    told = f"{told[:NAME_CHARACTERS]}…" if len(told) > NAME_CHARACTERS else told
    return Offer(option_id, kind, exact(on_one_line(words)), told, len(told) > LONG_NAME)


def permission(
    call: Mapping[str, bytes],
    params: bytes,
    present: Mapping[int, PresentDiff] = NOTHING_PRESENT,
) -> Permission:
    """Return the scene of a request with these `params`, given its tool call's raw fields.

    `present` has the diffs of the call against the files as they are, by their places.
    """
    tool = ToolCall("", call)
    options = [members(option) for option in items(members(params).get("options", b""))]
    names = ("optionId", "kind", "name")
    offers = [offer(*(string(option.get(name)) or "" for name in names)) for option in options]
    if is_too_long(tool, present):
        noes = [it for it in offers if it.kind.startswith("reject")]
        return Permission(WANTS.get(tool.kind, "asks"), (*blocks_of_call(tool, present),), (*noes,))
    wants = f"wants to {OUTSIDE}" if folders_outside(tool) else WANTS.get(tool.kind, "asks")
    return Permission(wants, tuple(blocks_of_call(tool, present)), tuple(offers))


def blocks_of_call(
    tool: ToolCall, present: Mapping[int, PresentDiff] = NOTHING_PRESENT
) -> list[Block]:
    """Return all that is to be allowed: what would happen first, then where, then all else.

    Of a call that `is_too_long` there is only the beginning of its title, and that it is so.
    """
    budget = Budget(STEPS)
    if not budget.affords(_steps(tool, present)):
        return [title_block(tool.title[:NAME_CHARACTERS]), title_block(TOO_LONG)]
    title, given, places = without_repetition(tool, present)
    outside = folders_outside(tool)
    blocks = [block for folder in outside for block in path_blocks(folder)]
    commands = [each for each in given if each.part == "what"]
    for each in commands:
        is_alone = len(commands) == 1 and len(each.name) < SURE
        blocks.append(command_block(each.text, "" if is_alone else each.name))
    is_command = tool.kind == "execute" and not commands
    quoted = _QUOTED.fullmatch(title)
    command = quoted[1] if quoted else title
    named = [command_block(command) if is_command else title_block(title)] if title else []
    content = items(tool.fields.get("content", b""))
    produced = [
        block
        for place in places
        for block in _produced(content[place], present.get(place), tool.kind, budget)
    ]
    has_diff = any(block.kind == "diff" for block in produced)
    blocks += [*produced, *named] if has_diff else [*named, *produced]
    for each in given:
        if each.part == "where":
            blocks += path_blocks(each.text, each.name)
        elif each.part == "":
            blocks.append(argument_block(each.name, each.text))
    texts = [tool.title, *(each.text for each in given), *(diff.path for diff in tool.diffs)]
    told = {*texts, *outside, *(word.strip("`'\"") for text in texts for word in text.split())}
    paths = [
        string(members(it).get("path")) or "" for it in items(tool.fields.get("locations", b""))
    ]
    for path in dict.fromkeys(paths):
        if path not in told:
            blocks += path_blocks(path, "location")
    if tool.kind == "edit" and not has_diff and not any(it.part == "" for it in given):
        blocks.append(title_block(NO_CHANGE))
    return blocks or [title_block("A tool call")]


_QUOTED = re.compile(r"\s*`([^`]+)`\s*")
"""A command as Markdown has it."""


def _produced(
    item: bytes, present: PresentDiff | None, kind_of_call: str, budget: Budget
) -> list[Block]:
    """Return an item of a call's content."""
    parts = members(item)
    kind, text = string(parts.get("type")), _text_of(item)
    path, new = string(parts.get("path")), string(parts.get("newText"))
    if kind == "diff" and path is not None and new is not None:
        words, old = AS_SAID, string(parts.get("oldText"))
        if present is not None:
            old, new = present.old_text, present.new_text
            words = "" if old else "a new file"
            words = "The file has other text than the agent says" if present.differs else words
        further = path_blocks(path)[1:]
        return [diff_block(Diff(path, new, old_text=old), words, budget=budget), *further]
    if text is not None:
        bared = without_fence(text)
        return [argument_block("", bared) if kind_of_call == "execute" else text_block(bared)]
    return [argument_block(kind or "", item.decode(errors="replace"))]


def _text_of(item: bytes) -> str | None:
    """Return the text of an item of a call's content; None if it is anything else."""
    parts = members(item)
    block = members(parts.get("content", b""))
    is_text = string(parts.get("type")) == "content" and string(block.get("type")) == "text"
    return string(block.get("text")) if is_text else None


def without_repetition(
    tool: ToolCall, present: Mapping[int, PresentDiff] = NOTHING_PRESENT
) -> tuple[str, list[Argument], list[int]]:
    """Return the title, "" if an argument has its text; the arguments; and the places, in the
    call's content, of the items that say more than both."""
    given = arguments(tool, present)
    names = {each.name for each in given}
    whole = {text: name for text, name in whole_texts(tool).items() if name in names}
    told = {bare(text) for text in whole}
    told_above = {_file(tool), *folders_outside(tool)}
    title = "" if is_told(tool.title, whole) or tool.title in told_above else tool.title
    told.add(bare(tool.title))
    texts = map(_text_of, items(tool.fields.get("content", b"")))
    places = [
        place
        for place, text in enumerate(texts)
        if text is None or bare(without_fence(text)) not in told
    ]
    shown = [_once(each, tool, whole) for each in given]
    return title, sorted(shown, key=lambda each: ORDER.index(each.part)), places


OUTSIDE: Final = "work outside its folder"
"""Words for a request with folders outside of the session's."""


def folders_outside(tool: ToolCall) -> Sequence[str]:
    """Return the folders outside of the session's that a request is for, as opencode names them:
    its own question, besides the one for the call."""
    return _outside(tool)[0]


def _outside(tool: ToolCall) -> tuple[Sequence[str], Sequence[str]]:
    """Return the same, and the names of the arguments that say no more than that."""
    given = tool.input
    if tool.kind != "other" or not isinstance(given, dict):
        return (), ()
    folder, folders = given.get("parentDir"), given.get("directories")
    if isinstance(folder, str) and folder and folder == tool.title:
        return (folder,), ("parentDir",)
    if isinstance(folders, list) and folders and all(isinstance(it, str) and it for it in folders):
        is_all = given.get("patterns") == [f"{it}/*" for it in folders]
        return (folders, ("directories", "patterns")) if is_all else ((), ())
    return (), ()


def _file(tool: ToolCall) -> str | None:
    """Return the file of a call's diffs, which says where they are; None for none, or several."""
    paths = {diff.path for diff in tool.diffs}
    return paths.pop() if len(paths) == 1 else None


def is_told(title: str, whole: Collection[str]) -> bool:
    """Return True if one of these texts says what a title says, or the title is its beginning."""
    bared, told = bare(title), [bare(text) for text in whole]
    begun = _plain(bared.removesuffix("…").removesuffix("..."))
    is_cut = bared.endswith(("…", "...")) and len(begun) >= SURE
    return bared in told or (is_cut and any(_plain(text).startswith(begun) for text in told))


def in_a_line(title: str, call: Mapping[str, bytes]) -> str:
    """Return what is asked: the command as it will run, `exact`, where the title of the call with
    these raw fields is that, or the beginning of it; otherwise the title."""
    tool = ToolCall("", call)
    if is_too_long(tool):
        return title
    if folders := folders_outside(tool):
        return f"{OUTSIDE}: {', '.join(folders)}"
    whole = whole_texts(tool)
    return next((exact(text) for text in whole if title and is_told(title, [text])), title)


SURE: Final = 12
"""Characters of a title that was cut off, at least, by which a longer text is known."""


def _plain(text: str) -> str:
    return " ".join(text.split())


def bare(text: str) -> str:
    """Return a text without the spaces and backticks around it."""
    return text.strip().strip("`").strip()


def _input(tool: ToolCall) -> Mapping[str, Any]:
    """Return the arguments by name; what has none, under "". One that cannot be read is its JSON,
    and hides no other: a number may be out of range."""
    raw = (tool.raw_input or b"null").decode(errors="replace").encode()
    if named := members(raw):
        return {name: _value(item) for name, item in named.items()}
    value = _value(raw)
    return {} if value in (None, {}) else {"": value}


def _value(raw: bytes) -> Any:
    try:
        value = msgspec.json.decode(raw)
        _spell(value)  # which may fail where it is nested deeply
    except UNREADABLE:
        return raw.decode()
    return value


def whole_texts(tool: ToolCall) -> dict[str, str]:
    """Return the texts that an argument shows as they are, with its name."""
    found: dict[str, str] = {}
    # Others refer to what would run, which stands whole.
    given = sorted(_input(tool).items(), key=lambda it: PARTS.get(it[0]) != "what")
    for name, value in given:
        is_line = isinstance(value, list) and all(isinstance(word, str) for word in value)
        for text in value if is_line else (value,):
            if isinstance(text, str) and text.strip():
                found.setdefault(text, name)
    return found


def _once(shown: Argument, tool: ToolCall, whole: Mapping[str, str]) -> Argument:
    """Return an argument with a reference for each text of several words that another one shows."""

    def without(part: Any) -> Any:
        match part:
            case str() if " " in part and (other := whole.get(part, shown.name)) != shown.name:
                return f"(as in {other})"
            case list():
                return [without(each) for each in part]
            case dict():
                return {name: without(each) for name, each in part.items()}
        return part

    value = _input(tool).get(shown.name)
    if shown.part == "what":
        return shown
    try:
        changed = without(value)
        return shown if changed == value else replace(shown, text=_spell(changed))
    except RecursionError:
        return shown


def arguments(
    tool: ToolCall, present: Mapping[int, PresentDiff] = NOTHING_PRESENT
) -> list[Argument]:
    """Return all arguments of a call.

    A text that its diff shows as all old or all new lines is not repeated, nor the new text of a
    diff against the file as it is, which has all other lines; under a name not among `SIDES` it is
    named. The file of its diffs, a unified diff of the same changes, and `folders_outside` are left
    out.
    """
    found = [Argument(name, _spell(value)) for name, value in _input(tool).items()]
    in_diff: dict[str, str] = {}
    diffs, file = tool.diffs, _file(tool)
    _, outside = _outside(tool)
    given = {it.text.rstrip("\n") for it in found}
    for diff in diffs:
        # Comparing may take long; few arguments are a whole side of a diff.
        for what, sign, text in (("old", "-", diff.old_text), ("new", "+", diff.new_text)):
            if text and text.rstrip("\n") in given:
                compared = diff_lines(diff, whole=True)
                if [it[1:] for it in compared if it[0] in (sign, " ")] == visible_lines(text):
                    in_diff[text.rstrip("\n")] = f"(all of the diff's {what} lines)"
    for place, item in enumerate(items(tool.fields.get("content", b""))):
        known = present.get(place)
        for what in ("old", "new") if known is not None and not known.differs else ():
            if text := (string(members(item).get(f"{what}Text")) or "").rstrip("\n"):
                in_diff[text] = f"(all of the diff's {what} lines)"
    parts = {it.name: PARTS.get(it.name, "") for it in found}
    if tool.kind == "execute" and [*parts] == [""]:
        parts[""] = "what"  # there is nothing else that would run
    return [
        Argument(
            it.name,
            it.text if parts[it.name] == "what" else in_diff.get(it.text.rstrip("\n"), it.text),
            parts[it.name],
        )
        for it in found
        if not (it.text == file and PARTS.get(it.name) == "where")
        and not (it.name in SIDES and it.text.rstrip("\n") in in_diff)
        and it.name not in outside
        and not (it.name in CHANGES and diffs and is_shown(it.text, diffs))
    ]


def _spell(value: object) -> str:
    """Return a value as it would be typed: a command of several words as a line."""
    if isinstance(value, str):
        return value
    if isinstance(value, list) and all(isinstance(word, str) for word in value):
        return " ".join(value)
    return msgspec.json.encode(value).decode()
