"""The table of what programs do with conversations names each reader, and tells what it does."""

from __future__ import annotations

from pathlib import Path

import pytest

from acphold import imports
from acphold.imports import NAMES, reader
from tests.docs.test_reference import DOCS
from tests.imports.every_reader import Said, found, write

LINES = (DOCS / "import.md").read_text("utf-8").splitlines()
HEAD, _, *ROWS = (line.strip("|").split("|") for line in LINES if line.startswith("|"))


def test_each_reader_of_another_program_has_one_row() -> None:
    assert sorted(row[0] for row in ROWS) == sorted({*NAMES} - {"acphold"})


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_a_row_tells_what_its_reader_does(row: list[str], tmp_path: Path) -> None:
    name, told = row[0], dict(zip(HEAD, row, strict=True))
    assert told["back"] == "Y" or reader(name).branches is None
    modules = Path(imports.__file__).parent.glob(f"{name}*.py")  # none for one beside another
    code = "".join(path.read_text("utf-8") for path in modules)
    assert told["fork"] == "Y" or "facts.begun_as" not in code
    assert told["compact"] == "Y" or not ("compaction(" in code or "compacts=" in code)
    write(name, tmp_path, [Said(1, 1_767_322_800_000, "Hello.", "Hi.")])
    (source,) = found(name, tmp_path)
    assert told["cut"] == "line" or source.path.suffix not in (".jsonl", ".md")
