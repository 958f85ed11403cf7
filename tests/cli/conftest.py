"""Fixtures shared by the tests of the command line."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import ExitStack, asynccontextmanager
from functools import cache
from pathlib import Path

import pytest

from acphold.journal.access import SCOPES
from acphold.web.server import Listening, _running
from tests.cli.command_line import CommandLine, FarCommandLine
from tests.cli.place import Place, short_folder
from tests.web.in_process import site


@pytest.fixture
def acphold(request: pytest.FixtureRequest, journal: Path, tmp_path: Path) -> Iterator[CommandLine]:
    """`acphold` with the journal of the test; see `here_and_there`."""
    if getattr(request, "param", "here") == "here":
        yield CommandLine(journal)
        return
    from anyio.from_thread import start_blocking_portal  # late: few workers need it

    with ExitStack() as stack:

        @cache
        def serve() -> Mapping[str, str]:
            assert journal == tmp_path / "journal.db"
            beside = stack.enter_context(start_blocking_portal())
            return stack.enter_context(beside.wrap_async_context_manager(served(tmp_path)))

        yield FarCommandLine(journal, serve)


@asynccontextmanager
async def served(folder: Path) -> AsyncIterator[Mapping[str, str]]:
    """Serve the journal in this folder from this process; the variables of who reads it.

    `acphold serve` itself is started by `tests/web/test_far_commands.py`.
    """
    listening = Listening(port=0)
    with listening.bind() as bound:
        url = f"http://localhost:{bound.getsockname()[1]}"
        async with (
            site(folder, url) as found,
            _running(found.app, bound, None, listening.connections(), 1 << 20),
        ):
            laptop = str(folder / "laptop")
            yield {
                "ACPHOLD_SERVER": url,
                "ACPHOLD_TOKEN": await found.new_token(*SCOPES),
                "ACPHOLD_JOURNAL": f"{laptop}/journal.db",
                "XDG_STATE_HOME": laptop,
            }


@pytest.fixture
def place(journal: Path) -> Iterator[Place]:
    with short_folder() as folder:
        yield Place(folder, journal)
