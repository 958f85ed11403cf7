"""The prompts that a client has sent to the owner of a session, until they are answered.

An owner that dies takes some of them with it. It puts a prompt of ours into the journal before its
agent gets it, and tells us the prompt's position: a prompt that arrived so has begun, and is over
with its owner. One that is not in the journal has reached no agent, and can be sent to the next
owner as if it had not been sent before.

    known of it        when its owner dies
    -----------------  ----------------------------------------------------------------------
    on its way         once the session has a new owner, nobody else can put it into the
                       journal any more: looked for there, and sent again if it is not there
    has arrived        its client is told at once that the turn was interrupted
    is cancelled       answered as cancelled, whether it has arrived or not

It is the same when another process has taken the session from an owner that was stopped.
"""

from __future__ import annotations

from collections.abc import Callable


class SentPrompt:
    """See the module. `after` is an entry that was in the journal when it was sent.

    `lose` is called when its owner has lost the session, and has not ended.
    """

    __slots__ = ("after", "has_arrived", "is_cancelled", "lose", "session_id")

    def __init__(self, session_id: str, after: int) -> None:
        self.session_id = session_id
        self.after = after
        self.lose: Callable[[], object] = bool
        self.has_arrived = False
        self.is_cancelled = False


class SentPrompts:
    """Those of one client at one owner, in the order in which they were sent."""

    def __init__(self) -> None:
        self._open: dict[str, list[SentPrompt]] = {}

    def add(self, sent: SentPrompt) -> None:
        """It is sent."""
        self._open.setdefault(sent.session_id, []).append(sent)

    def remove(self, sent: SentPrompt) -> None:
        """It is answered, or it is known what became of it when its owner ended."""
        waiting = self._open[sent.session_id]
        waiting.remove(sent)
        if not waiting:
            del self._open[sent.session_id]

    def arrived(self, session_id: str) -> None:
        """The owner has told the position of a prompt: it takes them in the order of the wire."""
        for sent in self._open.get(session_id, ()):
            if not sent.has_arrived:
                sent.has_arrived = True
                return

    def lose(self, session_id: str) -> None:
        """Another process has taken the session: its owner can begin no prompt in it any more."""
        for sent in tuple(self._open.get(session_id, ())):
            sent.lose()

    def cancel(self, session_id: str) -> None:
        """The client has cancelled its prompts in this session."""
        for sent in self._open.get(session_id, ()):
            sent.is_cancelled = True
