"""Which files nobody means when they say "all files": the rules of .gitignore; without I/O.

Source: gitignore(5), "PATTERN FORMAT".
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

ALWAYS = frozenset({".git", ".hg", ".svn", "node_modules", "__pycache__", ".venv"})
"""Names that are left out whatever the rules say."""


class Rule(NamedTuple):
    """One line of a .gitignore: whether `match` fits a path below its folder, and what then."""

    match: re.Pattern[str]
    ignored: bool
    folders_only: bool


class Rules(NamedTuple):
    """The rules of one .gitignore; `folder` is where it is, below the root: "" or "a/b/"."""

    folder: str
    rules: tuple[Rule, ...]


def read_rules(folder: str, text: str) -> Rules:
    """The rules in the text of a .gitignore; lines that are none are left out."""
    made = (_rule(line) for line in text.splitlines())
    return Rules(folder, tuple(rule for rule in made if rule is not None))


def is_ignored(path: str, is_folder: bool, stack: Sequence[Rules]) -> bool:
    """Whether `path`, relative to the root, is left out; the innermost and last rule decides.

    `stack` holds the rules of the folders above it, the outermost first. What is in a folder that
    is left out must not be asked about.
    """
    if path.rpartition("/")[2] in ALWAYS:
        return True
    for rules in reversed(stack):
        below = path.removeprefix(rules.folder)
        for rule in reversed(rules.rules):
            if (is_folder or not rule.folders_only) and rule.match.fullmatch(below):
                return rule.ignored
    return False


def glob_pattern(glob: str) -> re.Pattern[str]:
    """What a whole path, or without a slash in `glob` its last name, has to match."""
    if "/" not in glob.rstrip("/"):
        return re.compile(f"(?:.*/)?{_translated(glob)}")
    return re.compile(_translated(glob.removeprefix("/")))


def _rule(line: str) -> Rule | None:
    line = re.sub(r"(?<!\\)\s+$", "", line)
    if not line or line.startswith("#"):
        return None
    ignored = not line.startswith("!")
    glob = line if ignored else line[1:]
    glob = re.sub(r"^\\(?=[#!])", "", glob)
    folders_only = glob.endswith("/")
    glob = glob.rstrip("/")
    if not glob:
        return None
    anchored = "/" in glob
    inner = _translated(glob.removeprefix("/"))
    try:
        match = re.compile(inner if anchored else f"(?:.*/)?{inner}")
    except re.error:
        return None
    return Rule(match, ignored, folders_only)


_TOKENS = re.compile(r"(^|/)\*\*(?=/|$)(/?)|\*+|\?|\[!?\]?[^]/]*\]|\\(.)|(.)", re.DOTALL)


def _translated(glob: str) -> str:
    """A regular expression for a pattern whose `/` are folders."""
    return "".join(map(_translated_token, _TOKENS.finditer(glob)))


def _translated_token(token: re.Match[str]) -> str:
    text = token[0]
    if token[1] is not None:  # `**/`, `/**`, `/**/` or `**`
        if token[2]:
            return f"{token[1]}(?:.*/)?"
        return f"{token[1]}.*"
    if text.startswith("*"):
        return "[^/]*"
    if text == "?":
        return "[^/]"
    if text.startswith("[") and len(text) > 1:
        inner = text[1:-1].replace("\\", "\\\\").replace("[", "\\[")
        return f"(?!/)[{'^' + inner[1:] if inner.startswith('!') else inner}]"
    return re.escape(token[3] if token[3] is not None else text)
