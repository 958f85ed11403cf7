"""Generated histories: no line of any commit is ascribed to a turn that did not make it.

In a history, the agent edits and runs commands in turns; people and bots change, format and commit;
files are renamed; commits are rebased, squashed, amended and left. The author of each line of each
commit is known. `python -m tests.origins.test_histories COMMITS SEED` prints the figures.
"""

from __future__ import annotations

import asyncio
import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import pytest

from acphold.journal.stores import open_journal
from acphold.live.origins.why import Lines, origins
from acphold.machine.program_group import ProgramGroup
from acphold.safety.snapshots.checkouts import checkout_of
from acphold.safety.snapshots.comparison import CommitReader, bare_folder
from tests.origins.kept import KeptSession, edit
from tests.raw_entries import Raw
from tests.snapshots.conftest import Project

FILES = ("a.py", "b.py", "sub/c.py")

NAMES = {name: (name, f"{name}.old", f"moved/{name}") for name in FILES}
"""The names that each of them may have."""

FILE_OF = {name: file for file, names in NAMES.items() for name in names}

COMMON = ("}", "", "    return None", "import os")
"""Lines that stand in many places."""


class History:
    """One project that lives; `shown` and `seen` have the turns in which a line of a file was
    shown, and appeared."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.random = random.Random(seed)
        self.journal = folder / "journal.db"
        (folder / "work").mkdir()
        self.project = Project(folder / "work")
        self.made = 0
        self.shown: dict[tuple[str, str], set[tuple[str, int]]] = {}
        self.seen: dict[tuple[str, str], set[tuple[str, int]]] = {}
        git = self.project.git
        git("init", "-q", "-b", "main")
        for name in FILES:
            self.project.write(name, "".join(self.line("base") for _ in range(12)))
        self.project.commit("begin")
        self.sessions = [KeptSession(self.journal, self.project, f"s{n}") for n in range(2)]
        self.turns = Counter[str]()
        self.before: dict[str, Counter[str]] = {}

    def line(self, by: str) -> str:
        """A new line; some are like others."""
        if self.random.random() < 0.2:
            return self.random.choice(COMMON) + "\n"
        self.made += 1
        return f"value_{self.made} = compute({self.random.randrange(10**6)})  # {by}\n"

    def lines(self, name: str) -> list[str]:
        path = self.project.top / name
        return path.read_text().splitlines(keepends=True) if path.exists() else []

    @property
    def name(self) -> str:
        """The present name of one of the files."""
        file = self.random.choice(FILES)
        there = [name for name in NAMES[file] if (self.project.top / name).exists()]
        return self.random.choice(there or [file])

    def rename(self) -> None:
        """A file gets another name, and some changes with it."""
        name = self.name
        free = [it for it in NAMES[FILE_OF[name]] if not (self.project.top / it).exists()]
        if free and (lines := self.lines(name)):
            by = self.random.choice(("", "renamer"))
            new = self.random.choice(free)
            self.project.write(new, "".join(self.change(lines, by) if by else lines))
            (self.project.top / name).unlink()

    def change(self, lines: list[str], by: str) -> list[str]:
        """Put some new lines in, and take some out."""
        lines = [*lines]
        for _ in range(self.random.randrange(1, 4)):
            at = self.random.randrange(len(lines) + 1)
            gone = self.random.choice((0, 0, 1, 2))
            lines[at : at + gone] = [self.line(by) for _ in range(self.random.randrange(1, 4))]
        return lines

    def someone(self, by: str) -> None:
        """A person or a command changes a file."""
        name = self.name
        self.project.write(name, "".join(self.change(self.lines(name), by)))

    def format(self) -> None:
        """A formatter goes over all lines of a file."""
        name = self.name
        self.project.write(
            name, "".join(f" {line}" if line != "\n" else line for line in self.lines(name))
        )

    def commit(self) -> None:
        self.project.commit(f"work {self.random.random()}")

    def git(self) -> None:
        """The history of the project is changed."""
        git, what = self.project.git, self.random.randrange(5)
        self.commit()
        if what == 0:  # squash
            git("reset", "-q", "--soft", "HEAD~1", fails=True)
            self.commit()
        elif what == 1:  # somebody works on another branch, and this is put on top of that
            git("checkout", "-q", "-B", "bot", "HEAD~1", fails=True)
            self.someone("bot")
            self.format()
            self.commit()
            git("checkout", "-q", "main")
            git("rebase", "-q", "-X", "theirs", "bot", fails=True)
            git("rebase", "--abort", fails=True)
            git("checkout", "-q", "-f", "main", fails=True)
        elif what == 2:
            self.someone("amended")
            git("add", "-A")
            git("commit", "-q", "--amend", "-m", "amended")
        elif what == 3:  # merged
            git("checkout", "-q", "-B", "side", "HEAD~1", fails=True)
            self.someone("side")
            self.commit()
            git("checkout", "-q", "main")
            git("merge", "-q", "-X", "ours", "-m", "merged", "side", fails=True)
            git("merge", "--abort", fails=True)
        else:  # gone, and there again
            git("checkout", "-q", "HEAD~1", fails=True)
            git("checkout", "-q", "main")

    def turn(self) -> None:
        """A turn: edits that are shown, commands, or changes of the history, in any order."""
        session = self.random.choice(self.sessions)
        self.turns[session.id] += 1
        mark = (session.id, self.turns[session.id])
        raws: list[Raw] = []
        before = self.before = {name: Counter(self.lines(name)) for name in FILE_OF}

        def work() -> None:
            for _ in range(self.random.randrange(1, 4)):
                what = self.random.random()
                if what < 0.6:
                    raws.append(self.edit(self.name, mark, len(raws)))
                elif what < 0.68:
                    self.rename()
                elif what < 0.75:
                    self.someone("command")
                elif what < 0.85:
                    self.format()
                elif what < 0.93:
                    self.git()
                else:
                    self.commit()
            for name, file in FILE_OF.items():
                gone = [it for it in NAMES[file] if not (self.project.top / it).exists()]
                known = sum((before[it] for it in gone), before[name])
                for line in Counter(self.lines(name)) - known:
                    self.seen.setdefault((file, line), set()).add(mark)

        late = self.random.random()
        session.at = max(it.at for it in self.sessions)
        session.turn(
            f"prompt {mark}",
            later=raws,
            does=work,
            begin="whole" if late > 0.1 else self.random.choice(("late", "missing", "refused")),
            end="whole" if late < 0.9 else self.random.choice(("late", "later", "refused")),
        )

    def edit(self, name: str, mark: tuple[str, int], number: int) -> Raw:
        lines = self.lines(name)
        after = self.change(lines, "agent")
        is_whole = self.random.random() < 0.3
        # An agent that writes a whole file shows each of its lines.
        known = self.before[name] if is_whole else Counter(lines)
        for line in Counter(after) - known:
            self.shown.setdefault((FILE_OF[name], line), set()).add(mark)
        old, new = "".join(lines), "".join(after)
        self.project.write(name, new)
        if is_whole:
            return edit(f"t{number}", str(self.project.top / name), None, new)
        return edit(f"t{number}", name, old, new)

    def live(self, commits: int) -> list[str]:
        """Go on until there are so many commits; return all of them, left ones too."""
        while True:
            for _ in range(5):
                what = self.random.random()
                if what < 0.55:
                    self.turn()
                elif what < 0.66:
                    self.someone("person")
                elif what < 0.7:
                    self.rename()
                elif what < 0.75:
                    self.format()
                elif what < 0.85:
                    self.git()
                else:
                    self.commit()
            said = self.project.git("rev-list", "--all", "--reflog").split()
            if len(said) >= commits:
                return said[:commits]


async def checked(history: History, commits: list[str]) -> Counter[str]:
    """Ask about each line that these commits added; return how many answers there were of each
    kind, and of those that are not true."""
    found: Counter[str] = Counter()
    checkout = checkout_of(str(history.project.top))
    assert checkout is not None
    journal = open_journal(history.journal)
    for commit in commits:
        found["commits"] += 1
        with ProgramGroup(time.monotonic() + 60) as group, bare_folder() as folder:
            reader = CommitReader(group, checkout, folder)
            added = [it for it in reader.additions(commit) if it.lines]
            contents = reader.files.contents(it.blob for it in added)
        asked = [Lines(it.path, contents[it.blob], it.lines) for it in added]
        for lines, answers in zip(asked, await origins(journal, checkout, asked), strict=True):
            texts = lines.content.decode().splitlines(keepends=True)
            for number, origin in answers.items():
                key = (FILE_OF[lines.path], texts[number - 1])
                found[origin.how] += 1
                found["known under another name"] += origin.is_known and (lines.path not in FILES)
                if not origin.is_known:
                    found["unknown though shown"] += key in history.shown
                    continue
                [claim] = origin.claims
                of = history.shown if origin.how == "shown" else history.seen
                if (claim.session_id, claim.turn) not in of.get(key, ()):
                    found["false"] += 1
                    sys.stderr.write(f"{commit} {key} {origin} {of.get(key)}\n")
    await journal.aclose()
    return found


def test_no_line_is_ascribed_to_a_turn_that_did_not_make_it(tmp_path: Path) -> None:
    history = History(tmp_path, 1)
    found = asyncio.run(checked(history, history.live(8)))
    assert found["false"] == 0
    assert found["shown"]


@pytest.mark.slow
def test_nor_is_one_in_longer_histories(tmp_path: Path) -> None:
    for seed in range(20, 23):
        (tmp_path / str(seed)).mkdir()
        history = History(tmp_path / str(seed), seed)
        found = asyncio.run(checked(history, history.live(30)))
        assert found["false"] == 0
        assert found["shown"] > found["unknown though shown"]


def main(count: int, seed: int) -> None:
    total: Counter[str] = Counter()
    while total["commits"] < count:
        with tempfile.TemporaryDirectory() as folder:
            history = History(Path(folder), seed)
            wanted = min(40, count - total["commits"])
            total += asyncio.run(checked(history, history.live(wanted)))
        seed += 1
        sys.stdout.write(f"{dict(total)}\n")
    assert total["false"] == 0


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1)
