"""Questions to a person: a choice by key, or a line of text, and the text of a permission request.

The person opens a menu, and one key answers it. Every other question comes up by itself, maybe
while they type, so it must not take keys away from the line of input. Its key, alone on that line,
picks an answer, which is then shown; Enter confirms it.

| stage | the line of input | Enter |
|---|---|---|
| `NEW`: not seen yet | text typed for something else | sends a prompt |
| `DRAFT`: the line was not empty | continues | sends it; if it is one key, picks its answer |
| `READY`: the line has been empty since | one key picks an answer | confirms the picked answer |
| | anything else | sends a prompt, and rejects a request for permission |
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from enum import Enum
from typing import TYPE_CHECKING

from msgspec import Struct
from rich.text import Text

from acp_wire import schema
from acp_wire.schema import (
    ElicitationPropertySchema,
)
from acphold.conversation.history.timeline import ToolCall
from acphold.conversation.presentation.permissions import (
    NAME_CHARACTERS,
    OUTSIDE,
    WRITTEN,
    blocks_of_call,
    folders_outside,
    is_too_long,
    offer,
    without_repetition,
)
from acphold.conversation.presentation.present_diffs import PresentDiff
from acphold.conversation.presentation.visible_text import on_one_line
from acphold.errors import DeclarationError
from acphold.faces.screen.layout import Passage, block_lines, call_head
from acphold.faces.screen.typed import TypedPrompt, interpret
from acphold.safety.standing.decision import allowance

if TYPE_CHECKING:
    from acphold.live.reading.rule_offers import RuleOffer

LETTERS = {"allow_once": "y", "allow_always": "a", "reject_once": "n", "reject_always": "r"}
"""Keys for the first option of each kind; the others have a number."""


MANY_KEYS = 6
"""More keys than this are not all named in a line."""


class Key(Struct, frozen=True):
    """A key or a number to type, its meaning, and the answer it gives."""

    key: str
    words: str
    value: str

    @property
    def name(self) -> str:
        """The name on the key."""
        return "Esc" if self.key == "escape" else self.key


class KeyChoice(Struct, frozen=True):
    """A question answered by one of `keys`. See the module for menus.

    If there is a `short` title, the question is shown with it: the rest is shown above. One that
    `passes` is only an offer: it disappears with the next line, or question. `instead` is the
    answer that a prompt gives; without one, the prompt waits behind the question.
    """

    title: str
    keys: tuple[Key, ...]
    is_menu: bool = False
    short: str = ""
    passes: bool = False
    instead: str = ""

    def how(self, otherwise: str = "") -> str:
        """Return the words that say how it is answered, and what else can be done."""
        names = [key.name for key in self.keys]
        if len(names) > MANY_KEYS:
            names[2:-1] = ["…"]
        *several, last = names or [""]
        either = f"{', '.join(several)} or {last}" if several else last
        return "; ".join(filter(None, (f"{either}, then Enter" if either else "", otherwise)))

    def how_beside_prompts(self) -> str:
        """Return the words for a screen on which another line is a prompt."""
        if self.instead:
            return self.how("or write to the agent (rejects it)")
        return self.how("or write to the agent" if self.passes else "or write the next prompt")

    def meant(self, text: str) -> Key | None:
        """Return the key that was probably meant by a word, which is no answer; None for several
        lines, which were pasted."""
        word, *others = {*text.lower().split()} or {""}
        return None if others or "\n" in text else self.key(WRITTEN.get(word, word))

    def key(self, pressed: str) -> Key | None:
        """Return the key of this name, in the other case if only that exists, or None."""
        names = {key.key: key for key in self.keys}
        return names.get(pressed) or names.get(pressed.swapcase())

    def answer(self, pressed: str) -> str | None:
        """Return the answer for this key; None if it is none of them."""
        key = self.key(pressed)
        return None if key is None else key.value


class PanelStage(Enum):
    """The stage of a question; see the module."""

    NEW = "new"
    DRAFT = "draft"
    READY = "ready"


class Pick:
    """The picked answer, while a choice that came up by itself is open.

    If the screen `takes_prompts`, a line that is no answer is a prompt.
    """

    def __init__(self, choice: KeyChoice, *, takes_prompts: bool = True) -> None:
        self.choice = choice
        self.stage = PanelStage.NEW
        self._takes_prompts = takes_prompts
        self._text = ""
        self._pointed: int | None = None

    @property
    def may_point(self) -> bool:
        """True if the arrows move between answers: they are seen, and nothing is typed."""
        return self.stage is PanelStage.READY and not self._text and bool(self.choice.keys)

    def point(self, step: int) -> None:
        """Move to the next or previous answer; the first time, to the first or the last."""
        count = len(self.choice.keys)
        begun = self._pointed if self._pointed is not None else -1 if step > 0 else count
        self._pointed = (begun + step) % count

    def on_seen(self, text: str) -> None:
        """Note that the question was on screen long enough; `text` is the line of input."""
        self._text = text
        if self.stage is PanelStage.NEW:
            self.stage = PanelStage.DRAFT if text else PanelStage.READY

    def on_input(self, text: str) -> None:
        """Note a changed line of input."""
        self._text, self._pointed = text, None
        if self.stage is PanelStage.DRAFT and not text:
            self.stage = PanelStage.READY

    @property
    def key(self) -> Key | None:
        """The picked key."""
        if self._pointed is not None and self.may_point:
            return self.choice.keys[self._pointed]
        return self.choice.key(self._text) if self.stage is PanelStage.READY else None

    @property
    def hint(self) -> str:
        """The hint for the person."""
        if self.stage is PanelStage.NEW:
            return ""
        if self.key is not None:
            return f"Enter: {self.key.words}"
        if self.stage is PanelStage.DRAFT and (key := self.choice.key(self._text)) is not None:
            return f"Enter picks: {key.words}"
        if self.choice.passes and not self._takes_prompts:
            return self.choice.how("anything else continues")
        if self.stage is PanelStage.DRAFT and not self.choice.passes:
            sent = "; Enter sends it as a prompt" if self._takes_prompts else ""
            return f"to answer, empty the line first (Ctrl-U){sent}"
        if not self._takes_prompts:
            return self.choice.how()
        if (key := self.choice.meant(self._text)) is not None:
            return f"{key.name} alone is the answer"
        if self.instead and isinstance(interpret(self._text), TypedPrompt) and self._text.strip():
            return "Enter rejects, and says this to the agent"
        return self.choice.how_beside_prompts()

    @property
    def instead(self) -> str:
        """The answer that the line gives if it is a prompt; "" if it is left open."""
        return self.choice.instead if self.stage is PanelStage.READY else ""

    def enter(self) -> bool:
        """Handle Enter with no answer picked; return True if the line is a prompt."""
        if self.choice.key(self._text) is None:
            return self.stage is not PanelStage.READY or self.choice.meant(self._text) is None
        if self.stage is PanelStage.DRAFT:
            self.stage = PanelStage.READY  # its pick is shown now; the next Enter confirms it
        return False


class Field(Struct, frozen=True):
    """A question answered by a line of text; `hints` say what fits.

    If it `is_yes_no`, y and n take the place of what is on the line.
    """

    title: str
    hints: tuple[str, ...] = ()
    default: str = ""
    is_yes_no: bool = False


class AskingFace:
    """A face that shows one question at a time: a choice, or a field of a form."""

    def __init__(self) -> None:
        self.choice: KeyChoice | None = None
        self.field: Field | None = None
        self._alone = asyncio.Lock()
        self._answered: asyncio.Future[str | None] | None = None

    @property
    def asks(self) -> bool:
        """True while a question of the agent is shown, which neither menus nor offers are."""
        choice = self.choice
        is_asked = choice is not None and not (choice.passes or choice.is_menu)
        return is_asked or self.field is not None

    def give(self, answer: str | None) -> None:
        """Take the person's answer; None if they left the question."""
        if self._answered is not None and not self._answered.done():
            self._answered.set_result(answer)

    @asynccontextmanager
    async def _question(self, asked: KeyChoice | Field) -> AsyncIterator[Awaitable[str | None]]:
        """Yield the answer to this question, once no other one is shown; it dismisses an offer."""
        if self.choice is not None and self.choice.passes:
            self.give(None)
        async with self._alone:
            if isinstance(asked, Field):
                self.field = asked
            else:
                self.choice = asked
            self._answered = asyncio.get_running_loop().create_future()
            try:
                yield self._answered
            finally:
                self.choice = self.field = self._answered = None


