"""What the keys of the screen do.

| key | |
|---|---|
| Enter | sends the prompt; behind a backslash, and with Alt, it begins a new line |
| Ctrl-C | cancels the running turn; else empties the input; twice on an empty one leaves |
| Ctrl-D | leaves, on an empty input |
| Ctrl-T | shows thoughts whole, or folds them again |
| F2, Shift-Tab | the next mode |
| F3 | a menu of the session's options |
| Esc | leaves a menu or a form |
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from prompt_toolkit.filters import Condition
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.keys import Keys

from acphold.screen.typed import continued

if TYPE_CHECKING:
    from acphold.screen.line_screen import LineScreen


def key_bindings(screen: LineScreen) -> KeyBindings:
    """The bindings of a screen, beside those that every input line has."""
    keys = KeyBindings()
    _add_to_leave(keys, screen)
    _add_for_input(keys, screen)
    _add_for_questions(keys, screen)
    return keys


def _add_to_leave(keys: KeyBindings, screen: LineScreen) -> None:
    @keys.add("c-c")
    @keys.add("<sigint>")
    def interrupt(event: KeyPressEvent) -> None:
        if _is_left_by_escape(screen):
            screen.settle(None)
            return
        typed = bool(screen.input.text) and screen.choice is None and screen.field is None
        if typed:
            screen.input.reset()
        screen.person.interrupt(typed=typed)

    @keys.add("c-d", filter=Condition(lambda: not screen.input.text or screen.choice is not None))
    def leave(event: KeyPressEvent) -> None:
        screen.person.leave()

    @keys.add("q", filter=Condition(lambda: screen.reads_only))
    def quit_reading(event: KeyPressEvent) -> None:
        screen.person.leave()


def _is_left_by_escape(screen: LineScreen) -> bool:
    return screen.choice is not None and screen.choice.answer("escape") is not None


def _add_for_input(keys: KeyBindings, screen: LineScreen) -> None:
    at_input = Condition(
        lambda: screen.choice is None and screen.field is None and not screen.reads_only
    )

    @keys.add("enter", filter=at_input)
    def submit(event: KeyPressEvent) -> None:
        buffer = screen.input
        if buffer.complete_state is not None and buffer.complete_state.current_completion:
            buffer.complete_state = None  # it is in the text already
            return
        if buffer.cursor_position == len(buffer.text) and (more := continued(buffer.text)):
            buffer.text = more
            buffer.cursor_position = len(more)
            return
        text = buffer.text
        if text.strip():
            buffer.append_to_history()
            buffer.reset()
            screen.person.submit(text)

    @keys.add("escape", "enter", filter=at_input)
    def begin_line(event: KeyPressEvent) -> None:
        screen.input.insert_text("\n")

    @keys.add("f2", filter=at_input)
    @keys.add("s-tab", filter=at_input & Condition(lambda: screen.input.complete_state is None))
    def next_mode(event: KeyPressEvent) -> None:
        screen.person.next_mode()

    @keys.add("f3", filter=at_input)
    def options(event: KeyPressEvent) -> None:
        screen.person.set_options()

    @keys.add("c-t")
    def thoughts(event: KeyPressEvent) -> None:
        screen.flow.unfold()
        screen.changed()


def _add_for_questions(keys: KeyBindings, screen: LineScreen) -> None:
    asks = Condition(lambda: screen.choice is not None)
    asks_line = Condition(lambda: screen.field is not None)

    @keys.add(Keys.Any, filter=asks)
    @keys.add("escape", filter=asks)
    def press(event: KeyPressEvent) -> None:
        armed, pressed = screen.is_armed, event.key_sequence[0].key
        answer = screen.choice.answer(getattr(pressed, "value", pressed)) if screen.choice else None
        if armed and answer is not None:
            screen.settle(answer)
        else:
            screen.touched()

    @keys.add(Keys.BracketedPaste, filter=asks)
    @keys.add("enter", filter=asks)
    def nothing(event: KeyPressEvent) -> None:
        if not screen.is_armed:
            screen.touched()

    @keys.add("enter", filter=asks_line)
    def enter(event: KeyPressEvent) -> None:
        screen.settle(screen.answer.text)

    @keys.add("escape", filter=asks_line)
    def leave_form(event: KeyPressEvent) -> None:
        screen.settle(None)
