"""The bottom of a terminal: unfinished passages, a question or the input, and a status line."""

from __future__ import annotations

from collections.abc import Callable
from textwrap import shorten, wrap
from typing import Any

from prompt_toolkit.filters import Condition
from prompt_toolkit.formatted_text import ANSI, AnyFormattedText, StyleAndTextTuples
from prompt_toolkit.layout import (
    BufferControl,
    ConditionalContainer,
    Dimension,
    FormattedTextControl,
    HSplit,
    Layout,
    VerticalAlign,
    Window,
)
from prompt_toolkit.layout.menus import CompletionsMenu
from prompt_toolkit.output import Output
from prompt_toolkit.styles import Style
from prompt_toolkit.widgets import SearchToolbar
from rich.console import Console
from rich.text import Text

from acphold.faces.screen.keys import AskingScreen
from acphold.faces.screen.layout import GUTTER, MARK, NARROWEST, Gutter
from acphold.faces.screen.panels import PanelStage
from acphold.faces.screen.queued_prompts import MOST_SHOWN, heading, prompt_lines

INPUT_LINES = 10
"""Visible lines of an input."""

MARGIN = "\n" + " " * GUTTER
"""A new line, and the columns of the labels."""

STYLE = Style.from_dict(
    {
        "mark": "ansicyan bold",
        "title": "ansiyellow bold",
        "key": "bold",
        "picked": "bold reverse",
        "faint": "ansibrightblack",
        "wrong": "ansired bold",
        "status": "ansibrightblack",
        "completion-menu": "bg:default noreverse",
        "completion-menu.completion": "bg:default",
        "completion-menu.completion.current": "bg:default bold reverse",
        "completion-menu.meta.completion": "bg:default ansibrightblack",
        "completion-menu.meta.completion.current": "bg:default ansibrightblack",
    }
)


LIGHT_STYLE = Style([*STYLE.style_rules, ("mark", "ansiblue bold"), ("title", "#874b00 bold")])
"""The style on a light background."""


