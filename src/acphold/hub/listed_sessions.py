"""Requests of a client about any session of the list, open or not: rename, archive, fork.

This process does not become the owner of the session by that. A session that only the agent has is
adopted first, because the result is kept in our journal.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from acphold.agents.copy_method import CopyRequest
from acphold.errors import InvalidParamsError
from acphold.hub.agent_session import Setup
from acphold.hub.attachment import Client
from acphold.hub.given_titles import given_title
from acphold.journal import Journal, RowChange, SessionRow
from acphold.transports.addresses import is_node

if TYPE_CHECKING:  # late below: few clients do this
    from acphold.hub.forks import Forked
    from acphold.hub.kept_files import KeptThere


class ListedSessions:
    """See the module. `keep` has a session in the journal, `close` frees one that is live here,
    `look_at` tells a live one that its row has changed."""

    def __init__(
        self,
        journal: Journal,
        keep: Callable[[str], Awaitable[None]],
        close: Callable[[str, Client], Awaitable[None]],
        look_at: Callable[[str], Awaitable[None]],
    ) -> None:
        self._journal = journal
        self._keep = keep
        self._close = close
        self._look_at = look_at

    async def rename(self, session_id: str, title: str) -> str:
        """Give it a title and return it as kept. InvalidParamsError for one without a letter or
        digit."""
        kept = given_title(title)
        if kept is None:
            raise InvalidParamsError("title: a letter or a digit at least is required", "title")
        await self._keep(session_id)
        await self._journal.change(session_id, RowChange(given=kept))
        await self._look_at(session_id)
        return kept

    async def archive(self, session_id: str, client: Client) -> None:
        """Take it out of the lists; `client` closes it, and if that was the last client, so does
        this process."""
        await self._keep(session_id)
        await self._close(session_id, client)
        await self._journal.change(session_id, RowChange(archived=True))
        await self._look_at(session_id)  # others may still have it open, and prompt it back

    async def unarchive(self, session_id: str) -> None:
        """Put it back into the lists."""
        await self._keep(session_id)
        await self._journal.change(session_id, RowChange(archived=False))

    async def fork(self, session_id: str, setup: Setup, at: int | None) -> str:
        """Make a session of its turns up to the one with entry `at`, in the folders of `setup`;
        return its id.

        Raises NothingSaidError, and InvalidParamsError if this is one of several machines and the
        folder is not on it: the new session lives here.
        """
        if is_node() and not await asyncio.to_thread(os.path.isdir, setup.cwd):
            raise InvalidParamsError(
                f"cwd: there is no folder {setup.cwd!r} on this machine ({socket.gethostname()}), "
                "where the copy would live; name one that is there, or make the copy where it is",
                field="cwd",
            )
        row = await self._whole(session_id)
        folders = setup.additional_directories
        from acphold.hub.forks import fork  # late: few clients do this

        made = await fork(self._journal, row, at=at, cwd=setup.cwd, additional_directories=folders)
        return made.session_id

    async def copy(self, wanted: CopyRequest) -> tuple[Forked, KeptThere | None]:
        """Make a copy of a session in the same folder, or with its files in another one.

        Raises what `hub.kept_files.fork_with_files` raises.
        """
        row = await self._whole(wanted.session_id)
        at, before = wanted.at, wanted.before
        if not wanted.files:
            from acphold.hub.forks import fork

            return await fork(self._journal, row, at=at, before=before), None
        from acphold.hub.kept_files import fork_with_files

        there, made = await fork_with_files(
            self._journal, row, wanted.folder, at=at, before=before, include=wanted.include
        )
        return made, there

    async def _whole(self, session_id: str) -> SessionRow:
        await self._keep(session_id)
        await self._journal.complete(session_id)
        return await self._journal.session(session_id)
