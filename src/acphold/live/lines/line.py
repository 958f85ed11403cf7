"""A line: the sessions that a client has open over one connection, also if it is replaced.

Every line keeps them so: to a remote server, to the process that owns a session, to each agent of a
connection to all. `schema.methods` says what a request does to them (`opens`, `makes`, `leaves`).
The page in a browser keeps its sessions by the same rules (`web/page/wire/line.js`); both pass the
cases of `tests/lines/line_cases.py`.

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

Theory of operation. For the client it is as if the connection had always been there. Its requests
are kept until they are answered; its open sessions are kept until it leaves them. When a new
connection replaces a lost one, `on_reconnect` says which sessions to resume, each once and after
the last position that the client was sent. It also says what to do with each request, in the order
in which the client sent them:

    request                                   over the next connection
    ----------------------------------------  ------------------------------------------------------
    was not sent yet                          sent
    `session/prompt`                          sent again, with its id and a position from before it,
                                              by which an `acphold serve` runs it only once
    load, resume: part of it has arrived      `session/resume` after that
    load, resume: nothing has arrived         sent again
    other repeatable ones                     sent again (`schema.methods`)
    all others, and a prompt to a foreign     refused: it is unknown if it was done
    server, which would run it twice

A session that a request is opening is opened by that request alone, and not resumed as well.

If a client answered a question, its answer may be lost with the connection. The question is asked
again under the same id, and gets the same answer, without asking the client. A client that leaves
answers nothing: no answer is made up for it.
"""

# See docs/decisions.md, 19.

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from typing import Final, Generic, NamedTuple, TypeVar

from msgspec import Struct, field

from acp_wire.newest import Newest
from acp_wire.schema import CANCEL, INITIALIZE, LOAD_SESSION, PROMPT
from acp_wire.schema.methods import REQUESTS
from acp_wire.schema.splice import session_id_in

R = TypeVar("R")

FIRST_PAUSE: Final = 0.25
LONGEST_PAUSE: Final = 15.0
"""Seconds between tries: twice as long each time, with some chance, so that clients do not all
return at once."""

ANSWERS: Final = 100
"""Most answers of the client that are kept in case their questions are asked again."""


class OpenSession(Struct, eq=False):
    """One open session. `setup` is the client's request for it, to open it again.

    `position` is that of the last update that the client was sent; before the first one, the
    position where it began, None if unknown. It belongs to a `lineage`, which the answer that
    opened the session named. `former` is that from before a gap, after which none has come yet.
    `due` is what is answered once the client has been sent all that came before. `is_open` is set
    once the client has that answer.
    """

    setup: bytes
    position: int | None
    lineage: str | None = None
    due: Sequence[Callable[[], object]] = ()
    is_open: bool = False
    former: int | None = None

    def act(self) -> None:
        """Do what is due."""
        due, self.due = self.due, ()
        for act in due:
            act()

    def advance(self, position: int) -> None:
        """Note that the client was sent the update at this position."""
        self.position = position if self.position is None else max(self.position, position)

    def on_resumed(self, lineage: str | None) -> None:
        """Note that it is open over a new connection; the answer named this lineage, if any."""
        self.lineage = lineage or self.lineage


class OpenSessions(dict[str, OpenSession]):
    """Sessions by their ids; see the module."""

    def begin(self, session_id: str, opening: OpenSession) -> SessionOpening:
        """Note that the client asks to open a session; its updates count from now on."""
        before = self.get(session_id)
        if before is not None:
            opening.due, before.due = before.due, ()
        self[session_id] = opening
        return SessionOpening(self, session_id, opening, before)

    def on_answer(
        self, method: str, session_id: str | None, setup: bytes, result: bytes, lineage: str | None
    ) -> str | None:
        """Note what the client has open by an answer; return the session's id if it opens one.

        `session_id` is the one in the request. A session that a request makes has sent nothing yet:
        a new one begins at 0, a copy at an unknown position.
        """
        effect = REQUESTS[method]
        if effect.leaves and session_id is not None and session_id in self:
            self.pop(session_id).act()
        if not effect.opens:
            return None
        opened_id = session_id_in(result) if effect.makes else session_id
        if opened_id is None:
            return None
        opened = self.get(opened_id)
        if opened is None or effect.makes:
            is_new = effect.makes and session_id is None
            opened = self[opened_id] = OpenSession(setup, 0 if is_new else None)
        elif opened.position is None and method == LOAD_SESSION.name:
            opened.position = 0  # a replay of nothing
        opened.is_open = True
        opened.lineage = lineage
        opened.act()
        return opened_id


class SessionOpening(Struct, eq=False):
    """A session that is being opened: `before` is what the client had open of it until then."""

    sessions: OpenSessions
    session_id: str
    opening: OpenSession
    before: OpenSession | None

    def undo(self) -> None:
        """Restore what the client had open: the session could not be opened."""
        if self.sessions.get(self.session_id) is not self.opening or self.opening.is_open:
            return  # it was opened, or another request has come since
        if self.before is None:
            del self.sessions[self.session_id]
        else:
            self.before.due = self.opening.due
            self.sessions[self.session_id] = self.before


class Pending(Struct, Generic[R], eq=False):
    """A request of the client that is not answered: `request` is the object that gets the answer.

    `sent_id` is the id under which a prompt is known, `after` a position from before it, and `id`
    the number of the request on the present connection. A request that opens a session `begins`
    there, if that is known. `on_answered` is called once it is answered. `was_refused` is set on
    one that is sent again because its session was not open there.
    """

    request: R
    method: str
    params: bytes
    session_id: str | None
    sent_id: str = field(default_factory=lambda: uuid.uuid4().hex)
    after: int = 0
    id: int | None = None
    is_sent: bool = False
    is_cancelled: bool = False
    was_refused: bool = False
    opening: SessionOpening | None = None
    begins: OpenSession | None = None
    on_answered: Callable[[], object] = bool


