"""The keys of the screen.

| key | |
|---|---|
| Enter | sends the prompt; after a backslash, or with Alt, begins a new line |
| a key of a question, then Enter | answers the question; see `screen.panels` |
| Ctrl-C | cancels the turn, holds the queue; or empties the input; twice on an empty one, leaves |
| Ctrl-D | leaves, on an empty input |
| Ctrl-Z | goes to the background, as in a shell; `fg` brings it back |
| ? | on an empty line, shows the commands and keys |
| Tab | completes a command |
| Ctrl-X Ctrl-E | edits the prompt in `$EDITOR` |
| Ctrl-V | inserts a reference to the clipboard's picture |
| Ctrl-R | searches earlier prompts |
| y, n | in a field of yes or no, take the place of what is on its line |
| Up, Down | on an empty line, move between answers to a question |
| Up | on an empty line, takes the last queued prompt back; otherwise, the prompt before |
| Ctrl-O, F4 | open the tool calls, or the agent's stderr, in the pager |
| Ctrl-T | shows thoughts whole, or folds them again |
| F2, Shift-Tab | the next mode |
| F3 | a menu of the session's options |
| Esc | leaves a menu or a form |
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from prompt_toolkit.buffer import Buffer
from prompt_toolkit.completion import CompleteEvent, get_common_complete_suffix
from prompt_toolkit.document import Document
from prompt_toolkit.filters import Always, Condition, is_searching
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.keys import Keys

from acphold.conversation.history.prompt_queue import NO_QUEUE, PromptQueue
from acphold.faces.screen.flow import Flow
from acphold.faces.screen.panels import AskingFace, Pick
from acphold.faces.screen.typed import continue_line

if TYPE_CHECKING:
    from acphold.faces.screen.chat_commands import ChatCommands


class Person(Protocol):
    """The actions behind the keys."""

    def submit(self, text: str) -> bool:
        """Carry out a line; return True if it is a prompt, which is sent."""

    @property
    def in_turn(self) -> bool:
        """True while a turn runs."""

    def interrupt(self) -> None:
        """Handle Ctrl-C on an empty input."""

    def leave(self) -> None:
        """Handle Ctrl-D."""

    def on_input(self) -> None:
        """Note that the line of input has changed."""

    @property
    def heading(self) -> str:
        """The terminal's title; "" for none."""

    def status(self) -> Sequence[str]:
        """Return the facts for the status line, the most important first."""


class AskingScreen(AskingFace):
    """The screen behind the keys: an input, and at most one question."""

    input: Buffer

    def __init__(
        self, flow: Flow, person: Person, chat: ChatCommands | None, *, reads_only: bool
    ) -> None:
        super().__init__()
        self.flow = flow
        self.person = person
        self.chat = chat
        """None if no prompts are taken here."""
        self.reads_only = reads_only
        self.answer = Buffer(multiline=False)
        """The line typed into a field of a form."""
        self.wrong = ""
        """The fault of the last line typed into a field."""
        self.queue: PromptQueue = NO_QUEUE
        """The queued prompts."""
        self.pick: Pick | None = None
        """The picked answer, while a question that came up by itself is open."""
        self.is_lent = False
        """True while another program uses the terminal."""

    @property
    def has_menu(self) -> bool:
        """True while a menu is open."""
        return self.choice is not None and self.choice.is_menu

    @property
    def takes_input(self) -> bool:
        """True if typed text goes into the line of input."""
        return not (self.reads_only or self.has_menu or self.field is not None)

    async def edit(self) -> None:
        """Edit the typed text in the person's editor."""

    def refresh(self) -> None:
        """Redraw, because something has changed."""


def key_bindings(screen: AskingScreen) -> KeyBindings:
    """Return the bindings of a screen, beside those that every input line has."""
    keys = KeyBindings()
    is_blank = Condition(lambda: not (screen.input if screen.field is None else screen.answer).text)

    @keys.add("c-d", filter=is_blank)
    @keys.add("q", filter=Condition(lambda: screen.reads_only))
    def leave(event: KeyPressEvent) -> None:
        screen.person.leave()

    if screen.chat is not None:
        _add_for_chat(keys, screen, screen.chat)
    _add_for_input(keys, screen)
    _add_for_panels(keys, screen)
    return keys


def _add_for_chat(keys: KeyBindings, screen: AskingScreen, chat: ChatCommands) -> None:
    always = Always()
    at_input = Condition(lambda: screen.takes_input) & ~is_searching
    is_empty = Condition(lambda: not screen.input.text)
    completes = Condition(lambda: screen.input.complete_state is not None)
    has_waiting = Condition(lambda: bool(screen.queue.waiting))
    table = (
        ("?", at_input & is_empty, "help"),
        ("c-v", at_input, "paste picture"),
        ("f2", at_input, "next mode"),
        ("s-tab", at_input & ~completes, "next mode"),
        ("f3", at_input, "options"),
        ("up", at_input & is_empty & has_waiting & ~_points(screen), "take back"),
        ("c-o", always, "calls"),
        ("f4", always, "stderr"),
    )
    for key, when, name in table:

        def start(event: KeyPressEvent, name: str = name) -> None:
            chat.start(name)

        keys.add(key, filter=when)(start)


