"""Command lines that leave a shell where it is, and its words with their meanings.

A shell that stays for an agent's next command may have functions and aliases of its person, such as
`take` and `..`. So it stays in its place only after programs and words that are listed here.

The line is split into its commands as bash, dash, zsh and fish do it. Where they could differ, and
with everything that is rare, the place is unknown. What runs in a subshell is held to be in the
shell itself: in fish it is.
"""

from __future__ import annotations

import os
import re
from typing import Final

from msgspec import Struct

from acphold.safety.standing.folders import real
from acphold.safety.standing.programs import EXACT_AND_TYPED, PROGRAMS

PLAIN_FOLDER: Final = re.compile(r"[A-Za-z0-9_./][^~]*")
"""A folder that `cd` finds without looking into anything else."""


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


STAYING: Final = (
    frozenset(row.words[0] for row in PROGRAMS)
    | EXACT_AND_TYPED
    | _words(
        # Of the shell.
        ": true false echo test [ [[ pwd type which exit return break continue kill "
        # Of the system.
        "rm rmdir mkdir touch cp mv ln chmod chown chgrp install mktemp basename dirname realpath "
        "readlink tac nl less more paste join comm column fold fmt expand rev shuf seq split "
        "csplit diff cmp patch sdiff md5sum sha1sum sha256sum sha512sum shasum b2sum cksum base64 "
        "xxd od hexdump strings jq yq xmllint tar gzip gunzip zcat bzip2 xz zstd zip unzip 7z date "
        "cal sleep whereis whoami id groups hostname uname uptime df free ps top htop pgrep pkill "
        "killall lsof ss netstat ip ping dig host nslookup printenv locale nproc sysctl sync open "
        "xdg-open systemctl journalctl crontab at man tput clear stty getconf lscpu lsblk mount "
        "umount brew apt apt-get apt-cache dpkg yum dnf apk pacman snap ag ack bat eza tokei cloc "
        # That build and test.
        "git gh glab svn hg jj make gmake cmake ctest ninja meson bazel bazelisk gradle gradlew "
        "mvn ant sbt cargo rustc rustup rustfmt go golangci-lint goimports staticcheck dotnet "
        "swift swiftc swiftlint xcodebuild xcrun mix rebar3 gcc g++ clang clang++ clang-format "
        "clang-tidy cc c++ ld ar nm objdump ldd otool javac jar kotlinc scalac ghc cabal stack "
        "dune opam npm pnpm yarn corepack lerna nx turbo vite webpack rollup esbuild tsup vitest "
        "mocha ava playwright cypress biome oxlint stylelint tsc next ng vue nuxt svelte-kit expo "
        "astro python3.9 python3.10 python3.11 python3.12 python3.13 python3.14 pip3 pipenv poetry "
        "pdm hatch tox nox coverage flake8 pylint isort bandit ruff pre-commit sphinx-build mkdocs "
        "twine uvicorn gunicorn flask django-admin alembic celery jupyter pytest-3 py.test "
        "bundle bundler gem rake rails rubocop composer phpunit phpstan artisan jekyll hugo "
        # That talk to services.
        "sqlite3 psql mysql mongosh redis-cli docker-compose helm terraform tofu ansible "
        "ansible-playbook aws gcloud az heroku fly flyctl vercel netlify wrangler protoc buf "
        "acphold claude codex gemini opencode goose qwen"
    )
)
"""Programs, and words of shells, after which a shell is where it was, and knows what it knew."""

_KEYWORDS: Final = _words("if then elif else fi while until do done ! time { }")
"""Words that a command may follow in the same shell."""

_ASSIGNED: Final = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)\+?=")
_VARIABLE: Final = re.compile(r"(?!.*path)[a-z][a-z0-9_]*")
"""A variable that programs and shells do not read; `path` is PATH in zsh."""

_SETTINGS: Final = re.compile(r"[-+][euxo]+|[a-z]+")
_VALUE: Final = re.compile(r"\$\{[A-Za-z0-9_@*#?!%/.,:+^\[\] -]*\}|\$\(\([^()'\"`\\\n=]*\)\)")
"""A variable, or a sum, that is used and not set."""

_DELIMITER: Final = re.compile(r"(['\"]?)([A-Za-z_][A-Za-z0-9_]*)\1(?=[\s;&|<>)]|$)")
_REDIRECTION: Final = re.compile(r"[<>]{1,2}[&|]?")
_COMMENT: Final = re.compile(r"#[^'\"\\`$(){}<>;&|!\n]*(?=\n|$)")
"""A comment that means nothing to a shell that knows none."""

_PLAIN: Final = re.compile(r"[A-Za-z0-9_./:@%+,=!{}\[\]-]")
_ENDS_WORD: Final = frozenset(" \t\n;&|<>()")


