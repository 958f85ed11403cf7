"""The man pages, which are made of docs/use.md and docs/reference.md."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from acphold.faces.cli.main import COMMANDS
from docs.man_pages import man_pages


def test_there_is_a_page_of_acphold_and_one_of_each_command_that_is_written_about() -> None:
    made = man_pages("1.0")
    assert {"acphold.1", "acphold-list.1", "acphold-agent-sign-out.1"} <= {*made}
    commands = {name.removeprefix("acphold-").removesuffix(".1") for name in made} - {"acphold"}
    assert commands == {name.replace(" ", "-") for name in COMMANDS}
    assert ".TP\n\\fB\\-\\-live\\fR\nonly sessions that" in made["acphold-list.1"]
    assert ".TP\n\\fB\\-\\-cwd DIR\\fR (all)\nonly sessions of" in made["acphold.1"]
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
