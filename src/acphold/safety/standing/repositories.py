"""Repositories that name no program, so that git only reads there.

`git status` runs what the settings of its repository name: a file monitor, filters, the programs
that show differences; and a hook, when it writes its index. Whoever may edit files can name one.
So the settings are read here, without git, and every line has to be one that is known as harmless.

git is not asked: it may be another one than the agent's, and takes longer than the decision may.
Between this look and the run the agent may change the files.

A person's own settings may name any program: they are theirs. Only what they name from the folder
that git runs in would be the project's.
"""

# See docs/decisions.md, 35.

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from typing import Final

from msgspec import Struct

from acp_wire.surroundings import Surroundings
from acp_wire.workspace.regular_files import contents
from acphold.safety.standing.folders import is_in, real

SETTINGS_BYTES: Final = 1 << 20
"""Of the longest settings that are read."""

INDEX_BYTES: Final = 64 << 20
"""Of the longest index that is read."""


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


HARMLESS: Final = {
    "core": _names(
        "repositoryformatversion filemode bare logallrefupdates ignorecase precomposeunicode "
        "symlinks trustctime checkstat quotepath protecthfs protectntfs autocrlf eol safecrlf "
        "compression bigfilethreshold abbrev commentchar longpaths sharedrepository untrackedcache "
        "preloadindex multipackindex commitgraph whitespace hookspath"
    ),
    "extensions": _names("objectformat refstorage worktreeconfig noop"),
    "remote": _names("url pushurl fetch push mirror prune prunetags tagopt skipdefaultupdate"),
    "branch": _names(
        "remote merge rebase pushremote description autosetupmerge autosetuprebase sort "
        "github-pr-owner-number vscode-merge-base gh-merge-base"
    ),
    "user": _names("name email useconfigonly signingkey"),
    "author": _names("name email"),
    "committer": _names("name email"),
    "init": _names("defaultbranch"),
    "push": _names("default autosetupremote followtags"),
    "pull": _names("rebase ff"),
    "fetch": _names("prune prunetags parallel"),
    "merge": _names("conflictstyle ff"),
    "rebase": _names("autostash autosquash updaterefs"),
    "rerere": _names("enabled autoupdate"),
    "commit": _names("gpgsign verbose"),
    "tag": _names("gpgsign sort"),
    "diff": _names("renames algorithm colormoved mnemonicprefix noprefix context"),
    "log": _names("date decorate abbrevcommit follow"),
    "status": _names("short branch showuntrackedfiles showstash"),
    "color": _names("ui diff status branch grep"),
    "gc": _names("auto autodetach"),
    "maintenance": _names("auto strategy"),
    "index": _names("version threads"),
    "feature": _names("manyfiles experimental"),
    "pack": _names("threads windowmemory"),
    "lfs": _names("repositoryformatversion access"),
    "advice": frozenset(),
}
"""By section, in small letters: settings that name no program and no file, whatever their value;
but for `core.hooksPath`, which is followed."""

NAMED_PART: Final = _names("remote branch lfs")
"""Sections whose settings may stand under a name: `[remote "origin"]`."""

HOOK: Final = "post-index-change"
"""The hook that git runs when a command that reads refreshes the index."""

PROGRAM_KEYS: Final = _names(
    "fsmonitor pager external textconv command clean smudge process program"
)
"""Last parts of settings whose value is a program. An alias hides no command of git."""

MOST_INCLUDED: Final = 32
"""Files of a person's settings that are read, with those that they include."""

_NAMED_HERE: Final = re.compile(
    r"""(?:.*[\s'"=!])?[^\s/~$'"=!-][^\s/]*/.*""",
    re.DOTALL,
)
"""A command with a file that is named from the folder that it runs in."""

_SECTION: Final = re.compile(r'\[([A-Za-z0-9-]+)(?: "((?:[^"\\]|\\.)*)")?\]\s*')
_SETTING: Final = re.compile(r"([A-Za-z][A-Za-z0-9-]*)[ \t]*(?:=[ \t]*(.*?))?")
_PATH: Final = re.compile(r"[A-Za-z0-9_./-]+")
_GITLINK: Final = b"\x00\x00\xe0\x00"
"""The mode of another repository in an index."""

_HEAD: Final = re.compile(r"(?:ref:\s*refs/\S+|[0-9a-f]{40}|[0-9a-f]{64})\s*")


class PersonalSettings(Struct, frozen=True):
    """The files of the settings that git has beside a repository's, for a person with this home."""

    home: str = ""
    files: tuple[str, ...] = ()

    @classmethod
    def of(cls, surroundings: Surroundings) -> PersonalSettings:
        """Return those of programs that start in these surroundings."""
        env, home = surroundings.env, surroundings.home
        both = (f"{surroundings.config_folder}/git/config", f"{home}/.gitconfig")
        named = env.get("GIT_CONFIG_GLOBAL")
        system = env.get("GIT_CONFIG_SYSTEM") or "/etc/gitconfig"
        return cls(home, (system, *((named,) if named else both)))


NO_SETTINGS: Final = PersonalSettings()


