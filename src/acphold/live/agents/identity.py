"""The identity of the agent that a command starts, if the agent gives no name at `initialize`.

Sessions are listed only under their own agent, so the result must stay the same when a version or
an option of the command changes. `wrap --name` sets it if it cannot be found.

    command                                           key
    ------------------------------------------------  -------------------------------
    a program                                         its name, without its folder
    a runner of packages (npx, uvx, docker run …)     the runner, and the package without version
    an interpreter (python -m …, node FILE …)         the interpreter, and the module or the file
    a launcher (env VAR=x CMD, sh -c "CMD" …)         that of CMD
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from itertools import islice

from msgspec import Struct

from acphold.known_agents import DEMO, KNOWN_AGENTS, short_name


class Runner(Struct, frozen=True):
    """Rules to find among a program's arguments what it runs.

    `verbs` are commands, and name nothing; `naming` are options whose value names what is run, and
    `valued` those with any other value. If `flags` are given, every other option has a value.
    """

    verbs: frozenset[str] = frozenset()
    naming: frozenset[str] = frozenset()
    valued: frozenset[str] = frozenset()
    flags: frozenset[str] | None = None
    runs_files: bool = False


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_NODE_PACKAGES = Runner(
    verbs=_words("exec dlx x run"),
    naming=_words("-p --package"),
    valued=_words("-w --workspace -C --dir --prefix --cache --registry --cwd"),
)
_PYTHON_PACKAGES = Runner(
    verbs=_words("tool run"),
    naming=_words("--from --spec -m --module"),
    valued=_words(
        "-p --python -w --with --with-editable --with-requirements --directory --project --index "
        "--index-url -i --default-index --extra-index-url --env-file --extra --group --pip-args"
    ),
)
_CONTAINERS = Runner(
    verbs=_words("run exec container"),
    flags=_words(
        "-i -t -d -it -ti -P -q --rm --init --interactive --tty --detach --privileged --read-only "
        "--publish-all --quiet --no-healthcheck --oom-kill-disable --sig-proxy"
    ),
)
CONTAINERS = ("docker", "podman", "nerdctl")
RUNNERS = {
    **dict.fromkeys(("npx", "npm", "pnpm", "pnpx", "yarn", "bunx", "bun"), _NODE_PACKAGES),
    **dict.fromkeys(("uvx", "uv", "pipx"), _PYTHON_PACKAGES),
    **dict.fromkeys(CONTAINERS, _CONTAINERS),
    "deno": Runner(verbs=_words("run"), valued=_words("-c --config --import-map")),
}
"""Programs that run a package named by an argument."""

INTERPRETERS = {
    "python": Runner(naming=_words("-m -c"), valued=_words("-X -W"), runs_files=True),
    "node": Runner(
        naming=_words("-e --eval"),
        valued=_words("-r --require --import --loader --experimental-loader -C --conditions"),
        runs_files=True,
    ),
    "ruby": Runner(naming=_words("-e"), valued=_words("-I -r -C"), runs_files=True),
    "perl": Runner(naming=_words("-e"), valued=_words("-I"), runs_files=True),
    "java": Runner(naming=_words("-jar -m --module"), valued=_words("-cp -classpath -p")),
    "sh": Runner(valued=_words("-o -O --rcfile --init-file"), runs_files=True),
}
"""Programs that run a file or a module named by an argument."""

ALIASES = {
    "pypy": "python",
    "nodejs": "node",
    **dict.fromkeys(("bash", "zsh", "dash", "ksh"), "sh"),
}

LAUNCHERS = {
    "env": Runner(valued=_words("-u --unset -C --chdir")),
    "nohup": Runner(),
    "nice": Runner(valued=_words("-n --adjustment")),
    "stdbuf": Runner(valued=_words("-i -o -e")),
    "exec": Runner(valued=_words("-a")),
}
"""Programs, and a word of the shell, that run the command after their own arguments."""

VERSION = r"(?<=.)@[^/@]*$|#.*$|\[[^]]*\].*$|[=~<>!]=.*$|[<>].*$"
"""The part after the name of a package: `@1.2`, `==1.2`, `[extra]`, `#branch`."""

TAG = r"@sha256:.*$|:[^/:]*$"
"""The part after the name of an image."""

ASSIGNMENT = r"\w+="


def agent_key(command: Sequence[str], folder: str) -> str:
    """Return the program, and what identifies its package: `npx some-agent`, `python -m agent`.

    A script is known by its absolute path; a relative one is in `folder`.
    """
    return as_text(_key(command, folder))


def recognize(command: Sequence[str], folder: str, *names: str | None) -> str:
    """Return the name in `known_agents` of an agent that this command starts, "" if it has none.

    The `names` that a person gave it come first. What it says of itself does not count.
    """
    for name in names:
        if name is not None and short_name(name) in KNOWN_AGENTS:
            return short_name(name)
    if tuple(command[-2:]) == ("agent", DEMO):
        from acphold.machine.own_program import own_command  # late: an editor waits

        if tuple(command) == own_command("agent", DEMO):
            return DEMO
    key = agent_key(command, folder)
    program, _, word = key.rpartition(" ")
    if program in CONTAINERS:
        return ""  # its files and its shell are not those of this machine
    if (package := re.search(r".*/node_modules/((?:@[^/]+/)?[^/]+)/", word)) is not None:
        word = package[1]
    if (name := short_name(word)) in KNOWN_AGENTS:
        return name
    for agent in KNOWN_AGENTS.values():
        if (
            word in {agent_key(known, folder) for known in agent.commands}
            or word in agent.package[:1]
        ):
            return agent.name
    return ""


def as_text(word: str) -> str:
    r"""Return a word of a command line with bytes that are no UTF-8 as `\xff`: JSON cannot hold
    them."""
    return word.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def _key(command: Sequence[str], folder: str) -> str:
    program, arguments = os.path.basename(command[0]), list(command[1:])
    program = re.sub(r"\.(exe|cmd|bat)$", "", program, flags=re.IGNORECASE)
    if (launcher := LAUNCHERS.get(program)) is not None:
        while arguments:
            option, word = _next(launcher, arguments)
            if not option and not re.match(ASSIGNMENT, word):
                return _key([word, *arguments], folder)
        return program
    if (runner := RUNNERS.get(program)) is not None:
        while arguments:
            option, word = _next(runner, arguments)
            if option in runner.naming:
                return " ".join(
                    [program, *(["-m"] if option == "-m" else []), _plain(runner, word)]
                )
            if option or word in runner.verbs:
                continue
            name = _plain(runner, word)
            bare = re.sub(r"[\d.]+$", "", name)
            is_interpreter = ALIASES.get(bare, bare) in INTERPRETERS or name in LAUNCHERS
            if is_interpreter and runner is not _CONTAINERS:
                return _key([word, *arguments], folder)
            # A file, not a package: `uv run agent.py`.
            is_file = word.startswith((".", "/")) or word.endswith((".py", ".js", ".mjs", ".ts"))
            return f"{program} {_absolute(word, folder) if is_file else name}"
        return program
    plain = re.sub(r"[\d.]+$", "", program)  # python3.12
    plain = ALIASES.get(plain, plain)
    if (interpreter := INTERPRETERS.get(plain)) is None:
        return program
    while arguments:
        if plain == "sh" and re.fullmatch(r"-[a-z]*c", arguments[0]) and len(arguments) > 1:
            return _shell_key(arguments[1], folder)
        option, word = _next(interpreter, arguments)
        if option in interpreter.naming:
            return f"{plain} {option} {word}"
        if not option:
            return f"{plain} {_absolute(word, folder) if interpreter.runs_files else word}"
    return plain


def display_name(command: Sequence[str], folder: str) -> str:
    """Return the name of the agent in errors: its program, with what tells it from others of that
    program.

    `npx some-agent`, `acphold agent demo`; a path stays whole, as it may be what is wrong.
    """
    key = agent_key(command, folder)
    if key == "acphold":
        words = (word for word in command[1:] if not word.startswith("-"))
        return as_text(" ".join([command[0], *islice(words, 2)]))
    return key if os.path.basename(command[0]) in RUNNERS else as_text(command[0])


def far_machine(command: Sequence[str], folder: str) -> str:
    """Return the machine that `acphold connect` leads to, as it was typed, without a pairing code:
    files and folders are those of that machine then. "" for any other command."""
    if not command or agent_key(command, folder) not in ("acphold", "python -m acphold"):
        return ""
    words = [*command[command.index("connect") + 1 :]] if "connect" in command else []
    if "--ca" in words:
        del words[(place := words.index("--ca")) : place + 2]
    return next((word.partition("#")[0] for word in words if not word.startswith("-")), "")


def _shell_key(line: str, folder: str) -> str:
    """Return the key of the last command of a shell line; the others prepare it."""
    import shlex  # rare, and slow to import

    try:
        lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
        lexer.whitespace_split = True
        words = list(lexer)
    except ValueError:
        return f"sh -c {line}"
    while words and re.fullmatch(r"[;&|()]+", words[-1]):
        words.pop()
    ends = [place for place, word in enumerate(words) if re.fullmatch(r"[;&|()]+", word)]
    last = words[ends[-1] + 1 :] if ends else words
    while last and re.match(ASSIGNMENT, last[0]):
        last = last[1:]
    return _key(last, folder) if last else f"sh -c {line}"


def _next(runner: Runner, arguments: list[str]) -> tuple[str, str]:
    """Remove and return the next option with its value, or ("", word)."""
    word = arguments.pop(0)
    if word == "--" or not word.startswith("-"):
        return "", arguments.pop(0) if word == "--" and arguments else word
    option, equals, value = word.partition("=")
    if equals:
        return option, value
    has_value = option in runner.naming | runner.valued
    if runner.flags is not None:
        has_value = option not in runner.flags
    return option, arguments.pop(0) if has_value and arguments else ""


def _plain(runner: Runner, word: str) -> str:
    return re.sub(TAG if runner is _CONTAINERS else VERSION, "", word)


def _absolute(word: str, folder: str) -> str:
    return os.path.normpath(os.path.join(folder, word))
