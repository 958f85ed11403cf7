"""A list of sessions on a terminal, to choose one from; beside it, if it is wide, what was said in
one: its end, or the place that was found.

A session has two lines, its title and its last words. Typed words filter it, by title, agent and
folder; sessions with these words in their text follow. The list can be used while it is still
loading, even with a hundred thousand sessions: last words are read of what is on the screen. Those
of programs are counted, and shown to whoever asks for them or searches. It follows the sessions as
they change, and leaves nothing on the terminal.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from functools import partial
from typing import Final, NamedTuple, Protocol

from prompt_toolkit.application import Application, get_app, in_terminal
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.document import Document
from prompt_toolkit.filters import Condition
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.formatted_text.utils import fragment_list_width
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
from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.text import Text

from acp_wire.tasks import TaskSet
from acphold.conversation.history.titles import words_below
from acphold.conversation.presentation.visible_text import local, on_one_line
from acphold.errors import AcpError
from acphold.faces.screen import bounds
from acphold.faces.screen.layout import MARK
from acphold.faces.screen.picker_lines import (
    FOUND,
    GROUPS,
    WAITS,
    PickerLine,
    PickerLines,
    PickerNews,
)
from acphold.faces.screen.picker_texts import AgentLetters, end_of, highlight, shorten
from acphold.faces.screen.terminal import open_output

PREVIEW_HEIGHT: Final = 10

WRAPPING: Final = Console()
"""A console by whose rules lines are wrapped; it prints nothing."""

WIDE: Final = 100
"""From so many columns on, the end of the selected session stands beside the list."""

LIST_SHARE: Final = 0.6
"""The list's share of the columns then."""

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

ACTIONS: Final = {
    "c-r": ("rename", "^R rename"),
    "c-x": ("archive", "^X archive"),
    "delete": ("delete", "Del delete"),
    "c-e": ("export", "^E export"),
    "c-t": ("tag", "^T tag"),
    "c-b": ("pin", "^B pin"),
    "c-f": ("copy", "^F continue in a copy"),
}
"""Other actions on a session: by key, with their name and their text in the last line."""

FOR_SEVERAL: Final = ("archive", "delete", "tag", "pin")
"""Those for all that are selected."""

AT_ONCE: Final = ("archive", "delete", "export", "pin", "undo")
"""Those that ask nothing: the list stays on the terminal."""

KEYS: Final = (
    ("words", "filter by title, agent, folder and #tag, then by what was said"),
    ("Up Down", "move; also PgUp, PgDn, Home and End"),
    ("Enter", "{does}"),
    ("Tab", "shows or hides the end of the conversation"),
    ("^O", "reads all of it; q goes back"),
    ("^A", "this folder only, or all"),
    ("^G", "also sessions that only scripts and other programs prompted, or not"),
    ("^S", "selects it, or not; the next ^X, ^T, ^B or Del is for all selected"),
    ("^R ^T ^B", "rename it, tag it, pin it or take it down"),
    ("^X Del", "archive it (hidden, nothing is lost), delete it when you leave"),
    ("^Z", "undoes the last of these, then the one before"),
    ("^E", "writes it to a file in this folder"),
    ("^F", "continues in a copy, with this agent or another"),
    ("Esc", "clears the words, then leaves; also ^C"),
    ("? F1", "these keys; ? while there are no words"),
)
"""The keys with what they do."""

OF_ACTIONS: Final = ("^S", "^R ^T ^B", "^X Del", "^Z", "^E", "^F")
"""Those that are there for actions only."""


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