# -- standing answers -----------------------------------------------------------------------


def standing(offers: Sequence[RuleOffer]) -> KeyChoice:
    """Return the offer to make a yes standing, each rule in a sentence; the answers are the place
    of the offer, and `*` for every agent."""
    keys: list[Key] = []
    for place, (rule, typed) in enumerate(zip(offers, ("s", "w"), strict=False)):
        words = f"{allowance(rule.agent, rule.words)} for 30 days: {rule.meaning}"
        keys.append(Key(typed, on_one_line(words), str(place)))
        if place == 0:
            keys.append(Key("e", "the same, whichever agent asks", "0*"))
    return KeyChoice("Allow it from now on?", tuple(keys), passes=True)


# -- permission -----------------------------------------------------------------------------


BY_MODE = "acphold/mode"
"""The answer by which the agent accepts edits from now on."""


def permission(
    tool: ToolCall,
    options: Sequence[schema.PermissionOption],
    present: Mapping[int, PresentDiff] | None = None,
    mode: str = "",
) -> KeyChoice:
    """Return the choice among a request's options, in their order, each with its effect; without a
    yes to a call that is too long to show. With an edit that can be allowed once stands the agent's
    `mode` of this name, which accepts edits."""
    is_shown = not is_too_long(tool, present or {})
    options = [it for it in options if is_shown or it.kind.startswith("reject")]
    left = dict(LETTERS)
    keys = []
    for number, option in enumerate(options, 1):
        typed = left.pop(option.kind, str(number))
        words = str(offer(option.option_id, option.kind, option.name))
        keys.append(Key(typed, words, option.option_id))
    if mode and tool.kind == "edit" and any(it.kind == "allow_once" for it in options):
        words = f"allow once, and let the agent accept edits from now on, in its mode {mode}"
        keys.append(Key("e", on_one_line(words), BY_MODE))
    title = _outside(tool) or tool.title if is_shown else tool.title[:NAME_CHARACTERS]
    title = on_one_line(title or tool.tool_call_id)
    noes = [option for option in options if option.kind.startswith("reject")]
    no = next(
        (option for option in noes if option.kind == "reject_once"), noes[0] if noes else None
    )
    return KeyChoice(
        f"Allow this? {title}",
        tuple(keys),
        short=in_short(tool) if is_shown else "",
        instead=no.option_id if no else "",
    )


