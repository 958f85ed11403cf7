"""A list of sessions on a terminal, to choose one from; beside it, if it is wide, the end of one.

Typed words filter it, by title, agent and folder; sessions with these words in their text follow.
The list can be used while it is still loading, even with a hundred thousand sessions. It leaves
nothing on the terminal.
"""

from __future__ import annotations

import asyncio
import re
import sys
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Final, NamedTuple, Protocol

from prompt_toolkit.application import Application, get_app, in_terminal
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.document import Document
from prompt_toolkit.filters import Condition
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.formatted_text.utils import fragment_list_width
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
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
from acphold.faces.screen import bounds
from acphold.faces.screen.layout import MARK
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
        "agent": "ansigreen",
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
    "c-f": ("copy", "^F copy"),
}
"""Other actions on a session: by key, with their name and their text in the last line."""


class PickerLine(NamedTuple):
    """A session in the list. `group` is its heading, lower ones first.

    `excerpt` is the found text, if that is why it is shown.
    """

    session_id: str
    title: str
    state: str
    agent: str
    folder: str
    age: str
    group: int
    excerpt: str = ""

    @property
    def search_text(self) -> str:
        """The text that words are searched in."""
        return f"{self.title}\0{self.agent}\0{self.folder}".casefold()


def end_of(path: str, width: int) -> str:
    """Return a path in so many columns, without its beginning: from a `/` on, if one fits."""
    if cell_len(path) <= width:
        return path
    path = path.rstrip("/")[-width:]  # no more than that fits, however long it is
    fitting = [end for place in range(len(path)) if cell_len(end := path[place:]) < width]
    whole = (end for end in fitting if end.startswith("/"))
    return f"…{next(whole, fitting[0] if fitting else '')}"


TWIN: Final = 16
"""Two titles that begin with as many characters alike are told apart by their ends."""


