"""A shell that stays is where it was only after programs that are known to leave it there."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
from pathlib import Path

import pytest

from acphold.safety.standing.moved_shells import leads_away

STAYS = r"""
make
./configure --prefix=/tmp && make -j4
cd .
cd ./
cd {folder} && make
cd "{folder}" && npm test 2>&1 | tail -20
cd {folder}; ls
cd ../{name}
git status --short && git diff --stat | head -5
git commit -m 'a hash of it; then cd elsewhere'
git commit -m "fix: don't source a.sh (export it)"
git log --oneline -5 || true
npm run build && npm test -- --watch=false
NODE_ENV=test npx jest src/a.test.ts
A=hash make $X
make "$FOLDER"
PYTHONPATH=. python -m pytest -q tests/test_a.py::test_x
python -c "import os; print(os.getcwd())"
python3 - <<'EOF'
cat > a.txt <<EOF
grep -r hash-map . | less $X
grep -n 'foo\|bar' src/a.py | head
grep -rn "TODO" --include='*.py' . | wc -l
find . -name "*.py" -not -path './node_modules/*' | xargs wc -l
find . -name '*.tmp' -exec rm {{}} \;
find . -name $X
sed -n '1,40p' src/a.py
sed -i 's/a/b/g' src/a.py && cat src/a.py
awk '{{print $1}}' names.txt | sort | uniq -c
for f in *; do echo $f; done
for f in $(ls src); do wc -l "src/$f"; done
while read -r line; do echo "$line"; done < names.txt
if [ -f a.txt ]; then cat a.txt; else echo none; fi
if [[ -d src ]]; then ls src; fi
until make; do sleep 1; done
set -e; make
set -euo pipefail; cargo test
command -v make
command ls
which node && node --version
x=$(git rev-parse HEAD); echo $x
echo "$(date): done"
echo `date`
echo ${{x:-none}} $((1 + 2))
time make check
! grep -q x a.txt
(make && ls)
{{ make; ls; }} > log 2>&1
make > build.log 2>&1 &
make &> build.log
make 2>/dev/null || echo failed
printf 'a\n%s\n' b
# run the tests
mkdir -p build && cp a.txt build/ && rm -rf build
cat <<< "some text"
diff <(ls src) <(ls tests)
docker compose up -d && curl -s localhost:8080/health
kill %1
'make' check
\grep x a.txt
ls src/ && exit 1
"""

LEADS = r"""
take src
z src
..
...
mkcd src
j src
up 2
md src
cdr
cdf
proj shop
fasd_cd src
autojump src
ranger
yy
br
grt
wd shop
bd home
goto src
workon shop
conda activate shop
nvm use 20
pyenv shell 3.12
direnv allow
module load gcc
deactivate
make && z src
ls | take src
(z src)
if true; then take src; fi
for f in *; do z $f; done
echo $(z src)
ls; ..
LS
cd elsewhere
cd /
cd
cd -
cd . elsewhere
make; cd src
cd "$FOLDER"
cd ~
cd src && make && cd ..
pushd src
pushd "$FOLDER"
c'd' $X
c\d $X
c\
d src
. ./env.sh
. $X
source env.sh
eval "$X"
make; ${{x}}d src
{{cd,src}}
command cd src
command -- hash -p evil make
builtin cd src
alias make=evil
unalias make
hash -p evil make
ls; command hash -p evil make
A=1 hash -p evil make
A='x y' hash -p evil make
A[0]=1 hash -p evil make
>/dev/null hash -p evil make
2>&1 . ./evil
<<<x . -- ./evil
time -p . ./evil
if . ./evil; then make; fi
until $X; do make; done
case x in x) hash -p evil make;; esac
A=1 $X /tmp
X=c Y=d; A=1 $X$Y /tmp
A=1 {{c,}}d /tmp
command A=1 $X
trap ./evil DEBUG
function make {{ evil; }}
exec other-shell
export PATH=evil:$PATH
PATH=evil
path=evil
read PATH < a.txt
printf -v PATH evil
for PATH in evil; do ls; done
set -A path evil
make() {{ evil; }}
ls *(e:'cd src':)
if [[ x ]] {{ cd src }}
if [[ x ]] 'z'
for x do cd src; done
src
./src
src/
echo 'it\'; cd src; echo '\''
# don't
ls "!z"
ls 'unclosed
cat <<X
cat <<EOF; z src
ls ) ; z src
"""


def lines(text: str, folder: Path) -> list[str]:
    made = [line.format(folder=folder, name=folder.name) for line in text.strip().split("\n")]
    documents = {"python3 - <<'EOF'": "import os\nos.chdir('src') # it's\nEOF\nls"}
    documents |= {"cat > a.txt <<EOF": "make ()\ncd src\n. x\nEOF\n", "# don't": "cd src # '"}
    documents |= {"cat <<X": "a \\\nX\nb\nY\\\nX\nz src\nX", "c\\": "d src"}
    documents |= {"# run the tests": "make check", "ls 'unclosed": ""}
    return [f"{line}\n{documents[line]}" if line in documents else line for line in made]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "src").mkdir()
    return tmp_path.resolve()


def test_a_line_of_programs_that_are_known_leaves_the_shell_in_its_place(folder: Path) -> None:
    assert [line for line in lines(STAYS, folder) if leads_away(line, str(folder))] == []


def test_after_anything_else_the_place_of_the_shell_is_unknown(folder: Path) -> None:
    assert [line for line in lines(LEADS, folder) if not leads_away(line, str(folder))] == []


def test_a_commit_with_its_message_in_a_document_leaves_the_shell_in_its_place(
    folder: Path,
) -> None:
    line = "git commit -m \"$(cat <<'EOF'\nfix: {}\n\nMore.\nEOF\n)\""
    assert not leads_away(line.format("source (of a cd)"), str(folder))
    # An old bash looks for the closing bracket in the document.
    assert leads_away(line.format('x ) "; cd src; echo "('), str(folder))
    assert leads_away(line.format("it's"), str(folder))


# -- the same in the shells -----------------------------------------------------------------------

PIECES = (
    *("cd src", "z src", "ls", "echo a", "true", "false", "x=1", "x=$(z src)", "printf a", ": b"),
    *(";", "\n", "&&", "||", "|", "&", "(", ")", "{", "}", "'", '"', "\\", "`", "$(", "${x}", "$x"),
    *("<<EOF\n", "\nEOF\n", "<<'EOF'\n", ">f", "2>&1", "<f", "<<<", "#", "!", "if", "then", "fi"),
    *(
        "do",
        "done",
        "for x in a",
        "time",
        "command",
        "\\\n",
        "src",
        "..",
        "a",
        "EOF",
        "\t",
    ),
    *(
        "[[ a ]]",
        "[ a ]",
        "case a in",
        "esac",
        "'a b'",
        '"a b"',
        "'z'",
        '"$(',
        '")',
        "-v",
        "read x",
    ),
)
LINES = int(os.environ.get("MOVED_LINES", "6000"))
SHELLS = ("bash", "dash", "zsh")


@pytest.mark.parametrize("shell", SHELLS)
def test_no_shell_is_elsewhere_after_a_line_that_leaves_it_in_its_place(
    shell: str, folder: Path
) -> None:
    if (program := shutil.which(shell)) is None:
        pytest.skip(f"{shell} is not installed")
    chance = random.Random()
    tried = []
    for _ in range(LINES):
        count = chance.randrange(2, 9)
        line = "".join(chance.choice(PIECES) + chance.choice((" ", " ", "")) for _ in range(count))
        if not leads_away(line, str(folder)):
            tried.append(line)
    assert len(tried) > LINES / 200
    chance.shuffle(tried)
    for line in (*tried[:100], *(it for it in lines(STAYS, folder) if "cd" in it)):
        (folder / "line").write_text(line)
        (folder / "f").write_text("z src\n")
        script = (
            'trap "pwd >place" 0; z() { cd src; }; trap "command pwd >\'$1/place\'" 0; eval "$2"'
        )
        subprocess.run(
            [program, "-c", script, shell, str(folder), line],
            cwd=folder,
            env={"PATH": "", "HOME": str(folder)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=20,
        )
        place = folder / "place"
        assert place.read_text().strip() == str(folder), line
        place.unlink()
