"""Which agent a command starts, for one that does not tell its name at `initialize`.

Sessions are listed only under the agent they belong to, so what this finds must stay the same when
a version or an option of the command changes.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

RUNNERS = frozenset(
    ("npx", "npm", "pnpm", "pnpx", "yarn", "bunx", "bun", "deno", "uvx", "uv", "pipx", "docker")
)
"""Programs that run a package which an argument names."""

INTERPRETERS = re.compile(r"(python|pypy|node|ruby|perl|bash|sh|zsh)[\d.]*")
"""Programs that run a file or a module which an argument names."""

VERBS = frozenset(("exec", "dlx", "run", "tool", "x"))
"""Words of a runner that say what to do, and name no package."""

NAMING = frozenset(("-m", "-p", "--package", "--from"))
"""Options whose value is the package or the module."""

VERSION = re.compile(r"(?<=.)@[^/@]*$|[=~<>!]=?.*$")
"""What follows the name of a package: `@1.2`, `==1.2`."""


def agent_key(command: Sequence[str]) -> str:
    """The program, and what identifies the package it runs: `npx some-agent`, `python -m agent`."""
    program = os.path.basename(command[0])
    if program not in RUNNERS and not INTERPRETERS.fullmatch(program):
        return program
    return " ".join([program, *_package(list(command[1:]))])


def _package(arguments: list[str]) -> list[str]:
    while arguments:
        word = arguments.pop(0)
        if word in NAMING and arguments:
            return [*(["-m"] if word == "-m" else []), VERSION.sub("", arguments[0])]
        if not word.startswith("-") and word not in VERBS:
            return [VERSION.sub("", word)]
    return []