def shorten(text: str, width: int, *, is_twin: bool) -> str:
    """Return a text in so many columns, cut at its end; that of a twin in its middle."""
    if cell_len(text) <= width:
        return text
    if not is_twin:
        return f"{set_cell_size(text, width - 1)}…"
    tail = next(end for at in range(len(text)) if cell_len(end := text[at:]) <= width // 2)
    tail = tail[tail.find(" ") + 1 :] if " " in tail.rstrip() else tail
    return f"{set_cell_size(text, width - 1 - cell_len(tail)).rstrip()}…{tail}"


def highlight(text: str, words: Sequence[str], style: str) -> StyleAndTextTuples:
    """Return a text with all places of these words (casefolded) marked."""
    folded = text.casefold()
    if not words or len(folded) != len(text):  # places would be wrong
        return [(style, text)]
    pieces: StyleAndTextTuples = []
    end = 0
    for match in re.finditer("|".join(map(re.escape, words)), folded):
        pieces += [(style, text[end : match.start()])]
        pieces += [(f"{style} class:match".strip(), text[match.start() : match.end()])]
        end = match.end()
    return [*pieces, (style, text[end:])]


GROUPS: Final = (
    "waiting for you",
    "running or idle",
    "this folder",
    "other folders",
    "found in the text",
)
WAITS, LIVE, HERE, ELSEWHERE, FOUND = range(len(GROUPS))


class Picked(NamedTuple):
    """The person's choice: `action` is "open" or one of ACTIONS."""

    session_id: str
    action: str


class PickerSource(Protocol):
    """Supplies the sessions."""

    def lines(self) -> AsyncIterator[Sequence[PickerLine]]:
        """Yield all sessions, some at a time; within a group, in display order."""

    async def search(self, words: str) -> Sequence[PickerLine]:
        """Return the sessions whose text has these words."""

    async def preview(self, session_id: str) -> Sequence[str]:
        """Return the last lines of a conversation."""


class Picker:
    """The picker; see the module. `does` describes Enter; with `acts` there are more keys.

    `read` shows all of a session; the picker is off the terminal meanwhile.
    """

    def __init__(
        self,
        source: PickerSource,
        *,
        words: str = "",
        does: str = "continues",
        acts: bool = True,
        read: Callable[[str], Awaitable[object]] | None = None,
    ) -> None:
        self._source = source
        self._does = does
        self._acts = acts
        self._read_all = read
        self._known: list[list[tuple[str, PickerLine]]] = [[] for _ in GROUPS]
        self._fitting: list[list[PickerLine]] = [[] for _ in GROUPS]
        self._hits: Sequence[PickerLine] = ()
        self._shown: list[PickerLine] = []
        self._place = 0
        self._all_folders = True
        self._is_read = False
        self._preview: tuple[str, Sequence[str]] | None = None
        self._wants_preview: bool | None = None  # None: where it stands beside the list
        self._reading: asyncio.Task[None] | None = None
        self._work = TaskSet()
        self._searching: asyncio.Task[None] | None = None
        self._sought = words.casefold().split()
        self._words = Buffer(
            document=Document(words),
            multiline=False,
            on_text_changed=lambda _: self._filter(),
        )
        typed = VSplit(
            [
                Window(FormattedTextControl([("class:mark", f"{MARK} ")]), width=2, height=1),
                Window(BufferControl(self._words), height=1),
                Window(FormattedTextControl(self._count), height=1, width=24, align="RIGHT"),  # type: ignore[arg-type]
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
        self._begin(self._read())
        try:
            return await self._app.run_async(pre_run=self._filter)
        finally:
            await self._work.aclose()

    # -- content -----------------------------------------------------------------------------

    async def _read(self) -> None:
        async for lines in self._source.lines():
            for line in lines:
                known = line.search_text, line
                self._known[line.group].append(known)
                if self._fits(known):
                    self._fitting[line.group].append(line)
            self._show()
            await asyncio.sleep(0)  # handle keys before the other lines
        self._is_read = True
        self._show()

    def _fits(self, known: tuple[str, PickerLine]) -> bool:
        """Return True if the typed words fit a session."""
        searched, line = known
        return all(word in searched or line.session_id.startswith(word) for word in self._sought)

    def _filter(self) -> None:
        """Filter by the words again; the selection starts at the top."""
        self._sought = self._words.text.casefold().split()
        self._fitting = [
            [known[1] for known in group if self._fits(known)] for group in self._known
        ]
        self._hits = ()
        if self._searching is not None:
            self._searching.cancel()
        if self._app.is_running and (words := self._words.text).strip():
            self._searching = self._begin(self._look_for(words))
        self._shown, self._place = [], 0
        self._show()

    def _show(self) -> None:
        """Show what fits; the selection stays on its line, if that is still there."""
        chosen = self._current
        groups = self._fitting if self._all_folders else self._fitting[:ELSEWHERE]
        self._shown = [line for group in groups for line in group]
        if self._hits:  # one may be listed by its title already
            listed = {line.session_id for line in self._shown}
            self._shown += [hit for hit in self._hits if hit.session_id not in listed]
        if chosen is not None:
            with suppress(ValueError):
                self._place = self._shown.index(chosen)
        self._place = max(0, min(self._place, len(self._shown) - 1))
        self._read_end()
        self._app.invalidate()

    def _read_end(self) -> None:
        """Have the end of the selected session read, if it is to be shown."""
        chosen = self._current
        if chosen is None or not self._app.is_running or not self._shows_preview:
            return
        if self._preview is None or self._preview[0] != chosen.session_id:
            if self._reading is not None:
                self._reading.cancel()
            self._reading = self._begin(self._show_end(chosen.session_id))

    async def _look_for(self, words: str) -> None:
        await asyncio.sleep(bounds.SEARCH_PAUSE_SECONDS)
        self._hits = await self._source.search(words)
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

    async def _show_end(self, session_id: str) -> None:
        lines = await self._source.preview(session_id)
        if self._current is not None and self._current.session_id == session_id:
            self._preview = session_id, lines
            self._app.invalidate()

    async def _read_whole(self, session_id: str) -> None:
        assert self._read_all is not None
        async with in_terminal():
            await self._read_all(session_id)

    # -- keys -----------------------------------------------------------------------------

    def _keys(self) -> KeyBindings:
        keys = KeyBindings()

        def move(step: Callable[[], int]) -> Callable[[KeyPressEvent], None]:
            def move(_: KeyPressEvent) -> None:
                self._place = max(0, min(len(self._shown) - 1, self._place + step()))
                self._read_end()

            return move

        for key, step in (("up", -1), ("c-p", -1), ("down", 1), ("c-n", 1)):
            keys.add(key)(move(lambda step=step: step))  # type: ignore[misc]
        keys.add("pageup")(move(lambda: -self._height))
        keys.add("pagedown")(move(lambda: self._height))
        keys.add("home")(move(lambda: -len(self._shown)))
        keys.add("end")(move(lambda: len(self._shown)))

        @keys.add("escape", eager=True)
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
            self._all_folders = not self._all_folders
            self._filter()

        actions = {key: action for key, (action, _) in ACTIONS.items()} if self._acts else {}
        for key, action in {"enter": "open", **actions}.items():

            def act(event: KeyPressEvent, action: str = action) -> None:
                if self._current is not None:
                    event.app.exit(result=Picked(self._current.session_id, action))

            keys.add(key)(act)
        return keys

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
        return self._shows_preview and self._is_wide and bool(self._shown)

    @property
    def _list_width(self) -> int:
        columns = self._app.output.get_size().columns
        return int(columns * LIST_SHARE) if self._is_beside else columns

    def _count(self) -> StyleAndTextTuples:
        known, shown = sum(map(len, self._known)), len(self._shown)
        more = "" if self._is_read else " …"
        return [("class:faint", f"{shown:,} of {max(known, shown):,}{more}")]

    def _list_text(self) -> StyleAndTextTuples:
        """Return the lines around the selected one, with headings between the groups."""
        if not self._shown:
            return [("class:faint", "  no matches" if self._is_read else "  …")]
        width = self._list_width - 1
        room = self._height
        begin = max(0, self._place - room // 2)
        found: list[tuple[int, StyleAndTextTuples]] = []
        numbers = range(begin, min(len(self._shown), begin + 2 * room))
        starts = Counter(self._shown[number].title[:TWIN] for number in numbers)
        for number in numbers:
            line = self._shown[number]
            if number == begin or self._shown[number - 1].group != line.group:
                found.append((-1, [("class:heading", f"  {GROUPS[line.group]}")]))
            is_twin = starts[line.title[:TWIN]] > 1
            drawn = self._line_text(line, width, is_twin, chosen=number == self._place)
            found.append((number, drawn))
        at = next(row for row, (number, _) in enumerate(found) if number == self._place)
        top = max(0, min(at - room // 2, len(found) - room))
        return [piece for _, pieces in found[top : top + room] for piece in (*pieces, ("", "\n"))]

    def _line_text(
        self, line: PickerLine, width: int, is_twin: bool, *, chosen: bool
    ) -> StyleAndTextTuples:
        """Return one line of the list; the title gets the remaining width."""
        right = [("class:waits" if line.group == WAITS else "class:state", line.state)]
        if width >= 56:
            right.append(("class:agent", f"{line.agent[:12]:<8}"))
            right.append(
                ("class:faint", set_cell_size(end_of(line.folder, width // 4), width // 4))
            )
        right.append(("class:faint", f"{line.age:>4}"))
        beside: StyleAndTextTuples = []
        for style, text in right:
            if text:
                beside += [("", "  "), (style, text)]
        room = max(8, width - 2 - fragment_list_width(beside))
        text = f"{line.title}: {line.excerpt}" if line.excerpt else line.title
        title = set_cell_size(shorten(text, room, is_twin=is_twin and not line.excerpt), room)
        style = "class:chosen" if chosen else ""
        mark = ("class:mark", f"{MARK} ") if chosen else ("", "  ")
        return [mark, *highlight(title, self._sought, style), *beside]

    def _preview_text(self) -> StyleAndTextTuples:
        chosen, (found, lines) = self._current, self._preview or ("", ())
        if chosen is None or chosen.session_id != found:
            lines = ()
        columns = get_app().output.get_size().columns
        if self._is_beside:
            width = columns - self._list_width - 3
            cut = [piece for line in lines for piece in Text(line).wrap(WRAPPING, width)]
            rows = [piece.plain.rstrip() for piece in cut[-self._height :]]
            return [("", "\n".join(f" {row}" for row in rows))]
        width = columns - 1
        ends = [set_cell_size(line, width).rstrip() for line in lines[1 - PREVIEW_HEIGHT :]]
        return [("class:heading", "─" * width), ("", "\n" + "\n".join(ends))]

    def _hints(self) -> StyleAndTextTuples:
        hints = []
        if self._current is not None:  # before that, these keys do nothing
            hints += [f"Enter {self._does}", *(["^O reads it"] if self._read_all else [])]
            hints += ["Tab preview"]
        if self._acts and hints:
            hints += [words for _, words in ACTIONS.values()]
        hints += ["^A all folders" if not self._all_folders else "^A this folder", "Esc leaves"]
        width = get_app().output.get_size().columns - 1
        while len(hints) > 2 and len(" · ".join(hints)) > width:
            del hints[-2]
        return [("class:faint", " · ".join(hints))]