class _UnknownError(Exception):
    """The shells could differ about the line, or it has something rare."""


class _Word(Struct):
    """A word of a command: its `text` without quotes; `bare` is what stands in front of any quote.
    Unless it `is_literal`, a shell makes something else of it."""

    text: str = ""
    bare: str = ""
    is_literal: bool = True
    has_quotes: bool = False

    @property
    def plain(self) -> str:
        """The word, if it is written as it is meant; "" otherwise."""
        return self.text if self.is_literal and not self.has_quotes else ""


def leads_away(line: str, folder: str) -> bool:
    """True if this command line may leave its shell in another folder than that of the session, or
    with other meanings of words."""
    try:
        commands = _Splitter(line).split()
    except (_UnknownError, RecursionError):
        return True
    return not all(_stays(words, folder) for words in commands)


def _stays(words: list[_Word], folder: str) -> bool:
    while words and words[0].plain in _KEYWORDS:
        words = words[1:]
    if any(word.plain in ("{", "}") for word in words):
        return False  # zsh has short forms of loops
    set_here = []
    while words and (found := _ASSIGNED.match(words[0].bare)):
        set_here.append(found[1])
        words = words[1:]
    if not words:
        return all(map(_VARIABLE.fullmatch, set_here))
    arguments = [word.text for word in words[1:]]
    if words[0].plain == "command" and arguments[:1] not in (["-v"], ["-V"]):
        return _stays(words[1:], folder) if arguments else True
    match words[0].text if words[0].is_literal else "":
        case "for":
            is_plain = len(words) == 2 or arguments[1:2] == ["in"]
            return is_plain and bool(_VARIABLE.fullmatch(arguments[0]))
        case "cd":
            is_named = len(words) == 2 and words[1].is_literal
            target = arguments[0] if is_named and PLAIN_FOLDER.fullmatch(arguments[0]) else ""
            return target != "" and real(os.path.join(folder, target)) == real(folder)
        case "command":
            return True
        case "[[":  # behind its end, a command to zsh
            return [word.plain for word in words].count("]]") == 1 and words[-1].plain == "]]"
        case "set":
            return all(map(_SETTINGS.fullmatch, arguments))
        case "read":
            return all(it.startswith("-") or _VARIABLE.fullmatch(it) for it in arguments)
        case "printf":
            return words[1:2] != [] and words[1].is_literal and arguments[0][:2] != "-v"
        case name:
            if os.path.isdir(os.path.join(folder, name)):
                return False  # to some shells that means to go there
            return "/" in name or name in STAYING


