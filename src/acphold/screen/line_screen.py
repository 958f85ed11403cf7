"""The bottom of a terminal: unfinished passages, a question or the input, and a status line.

Finished passages are printed above it and scroll away as in a shell. All of it runs in one event
loop; printing erases the bottom, writes, and has it drawn again.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from textwrap import wrap
from typing import TextIO, cast

from prompt_toolkit.application import Application, in_terminal
from prompt_toolkit.application.current import set_app
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.completion import Completer
from prompt_toolkit.filters import Condition
from prompt_toolkit.formatted_text import ANSI, StyleAndTextTuples
from prompt_toolkit.history import History, InMemoryHistory
from prompt_toolkit.input import Input, create_input
from prompt_toolkit.input.typeahead import clear_typeahead
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
from prompt_toolkit.output import ColorDepth
from prompt_toolkit.output.vt100 import Vt100_Output
from prompt_toolkit.styles import Style
from prompt_toolkit.widgets import SearchToolbar
from rich.console import Console
from rich.text import Text

from acphold.history.prompt_queue import NO_QUEUE, PromptQueue
from acphold.processes.foreground import ForegroundProgram, run_in_front
from acphold.reports.transcript import Noticed
from acphold.screen import bounds
from acphold.screen.flow import Flow
from acphold.screen.keys import Person, key_bindings
from acphold.screen.layout import GUTTER, MARK, NARROWEST, Gutter, Passage, passage
from acphold.screen.panels import Choice, Field, PanelStage, Pick
from acphold.screen.queued_prompts import MOST_SHOWN, heading, numbered
from acphold.screen.terminal import drop_typed, paged

INPUT_LINES = 10
"""Visible lines of an input."""

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


KEEP_TITLE, GIVE_TITLE_BACK = "\x1b[22;2t", "\x1b[23;2t"
"""Save and restore the terminal's title (xterm's window operations)."""


LIGHT_STYLE = Style([*STYLE.style_rules, ("mark", "ansiblue bold"), ("title", "#874b00 bold")])
"""The style on a light background."""


class LineScreen:
    """The screen; see the module.

    With `reads_only` there is no input; typed text can only be an answer, not a prompt. The
    terminal is the console's file, and `typed_on`, which is stdin by default.
    """

    def __init__(
        self,
        flow: Flow,
        console: Console,
        person: Person,
        *,
        completer: Completer | None = None,
        history: History | None = None,
        reads_only: bool = False,
        takes_prompts: bool = True,
        typed_on: TextIO | None = None,
    ) -> None:
        self.flow = flow
        self.person = person
        self.reads_only = reads_only
        self._takes_prompts = takes_prompts
        self.choice: Choice | None = None
        self.field: Field | None = None
        self.wrong = ""
        self.queue: PromptQueue = NO_QUEUE
        self.pick: Pick | None = None
        self.input = Buffer(
            multiline=True,
            completer=completer,
            complete_while_typing=completer is not None,
            history=history or InMemoryHistory(),
            tempfile_suffix=".md",
            on_text_changed=self._typed,
        )
        self.answer = Buffer(multiline=False)
        self._console = console
        self._gutter = Gutter(console)
        self._asking = asyncio.Lock()
        self._answered: asyncio.Future[str | None] | None = None
        self._seeing: asyncio.TimerHandle | None = None
        self._due: asyncio.TimerHandle | None = None
        self._live: tuple[object, str] = ((), "")
        self._version = 0
        self.is_lent = False
        self._heading = ""
        self._app = self._application(create_input(typed_on))

    # -- running --------------------------------------------------------------------------

    async def run(self) -> None:
        """Run until `close` is called; raises EOFError when the terminal is gone. May be run again.

        Without prompts, anything typed before is discarded as not meant for a question here, and
        SIGINT is left to the caller that runs the turn.
        """
        if not self._takes_prompts:
            drop_typed(self._app.input.fileno())
            clear_typeahead(self._app.input)
            self.input.reset()
        self._app.output.write_raw(KEEP_TITLE)
        try:
            await self._app.run_async(pre_run=self.changed, handle_sigint=self._takes_prompts)
        finally:
            for timer in (self._due, self._seeing):
                if timer is not None:
                    timer.cancel()
            self._due = None
            self._app.output.write_raw(GIVE_TITLE_BACK)
            self._app.output.flush()
            # Leaving does not wait until a large burst of output is printed.
            self._print(self.flow.take(bounds.LAST_LETTERS))
            if self.flow.take(1):
                told = "the rest is not printed; see `acphold show`"
                self._print([passage(Noticed("info", "", told, is_ours=True))])
            else:
                self._print(self.flow.live())  # unfinished passages, too

    def close(self) -> None:
        """Leave the terminal as a shell expects it; finished passages stay on it."""
        if self._app.is_running and not self._app.is_done:
            self._app.exit()

    def changed(self) -> None:
        """Redraw soon, because something has changed."""
        loop = asyncio.get_running_loop()
        if self._due is not None and self._due.when() > loop.time() + bounds.REDRAW_SECONDS:
            self._due.cancel()  # that was a tick
            self._due = None
        if self._due is None:
            self._due = loop.call_later(bounds.REDRAW_SECONDS, self._redraw)

    def _redraw(self) -> None:
        self._version += 1
        self._draw()

    def _draw(self) -> None:
        self._due = None
        if self.print_finished():
            self.changed()
        elif self.person.in_turn and self._app.is_running:  # count its seconds
            self._due = asyncio.get_running_loop().call_later(bounds.TICK_SECONDS, self._draw)
        self._app.invalidate()
        if (heading := self.person.heading) != self._heading and not self.is_lent:
            self._heading = heading
            self._app.output.set_title(heading)
            self._app.output.flush()

    def print_finished(self) -> bool:
        """Print finished passages, or the first of them; return True if there may be more."""
        if self.is_lent:
            return False
        shown = self.flow.take(bounds.FRAME_LETTERS)
        self._print(shown)
        return bool(shown)

    def _print(self, shown: Sequence[Passage]) -> None:
        if not shown:
            return
        with self._console.capture() as captured:
            for passage in shown:
                self._gutter.put(passage)
        with self.put_away():
            self._app.output.write_raw(captured.get())
            self._app.output.flush()

    @contextmanager
    def put_away(self) -> Iterator[None]:
        """Erase the bottom for the block: output goes above it."""
        if self._app.is_running:
            self._app.renderer.erase(leave_alternate_screen=False)
        yield
        self._app.invalidate()

    async def in_front(self, program: ForegroundProgram) -> int:
        """Run a program on the terminal; output that arrives meanwhile is printed after it."""
        terminal = self._app.input.fileno(), self._console.file.fileno()
        while self.print_finished():
            pass
        if not self._app.is_running:
            return await run_in_front(program, terminal)
        async with self.lent():
            return await run_in_front(program, terminal)

    @asynccontextmanager
    async def lent(self) -> AsyncIterator[None]:
        """Lend the terminal for the block: nothing is drawn, and no key is read."""
        with set_app(self._app):
            async with in_terminal():
                self.is_lent = True
                try:
                    yield
                finally:
                    self.is_lent = False
        self.changed()

    async def edit(self) -> None:
        """Edit the typed text in the person's editor."""
        self.is_lent = True
        try:
            await self.input.open_in_editor()
        finally:
            self.is_lent = False
            self.changed()

    async def read(self, passages: Sequence[Passage]) -> None:
        """Show long passages in the pager."""
        async with self.lent():
            with self._console.capture() as captured:
                for passage in passages:
                    self._gutter.put(passage)
            text = captured.get().lstrip("\n")

            def wait() -> None:
                with paged(cast("TextIO", self._console.file)) as pages:
                    pages.write(text)

            await asyncio.to_thread(wait)

    def ring(self) -> None:
        """Ring the bell, for a terminal that is not looked at."""
        self._app.output.bell()
        self._app.output.flush()

    def insert(self, text: str) -> None:
        """Insert the text into the line of input, at the cursor."""
        self.input.insert_text(text)
        self.changed()

    def put_back(self, text: str) -> None:
        """Put the text back into the line of input, before what is typed there."""
        self.input.text = f"{text}\n{self.input.text}".rstrip("\n")
        self.input.cursor_position = len(text)

    def waits(self, queue: PromptQueue) -> None:
        """Show the prompts that wait above the line of input."""
        self.queue = queue
        self.changed()

    # -- asking ---------------------------------------------------------------------------

    async def choose(self, choice: Choice) -> str | None:
        """Ask one choice at a time and return its answer; None if it was left."""
        self._pass()
        async with self._asking:
            self.choice = choice
            if choice.is_menu:
                self._app.layout.focus(self._panel)
            else:
                self.pick = Pick(choice, takes_prompts=self._takes_prompts)
                if not choice.passes:
                    self.ring()
                self._seeing = asyncio.get_running_loop().call_later(
                    bounds.QUESTION_SEEN_SECONDS, self._seen
                )
            try:
                return await self._answer()
            finally:
                self.choice = None
                self._put_pick_away()
                self._asked_no_more()

    async def enter(self, field: Field, wrong: str = "") -> str | None:
        """Return the line typed into a field; `wrong` says what was wrong with the last one."""
        self._pass()
        async with self._asking:
            self.field, self.wrong = field, wrong
            self.answer.reset()
            self.answer.insert_text(field.default)
            self._app.layout.focus(self.answer)
            try:
                return await self._answer()
            finally:
                self.field, self.wrong = None, ""
                self._asked_no_more()

    async def _answer(self) -> str | None:
        self._answered = asyncio.get_running_loop().create_future()
        self.changed()
        return await self._answered

    def give(self, answer: str | None) -> None:
        """Take the person's answer."""
        if self._answered is not None and not self._answered.done():
            self._answered.set_result(answer)

    def _pass(self) -> None:
        """Put an offer away that is still there: something else is asked."""
        if self.choice is not None and self.choice.passes:
            self.give(None)

    def _seen(self) -> None:
        if self.pick is not None:
            self.pick.seen(self.input.text)
        self.changed()

    def _typed(self, line: Buffer) -> None:
        if self.pick is not None:
            self.pick.typed(line.text)
        self.person.typed()

    def _put_pick_away(self) -> None:
        """Close the question; a key typed for it must not become a prompt."""
        if self._seeing is not None:
            self._seeing.cancel()
        pick, self.pick = self.pick, None
        if pick is not None and pick.key is not None:
            self.input.reset()

    @property
    def asks(self) -> bool:
        """True while a question of the agent is open."""
        has_question = self.pick is not None and not self.pick.choice.passes
        return has_question or self.field is not None

    @property
    def has_menu(self) -> bool:
        """True while a menu is open."""
        return self.choice is not None and self.choice.is_menu

    @property
    def takes_input(self) -> bool:
        """True if typed text goes into the line of input."""
        return not (self.reads_only or self.has_menu or self.field is not None)

    def _asked_no_more(self) -> None:
        self._answered = None
        self._app.layout.focus(self._panel if self.reads_only else self.input)
        self.changed()

    # -- the layout -----------------------------------------------------------------------

    def _application(self, typed: Input) -> Application[None]:
        output = Vt100_Output.from_pty(cast("TextIO", self._console.file))
        output.enable_cpr = False  # its answers may arrive after we have left, in the shell
        self._panel = Window(
            FormattedTextControl(self._panel_text, focusable=True),
            dont_extend_height=True,
            wrap_lines=True,
            always_hide_cursor=True,
            get_line_prefix=_indented,
        )
        self._search = SearchToolbar(
            forward_search_prompt=[("class:mark", "   find  ")],
            backward_search_prompt=[("class:mark", "   find  ")],
        )
        asks_by_key = Condition(lambda: self.choice is not None or self.reads_only)
        asks_line = Condition(lambda: self.field is not None)
        takes_input = Condition(lambda: self.takes_input)
        live = Window(FormattedTextControl(self._live_text), dont_extend_height=True)
        waiting = Window(
            FormattedTextControl(self._waiting_text), dont_extend_height=True, style="class:faint"
        )
        content = HSplit(
            [
                ConditionalContainer(live, Condition(lambda: bool(self._live_lines()))),
                Window(height=1, dont_extend_height=True),
                ConditionalContainer(waiting, Condition(lambda: bool(self.queue.waiting))),
                ConditionalContainer(self._panel, asks_by_key),
                ConditionalContainer(self._field_window(), asks_line),
                ConditionalContainer(self._input_window(), takes_input),
                self._search,
                Window(FormattedTextControl(self._status_text), height=1, style="class:status"),
                CompletionsMenu(),
            ],
            align=VerticalAlign.TOP,
        )
        focused = self._panel if self.reads_only else self.input
        return Application(
            Layout(content, focused_element=focused),
            style=LIGHT_STYLE if getattr(self._console, "is_light", False) else STYLE,
            key_bindings=key_bindings(self),
            erase_when_done=True,
            input=typed,
            output=output,
            color_depth=ColorDepth.DEPTH_1_BIT if self._console.no_color else None,
            include_default_pygments_style=False,
        )

    def _input_window(self) -> Window:
        mark: StyleAndTextTuples = [("class:mark", f"{MARK:>{GUTTER - 2}}  ")]
        return Window(
            BufferControl(self.input, search_buffer_control=self._search.control),
            height=Dimension(min=1, max=INPUT_LINES),
            dont_extend_height=True,
            wrap_lines=True,
            get_line_prefix=_prefix(mark),
        )

    def _field_window(self) -> HSplit:
        mark: StyleAndTextTuples = [("class:title", f"{'?':>{GUTTER - 2}}  ")]
        above = Window(
            FormattedTextControl(self._field_text), dont_extend_height=True, wrap_lines=True
        )
        line = Window(BufferControl(self.answer), height=1, get_line_prefix=_prefix(mark))
        return HSplit([above, line])

    # -- its texts ------------------------------------------------------------------------

    def _live_lines(self) -> str:
        size = self._app.output.get_size()
        key = (self._version, size)
        if self._live[0] != key:
            waiting = len(self._waiting_lines())
            self._live = key, self._drawn(max(3, size.rows - 6 - waiting))
        return self._live[1]

    def _drawn(self, rows: int) -> str:
        """Return the unfinished passages; if too high for the terminal, their end."""
        with self._console.capture() as captured:
            for passage in self.flow.live():
                self._gutter.put(passage)
        return "\n".join(captured.get().rstrip("\n").split("\n")[-rows:])

    def _live_text(self) -> ANSI:
        return ANSI(self._live_lines())

    def _waiting_lines(self) -> list[str]:
        if not self.queue.waiting:
            return []
        room = max(NARROWEST, self._app.output.get_size().columns - GUTTER - 1)
        lines = wrap(heading(self.queue), room)  # whole: it says how to go on
        for line in numbered(self.queue, MOST_SHOWN):
            text = Text(line)
            text.truncate(room, overflow="ellipsis")
            lines.append(text.plain)
        return lines

    def _waiting_text(self) -> str:
        margin = "\n" + " " * GUTTER
        return f"{'next':>{GUTTER - 2}}  " + margin.join(self._waiting_lines())

    def _panel_text(self) -> StyleAndTextTuples:
        if self.choice is None:
            return []
        margin = "\n" + " " * GUTTER
        title = self._wrapped(self.choice.short or self.choice.title)
        shown: StyleAndTextTuples = [("class:title", f"{'?':>{GUTTER - 2}}  {title}")]
        picked = None if self.pick is None else self.pick.key
        is_new = self.pick is not None and self.pick.stage is PanelStage.NEW
        for key in self.choice.keys:
            style = "class:picked" if key is picked else "class:faint" if is_new else "class:key"
            words = self._wrapped(key.words, len(key.name) + 3)
            shown += [("", margin), (style, f"[{key.name}]"), ("", f" {words}")]
        if self.pick is not None and self.choice.keys:
            shown.append(("class:faint", f"{margin}{self._wrapped(self.pick.hint)}"))
        return shown

    def _field_text(self) -> StyleAndTextTuples:
        if self.field is None:
            return []
        margin = "\n" + " " * GUTTER
        title = self._wrapped(self.field.title)
        shown: StyleAndTextTuples = [("class:title", f"{'?':>{GUTTER - 2}}  {title}")]
        shown += [("class:faint", f"{margin}{self._wrapped(hint)}") for hint in self.field.hints]
        if self.wrong:
            shown.append(("class:wrong", f"{margin}{self.wrong}"))
        return shown

    def _wrapped(self, words: str, beside: int = 0) -> str:
        """Return words in lines that fit `beside` the gutter; they break between two words."""
        room = max(NARROWEST, self._app.output.get_size().columns - GUTTER - beside - 1)
        margin = "\n" + " " * GUTTER
        return margin.join(line.plain.rstrip() for line in Text(words).wrap(self._console, room))

    def _status_text(self) -> str:
        room = max(0, self._app.output.get_size().columns - GUTTER - 1)
        line = ""
        for piece in self.person.status():
            longer = f"{line} · {piece}" if line else piece[:room]
            if len(longer) > room:
                break
            line = longer
        return " " * GUTTER + line


def _indented(line: int, wrapped: int) -> StyleAndTextTuples:
    return [("", " " * GUTTER)] if wrapped else []


def _prefix(mark: StyleAndTextTuples) -> Callable[[int, int], StyleAndTextTuples]:
    def prefix(line: int, wrapped: int) -> StyleAndTextTuples:
        return mark if line == wrapped == 0 else [("", " " * GUTTER)]

    return prefix