class Bottom:
    """The `layout` of the bottom of a screen; its texts are made when it is drawn.

    `panel` has the focus while a key is a whole answer. `version` counts changes of what is
    unfinished: only then it is laid out again.
    """

    def __init__(
        self, screen: AskingScreen, console: Console, gutter: Gutter, output: Output
    ) -> None:
        self.version = 0
        self._screen = screen
        self._console = console
        self._gutter = gutter
        self._output = output
        self._live: tuple[object, str] = ((), "")
        self.panel = Window(
            FormattedTextControl(self._panel_text, focusable=True),
            dont_extend_height=True,
            wrap_lines=True,
            always_hide_cursor=True,
            get_line_prefix=lambda _, wrapped: [("", " " * GUTTER)] if wrapped else [],
        )
        search = SearchToolbar(
            forward_search_prompt=[("class:mark", "   find  ")],
            backward_search_prompt=[("class:mark", "   find  ")],
        )
        live = _text_window(lambda: ANSI(self._live_lines()))
        waiting = _text_window(
            lambda: f"{'next':>{GUTTER - 2}}  {MARGIN.join(self._waiting_lines())}",
            style="class:faint",
        )
        about_field = _text_window(self._field_text, wrap_lines=True)
        field = Window(
            BufferControl(screen.answer),
            height=1,
            get_line_prefix=_prefix([("class:title", f"{'?':>{GUTTER - 2}}  ")]),
        )
        line = Window(
            BufferControl(screen.input, search_buffer_control=search.control),
            height=Dimension(min=1, max=INPUT_LINES),
            dont_extend_height=True,
            wrap_lines=True,
            get_line_prefix=_prefix([("class:mark", f"{MARK:>{GUTTER - 2}}  ")]),
        )
        asks_by_key = Condition(lambda: screen.choice is not None or screen.reads_only)
        asks_line = Condition(lambda: screen.field is not None)
        content = HSplit(
            [
                ConditionalContainer(live, Condition(lambda: bool(self._live_lines()))),
                Window(height=1, dont_extend_height=True),
                ConditionalContainer(waiting, Condition(lambda: bool(screen.queue.waiting))),
                ConditionalContainer(self.panel, asks_by_key),
                ConditionalContainer(HSplit([about_field, field]), asks_line),
                ConditionalContainer(line, Condition(lambda: screen.takes_input)),
                search,
                Window(FormattedTextControl(self._status_text), height=1, style="class:status"),
                CompletionsMenu(),
            ],
            align=VerticalAlign.TOP,
        )
        focused = self.panel if screen.reads_only else screen.input
        self.layout = Layout(content, focused_element=focused)

    # -- its texts ------------------------------------------------------------------------

    def _live_lines(self) -> str:
        """Return the unfinished passages; if too high for the terminal, their end."""
        size = self._output.get_size()
        key = (self.version, size)
        if self._live[0] != key:
            with self._console.capture() as captured:
                for passage in self._screen.flow.live():
                    self._gutter.put(passage)
            rows = max(3, size.rows - 6 - len(self._waiting_lines()))
            self._live = key, "\n".join(captured.get().rstrip("\n").split("\n")[-rows:])
        return self._live[1]

    def _waiting_lines(self) -> list[str]:
        if not self._screen.queue.waiting:
            return []
        room = max(NARROWEST, self._output.get_size().columns - GUTTER - 1)
        lines = wrap(heading(self._screen.queue), room)  # whole: it says how to go on
        for line in prompt_lines(self._screen.queue, MOST_SHOWN):
            text = Text(line)
            text.truncate(room, overflow="ellipsis")
            lines.append(text.plain)
        return lines

    def _panel_text(self) -> StyleAndTextTuples:
        choice, pick = self._screen.choice, self._screen.pick
        if choice is None:
            return []
        title = self._wrap(choice.short or choice.title)
        shown: StyleAndTextTuples = [("class:title", f"{'?':>{GUTTER - 2}}  {title}")]
        picked = None if pick is None else pick.key
        is_new = pick is not None and pick.stage is PanelStage.NEW
        for key in choice.keys:
            style = "class:picked" if key is picked else "class:faint" if is_new else "class:key"
            words = self._wrap(key.words, len(key.name) + 3)
            shown += [("", MARGIN), (style, f"[{key.name}]"), ("", f" {words}")]
        if pick is not None and choice.keys:
            shown.append(("class:faint", f"{MARGIN}{self._wrap(pick.hint)}"))
        return shown

    def _field_text(self) -> StyleAndTextTuples:
        field, wrong = self._screen.field, self._screen.wrong
        if field is None:
            return []
        title = self._wrap(field.title)
        shown: StyleAndTextTuples = [("class:title", f"{'?':>{GUTTER - 2}}  {title}")]
        shown += [("class:faint", f"{MARGIN}{self._wrap(hint)}") for hint in field.hints]
        if wrong:
            shown.append(("class:wrong", f"{MARGIN}{wrong}"))
        return shown

    def _wrap(self, words: str, beside: int = 0) -> str:
        """Return words in lines that fit `beside` the gutter; they break between two words."""
        room = max(NARROWEST, self._output.get_size().columns - GUTTER - beside - 1)
        return MARGIN.join(line.plain.rstrip() for line in Text(words).wrap(self._console, room))

    def _status_text(self) -> str:
        room = max(1, self._output.get_size().columns - GUTTER - 1)
        line = ""
        for piece in self._screen.person.status():
            longer = f"{line} · {piece}" if line else shorten(piece, room, placeholder="…")
            if len(longer) > room:
                break
            line = longer
        return " " * GUTTER + line


def _text_window(text: Callable[[], AnyFormattedText], **options: Any) -> Window:
    """Return a window that is as high as its text."""
    return Window(FormattedTextControl(text), dont_extend_height=True, **options)


def _prefix(mark: StyleAndTextTuples) -> Callable[[int, int], StyleAndTextTuples]:
    def prefix(line: int, wrapped: int) -> StyleAndTextTuples:
        return mark if line == wrapped == 0 else [("", " " * GUTTER)]

    return prefix
