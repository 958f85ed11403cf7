"""Publications of many sessions at one moment, in one transaction.

A commit costs ten times as much as a row in it. If hundreds of sessions stream at once, each piece
alone would be a commit, and so would each prompt; every session would wait for all of them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from acphold.errors import JournalError, LeaseLostError
from acphold.hub.attachment import Client
from acphold.hub.publication import Publication
from acphold.hub.session import HubSession
from acphold.journal import Entries
from acphold.rpc.eager_tasks import EagerTasks
from acphold.tasks import END_SECONDS, TaskSet

log = logging.getLogger(__name__)


async def publish_together(
    journal: Entries, said: Sequence[tuple[HubSession, Publication | None]]
) -> list[JournalError | None]:
    """Publish what each of these sessions of `journal` holds, and its publication; no session
    twice.

    Return the error of each, as `HubSession.publish` would raise it; nothing was delivered then.
    """
    sessions = [session for session, _ in said]
    for session in sessions:
        await session.writing.acquire()
    try:
        prepared = [
            session.prepare() if publication is None else session.prepare(publication)
            for session, publication in said
        ]
        try:
            done = await journal.append_all([each.append for each in prepared])
        except BaseException as exc:
            for session, each in zip(sessions, prepared, strict=True):
                session.put_off(each, exc)
            if isinstance(exc, JournalError):
                return [exc] * len(sessions)
            raise
        published = [*zip(sessions, prepared, done, strict=True)]
        # Note all of them before any delivery: whatever a delivery causes, these are in the
        # journal.
        for session, each, segments in published:
            if isinstance(segments, LeaseLostError):
                session.put_off(each, segments)
            else:
                session.committed(each, segments)
        failed: list[JournalError | None] = []
        rounds: dict[Client, list[list[bytes]]] = {}
        for session, each, segments in published:
            if isinstance(segments, LeaseLostError):
                failed.append(segments)
                continue
            failed.append(None)
            for publication, segment in zip(each.publications, segments, strict=True):
                if not publication.is_speech:
                    session.attachments.deliver(publication, segment)
                    continue
                for attachment in session.attachments:
                    client = attachment.client
                    if client.buffered or not (lines := attachment.lines_of(segment)):
                        attachment.deliver(segment)
                        continue
                    its = rounds.setdefault(client, [])
                    for place, line in enumerate(lines):
                        if place == len(its):
                            its.append([])
                        its[place].append(line)
        # A write has one message of each session: a client that starts all it reads at once would
        # mix up several of one session.
        for client, its in rounds.items():
            for some in its:
                client.send(b"".join(some))
        return failed
    finally:
        for session in sessions:
            session.writing.release()


class CommonRelease:
    """Publishes what the sessions of a hub hold at the end of a step of the event loop.

    In one transaction, without what was published together with a later publication.
    """

    def __init__(self, journal: Entries, tasks: EagerTasks) -> None:
        self._journal = journal
        self._tasks = tasks
        self._due: dict[HubSession, Callable[[], Coroutine[Any, Any, None]]] = {}
        self._under_way = TaskSet()

    def add(self, session: HubSession, alone: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Publish what this session holds, too; `alone` does so if it cannot go with the others."""
        if not self._due:
            asyncio.get_running_loop().call_soon(self._leave)
        self._due[session] = alone

    def _leave(self) -> None:
        due, self._due = self._due, {}
        self._begin(self._release({each: due[each] for each in due if each.holds_any}))

    async def _release(
        self, due: dict[HubSession, Callable[[], Coroutine[Any, Any, None]]]
    ) -> None:
        together = [(each, None) for each in due if not each.writing.locked()]
        if len(together) > 1:
            try:
                await publish_together(self._journal, together)
            except Exception:  # nobody awaits this task; each session finds out alone
                log.exception("%d prompts could not be journalled together", len(together))
        for session, alone in due.items():
            if session.holds_any:
                self._begin(alone())

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._tasks.begin(work, "release")
        if task is not None:
            self._under_way.add(task)

    async def aclose(self) -> None:
        """Wait until everything under way is in the journal."""
        await self._under_way.aclose(END_SECONDS)
