"""The man pages, which are made of docs/operations.md, and the wheel, which has them."""

from __future__ import annotations

import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from acphold.cli.main import COMMANDS
from docs.man_pages import man_pages

ROOT = Path(__file__).parents[2]


def test_there_is_a_page_of_acphold_and_one_of_each_command_that_is_written_about() -> None:
    made = man_pages("1.0")
    assert {"acphold.1", "acphold-list.1", "acphold-unarchive.1", "acphold-demo-agent.1"} <= {*made}
    commands = {name.removeprefix("acphold-").removesuffix(".1") for name in made} - {"acphold"}
    assert commands <= {*COMMANDS}
    assert ".TP\n\\fB\\fB\\-\\-cwd DIR\\fR\\fR\nonly sessions of" in made["acphold-list.1"]
    assert ".SH The settings file" in made["acphold.1"]


@pytest.mark.interop
def test_man_shows_each_page_without_a_complaint(tmp_path: Path) -> None:
    for name, text in man_pages("1.0").items():
        (tmp_path / name).write_text(text)
        done = subprocess.run(
            ["man", "--warnings", "-P", "cat", "-l", str(tmp_path / name)],
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stderr == "", name
        assert name.removesuffix(".1") in done.stdout


def test_a_wheel_has_the_documents_and_the_man_pages(tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    (wheel,) = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    documents = {page.name for page in (ROOT / "docs").glob("*.md")}
    assert {f"acphold/docs/{name}" for name in documents} <= {*names}
    there = {match[1] for name in names if (match := re.search(r"/share/man/man1/(.*)", name))}
    assert there == {*man_pages("1.0")}
    assert not [name for name in names if name.endswith(("man_pages.py", "hatch_build.py"))]
