"""What the tests of the command line share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from functools import cache
from pathlib import Path

import pytest

from tests.cli.command_line import CommandLine, FarCommandLine
from tests.web.conftest import serving


@pytest.fixture
def acphold(request: pytest.FixtureRequest, journal: Path, tmp_path: Path) -> Iterator[CommandLine]:
    """`acphold` with the journal of the test; see `here_and_there`."""
    if getattr(request, "param", "here") == "here":
        yield CommandLine(journal)
        return
    with ExitStack() as stack:

        @cache
        def serve() -> Mapping[str, str]:
            assert journal == tmp_path / "journal.db"
            served = stack.enter_context(serving(tmp_path))
            laptop = str(tmp_path / "laptop")
            return {
                "ACPHOLD_SERVER": served.url,
                "ACPHOLD_TOKEN": served.token(),
                "ACPHOLD_JOURNAL": f"{laptop}/journal.db",
                "XDG_STATE_HOME": laptop,
            }

        yield FarCommandLine(journal, serve)