class ResumePlace(NamedTuple):
    """The place where a client resumes: after a position, of a lineage if one is known."""

    position: int
    lineage: str | None


class Resumed(NamedTuple):
    """A session to resume, and the ids of its prompts that were sent and wait."""

    session_id: str
    opened: OpenSession
    known: Sequence[str]


class Return(NamedTuple, Generic[R]):
    """The steps over a new connection, in this order; see the module."""

    resume: Sequence[Resumed]
    refuse: Sequence[Pending[R]]
    ask: Sequence[Pending[R]]


class LastingLine(Generic[R]):
    """The requests of a client and its open sessions, over all its connections. `knows_positions`
    is True once the server has said that it keeps them."""

    def __init__(self) -> None:
        self.knows_positions = False
        self.sessions: OpenSessions = OpenSessions()
        self.pending: list[Pending[R]] = []
        self._answers: Newest[str, bytes] = Newest(ANSWERS)
        self._kept: list[tuple[str, bytes]] = []

    # -- what the client asks ---------------------------------------------------------------

    def ask(self, request: R, method: str, params: bytes, session_id: str | None) -> Pending[R]:
        """Keep a request of the client until it is answered."""
        asked = Pending(request, method, params, session_id)
        self.pending.append(asked)
        if method == PROMPT.name:  # a cancel from before it is not meant for it
            left = (CANCEL.name, session_id)
            self._kept = [it for it in self._kept if (it[0], session_id_in(it[1])) != left]
        return asked

    def keep(self, method: str, params: bytes) -> None:
        """Keep a notification of the client for the next connection."""
        self._kept.append((method, params))

    def take_kept(self) -> Sequence[tuple[str, bytes]]:
        """Return the notifications that were kept, which are sent now."""
        kept, self._kept = self._kept, []
        return kept

    def send(self, asked: Pending[R]) -> ResumePlace | None:
        """Note that it is sent now. Return the place after which to resume instead, or to send a
        prompt again; None to send the request as it is."""
        opened = self.sessions.get(asked.session_id or "")
        was_sent, asked.is_sent = asked.is_sent, True
        if asked.method == PROMPT.name:
            if was_sent:
                return ResumePlace(asked.after, None)
            asked.after = 0 if opened is None else opened.position or 0
        elif asked.session_id is not None and REQUESTS[asked.method].reopens:
            if was_sent and opened is not None and opened.position:
                return ResumePlace(opened.position, opened.lineage)
            if not was_sent:  # replayed updates have positions, and come before the answer
                opening = asked.begins or OpenSession(asked.params, None)
                asked.opening = self.sessions.begin(asked.session_id, opening)
        return None

    def on_answer(
        self, asked: Pending[R], result: bytes | None, lineage: str | None = None
    ) -> bool:
        """Note its answer, None if refused; return False if it is no longer waited for."""
        if asked not in self.pending:
            return False
        self.pending.remove(asked)
        if result is not None:
            self.sessions.on_answer(asked.method, asked.session_id, asked.params, result, lineage)
        elif asked.opening is not None:
            asked.opening.undo()
        return True

    def forget(self, asked: Pending[R]) -> None:
        """Drop a request: nobody waits for the answer any more."""
        if asked in self.pending:
            self.pending.remove(asked)
            if asked.opening is not None:
                asked.opening.undo()

    def cancel(self, session_id: str | None, sent_id: str | None = None) -> Sequence[Pending[R]]:
        """Mark the client's prompts in a session as cancelled, or the one with its own id
        `sent_id`, and return them."""
        prompts = [it for it in self.pending if it.method == PROMPT.name]
        prompts = [it for it in prompts if it.session_id == session_id]
        prompts = [it for it in prompts if sent_id in (None, it.sent_id)]
        for asked in prompts:
            asked.is_cancelled = True
        return prompts

    @property
    def is_due(self) -> bool:
        """True while an answer is due at once. A turn takes as long as it takes, until it is
        cancelled."""
        return any(it.method != PROMPT.name or it.is_cancelled for it in self.pending)

    @property
    def introduces_itself(self) -> bool:
        """True while `initialize` is not answered."""
        return any(asked.method == INITIALIZE.name for asked in self.pending)

    # -- another connection -----------------------------------------------------------------

    def on_reconnect(self) -> Return[R]:
        """Return what is owed over a new connection, each thing once."""
        opening = []
        for asked in self.pending:
            if asked.opening is not None:
                opening.append(asked.session_id)
                asked.opening.before = None  # it was open over the lost connection only
        prompts = [it for it in self.pending if it.method == PROMPT.name]
        resume = [
            Resumed(
                session_id,
                opened,
                [it.sent_id for it in prompts if it.session_id == session_id and it.is_sent],
            )
            for session_id, opened in self.sessions.items()
            if session_id not in opening
        ]
        repeatable = {INITIALIZE.name, *([PROMPT.name] if self.knows_positions else ())}
        refuse = [
            it
            for it in self.pending
            if it.is_sent and not (it.method in repeatable or REQUESTS[it.method].repeatable)
        ]
        ask = [asked for asked in self.pending if asked not in refuse]
        return Return(resume, refuse, ask)

    # -- what the server asks ---------------------------------------------------------------

    def answer_to(self, question: str) -> bytes | None:
        """Return the client's answer to this question; None if it has given none."""
        return self._answers.get(question)

    def give(self, question: str, answer: bytes) -> None:
        """Keep the client's answer; "" is a question that is never asked again."""
        if question:
            self._answers[question] = answer
