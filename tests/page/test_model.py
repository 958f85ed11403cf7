"""The model of the page, without a browser: the fold of a conversation, the line, smaller parts."""

from __future__ import annotations

import json
import posixpath
import subprocess
from pathlib import Path
from typing import Any

import pytest

import acphold
from acp_wire.visible_text import exact, visible
from acphold.conversation.presentation import cuts
from docs.page_tables import FILE, tables
from tests.history import fold_corpus
from tests.lines import line_cases
from tests.npm import NODE

HERE = Path(__file__).parent / "model"
PAGE = Path(acphold.__file__).parent / "web" / "page" / "model"
RANDOM = range(1_000, 1_500)


def told_by_the_page(script: str, file: Path) -> dict[str, Any]:
    """What the page makes of the sequences in a file, and where it should be something else."""
    done = subprocess.run(
        [NODE, str(HERE / script), str(file)],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("which", ["kept", "random"])
def test_the_page_folds_as_the_core_does_whole_and_in_two_halves(
    tmp_path: Path, which: str
) -> None:
    file = fold_corpus.FILE
    if which == "random":
        file = tmp_path / "folds.jsonl"
        lines = [fold_corpus.line(f"random {n}", fold_corpus.sequence(n)) for n in RANDOM]
        file.write_text("".join(lines), encoding="utf-8")
    found = told_by_the_page("fold.mjs", file)
    assert found["failed"] == 0, json.dumps(found["wrong"][0], indent=1)
    assert found["sequences"] == len(file.read_text(encoding="utf-8").splitlines())
    assert found["halves"] > found["sequences"]


def test_the_page_owes_a_server_that_comes_back_what_every_line_owes(tmp_path: Path) -> None:
    assert line_cases.FILE.read_text(encoding="utf-8") == line_cases.kept(), (
        "the rules of the line have changed; if they should, run `python -m tests.lines.line_cases`"
    )
    random = tmp_path / "lines.jsonl"
    lines = [line_cases.line_of(f"random {n}", line_cases.steps(n)) for n in RANDOM]
    random.write_text("".join(lines), encoding="utf-8")
    for file, count in ((line_cases.FILE, line_cases.KEPT), (random, len(RANDOM))):
        found = told_by_the_page("lines.mjs", file)
        assert found["failed"] == 0, json.dumps(found["wrong"][0], indent=1)
        assert found["sequences"] == count


def test_the_smaller_parts_of_the_page_do_what_they_say() -> None:
    files = sorted(map(str, HERE.glob("*.test.mjs")))
    done = subprocess.run(
        [NODE, "--test", *files], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr


MARKED = """
import { readFileSync } from "node:fs";
const { exact, visible } = await import(process.argv[1]);
const marked = {};
const [codes, words] = JSON.parse(readFileSync(0, "utf8"));
for (const code of codes) {
  const character = String.fromCodePoint(code);
  const [one, other] = [visible(character), exact(character)];
  if (one !== character || other !== character) marked[code] = [one, other];
}
console.log(JSON.stringify([marked, words.map((each) => [visible(each), exact(each)])]));
"""
NOT_ALONE = (
    "a\u200b1 \u2764\ufe0f\u200d\U0001f525\ufe01\u0645\u06cc\u200c\u062e\u200c\u845b\U000e0100"
    "\U000e0101\u0600\u0660\u20e3"
)


def test_the_page_marks_the_characters_that_the_terminal_marks() -> None:
    words = [NOT_ALONE[at:] for at in range(len(NOT_ALONE))]
    # All that Unicode has given a meaning, and one in 251 of what it has not.
    codes = [*range(0x34000), *range(0x34000, 0xE0000, 251), *range(0xE0000, 0xE1000)]
    codes += range(0xE1000, 0x110000, 251)
    command = [NODE, "--input-type=module", "--eval", MARKED, (PAGE / "text.js").as_uri()]
    given = json.dumps([codes, words])
    done = subprocess.run(
        command, input=given, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    alone = {chr(code): [visible(chr(code)), exact(chr(code))] for code in codes}
    marked, told = json.loads(done.stdout)
    assert marked == {str(ord(it)): shown for it, shown in alone.items() if shown != [it, it]} | {
        "13": ["\n", "\\x0d"]
    }
    assert told == [[visible(it), exact(it)] for it in words]


PATHS = [
    *("/a/b/../c", "../x/./y//z", "a/../../b", "/../etc", ".", "", "./a", "https://a/../b", "a/b/"),
    f"/srv/{'x/' * 200}../.github/w.yml",
    "/srv/\u200ba\n\u3164",
]
NORMAL = """
import { readFileSync } from "node:fs";
const { normalPath, pathLine } = await import(process.argv[1]);
const both = (path) => [normalPath(path), pathLine(path)];
console.log(JSON.stringify(JSON.parse(readFileSync(0, "utf8")).map(both)));
"""


def test_a_path_on_the_page_is_without_detours_and_cut_in_its_middle_so_that_its_file_stays() -> (
    None
):
    command = [NODE, "--input-type=module", "--eval", NORMAL, (PAGE / "text.js").as_uri()]
    done = subprocess.run(
        command, input=json.dumps(PATHS), capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    for path, (normal, line) in zip(PATHS, json.loads(done.stdout), strict=True):
        assert normal == (posixpath.normpath(path) if path and "://" not in path else path)
        first, last = cuts.PATH
        whole = exact(normal).replace("\n", "\\x0a")
        assert line == (whole if len(whole) <= first + last else f"{whole[:first]}…{whole[-last:]}")


def test_the_tables_of_the_page_are_current() -> None:
    assert FILE.read_text(encoding="utf-8") == tables(), "run `make docs`"