def _outside(tool: ToolCall) -> str:
    """Return the question for folders outside of the session's; "" for other questions."""
    folders = folders_outside(tool)
    return f"{OUTSIDE}: {', '.join(folders)}" if folders else ""


def call_details(tool: ToolCall, present: Mapping[int, PresentDiff] | None = None) -> Passage:
    """Return all that is to be allowed; `present` as in `presentation.permissions`."""
    blocks = blocks_of_call(tool, present or {})
    # Of the texts the agent's title alone is no prose.
    titles = (it for it in blocks if it.kind == "text" and not it.is_prose)
    named = next((it for it in titles if _fits_a_line(it.whole)), None)
    title = named.whole if named else "" if tool.title.strip() else on_one_line(tool.tool_call_id)
    if folders_outside(tool):
        title, named = OUTSIDE, None
    below = block_lines([it for it in blocks if it is not named])
    return Passage(
        "asks",
        "acphold",
        [call_head(tool, title), *(Text("  ").append_text(line) for line in below)],
    )


def in_short(tool: ToolCall) -> str:
    """Return the question if the title is a command, which stands above it; "" otherwise."""
    title, given, _ = without_repetition(tool)
    if folders_outside(tool):
        return "Allow this?"
    is_run = tool.kind == "execute"
    is_command = is_run and not any(each.part == "what" for each in given)
    if tool.title and (not title or is_command or not _fits_a_line(title)):
        return "Allow this command?" if is_run else "Allow this?"
    return ""


def _fits_a_line(title: str) -> bool:
    """Return True if a title is the same on one line; a line end may end a comment."""
    return " ".join(title.split()) == title.strip()


# -- forms ----------------------------------------------------------------------------------


