"""A picker's page: the sessions around the current one; beside them, if the terminal is wide, what
was said in that one: its end, or the place that was found.

A session has two lines, its title and its last words.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.formatted_text.utils import fragment_list_width
from prompt_toolkit.output import Output
from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.text import Text

from acphold.conversation.history.titles import words_below
from acphold.conversation.presentation.visible_text import local
from acphold.faces.screen.layout import MARK
from acphold.faces.screen.picker_lines import FOUND, GROUPS, WAITS, PickerLine, PickerLines
from acphold.faces.screen.picker_texts import AgentLetters, end_of, highlight, shorten

PREVIEW_HEIGHT: Final = 10

WRAPPING: Final = Console()
"""A console by whose rules lines are wrapped; it prints nothing."""

WIDE: Final = 100
"""From so many columns on, the end of the current session stands beside the list."""

LIST_SHARE: Final = 0.6
"""The list's share of the columns then."""

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


class PickerPage:
    """The page of `lines` on a terminal; see the module.

    `does` describes Enter; `undoable` returns the action that would be undone, and is None without
    actions; `reads` says that all of a session can be read. It begins `at` a session, with those
    `selected`.
    """

    def __init__(
        self,
        lines: PickerLines,
        output: Output,
        does: str,
        undoable: Callable[[], str] | None,
        *,
        reads: bool,
        at: str = "",
        selected: Iterable[str] = (),
    ) -> None:
        self.lines = lines
        self._output = output
        self._does = does
        self._undoable = undoable
        self._reads = reads
        self._at = at
        self.selected = dict.fromkeys(selected)
        self.shown: list[PickerLine] = []
        self.place = 0
        self.said: dict[str, str] = {}
        self.stale = set[str]()  # those of `said` that may have changed
        self.preview: tuple[PickerLine, Sequence[str]] | None = None
        self.wants_preview: bool | None = None  # None: where it stands beside the list
        self.notice = ""
        self.helps = False
        self._letters = AgentLetters()

    # -- the current session ------------------------------------------------------------------

    @property
    def current(self) -> PickerLine | None:
        """The session that the keyboard is on."""
        return self.shown[self.place] if self.place < len(self.shown) else None

    def begin(self) -> None:
        """Go to the first session."""
        self.shown, self.place = [], 0
        self.fit()

    def fit(self) -> None:
        """Show the lines as they are by now; the current session stays, if it is still there."""
        current = self._at or (self.current.session_id if self.current else "")
        self.shown = self.lines.shown
        places = (n for n, line in enumerate(self.shown) if line.session_id == current)
        if current and (found := next(places, None)) is not None:
            self.place, self._at = found, ""
        self.move(0)

    def move(self, step: int) -> None:
        """Go so many sessions down."""
        self.place = max(0, min(len(self.shown) - 1, self.place + step))

    def stay(self) -> None:
        """Go to no other session any more, if that is listed later."""
        self._at = ""

    def go_to(self, session_ids: Iterable[str]) -> None:
        """Go to the first listed one of these sessions."""
        ids = {*session_ids}
        listed = (line.session_id for line in self.lines.shown)
        self._at = next((it for it in listed if it in ids), self._at)

    def hide(self, session_ids: Iterable[str]) -> None:
        """Take sessions off the list at once, so that the next key is for the next session."""
        self.lines.hidden.update(session_ids)
        below = (it.session_id for it in self.shown[self.place :])
        self._at = next((it for it in below if it not in self.lines.hidden), "")
        self.lines.fit()

    def select(self) -> None:
        """Select the current session, or no longer."""
        if self.current is not None:
            if (its := self.current.session_id) in self.selected:
                del self.selected[its]
            else:
                self.selected[its] = None

    @property
    def unread(self) -> list[str]:
        """The sessions on the screen whose last words are still to be read."""
        lines = (self.shown[number] for number in self._around)
        return [
            line.session_id
            for line in lines
            if line.said is None
            and (line.session_id not in self.said or line.session_id in self.stale)
        ]

    # -- its size -----------------------------------------------------------------------------

    @property
    def _columns(self) -> int:
        return self._output.get_size().columns

    @property
    def _is_wide(self) -> bool:
        return self._columns >= WIDE

    @property
    def shows_preview(self) -> bool:
        """True if the end of the current session is shown."""
        return self._is_wide if self.wants_preview is None else self.wants_preview

    @property
    def is_below(self) -> bool:
        """True if that is below the list."""
        return self.shows_preview and not self._is_wide

    @property
    def is_beside(self) -> bool:
        """True if that is beside the list."""
        return self.shows_preview and self._is_wide and bool(self.shown) and not self.helps

    @property
    def width(self) -> int:
        """Columns of the list."""
        return int(self._columns * LIST_SHARE) if self.is_beside else self._columns

    @property
    def height(self) -> int:
        """Lines of the list that fit on the terminal."""
        rows = self._output.get_size().rows - 3
        return max(3, rows - PREVIEW_HEIGHT if self.is_below else rows)

    @property
    def _around(self) -> range:
        """The lines around the current one, of which some are on the screen."""
        room = self.height
        return range(max(0, self.place - room // 2), min(len(self.shown), self.place + room))

    # -- its texts, from top to bottom --------------------------------------------------------

    def count(self) -> StyleAndTextTuples:
        """Return how many sessions there are."""
        (known, programs), shown = self.lines.counts, len(self.shown)
        more = "" if self.lines.is_read else " …"
        if programs:
            more = f" · {programs:,} by programs: ^G{more}"
        if self.selected:
            more = f" · {len(self.selected):,} selected"
        return [("class:faint", f"{shown:,} of {max(known, shown):,}{more}")]

    def list_text(self) -> StyleAndTextTuples:
        """Return the lines around the current one, with headings between the groups."""
        if self.helps:
            return self._help_text()
        if not self.shown:
            return [("class:faint", "  no matches" if self.lines.is_read else "  …")]
        width, room = self.width - 1, self.height
        rows: list[StyleAndTextTuples] = []
        at = 0
        for number in (around := self._around):
            line = self.shown[number]
            if number == around.start or self.shown[number - 1].group != line.group:
                rows.append([("class:heading", f"  {GROUPS[line.group]}")])
                if line.group == FOUND and self.lines.left_out:
                    lacking = Text(self.lines.left_out).wrap(WRAPPING, width - 4)
                    rows += [[("class:state", f"    {it.plain.rstrip()}")] for it in lacking]
            if number == self.place:
                at = len(rows)
            rows.append(self._title_row(line, width, is_current=number == self.place))
            if below := self._row_below(line, width):
                rows.append(below)
        top = max(0, min(at - room // 2, len(rows) - room))
        return [piece for row in rows[top : top + room] for piece in (*row, ("", "\n"))]

    def _title_row(self, line: PickerLine, width: int, *, is_current: bool) -> StyleAndTextTuples:
        """Return the first row of a session; the title gets what state and age leave."""
        beside: StyleAndTextTuples = [("", "  "), ("class:faint", f"{line.age:>4}")]
        if line.state:
            state = "class:waits" if line.group == WAITS else "class:state"
            beside = [("", "  "), (state, line.state), *beside]
        room = max(8, width - 5 - fragment_list_width(beside))
        title = set_cell_size(shorten(line.title, room), room)
        selected = "•" if line.session_id in self.selected else " "
        mark = ("class:mark", f"{MARK if is_current else ' '}{selected}")
        words = highlight(title, self.lines.sought, "class:chosen" if is_current else "")
        return [mark, self._letters.shown(line.agent), *words, *beside]

    def _row_below(self, line: PickerLine, width: int) -> StyleAndTextTuples:
        """Return the second row: what was found or said last, and the folder if it is another."""
        said = line.said if line.said is not None else self.said.get(line.session_id, " ")
        place = end_of(line.folder, width // 4) if not line.is_here else ""
        room = max(8, width - 5 - cell_len(place) - 2)
        words = line.excerpt or f"{line.tags} {words_below(said, line.title)}".strip()
        if not words and not place:
            return []
        text = set_cell_size(shorten(words, room), room)
        sought = self.lines.sought if line.excerpt else ()
        found = highlight(text, sought, "class:faint")
        return [("", " " * 5), *found, ("class:faint", f"  {place}" if place else "")]

    def _help_text(self) -> StyleAndTextTuples:
        does = self._does if " " in self._does else f"{self._does} the conversation"
        missing = [] if self._reads else ["^O"]
        missing += [] if self._undoable else OF_ACTIONS
        text = [
            piece
            for key, words in KEYS
            if key not in missing
            for piece in (("class:key", f"  {key:<9}"), ("", f"{words.format(does=does)}\n"))
        ]
        return [*text, ("class:faint", "  any key goes back to the list\n")]

    def preview_text(self) -> StyleAndTextTuples:
        """Return the end of the current session, or from the place on that was found."""
        chosen, (found, lines) = self.current, self.preview or (None, ())
        if chosen is None:
            return []
        width = self._columns - 1
        height = PREVIEW_HEIGHT - 1
        if self.is_beside:
            width -= self.width + 2
            height = self.height
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
        sought = self.lines.sought if chosen.excerpt else ()
        if chosen.excerpt:
            hits = (n for n, row in enumerate(rows) if any(it in row.casefold() for it in sought))
            begin = max(0, min(begin, next(hits, 0) - 2))
        indent = " " if self.is_beside else ""
        text: StyleAndTextTuples = [] if indent else [("class:heading", "─" * width + "\n")]
        text += [(style, f"{indent}{words}\n") for style, words in head]
        for row in ("", *rows[begin : begin + height]):
            text += [("", indent), *highlight(row, sought, ""), ("", "\n")]
        return text

    def hints(self, words: str) -> StyleAndTextTuples:
        """Return the last line: the news, and keys; so much as fits."""
        hints = []
        if self.current is not None:  # before that, these keys do nothing
            hints += [f"Enter {self._does}", *(["^O reads it"] if self._reads else [])]
            hints += ["Tab preview"]
        if self._undoable is not None and hints:
            hints += ["^S selects", *(words for _, words in ACTIONS.values())]
        done = "" if self._undoable is None else self._undoable()
        if news := self.notice or (done and f"{done}, ^Z undoes"):
            hints[:0] = [news]
        hints += [
            "^A all folders" if not self.lines.all_folders else "^A this folder",
            "F1 keys" if words else "? keys",
            "Esc clears" if words else "Esc leaves",
        ]
        while len(hints) > 3 and len(" · ".join(hints)) > self._columns - 1:
            del hints[-3]
        return [("class:faint", " · ".join(hints))]