class _Splitter:
    """Splits one line into its commands, with those in `$( )`."""

    def __init__(self, line: str) -> None:
        if "\0" in line:
            raise _UnknownError
        self._line = line
        self._at = 0
        self._found: list[list[_Word]] = []
        self._documents: list[tuple[str, bool, bool]] = []

    def split(self) -> list[list[_Word]]:
        """Return the words of each command; raises _UnknownError."""
        self._read_commands(0)
        return self._found

    @property
    def _next(self) -> str:
        return self._line[self._at : self._at + 1]

    def _skip(self, pattern: re.Pattern[str]) -> re.Match[str]:
        if (found := pattern.match(self._line, self._at)) is None:
            raise _UnknownError
        self._at = found.end()
        return found

    def _read_commands(self, depth: int) -> None:
        """Read to the end of the line, or, with a `depth`, to the closing bracket."""
        if self._documents:
            raise _UnknownError
        words: list[_Word] = []
        self._found.append(words)
        while True:
            match self._next:
                case "":
                    if depth or self._documents:
                        raise _UnknownError
                    return
                case " " | "\t":
                    self._at += 1
                case "\n" | ";" | "&" | "|" as end:
                    self._at += 1
                    words = []
                    self._found.append(words)
                    if end == "\n":
                        self._skip_documents(depth)
                case ")" if depth and not self._documents:
                    self._at += 1
                    return
                case "(" if not words and not self._line.startswith("((", self._at):
                    self._at += 1
                    self._read_commands(depth + 1)
                case "<" | ">":
                    self._skip_redirection(words, depth)
                case "#":
                    self._skip(_COMMENT)
                case "(" | ")":
                    raise _UnknownError
                case _:
                    word = self._word(depth)
                    is_number = word.plain.isdecimal() and self._next in ("<", ">")
                    if (word.text or word.has_quotes or not word.is_literal) and not is_number:
                        words.append(word)

    def _skip_redirection(self, words: list[_Word], depth: int) -> None:
        if self._line.startswith(("<(", ">("), self._at):
            self._at += 2
            self._read_commands(depth + 1)
            words.append(_Word(is_literal=False))
            return
        if self._line.startswith("<<", self._at) and not self._line.startswith("<<<", self._at):
            self._at += 2
            is_indented = self._next == "-"
            self._at += is_indented
            while self._next in (" ", "\t"):
                self._at += 1
            found = self._skip(_DELIMITER)
            self._documents.append((found[2], is_indented, found[1] == ""))
            return
        if self._line.startswith("<<<", self._at):
            self._at += 3
        else:
            self._skip(_REDIRECTION)
        while self._next in (" ", "\t"):
            self._at += 1
        if self._next in _ENDS_WORD or not self._next:
            raise _UnknownError
        self._word(depth)

    def _skip_documents(self, depth: int) -> None:
        """Skip the here-documents that begin after this line."""
        for delimiter, is_indented, is_evaluated in self._documents:
            body = ""
            while True:
                end = self._line.find("\n", self._at)
                line = self._line[self._at : end if end >= 0 else None]
                if (line.lstrip("\t") if is_indented else line) == delimiter:
                    self._at += len(line)
                    break
                if end < 0:
                    raise _UnknownError
                body += f"{line}\n"
                self._at = end + 1
            # A line that goes on may make the end; and old shells look for brackets in there.
            if is_evaluated and "\\\n" in body:
                raise _UnknownError
            if depth and not _is_balanced(body):
                raise _UnknownError
        self._documents.clear()

    def _word(self, depth: int) -> _Word:
        word = _Word()
        while (letter := self._next) and letter not in _ENDS_WORD:
            match letter:
                case "'":
                    end = self._line.find("'", self._at + 1)
                    inner = self._line[self._at + 1 : end]
                    if end < 0 or (len(inner) - len(inner.rstrip("\\"))) % 2:
                        raise _UnknownError  # in fish, the quote may go on
                    word.text += inner
                    word.has_quotes = True
                    self._at = end + 1
                case '"':
                    self._at += 1
                    self._read_quoted(word, depth)
                case "\\":
                    after = self._line[self._at + 1 : self._at + 2]
                    self._at += 2
                    if not after:
                        raise _UnknownError
                    if after.isalpha() and after not in "abcefnrtuvxUX":  # in fish, a letter
                        word.text += after
                        word.has_quotes = True
                    elif after != "\n" or word.text or self._next not in (" ", "\t"):
                        word.is_literal = False
                case "$":
                    self._skip_value(word, depth)
                case "`":
                    self._read_old_substitution(word)
                case "#" if not word.is_literal:
                    raise _UnknownError  # behind a space of some shells, a comment
                case _:
                    word.is_literal &= _PLAIN.fullmatch(letter) is not None
                    self._read_letter(word, letter)
                    if not word.has_quotes and word.is_literal:
                        word.bare = word.text
        if self._next == "(" and (word.text or word.has_quotes or not word.is_literal):
            raise _UnknownError  # a function, a list, or code in a pattern of zsh
        return word

    def _read_letter(self, word: _Word, letter: str) -> None:
        """Take a letter; `!` may bring back an earlier command."""
        after = self._line[self._at + 1 : self._at + 2]
        if letter == "!" and after not in ("", " ", "\t", "\n", "=", '"'):
            raise _UnknownError
        word.text += letter
        self._at += 1

    def _read_quoted(self, word: _Word, depth: int) -> None:
        word.has_quotes = True
        while (letter := self._next) != '"':
            match letter:
                case "":
                    raise _UnknownError
                case "`":
                    self._read_old_substitution(word)
                case "\\":
                    after = self._line[self._at + 1 : self._at + 2]
                    word.text += after if after in '"\\$`' else letter + after
                    self._at += 2
                case "$":
                    self._skip_value(word, depth)
                case _:
                    self._read_letter(word, letter)
        self._at += 1

    def _read_old_substitution(self, word: _Word) -> None:
        word.is_literal = False
        end = self._line.find("`", self._at + 1)
        inner = self._line[self._at + 1 : end]
        if end < 0 or "\\" in inner or '"' in inner:
            raise _UnknownError
        self._found += _Splitter(inner).split()
        self._at = end + 1

    def _skip_value(self, word: _Word, depth: int) -> None:
        word.is_literal = False
        if self._line.startswith("$'", self._at):
            end = self._line.find("'", self._at + 2)
            if end < 0 or "\\" in self._line[self._at : end]:
                raise _UnknownError  # a quote that goes on, in some shells
            self._at += 1
        elif self._line.startswith(("${", "$(("), self._at):
            self._skip(_VALUE)
        elif self._line.startswith("$(", self._at):
            self._at += 2
            self._read_commands(depth + 1)
        else:
            self._at += 1


def _is_balanced(body: str) -> bool:
    open_ones = 0
    for letter in body:
        open_ones += (letter == "(") - (letter == ")")
        if open_ones < 0:
            return False
    return not (open_ones or body.count("'") % 2 or body.count('"') % 2)