def field(name: str, form: ElicitationPropertySchema, *, required: bool) -> Field:
    """Return the question for one field of a form."""
    title = getattr(form, "title", None) or name
    hints = [on_one_line(getattr(form, "description", None) or "")]
    hints += [
        f"{number}: {on_one_line(words)}" for number, (_, words) in enumerate(choices(form), 1)
    ]
    hints.append(_input_hint(form))
    value = getattr(form, "default", None)
    if value is None:
        default = ""
    elif isinstance(value, bool):
        default = "y" if value else "n"
    elif isinstance(value, tuple):
        numbers = {known: str(number) for number, (known, _) in enumerate(choices(form), 1)}
        default = " ".join(numbers.get(item, item) for item in map(str, value))
    else:
        default = str(value)
    if not required:
        hints.append("optional" if not default else "")
    is_yes_no = isinstance(form, schema.BooleanPropertySchema)
    return Field(on_one_line(title), tuple(hint for hint in hints if hint), default, is_yes_no)


def choices(form: ElicitationPropertySchema) -> list[tuple[str, str]]:
    """Return the allowed values of a field and their labels; empty if it is free."""
    if isinstance(form, schema.StringPropertySchema | schema.MultiSelectPropertySchema):
        return form.choices
    return []


def _input_hint(form: ElicitationPropertySchema) -> str:
    match form:
        case schema.BooleanPropertySchema():
            return "y or n, then Enter"
        case schema.IntegerPropertySchema():
            return f"a whole number{_bounds(form)}"
        case schema.NumberPropertySchema():
            return f"a number{_bounds(form)}"
        case schema.MultiSelectPropertySchema():
            return "numbers separated by spaces"
        case schema.StringPropertySchema(format=str() as known):
            return known
    return ""


def _bounds(form: schema.IntegerPropertySchema | schema.NumberPropertySchema) -> str:
    least = "" if form.minimum is None else f", at least {form.minimum}"
    return least + ("" if form.maximum is None else f", at most {form.maximum}")


def value_of(
    text: str, form: ElicitationPropertySchema, *, required: bool
) -> schema.ElicitationContentValue | None:
    """Return the value typed into a field; None for nothing.

    Raises DeclarationError, which says what does not fit.
    """
    text = text.strip()
    if not text:
        if required and not (
            isinstance(form, schema.StringPropertySchema) and form.min_length == 0
        ):
            raise DeclarationError("this is required")
        return "" if required else None
    match form:
        case schema.BooleanPropertySchema():
            if text.lower() not in ("y", "yes", "true", "n", "no", "false"):
                raise DeclarationError("answer y or n")
            return text.lower() in ("y", "yes", "true")
        case schema.IntegerPropertySchema() | schema.NumberPropertySchema():
            is_whole = isinstance(form, schema.IntegerPropertySchema)
            with suppress(ValueError):
                number = int(text) if is_whole else float(text)
                low = form.minimum is not None and number < form.minimum
                if not low and (form.maximum is None or number <= form.maximum):
                    return number
            raise DeclarationError(f"this must be {_input_hint(form)}")
        case schema.MultiSelectPropertySchema():
            found = tuple(_choice(word, form) for word in text.replace(",", " ").split())
            if form.min_items is not None and len(found) < form.min_items:
                raise DeclarationError(f"choose at least {form.min_items}")
            if form.max_items is not None and len(found) > form.max_items:
                raise DeclarationError(f"choose at most {form.max_items}")
            return found
    return _text(text, form)


def _text(text: str, form: ElicitationPropertySchema) -> str:
    if choices(form):
        return _choice(text, form)
    if isinstance(form, schema.StringPropertySchema):
        if len(text) < (form.min_length or 0):
            raise DeclarationError(f"at least {form.min_length} characters")
        if form.max_length is not None and len(text) > form.max_length:
            raise DeclarationError(f"at most {form.max_length} characters")
    return text


def _choice(text: str, form: ElicitationPropertySchema) -> str:
    """Return one of the values, given as itself or by its number."""
    known = choices(form)
    values = [value for value, _ in known]
    if text in values:
        return text
    if text.isascii() and text.isdecimal() and 0 < int(text) <= len(known):
        return values[int(text) - 1]
    raise DeclarationError(f"choose a number from 1 to {len(known)}")