class PickerSource(Protocol):
    """Supplies the sessions."""

    def lines(self) -> AsyncIterator[Sequence[PickerLine]]:
        """Yield all sessions, some at a time; within a group, in display order."""

    async def search(self, words: str) -> tuple[Sequence[PickerLine], str]:
        """Return the sessions whose text has these words, or most of them, and in that case which
        are left out."""

    async def endings(self, session_ids: Sequence[str]) -> dict[str, str]:
        """Return the last words of sessions."""

    async def preview(self, session_id: str, seq: int) -> Sequence[str]:
        """Return the last lines of a conversation; with `seq`, lines from that entry on."""

    def changes(self) -> AsyncIterator[PickerNews]:
        """Yield the newest sessions, then changes, until closed."""


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
        self._at = at
        self._lines = PickerLines(words, set() if acts is None else acts.hidden)
        self._acting = asyncio.Lock()
        self._notice = ""
        self._helps = False
        self._selected = dict.fromkeys(selected)
        self._undoing: asyncio.Task[None] | None = None
        self._is_entered = False  # Enter was pressed before there was anything to open
        self._does = does
        self._acts = acts
        self._read_all = read
        self._shown: list[PickerLine] = []
        self._place = 0
        self._said: dict[str, str] = {}
        self._stale = set[str]()  # those of `_said` that may have changed
        self._letters = AgentLetters()
        self._preview: tuple[PickerLine, Sequence[str]] | None = None
        self._wants_preview: bool | None = None  # None: where it stands beside the list
        self._reading: asyncio.Task[None] | None = None
        self._ending: asyncio.Task[None] | None = None
        self._work = TaskSet()
        self._searching: asyncio.Task[None] | None = None
        self._words = Buffer(
            document=Document(words),
            multiline=False,
            on_text_changed=lambda _: self._filter(),
        )
        typed = VSplit(
            [
                Window(FormattedTextControl([("class:mark", f"{MARK} ")]), width=2, height=1),
                Window(BufferControl(self._words), height=1),
                Window(FormattedTextControl(self._count), height=1, width=36, align="RIGHT"),  # type: ignore[arg-type]
            ]
        )
        listed = Window(
            FormattedTextControl(self._list_text),
            width=lambda: Dimension.exact(self._list_width),
            dont_extend_height=True,
        )
        beside = ConditionalContainer(
            VSplit(
                [
                    Window(width=1, char="│", style="class:heading"),
                    Window(FormattedTextControl(self._preview_text), dont_extend_height=True),
                ]
            ),
            Condition(lambda: self._is_beside),
        )
        below = ConditionalContainer(
            Window(
                FormattedTextControl(self._preview_text),
                height=Dimension(max=PREVIEW_HEIGHT),
                dont_extend_height=True,
            ),
            Condition(lambda: self._shows_preview and not self._is_wide),
        )
        hints = Window(FormattedTextControl(self._hints), height=1)
        self._app: Application[Picked | None] = Application(
            Layout(HSplit([typed, VSplit([listed, beside]), below, hints])),
            key_bindings=self._keys(),
            style=STYLE,
            erase_when_done=True,
            output=open_output(sys.__stdout__),  # even if stdout is paged
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

    # -- content -----------------------------------------------------------------------------

    async def _read(self) -> None:
        async for lines in self._source.lines():
            self._lines.add(lines)
            self._show()
            await asyncio.sleep(0)  # handle keys before the other lines
        self._lines.is_read = True
        self._show()
        if self._is_entered and self._current is not None and not self._app.is_done:
            self._leave(Picked(self._current.session_id, "open"))
        with suppress(AcpError):  # the list stays as it is
            async for news in self._source.changes():
                self._stale.update(self._lines.take(news))
                self._show()

    def _filter(self) -> None:
        """Filter by the words again; the selection starts at the top."""
        self._lines.seek(self._words.text)
        self._notice = ""
        self._is_entered = False
        if self._searching is not None:
            self._searching.cancel()
        if self._app.is_running and (words := self._words.text).strip():
            self._searching = self._begin(self._look_for(words))
        self._shown, self._place = [], 0
        self._show()

    def _show(self) -> None:
        """Show what fits; the selection stays on its line, if that is still there."""
        chosen = self._at or (self._current.session_id if self._current else "")
        self._shown = self._lines.shown
        if chosen:
            places = (n for n, line in enumerate(self._shown) if line.session_id == chosen)
            self._place = next(places, self._place)
            self._at = "" if self._current and self._current.session_id == chosen else self._at
        self._place = max(0, min(self._place, len(self._shown) - 1))
        self._read_end()
        self._app.invalidate()

    def _read_end(self) -> None:
        """Have read what is to be shown: the last words of the lines on the screen, and the end of
        the selected session, or what was found in it."""
        chosen = self._current
        if chosen is None or not self._app.is_running:
            return
        if self._ending is None or self._ending.done():
            self._ending = self._begin(self._read_endings())
        if self._shows_preview and (self._preview is None or self._preview[0] != chosen):
            if self._reading is not None:
                self._reading.cancel()
            self._reading = self._begin(self._show_end(chosen))

    async def _read_endings(self) -> None:
        while ids := [
            line.session_id
            for line in (self._shown[number] for number in self._numbers)
            if line.said is None
            and (line.session_id not in self._said or line.session_id in self._stale)
        ]:
            self._stale.difference_update(ids)
            found = await self._source.endings(ids)
            self._said |= {session_id: found.get(session_id, "") for session_id in ids}
            self._app.invalidate()

    async def _look_for(self, words: str) -> None:
        await asyncio.sleep(bounds.SEARCH_PAUSE_SECONDS)
        words = self._lines.text_words(words)
        self._lines.hits, self._lines.left_out = await self._source.search(words)
        self._show()

    @property
    def _current(self) -> PickerLine | None:
        return self._shown[self._place] if self._place < len(self._shown) else None

    def _begin(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        def over(task: asyncio.Task[None]) -> None:
            error = None if task.cancelled() else task.exception()
            if error is not None and self._app.is_running and not self._app.is_done:
                self._app.exit(exception=error)

        task = self._work.start(work, "picker")
        task.add_done_callback(over)
        return task

    async def _show_end(self, line: PickerLine) -> None:
        lines = await self._source.preview(line.session_id, line.seq)
        if self._current == line:
            self._preview = line, lines
            self._app.invalidate()

    def _act(self, choice: Picked) -> None:
        """Carry out one of AT_ONCE. What is archived or deleted leaves the list at once, so that
        the next key is for the next session."""
        if choice.action in ("archive", "delete"):
            self._lines.hidden |= {choice.session_id, *choice.others}
            below = (it.session_id for it in self._shown[self._place :])
            self._at = next((it for it in below if it not in self._lines.hidden), "")
            self._lines.fit()
            self._show()
        if choice.action in FOR_SEVERAL:
            self._selected.clear()
        self._begin(self._carry_out(choice))

    def _leave(self, choice: Picked) -> None:
        """End with a choice, and what the list has to begin with again."""
        kept = (*self._selected,)
        self._app.exit(result=choice._replace(words=self._words.text, selected=kept))

    def _undo(self) -> None:
        self._undoing = self._begin(self._carry_out(Picked("", "undo")))

    async def _carry_out(self, choice: Picked) -> None:
        assert self._acts is not None
        async with self._acting:
            hidden = {*self._lines.hidden}
            try:
                self._notice = await self._acts.act(choice)
            except (AcpError, OSError) as error:
                self._notice = on_one_line(str(error))
                self._lines.hidden -= {choice.session_id, *choice.others}
        self._lines.fit()
        if choice.action == "undo":  # to what came back
            back = hidden - self._lines.hidden
            ids = (line.session_id for line in self._lines.shown)
            self._at = next((it for it in ids if it in back), self._at)
        self._show()

    async def _read_whole(self, session_id: str) -> None:
        assert self._read_all is not None
        async with in_terminal():
            await self._read_all(session_id)

    # -- keys -----------------------------------------------------------------------------

    def _keys(self) -> KeyBindingsBase:
        keys, back = KeyBindings(), KeyBindings()

        @keys.add("?", filter=Condition(lambda: not self._words.text))
        @keys.add("f1")
        def _(_: KeyPressEvent) -> None:
            self._helps = True

        helps = Condition(lambda: self._helps)

        @back.add(Keys.Any, filter=helps, eager=True)
        def _(_: KeyPressEvent) -> None:
            self._helps = False

        def move(step: Callable[[], int]) -> Callable[[KeyPressEvent], None]:
            def move(_: KeyPressEvent) -> None:
                self._at, self._is_entered = "", False
                self._place = max(0, min(len(self._shown) - 1, self._place + step()))
                self._read_end()

            return move

        for key, step in (("up", -1), ("c-p", -1), ("down", 1), ("c-n", 1)):
            keys.add(key)(move(lambda step=step: step))  # type: ignore[misc]
        keys.add("pageup")(move(lambda: -(self._height // 2)))
        keys.add("pagedown")(move(lambda: self._height // 2))
        keys.add("home")(move(lambda: -len(self._shown)))
        keys.add("end")(move(lambda: len(self._shown)))

        @keys.add("escape", eager=True)
        def _(event: KeyPressEvent) -> None:
            if self._words.text:
                self._words.text = ""
            else:
                event.app.exit(result=None)

        @keys.add("c-c")
        @keys.add("c-d")
        @keys.add("<sigint>")
        def _(event: KeyPressEvent) -> None:
            event.app.exit(result=None)

        @keys.add("c-o", filter=Condition(lambda: self._read_all is not None))
        def _(_: KeyPressEvent) -> None:
            if self._current is not None:
                self._begin(self._read_whole(self._current.session_id))

        @keys.add("tab")
        def _(_: KeyPressEvent) -> None:
            self._wants_preview = not self._shows_preview
            self._read_end()

        @keys.add("c-a")
        def _(_: KeyPressEvent) -> None:
            self._lines.all_folders = not self._lines.all_folders
            self._filter()

        @keys.add("c-g")
        def _(_: KeyPressEvent) -> None:
            self._lines.with_programs = not self._lines.with_programs
            self._filter()

        @keys.add("c-s", filter=Condition(lambda: self._acts is not None))
        def _(_: KeyPressEvent) -> None:
            if self._current is not None:
                chosen = self._current.session_id
                if chosen in self._selected:
                    del self._selected[chosen]
                else:
                    self._selected[chosen] = None

        async def act_then(event: KeyPressEvent, action: str, before: asyncio.Task[None]) -> None:
            await asyncio.wait({before})
            act(event, action)

        def act(event: KeyPressEvent, action: str) -> None:
            if (undoing := self._undoing) is not None and not undoing.done():
                # What comes back is what the next key is for.
                self._begin(act_then(event, action, undoing))
                return
            if self._current is None:
                self._is_entered = action == "open" and not self._lines.is_read
                return
            several = [*self._selected] if action in FOR_SEVERAL else []
            first, *others = several or [self._current.session_id]
            choice = Picked(first, action, tuple(others))
            if action in AT_ONCE:
                self._act(choice)
            else:
                at = "" if action == "open" else self._current.session_id
                self._leave(choice._replace(at=at))

        keys.add("enter")(partial(act, action="open"))
        if self._acts is not None:
            keys.add("c-z")(lambda _: self._undo())
            for pressed, named in ACTIONS.items():  # eager: ^X begins keys of editing, too
                keys.add(pressed, eager=True)(partial(act, action=named[0]))
        return merge_key_bindings([ConditionalKeyBindings(keys, ~helps), back])

    # -- the screen -----------------------------------------------------------------------

    @property
    def _height(self) -> int:
        """Lines of the list that fit on the terminal."""
        rows = self._app.output.get_size().rows - 3
        if self._shows_preview and not self._is_wide:
            rows -= PREVIEW_HEIGHT
        return max(3, rows)

    @property
    def _is_wide(self) -> bool:
        return self._app.output.get_size().columns >= WIDE

    @property
    def _shows_preview(self) -> bool:
        return self._is_wide if self._wants_preview is None else self._wants_preview

    @property
    def _is_beside(self) -> bool:
        is_shown = self._shows_preview and bool(self._shown) and not self._helps
        return is_shown and self._is_wide

    @property
    def _list_width(self) -> int:
        columns = self._app.output.get_size().columns
        return int(columns * LIST_SHARE) if self._is_beside else columns

    def _count(self) -> StyleAndTextTuples:
        (known, programs), shown = self._lines.counts, len(self._shown)
        more = "" if self._lines.is_read else " …"
        if programs:
            more = f" · {programs:,} by programs: ^G{more}"
        if self._selected:
            more = f" · {len(self._selected):,} selected"
        return [("class:faint", f"{shown:,} of {max(known, shown):,}{more}")]

    @property
    def _numbers(self) -> range:
        """The lines around the selected one, of which some are on the screen."""
        room = self._height
        return range(max(0, self._place - room // 2), min(len(self._shown), self._place + room))

    def _list_text(self) -> StyleAndTextTuples:
        """Return the lines around the selected one, with headings between the groups."""
        if self._helps:
            return self._help_text()
        if not self._shown:
            return [("class:faint", "  no matches" if self._lines.is_read else "  …")]
        width, room = self._list_width - 1, self._height
        rows: list[StyleAndTextTuples] = []
        at = 0
        for number in self._numbers:
            line = self._shown[number]
            if number == self._numbers.start or self._shown[number - 1].group != line.group:
                rows.append([("class:heading", f"  {GROUPS[line.group]}")])
                if line.group == FOUND and self._lines.left_out:
                    lacking = Text(self._lines.left_out).wrap(WRAPPING, width - 4)
                    rows += [[("class:state", f"    {it.plain.rstrip()}")] for it in lacking]
            if number == self._place:
                at = len(rows)
            rows.append(self._title_row(line, width, chosen=number == self._place))
            if below := self._row_below(line, width):
                rows.append(below)
        top = max(0, min(at - room // 2, len(rows) - room))
        return [piece for row in rows[top : top + room] for piece in (*row, ("", "\n"))]

    def _title_row(self, line: PickerLine, width: int, *, chosen: bool) -> StyleAndTextTuples:
        """Return the first row of a session; the title gets what state and age leave."""
        beside: StyleAndTextTuples = [("", "  "), ("class:faint", f"{line.age:>4}")]
        if line.state:
            state = "class:waits" if line.group == WAITS else "class:state"
            beside = [("", "  "), (state, line.state), *beside]
        room = max(8, width - 5 - fragment_list_width(beside))
        title = set_cell_size(shorten(line.title, room), room)
        selected = "•" if line.session_id in self._selected else " "
        mark = ("class:mark", f"{MARK if chosen else ' '}{selected}")
        words = highlight(title, self._lines.sought, "class:chosen" if chosen else "")
        return [mark, self._letters.shown(line.agent), *words, *beside]

    def _row_below(self, line: PickerLine, width: int) -> StyleAndTextTuples:
        """Return the second row: what was found or said last, and the folder if it is another."""
        said = line.said if line.said is not None else self._said.get(line.session_id, " ")
        place = end_of(line.folder, width // 4) if not line.is_here else ""
        room = max(8, width - 5 - cell_len(place) - 2)
        words = line.excerpt or f"{line.tags} {words_below(said, line.title)}".strip()
        if not words and not place:
            return []
        text = set_cell_size(shorten(words, room), room)
        sought = self._lines.sought if line.excerpt else ()
        found = highlight(text, sought, "class:faint")
        return [("", " " * 5), *found, ("class:faint", f"  {place}" if place else "")]

    def _help_text(self) -> StyleAndTextTuples:
        does = self._does if " " in self._does else f"{self._does} the conversation"
        missing = [] if self._read_all else ["^O"]
        missing += [] if self._acts else OF_ACTIONS
        rows = [(key, words.format(does=does)) for key, words in KEYS if key not in missing]
        text = [
            piece
            for key, words in rows
            for piece in (("class:key", f"  {key:<9}"), ("", f"{words}\n"))
        ]
        return [*text, ("class:faint", "  any key goes back to the list\n")]

    def _preview_text(self) -> StyleAndTextTuples:
        chosen, (found, lines) = self._current, self._preview or (None, ())
        if chosen is None:
            return []
        width = self._app.output.get_size().columns - 1
        height = PREVIEW_HEIGHT - 1
        if self._is_beside:
            width -= self._list_width + 2
            height = self._height
        at = "" if chosen.at is None else local(chosen.at)
        facts = " · ".join(filter(None, (chosen.agent, at, end_of(chosen.folder, width // 2))))
        head = [("bold", shorten(chosen.title, width)), ("class:faint", shorten(facts, width))]
        rows = [
            piece.plain.rstrip()
            for line in (lines if chosen == found else ())
            for piece in Text(line).wrap(WRAPPING, width)
        ]
        height -= len(head) + 1
        begin = max(0, len(rows) - height)
        if chosen.excerpt:  # from the place that was found
            hits = (
                n
                for n, it in enumerate(rows)
                if any(w in it.casefold() for w in self._lines.sought)
            )
            begin = max(0, min(begin, next(hits, 0) - 2))
        indent = " " if self._is_beside else ""
        text: StyleAndTextTuples = [] if indent else [("class:heading", "─" * width + "\n")]
        for style, words in head:
            text.append((style, f"{indent}{words}\n"))
        for row in ("", *rows[begin : begin + height]):
            marks = highlight(row, self._lines.sought if chosen.excerpt else (), "")
            text += [("", indent), *marks, ("", "\n")]
        return text

    def _hints(self) -> StyleAndTextTuples:
        hints = []
        if self._current is not None:  # before that, these keys do nothing
            hints += [f"Enter {self._does}", *(["^O reads it"] if self._read_all else [])]
            hints += ["Tab preview"]
        if self._acts is not None and hints:
            hints += ["^S selects", *(words for _, words in ACTIONS.values())]
        done = "" if self._acts is None else self._acts.done
        if news := self._notice or (done and f"{done}, ^Z undoes"):
            hints[:0] = [news]
        hints += [
            "^A all folders" if not self._lines.all_folders else "^A this folder",
            "F1 keys" if self._words.text else "? keys",
            "Esc clears" if self._words.text else "Esc leaves",
        ]
        width = get_app().output.get_size().columns - 1
        while len(hints) > 3 and len(" · ".join(hints)) > width:
            del hints[-3]
        return [("class:faint", " · ".join(hints))]