def _points(screen: AskingScreen) -> Condition:
    """True while the arrows move between answers."""
    return Condition(lambda: screen.pick is not None and screen.pick.may_point)


def _add_for_input(keys: KeyBindings, screen: AskingScreen) -> None:
    at_input = Condition(lambda: screen.takes_input) & ~is_searching

    @keys.add("c-c", filter=~is_searching)
    @keys.add("<sigint>", filter=Condition(lambda: not screen.is_lent))
    def interrupt(event: KeyPressEvent) -> None:
        if screen.has_menu:
            screen.give(None)
        elif screen.person.in_turn or screen.field is not None or not screen.input.text:
            screen.person.interrupt()
        else:
            screen.input.reset()
            if screen.chat is not None:
                screen.chat.start("leave as it was")

    @keys.add("c-z")
    def suspend(event: KeyPressEvent) -> None:
        event.app.suspend_to_background()

    @keys.add("enter", filter=at_input)
    def submit(event: KeyPressEvent) -> None:
        buffer, pick = screen.input, screen.pick
        if buffer.complete_state is not None and buffer.complete_state.current_completion:
            buffer.complete_state = None  # it is in the text already
            return
        if buffer.cursor_position == len(buffer.text) and (more := continue_line(buffer.text)):
            buffer.text = more
            buffer.cursor_position = len(more)
            return
        text = buffer.text
        if pick is not None:
            if pick.key is not None:
                screen.give(pick.key.value)
                return
            if not pick.enter():
                return
            if pick.choice.passes:
                screen.give(None)
        if text.strip():
            no = "" if pick is None else pick.instead
            buffer.append_to_history()
            buffer.text = ""  # which is noticed: from now on, a key answers the question
            buffer.reset()
            if screen.person.submit(text) and no:
                screen.flow.said_instead = text
                screen.give(no)
        elif screen.chat is not None:
            screen.chat.start("leave as it was")

    @keys.add("escape", "enter", filter=at_input)
    def begin_line(event: KeyPressEvent) -> None:
        screen.input.insert_text("\n")

    is_command = Condition(lambda: screen.input.document.text_before_cursor.startswith("/"))

    @keys.add("tab", filter=at_input & is_command)
    def complete_command(event: KeyPressEvent) -> None:
        # Not in the background: a Tab while the list is still being made would be lost.
        buffer, state = screen.input, screen.input.complete_state
        asked = CompleteEvent(completion_requested=True)
        found = [*buffer.completer.get_completions(buffer.document, asked)]
        if state is not None and state.current_completion is not None:
            buffer.complete_next()
        elif len(found) == 1:
            buffer.apply_completion(found[0])
        elif more := get_common_complete_suffix(buffer.document, found):
            buffer.insert_text(more)
        elif state is not None:
            buffer.complete_next()
        else:
            buffer.start_completion(select_first=True)

    @keys.add("c-x", "c-e", filter=at_input)
    async def edit(event: KeyPressEvent) -> None:
        await screen.edit()

    @keys.add("up", filter=at_input & _points(screen))
    @keys.add("down", filter=at_input & _points(screen))
    def point(event: KeyPressEvent) -> None:
        if screen.pick is not None:
            screen.pick.point(1 if event.key_sequence[0].key == Keys.Down else -1)

    @keys.add("c-t")
    def thoughts(event: KeyPressEvent) -> None:
        screen.flow.unfold()
        screen.refresh()


def _add_for_panels(keys: KeyBindings, screen: AskingScreen) -> None:
    has_menu = Condition(lambda: screen.has_menu)
    asks_line = Condition(lambda: screen.field is not None)

    @keys.add(Keys.Any, filter=has_menu)
    @keys.add("escape", filter=has_menu)
    def press(event: KeyPressEvent) -> None:
        pressed = event.key_sequence[0].key
        answer = screen.choice.answer(getattr(pressed, "value", pressed)) if screen.choice else None
        if answer is not None:
            screen.give(answer)

    @keys.add(Keys.BracketedPaste, filter=has_menu)
    @keys.add("enter", filter=has_menu)
    def nothing(event: KeyPressEvent) -> None:
        """Ignore a paste: it is no answer to a menu."""

    is_yes_no = Condition(lambda: screen.field is not None and screen.field.is_yes_no)

    def yes_or_no(event: KeyPressEvent) -> None:
        screen.answer.document = Document(event.data)

    for letter in "yYnN":
        keys.add(letter, filter=is_yes_no)(yes_or_no)

    @keys.add("enter", filter=asks_line)
    def enter(event: KeyPressEvent) -> None:
        screen.give(screen.answer.text)

    @keys.add("escape", filter=asks_line)
    def leave_form(event: KeyPressEvent) -> None:
        screen.give(None)
