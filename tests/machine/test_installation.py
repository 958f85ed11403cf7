"""The code of a process is kept: an upgrade may take its files."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.talker import DEADLINE

KEEPS = """
import json, shutil, sys
sys.path.insert(0, sys.argv[1])
import house
from acphold.machine.installation import is_kept, is_replaced, keep_code
before = is_kept(), is_replaced()
keep_code("house")
kept = is_kept(), is_replaced()
change(sys.argv[1] + "/house")
changed = is_kept(), is_replaced()
import house.rooms.kitchen as kitchen
print(json.dumps([before, kept, changed, kitchen.NAME, kitchen.__file__, house.rooms.__name__]))
"""

REMOVES = "def change(folder): shutil.rmtree(folder)\n"
REPLACES = """
def change(folder):
    open(folder + "/rooms/kitchen.py", "w").write("NAME = 'another one, of the next release'")
"""


@pytest.mark.parametrize("is_compiled", [True, False])
@pytest.mark.parametrize("change", [REMOVES, REPLACES])
def test_what_is_imported_later_is_what_was_there_at_first(
    tmp_path: Path, change: str, is_compiled: bool
) -> None:
    kitchen = tmp_path / "house" / "rooms" / "kitchen.py"
    kitchen.parent.mkdir(parents=True)
    (tmp_path / "house" / "__init__.py").touch()
    (kitchen.parent / "__init__.py").touch()
    kitchen.write_text("NAME = 'kitchen'")
    if is_compiled:
        subprocess.run([sys.executable, "-m", "compileall", "-q", tmp_path], check=True)
    told = subprocess.run(
        [sys.executable, "-c", f"import shutil\n{change}\n{KEEPS}", tmp_path],
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=True,
    )
    assert json.loads(told.stdout) == [
        *([False, False], [True, False], [True, True]),
        *("kitchen", str(kitchen), "house.rooms"),
    ]


def test_what_is_imported_already_is_not_read_again(tmp_path: Path) -> None:
    house = tmp_path / "house"
    house.mkdir()
    for name in ("__init__", "hall", "attic"):
        (house / f"{name}.py").touch()
    program = """
import os, sys
sys.path.insert(0, sys.argv[1])
import house.hall
from acphold.machine.installation import keep_code
opened = []
def note(event, arguments):
    if event == "open" and str(arguments[0]).startswith(sys.argv[1]):
        opened.append(os.path.basename(arguments[0]).partition(".")[0])
sys.addaudithook(note)
keep_code("house")
print(*sorted(set(opened)))
"""
    command = [sys.executable, "-c", program, str(tmp_path)]
    told = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE, check=True)
    assert told.stdout.split() == ["attic"]
