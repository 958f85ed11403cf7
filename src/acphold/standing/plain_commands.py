"""The small language of command lines that every shell reads alike.

acphold does not parse shell. It recognises lines of which bash, dash, zsh and fish make exactly the
same arguments, and says of every other line that it cannot be read. A line is commands, joined by
`&&`, `;` or `|`; a command is words, with nothing behind them but `2>&1` or an end at `/dev/null`.

    word       letters, digits and _ . / : @ % + , = - of ASCII; a part in quotes may end it
    'quotes'   any printable text but ' \\ ` $( ${
    "quotes"   any printable text but " \\ ` $ !
    program    the first word: bare, and no word with a meaning of its own in any of the shells

Beyond ASCII only in quotes: a shell in another encoding could read such bytes as operators, and
does not as long as a quote follows. Text behind a quote is left out because of zsh: `''=ls` is a
path there, and with RC_QUOTES `'a''b'` is one quote.
"""

# See docs/decisions.md, 35.

from __future__ import annotations

import re
import unicodedata
from typing import Final, Literal

from msgspec import Struct

LENGTH: Final = 4096
"""Characters of the longest line that is read."""

COMMANDS: Final = 8
"""Commands of the longest line that is read."""

Operator = Literal["&&", ";", "|"]


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


WORDS_OF_SHELLS: Final = _words(
    # Reserved words, and words in front of a command, of bash, dash, zsh and fish.
    "if then elif else fi for foreach while until do done case esac in select function time "
    "coproc end begin switch repeat nocorrect noglob and or not command builtin exec eval "
    "declare typeset local export readonly float integer return break continue "
    # What they do remains for the commands behind them, or they evaluate their arguments.
    "source alias unalias abbr set unset setopt unsetopt setenv shopt enable disable hash "
    "rehash emulate autoload bind bindkey complete trap read mapfile readarray let shift "
    "getopts unfunction functions zmodload zle zcompile zparseopts sched argv test printf "
    "umask ulimit limit unlimit pushd popd dirs fg bg jobs wait kill disown exit logout "
    "chdir prevd nextd cdh pushln vared private r "
    "suspend status string math block contains count random fc history dot . .. argparse "
    "breakpoint commandline emit path set_color _"
)
"""No program: its meaning is the shell's, and often different in each."""


class PlainCommand(Struct, frozen=True):
    """One command of a line: the `argv` that its program gets; `joined_by` stands in front."""

    argv: tuple[str, ...]
    joined_by: Operator | None = None


class UnreadableLine(Struct, frozen=True):
    """A line that is not in the language; `why` is for people."""

    why: str


_EVALUATED: Final = re.compile(r"[\\`]|\$[({]")
_TOKEN: Final = re.compile(
    r"""\ *(?:
      (?P<redirect>2>&1 | 2?>\ ?/dev/null | <\ ?/dev/null)(?=[ ;]|$)
    | (?P<word>
        (?: (?P<bare>[A-Za-z0-9_./:@+,-][A-Za-z0-9_./:@%+,=-]*) (?P<tail>'[^']*'|"[^"$!]*")?
          | (?P<quoted>'[^']*'|"[^"$!]*") )
        (?=[ ;|&]|$))
    | (?P<operator>&&|;|\|)
    )""",
    re.VERBOSE,
)
_PROGRAM: Final = re.compile(r"[A-Za-z_./][A-Za-z0-9_./+-]*")


def read_line(text: str) -> tuple[PlainCommand, ...] | UnreadableLine:
    """Return the commands of `text`, in their order; Unreadable if shells could differ about it."""
    if len(text) > LENGTH:
        return UnreadableLine(f"the command has more than {LENGTH:,} characters")
    if not text.isascii():
        if not text.isprintable() or not unicodedata.is_normalized("NFC", text):
            return UnreadableLine("the command has characters that cannot be seen")
    elif not text.isprintable():
        return UnreadableLine("the command has control characters or several lines")
    if (found := _EVALUATED.search(text)) is not None:
        return UnreadableLine(f"the command has {found[0]}, which shells evaluate")
    commands: list[PlainCommand] = []
    words: list[str] = []
    joined_by: Operator | None = None
    is_redirected = False
    place, end = 0, len(text.rstrip(" "))
    while place < end:
        token = _TOKEN.match(text, place, end)
        if token is None:
            return UnreadableLine(f"cannot be read from here: {_shortened(text[place:].lstrip())}")
        place = token.end()
        if (operator := token["operator"]) is not None:
            if not words:
                return UnreadableLine(f"no command in front of {operator}")
            commands.append(PlainCommand(tuple(words), joined_by))
            words, is_redirected = [], False
            joined_by = operator  # type: ignore[assignment]
        elif token["redirect"] is not None:
            if not words:
                return UnreadableLine("a redirection without a command")
            is_redirected = True
        elif is_redirected:
            return UnreadableLine("a word behind a redirection")
        elif not words and (why := _no_program(token)):
            return UnreadableLine(why)
        else:
            quoted = token["tail"] or token["quoted"] or "''"
            words.append((token["bare"] or "") + quoted[1:-1])
    if not words:
        return UnreadableLine("the command ends with an operator" if commands else "no command")
    commands.append(PlainCommand(tuple(words), joined_by))
    if len(commands) > COMMANDS:
        return UnreadableLine(f"more than {COMMANDS} commands in one line")
    return tuple(commands)


def _no_program(token: re.Match[str]) -> str:
    """Return the reason why a word cannot be the first of a command; "" if it can."""
    word = token["word"]
    if token["quoted"] is not None or token["tail"] is not None:
        return "the name of the program is in quotes"
    if "=" in word:
        return f"{_shortened(word)} sets a variable"
    if not _PROGRAM.fullmatch(word):
        return f"{_shortened(word)} is not the name of a program"
    if word in WORDS_OF_SHELLS:
        return f"{word} is a word of the shell"
    return ""


def _shortened(text: str) -> str:
    return text if len(text) <= 40 else f"{text[:40]}…"
