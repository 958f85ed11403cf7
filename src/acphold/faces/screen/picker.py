"""A list of sessions on a terminal, to choose one from: see `picker_page`.

Typed words filter it, by title, agent and folder; sessions with these words in their text follow.
The list can be used while it is still loading, even with a hundred thousand sessions: last words
are read of what is on the screen. Those of programs are counted, and shown to whoever asks for them
or searches. It follows the sessions as they change, and leaves nothing on the terminal.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from functools import partial
from typing import Final, NamedTuple, Protocol

from prompt_toolkit.application import Application, in_terminal
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.document import Document
from prompt_toolkit.filters import Condition
from prompt_toolkit.key_binding import (
    ConditionalKeyBindings,
    KeyBindings,
    KeyBindingsBase,
    KeyPressEvent,
    merge_key_bindings,
)
from prompt_toolkit.keys import Keys
from prompt_toolkit.layout import (
    BufferControl,
    ConditionalContainer,
    Dimension,
    FormattedTextControl,
    HSplit,
    Layout,
    VSplit,
    Window,
)
from prompt_toolkit.styles import Style

from acp_wire.tasks import TaskSet
from acphold.conversation.presentation.visible_text import on_one_line
from acphold.errors import AcpError
from acphold.faces.screen import bounds
from acphold.faces.screen.layout import MARK
from acphold.faces.screen.picker_lines import PickerLine, PickerLines, PickerNews
from acphold.faces.screen.picker_page import ACTIONS, PREVIEW_HEIGHT, PickerPage
from acphold.faces.screen.terminal import open_output

STYLE: Final = Style.from_dict(
    {
        "heading": "ansibrightblack",
        "chosen": "reverse",
        "match": "ansicyan bold",
        "waits": "ansiyellow bold",
        "state": "ansiyellow",
        "faint": "ansibrightblack",
        "mark": "ansicyan bold",
        "key": "bold",
    }
)

FOR_SEVERAL: Final = ("archive", "delete", "tag", "pin")
"""The actions for all that are selected."""

AT_ONCE: Final = ("archive", "delete", "export", "pin", "undo")
"""Those that ask nothing: the list stays on the terminal."""


class Picked(NamedTuple):
    """The person's choice: `action` is "open", "undo" or one of ACTIONS; `others` are the other
    sessions that it is for, `words` those that the list was filtered by, `at` the session that the
    keyboard was on, `selected` those that were selected."""

    session_id: str
    action: str
    others: tuple[str, ...] = ()
    words: str = ""
    at: str = ""
    selected: tuple[str, ...] = ()


class ActsOnSessions(Protocol):
    """Carries out the person's actions."""

    hidden: set[str]
    """The sessions that were archived or deleted."""

    @property
    def done(self) -> str:
        """The action that would be undone; "" for nothing."""

    async def act(self, choice: Picked) -> str:
        """Carry out one of AT_ONCE; return a sentence about it, "" if `done` says it."""


class PickerSource:
    """Supplies the sessions. With only their lines, none changes, and none is found by its text."""

    def lines(self) -> AsyncIterator[Sequence[PickerLine]]:
        """Yield all sessions, some at a time; within a group, in display order."""
        raise NotImplementedError

    async def search(self, words: str) -> tuple[Sequence[PickerLine], str]:
        """Return the sessions whose text has these words, or most of them, and in that case which
        are left out."""
        return (), ""

    async def endings(self, session_ids: Sequence[str]) -> dict[str, str]:
        """Return the last words of sessions."""
        return {}

    async def preview(self, session_id: str, seq: int) -> Sequence[str]:
        """Return the last lines of a conversation; with `seq`, lines from that entry on."""
        return ["Only the agent knows what was said in this session."]

    async def changes(self) -> AsyncIterator[PickerNews]:
        """Yield the newest sessions, then changes, until closed."""
        return
        yield


