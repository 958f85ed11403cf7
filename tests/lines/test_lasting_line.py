"""A client gets everything it is owed over the next connection, whatever the last ones lost."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from acp_wire.schema.methods import REQUESTS
from acphold.live.lines.line import ANSWERS, LastingLine, Pending

IDS = st.sampled_from(["a", "b", "c"])
OPENS = st.sampled_from(["session/load", "session/resume"])
OTHERS = st.sampled_from(
    ["session/set_mode", "session/close", "session/delete", "session/archive", "_ext/do"]
)


def params(session_id: str) -> bytes:
    return json.dumps({"sessionId": session_id, "cwd": "/"}).encode()


class Server:
    """The memory of a server that keeps positions: of this connection, and of sessions over all."""

    def __init__(self) -> None:
        self.last = dict.fromkeys(["a", "b", "c"], 0)
        self.is_here: set[str] = set()
        self.resumed: list[str] = []
        self.made = 0


class Lines(RuleBasedStateMachine):
    """Any order of open, cut, return, question, answer, fork, prompt and close."""

    def __init__(self) -> None:
        super().__init__()
        self.line = LastingLine[int]()
        self.line.knows_positions = True
        self.server = Server()
        self.is_up = True
        self.numbers = iter(range(10_000))
        self.sent: list[Pending[int]] = []  # on this connection, not answered
        self.over: dict[int, str] = {}
        self.times_sent: dict[int, int] = {}
        self.shown: dict[str, list[int]] = {}  # updates the client got, by session
        self.given: dict[str, bytes] = {}
        self.asked_of_person: list[str] = []

    # -- the client ---------------------------------------------------------------------

    def _ask(self, method: str, session_id: str | None, said: bytes) -> None:
        asked = self.line.ask(next(self.numbers), method, said, session_id)
        if self.is_up:
            self._send(asked)

    def _send(self, asked: Pending[int]) -> None:
        number = asked.request
        self.times_sent[number] = self.times_sent.get(number, 0) + 1
        was_told = self.shown.get(asked.session_id or "")
        opened = self.line.sessions.get(asked.session_id or "")
        place = self.line.send(asked)
        if REQUESTS[asked.method].reopens:
            assert asked.session_id is not None
            self.server.is_here.discard(asked.session_id)
            if place is not None:
                assert was_told
                assert opened is not None
                assert place.position == max(was_told)
                self._resume(asked.session_id, place.position)
            else:
                self.shown[asked.session_id] = []
        self.sent.append(asked)

    @rule(session_id=IDS, method=OPENS)
    def open(self, session_id: str, method: str) -> None:
        waits = [it for it in self.line.pending if it.session_id == session_id]
        if not any(REQUESTS[it.method].opens for it in waits):
            self._ask(method, session_id, params(session_id))

    @rule()
    def new(self) -> None:
        self._ask("session/new", None, b'{"cwd":"/"}')

    @rule(session_id=IDS)
    def fork(self, session_id: str) -> None:
        self._ask("session/fork", session_id, params(session_id))

    @rule(session_id=IDS)
    def prompt(self, session_id: str) -> None:
        self._ask("session/prompt", session_id, params(session_id))

    @rule(session_id=IDS, method=OTHERS)
    def other(self, session_id: str, method: str) -> None:
        self._ask(method, session_id, params(session_id))

    @rule(session_id=IDS)
    def cancel(self, session_id: str) -> None:
        for asked in self.line.cancel(session_id):
            assert (asked.method, asked.session_id) == ("session/prompt", session_id)

    # -- the server ---------------------------------------------------------------------

    @precondition(lambda self: self.sent)
    @rule(data=st.data(), is_refused=st.booleans())
    def answer(self, data: Any, is_refused: bool) -> None:
        asked = data.draw(st.sampled_from(self.sent))
        self.sent.remove(asked)
        result = b"{}"
        if REQUESTS[asked.method].makes:
            self.server.made += 1
            made = f"made{self.server.made}"
            result = json.dumps({"sessionId": made}).encode()
        assert self.line.on_answer(asked, None if is_refused else result, "lineage")
        assert not self.line.on_answer(asked, result)  # never twice
        assert asked.request not in self.over
        self.over[asked.request] = asked.method
        if is_refused:
            return
        if REQUESTS[asked.method].makes:
            assert made in self.line.sessions
            self.server.is_here.add(made)
            self.server.last[made] = 0
            self.shown[made] = []
        elif REQUESTS[asked.method].opens:
            self.server.is_here.add(asked.session_id)
            assert self.line.sessions[asked.session_id].lineage == "lineage"
        elif asked.method in ("session/close", "session/delete", "session/archive"):
            self.server.is_here.discard(asked.session_id)
            assert asked.session_id not in self.line.sessions

    @precondition(lambda self: self.is_up and self.line.sessions)
    @rule(data=st.data(), ahead=st.integers(0, 3))
    def tell(self, data: Any, ahead: int) -> None:
        """An update; `ahead` of 0 is one that comes late."""
        session_id = data.draw(st.sampled_from(sorted(self.line.sessions)))
        self.server.last[session_id] = position = self.server.last.get(session_id, 0) + ahead
        before = self.line.sessions[session_id].position
        self.line.sessions[session_id].advance(position)
        after = self.line.sessions[session_id].position
        assert after is not None
        assert after >= (before or 0)
        self.line.sessions[session_id].advance(max(0, position - 2))
        assert self.line.sessions[session_id].position == after
        self.shown.setdefault(session_id, []).append(after)

    # -- the connection -----------------------------------------------------------------

    @precondition(lambda self: self.is_up)
    @rule()
    def cut(self) -> None:
        self.is_up = False
        self.sent.clear()
        self.server.is_here.clear()

    @precondition(lambda self: not self.is_up)
    @rule()
    def come_back(self) -> None:
        waited = list(self.line.pending)
        order = self.line.on_reconnect()
        self.is_up, self.server.resumed = True, []
        for session_id, opened, known in order.resume:
            self._resume(session_id, opened.position)
            assert set(known) == {
                it.sent_id
                for it in waited
                if (it.session_id, it.method) == (session_id, "session/prompt") and it.is_sent
            }
        for asked in order.refuse:
            assert asked.is_sent
            assert not REQUESTS[asked.method].repeatable
            assert asked.method != "session/prompt"
            self.line.on_answer(asked, None)
            self.over[asked.request] = "refused"
        assert [it for it in waited if it not in order.refuse] == list(order.ask)
        for asked in order.ask:
            self._send(asked)
        # All that the client has open is there again, or is being opened by its own request.
        opening = {it.session_id for it in self.line.pending if REQUESTS[it.method].opens}
        assert {*self.line.sessions} <= self.server.is_here | opening

    def _resume(self, session_id: str, position: int | None) -> None:
        assert session_id not in self.server.resumed, "resumed twice over one connection"
        self.server.resumed.append(session_id)
        self.server.is_here.add(session_id)
        if position is not None and self.shown.get(session_id):
            assert position == max(self.shown[session_id])

    # -- questions ----------------------------------------------------------------------

    @rule(question=st.sampled_from(["q1", "q2", ""]), stays=st.booleans())
    def question(self, question: str, stays: bool) -> None:
        """Asked, perhaps again; a client that leaves in the meantime answers nothing."""
        given = self.line.answer_to(question)
        assert given == self.given.get(question)
        if given is None and stays:
            self.line.give(question, b"%d" % len(self.asked_of_person))
            self.asked_of_person.append(question)
            if question:
                assert self.asked_of_person.count(question) == 1
                self.given[question] = b"%d" % (len(self.asked_of_person) - 1)

    # -- always -------------------------------------------------------------------------

    @invariant()
    def what_cannot_be_repeated_was_sent_once(self) -> None:
        for asked in self.line.pending:
            if not (asked.method == "session/prompt" or REQUESTS[asked.method].repeatable):
                assert self.times_sent.get(asked.request, 0) <= 1

    @invariant()
    def nothing_waits_that_is_over(self) -> None:
        assert not {it.request for it in self.line.pending} & {*self.over}


TestLines = Lines.TestCase


def test_a_load_that_is_refused_leaves_open_what_was_open() -> None:
    line = LastingLine[int]()
    first = line.ask(1, "session/resume", params("a"), "a")
    line.send(first)
    line.on_answer(first, b"{}")
    opened = line.sessions["a"]
    again = line.ask(2, "session/load", params("a"), "a")
    line.send(again)
    assert line.sessions["a"] is not opened
    line.on_answer(again, None)
    assert line.sessions["a"] is opened


def test_the_oldest_answers_are_forgotten_first() -> None:
    line = LastingLine[int]()
    for n in range(ANSWERS + 1):
        line.give(f"q{n}", b"yes")
    assert (line.answer_to("q0"), line.answer_to("q1")) == (None, b"yes")
