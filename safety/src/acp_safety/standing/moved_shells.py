"""Signs that a command line may have led its shell to another folder."""

from __future__ import annotations

import os
import re
from typing import Final

from acp_safety.standing.folders import real
from acp_safety.standing.programs import UnreadableLine, read_line

PLAIN_FOLDER: Final = re.compile(r"[A-Za-z0-9_./][^~]*")
"""A folder that `cd` finds without looking into anything else."""

_LEADS: Final = re.compile(
    r"\b(cd|pushd|popd|chdir|prevd|nextd|cdh|pushln|source|eval|export|alias|enable|PATH)\b"
    r"|\(\s*\)"  # of a function
    r"|(?<![\w./=-])(?:hash|trap|function|declare|typeset|unalias|unset|exec)(?![\w-])"
    r"|(?<!\S)\.\s+(?:--\s|[^\s|;&<>)-])"
    r"|(?:^|[\s;&|({`!])\w+=\S{,99}[^\S\n]+(?:\$|\{\S)"
    # Where a command begins.
    r"|(?:^|[\n;&|({`!]|\b(?:then|do|else|if|elif|while|until|time|command|builtin)\s)[^\S\n]*"
    r"(?:\.\s|\$|\{\S)"
)
"""Signs in a line that `read_line` cannot read, by which a later one may run in another folder, or
run something else."""


def leads_away(line: str, folder: str) -> bool:
    """True if this command line may leave its shell in another folder than that of the session, or
    with other meanings of words."""
    commands = read_line(line)
    if isinstance(commands, UnreadableLine):
        return _LEADS.search(re.sub(r"[\\'\"]", "", line)) is not None
    for command in commands:
        match command.argv:
            case ("cd", target) if PLAIN_FOLDER.fullmatch(target):
                if real(os.path.join(folder, target)) != real(folder):
                    return True
            case ("cd", *_):
                return True
    return False
