"""The list of sessions: its columns, whatever their texts are, and what is marked in them."""

from __future__ import annotations

import asyncio
import io
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence

import pytest
from prompt_toolkit.application import create_app_session
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.input import PipeInput, create_pipe_input
from rich.cells import cell_len

from acp_wire.tasks import beside
from acphold.faces.screen.picker import Picked, Picker, PickerSource
from acphold.faces.screen.picker_lines import FOUND, HERE, PROGRAMS, WAITS, PickerLine, PickerNews
from acphold.faces.screen.picker_page import PickerPage
from acphold.faces.screen.picker_texts import AgentLetters, end_of, highlight, shorten
from tests.editor import DEADLINE
from tests.watched_processes import until


@pytest.mark.parametrize(
    ("path", "width", "shown"),
    [
        ("~/shop", 14, "~/shop"),
        ("~/work/customers/shop", 14, "…/shop"),
        ("~/work/customers/shop", 16, "…/customers/shop"),
        ("~/work/shop/", 9, "…/shop"),
        ("~/work/shop-of-europe", 9, "…f-europe"),
        ("~/仕事/日本の店", 10, "…/日本の店"),
        ("~/仕事/日本の店", 9, "…日本の店"),
        ("~/仕事/日本の店", 6, "…の店"),
        ("/" * 1_000_000, 9, "…"),
        ("~/仕事", 1, "…"),
    ],
)
def test_a_long_path_loses_its_beginning_and_keeps_its_last_folder(
    path: str, width: int, shown: str
) -> None:
    assert end_of(path, width) == shown
    assert cell_len(shown) <= width


def test_a_long_title_is_cut_at_its_end() -> None:
    assert shorten("Rename the settings", 24) == "Rename the settings"
    assert shorten("Rename the settings in the web application", 24) == "Rename the settings in …"
    assert cell_len(shorten("日本" * 20, 24)) <= 24


def test_the_places_of_the_words_are_marked_whatever_their_case() -> None:
    assert highlight("A Needle, needles", ["needle"], "") == [
        ("", "A "),
        ("class:match", "Needle"),
        ("", ", "),
        ("class:match", "needle"),
        ("", "s"),
    ]
    assert highlight("ẞ needle", ["needle"], "") == [("", "ẞ needle")]


LACKING = "Nothing has “quux”; these have most of the words, in a title, a folder or in a message"
TITLE = "Rename the settings, which were named by somebody else, in all places"