class Picker:
    """The picker; see the module. `does` describes Enter; with `acts` there are more keys.

    It begins `at` a session, with those `selected`. `read` shows all of one; the picker is off the
    terminal meanwhile.
    """

    def __init__(
        self,
        source: PickerSource,
        *,
        words: str = "",
        does: str = "continues",
        acts: ActsOnSessions | None = None,
        at: str = "",
        selected: Sequence[str] = (),
        read: Callable[[str], Awaitable[object]] | None = None,
    ) -> None:
        self._source = source
        self._acts = acts
        self._read_all = read
        self._lines = PickerLines(words, set() if acts is None else acts.hidden)
        output = open_output(sys.__stdout__)  # even if stdout is paged
        undoable = None if acts is None else lambda: acts.done
        self.page = PickerPage(
            self._lines, output, does, undoable, reads=read is not None, at=at, selected=selected
        )
        self.words = Buffer(
            document=Document(words),
            multiline=False,
            on_text_changed=lambda _: self._filter(),
        )
        self.is_entered = False  # Enter was pressed before there was anything to open
        self._work = TaskSet()
        self._reading: asyncio.Task[None] | None = None
        self._ending: asyncio.Task[None] | None = None
        self._searching: asyncio.Task[None] | None = None
        self._undoing: asyncio.Task[None] | None = None
        self._acting = asyncio.Lock()
        self._app: Application[Picked | None] = Application(
            self._layout(),
            key_bindings=self._keys(),
            style=STYLE,
            erase_when_done=True,
            output=output,
        )

    async def run(self) -> Picked | None:
        """Return the person's choice, or None. Never raises KeyboardInterrupt or EOFError."""
        output = self._app.output
        with self._app.input.raw_mode():  # from here on, no key is echoed
            output.write_raw("\r")  # over those that were
            output.erase_end_of_line()
            output.flush()
            self._begin(self._read())
            try:
                return await self._app.run_async(pre_run=self._filter)
            finally:
                await self._work.aclose()

    def _begin(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        """Do work beside the list; the picker ends with its error."""

        def over(task: asyncio.Task[None]) -> None:
            error = None if task.cancelled() else task.exception()
            if error is not None and self._app.is_running and not self._app.is_done:
                self._app.exit(exception=error)

        task = self._work.start(work, "picker")
        task.add_done_callback(over)
        return task

    # -- what the source has ------------------------------------------------------------------

    async def _read(self) -> None:
        """Read all sessions, then follow them."""
        async for lines in self._source.lines():
            self._lines.add(lines)
            self._show()
            await asyncio.sleep(0)  # handle keys before the other lines
        self._lines.is_read = True
        self._show()
        if self.is_entered and self.page.current is not None and not self._app.is_done:
            self._leave(Picked(self.page.current.session_id, "open"))
        with suppress(AcpError):  # the list stays as it is
            async for news in self._source.changes():
                self.page.stale.update(self._lines.take(news))
                self._show()

    def _filter(self) -> None:
        """Filter by the words again; the selection starts at the top."""
        self._lines.seek(words := self.words.text)
        self.page.notice = ""
        self.is_entered = False
        if self._searching is not None:
            self._searching.cancel()
        if self._app.is_running and words.strip():
            self._searching = self._begin(self._look_for(words))
        self.page.begin()
        self._read_ends()

    async def _look_for(self, words: str) -> None:
        await asyncio.sleep(bounds.SEARCH_PAUSE_SECONDS)
        words = self._lines.text_words(words)
        self._lines.hits, self._lines.left_out = await self._source.search(words)
        self._show()

    def _show(self) -> None:
        """Show the lines as they are by now."""
        self.page.fit()
        self._read_ends()

    def _read_ends(self) -> None:
        """Have read what is to be shown: the last words of the lines on the screen, and the end of
        the current session, or what was found in it."""
        self._app.invalidate()
        page, current = self.page, self.page.current
        if current is None or not self._app.is_running:
            return
        if self._ending is None or self._ending.done():
            self._ending = self._begin(self._read_last_words())
        if page.shows_preview and (page.preview is None or page.preview[0] != current):
            if self._reading is not None:
                self._reading.cancel()
            self._reading = self._begin(self._read_end(current))

    async def _read_last_words(self) -> None:
        while ids := self.page.unread:
            self.page.stale.difference_update(ids)
            found = await self._source.endings(ids)
            self.page.said |= {session_id: found.get(session_id, "") for session_id in ids}
            self._app.invalidate()

    async def _read_end(self, line: PickerLine) -> None:
        lines = await self._source.preview(line.session_id, line.seq)
        if self.page.current == line:
            self.page.preview = line, lines
            self._app.invalidate()

    # -- what the person does -----------------------------------------------------------------

    def _act(self, event: KeyPressEvent, action: str) -> None:
        """Leave with the choice of an action, or carry it out, if that asks nothing."""
        page = self.page
        if (undoing := self._undoing) is not None and not undoing.done():
            # What comes back is what the next key is for.
            self._begin(self._act_after(undoing, event, action))
            return
        if page.current is None:
            self.is_entered = action == "open" and not self._lines.is_read
            return
        several = [*page.selected] if action in FOR_SEVERAL else []
        first, *others = several or [page.current.session_id]
        choice = Picked(first, action, tuple(others))
        if action not in AT_ONCE:
            at = "" if action == "open" else page.current.session_id
            self._leave(choice._replace(at=at))
            return
        if action in ("archive", "delete"):
            page.hide((first, *others))
            self._show()
        if action in FOR_SEVERAL:
            page.selected.clear()
        self._begin(self._carry_out(choice))

    async def _act_after(
        self, undoing: asyncio.Task[None], event: KeyPressEvent, action: str
    ) -> None:
        await asyncio.wait({undoing})
        self._act(event, action)

    def _leave(self, choice: Picked) -> None:
        """End with a choice, and what the list has to begin with again."""
        kept = (*self.page.selected,)
        self._app.exit(result=choice._replace(words=self.words.text, selected=kept))

    async def _carry_out(self, choice: Picked) -> None:
        """Carry out one of AT_ONCE; after an undo, go to what came back."""
        assert self._acts is not None
        async with self._acting:
            hidden = {*self._lines.hidden}
            try:
                self.page.notice = await self._acts.act(choice)
            except (AcpError, OSError) as error:
                self.page.notice = on_one_line(str(error))
                self._lines.hidden -= {choice.session_id, *choice.others}
        self._lines.fit()
        if choice.action == "undo":
            self.page.go_to(hidden - self._lines.hidden)
        self._show()

    async def _read_whole(self, session_id: str) -> None:
        assert self._read_all is not None
        async with in_terminal():
            await self._read_all(session_id)

    # -- keys ---------------------------------------------------------------------------------

    def _keys(self) -> KeyBindingsBase:
        keys, back, page = KeyBindings(), KeyBindings(), self.page

        @keys.add("?", filter=Condition(lambda: not self.words.text))
        @keys.add("f1")
        def _(_: KeyPressEvent) -> None:
            page.helps = True

        helps = Condition(lambda: page.helps)

        @back.add(Keys.Any, filter=helps, eager=True)
        def _(_: KeyPressEvent) -> None:
            page.helps = False

        def move(step: Callable[[], int]) -> Callable[[KeyPressEvent], None]:
            def move(_: KeyPressEvent) -> None:
                self.is_entered = False
                page.stay()
                page.move(step())
                self._read_ends()

            return move

        for key, step in (("up", -1), ("c-p", -1), ("down", 1), ("c-n", 1)):
            keys.add(key)(move(lambda step=step: step))  # type: ignore[misc]
        keys.add("pageup")(move(lambda: -(page.height // 2)))
        keys.add("pagedown")(move(lambda: page.height // 2))
        keys.add("home")(move(lambda: -len(page.shown)))
        keys.add("end")(move(lambda: len(page.shown)))

        @keys.add("escape", eager=True)
        def _(event: KeyPressEvent) -> None:
            if self.words.text:
                self.words.text = ""
            else:
                event.app.exit(result=None)

        @keys.add("c-c")
        @keys.add("c-d")
        @keys.add("<sigint>")
        def _(event: KeyPressEvent) -> None:
            event.app.exit(result=None)

        @keys.add("c-o", filter=Condition(lambda: self._read_all is not None))
        def _(_: KeyPressEvent) -> None:
            if page.current is not None:
                self._begin(self._read_whole(page.current.session_id))

        @keys.add("tab")
        def _(_: KeyPressEvent) -> None:
            page.wants_preview = not page.shows_preview
            self._read_ends()

        @keys.add("c-a")
        def _(_: KeyPressEvent) -> None:
            self._lines.all_folders = not self._lines.all_folders
            self._filter()

        @keys.add("c-g")
        def _(_: KeyPressEvent) -> None:
            self._lines.with_programs = not self._lines.with_programs
            self._filter()

        keys.add("enter")(partial(self._act, action="open"))
        if self._acts is not None:
            keys.add("c-s")(lambda _: page.select())

            @keys.add("c-z")
            def _(_: KeyPressEvent) -> None:
                self._undoing = self._begin(self._carry_out(Picked("", "undo")))

            for pressed, named in ACTIONS.items():  # eager: ^X begins keys of editing, too
                keys.add(pressed, eager=True)(partial(self._act, action=named[0]))
        return merge_key_bindings([ConditionalKeyBindings(keys, ~helps), back])

    # -- the screen ---------------------------------------------------------------------------

    def _layout(self) -> Layout:
        page, preview = self.page, FormattedTextControl(self.page.preview_text)
        typed = VSplit(
            [
                Window(FormattedTextControl([("class:mark", f"{MARK} ")]), width=2, height=1),
                Window(BufferControl(self.words), height=1),
                Window(FormattedTextControl(page.count), height=1, width=36, align="RIGHT"),  # type: ignore[arg-type]
            ]
        )
        listed = Window(
            FormattedTextControl(page.list_text),
            width=lambda: Dimension.exact(page.width),
            dont_extend_height=True,
        )
        beside = ConditionalContainer(
            VSplit(
                [
                    Window(width=1, char="│", style="class:heading"),
                    Window(preview, dont_extend_height=True),
                ]
            ),
            Condition(lambda: page.is_beside),
        )
        below = ConditionalContainer(
            Window(preview, height=Dimension(max=PREVIEW_HEIGHT), dont_extend_height=True),
            Condition(lambda: page.is_below),
        )
        hints = Window(FormattedTextControl(lambda: page.hints(self.words.text)), height=1)
        return Layout(HSplit([typed, VSplit([listed, beside]), below, hints]))
