"""The screen in a terminal: what is finished scrolls away as in a shell, above the `Bottom`.

All of it runs in one event loop; printing erases the bottom, writes, and has it drawn again.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, TextIO, cast

from prompt_toolkit.application import Application, in_terminal
from prompt_toolkit.application.current import set_app
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.completion import Completer
from prompt_toolkit.history import History, InMemoryHistory
from prompt_toolkit.input import create_input
from prompt_toolkit.input.typeahead import clear_typeahead, store_typeahead
from prompt_toolkit.input.vt100_parser import Vt100Parser
from prompt_toolkit.key_binding import KeyPress
from prompt_toolkit.output import ColorDepth
from rich.console import Console

from acphold.conversation.history.prompt_queue import PromptQueue
from acphold.conversation.reports.transcript import Noticed
from acphold.faces.screen import bounds
from acphold.faces.screen.bottom import LIGHT_STYLE, STYLE, Bottom
from acphold.faces.screen.flow import Flow
from acphold.faces.screen.keys import AskingScreen, Person, key_bindings
from acphold.faces.screen.layout import Gutter, Passage, passage
from acphold.faces.screen.panels import Field, KeyChoice, Pick
from acphold.faces.screen.terminal import drop_typed, open_output, pager
from acphold.machine.foreground import ForegroundProgram, run_in_front

if TYPE_CHECKING:
    from acphold.faces.screen.chat_commands import ChatCommands

KEEP_TITLE, GIVE_TITLE_BACK = "\x1b[22;2t", "\x1b[23;2t"
"""Save and restore the terminal's title (xterm's window operations)."""


class LineScreen(AskingScreen):
    """The screen; see the module.

    With `reads_only` there is no input; without `chat` there is one, but typed text can only be an
    answer, not a prompt. The terminal is the console's file, and `typed_on`, which is stdin by
    default.
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
        chat: ChatCommands | None = None,
        typed_on: TextIO | None = None,
    ) -> None:
        super().__init__(flow, person, chat, reads_only=reads_only)
        self.input = Buffer(
            multiline=True,
            completer=completer,
            complete_while_typing=completer is not None,
            history=history or InMemoryHistory(),
            tempfile_suffix=".md",
            on_text_changed=self._on_input,
        )
        self._console = console
        self._gutter = Gutter(console)
        self._seeing: asyncio.TimerHandle | None = None
        self._due: asyncio.TimerHandle | None = None
        self._heading = ""
        output = open_output(cast("TextIO", console.file))
        self._bottom = Bottom(self, console, self._gutter, output)
        self._app: Application[None] = Application(
            self._bottom.layout,
            style=LIGHT_STYLE if getattr(console, "is_light", False) else STYLE,
            key_bindings=key_bindings(self),
            erase_when_done=True,
            input=create_input(typed_on),
            output=output,
            color_depth=ColorDepth.DEPTH_1_BIT if console.no_color else None,
            include_default_pygments_style=False,
        )

    def type_ahead(self, typed: bytes) -> None:
        """Take what was typed before: it comes first when the screen runs."""
        keys: list[KeyPress] = []
        parser = Vt100Parser(keys.append)
        parser.feed(typed.decode(errors="replace"))
        parser.flush()
        store_typeahead(self._app.input, keys)

    # -- running --------------------------------------------------------------------------

    async def run(self) -> None:
        """Run until `close` is called; raises EOFError when the terminal is gone. May be run again.

        Without prompts, anything typed before is discarded as not meant for a question here, and
        SIGINT is left to the caller that runs the turn.
        """
        if self.chat is None:
            drop_typed(self._app.input.fileno())
            clear_typeahead(self._app.input)
            self.input.reset()
        self._app.output.write_raw(KEEP_TITLE)
        try:
            await self._app.run_async(pre_run=self.refresh, handle_sigint=self.chat is not None)
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
                notice = f"the rest is not printed; `{self.flow.transcript}` shows it"
                self._print([passage(Noticed("info", "", notice, is_ours=True))])
            else:
                self._print(self.flow.live())  # unfinished passages, too

    def close(self) -> None:
        """Leave the terminal as a shell expects it; finished passages stay on it."""
        if self._app.is_running and not self._app.is_done:
            self._app.exit()

    def refresh(self) -> None:
        """Redraw soon, because something has changed."""
        loop = asyncio.get_running_loop()
        if self._due is not None and self._due.when() > loop.time() + bounds.REDRAW_SECONDS:
            self._due.cancel()  # that was a tick
            self._due = None
        if self._due is None:
            self._due = loop.call_later(bounds.REDRAW_SECONDS, self._redraw)

    def _redraw(self) -> None:
        self._bottom.version += 1
        self._draw()

    def _draw(self) -> None:
        self._due = None
        if self.print_finished():
            self.refresh()
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
        self.refresh()

    async def edit(self) -> None:
        """Edit the typed text in the person's editor."""
        self.is_lent = True
        try:
            await self.input.open_in_editor()
        finally:
            self.is_lent = False
            self.refresh()

    async def read(self, passages: Sequence[Passage]) -> None:
        """Show long passages in the pager."""
        async with self.lent():
            with self._console.capture() as captured:
                for passage in passages:
                    self._gutter.put(passage)
            text = captured.get().lstrip("\n")

            def wait() -> None:
                with pager(cast("TextIO", self._console.file)) as pages:
                    pages.write(text)

            await asyncio.to_thread(wait)

    def ring(self) -> None:
        """Ring the bell, for a person who looks at another window."""
        self._app.output.bell()
        self._app.output.flush()

    def insert(self, text: str) -> None:
        """Insert the text into the line of input, at the cursor."""
        self.input.insert_text(text)
        self.refresh()

    def put_back(self, text: str) -> None:
        """Put the text back into the line of input, before what is typed there."""
        self.input.text = f"{text}\n{self.input.text}".rstrip("\n")
        self.input.cursor_position = len(text)

    def show_queue(self, queue: PromptQueue) -> None:
        """Show the queued prompts above the line of input."""
        self.queue = queue
        self.refresh()

    # -- asking ---------------------------------------------------------------------------

    async def choose(self, choice: KeyChoice) -> str | None:
        """Ask one choice at a time and return its answer; None if it was left."""
        async with self._question(choice) as answer:
            if choice.is_menu:
                self._app.layout.focus(self._bottom.panel)
            else:
                self.pick = Pick(choice, takes_prompts=self.chat is not None)
                if not choice.passes:
                    self.ring()
                self._seeing = asyncio.get_running_loop().call_later(
                    bounds.QUESTION_SEEN_SECONDS, self._on_seen
                )
            self.refresh()
            try:
                return await answer
            finally:
                if self._seeing is not None:
                    self._seeing.cancel()
                pick, self.pick = self.pick, None
                if pick is not None and pick.key is not None:
                    self.input.reset()  # a key typed for the question must not become a prompt
                self._close_question()

    async def enter(self, field: Field, wrong: str = "") -> str | None:
        """Return the line typed into a field; `wrong` says what was wrong with the last one."""
        async with self._question(field) as answer:
            self.wrong = wrong
            self.answer.reset()
            self.answer.insert_text(field.default)
            self._app.layout.focus(self.answer)
            self.refresh()
            try:
                return await answer
            finally:
                self.wrong = ""
                self._close_question()

    def _on_seen(self) -> None:
        if self.pick is not None:
            self.pick.on_seen(self.input.text)
        self.refresh()

    def _on_input(self, line: Buffer) -> None:
        if self.pick is not None:
            self.pick.on_input(line.text)
        self.person.on_input()

    def _close_question(self) -> None:
        self._app.layout.focus(self._bottom.panel if self.reads_only else self.input)
        self.refresh()
