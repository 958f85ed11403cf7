"""The sessions of a picker: by group, filtered by words, and changed as they change."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

GROUPS: Final = (
    "waiting for you",
    "running or idle",
    "pinned",
    "this folder",
    "other folders",
    "by programs",
    "found in the text",
)
WAITS, LIVE, PINNED, HERE, ELSEWHERE, PROGRAMS, FOUND = range(len(GROUPS))


class PickerLine(NamedTuple):
    """A session in the list. `group` is its heading, lower ones first; it was last active `at`
    (ms since the epoch).

    `excerpt` is the found text and `seq` its place, if that is why it is shown. `said` are its last
    words, None if they are still to be read; `is_here` says that its folder is this one.
    `tags` are its tags, each with `#`.
    """

    session_id: str
    title: str
    state: str
    agent: str
    folder: str
    age: str
    group: int
    excerpt: str = ""
    at: int | None = None
    seq: int = 0
    said: str | None = ""
    is_here: bool = False
    tags: str = ""

    @property
    def search_text(self) -> str:
        """The text that words are searched in."""
        return f"{self.title}\0{self.agent}\0{self.folder}\0{self.tags}".casefold()


class PickerNews(NamedTuple):
    """Sessions that are new or changed, and the ids of those that left the list."""

    lines: Sequence[PickerLine]
    gone: Sequence[str]


class PickerLines:
    """The sessions that a picker knows, without those that are `hidden`; see the module."""

    def __init__(self, words: str, hidden: set[str]) -> None:
        self.sought = words.casefold().split()
        self._tagged: set[str] | None = None
        self.hidden = hidden
        self.hits: Sequence[PickerLine] = ()
        self.left_out = ""
        """The words that no hit has."""
        self.all_folders = True
        self.with_programs = False
        self.is_read = False
        """True once the source has yielded all."""
        self._known: list[list[tuple[str, PickerLine]]] = [[] for _ in GROUPS]
        self._fitting: list[list[PickerLine]] = [[] for _ in GROUPS]

    def add(self, lines: Iterable[PickerLine]) -> None:
        """Add sessions below those of their groups."""
        for line in lines:
            known = line.search_text, line
            self._known[line.group].append(known)
            if self._fits(known):
                self._fitting[line.group].append(line)

    def take(self, news: PickerNews) -> list[str]:
        """Take in what has changed: a session that was active goes up in its group, by time. Return
        the ids of those."""
        new = {line.session_id: line for line in news.lines}
        gone = {*news.gone} - self.hidden  # those come back if it is undone
        for number, group in enumerate(self._known):
            left = list[tuple[str, PickerLine]]()
            for known in group:
                line = new.get(known[1].session_id)
                if line is None:
                    left += [known] if known[1].session_id not in gone else []
                elif (line.group, line.at) == (number, known[1].at):
                    left.append((line.search_text, line))
                    del new[line.session_id]
            self._known[number] = left
        for line in sorted(new.values(), key=lambda it: it.at or 0):
            group = self._known[line.group]
            older = (n for n, (_, it) in enumerate(group) if (it.at or 0) <= (line.at or 0))
            group.insert(next(older, len(group)), (line.search_text, line))
        self.fit()
        return [*new]

    def seek(self, words: str) -> None:
        """Filter by other words."""
        self.sought = words.casefold().split()
        self.hits = ()
        self.fit()

    def text_words(self, words: str) -> str:
        """Return the words to look for in the text; those that begin a tag are none of them, and
        what is found has these tags."""
        tags, self._tagged = set[str](), None
        for word in (it for it in self.sought if it.startswith("#")):
            begins = f" {word}"
            lines = (known[1] for group in self._known for known in group)
            if having := {it.session_id for it in lines if begins in f" {it.tags}"}:
                tags.add(word)
                self._tagged = having if self._tagged is None else self._tagged & having
        return " ".join(it for it in words.split() if it.casefold() not in tags)

    def fit(self) -> None:
        """Filter again: others are hidden."""
        self._fitting = [
            [known[1] for known in group if self._fits(known)] for group in self._known
        ]

    def _fits(self, known: tuple[str, PickerLine]) -> bool:
        searched, line = known
        return line.session_id not in self.hidden and all(
            word in searched or line.session_id.startswith(word) for word in self.sought
        )

    @property
    def shown(self) -> list[PickerLine]:
        """The sessions that the words fit, and those that have them in their text."""
        groups = self._fitting[: ELSEWHERE + 1 if self.all_folders else ELSEWHERE]
        if self._shows_programs:
            groups = [*groups, self._fitting[PROGRAMS]]
        shown = [line for group in groups for line in group]
        if self.hits:  # one may be listed by its title already
            listed = {line.session_id for line in shown} | self.hidden
            shown += [
                hit
                for hit in self.hits
                if hit.session_id not in listed
                and (self._tagged is None or hit.session_id in self._tagged)
            ]
        return shown

    @property
    def _shows_programs(self) -> bool:
        """True if those of programs are wanted, or if there are no others."""
        is_all = self.is_read and sum(map(len, self._known)) == len(self._known[PROGRAMS])
        return bool(self.sought) or self.with_programs or is_all

    @property
    def counts(self) -> tuple[int, int]:
        """The number of sessions, and of those of programs that are not among them."""
        numbers = [*map(len, self._known)]
        if self.hidden:
            numbers = [sum(it.session_id not in self.hidden for _, it in of) for of in self._known]
        programs = 0 if self._shows_programs else numbers[PROGRAMS]
        return sum(numbers) - programs, programs
