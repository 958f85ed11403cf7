"""The content of a permission request, for every face: all arguments, and each answer's effect.

Agents say a command in the title of its call, in its content, and in several arguments. It is shown
once, and yet no argument is left out: one that repeats a text says which other one has it. Only the
file of a diff that is shown, and the same change as a unified diff, are not said again; nor are
folders outside of the session's, which each face names in its own words.

The page gets it as data in the inbox. Until that has come, it computes the same from the request
(`web/page/model/permission.js`); `tests/presentation/permissions.json` has cases that both pass.
Texts are unchanged: each face makes them fit to be shown in its own way.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from acp_conversation.history.raw_update import items, members, string
from acp_conversation.history.timeline import ToolCall
from acp_conversation.presentation.diffs import diff_lines, is_shown
from acp_conversation.presentation.scenes import says_more, without_fence
from acp_conversation.presentation.visible_text import exact, on_one_line, visible

OFFERED: Final = {
    "allow_once": "allow once",
    "allow_always": "allow always",
    "reject_once": "reject once",
    "reject_always": "reject always",
}
"""The effect of an answer, by its kind."""


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

ORDER: Final[Sequence[Part]] = ("what", "where", "")


class Argument(Struct, frozen=True, omit_defaults=True):
    """An argument of the call; without a name if it is the only one."""

    name: str
    text: str
    part: Part = ""


class Offer(Struct, frozen=True, rename="camel"):
    """An answer that the agent offers: its effect in our words, and the agent's name for it.

    That name may be anything.
    """

    option_id: str
    kind: str
    words: str
    name: str

    def __str__(self) -> str:
        words = on_one_line(self.words)
        return f"{words}: {on_one_line(self.name)}" if self.says_more else words

    @property
    def says_more(self) -> bool:
        """True if the agent's name for the answer says more than its effect."""
        return says_more(self.kind, self.name)


class Permission(Struct, frozen=True, omit_defaults=True):
    """The content of a permission request; see the module.

    `title` is "" if an argument has its text. `content` has the places, in the call's content, of
    the items that say more than title and arguments do. `outside` has the folders, outside of the
    session's, that the agent asks to work in.
    """

    title: str
    arguments: tuple[Argument, ...]
    options: tuple[Offer, ...]
    content: tuple[int, ...]
    outside: tuple[str, ...] = ()


def offer(option_id: str, kind: str, name: str) -> Offer:
    """Return an answer from the agent's description of it."""
    return Offer(option_id, kind, OFFERED.get(kind, f"of the unknown kind {kind}"), name)


def permission(call: Mapping[str, bytes], params: bytes) -> Permission:
    """Return the content of a request with these `params`, given its tool call's raw fields."""
    tool = ToolCall("", call)
    options = [members(option) for option in items(members(params).get("options", b""))]
    names = ("optionId", "kind", "name")
    offers = [offer(*(string(option.get(name)) or "" for name in names)) for option in options]
    title, given, content = without_repetition(tool)
    outside = tuple(folders_outside(tool))
    return Permission(title, tuple(given), tuple(offers), tuple(content), outside)


def without_repetition(tool: ToolCall) -> tuple[str, list[Argument], list[int]]:
    """Return title, arguments and places in the content of a call, as `Permission` has them."""
    given = arguments(tool)
    names = {each.name for each in given}
    whole = {text: name for text, name in whole_texts(tool).items() if name in names}
    told = {bare(text) for text in whole}
    told_above = {_file(tool), *folders_outside(tool)}
    title = "" if is_told(tool.title, whole) or tool.title in told_above else tool.title
    told.add(bare(tool.title))
    content = (members(item).get("content", b"") for item in items(tool.fields.get("content", b"")))
    texts = [string(members(block).get("text")) for block in content]
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
    """Return what is asked: the command as it will run, where the title of the call with these raw
    fields is that, or the beginning of it; otherwise the title."""
    tool = ToolCall("", call)
    if folders := folders_outside(tool):
        return f"{OUTSIDE}: {', '.join(folders)}"
    whole = whole_texts(tool)
    return next((text for text in whole if title and is_told(title, [text])), title)


SURE: Final = 12
"""Characters of a title that was cut off, at least, by which a longer text is known."""


def _plain(text: str) -> str:
    return " ".join(text.split())


def bare(text: str) -> str:
    """Return a text without the spaces and backticks around it."""
    return text.strip().strip("`").strip()


def _input(tool: ToolCall) -> Mapping[str, Any]:
    """Return the arguments by name; what has none, under ""."""
    value = tool.input
    return value if isinstance(value, dict) else {"": value}


def whole_texts(tool: ToolCall) -> dict[str, str]:
    """Return the texts that an argument shows as they are, with its name."""
    found: dict[str, str] = {}
    for name, value in _input(tool).items():
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
    try:
        changed = without(value)
        return shown if changed == value else replace(shown, text=_spell(changed))
    except RecursionError:
        return shown


def arguments(tool: ToolCall) -> list[Argument]:
    """Return all arguments of a call.

    A text that its diff shows as all old or all new lines is named but not repeated; nor is a
    single argument repeated that is the title, as a command is with many agents. The file of its
    diffs, a unified diff of the same changes, and `folders_outside` are left out.
    """
    raw = tool.raw_input or b""
    if raw in (b"", b"{}", b"null"):
        return []
    try:
        value = msgspec.json.decode(raw)
        if not isinstance(value, dict):
            return [Argument("", _spell(value))]
        found = [Argument(str(name), _spell(item)) for name, item in value.items()]
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return [Argument("", raw.decode(errors="replace"))]
    in_diff: dict[str, str] = {}
    diffs, file = tool.diffs, _file(tool)
    _, outside = _outside(tool)
    for diff in diffs:
        compared = diff_lines(diff, whole=True)
        for what, sign, text in (("old", "-", diff.old_text), ("new", "+", diff.new_text)):
            lines = [line[1:] for line in compared if line[0] in (sign, " ")]
            shown = (text or "").rstrip("\n")
            if "\n" in shown and lines == visible(text or "").splitlines():
                in_diff[shown] = f"(all of the diff's {what} lines)"
    if len(found) == 1 and found[0].text == tool.title.strip("`"):
        return []
    return [
        Argument(it.name, in_diff.get(it.text.rstrip("\n"), it.text), PARTS.get(it.name, ""))
        for it in found
        if not (it.text == file and PARTS.get(it.name) == "where")
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


def argument_lines(shown: Sequence[Argument]) -> list[str]:
    """Return the arguments as lines for a terminal, with continuation lines indented."""
    lines = []
    for each in shown:
        name = f"{exact(on_one_line(each.name))}: " if each.name else ""
        first, *rest = exact(each.text).splitlines() or [""]
        lines += [f"{name}{first}", *(f"  {line}" if name else line for line in rest)]
    return lines
