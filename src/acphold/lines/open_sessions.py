"""The sessions that a client has open over one connection, and its position in each.

Every line keeps them so: to a remote server, to the process that owns a session, to each agent of a
connection to all. `schema.methods` says what a request does to them (`opens`, `makes`, `leaves`).

    a session is  when                                    next
    ------------  --------------------------------------  -----------------------------------------
    opening       the client asks to load or resume it:   open, with the answer; as it was before,
                  a replay comes before the answer        if that is refused
    open          the answer says so                      left, when closing it, deleting it or
                                                          archiving it is answered
    left          it is no longer here: it gets no        opening
                  updates, and is not resumed

A position only goes forward: late or repeated updates move nothing back. A session that is opened
anew begins where that request says: that is another opening, not the same one gone back.
"""

from __future__ import annotations

from typing import Generic, TypeVar

from acphold.schema import LOAD_SESSION
from acphold.schema.methods import LEAVING, MAKING, OPENING
from acphold.schema.splice import session_id_in

S = TypeVar("S")


class OpenSession(Generic[S]):
    """One open session. `setup` is the client's request for it, to open it again.

    `position` is that of the last update that the client was sent; before the first one, the
    position where it began, None if unknown. It belongs to a `lineage`, which the answer that
    opened the session named. `is_open` is set once the client has that answer. `epoch` is that of
    the owner's lease, if the line leads to an owner.
    """

    __slots__ = ("epoch", "is_open", "lineage", "position", "setup")

    def __init__(
        self, setup: S, position: int | None, epoch: int = 0, lineage: str | None = None
    ) -> None:
        self.setup = setup
        self.position = position
        self.epoch = epoch
        self.lineage = lineage
        self.is_open = False

    def told(self, position: int) -> None:
        """Note that the client was sent the update at this position."""
        self.position = position if self.position is None else max(self.position, position)


class OpenSessions(dict[str, OpenSession[S]]):
    """Sessions by their ids; see the module."""

    def begin(self, session_id: str, opening: OpenSession[S]) -> SessionOpening[S]:
        """Note that the client asks to open a session; its updates count from now on."""
        begun = SessionOpening(self, session_id, opening, self.get(session_id))
        self[session_id] = opening
        return begun

    def answered(
        self, method: str, session_id: str | None, setup: S, result: bytes, lineage: str | None
    ) -> str | None:
        """Note what the client has open by an answer; return the session's id if it opens one.

        `session_id` is the one in the request. A session that a request makes has sent nothing yet:
        a new one begins at 0, a copy at an unknown position.
        """
        if method in LEAVING and session_id is not None:
            self.pop(session_id, None)
        if method not in OPENING:
            return None
        opened_id = session_id_in(result) if method in MAKING else session_id
        if opened_id is None:
            return None
        opened = self.get(opened_id)
        if opened is None or method in MAKING:
            is_new = method in MAKING and session_id is None
            opened = self[opened_id] = OpenSession(setup, 0 if is_new else None)
        elif opened.position is None and method == LOAD_SESSION.name:
            opened.position = 0  # a replay of nothing
        opened.is_open = True
        opened.lineage = lineage
        return opened_id


class SessionOpening(Generic[S]):
    """A session that is being opened: `before` is what the client had open of it until then."""

    def __init__(
        self,
        sessions: OpenSessions[S],
        session_id: str,
        opening: OpenSession[S],
        before: OpenSession[S] | None,
    ) -> None:
        self._sessions = sessions
        self._session_id = session_id
        self.opening = opening
        self.before = before

    def failed(self) -> None:
        """Restore what the client had open: the session could not be opened."""
        if self._sessions.get(self._session_id) is not self.opening or self.opening.is_open:
            return  # it was opened, or another request has come since
        if self.before is None:
            del self._sessions[self._session_id]
        else:
            self._sessions[self._session_id] = self.before
