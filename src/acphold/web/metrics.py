"""Metrics of the server, in the text format of Prometheus.

    GET /metrics    needs the scope watch, for all sessions

Source: Prometheus, exposition formats, "Text-based format" 0.0.4.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from itertools import accumulate
from typing import Final

from acphold.errors import UnknownSessionError
from acphold.journal import Journal
from acphold.journal.stored_journal import APPENDS, BOUNDS, Durations
from acphold.reading.neighbours import LiveSession
from acphold.schema import LIST_SESSIONS
from acphold.server.principals import Principal
from acphold.web.connections import Message, Receive, Send
from acphold.web.exchange import HttpExchange
from acphold.web.gate import RefusedError
from acphold.web.http_clients import HttpClients
from acphold.web.journal_pages import JournalReader
from acphold.web.list_feed import ListFeed

METRICS: Final = "/metrics"

FORMAT: Final = b"text/plain; version=0.0.4; charset=utf-8"


class Metrics:
    """Counts traffic and answers requests for metrics.

    `received` and `sent` are bytes of bodies and messages, `refused` counts answers by status, and
    `sockets` is the number of open WebSockets.
    """

    def __init__(self, reader: JournalReader, http: HttpClients, feed: ListFeed) -> None:
        self._reader = reader
        self._http = http
        self._feed = feed
        self.sockets = 0
        self.received = 0
        self.sent = 0
        self.refused: Counter[int] = Counter()

    def counted(self, receive: Receive, send: Send) -> tuple[Receive, Send]:
        """Return both, wrapped to count what passes."""

        async def receiving() -> Message:
            message = await receive()
            self.received += _size(message)
            return message

        async def sending(message: Message) -> None:
            await send(message)
            self.sent += _size(message)

        return receiving, sending

    async def answer(self, exchange: HttpExchange, principal: Principal) -> None:
        """Answer a request for the metrics; raises RefusedError, ForbiddenError and
        JournalError."""
        exchange.require_read()
        principal.check(LIST_SESSIONS.name, b"{}")
        if not principal.sees_all:
            raise RefusedError(403, "this is about all sessions; the token is for some of them")
        anywhere = await self._reader.live()
        live = list[LiveSession]()

        async def count(journal: Journal) -> int:
            for session_id, (session, _) in anywhere.items():
                with suppress(UnknownSessionError):  # in another journal of this user
                    await journal.session(session_id)
                    live.append(session)
            return await journal.count()

        sessions = await self._reader.ask(count)
        text = "".join(
            [
                _one("acphold_sessions", "gauge", "Sessions in the journal.", sessions),
                _one(
                    "acphold_live_sessions",
                    "gauge",
                    "Sessions of the journal in the memory of a process.",
                    len(live),
                ),
                _one(
                    "acphold_running_turns",
                    "gauge",
                    "Sessions in which a turn runs.",
                    sum(session.running for session in live),
                ),
                _one(
                    "acphold_waiting_sessions",
                    "gauge",
                    "Sessions in which the agent waits for the answer of a person.",
                    sum(session.waiting for session in live),
                ),
                _by(
                    "acphold_connections",
                    "gauge",
                    "Connections that are open.",
                    "transport",
                    {
                        "websocket": self.sockets,
                        "http": self._http.connections,
                        "feed": self._feed.watchers,
                    },
                ),
                _by(
                    "acphold_bytes_total",
                    "counter",
                    "Bytes of bodies and messages.",
                    "direction",
                    {"in": self.received, "out": self.sent},
                ),
                _by(
                    "acphold_refused_requests_total",
                    "counter",
                    "Requests that were refused.",
                    "status",
                    {str(status): number for status, number in sorted(self.refused.items())},
                ),
                _histogram(
                    "acphold_journal_append_seconds",
                    "How long an append to the journal takes.",
                    APPENDS,
                ),
            ]
        )
        await exchange.answer(200, headers=[(b"content-type", FORMAT)], raw=text.encode())


def _head(name: str, kind: str, about: str) -> str:
    return f"# HELP {name} {about}\n# TYPE {name} {kind}\n"


def _one(name: str, kind: str, about: str, value: int) -> str:
    return f"{_head(name, kind, about)}{name} {value}\n"


def _by(name: str, kind: str, about: str, label: str, values: Mapping[str, int]) -> str:
    lines = (f'{name}{{{label}="{key}"}} {value}\n' for key, value in values.items())
    return _head(name, kind, about) + "".join(lines)


def _histogram(name: str, about: str, found: Durations) -> str:
    bounds: Iterable[str] = (*map(str, BOUNDS), "+Inf")
    counts = [*accumulate(found.counts)]
    lines = (
        f'{name}_bucket{{le="{bound}"}} {count}\n'
        for bound, count in zip(bounds, counts, strict=True)
    )
    ends = f"{name}_sum {found.total}\n{name}_count {counts[-1]}\n"
    return _head(name, "histogram", about) + "".join(lines) + ends


def _size(message: Message) -> int:
    body = message.get("body") or message.get("bytes") or b""
    text = message.get("text") or ""
    return len(body) + (len(text) if text.isascii() else len(text.encode(errors="replace")))
