"""Calls of `git` that depend on nothing but their arguments.

The environment is built from nothing: an inherited `GIT_DIR` would lead into another repository.
No configuration is read but that of the store: a project's may name programs, and a person's may
change the bytes.
"""

# See docs/decisions.md, 36.

from __future__ import annotations

import os
import re
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import BinaryIO

from acp_wire.errors import AcpError, AgentStartError, WorkspaceError
from acp_wire.processes.program import on_path
from acp_wire.surroundings import Surroundings
from acphold.machine.program_group import ProgramGroup

HARMLESS = (
    *("-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false"),
    *("-c", "protocol.allow=never", "-c", "gc.auto=0", "-c", "maintenance.auto=false"),
    # Hooks that are named in the configuration (git 2.55).
    *("-c", "hook.post-checkout.enabled=false", "-c", "hook.post-index-change.enabled=false"),
    *("-c", "hook.reference-transaction.enabled=false"),
    *("-c", "commit.gpgSign=false", "-c", "merge.verifySignatures=false"),
    *("-c", "log.showSignature=false", "-c", "submodule.recurse=false"),
)
"""Options that keep the configuration of a project from running or fetching anything; but see
`Git.within` for hooks."""


PROGRAMS = (
    r"^(hook\..*\.event|filter\..*\.(clean|smudge|process|required)|merge\..*\.driver"
    r"|branch\..*\.mergeoptions|pull\.twohead)$"
)
"""Settings that run something, or make a merge another one than was seen; some have names of
anybody's."""

INSTEAD = {"driver": "false", "required": "false", "twohead": "recursive"}
"""Their harmless values, by the last part of the name; others are empty.

Git 2.54 turns hooks in the configuration off by their names alone. A driver that merges cannot be
turned off: one that fails makes a conflict.
"""

VERSION = re.compile(r"(\d+)\.(\d+)")


class GitError(AcpError):
    """A call of git failed; it says why in its own words."""


class GitNotStartedError(GitError):
    """Git could not be started."""


@contextmanager
def working(seconds: float, doing: str) -> Iterator[ProgramGroup]:
    """Work with git for a block, for so many seconds; its errors are `explained`."""
    with explained(doing), ProgramGroup(time.monotonic() + seconds) as group:
        yield group


@contextmanager
def explained(doing: str, refusal: str = "") -> Iterator[None]:
    """Have the errors of a block of work with git become a WorkspaceError.

    `doing` took too long, or failed here, on a full disk for example, or git has a reason, which
    stands behind a `refusal`.
    """
    try:
        yield
    except TimeoutError as error:
        raise WorkspaceError(f"{doing} took too long") from error
    except OSError as error:
        raise WorkspaceError(f"{doing}: {error.strerror or error}") from error
    except (GitError, BufferError) as error:
        why = str(error)
        if "dubious ownership" in why:
            why = "the repository belongs to somebody else; use your own git"
        raise WorkspaceError(f"{refusal or f'{doing}: '}{why}") from error


def lines(words: Iterable[str], end: str = "\n") -> bytes:
    """Return words as git reads them from its input."""
    return b"".join(os.fsencode(word + end) for word in words)


def program() -> str | None:
    """The path of `git` on the PATH of this process; None if it is not installed."""
    return on_path("git")


