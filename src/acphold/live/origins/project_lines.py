"""Lines that git brought into a file: with a commit or a stash of the project, not with a turn.

A line is git's if the file had it less often before the step than it has at the commit that is
checked out, or had on any branch before that time. It is then said which commit it came with, and
who wrote that. The commits are read from the project's objects, in which nothing is written;
nothing of the project runs.
"""

# See docs/decisions.md, 36.

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection
from contextlib import suppress

from acphold.live.origins.versions import GitStep, is_distinct
from acphold.machine.program_group import ProgramGroup
from acphold.safety.snapshots.checkouts import Checkout, branch_commits
from acphold.safety.snapshots.comparison import LineCommit, SnapshotReader, blame
from acphold.safety.snapshots.git import Git, GitError

STASHED = "it came in from git: it was in a stash before that turn"
COMMIT_GONE = "a commit came in during that turn, and is no longer in the repository"
STASH_GONE = "a stash was put back in that turn, and is no longer in the repository"

MOST_CONTENTS = 50
"""Most contents of a file on branches that are looked at."""

NAME_CHARACTERS = 80
"""Longest name of an author, and longest subject of a commit, that is shown."""


class ProjectLines:
    """Reads the lines of files in commits and stashes of a project; `folder` is a bare repository
    to throw away. Blocks; raises what `Git.run` raises."""

    def __init__(self, group: ProgramGroup, checkout: Checkout, folder: str) -> None:
        objects = os.path.join(checkout.common, "objects")
        self._git = Git(group, folder, home=folder, objects=objects)
        self._reader = SnapshotReader(self._git)
        self._known: dict[tuple[str, str], bytes | None] = {}
        self._branches = branch_commits(checkout)

    def lines_from_git(self, step: GitStep, texts: Collection[bytes]) -> dict[bytes, str]:
        """Return those of these lines that git brought in a step, or may have, each with what is
        known of it."""
        had = Counter(step.before.split(b"\n"))
        found: dict[bytes, str] = {}
        is_unsure = ""
        for commit in step.commits:
            if not self._has(commit):
                is_unsure = is_unsure or COMMIT_GONE * (commit == step.commits[0])
                continue
            for text, its in self._commits(commit, step.path, had, set(texts) - found.keys()):
                is_own = (
                    its is not None  # by its author, while the step was going on
                    and not _is_older(its, step.since)
                    and its.author == its.committer
                )
                if not (step.is_written and is_own):
                    found[text] = _words(its, commit)
        for stash in step.stashes:
            if not self._has(stash):
                is_unsure = is_unsure or STASH_GONE * (stash in step.popped)
                continue
            for commit in (stash, f"{stash}^3"):  # which has the files that were not tracked
                places = self._new_lines(commit, step.path, had, set(texts).difference(found))
                found |= dict.fromkeys(places, STASHED)
        if step.is_written:
            return found
        distinct = {text for text in set(texts) - found.keys() if is_distinct(text)}
        if distinct and "\n" not in step.path:
            blobs = self._reader.blobs([(commit, step.path) for commit in self._branches])
            branches = {blob: it for it, blob in zip(self._branches, blobs, strict=True) if blob}
            for commit in [*branches.values()][:MOST_CONTENTS]:  # one for each content
                for text, its in self._commits(commit, step.path, had, distinct - found.keys()):
                    if its is not None and _is_older(its, step.since):
                        found[text] = _words(its, commit)
        return dict.fromkeys(texts, is_unsure) | found if is_unsure else found

    def _commits(
        self, commit: str, path: str, had: Counter[bytes], texts: Collection[bytes]
    ) -> list[tuple[bytes, LineCommit | None]]:
        """Return those of these lines that a commit has more often than `had`, each with the commit
        that it came with, None if that is not known."""
        places = self._new_lines(commit, path, had, texts)
        facts: dict[int, LineCommit] = {}
        with suppress(GitError):  # a shallow clone
            facts = blame(self._git, commit, path, [*places.values()]) if places else {}
        return [(text, facts.get(line)) for text, line in places.items()]

    def _new_lines(
        self, commit: str, path: str, had: Counter[bytes], texts: Collection[bytes]
    ) -> dict[bytes, int]:
        """Return the places of those of these lines that a commit has more often than `had`."""
        key = (commit, path)
        if key not in self._known:
            [blob] = self._reader.blobs([key])
            self._known[key] = self._reader.contents([blob]).get(blob) if blob else None
        content = self._known[key]
        if content is None:
            return {}
        lines = content.split(b"\n")
        counts = Counter(lines)
        # The last place: where a line was added, the others were there before.
        places = {text: number for number, text in enumerate(lines, 1)}
        return {text: places[text] for text in texts if counts[text] > had[text]}

    def _has(self, commit: str) -> bool:
        try:
            return bool(self._git.objects([f"{commit}^{{tree}}"]))
        except GitError:  # it is damaged, as after a power loss
            return False


def _is_older(commit: LineCommit, since: int) -> bool:
    """True if a commit was made before a time (ms); its own is in seconds."""
    return commit.committed_at * 1000 < since - 1000


def _words(its: LineCommit | None, commit: str) -> str:
    if its is None:
        return f"it came in from git: commit {commit[:12]}"
    author = its.author.rpartition(" <")[0][:NAME_CHARACTERS]
    return f"commit {its.id[:12]} by {author}: “{its.subject[:NAME_CHARACTERS]}”"
