"""Repositories that name no program, so that git only reads there.

`git status` runs what the settings of its repository name: a file monitor, filters, the programs
that show differences; and a hook, when it writes its index. Whoever may edit files can name one.
So the settings are read here, without git, and every line has to be one that is known as harmless.

git is not asked: it may be another one than the agent's, and takes longer than the decision may.
Between this look and the run the agent may change the files.
"""

# See docs/decisions.md, 35.

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from typing import Final

from acp_wire.workspace.regular_files import contents

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

_SECTION: Final = re.compile(r'\[([A-Za-z0-9-]+)(?: "((?:[^"\\]|\\.)*)")?\]\s*')
_SETTING: Final = re.compile(r"([A-Za-z][A-Za-z0-9-]*)[ \t]*(?:=[ \t]*(.*?))?")
_PATH: Final = re.compile(r"[A-Za-z0-9_./-]+")
_GITLINK: Final = b"\x00\x00\xe0\x00"
"""The mode of another repository in an index."""

_HEAD: Final = re.compile(r"(?:ref:\s*refs/\S+|[0-9a-f]{40}|[0-9a-f]{64})\s*")


def why_runs(folder: str) -> str:
    """Return the reason why git might run a program when it reads in `folder`, which is without
    links; "" if the repository there names none."""
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
            yield f"the line {words[:40]!r}", ""
        elif (head := _SECTION.fullmatch(words)) is not None:
            section = head[1].lower() + ("" if head[2] is None else f".{head[2]}")
        elif section and (setting := _SETTING.fullmatch(words)) is not None:
            yield f"{section}.{setting[1].lower()}", setting[2] or ""
        else:
            yield f"the line {words[:40]!r}", ""


def _text(path: str) -> str:
    return contents(path, SETTINGS_BYTES).decode()
