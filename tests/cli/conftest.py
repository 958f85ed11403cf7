"""Fixtures shared by the tests of the command line."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.command_line import CommandLine
from tests.cli.place import Place, short_folder


@pytest.fixture
def acphold(journal: Path) -> CommandLine:
    """`acphold` with the journal of the test."""
    return CommandLine(journal)


@pytest.fixture
def place(journal: Path) -> Iterator[Place]:
    with short_folder() as folder:
        yield Place(folder, journal)