def why_runs(folder: str, personal: PersonalSettings = NO_SETTINGS) -> str:
    """Return the reason why git might run a program of the project when it reads in `folder`, which
    is without links; "" if neither the repository there nor a person's settings name one."""
    try:
        found = git_folders(folder)
        if found is None:
            return ""
        top, git_folder, common = found
        hooks = [f"{common}/hooks"]
        for path in (f"{common}/config", f"{git_folder}/config.worktree"):
            for name, value in _settings(path):
                section, _, key = name.partition(".")
                last = key.rpartition(".")[2]
                is_known = section == "advice" or last in HARMLESS.get(section, ())
                if name == "core.hookspath":
                    if not _PATH.fullmatch(value):
                        return _setting_words(name)
                    hooks.append(os.path.join(top, value))
                elif not is_known or ("." in key and section not in NAMED_PART):
                    return _setting_words(name)
        for name, value in _personal(personal):
            if name == "core.hookspath":
                place = os.path.join(top, value)
                hooks += [place] if is_in(real(place), top) or not os.path.isabs(value) else []
            elif _is_program_here(name, value, top):
                return f"your own git settings have {name}, which names a program of the project"
        for place in hooks:
            if os.path.lexists(f"{place}/{HOOK}"):
                return f"git may run the hook {HOOK} of this repository"
        # The index may have other repositories, whose settings git obeys as well.
        if any(name.startswith("sharedindex.") for name in os.listdir(git_folder)):
            return "the index of this repository is in several files"
        try:
            index = contents(f"{git_folder}/index", INDEX_BYTES)
        except FileNotFoundError:
            return ""
        is_aligned = index[4:8] in (b"\0\0\0\2", b"\0\0\0\3")  # entries of other versions are not
        at = index.find(_GITLINK)
        while at >= 0:
            if not is_aligned or at % 8 == 4:
                return "this repository has submodules, whose settings may name programs"
            at = index.find(_GITLINK, at + 1)  # may begin within another one
        return ""
    except (OSError, ValueError):
        return "the settings of this repository cannot be read"


def _personal(personal: PersonalSettings) -> Iterator[tuple[str, str]]:
    """Yield a person's settings, as `_settings` does, with those of the files that they include,
    on whatever condition. Raises OSError and ValueError."""
    waiting, seen = list(personal.files), set[str]()
    while waiting:
        path = os.path.realpath(waiting.pop())
        if path in seen or path == os.devnull:
            continue
        seen.add(path)
        if len(seen) > MOST_INCLUDED:
            raise ValueError("too many files of settings")
        for name, given in _settings(path):
            value = re.sub(r"\s[#;].*", "", given) if '"' not in given else given.replace('"', "")
            value = personal.home + value[1:] if value.startswith("~/") else value
            section, _, key = name.partition(".")
            if section in ("include", "includeif") and key.rpartition(".")[2] == "path":
                waiting.append(os.path.join(os.path.dirname(path), value))
            else:
                yield name, value


def _is_program_here(name: str, value: str, top: str) -> bool:
    """True if a setting names a program of the work tree at `top`, in which it runs; a line that is
    not understood, if it may be such a setting."""
    section, _, key = name.partition(".")
    if name.startswith("the line "):
        return any(word in value.lower() for word in ("hookspath", "fsmonitor"))
    is_program = section == "pager" or key.rpartition(".")[2] in PROGRAM_KEYS
    return is_program and (f"{top}/" in value or _NAMED_HERE.fullmatch(value) is not None)


def _setting_words(name: str) -> str:
    return f"the settings of this repository have {name}, by which git may run a program"


def git_folders(top: str) -> tuple[str, str, str] | None:
    """Return the top of the work tree that this folder is in, its git folder, and the one with its
    settings; None outside of any. Raises OSError and ValueError, also for what git takes for no
    repository: it looks for another one then."""
    while not os.path.lexists(git_folder := f"{top}/.git") or (
        os.path.isdir(git_folder) and not os.path.lexists(f"{git_folder}/HEAD")
    ):  # git goes on upward as well
        if os.path.lexists(f"{top}/HEAD"):
            raise ValueError("git may take its settings from the folder itself")
        if top == "/":
            return None
        top = os.path.dirname(top)
    if not os.path.isdir(git_folder):
        named = _text(git_folder)
        if not named.startswith("gitdir: "):
            raise ValueError("it is neither a repository nor leads to one")
        git_folder = os.path.join(top, named.removeprefix("gitdir: ").rstrip("\r\n"))
    shared = ""
    with suppress(FileNotFoundError):
        shared = _text(f"{git_folder}/commondir").rstrip("\r\n")
    common = os.path.join(git_folder, shared)
    is_whole = all(os.path.isdir(f"{common}/{name}") for name in ("objects", "refs"))
    if os.path.lexists(f"{top}/HEAD") or not (
        is_whole and _HEAD.fullmatch(_text(f"{git_folder}/HEAD"))
    ):
        raise ValueError("git may take another folder for the repository")
    return top, git_folder, common


def _settings(path: str) -> Iterator[tuple[str, str]]:
    """Yield the names of the settings in a file, `section.name.key` in small letters but for the
    name, and their values; a line that is not understood is a setting, too."""
    try:
        text = _text(path)
    except FileNotFoundError:
        return
    section = ""
    for line in re.split("\r?\n", text):
        words = line.strip(" \t")
        if not words or words[0] in "#;":
            continue
        if words.endswith("\\"):  # the next line is the rest of this value, whatever it looks like
            yield f"the line {words[:40]!r}", words
        elif (head := _SECTION.fullmatch(words)) is not None:
            section = head[1].lower() + ("" if head[2] is None else f".{head[2]}")
        elif section and (setting := _SETTING.fullmatch(words)) is not None:
            yield f"{section}.{setting[1].lower()}", setting[2] or ""
        else:
            yield f"the line {words[:40]!r}", words


def _text(path: str) -> str:
    return contents(path, SETTINGS_BYTES).decode()
