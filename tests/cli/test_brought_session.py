"""`acphold continue --bring-from URL`: a session leaves a server, and goes on here."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from anyio.from_thread import start_blocking_portal

from acphold.faces.cli.command_line import Exit
from acphold.journal.access import SCOPES
from acphold.web.server import Listening, _running
from tests.cli.command_line import CommandLine
from tests.cli.conversation import remember
from tests.raw_entries import CONVERSATION
from tests.web.in_process import site


@asynccontextmanager
async def served(folder: Path) -> AsyncIterator[tuple[str, str]]:
    """The journal in this folder, served from this process: the address, and a token."""
    listening = Listening(port=0)
    with listening.bind() as bound:
        url = f"http://localhost:{bound.getsockname()[1]}"
        async with (
            site(folder, url) as found,
            _running(found.app, bound, None, listening.connections(), 1 << 20),
        ):
            yield url, await found.new_token(*SCOPES)


def test_a_session_that_was_brought_from_a_server_is_continued_here(
    acphold: CommandLine, tmp_path: Path
) -> None:
    (far := tmp_path / "far").mkdir()
    remember(far / "journal.db", "s-1", *CONVERSATION, cwd=str(far), agent="of the server")
    with (
        start_blocking_portal() as beside,
        beside.wrap_async_context_manager(served(far)) as (server, token),
    ):
        words = ("continue", "--bring-from", server, "s-1", "--cwd", str(tmp_path))
        brought = acphold.run_as_process(*words, ACPHOLD_TOKEN=token)
    assert f"s-1 was moved here from {server}" in brought.out
    # Nobody knows here how to start its agent: that is learned where it goes on.
    assert "of the server" in brought.err
    assert brought.code != Exit.OK
    assert "s-1" in acphold.run("list").out
