"""Waiting, but not for ever, for the agent to open a session that a client loads.

The client sees the history in any case. If the agent is late, or cannot open the session, the next
prompt waits or tries again, and reports the problem. Only if the agent asks a person to sign in
first, nothing is shown before.
"""

from __future__ import annotations

import asyncio
import logging

from acphold.agents import HubAgent
from acphold.errors import (
    AUTH_REQUIRED,
    AcpholdError,
    FolderElsewhereError,
    HeldOutsideError,
    RemoteError,
)
from acphold.hub.annotations import notice
from acphold.hub.conversation import Conversation
from acphold.hub.outside_turns import MARGIN_MS
from acphold.hub.session_list import SessionList

log = logging.getLogger(__name__)

HELD_OUTSIDE = "The agent has this conversation open in another process"
HELD_OUTSIDE_HOW = (
    "You can read it here as it was last seen. To continue, close it there first, or continue a "
    "copy: acphold fork"
)

FOLDER_ELSEWHERE = "The folder of this session is on another machine"

LOAD_SECONDS = 25.0
"""Seconds that `session/load` waits, behind the replay, for the agent to open the session too.

The history is shown all the same; the next prompt waits on, or tries again and reports.
"""


class Readiness:
    """See the module. `signed_in` says that the agent has let a session be used since it
    started."""

    def __init__(self, agent: HubAgent, sessions: SessionList) -> None:
        self.signed_in = False
        self._agent = agent
        self._sessions = sessions

    @property
    def may_want_sign_in(self) -> bool:
        """True if nothing of a conversation may be shown before the agent lets it be opened."""
        return not self.signed_in and self._agent.has_sign_in

    def begin(self, conversation: Conversation) -> asyncio.Task[None]:
        """Start a task in which the agent opens a session; pass it to `wait`, and cancel it at the
        end."""
        return asyncio.create_task(self._restored(conversation), name="agent opens session")

    async def wait(self, restoring: asyncio.Task[None]) -> None:
        """Wait for the agent to have the session open, but not for ever."""
        await asyncio.wait([restoring], timeout=LOAD_SECONDS)
        if not restoring.done():
            restoring.cancel()
            log.warning("a session is opened before the agent has it open")
        elif not restoring.cancelled():  # an earlier `wait` may have given up on it
            restoring.result()

    async def _restored(self, conversation: Conversation) -> None:
        """Restore it, after checking whether it has gone on outside acphold."""
        restoration, session = conversation.restoration, conversation.session
        try:
            known = None if conversation.side.is_open else await restoration.known_as()
            if known is not None and session.last_seq:
                listed = await self._sessions.look_up(known)
                if listed is not None and listed.updated_at is not None:
                    [last] = await session.read(session.last_seq - 1, 1)
                    restoration.went_on = listed.updated_at > last.at + MARGIN_MS
            await restoration.ready()
            # While the agent works in the session, it is not asked to open it.
            self.signed_in = self.signed_in or conversation.side.is_open
        except RemoteError as exc:
            # An agent of the library raises in our process: its error is the answer.
            if exc.code == AUTH_REQUIRED or self._agent.reads_journal:
                raise
            log.warning("session %s: not restored yet: %s", conversation.id, exc)
        except HeldOutsideError as exc:
            told = notice(HELD_OUTSIDE, f"{HELD_OUTSIDE_HOW} {conversation.id}", "warning")
            await conversation.session.publish("update", [told])
            log.warning("session %s: %s", conversation.id, exc)
        except FolderElsewhereError as exc:
            told = notice(FOLDER_ELSEWHERE, str(exc), "warning")
            await conversation.session.publish("update", [told])
            log.warning("session %s: %s", conversation.id, exc)
        except AcpholdError as exc:
            # The history is shown all the same; the next prompt tries again and reports.
            log.warning("session %s: not restored yet: %s", conversation.id, exc)
