r"""Command lines that rules can allow: their small language, and the programs in them.

Shell is not parsed. This recognises lines of which bash, dash, zsh and fish make exactly the
same arguments, and says of every other line that it cannot be read. A line is commands, joined by
`&&`, `;` or `|`; a command is words, with nothing behind them but `2>&1` or an end at `/dev/null`.

    word       letters, digits and _ . / : @ % + , = - of ASCII; a part in quotes may end it
    'quotes'   any printable text but ' \ ` $( ${
    "quotes"   any printable text but " \ ` $ !
    program    the first word: bare, and no word with a meaning of its own in any of the shells

Beyond ASCII only in quotes: a shell in another encoding could read such bytes as operators, and
does not as long as a quote follows. Text behind a quote is left out because of zsh: `''=ls` is a
path there, and with RC_QUOTES `'a''b'` is one quote.

A row of `PROGRAMS` lists the options that are harmless, not those that are dangerous: a new option,
a shortened one, or one joined to others is asked about until somebody has looked at it. A value in
a word of its own never begins with `-`: some programs look for their options there, too.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from typing import Final, Literal

from msgspec import Struct

from acp_wire.visible_text import exact
from acphold.safety.standing.folders import leads_out
from acphold.safety.standing.repositories import NO_SETTINGS, PersonalSettings, why_runs

# See docs/decisions.md, 35.

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
BARE: Final = r"[A-Za-z0-9_./:@+,-][A-Za-z0-9_./:@%+,=-]*"
"""A word that needs no quotes, as a pattern."""

_TOKEN: Final = re.compile(
    r"""\ *(?:
      (?P<redirect>2>&1 | 2?>\ ?/dev/null | <\ ?/dev/null)(?=[ ;]|$)
    | (?P<word>
        (?: (?P<bare>"""
    + BARE
    + r""") (?P<tail>'[^']*'|"[^"$!]*")?
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
        is_seen = text.isprintable() and exact(text) == text
        if not is_seen or not unicodedata.is_normalized("NFC", text):
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
            return UnreadableLine(
                f"cannot be understood from here: {_shorten(text[place:].lstrip())}"
            )
        place = token.end()
        if (operator := token["operator"]) is not None:
            if not words:
                return UnreadableLine(f"no command before {operator}")
            commands.append(PlainCommand(tuple(words), joined_by))
            words, is_redirected = [], False
            joined_by = operator  # type: ignore[assignment]
        elif token["redirect"] is not None:
            if not words:
                return UnreadableLine("a redirection without a command")
            is_redirected = True
        elif is_redirected:
            return UnreadableLine("a word after a redirection")
        elif not words and (why := _why_no_program(token)):
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


def _why_no_program(token: re.Match[str]) -> str:
    """Return the reason why a word cannot be the first of a command; "" if it can."""
    word = token["word"]
    if token["quoted"] is not None or token["tail"] is not None:
        return "the name of the program is in quotes"
    if "=" in word:
        return f"{_shorten(word)} sets a variable"
    if not _PROGRAM.fullmatch(word):
        return f"{_shorten(word)} is not the name of a program"
    if word in WORDS_OF_SHELLS:
        return f"{word} is a word of the shell"
    return ""


def _shorten(text: str) -> str:
    return text if len(text) <= 40 else f"{text[:40]}…"


# -- programs ---------------------------------------------------------------------------------

Means = Literal["reads", "obeys", "runs"]

MEANS: Final[dict[Means, str]] = {
    "reads": "only reads",
    "obeys": (
        "does what this folder's settings say: whoever can edit files here can have it write others"
    ),
    "runs": "runs this folder's code: whoever can edit files here can run anything with it",
}
"""The effect of such a program, for people."""

Operands = Literal["paths", "none", "one", "here"]
"""Arguments that are no options: paths or words, none, at most one, or paths that begin with `.`"""


class Row:
    """A row: the `words` that begin the command, and its harmless options.

    `flags` stand alone, `valued` have a value, joined or in the next word. With `long_only` an
    option is always a whole word, with one dash or two (Go, tsc). Without `joins` no value is
    joined to an option of one letter: more such options would stand there.
    """

    def __init__(
        self,
        words: str,
        means: Means,
        flags: str = "",
        valued: str = "",
        operands: Operands = "paths",
        *,
        long_only: bool = False,
        joins: bool = True,
    ) -> None:
        self.words = tuple(words.split())
        self.means = means
        self.flags = _words(flags)
        self.valued = _words(valued)
        self.operands = operands
        self.long_only = long_only
        self.joins = joins


_COMMITS: Final = (
    "-- -# -p -u -s -w -b -i -E -F --patch --no-patch --stat --numstat --shortstat --name-only "
    "--name-status --summary --oneline --graph --decorate --no-decorate --abbrev-commit "
    "--no-color --raw --word-diff --no-ext-diff --no-textconv --ignore-all-space "
    "--ignore-space-change --first-parent --pretty "
)
_COMMITS_VALUED: Final = "--format --pretty --date --color --diff-filter -U --unified --stat -S -G "
_LINES: Final = "-q -v -# -z --quiet --verbose"
_COUNTED: Final = "-n -c --lines --bytes"
_CARGO: Final = (
    "-r -q -v --workspace --all --all-targets --all-features --no-default-features --lib --bins "
    "--tests --examples --benches --release --quiet --verbose --locked --offline --frozen "
    "--keep-going"
)
_CARGO_VALUED: Final = (
    "-p -F -j --package --features --jobs --test --bin --example --bench --profile --exclude "
    "--message-format --color"
)

PROGRAMS: Final = (
    Row(
        "pytest",
        "runs",
        "-q -v -x -s -l --quiet --verbose --exitfirst --lf --last-failed --ff --failed-first --nf "
        "--sw --stepwise --co --collect-only --no-header --no-summary --showlocals "
        "--disable-warnings --no-cov --full-trace --strict-markers --strict-config --version "
        "--markers --fixtures",
        "-k -m -n -r --maxfail --tb --durations --color --deselect --ignore --capture --timeout "
        "--numprocesses --dist",
    ),
    Row(
        "git status",
        "reads",
        "-- -s -b -v -z --short --branch --long --porcelain --ignored --show-stash --ahead-behind "
        "--no-ahead-behind --renames --no-renames --verbose",
        "--porcelain --untracked-files --ignored",
    ),
    Row(
        "git log",
        "reads",
        _COMMITS + "--all --merges --no-merges --reverse --follow --full-history --date-order "
        "--topo-order --branches --tags --remotes",
        _COMMITS_VALUED + "-n --max-count --skip --since --after --until --before --author "
        "--committer --grep",
    ),
    Row(
        "git diff",
        "reads",
        "-- -p -u -s -w -b -R -M -C -z --patch --no-patch --stat --numstat --shortstat --name-only "
        "--name-status --summary --cached --staged --check --no-color --no-ext-diff --no-textconv "
        "--minimal --patience --histogram --raw --merge-base --word-diff --exit-code --quiet "
        "--ignore-all-space --ignore-space-change",
        "-U --unified --diff-filter --color --word-diff --diff-algorithm --stat -S -G",
    ),
    Row("git show", "reads", _COMMITS, _COMMITS_VALUED),
    Row("git blame", "reads", "-- -w -M -C -s -e -l -t -p --porcelain --line-porcelain", "-L"),
    Row("git branch", "reads", "-a -r -v -l --list --show-current --all --remotes", "", "none"),
    Row(
        "git rev-parse",
        "reads",
        "--show-toplevel --verify --git-dir --is-inside-work-tree --show-prefix --abbrev-ref "
        "--short --quiet",
        "--short",
    ),
    Row(
        "git ls-files",
        "reads",
        "-- -m -o -d -s -c -z --others --modified --deleted --cached --stage --exclude-standard",
    ),
    Row(
        "git grep",
        "reads",
        "-- -n -i -l -c -w -v -h -H -q -E -F -P --line-number --ignore-case --files-with-matches "
        "--count --word-regexp --cached --untracked --heading --break",
        "-e -A -B -C",
    ),
    Row("git describe", "reads", "--tags --always --dirty --long --all", "--match --abbrev"),
    Row(
        "ls",
        "reads",
        "-- -l -a -A -h -1 -t -r -S -R -d -F -p -s -i -n -o -g -G -c -u -k --all --almost-all "
        "--human-readable --reverse --recursive --directory --size --inode --color",
        "--color --sort --time --time-style",
    ),
    Row("cat", "reads", "-- -n -b -s -A -e -t -v -E -T --number"),
    Row("head", "reads", f"-- {_LINES}", _COUNTED),
    Row("tail", "reads", f"-- {_LINES}", _COUNTED),
    Row("wc", "reads", "-- -l -w -c -m -L --lines --words --bytes --chars"),
    Row(
        "grep",
        "reads",
        "-- -n -i -v -w -x -c -l -L -h -H -o -q -s -E -F -G -P -r -a -I -b -z -# --count "
        "--recursive --ignore-case --line-number --files-with-matches --files-without-match "
        "--only-matching --no-messages --with-filename --no-filename --invert-match "
        "--word-regexp --fixed-strings --extended-regexp --perl-regexp --quiet --color",
        "-e -A -B -C -m --include --exclude --exclude-dir --color --max-count --regexp --context "
        "--after-context --before-context",
    ),
    Row(
        "rg",
        "reads",
        "-- -n -N -i -v -w -x -c -l -o -S -s -F -P -U -q -H -I -p -a --files --hidden "
        "--no-ignore --json --count --files-with-matches --files-without-match --heading "
        "--no-heading --ignore-case --smart-case --case-sensitive --fixed-strings --word-regexp "
        "--line-number --no-line-number --multiline --stats --trim --vimgrep --column "
        "--only-matching --no-messages --with-filename --no-filename --pcre2 --invert-match",
        "-e -g -t -T -A -B -C -m -M -r -d -j --glob --iglob --type --type-not --max-count "
        "--max-depth --sort --sortr --color --context --after-context --before-context "
        "--replace --regexp --max-columns",
    ),
    Row("sort", "reads", "-- -n -r -u -f -h -V -g -M -b -d -i -c -C -s -z", "-k -t"),
    Row("uniq", "reads", "-c -d -u -i -z -D", "-f -s -w", "one"),
    Row("cut", "reads", "-s -n -z --complement", "-d -f -c -b --delimiter --fields"),
    Row("tr", "reads", "-d -s -c -C"),
    Row("stat", "reads", "-t", "-c --format"),
    Row("file", "reads", "-b -i --brief --mime --mime-type --mime-encoding"),
    Row("du", "reads", "-s -h -a -c -k -m -x", "-d --max-depth"),
    Row("pwd", "reads", "-P -L", "", "none"),
    Row(
        "tree",
        "reads",
        "-a -d -f -i -h -s --dirsfirst --noreport",
        "-L -I -P --filelimit",
        joins=False,
    ),
    Row(
        "ruff check",
        "obeys",
        "-q -v -s -n -e --quiet --verbose --no-fix --statistics --preview --no-cache --show-files "
        "--show-settings --diff --exit-zero --isolated",
        "--select --ignore --extend-select --extend-ignore --output-format --target-version "
        "--line-length",
    ),
    Row("ruff format", "obeys", "-q -v -n --quiet --verbose --check --diff --no-cache --preview"),
    Row("black", "obeys", "-q -v -S --quiet --verbose --check --diff", "-l -t --line-length"),
    Row("gofmt", "obeys", "-l -d -s -w -e", long_only=True),
    # Its settings here can make `fmt` the name of another command.
    Row("cargo fmt", "runs", "-q -v --all --check --quiet --verbose", "-p --package", "none"),
    Row("shellcheck", "reads", "-a -C --norc", "-s -S -e -i -f --shell --severity --exclude"),
    Row(
        "tsc",
        "obeys",
        "-noEmit -strict -skipLibCheck -listFiles -version -v -noErrorTruncation",
        "-p -project -pretty -target -lib",
        long_only=True,
    ),
    Row(
        "mypy",
        "runs",
        "-v -V --strict --no-incremental --ignore-missing-imports --show-error-codes --pretty "
        "--no-error-summary --check-untyped-defs --explicit-package-bases --namespace-packages "
        "--warn-unused-ignores --verbose --version",
        "--follow-imports --python-version --platform --disable-error-code --enable-error-code",
    ),
    Row("pyright", "runs", "--warnings --stats --outputjson --verbose --version"),
    Row("eslint", "runs", "--quiet --no-color --color --version", "--max-warnings --ext"),
    Row("prettier", "runs", "-c -l -w --check --list-different --write --no-color --version"),
    Row(
        "vitest run",
        "runs",
        "--silent --passWithNoTests --no-color",
        "-t --testNamePattern --bail",
        joins=False,
    ),
    Row(
        "jest",
        "runs",
        "-i -b -o --runInBand --ci --silent --verbose --bail --coverage --no-coverage "
        "--passWithNoTests --onlyChanged",
        "-t -w --testNamePattern --maxWorkers",
        joins=False,
    ),
    Row("cargo test", "runs", f"{_CARGO} --no-run --no-fail-fast --doc", _CARGO_VALUED),
    Row("cargo build", "runs", _CARGO, _CARGO_VALUED, "none"),
    Row("cargo check", "runs", _CARGO, _CARGO_VALUED, "none"),
    Row("cargo clippy", "runs", f"{_CARGO} --no-deps", _CARGO_VALUED, "none"),
    Row(
        "go test",
        "runs",
        "-v -short -race -cover -failfast -json",
        "-run -count -timeout -bench -benchtime -parallel -cpu -p -tags -skip -list -shuffle",
        "here",
        long_only=True,
    ),
    Row("go build", "runs", "-v -race", "-p -tags", "here", long_only=True),
    Row("go vet", "runs", "-v -json", "-tags", "here", long_only=True),
    Row(
        "dotnet test",
        "runs",
        "--no-build --no-restore --nologo",
        "-c -v --configuration --verbosity --filter",
    ),
    Row(
        "dotnet build",
        "runs",
        "--no-restore --nologo",
        "-c -v --configuration --verbosity",
    ),
    Row("swift test", "runs", "-v --parallel", "-c --filter --configuration", "none"),
    Row("swift build", "runs", "-v", "-c --configuration", "none"),
    Row("mix test", "runs", "--failed --stale --trace", "--only --exclude --seed --max-failures"),
    Row("rspec", "runs", "--fail-fast --color --no-color", "-e -t --example --tag"),
)
"""The rows. Sources: the programs' own manuals, in their releases of 2026."""

_BY_WORDS: Final = {row.words: row for row in PROGRAMS}

EXACT_AND_TYPED: Final = _words(
    "sh bash rbash zsh fish dash ksh mksh csh tcsh ash nu busybox pwsh powershell cmd "
    "python python2 python3 ipython pypy pypy3 node nodejs tsx ts-node deno bun perl ruby php lua "
    "tclsh elixir Rscript osascript java awk gawk mawk sed ed ex vi vim nvim emacs nano expect gdb "
    "lldb env sudo doas su runuser pkexec fakeroot chroot unshare nsenter setpriv bwrap "
    "systemd-run xargs parallel find fd watch nohup timeout time nice ionice stdbuf setsid taskset "
    "flock hyperfine script strace ltrace entr tmux screen "
    "ssh scp sftp rsync docker podman nerdctl kubectl npx pnpx bunx uvx uv pipx pip curl wget "
    "nc ncat socat tee dd"
)
"""Shells, interpreters, and programs that run or fetch others: a rule for them is exact, and typed
by a person."""


_SPECIAL_WORDS: Final = {
    "git": re.compile(r"%[-+ ]?G"),  # in a format: runs the program that checks signatures
    "dotnet": re.compile("[;,]"),  # sets further properties of the build, such as commands
}
"""By program: words with this have a meaning that is not looked into here."""


def row_of(argv: Sequence[str]) -> Row | None:
    """Return the row of the program and sub-command that this command begins with."""
    return _BY_WORDS.get(tuple(argv[:1])) or _BY_WORDS.get(tuple(argv[:2]))


def why_more(argv: Sequence[str], folder: str, personal: PersonalSettings) -> str:
    """Return the reason why exactly this command may do more than its row says; "" if it has none,
    or does not. `personal` are the settings that git has beside the repository's."""
    return why_runs(folder, personal) if argv[0].rsplit("/", 1)[-1] == "git" else ""


def why_uncovered(
    argv: Sequence[str], cwd: str, folder: str, personal: PersonalSettings = NO_SETTINGS
) -> str:
    """Return the reason why no row covers this command, with its arguments; "" if one does.

    `cwd` is the folder that the program stands in, `folder` that of the rule; both without links.
    `personal` is as for `why_more`.
    """
    if (row := row_of(argv)) is None:
        return f"it is not known what the arguments of {argv[0]} do"
    if row.words[0] == "git":
        if cwd != folder:
            return "git reads settings from the folder it runs in"
        if why := why_runs(cwd, personal):
            return why
    operands = 0
    options_ended = expects_value = False
    for word in argv[len(row.words) :]:
        if leads_out(word, cwd, folder):
            return f"{word} leads outside the folder"
        # Something other than a path or a name: arguments in a file, settings as JSON, or braces
        # that the program expands itself, which could lead anywhere.
        special = _SPECIAL_WORDS.get(row.words[0])
        if (
            word.startswith("@")
            or (row.means != "reads" and "{" in word)
            or (special is not None and special.search(word) is not None)
        ):
            return f"{word} has a special meaning for {row.words[0]}"
        if expects_value:
            if word.startswith("-"):
                return f"{word} stands where a value is expected"
            expects_value = False
        elif options_ended or word == "-" or not word.startswith("-"):
            operands += 1
            if word.startswith("+"):
                return f"{word} is an option in some releases of {row.words[0]}"
            if row.operands == "here" and not (word == "." or word.startswith("./")):
                return f"{word} may be code from elsewhere"
        elif word == "--":
            if "--" not in row.flags:
                return "-- passes arguments to another program"
            options_ended = True
        else:
            known, expects_value = _option(row, word)
            if not known:
                return f"{word} is not known as a harmless option of {' '.join(row.words)}"
            letters = (at for at in range(1, len(word)) if f"-{word[at]}" in row.valued)
            joined = word[next(letters, len(word)) + 1 :].lstrip("=")
            if not word.startswith("--") and joined and leads_out(joined, cwd, folder):
                return f"{word} leads outside the folder"
    if expects_value:
        return "the last option has no value"
    if operands and row.operands == "none":
        return f"{' '.join(row.words)} with more arguments may change something"
    if operands > 1 and row.operands == "one":
        return f"{row.words[0]} writes to its second file"
    return ""


def _option(row: Row, word: str) -> tuple[bool, bool]:
    """Say whether the option is harmless, and whether its value is the next word."""
    name, equals, value = word.partition("=")
    if row.long_only:
        name = "-" + name.lstrip("-") if not word.startswith("---") else word
    if name in row.flags and not equals:
        return True, False
    if name in row.valued:
        return not equals or bool(value), not equals
    if word.startswith("--") or row.long_only:
        return False, False
    if word[1:].isdecimal() and word.isascii():
        return "-#" in row.flags, False
    for place, letter in enumerate(word[1:], start=2):
        if f"-{letter}" in row.valued:
            return row.joins or place == len(word), place == len(word)
        if f"-{letter}" not in row.flags:
            return False, False
    return True, False
