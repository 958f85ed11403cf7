"""Each program of the list: words that it may get, and words by which it would do more."""

from __future__ import annotations

from pathlib import Path

from acphold.safety.standing.programs import PROGRAMS, why_uncovered

TRIED = """
pytest          -q tests                       | -p evil
git status      -s                             | --pathspec-from-file=/etc/passwd
git log         --oneline -n 3                 | --output=x
git diff        --stat                         | --ext-diff
git show        --stat HEAD                    | --textconv
git blame       src/a.py                       | --contents=x
git branch      --show-current                 | -D main
git rev-parse   --short HEAD                   | --parseopt
git ls-files    --cached                       | --exclude-from=x
git grep        -n word                        | -Oless
git describe    --tags                         | --contains
ls              -la src                        | ../outside
cat             -n names.txt                   | out/secret
head            -n 5 names.txt                 | /etc/passwd
tail            -n 5 names.txt                 | -f
wc              -l names.txt                   | --files0-from=x
grep            -rn word src                   | -f ../outside/secret
rg              -n word                        | --pre=sh
sort            -u names.txt                   | --compress-program=sh
uniq            -c names.txt                   | names.txt args
cut             -d, -f1 names.txt              | --output-delimiter=x
tr              -d x                           | --help
stat            -c %s names.txt                | --printf=x
file            -b names.txt                   | -m evil
du              -sh src                        | --files0-from=x
pwd             -P                             | x
tree            -L 2                           | -o x
ruff check      --no-fix src                   | --config x
ruff format     --check src                    | --config=x
black           --check src                    | --config x
gofmt           -l src                         | -cpuprofile x
cargo fmt       --check                        | -- --config x
shellcheck      -s sh args                     | -x
tsc             --noEmit                       | --build
mypy            --strict src                   | --python-executable=sh
pyright         --stats                        | --pythonpath sh
eslint          --quiet src                    | --rulesdir x
prettier        --check src                    | --plugin=x
vitest run      -t name                        | --config x
jest            --ci                           | --globalSetup x
cargo test      --release                      | --config x
cargo build     --release                      | --config x
cargo check     --all                          | --config x
cargo clippy    --all                          | --fix
go test         ./src                          | -exec sh
go build        ./src                          | -toolexec sh
go vet          ./src                          | -vettool=x
dotnet test     --no-build                     | --settings x
dotnet build    -c Release                     | -p:x=y
swift test      --parallel                     | --package-path ..
swift build     -c release                     | -Xswiftc x
mix test        --trace                        | --require x
rspec           --fail-fast                    | -r evil
"""


def test_each_program_of_the_list_may_get_harmless_words_and_none_that_run_more(
    project: Path,
) -> None:
    tried = set()
    for line in TRIED.strip().splitlines():
        allowed, _, more = (it.split() for it in line.partition("|"))
        row = next(it for it in PROGRAMS if tuple(allowed[: len(it.words)]) == it.words)
        tried.add(row.words)
        here = str(project)
        assert why_uncovered(allowed, here, here) == "", line
        assert why_uncovered([*row.words, *more], here, here) != "", line
    assert tried == {row.words for row in PROGRAMS}