class Sessions(PickerSource):
    """Two sessions of one title, and one with the typed words in its text."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.previewed: list[tuple[str, int]] = []
        self.news = asyncio.Queue[PickerNews]()

    async def lines(self) -> AsyncIterator[Sequence[PickerLine]]:
        yield [
            PickerLine(
                f"s-{end}", TITLE, "done", agent, "/shop", "1 h", HERE, said=None, is_here=True
            )
            for agent, end in (("claude", "web page"), ("codex", "terminal"))
        ]

    async def search(self, words: str) -> tuple[Sequence[PickerLine], str]:
        found = "the words before what was found, and the settings"
        lines = [
            PickerLine(session_id, TITLE, "done", "pi", "/else", "2 h", FOUND, found, seq=7)
            for session_id in ("s-3", "s-terminal")  # that one is listed by its title
        ]
        return lines, LACKING if "quux" in words else ""

    async def endings(self, session_ids: Sequence[str]) -> dict[str, str]:
        self.asked += session_ids
        return {session_id: f"The {session_id[2:]} has it." for session_id in session_ids}

    async def changes(self) -> AsyncIterator[PickerNews]:
        while True:
            yield await self.news.get()

    async def preview(self, session_id: str, seq: int) -> Sequence[str]:
        self.previewed.append((session_id, seq))
        before = [f"line {number}" for number in range(90)]
        return [*before, "its settings", "after them"] if seq else [*before, "its last line"]


class KeyedTerminal:
    """A terminal with keys, at which a person chooses a session."""

    def __init__(self, keys: PipeInput, out: io.StringIO) -> None:
        self.keys = keys
        self.out = out

    def type(self, text: str) -> None:
        self.keys.send_text(text)

    async def shows(self, *texts: str) -> None:
        await until(lambda: all(text in self.out.getvalue() for text in texts))

    async def choose(
        self, picker: Picker, person: Callable[[], Coroutine[None, None, None]]
    ) -> Picked | None:
        """Return the choice of a person who acts so."""
        async with asyncio.timeout(2 * DEADLINE), beside(person(), "person"):
            return await picker.run()


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[KeyedTerminal]:
    monkeypatch.setattr(sys, "__stdout__", out := io.StringIO())
    with create_pipe_input() as keys, create_app_session(input=keys):
        yield KeyedTerminal(keys, out)


def plain(text: StyleAndTextTuples) -> str:
    """Return a text without its styles."""
    return "".join(piece[1] for piece in text)


async def test_sessions_of_one_title_are_told_apart_by_their_last_words(
    terminal: KeyedTerminal,
) -> None:
    picker = Picker(sessions := Sessions())

    async def person() -> None:
        await terminal.shows("this folder", "The web page has it.", "The terminal has it.")
        assert terminal.out.getvalue().startswith("\r")  # over what was echoed before
        assert sorted(sessions.asked) == ["s-terminal", "s-web page"]  # each once
        assert "its last line" not in terminal.out.getvalue()
        assert "/shop" not in terminal.out.getvalue()  # that is this folder
        await terminal.shows("Tab preview")
        terminal.type("\t")
        await terminal.shows("its last line", "claude · /shop")  # below the list: it is narrow
        terminal.type("settings")
        await terminal.shows("found in the text", "the words before what was found", "/else")
        assert plain(picker.page.count()) == "3 of 3"
        terminal.type(" quux")
        # Whole, also where the list is narrower.
        await until(lambda: LACKING in " ".join(plain(picker.page.list_text()).split()))
        terminal.type("\x1b")  # clears what was typed
        await until(lambda: plain(picker.page.count()) == "2 of 2")
        terminal.type("\r")

    assert await terminal.choose(picker, person) == Picked("s-web page", "open")


class TaggedSessions(Sessions):
    """Two sessions, one with a tag; the typed words are in the text of both."""

    async def lines(self) -> AsyncIterator[Sequence[PickerLine]]:
        yield [
            PickerLine(
                "one", "apples", "", "pi", "/shop", "1 h", HERE, tags="#later #needs-review"
            ),
            PickerLine("two", "pears", "", "pi", "/shop", "1 h", HERE),
        ]

    async def search(self, words: str) -> tuple[Sequence[PickerLine], str]:
        self.asked.append(words)
        found = [
            PickerLine(it, it, "", "pi", "/shop", "1 h", FOUND, "the needs")
            for it in ("one", "two")
        ]
        return (found if words else []), ""


async def test_a_tag_finds_its_sessions_alone_and_what_is_no_tag_is_looked_for_in_the_text(
    terminal: KeyedTerminal,
) -> None:
    picker = Picker(sessions := TaggedSessions())

    async def person() -> None:
        for typed, asked, ids in (
            ("#needs", "", ["one"]),
            ("#needs text", "text", ["one"]),
            ("#12", "#12", ["one", "two"]),
        ):
            terminal.type(f"\x15{typed}")
            await until(lambda asked=asked: sessions.asked[-1:] == [asked])  # type: ignore[misc]
            await until(
                lambda ids=ids: [it.session_id for it in picker.page.shown] == ids  # type: ignore[misc]
            )
        terminal.type("\x03")

    assert await terminal.choose(picker, person) is None


def test_two_letters_tell_agents_apart_whoever_comes_first() -> None:
    names = [
        "codex",
        "claude",
        "cline",
        "copilot",
        "cursor",
        "crush",
        "c",
        "cc",
        "クロード",
        "",
        "my-own",
    ]
    one, other = AgentLetters(), AgentLetters()
    letters = [one.of(name) for name in names]
    assert len({*letters}) == len(names)
    assert all(cell_len(it) <= 2 for it in letters)
    assert [other.of(name) for name in names[5::-1]] == letters[5::-1]


class Actions:
    """Notes what is done to sessions; a person archives at their own speed, the journal at its."""

    def __init__(self) -> None:
        self.hidden: set[str] = set()
        self.acted: list[Picked] = []
        self.goes_on = asyncio.Event()
        self.done = ""

    async def act(self, choice: Picked) -> str:
        self.acted.append(choice)
        await self.goes_on.wait()
        if choice.action == "undo":
            self.hidden.clear()
            return "Undone"
        if choice.action == "export":
            raise OSError("the disk is full")
        return ""


async def test_each_key_is_for_the_session_that_the_one_before_has_left_there(
    terminal: KeyedTerminal,
) -> None:
    actions = Actions()
    picker = Picker(Sessions(), acts=actions)

    async def person() -> None:
        await until(lambda: len(picker.page.shown) == 2)
        terminal.type("\x18\x18")
        await until(lambda: plain(picker.page.count()) == "0 of 0")
        actions.goes_on.set()
        await until(lambda: len(actions.acted) == 2)
        assert actions.acted == [
            Picked("s-web page", "archive"),
            Picked("s-terminal", "archive"),
        ]
        terminal.type("\x1a")
        await until(lambda: plain(picker.page.count()) == "2 of 2")
        terminal.type("\x05")
        await until(lambda: plain(picker.page.hints("")).startswith("the disk is full · "))
        terminal.type("\x1b")

    assert await terminal.choose(picker, person) is None


async def test_after_an_undo_the_next_key_is_for_what_came_back(terminal: KeyedTerminal) -> None:
    actions = Actions()
    picker = Picker(Sessions(), acts=actions)

    async def person() -> None:
        await until(lambda: len(picker.page.shown) == 2)
        terminal.type("\x18\x1a\x18")  # all of it while the first is on its way
        actions.goes_on.set()
        await until(lambda: len(actions.acted) == 3)
        terminal.type("\x1b")

    assert await terminal.choose(picker, person) is None
    first = Picked("s-web page", "archive")
    assert actions.acted == [first, Picked("", "undo"), first]


class LateSessions(Sessions):
    """They are there once somebody has waited for them."""

    def __init__(self) -> None:
        super().__init__()
        self.are_there = asyncio.Event()

    async def lines(self) -> AsyncIterator[Sequence[PickerLine]]:
        await self.are_there.wait()
        async for lines in super().lines():
            yield lines


async def test_enter_that_came_before_the_list_opens_the_first_session(
    terminal: KeyedTerminal,
) -> None:
    source = LateSessions()
    picker = Picker(source)

    async def person() -> None:
        terminal.type("\r")
        await until(lambda: picker.is_entered)
        source.are_there.set()

    assert await terminal.choose(picker, person) == Picked("s-web page", "open")


async def test_another_key_behind_an_early_enter_takes_it_back(terminal: KeyedTerminal) -> None:
    source = LateSessions()
    picker = Picker(source)

    async def person() -> None:
        terminal.type("\r")
        await until(lambda: picker.is_entered)
        terminal.type("\x1b[B")
        await until(lambda: not picker.is_entered)
        source.are_there.set()
        await until(lambda: len(picker.page.shown) == 2)
        terminal.type("\x1b")

    assert await terminal.choose(picker, person) is None


async def test_what_is_selected_stays_so_over_an_action_that_asks(terminal: KeyedTerminal) -> None:
    picker = Picker(Sessions(), acts=Actions(), selected=("s-terminal",))

    async def person() -> None:
        await until(lambda: len(picker.page.shown) == 2)
        terminal.type("\x13\x14")  # one more, and tag them

    chosen = await terminal.choose(picker, person)
    assert chosen is not None
    assert (chosen.session_id, chosen.others) == ("s-terminal", ("s-web page",))
    assert chosen.selected == ("s-terminal", "s-web page")


async def test_the_list_follows_the_sessions_and_stays_on_the_selected_one(
    terminal: KeyedTerminal,
) -> None:
    picker = Picker(sessions := Sessions())

    def titles() -> list[str]:
        return [line.title for line in picker.page.shown]

    async def person() -> None:
        await terminal.shows("The terminal has it.")
        terminal.type("\x1b[B")
        old = PickerLine("s-web page", TITLE, "", "claude", "/shop", "1 h", HERE, at=1, said=None)
        new = PickerLine("s-new", "Just begun", "waiting", "pi", "/", "now", WAITS, at=3, said="")
        sessions.news.put_nowait(PickerNews([old, new], []))
        await until(lambda: titles() == ["Just begun", TITLE, TITLE])
        assert picker.page.current is not None
        assert picker.page.current.session_id == "s-terminal"
        await until(lambda: sessions.asked.count("s-web page") == 2)  # its last words may differ
        sessions.news.put_nowait(PickerNews([new._replace(group=HERE, state="")], ["s-web page"]))
        await until(lambda: titles() == ["Just begun", TITLE])
        terminal.type("\r")

    assert await terminal.choose(picker, person) == Picked("s-terminal", "open")


async def test_a_question_mark_shows_the_keys_unless_it_is_a_part_of_the_words(
    terminal: KeyedTerminal,
) -> None:
    picker = Picker(Sessions(), does="watches")

    def shown() -> str:
        return plain(picker.page.list_text())

    async def person() -> None:
        await terminal.shows("? keys")
        terminal.type("?")
        await until(lambda: "watches the conversation" in shown())
        assert not any(it in shown() for it in ("^X", "^O"))  # which do nothing here
        terminal.type("\r")  # goes back, and opens nothing
        await until(lambda: TITLE[:20] in shown())
        terminal.type("why?")
        await until(lambda: picker.words.text == "why?")
        terminal.type("\x1bOP")
        await until(lambda: "watches the conversation" in shown())
        terminal.type("\x03\x03")

    assert await terminal.choose(picker, person) is None


async def test_what_was_found_is_shown_at_its_place(
    terminal: KeyedTerminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PickerPage, "_is_wide", True)
    picker = Picker(sessions := Sessions())

    def rows() -> list[str]:
        return plain(picker.page.preview_text()).splitlines()

    async def person() -> None:
        await until(lambda: any("its last line" in row for row in rows()))
        terminal.type("settings")
        await until(lambda: len(picker.page.shown) == 3)
        terminal.type("\x1b[F")
        await until(lambda: any("its settings" in row for row in rows()))
        assert rows()[:2] == [
            f" {shorten(TITLE, 29)}",
            " pi · /else",
        ]
        assert "after them" in rows()[-1]
        assert sessions.previewed[-1] == ("s-3", 7)
        terminal.type("\x03")

    assert await terminal.choose(picker, person) is None


async def test_all_of_a_session_is_read_with_the_list_as_it_was_afterwards(
    terminal: KeyedTerminal,
) -> None:
    read: list[str] = []

    async def show(session_id: str) -> None:
        read.append(session_id)

    picker = Picker(Sessions(), read=show)

    async def person() -> None:
        await terminal.shows("^O reads it")
        terminal.type("rename\x1b[B\x0f")
        await until(lambda: read == ["s-terminal"])
        terminal.type("\r")

    assert await terminal.choose(picker, person) == Picked("s-terminal", "open", words="rename")


async def test_the_end_beside_the_list_is_broken_between_words(
    terminal: KeyedTerminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    sessions = Sessions()
    words = [f"paragraph{number}" for number in range(40)]

    async def preview(session_id: str, seq: int) -> Sequence[str]:
        return [" ".join(words)]

    monkeypatch.setattr(sessions, "preview", preview)
    monkeypatch.setattr(PickerPage, "_is_wide", True)
    picker = Picker(sessions)

    async def person() -> None:
        await until(lambda: picker.page.preview is not None)
        text = plain(picker.page.preview_text())
        assert text.split()[-len(words) :] == words
        assert text.count("\n") > 10
        terminal.type("\x1b")

    assert await terminal.choose(picker, person) is None


class SomeOfPrograms(Sessions):
    """One session of a person, and two of programs."""

    async def lines(self) -> AsyncIterator[Sequence[PickerLine]]:
        yield [
            PickerLine(f"s-{title}", title, "", "pi", "/", "1 h", group, said="")
            for title, group in (("mine", HERE), ("cron", PROGRAMS), ("hook", PROGRAMS))
        ]

    async def search(self, words: str) -> tuple[Sequence[PickerLine], str]:
        return (), ""


async def test_sessions_of_programs_are_counted_until_they_are_asked_for_or_sought(
    terminal: KeyedTerminal,
) -> None:
    picker = Picker(SomeOfPrograms())

    async def person() -> None:
        def counted() -> str:
            return plain(picker.page.count())

        await until(lambda: counted() == "1 of 1 · 2 by programs: ^G")
        terminal.type("\x07")
        await until(lambda: counted() == "3 of 3")
        terminal.type("\x07")
        await until(lambda: counted() == "1 of 1 · 2 by programs: ^G")
        terminal.type("cron")
        await until(lambda: counted() == "1 of 3")
        terminal.type("\r")

    assert await terminal.choose(picker, person) == Picked("s-cron", "open", words="cron")
