"""The versions of a file that snapshots have, and the one in which a line first stood.

A version is its content: a file that comes back, as by a checkout, is the version that it was
before. Versions and the steps between them become commits in a throw-away repository, of which
`git blame` is asked. It uses no clock: a wrong order only makes fewer origins known.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from hashlib import sha1
from typing import Final

from msgspec import Struct

from acphold.machine.program_group import ProgramGroup
from acphold.safety.snapshots.comparison import blame
from acphold.safety.snapshots.git import Git

MOST_VERSIONS: Final = 2000
MOST_BYTES: Final = 64 << 20
"""Versions of one file, and their bytes: the newest that snapshots have; and as many bytes of those
that the agent showed in between."""

TIPS: Final = 15
"""Versions in which a line is looked for that the most similar one does not have."""

DISTINCT: Final = 8
"""Letters and digits of a line that is recognised by itself."""


class Claim(Struct, frozen=True, order=True):
    """A turn of a session in which a version came to be. `is_shown`: by edits that the agent
    showed, in these `calls`. `is_likely`: so says a snapshot that is likely of that moment."""

    session_id: str
    turn: int
    is_shown: bool
    calls: tuple[str, ...] = ()
    is_likely: bool = False


class GitStep(Struct, frozen=True):
    """The state of git around a step that led to a version.

    `path` is that of the file, `before` its content then, `commits` were checked out after and
    before. `popped` are those of the `stashes` that were gone afterwards; `since` is the time of
    the beginning (ms). `is_written`: the version is a whole file that the agent wrote.
    """

    path: str
    before: bytes
    commits: tuple[str, ...]
    stashes: tuple[str, ...]
    popped: tuple[str, ...]
    since: int
    is_written: bool


def version_of(content: bytes) -> str:
    """The id of a version: that of git for its content."""
    return sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()


class Versions:
    """The versions of one file, also under its former names. `moved` are lines that may have come
    with a version from other files, `git_steps` the steps in which git may have brought lines, and
    `since` has the time (ms) of the first snapshot with a version. `left_out` counts the
    oldest and longest versions, which are not here; those in `cut` followed one of these."""

    def __init__(self) -> None:
        self.contents: dict[str, bytes] = {}
        self.parents: defaultdict[str, list[str]] = defaultdict(list)
        self.claims: defaultdict[str, list[Claim]] = defaultdict(list)
        self.moved: defaultdict[str, set[bytes]] = defaultdict(set)
        self.git_steps: defaultdict[str, list[GitStep]] = defaultdict(list)
        self.since: dict[str, int] = {}
        self.left_out = 0
        self.cut: set[str] = set()

    def add(self, content: bytes) -> str:
        """Add a version, and return its id."""
        version = version_of(content)
        self.contents.setdefault(version, content)
        return version

    def step(self, before: str | None, after: str, claim: Claim | None = None) -> None:
        """Note that one version followed another, None for no file; `claim` is what is known of
        it. What leads back to an earlier version is no origin of it."""
        if before is not None:
            if after in self._with_ancestors(before):
                return
            if before not in self.parents[after]:
                self.parents[after].append(before)
        if claim is not None and claim not in self.claims[after]:
            self.claims[after].append(claim)

    def adopt(self, former: Versions, content: bytes) -> None:
        """Take over from the versions under a former name those that led to a content."""
        self.left_out += former.left_out
        above = former._with_ancestors(version_of(content))
        self.cut |= former.cut & above
        for version in former._parents_first():
            if version in above:
                self.add(former.contents[version])
                for parent in former.parents[version]:
                    self.step(parent, version)
                for claim in former.claims[version]:
                    self.step(None, version, claim)
                self.moved[version] |= former.moved[version]
                self.git_steps[version] += former.git_steps[version]
                if version in former.since:
                    self.note(version, former.since[version])

    def note(self, version: str, at: int) -> None:
        """Note that a snapshot of this time has a version."""
        self.since[version] = min(at, self.since.get(version, at))

    def first_with(self, text: bytes, until: int) -> str | None:
        """Return the version with a line that was in a snapshot first, no later than `until`."""
        its = [
            (at, version)
            for version, at in self.since.items()
            if at <= until and text in self.contents[version].split(b"\n")
        ]
        return min(its)[1] if its else None

    def _with_ancestors(self, version: str) -> set[str]:
        """The version and all before it."""
        seen: set[str] = set()
        waiting = [version]
        while waiting:
            if (found := waiting.pop()) not in seen:
                seen.add(found)
                waiting += self.parents[found]
        return seen

    def _parents_first(self) -> list[str]:
        """The versions, each behind its parents."""
        done: dict[str, None] = {}
        waiting = [*reversed(self.contents)]
        while waiting:
            version = waiting[-1]
            if version in done:
                waiting.pop()
                continue
            missing = [it for it in self.parents[version] if it not in done]
            if missing:
                waiting += missing
            else:
                done[waiting.pop()] = None
        return [*done]

    def _most_similar(self, content: bytes) -> list[str]:
        """The versions that nothing followed, the most similar one to a content first; before all
        the most similar version."""
        lines = Counter(content.split(b"\n"))
        best, most = "", -1
        common: dict[str, int] = {}
        for version in self._parents_first():
            its = Counter(self.contents[version].split(b"\n"))
            same = sum((lines & its).values())
            common[version] = same
            if 2 * same - its.total() >= most or not best:
                best, most = version, 2 * same - its.total()
        followed = {parent for parents in self.parents.values() for parent in parents}
        tips = [it for it in self.contents if it not in followed and it != best]
        tips.sort(key=lambda it: common[it], reverse=True)
        return [best, *tips[:TIPS]]

    def origins(
        self, group: ProgramGroup, folder: str, content: bytes, lines: Sequence[int]
    ) -> dict[int, str | None]:
        """Return the version in which each of these lines of a content first stood; None if that
        is not known. `folder` is a bare repository to throw away."""
        if not self.contents or not lines:
            return dict.fromkeys(lines)
        current = version_of(content)
        texts = content.split(b"\n")
        if current in self.contents:
            blamed = self._blame(group, folder, current, content, self.parents[current], lines)
            return self._without_moved(blamed, texts)
        similar = self._most_similar(content)
        blamed = self._blame(group, folder, current, content, similar[:1], lines)
        # In the most similar version alone a line may be known by its place; in others, where
        # lines may be alike by chance, only by itself.
        counts = Counter(texts)
        unplaced = [
            line
            for line, version in blamed.items()
            if version == current and counts[texts[line - 1]] == 1 and is_distinct(texts[line - 1])
        ]
        if unplaced and len(similar) > 1:
            blamed |= self._blame(group, folder, current, content, similar, unplaced)
        return self._without_moved(
            {line: it for line, it in blamed.items() if it != current}, texts
        ) | {line: None for line, it in blamed.items() if it == current}

    def _without_moved(
        self, found: Mapping[int, str], texts: Sequence[bytes]
    ) -> dict[int, str | None]:
        """Leave out lines that only moved: the version before has them as often, or they were in a
        file that was removed when this one appeared."""
        counts: dict[str, Counter[bytes]] = {}
        made: dict[int, str | None] = {}
        for line, version in found.items():
            for it in (version, *self.parents[version]):
                if it not in counts:
                    counts[it] = Counter(self.contents[it].split(b"\n"))
            text = texts[line - 1]
            many = counts[version][text]
            is_new = all(counts[it][text] < many for it in self.parents[version])
            is_new &= text not in self.moved[version]
            made[line] = version if is_new else None
        return made

    def _blame(
        self,
        group: ProgramGroup,
        folder: str,
        current: str,
        content: bytes,
        parents: Sequence[str],
        lines: Sequence[int],
    ) -> dict[int, str]:
        """Ask git in which version each line of a content with these parents first stood."""
        order = [*(it for it in self._parents_first() if it != current), current]
        needed = {current, *parents}
        for version in reversed(order):
            if version in needed and version != current:
                needed.update(self.parents[version])
        order = [it for it in order if it in needed]
        marks = {version: at for at, version in enumerate(order, 1)}
        stream: list[bytes] = []
        for version, mark in marks.items():
            data = content if version == current else self.contents[version]
            above = parents if version == current else self.parents[version]
            stream.append(b"reset refs/heads/v\n\ncommit refs/heads/v\nmark :%d\n" % mark)
            stream.append(b"committer a <a> 0 +0000\ndata 40\n%s\n" % version.encode())
            stream += [
                b"%s :%d\n" % (b"merge" if at else b"from", marks[it])
                for at, it in enumerate(above)
            ]
            stream.append(b"M 100644 inline f\ndata %d\n%s\n" % (len(data), data))
        git = Git(group, folder, home=folder)
        git.run("fast-import", "--quiet", "--force", stdin=b"".join(stream))
        found = blame(git, "refs/heads/v", "f", lines)
        return {line: commit.subject for line, commit in found.items()}


def is_distinct(text: bytes) -> bool:
    """True if a line is recognised by itself."""
    return sum(chr(it).isalnum() for it in text) >= DISTINCT
