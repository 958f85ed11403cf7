"""The sessions that one client may use: those of its tenant, and those shared with it."""

from __future__ import annotations

from acphold.errors import UnknownSessionError
from acphold.hub import Hub
from acphold.schema.session_ids import session_id_in
from acphold.server.entrance import Entrance
from acphold.server.openings import Openings
from acphold.server.remote_sessions import RemoteSessions


class OwnSessions:
    """See the module. What was looked up once stays known until `clear`, except for shares."""

    def __init__(
        self, hub: Hub, entrance: Entrance, remote: RemoteSessions, openings: Openings
    ) -> None:
        self._hub = hub
        self._entrance = entrance
        self._remote = remote
        self._openings = openings
        self._known: set[str] = set()  # sessions not held here
        self._watched: set[str] = set()

    def only_watches(self, session_id: str) -> bool:
        """Return True if a share lets the client read the session, but not answer in it."""
        return session_id in self._watched

    def is_known(self, params: bytes) -> bool:
        """Return True if the session that these params name, if any, is known to be open to this
        client."""
        if self._entrance.tenant is None or (session_id := session_id_in(params)) is None:
            return True
        if self._hub.holds(session_id):
            return self._entrance.principal.owns(self._hub.held(session_id).session.tenant)
        is_open = self._remote.line(session_id) is not None or self._openings.has(session_id)
        return is_open and session_id in self._known  # checked when the client opened it

    async def require(self, method: str, params: bytes) -> None:
        """Look up if the session is open to this client; a share is checked each time, for it may
        end.

        Raises UnknownSessionError, the same if there is no such session and if it may not know of
        it, and ForbiddenError.
        """
        session_id = session_id_in(params)
        if self.is_known(params) or session_id is None:
            return
        principal = self._entrance.principal
        try:
            row = await self._hub.whereabouts.row(session_id)
        except UnknownSessionError:
            if self._hub.agent.reads_journal or not principal.owns(""):
                raise
            return  # the agent's own
        principal.check_in(row, method, params)
        if principal.owns(row.tenant):
            self._known.add(session_id)
        elif "answer" in principal.scopes_in(row):
            self._watched.discard(session_id)
        else:
            self._watched.add(session_id)

    def clear(self) -> None:
        """Forget what is known: the client is somebody else now, or nobody."""
        self._known.clear()
        self._watched.clear()
