"""What the tests of the command line share."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.command_line import CommandLine


@pytest.fixture
def acphold(journal: Path) -> CommandLine:
    """`acphold` with the journal of the test."""
    return CommandLine(journal)
