"""What the screen asks a person: a choice by key, or a line of text. Values, without a terminal.

A menu was opened by the person, and one key answers it. Every other question comes up by itself,
maybe while they type: it takes nothing away from the line of input. Its key, alone on that line,
picks an answer, which is then shown, and Enter gives it.

| stage | the line of input | Enter |
|---|---|---|
| `NEW`: the question was not seen yet | what is being typed, for something else | sends a prompt |
| `DRAFT`: the line was begun before | goes on | sends it; if it is one key, picks its answer |
| `READY`: the line was empty since | one key picks an answer | gives the answer that is picked |
| | anything else | sends a prompt |
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum

import msgspec
from msgspec import Struct
from rich.text import Text

from acphold.errors import DeclarationError
from acphold.history.timeline import ToolCall
from acphold.presentation.diffs import diff_lines
from acphold.presentation.scenes import offered
from acphold.presentation.visible_text import on_one_line, visible
from acphold.schema import (
    BooleanPropertySchema,
    Diff,
    ElicitationContentValue,
    IntegerPropertySchema,
    MultiSelectPropertySchema,
    NumberPropertySchema,
    PermissionOption,
    StringPropertySchema,
)
from acphold.schema.elicitation import (
    ElicitationPropertySchema,
    StringMultiSelectItems,
    TitledMultiSelectItems,
)
from acphold.screen.layout import Passage, passage

LETTERS = {"allow_once": "y", "allow_always": "a", "reject_once": "n", "reject_always": "r"}
"""What is typed for the first option of a kind; for each other one, its number."""

SEEN_SECONDS = 0.5
"""How long a question is on the screen before what is typed can be meant for it: nobody reads one
and reaches for a key in less."""


A_KEY = "a key, then Enter"
"""What answers a question."""


class Key(Struct, frozen=True):
    """What is typed to answer, a key or a number, what it means, and the answer."""

    key: str
    words: str
    value: str

    @property
    def name(self) -> str:
        """What stands on the key."""
        return "Esc" if self.key == "escape" else self.key


class Choice(Struct, frozen=True):
    """A question that one key answers; `keys` are those that count. See the module for menus."""

    title: str
    keys: tuple[Key, ...]
    is_menu: bool = False

    def key(self, pressed: str) -> Key | None:
        """The key of this name, in the other case where that is the only one; None for none."""
        names = {key.key: key for key in self.keys}
        return names.get(pressed) or names.get(pressed.swapcase())

    def answer(self, pressed: str) -> str | None:
        """What this key answers; None when it is none of them."""
        key = self.key(pressed)
        return None if key is None else key.value


class Stage(Enum):
    """How far a question has got with a person; see the module."""

    NEW = "new"
    DRAFT = "draft"
    READY = "ready"


class Pick:
    """The answer that is picked, while a choice is open that came up by itself.

    Where the screen `takes_prompts`, a line that is no answer is one.
    """

    def __init__(self, choice: Choice, *, takes_prompts: bool = True) -> None:
        self.choice = choice
        self.stage = Stage.NEW
        self._takes_prompts = takes_prompts
        self._text = ""
        self._pointed: int | None = None

    @property
    def may_point(self) -> bool:
        """Whether the arrows are for the answers: they are seen, and nothing is typed."""
        return self.stage is Stage.READY and not self._text and bool(self.choice.keys)

    def point(self, step: int) -> None:
        """Point at the next answer, or the one before; at first, at the first or the last."""
        count = len(self.choice.keys)
        begun = self._pointed if self._pointed is not None else -1 if step > 0 else count
        self._pointed = (begun + step) % count

    def seen(self, text: str) -> None:
        """It has been on the screen for long enough; `text` is the line of input."""
        self._text = text
        if self.stage is Stage.NEW:
            self.stage = Stage.DRAFT if text else Stage.READY

    def typed(self, text: str) -> None:
        """The line of input has changed."""
        self._text, self._pointed = text, None
        if self.stage is Stage.DRAFT and not text:
            self.stage = Stage.READY

    @property
    def key(self) -> Key | None:
        """The key that is picked."""
        if self._pointed is not None and self.may_point:
            return self.choice.keys[self._pointed]
        return self.choice.key(self._text) if self.stage is Stage.READY else None

    @property
    def hint(self) -> str:
        """What to do, for the person."""
        if self.stage is Stage.NEW:
            return ""
        if self.key is not None:
            return f"Enter: {self.key.words}"
        if self.stage is Stage.DRAFT and (key := self.choice.key(self._text)) is not None:
            return f"Enter picks: {key.words}"
        if self.stage is Stage.DRAFT:
            sent = "; Enter sends it as a prompt" if self._takes_prompts else ""
            return f"to answer, empty the line first (Ctrl-U){sent}"
        other = "; any other line is a prompt" if self._takes_prompts else ""
        return f"{A_KEY}, or the arrows{other}"

    def enter(self) -> bool:
        """Enter was pressed, with no answer picked; whether the line is a prompt."""
        if self.choice.key(self._text) is None:
            return True
        if self.stage is Stage.DRAFT:
            self.stage = Stage.READY  # what it picks is shown now; the next Enter gives it
        return False


class Field(Struct, frozen=True):
    """A question that a line of text answers; `hints` say what fits."""

    title: str
    hints: tuple[str, ...] = ()
    default: str = ""


# -- permission -----------------------------------------------------------------------------


def permission(tool: ToolCall, options: Sequence[PermissionOption]) -> Choice:
    """The choice among the options of a request, in their order; each says what it does."""
    left = dict(LETTERS)
    keys = []
    for number, option in enumerate(options, 1):
        typed = left.pop(option.kind, str(number))
        keys.append(Key(typed, offered(option), option.option_id))
    title = on_one_line(tool.title or tool.tool_call_id)
    return Choice(f"May it? {title}", tuple(keys))


def asked(tool: ToolCall) -> Passage:
    """All that is to be allowed: the whole command, the diff, and every argument.

    An argument of many lines that the diff shows, all of them, is named, and not told twice.
    """
    in_diff = {}
    for item in tool.produced:
        if isinstance(item, Diff):
            compared = diff_lines(item, whole=True)
            for what, sign, text in (("old", "-", item.old_text), ("new", "+", item.new_text)):
                lines = [line[1:] for line in compared if line[0] in (sign, " ")]
                if text and lines == visible(text).splitlines():
                    in_diff[text.rstrip("\n")] = f"(all of the diff's {what} lines)"
    told = arguments(tool.raw_input or b"", in_diff)
    # Many agents call a tool by its command, which is then not worth a second line.
    if len(told) == 1 and told[0].partition(": ")[2] == (tool.title or "").strip("`"):
        told = []
    shown = passage(tool, full=True)
    return Passage("asks", "acphold", [*shown.lines, *(Text(f"  {line}") for line in told)])


def arguments(raw: bytes, in_diff: Mapping[str, str]) -> list[str]:
    """A tool's input, one argument a line, a command as it would be typed; for a text of many
    lines that is one of `in_diff`, what that says of it."""
    if raw in (b"", b"{}", b"null"):
        return []
    try:
        value = msgspec.json.decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return visible(raw.decode(errors="replace")).splitlines()
    if not isinstance(value, dict):
        return visible(_spelled(value)).splitlines()
    lines = []
    for name, item in value.items():
        text = _spelled(item)
        bare = text.rstrip("\n")
        shown = in_diff.get(bare, text) if "\n" in bare else text
        first, *rest = visible(shown).splitlines() or [""]
        lines += [f"{on_one_line(str(name))}: {first}", *(f"  {line}" for line in rest)]
    return lines


def _spelled(value: object) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, list) and all(isinstance(word, str) for word in value):
        return " ".join(value)
    return msgspec.json.encode(value).decode()


# -- forms ----------------------------------------------------------------------------------


def field(name: str, form: ElicitationPropertySchema, *, required: bool) -> Field:
    """The question for one field of a form."""
    title = getattr(form, "title", None) or name
    hints = [on_one_line(getattr(form, "description", None) or "")]
    hints += [
        f"{number}: {on_one_line(words)}" for number, (_, words) in enumerate(choices(form), 1)
    ]
    hints.append(_expected(form))
    default = _default(form)
    if not required:
        hints.append("may be left empty" if not default else "")
    return Field(on_one_line(title), tuple(hint for hint in hints if hint), default)


def choices(form: ElicitationPropertySchema) -> list[tuple[str, str]]:
    """The values that a field may have, and the words for each; none where it is free."""
    match form:
        case StringPropertySchema(one_of=tuple() as options):
            return [(option.const, option.title) for option in options]
        case StringPropertySchema(enum=tuple() as values):
            return [(value, value) for value in values]
        case MultiSelectPropertySchema(items=StringMultiSelectItems(enum=values)):
            return [(value, value) for value in values]
        case MultiSelectPropertySchema(items=TitledMultiSelectItems(any_of=options)):
            return [(option.const, option.title) for option in options]
    return []


def _expected(form: ElicitationPropertySchema) -> str:
    match form:
        case BooleanPropertySchema():
            return "y or n"
        case IntegerPropertySchema():
            return f"a whole number{_bounds(form)}"
        case NumberPropertySchema():
            return f"a number{_bounds(form)}"
        case MultiSelectPropertySchema():
            return "numbers with spaces between them"
        case StringPropertySchema(format=str() as known):
            return known
    return ""


def _bounds(form: IntegerPropertySchema | NumberPropertySchema) -> str:
    least = "" if form.minimum is None else f", {form.minimum} at least"
    return least + ("" if form.maximum is None else f", {form.maximum} at most")


def _default(form: ElicitationPropertySchema) -> str:
    value = getattr(form, "default", None)
    if value is None:
        return ""
    if isinstance(value, bool):
        return "y" if value else "n"
    if isinstance(value, tuple):
        numbers = {known: str(number) for number, (known, _) in enumerate(choices(form), 1)}
        return " ".join(numbers.get(item, item) for item in map(str, value))
    return str(value)


def value_of(
    text: str, form: ElicitationPropertySchema, *, required: bool
) -> ElicitationContentValue | None:
    """What was typed into a field; None for nothing. DeclarationError says what does not fit."""
    text = text.strip()
    if not text:
        if required and not (isinstance(form, StringPropertySchema) and form.min_length == 0):
            raise DeclarationError("this has to be filled in")
        return "" if required else None
    match form:
        case BooleanPropertySchema():
            return _truth(text)
        case IntegerPropertySchema():
            return int(_number(text, form, whole=True))
        case NumberPropertySchema():
            return _number(text, form, whole=False)
        case MultiSelectPropertySchema():
            return _several(text, form)
    return _text(text, form)


def _truth(text: str) -> bool:
    if text.lower() not in ("y", "yes", "true", "n", "no", "false"):
        raise DeclarationError("answer y or n")
    return text.lower() in ("y", "yes", "true")


def _number(text: str, form: IntegerPropertySchema | NumberPropertySchema, *, whole: bool) -> float:
    try:
        number = int(text) if whole else float(text)
    except ValueError:
        raise DeclarationError(f"this has to be {_expected(form)}") from None
    low = form.minimum is not None and number < form.minimum
    if low or (form.maximum is not None and number > form.maximum):
        raise DeclarationError(f"this has to be {_expected(form)}")
    return number


def _several(text: str, form: MultiSelectPropertySchema) -> tuple[str, ...]:
    found = tuple(_choice(word, form) for word in text.replace(",", " ").split())
    if form.min_items is not None and len(found) < form.min_items:
        raise DeclarationError(f"{form.min_items} at least")
    if form.max_items is not None and len(found) > form.max_items:
        raise DeclarationError(f"{form.max_items} at most")
    return found


def _text(text: str, form: ElicitationPropertySchema) -> str:
    if choices(form):
        return _choice(text, form)
    if isinstance(form, StringPropertySchema):
        if len(text) < (form.min_length or 0):
            raise DeclarationError(f"{form.min_length} characters at least")
        if form.max_length is not None and len(text) > form.max_length:
            raise DeclarationError(f"{form.max_length} characters at most")
    return text


def _choice(text: str, form: ElicitationPropertySchema) -> str:
    """One of the values: by its number, else as it is."""
    known = choices(form)
    values = [value for value, _ in known]
    if text in values:
        return text
    if text.isascii() and text.isdecimal() and 0 < int(text) <= len(known):
        return values[int(text) - 1]
    raise DeclarationError(f"choose a number from 1 to {len(known)}")
