"""Lines of the small language against the real shells: each passes exactly the words that we think.

A shell gets the lines as data in one script, and evaluates them in an empty folder, with an empty
PATH, and functions in the place of the programs, which write down their arguments.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from acphold.safety.standing.programs import UnreadableLine, read_line

LINES = int(os.environ.get("SHELL_LINES", "20000"))
"""Other ones at each run; `make soak` tries 100,000."""

PROGRAMS = ("p", "q", "aa", "b1", "ls", "git-x")
SHELLS = {
    "bash": ["bash", "--norc", "--noprofile"],
    "dash": ["dash"],
    "zsh": ["zsh", "-f"],
    "fish": ["fish", "--no-config"],
}
PIECES = (
    *" _./:@%+,=-~^*?[]{}()<>|&;!#$'\"\\`ab12é\t\n",
    *(
        "&&",
        "||",
        "|",
        ";",
        "; ",
        " && ",
        " | ",
        "2>&1",
        ">/dev/null",
        " 2>/dev/null",
        "</dev/null",
    ),
    *(
        " 'a b'",
        ' "a b"',
        "''",
        '""',
        " 'é;|'",
        "--x=",
        " -y",
        "x=y",
        "$(",
        "${",
        "=p",
        "%self",
        " '$x'",
    ),
    *("..", "./a", " 2> /dev/null", "'", '"', " a", " b", " c=d", "2", "1", " @a", " %b", "]"),
)
WORDS = (
    "a",
    "-b",
    "--c=d",
    "'e f'",
    '"g h"',
    "i/j.k",
    "l=m",
    "n:o",
    "+5",
    "a,b",
    "x@y",
    "100%",
    "''",
    "'$x'",
    '"it\'s"',
    "--q='r s'",
    "'é ü'",
    "-",
    "--",
    "'*'",
    '"#"',
    "'!'",
    "2",
    "1",
)
ENDS = ("", "", "", " 2>&1", " >/dev/null", " 2>/dev/null", " </dev/null", " > /dev/null 2>&1")


def line(chance: random.Random) -> str:
    """A line that is plain, about as often as not."""
    commands = []
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        words = (chance.choice(WORDS) for _ in range(chance.randrange(5)))
        commands.append(" ".join((chance.choice(PROGRAMS), *words)) + chance.choice(ENDS))
    text = commands[0]
    for command in commands[1:]:
        text += chance.choice((" && ", " | ", "; ", ";", "|", "&&")) + command
    for _ in range(chance.choice((0, 0, 1, 1, 2, 4))):
        place = chance.randrange(len(text) + 1)
        text = text[:place] + chance.choice(PIECES) + text[place + chance.randrange(2) :]
    return text


def plain_lines(count: int, seed: int) -> list[tuple[str, Counter[tuple[str, ...]]]]:
    """Of `count` random lines those that are plain, with the commands that we think they are."""
    chance = random.Random(seed)
    found = []
    for _ in range(count):
        text = line(chance)
        commands = read_line(text)
        # Any other program would really be looked for.
        if not isinstance(commands, UnreadableLine) and all(
            c.argv[0] in PROGRAMS for c in commands
        ):
            found.append((text, Counter(command.argv for command in commands)))
    return found


def passed(shell: str, lines: list[str], folder: Path) -> list[Counter[tuple[str, ...]]]:
    """The commands that a shell makes of each line; the order within a line is not looked at."""
    found, script = folder / "found", folder / "script"
    (empty := folder / "empty").mkdir(exist_ok=True)
    found.unlink(missing_ok=True)
    is_fish = shell == "fish"
    parts = []
    for name in PROGRAMS:
        if is_fish:
            body = f"printf '%s\\0' {name} $argv '/end' >>{found}"
            parts.append(f"function {name}; {body}; end")
        elif shell == "dash" and "-" in name:
            continue  # no name of a function there
        else:
            parts.append(f"{name}() {{ printf '%s\\0' {name} \"$@\" /end >>{found}; }}")
    for text in lines:
        if is_fish:
            data = text.replace("\\", "\\\\").replace("'", "\\'")
        else:
            data = text.replace("'", "'\\''")
        parts += [f"eval '{data}'", f"printf '/line\\0' >>{found}"]
    script.write_text("\n".join(parts) + "\n", encoding="utf-8")
    command = [shutil.which(SHELLS[shell][0]) or shell, *SHELLS[shell][1:], str(script)]
    subprocess.run(
        command,
        cwd=empty,
        env={"PATH": str(empty), "HOME": str(empty), "LC_ALL": "C.UTF-8"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=900,
        check=False,
    )
    assert not list(empty.iterdir()) or is_fish, "a line has written a file"
    result = []
    for told in found.read_bytes().decode().split("/line\0")[:-1]:
        commands = told.split("/end\0")[:-1]
        result.append(Counter(tuple(words.split("\0")[:-1]) for words in commands))
    return result


def differences(shell: str, count: int, seed: int, folder: Path) -> list[str]:
    assert shutil.which(shell), f"install {shell}, as .ci/run does"
    lines = plain_lines(count, seed)
    if shell == "dash":
        lines = [(text, words) for text, words in lines if not any(w[0] == "git-x" for w in words)]
    assert len(lines) > count / 4
    found = passed(shell, [text for text, _ in lines], folder)
    assert len(found) == len(lines)
    return [
        f"{text!r}: {dict(shown)}"
        for (text, thought), shown in zip(lines, found, strict=True)
        if shown != thought
    ]


@pytest.mark.slow
@pytest.mark.parametrize("shell", SHELLS)
def test_a_shell_passes_exactly_the_words_of_each_of_many_thousand_lines(
    shell: str, tmp_path: Path
) -> None:
    assert differences(shell, LINES, random.SystemRandom().randrange(10**9), tmp_path) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("shell", "listing"),
    [
        ("bash", "compgen -k"),
        ("zsh", "print -l ${(k)reswords}"),
        ("fish", "builtin --names"),
    ],
)
def test_no_reserved_word_of_a_shell_begins_a_plain_command(shell: str, listing: str) -> None:
    path = shutil.which(shell)
    assert path, f"install {shell}, as .ci/run does"
    words = subprocess.run(
        [path, "-c", listing], capture_output=True, text=True, timeout=30, check=True
    ).stdout.split()
    assert len(words) > 15
    harmless = {"cd", "echo", "pwd", "true", "false", "type", "realpath"}
    read = [word for word in words if not isinstance(read_line(f"{word} a"), UnreadableLine)]
    assert set(read) <= harmless


def test_a_line_that_hangs_on_what_stands_behind_its_end_is_not_plain() -> None:
    for text in ("ls 'a", 'ls "a', "ls &&", "ls |", "ls;", "ls \\"):
        assert isinstance(read_line(text), UnreadableLine)
