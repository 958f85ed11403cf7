"""What many sessions publish in one moment, in one transaction.

A commit costs ten times what a row of it does. Where hundreds of sessions stream at once, each
piece by itself would be a commit; and whoever waits for one piece waits for all of those.
"""

from __future__ import annotations

from collections.abc import Sequence

from acphold.errors import JournalError, LeaseLostError
from acphold.hub.attachment import Client
from acphold.hub.publication import Publication
from acphold.hub.session import Session
from acphold.journal import Entries


async def publish_together(
    journal: Entries, said: Sequence[tuple[Session, Publication]]
) -> list[JournalError | None]:
    """Publish something in each of these sessions of `journal`, none of which is named twice.

    They are for all clients alike. What it failed with for each, as `Session.publish` would raise
    it. Nothing was delivered then.
    """
    sessions = [session for session, _ in said]
    for session in sessions:
        await session.writing.acquire()
    try:
        prepared = [session.prepare(publication) for session, publication in said]
        try:
            done = await journal.append_all([each.append for each in prepared])
        except BaseException as exc:
            for session, each in zip(sessions, prepared, strict=True):
                session.put_off(each, exc)
            if isinstance(exc, JournalError):
                return [exc] * len(sessions)
            raise
        published = [*zip(sessions, prepared, done, strict=True)]
        # All of them before anybody is told: whatever comes of that, this is in the journal.
        for session, each, segments in published:
            if isinstance(segments, LeaseLostError):
                session.put_off(each, segments)
            else:
                session.committed(each, segments)
        failed: list[JournalError | None] = []
        lines: dict[Client, list[bytes] | None] = {}  # None for one that lags
        for session, each, segments in published:
            if isinstance(segments, LeaseLostError):
                failed.append(segments)
                continue
            failed.append(None)
            if len(segments) > 1:
                session.deliver(each, segments)
                continue
            for attachment in tuple(session.attachments):
                client = attachment.client
                if client not in lines:
                    lines[client] = None if client.buffered else []
                its = lines[client]
                if its is not None and (line := attachment.line_of(segments[0])):
                    its.append(line)
                else:
                    attachment.deliver(segments[0])
        for client, its in lines.items():
            if its:
                client.send(b"".join(its))
        return failed
    finally:
        for session in sessions:
            session.writing.release()