class Git:
    """Calls git on one git folder, with one work tree and one index; blocks.

    `home` is where git looks for the files of a person: a folder without any. `objects` is a folder
    of more objects, only for calls that write none.
    """

    def __init__(
        self,
        group: ProgramGroup,
        folder: str | None,
        *,
        home: str,
        work_tree: str | None = None,
        index: str | None = None,
        objects: str | None = None,
    ) -> None:
        path = program()
        if path is None:
            raise GitError("git is not installed")
        self.program = path
        self._group = group
        self._env = {
            "PATH": os.defpath,  # it knows where its own programs are
            "HOME": home,
            "LC_ALL": "C",
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_CONFIG_SYSTEM": os.devnull,
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_ATTR_NOSYSTEM": "1",
            "GIT_OPTIONAL_LOCKS": "0",
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_NO_LAZY_FETCH": "1",
            "GIT_ALLOW_PROTOCOL": "none",  # for a git that does not know the line above
            "GIT_NO_REPLACE_OBJECTS": "1",
            "GIT_LITERAL_PATHSPECS": "1",
            "GIT_PAGER": "cat",
        }
        if folder is not None:
            self._env["GIT_DIR"] = folder
        if work_tree is not None:
            self._env["GIT_WORK_TREE"] = work_tree
        if index is not None:
            self._env["GIT_INDEX_FILE"] = index
        if objects is not None:
            quoted = objects.replace("\\", "\\\\").replace('"', '\\"')  # a colon would end it
            self._env["GIT_ALTERNATE_OBJECT_DIRECTORIES"] = f'"{quoted}"'
        self._start = [path, *(["-C", work_tree] if work_tree is not None else [])]

    @classmethod
    def reading(
        cls, group: ProgramGroup, folder: str, home: str, git_folder: str | None = None
    ) -> Git:
        """Return a git that only reads a project: nothing of its configuration runs or is fetched.
        `git_folder` is as in `within`."""
        git = cls(group, git_folder, home=home, work_tree=folder if git_folder else None)
        git._start = [git.program, "-C", folder, *HARMLESS]
        return git

    @classmethod
    def within(
        cls, group: ProgramGroup, folder: str, home: str, git_folder: str | None = None
    ) -> Git:
        """Return a git that may change the index and the work trees of a project: of its
        configuration nothing runs. `git_folder` is that of the work tree `folder`; without it, git
        looks for it. Raises the errors of `run`."""
        git = cls.reading(group, folder, home, git_folder)
        names = git.run(
            *("config", "-z", "--name-only", "--get-regexp", PROGRAMS), fine=(0, 1)
        ).split(b"\0")
        without: dict[str, str] = {}
        for name in (os.fsdecode(it) for it in names if it):
            above, _, last = name.rpartition(".")
            if last == "event":
                without[f"{above}.enabled"] = "false"
            else:
                without[name] = INSTEAD.get(last, "")
        # A git older than 2.31 knows only the option, in which a name cannot have a "=".
        if any("=" in name for name in without) and git.version < (2, 31):
            raise GitError("a name in the configuration needs git 2.31 or newer")
        variables = {name: value for name, value in without.items() if "=" in name}
        for number, (name, value) in enumerate(variables.items()):
            git._env[f"GIT_CONFIG_KEY_{number}"] = name
            git._env[f"GIT_CONFIG_VALUE_{number}"] = value
        git._env["GIT_CONFIG_COUNT"] = str(len(variables))
        for name in without.keys() - variables.keys():
            git._start += ["-c", f"{name}={without[name]}"]
        return git

    @property
    def version(self) -> tuple[int, ...]:
        """The version of git; blocks. Raises the errors of `run`."""
        told = self.run("version").decode(errors="replace")
        found = VERSION.search(told)
        return tuple(map(int, found.groups())) if found is not None else (0, 0)

    def run(
        self,
        *arguments: str,
        stdin: bytes | BinaryIO = b"",
        into: BinaryIO | None = None,
        reads: bool = False,
        env: Mapping[str, str] = {},
        fine: Collection[int] = (0,),
    ) -> bytes:
        """Return the output of a call, or write it into a file; raises GitError, also for a status
        that is not `fine`, TimeoutError and BufferError. `reads` is as in `ProgramGroup.run`; `env`
        has variables that are others for this call."""
        try:
            ended = self._group.run(
                [*self._start, *arguments],
                {**self._env, **env},
                stdin=stdin,
                into=into,
                reads=reads,
            )
        except AgentStartError as error:
            raise GitNotStartedError(str(error)) from error
        if ended.status not in fine:
            lines = ended.errors.decode(errors="replace").strip().split("\n")
            reasons = (line for line in lines if line.startswith(("fatal: ", "error: ")))
            complaint = next(reasons, lines[0])
            words = [word for word in arguments if not word.startswith("-") and "=" not in word]
            raise GitError(complaint or f"git {words[0]} failed")
        return ended.output

    def find_ignored(self, names: Iterable[bytes], listed_in: str) -> set[bytes]:
        """Return those of these names in the work tree that are ignored, whatever the index has:
        by the lists in the folders, or by this one. Raises the errors of `run`."""
        output = self.run(
            *("-c", f"core.excludesFile={listed_in}"),
            *("check-ignore", "--no-index", "-z", "--stdin"),
            stdin=b"".join(b"./%s\0" % name for name in names),  # so that a colon is a letter
            reads=True,
            env={"GIT_LITERAL_PATHSPECS": "0"},  # it knows no others, and refuses that
            fine=(0, 1),  # 1: none
        )
        return {name.removeprefix(b"./") for name in output.split(b"\0") if name}

    def objects(self, names: Iterable[str]) -> dict[str, tuple[str, int]]:
        """Return the kind and the size of each of these objects that is there, by its id. Raises
        the errors of `run`."""
        output = self.run("cat-file", "--batch-check", stdin=lines(names))
        found = (line.split() for line in output.decode().splitlines())
        return {its[0]: (its[1], int(its[2])) for its in found if len(its) == 3}

    def names(self, *arguments: str) -> Iterator[str]:
        """Yield the file names that a call which only reads prints with -z."""
        for name in self.run(*arguments, reads=True).split(b"\0"):
            if name:
                yield os.fsdecode(name)


def personal_configuration(surroundings: Surroundings, git: str) -> list[str]:
    """The files in which a person may name the file of ignored names; they may include others.
    `git` is the path of the program."""
    home, config = surroundings.home, surroundings.config_folder
    beside = os.path.dirname(os.path.dirname(git))
    system = dict.fromkeys(("/etc/gitconfig", os.path.join(beside, "etc", "gitconfig")))
    return [*system, os.path.join(config, "git", "config"), os.path.join(home, ".gitconfig")]


def personal_excludes(group: ProgramGroup, surroundings: Surroundings, empty: str) -> str:
    """The file of names that a person ignores everywhere, as their own configuration says.

    `empty` is a git folder without such a setting.
    """
    path = program()
    home = surroundings.home
    env = {"PATH": os.defpath, "HOME": home, "LC_ALL": "C"}
    if "XDG_CONFIG_HOME" in surroundings.env:
        env["XDG_CONFIG_HOME"] = surroundings.env["XDG_CONFIG_HOME"]
    if path is None:
        raise GitError("git is not installed")
    env["GIT_DIR"] = empty
    try:
        found = group.run([path, "config", "--type=path", "--get", "core.excludesFile"], env)
    except AgentStartError as error:
        raise GitNotStartedError(str(error)) from error
    if found.status == 0 and (named := found.output.removesuffix(b"\n")):
        return os.path.join(home, os.fsdecode(named))
    return os.path.join(surroundings.config_folder, "git", "ignore")
