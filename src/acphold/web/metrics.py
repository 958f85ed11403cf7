"""Metrics of the server, in the text format of Prometheus.

    GET /metrics    needs the scope watch, for all sessions

Source: Prometheus, exposition formats, "Text-based format" 0.0.4.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Final

from acp_wire.schema import LIST_SESSIONS
from acphold.journal.stored_journal import BOUNDS
from acphold.live.server.methods import Asked
from acphold.web.connections import Message, Receive, Send
from acphold.web.exchange import HttpExchange, RefusedError
from acphold.web.gate import Admitted
from acphold.web.http_clients import HttpClients
from acphold.web.journal_pages import JournalReader
from acphold.web.list_feed import ListFeed
from acphold.web.relay import Relay

METRICS: Final = "/metrics"

FORMAT: Final = b"text/plain; version=0.0.4; charset=utf-8"


class Metrics:
    """Counts traffic and answers requests for metrics.

    `received` and `sent` are bytes of bodies and messages, `refused` counts answers by status, and
    `sockets` is the number of open WebSockets.
    """

    def __init__(
        self, reader: JournalReader, http: HttpClients, feed: ListFeed, relay: Relay
    ) -> None:
        self._reader = reader
        self._http = http
        self._feed = feed
        self._relay = relay
        self.sockets = 0
        self.received = 0
        self.sent = 0
        self.refused: Counter[int] = Counter()

    def wrap(self, receive: Receive, send: Send) -> tuple[Receive, Send]:
        """Return both, wrapped to count what passes."""

        async def receiving() -> Message:
            message = await receive()
            self.received += _size(message)
            return message

        async def sending(message: Message) -> None:
            await send(message)
            self.sent += _size(message)

        return receiving, sending

    async def answer(self, exchange: HttpExchange, admitted: Admitted) -> None:
        """Answer a request for the metrics; raises RefusedError, ForbiddenError and
        JournalError."""
        principal = admitted.principal
        exchange.require("GET", "HEAD")
        principal.check(Asked.read(LIST_SESSIONS.name))
        if not principal.sees_all:
            raise RefusedError(403, "metrics need a token for all sessions")
        live = [session for session, _ in (await self._reader.live()).values()]
        sessions = await self._reader.ask(lambda journal: journal.count())
        running = sum(session.running for session in live)
        waiting = sum(session.waiting for session in live)
        clients = {
            "websocket": self.sockets,
            "http": self._http.connections,
            "feed": self._feed.watchers,
        }
        connections = _with_label("transport", clients)
        traffic = _with_label("direction", {"in": self.received, "out": self.sent})
        refused = _with_label("status", dict(sorted(self.refused.items())))
        found = await self._relay.appends()
        counts = [*accumulate(found.counts)]
        ends = (*map(str, BOUNDS), "+Inf")
        buckets = {f'_bucket{{le="{it}"}}': n for it, n in zip(ends, counts, strict=True)}
        appends = {**buckets, "_sum": found.total, "_count": counts[-1]}
        held = "Sessions that a process has in memory."
        waits = "Sessions with an agent that waits for a person's answer."
        carried = "Bytes of HTTP bodies and WebSocket messages."
        takes = "How long an append to the journal takes."
        # The samples of a metric are named by what follows its name.
        families: Sequence[tuple[str, str, str, Mapping[str, float]]] = (
            ("gauge", "acphold_sessions", "Sessions in the journal.", {"": sessions}),
            ("gauge", "acphold_live_sessions", held, {"": len(live)}),
            ("gauge", "acphold_running_turns", "Sessions with a running turn.", {"": running}),
            ("gauge", "acphold_waiting_sessions", waits, {"": waiting}),
            ("gauge", "acphold_connections", "Open connections.", connections),
            ("counter", "acphold_bytes_total", carried, traffic),
            ("counter", "acphold_refused_requests_total", "Refused requests.", refused),
            ("histogram", "acphold_journal_append_seconds", takes, appends),
        )
        text = ""
        for kind, name, about, samples in families:
            text += f"# HELP {name} {about}\n# TYPE {name} {kind}\n"
            text += "".join(f"{name}{rest} {value}\n" for rest, value in samples.items())
        await exchange.answer(200, headers=[(b"content-type", FORMAT)], raw=text.encode())


def _with_label(label: str, values: Mapping[str, int] | Mapping[int, int]) -> Mapping[str, float]:
    return {f'{{{label}="{key}"}}': value for key, value in values.items()}


def _size(message: Message) -> int:
    body = message.get("body") or message.get("bytes") or b""
    text = message.get("text") or ""
    return len(body) + (len(text) if text.isascii() else len(text.encode(errors="replace")))
